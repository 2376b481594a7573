//! The form in which a command goes to a node of the C reference that would close the link at
//! the command itself (column [`TowardC`]).
//!
//! The reference accepts `EVAL` with at least one key, all of one owner, and never looks into the
//! script; so whatever a datastore can do in a script can be asked of it.

use super::encode;
use super::spec::CommandSpec;
use crate::proto::args::Args;
use crate::proto::command::TowardC;

/// Runs the command in ARGV. Errors come back as they are: `call` would wrap them in the place
/// of the script where they happened.
const CALL: &[u8] = b"return redis.pcall(unpack(ARGV))";

/// Stands for the key of a command that has none; a name that is never shown.
pub const NO_KEY: &[u8] = b"torc:none";

/// Most arguments Lua hands on in one call.
pub const EVAL_ARGS_MAX: usize = 7_000;

/// Appends what a C peer gets for a command that it does not accept as it is. False when there is
/// no such form; nothing is appended then.
pub fn write(form: TowardC, spec: &CommandSpec, args: &Args<'_>, out: &mut Vec<u8>) -> bool {
    match form {
        TowardC::AsIs => encode::command(out, args.iter()),
        TowardC::Rewrite => {
            let Some(name) = other_name(spec.name) else { return false };
            encode::array(out, args.len());
            encode::bulk(out, name);
            args.tail(1).iter().for_each(|arg| encode::bulk(out, arg));
        }
        TowardC::Eval if args.len() <= EVAL_ARGS_MAX => wrapped(spec, args, out),
        TowardC::Eval | TowardC::Refuse => return false,
    }
    true
}

/// The command with the same arguments and the same answer that C peers know.
fn other_name(name: &str) -> Option<&'static [u8]> {
    match name {
        "unlink" => Some(b"DEL"),
        "eval_ro" => Some(b"EVAL"),
        "evalsha_ro" => Some(b"EVALSHA"),
        _ => None,
    }
}

fn wrapped(spec: &CommandSpec, args: &Args<'_>, out: &mut Vec<u8>) {
    let keys = spec.keys_of(args);
    let count = keys.len().max(1);
    encode::array(out, 3 + count + args.len());
    encode::bulk(out, b"EVAL");
    encode::bulk(out, CALL);
    encode::bulk(out, itoa::Buffer::new().format(count).as_bytes());
    match keys.len() {
        0 => encode::bulk(out, NO_KEY),
        _ => keys.for_each(|key| encode::bulk(out, &args[key])),
    }
    args.iter().for_each(|arg| encode::bulk(out, arg));
}

#[cfg(test)]
mod tests {
    use super::super::decode::{RequestDecoder, RequestLimits};
    use super::super::table;
    use super::*;

    fn towards_c(line: &str) -> Option<String> {
        let mut request = Vec::new();
        encode::command(&mut request, line.split(' ').map(str::as_bytes).collect::<Vec<_>>());
        let mut spans = Vec::new();
        let limits = RequestLimits::default();
        RequestDecoder::default().decode(&request, &limits, &mut spans).unwrap().unwrap();
        let args = Args::new(&request, &spans);
        let spec = table::find(&args, &Default::default()).unwrap();
        let mut out = Vec::new();
        if !write(spec.toward_c_of(&args), spec, &args, &mut out) {
            assert!(out.is_empty());
            return None;
        }
        RequestDecoder::default().decode(&out, &limits, &mut spans).unwrap().unwrap();
        let words = Args::new(&out, &spans);
        Some(words.iter().map(|w| String::from_utf8_lossy(w)).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn what_c_peers_accept_goes_as_it_is() {
        assert_eq!(towards_c("GET a").unwrap(), "GET a");
        assert_eq!(towards_c("EVAL s 1 a").unwrap(), "EVAL s 1 a");
    }

    #[test]
    fn other_commands_are_renamed_or_wrapped_with_their_keys() {
        assert_eq!(towards_c("UNLINK a b").unwrap(), "DEL a b");
        assert_eq!(towards_c("EVAL_RO s 1 a").unwrap(), "EVAL s 1 a");
        let call = "EVAL return redis.pcall(unpack(ARGV))";
        assert_eq!(towards_c("GETDEL a").unwrap(), format!("{call} 1 a GETDEL a"));
        assert_eq!(towards_c("COPY a b").unwrap(), format!("{call} 2 a b COPY a b"));
        assert_eq!(towards_c("HSET h a 1 b 2").unwrap(), format!("{call} 1 h HSET h a 1 b 2"));
        assert_eq!(towards_c("DBSIZE").unwrap(), format!("{call} 1 torc:none DBSIZE"));
    }

    #[test]
    fn what_no_script_can_do_is_refused() {
        assert_eq!(towards_c("BLPOP a 0"), None);
        assert_eq!(towards_c("FCALL f 1 a"), None);
    }
}
