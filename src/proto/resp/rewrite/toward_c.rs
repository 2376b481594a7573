//! Commands in words that a C peer knows (`Netflix/dynomite src/proto/dyn_redis.c`): at one it
//! does not know it closes the link, with everything that is queued there.

use super::super::encode;
use super::super::spec::CommandSpec;
use crate::proto::args::Args;

/// Most arguments of a command that can be wrapped in a script, its name included: Lua cannot
/// unpack many more.
pub const EVAL_ARGS_MAX: usize = 7_000;

/// Runs the command it is given and returns its reply, or its error as an error.
const SCRIPT: &[u8] = b"return redis.pcall(unpack(ARGV))";

/// Stands for the key of a command that has none: the peer wants one to route by.
const NO_KEY: &[u8] = b"torc:";

/// Appends the command under the name of another one that takes the same arguments and gives the
/// same reply. False, and nothing is appended, when there is none.
pub fn renamed(spec: &CommandSpec, args: &Args<'_>, out: &mut Vec<u8>) -> bool {
    let name: &[u8] = match spec.name {
        "unlink" => b"DEL",
        "eval_ro" => b"EVAL",
        "evalsha_ro" => b"EVALSHA",
        _ => return false,
    };
    // A script without a key is refused by the peer.
    if spec.first_key(args).is_none() {
        return false;
    }
    encode::array(out, args.len());
    encode::bulk(out, name);
    args.tail(1).iter().for_each(|arg| encode::bulk(out, arg));
    true
}

/// Appends the command wrapped in a script that has its keys in KEYS. False, and nothing is
/// appended, when it has too many arguments.
///
/// The reply is that of the command, but for two things that pass through Lua: a null array
/// comes back as a null string, and integers beyond 2^53 are rounded.
pub fn in_script(spec: &CommandSpec, args: &Args<'_>, out: &mut Vec<u8>) -> bool {
    if args.len() > EVAL_ARGS_MAX {
        return false;
    }
    let keys = spec.keys_of(args);
    let count = keys.len().max(1);
    encode::array(out, 3 + count + args.len());
    encode::bulk(out, b"EVAL");
    encode::bulk(out, SCRIPT);
    encode::bulk(out, count.to_string().as_bytes());
    if keys.len() == 0 {
        encode::bulk(out, NO_KEY);
    }
    keys.for_each(|key| encode::bulk(out, &args[key]));
    args.iter().for_each(|arg| encode::bulk(out, arg));
    true
}
