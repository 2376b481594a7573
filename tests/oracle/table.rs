//! The command table against redis-server's own `COMMAND`.

use crate::server::Server;
use std::collections::BTreeMap;
use torc::proto::args::Args;
use torc::proto::command::{Class, KeySpec, Routing};
use torc::proto::resp::reply::{elements, parse_int, text};
use torc::proto::resp::spec::CommandSpec;
use torc::proto::resp::table::{self, ModuleCommands};

/// What redis-server says of a command.
struct Theirs {
    arity: i64,
    flags: Vec<String>,
    /// First key, last key, step.
    keys: [i64; 3],
}

fn commands(reply: &[u8], found: &mut BTreeMap<String, Theirs>) {
    for command in elements(reply) {
        let fields: Vec<&[u8]> = elements(command).collect();
        let string = |field: &[u8]| String::from_utf8_lossy(text(field).unwrap()).into_owned();
        let number = |i: usize| parse_int(fields[i]).unwrap();
        let theirs = Theirs {
            arity: number(1),
            flags: elements(fields[2]).map(string).collect(),
            keys: [number(3), number(4), number(5)],
        };
        found.insert(string(fields[0]), theirs);
        commands(fields[9], found);
    }
}

fn row(name: &str) -> Option<&'static CommandSpec> {
    match name.split_once('|') {
        None => table::lookup(name.as_bytes()),
        Some((container, sub)) => {
            table::lookup_sub(table::lookup(container.as_bytes())?, sub.as_bytes())
        }
    }
}

#[test]
fn arity_keys_and_class_are_those_of_redis() {
    let Some(server) = Server::redis("arity_keys_and_class_are_those_of_redis") else { return };
    let mut theirs = BTreeMap::new();
    commands(&server.connect().call("COMMAND"), &mut theirs);
    assert!(theirs.len() > 300);
    for (name, theirs) in &theirs {
        if name.ends_with("|help") || name.starts_with("cluster|") || name.starts_with("pubsub|") {
            continue;
        }
        let ours = row(name).unwrap_or_else(|| panic!("{name} has no row"));
        // Newer servers take WITHSCORE.
        let wider = theirs.arity == 3 && matches!(name.as_str(), "zrank" | "zrevrank");
        assert_eq!(i64::from(ours.arity), if wider { -3 } else { theirs.arity }, "{name}");
        if matches!(ours.routing, Routing::Refused(_)) {
            continue;
        }
        let has = |flag: &str| theirs.flags.iter().any(|f| f == flag);
        assert_eq!(keys_as_redis_tells_them(ours), theirs.keys, "{name}");
        if has("write") {
            assert_eq!(ours.class, Class::Write, "{name}");
        } else if has("readonly") && ours.class != Class::Admin {
            assert_eq!(ours.class, Class::Read, "{name}");
        }
    }
}

fn keys_as_redis_tells_them(spec: &CommandSpec) -> [i64; 3] {
    match spec.keys {
        KeySpec::None | KeySpec::NumKeys { .. } | KeySpec::Streams => [0, 0, 0],
        KeySpec::First | KeySpec::FirstAndStore { .. } | KeySpec::DestNumKeys => [1, 1, 1],
        KeySpec::Range { first, last, step } => [first.into(), last.into(), step.into()],
    }
}

#[test]
fn keys_are_found_where_redis_finds_them() {
    let Some(server) = Server::redis("keys_are_found_where_redis_finds_them") else { return };
    let mut redis = server.connect();
    for line in [
        "GET a",
        "MSET a 1 b 2 c 3",
        "EVAL s 2 a b c",
        "FCALL f 1 a b",
        "ZUNIONSTORE d 2 a b WEIGHTS 1 2",
        "ZINTER 2 a b WITHSCORES",
        "SINTERCARD 2 a b LIMIT 1",
        "LMPOP 2 a b LEFT",
        "BLMPOP 0 2 a b LEFT",
        "BZMPOP 0 1 a MIN",
        "BLPOP a b 0",
        "BITOP AND d a b",
        "SORT a",
        "SORT a BY store GET store STORE b",
        "SORT a STORE b STORE c",
        "SORT_RO a LIMIT 0 1",
        "GEORADIUS a 1 2 3 m STORE b",
        "GEORADIUS a 1 2 3 m STOREDIST b",
        "GEORADIUSBYMEMBER a store 3 m STOREDIST b",
        "GEOSEARCHSTORE d a FROMMEMBER m BYRADIUS 1 m",
        "XREAD COUNT 2 BLOCK 0 STREAMS a b 0 0",
        "XREADGROUP GROUP g c STREAMS a >",
        "XGROUP CREATE a g $",
        "XINFO STREAM a",
        "OBJECT ENCODING a",
        "MEMORY USAGE a",
        "LCS a b IDX",
        "COPY a b REPLACE",
        "PFMERGE a b c",
        "PFCOUNT a b",
    ] {
        let theirs = redis.call(&format!("COMMAND GETKEYS {line}"));
        let theirs: Vec<&[u8]> = elements(&theirs).filter_map(text).collect();
        crate::server::request(line, |_, args: &Args<'_>| {
            let spec = table::find(args, &ModuleCommands::default()).unwrap();
            let mut ours: Vec<&[u8]> = spec.keys_of(args).map(|i| &args[i]).collect();
            let mut theirs = theirs.clone();
            // The order is no matter of routing.
            ours.sort_unstable();
            theirs.sort_unstable();
            assert_eq!(ours, theirs, "{line}");
        });
    }
}

#[test]
fn rejections_are_worded_as_by_redis() {
    let Some(server) = Server::redis("rejections_are_worded_as_by_redis") else { return };
    let mut redis = server.connect();
    let long = "x".repeat(200);
    for line in [
        "nope",
        "NoPe a 'b c' \"\\r\\n\"",
        &format!("{long} {long} a"),
        &format!("nope {} {} {}", &long[..60], &long[..60], &long[..60]),
        "GET",
        "get a b",
        "MSET",
        "CONFIG",
        "Config Get",
        "OBJECT ENCODING",
        "config nope",
        "XGROUP nope a",
        "SCRIPT load",
        "XINFO groups",
    ] {
        let theirs = redis.call(line);
        crate::server::request(line, |_, args| {
            let mut ours = Vec::new();
            let rejection = table::find(args, &ModuleCommands::default()).unwrap_err();
            rejection.write(args, &mut ours);
            assert_eq!(ours.escape_ascii().to_string(), theirs.escape_ascii().to_string());
        });
    }
}
