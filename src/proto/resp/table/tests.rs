use super::*;
use crate::proto::args::Span;
use crate::proto::command::{Class, Effect, KeySpec, Routing, TowardC};
use crate::proto::resp::inline;
use crate::proto::resp::shape::Shape;
use std::collections::HashSet;

/// Runs `test` on the arguments of a command line.
fn with_args<T>(line: &str, test: impl FnOnce(&Args<'_>) -> T) -> T {
    let (mut frame, mut spans): (Vec<u8>, Vec<Span>) = (Vec::new(), Vec::new());
    inline::rewrite(line.as_bytes(), &mut frame, &mut spans).unwrap();
    test(&Args::new(&frame, &spans))
}

fn spec_of(line: &str) -> &'static CommandSpec {
    with_args(line, |args| find(args, &ModuleCommands::default()).unwrap())
}

fn rejected(line: &str) -> String {
    with_args(line, |args| {
        let mut out = Vec::new();
        find(args, &ModuleCommands::default()).unwrap_err().write(args, &mut out);
        String::from_utf8(out).unwrap()
    })
}

#[test]
fn every_row_is_found_by_its_name_in_any_case() {
    let mut names = HashSet::new();
    for row in rows() {
        assert!(names.insert(row.name), "{} twice", row.name);
        assert!(row.name.len() <= NAME_BYTES_MAX);
        let found = match row.name.split_once('|') {
            None => lookup(row.name.to_ascii_uppercase().as_bytes()),
            Some((container, sub)) => {
                let container = lookup(container.as_bytes()).unwrap();
                let sub = sub.to_ascii_uppercase();
                lookup_sub(container, sub.as_bytes())
            }
        };
        assert_eq!(found.map(|f| f.name), Some(row.name));
    }
    assert!(names.len() > 350 && names.len() * 3 < SLOTS);
    for name in [&b"nope"[..], b"", b"ge", b"gett", b"config|get", &[b'a'; 64]] {
        assert!(lookup(name).is_none(), "{}", name.escape_ascii());
    }
}

#[test]
fn slots_are_found_in_few_steps() {
    let mut longest = 0;
    for row in rows() {
        let home = slot_of(hash_row(row.name.as_bytes()));
        let at = (0..SLOTS)
            .find(|i| INDEX[(home + i) % SLOTS].is_some_and(|found| found.name == row.name))
            .unwrap();
        longest = longest.max(at);
    }
    assert!(longest <= 4, "{longest}");
}

#[test]
fn what_is_no_command_is_told_in_the_words_of_redis() {
    assert_eq!(
        rejected("FOO a 'b c'"),
        "-ERR unknown command 'FOO', with args beginning with: 'a' 'b c' \r\n"
    );
    assert_eq!(rejected("FOO"), "-ERR unknown command 'FOO', with args beginning with: \r\n");
    assert_eq!(rejected("GET"), "-ERR wrong number of arguments for 'get' command\r\n");
    assert_eq!(rejected("get a b"), "-ERR wrong number of arguments for 'get' command\r\n");
    assert_eq!(rejected("SET a"), "-ERR wrong number of arguments for 'set' command\r\n");
    assert_eq!(
        rejected("Config Get"),
        "-ERR wrong number of arguments for 'config|get' command\r\n"
    );
    assert_eq!(rejected("CONFIG"), "-ERR wrong number of arguments for 'config' command\r\n");
    assert_eq!(rejected("config foo"), "-ERR unknown subcommand 'foo'. Try CONFIG HELP.\r\n");
    assert_eq!(rejected("\"F\\nO\""), {
        "-ERR unknown command 'F O', with args beginning with: \r\n"
    });
}

#[test]
fn module_commands_are_taken_by_prefix() {
    assert_eq!(spec_of("JSON.GET a").name, "json.get");
    let spec = spec_of("json.newverb a b");
    assert_eq!((spec.class, spec.keys), (Class::Write, KeySpec::First));
    assert!(rejected("json.newverb").contains("wrong number of arguments"));
    assert!(rejected("mymod.get a").contains("unknown command"));
    let mut modules = ModuleCommands::default();
    modules.add("MyMod.", false);
    modules.add("mymod.get", true);
    let class = |line| with_args(line, |args| find(args, &modules).unwrap().class);
    assert_eq!(class("mymod.set a"), Class::Write);
    assert_eq!(class("MYMOD.GET a"), Class::Read);
}

#[test]
fn arguments_decide_class_routing_and_effect() {
    let class = |line| with_args(line, |args| spec_of(line).class_of(args));
    assert_eq!(class("SORT a"), Class::Read);
    assert_eq!(class("SORT a STORE b"), Class::Write);
    assert_eq!(class("GEORADIUS a 1 1 1 m STOREDIST b"), Class::Write);
    assert_eq!(class("GETEX a"), Class::Read);
    assert_eq!(class("GETEX a PERSIST"), Class::Write);
    assert_eq!(class("BITFIELD a GET u8 0"), Class::Read);
    assert_eq!(class("BITFIELD a GET u8 0 SET u8 0 1"), Class::Write);
    assert_eq!(class("TTL a"), Class::Read);
    assert_eq!(class("SUNIONSTORE a b"), Class::Write);
    let reference = |line| with_args(line, |args| spec_of(line).reference_class_of(args));
    assert_eq!(reference("TTL a"), Class::Write);
    assert_eq!(reference("SORT a STORE b"), Class::Read);
    let routing = |line| with_args(line, |args| spec_of(line).routing_of(args));
    assert_eq!(routing("XREAD BLOCK 0 STREAMS a $"), Routing::Blocking);
    assert_eq!(routing("XREAD STREAMS block 0"), Routing::Keyed);
    let effect = |line| with_args(line, |args| spec_of(line).effect_of(args));
    assert_eq!(effect("SET a nx"), Effect::Verbatim);
    assert_eq!(effect("SET a 1 EX 10"), Effect::Absolute);
    assert_eq!(effect("SET a 1 EX 10 NX"), Effect::PrimaryFirst);
    assert_eq!(effect("HSETEX k EX 1 FIELDS 1 fnx v"), Effect::Absolute);
    assert_eq!(effect("HSETEX k FIELDS 1 ex px"), Effect::Verbatim);
    assert_eq!(effect("HSETEX k FNX EX 1 FIELDS 1 a v"), Effect::PrimaryFirst);
    assert_eq!(effect("MSETEX 2 ex nx px xx KEEPTTL"), Effect::Verbatim);
    assert_eq!(effect("MSETEX 1 a b PX 10"), Effect::Absolute);
    assert_eq!(effect("RESTORE k 0 x"), Effect::Verbatim);
    assert_eq!(effect("RESTORE k 10 x"), Effect::Absolute);
    assert_eq!(effect("RESTORE k 10 x REPLACE ABSTTL"), Effect::Verbatim);
    assert_eq!(effect("XADD s MAXLEN ~ 10 LIMIT 5 * f v"), Effect::PrimaryFirst);
    assert_eq!(effect("XADD s NOMKSTREAM 5-* f *"), Effect::PrimaryFirst);
    assert_eq!(effect("XADD s 5-1 f *"), Effect::Verbatim);
}

#[test]
fn arguments_decide_the_form_for_c_peers() {
    let form = |line| with_args(line, |args| spec_of(line).toward_c_of(args));
    assert_eq!(form("GET a"), TowardC::AsIs);
    assert_eq!(form("UNLINK a"), TowardC::Rewrite);
    assert_eq!(form("HSET a f v"), TowardC::AsIs);
    assert_eq!(form("HSET a f v g w"), TowardC::Eval);
    assert_eq!(form("EXPIRE a 1 NX"), TowardC::Eval);
    assert_eq!(form("XADD a * f v"), TowardC::Eval);
    assert_eq!(form("BLPOP a 0"), TowardC::Refuse);
    assert_eq!(form("XREAD STREAMS a 0"), TowardC::Eval);
    assert_eq!(form("XREAD BLOCK 0 STREAMS a 0"), TowardC::Refuse);
    assert_eq!(form("EVAL x 1 a"), TowardC::AsIs);
    assert_eq!(form("EVAL x 0"), TowardC::Refuse);
    assert_eq!(form("FCALL f 1 a"), TowardC::Refuse);
}

#[test]
fn options_decide_the_shape() {
    let shape = |line| with_args(line, |args| spec_of(line).shape_of(args));
    assert_eq!(shape("ZRANGE withscores 0 -1"), Shape::Same);
    assert_eq!(shape("ZRANGE z 0 -1 WITHSCORES"), Shape::ScorePairs);
    assert_eq!(shape("ZUNION 2 a withscores"), Shape::Same);
    assert_eq!(shape("ZUNION 2 a b WEIGHTS 1 2 withscores"), Shape::ScorePairs);
    assert_eq!(shape("ZADD z NX INCR 1 m"), Shape::Double);
    assert_eq!(shape("ZADD z 1 incr"), Shape::Same);
    assert_eq!(shape("GEOSEARCH g FROMMEMBER withcoord BYRADIUS 1 m"), Shape::Same);
    assert_eq!(shape("GEOSEARCH g FROMMEMBER m BYRADIUS 1 m WITHCOORD"), Shape::GeoHits);
    assert_eq!(shape("SPOP s"), Shape::Same);
    assert_eq!(shape("SPOP s 1"), Shape::Set);
    assert_eq!(shape("XINFO STREAM s"), Shape::Map);
    assert_eq!(shape("XINFO STREAM s FULL"), Shape::StreamFull);
}

#[test]
fn sorting_by_a_pattern_reads_other_keys() {
    let patterns = |line| {
        with_args(line, |args| {
            let found = spec_of(line).patterns_of(args);
            found.map(|p| String::from_utf8_lossy(p).into_owned()).collect::<Vec<_>>()
        })
    };
    assert_eq!(patterns("SORT a BY w_*"), ["w_*"]);
    assert_eq!(patterns("SORT_RO a GET # GET d_*->x BY *"), ["d_*->x", "*"]);
    assert!(patterns("SORT a BY nosort GET #").is_empty());
    assert!(patterns("GET a").is_empty() && patterns("DEL a by *").is_empty());
}

/// Subcommands are rows of their own here, with the container's name counted.
fn row_of_reference(name: &str) -> &'static CommandSpec {
    let name = match name {
        "CONFIG" => "CONFIG GET",
        other => other,
    };
    let row = match name.split_once(' ') {
        None => lookup(name.as_bytes()),
        Some((container, sub)) => lookup_sub(lookup(container.as_bytes()).unwrap(), sub.as_bytes()),
    };
    row.unwrap_or_else(|| panic!("{name} has no row"))
}

#[test]
fn the_columns_for_c_peers_are_what_the_reference_accepts() {
    let json = include_str!("../../../../tests/vectors/redis-commands.json");
    let vectors: serde_json::Value = serde_json::from_str(json).unwrap();
    let mut accepted = HashSet::new();
    for command in vectors["commands"].as_array().unwrap() {
        let name = command["command"].as_str().unwrap();
        let row = row_of_reference(name);
        let sub = usize::from(name.contains(' '));
        let number = |field: &str| command[field].as_u64().map(|n| n as usize + sub);
        let ours =
            row.c_args.map(|(min, max)| (min.into(), (max != u8::MAX).then_some(max.into())));
        // Never sent to a peer: answered by the node, or refused.
        if !matches!(name, "SLAVEOF" | "QUIT") {
            let theirs = number("min_args").map(|min| (min, number("max_args")));
            assert_eq!(ours, theirs, "{name}");
        }
        accepted.insert(row.name);
        let class = match command["reference_class"].as_str().unwrap() {
            "read" => Class::Read,
            "write" => Class::Write,
            _ => Class::Admin,
        };
        if !matches!(row.class, Class::Admin) {
            assert_eq!(row.reference_class.unwrap_or(row.class), class, "{name}");
        }
        let keys: &[KeySpec] = match command["keys"].as_str().unwrap() {
            "all" => &[KeySpec::Range { first: 1, last: -1, step: 1 }],
            "odd positions" => &[KeySpec::Range { first: 1, last: -1, step: 2 }],
            "counted by the 2nd argument" => &[KeySpec::NumKeys { at: 2, step: 1 }],
            _ => &[],
        };
        assert!(keys.is_empty() || keys.contains(&row.keys), "{name}");
    }
    for row in rows().filter(|row| row.c_args.is_some()) {
        assert!(accepted.contains(row.name), "{} is not in the reference", row.name);
    }
}
