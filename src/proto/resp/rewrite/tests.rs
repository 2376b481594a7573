use super::outcome::ENTRIES_READ;
use super::*;
use crate::proto::args::{Args, Span};
use crate::proto::resp::decode::{RequestDecoder, RequestLimits};
use crate::proto::resp::inline;
use crate::proto::resp::spec::CommandSpec;
use crate::proto::resp::table::{self, ModuleCommands};

const NOW_MS: u64 = 1_000_000;

fn with<T>(line: &str, test: impl FnOnce(&CommandSpec, &Args<'_>) -> T) -> T {
    let (mut frame, mut spans): (Vec<u8>, Vec<Span>) = (Vec::new(), Vec::new());
    inline::rewrite(line.as_bytes(), &mut frame, &mut spans).unwrap();
    let args = Args::new(&frame, &spans);
    test(table::find(&args, &ModuleCommands::default()).unwrap(), &args)
}

/// Requests as lines of words.
fn lines(mut frames: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    let mut spans = Vec::new();
    while !frames.is_empty() {
        let decoded =
            RequestDecoder::default().decode(frames, &RequestLimits::default(), &mut spans);
        let len = decoded.unwrap().expect("whole requests").len;
        let words: Vec<_> = spans.iter().map(|s| String::from_utf8_lossy(s.of(frames))).collect();
        found.push(words.join(" "));
        frames = &frames[len..];
    }
    found
}

fn absolute_of(line: &str) -> Option<String> {
    with(line, |spec, args| {
        let mut out = Vec::new();
        let changed = absolute(spec, args, NOW_MS, &mut out);
        assert_eq!(changed, !out.is_empty(), "{line}");
        lines(&out).pop()
    })
}

fn outcome_of(line: &str, reply: &str) -> Vec<String> {
    with(line, |spec, args| {
        let mut out = Vec::new();
        let count = outcome(spec, args, reply.as_bytes(), NOW_MS, &mut out);
        let lines = lines(&out);
        assert_eq!(count, lines.len(), "{line}");
        lines
    })
}

#[test]
fn relative_times_become_points_in_time() {
    for (line, want) in [
        ("SET k v EX 5", "SET k v PXAT 1005000"),
        ("set k v px 5 KEEPTTL", "set k v PXAT 1000005 KEEPTTL"),
        ("SET ex ex EX 5", "SET ex ex PXAT 1005000"),
        ("SETEX k 5 v", "SET k v PXAT 1005000"),
        ("PSETEX k 5 v", "SET k v PXAT 1000005"),
        ("GETEX k EX 5", "GETEX k PXAT 1005000"),
        ("EXPIRE k 5 NX", "PEXPIREAT k 1005000 NX"),
        ("PEXPIRE k 5", "PEXPIREAT k 1000005"),
        ("HEXPIRE k 5 NX FIELDS 1 f", "HPEXPIREAT k 1005000 NX FIELDS 1 f"),
        ("HPEXPIRE k 5 FIELDS 1 f", "HPEXPIREAT k 1000005 FIELDS 1 f"),
        ("HSETEX k EX 5 FIELDS 1 EX 7", "HSETEX k PXAT 1005000 FIELDS 1 EX 7"),
        ("HGETEX k PX 5 FIELDS 1 f", "HGETEX k PXAT 1000005 FIELDS 1 f"),
        ("MSETEX 1 EX 5 EX 6", "MSETEX 1 EX 5 PXAT 1006000"),
        ("RESTORE k 5 x REPLACE", "RESTORE k 1000005 x REPLACE ABSTTL"),
    ] {
        assert_eq!(absolute_of(line).as_deref(), Some(want), "{line}");
    }
}

#[test]
fn what_is_no_duration_ahead_is_left_to_the_store() {
    for line in [
        "SET k v",
        "SET k v EXAT 5",
        "SET k v EX 0",
        "SET k v EX -5",
        "SET k v EX 05",
        "SET k v EX",
        "SET k v EX 9223372036854775807",
        "EXPIRE k -1",
        "EXPIRE k 0",
        "SETEX k x v",
        "GETEX k PERSIST",
        "GET k",
    ] {
        assert_eq!(absolute_of(line), None, "{line}");
    }
}

#[test]
fn conditional_writes_become_plain_ones() {
    let ok = "+OK\r\n";
    assert_eq!(outcome_of("SET k v NX", ok), ["SET k v"]);
    assert_eq!(outcome_of("SET k v NX EX 5", ok), ["SET k v PXAT 1005000"]);
    assert_eq!(outcome_of("SET k v XX KEEPTTL", ok), ["SET k v KEEPTTL"]);
    assert_eq!(outcome_of("SET k v NX", "$-1\r\n"), [""; 0]);
    assert_eq!(outcome_of("SET k v GET", "$-1\r\n"), ["SET k v"]);
    assert_eq!(outcome_of("SET k v GET", "$1\r\nx\r\n"), ["SET k v"]);
    assert_eq!(outcome_of("SET k v NX GET", "$-1\r\n"), ["SET k v"]);
    assert_eq!(outcome_of("SET k v NX GET", "$1\r\nx\r\n"), [""; 0]);
    assert_eq!(outcome_of("SET k v XX GET", "$1\r\nx\r\n"), ["SET k v"]);
    assert_eq!(outcome_of("SET k v XX GET", "$-1\r\n"), [""; 0]);
    assert_eq!(outcome_of("SET k v IFEQ x", ok), ["SET k v"]);
    assert_eq!(outcome_of("SET k v IFEQ x GET", "$1\r\nx\r\n"), ["SET k v"]);
    assert_eq!(outcome_of("SET k v IFEQ x GET", "$1\r\ny\r\n"), [""; 0]);
    assert_eq!(outcome_of("SET k v GET", "-WRONGTYPE x\r\n"), [""; 0]);
    assert_eq!(outcome_of("SETNX k v", ":1\r\n"), ["SET k v"]);
    assert_eq!(outcome_of("SETNX k v", ":0\r\n"), [""; 0]);
    assert_eq!(outcome_of("HSETNX k f v", ":1\r\n"), ["HSET k f v"]);
    assert_eq!(outcome_of("MSETNX a 1 b 2", ":1\r\n"), ["MSET a 1 b 2"]);
    assert_eq!(
        outcome_of("HSETEX k FNX EX 5 FIELDS 1 FNX EX", ":1\r\n"),
        ["HSETEX k PXAT 1005000 FIELDS 1 FNX EX"]
    );
    assert_eq!(outcome_of("MSETEX 1 NX EX NX PX 5", ":1\r\n"), ["MSETEX 1 NX EX PXAT 1000005"]);
}

#[test]
fn what_chance_chose_is_named() {
    assert_eq!(outcome_of("SPOP s", "$1\r\na\r\n"), ["SREM s a"]);
    assert_eq!(outcome_of("SPOP s 2", "*2\r\n$1\r\na\r\n$1\r\nb\r\n"), ["SREM s a b"]);
    assert_eq!(outcome_of("SPOP s", "$-1\r\n"), [""; 0]);
    assert_eq!(outcome_of("SPOP s 2", "*0\r\n"), [""; 0]);
    assert_eq!(
        outcome_of("XADD x NOMKSTREAM MAXLEN ~ 5 * f *", "$3\r\n7-1\r\n"),
        ["XADD x MAXLEN ~ 5 7-1 f *"]
    );
    assert_eq!(outcome_of("XADD x NOMKSTREAM * f v", "$-1\r\n"), [""; 0]);
}

#[test]
fn what_was_popped_is_taken_elsewhere() {
    let pair = "*2\r\n$1\r\nk\r\n$1\r\nv\r\n";
    assert_eq!(outcome_of("BLPOP a k 0", pair), ["LREM k 1 v"]);
    assert_eq!(outcome_of("BRPOP a k 0", pair), ["LREM k -1 v"]);
    assert_eq!(outcome_of("BLPOP a k 0", "*-1\r\n"), [""; 0]);
    let moved = ["LREM a 1 v", "RPUSH b v"];
    assert_eq!(outcome_of("BLMOVE a b LEFT RIGHT 0", "$1\r\nv\r\n"), moved);
    assert_eq!(outcome_of("BLMOVE a b LEFT RIGHT 0", "$-1\r\n"), [""; 0]);
    let moved = ["LREM a -1 v", "LPUSH b v"];
    assert_eq!(outcome_of("BRPOPLPUSH a b 0", "$1\r\nv\r\n"), moved);
    let many = "*2\r\n$1\r\nk\r\n*2\r\n$1\r\nv\r\n$1\r\nw\r\n";
    assert_eq!(outcome_of("BLMPOP 0 2 a k RIGHT COUNT 9", many), ["LREM k -1 v", "LREM k -1 w"]);
    assert_eq!(outcome_of("BLMPOP 0 2 a k LEFT", "*-1\r\n"), [""; 0]);
    let member = "*3\r\n$1\r\nk\r\n$1\r\nm\r\n$1\r\n5\r\n";
    assert_eq!(outcome_of("BZPOPMIN a k 0", member), ["ZREM k m"]);
    let members = "*2\r\n$1\r\nk\r\n*2\r\n*2\r\n$1\r\nm\r\n$1\r\n5\r\n*2\r\n$1\r\nn\r\n$1\r\n6\r\n";
    assert_eq!(outcome_of("BZMPOP 0 1 k MIN COUNT 2", members), ["ZREM k m n"]);
}

#[test]
fn deliveries_are_repeated_for_the_same_consumer() {
    let entry = "*2\r\n$3\r\n7-1\r\n*2\r\n$1\r\nf\r\n$1\r\nv\r\n";
    let reply = format!("*1\r\n*2\r\n$1\r\nx\r\n*1\r\n{entry}");
    assert_eq!(
        outcome_of("XREADGROUP GROUP g c COUNT 1 STREAMS y x > >", &reply),
        [
            "XCLAIM x g c 0 7-1 TIME 1000000 RETRYCOUNT 1 FORCE JUSTID LASTID 7-1".to_owned(),
            format!("EVAL {ENTRIES_READ} 1 x g 7-1 7-1 1"),
        ]
    );
    assert_eq!(
        outcome_of("XREADGROUP GROUP g c NOACK STREAMS x >", &reply),
        [format!("EVAL {ENTRIES_READ} 1 x g 7-1 7-1 1 c")]
    );
    let named = ["XGROUP CREATECONSUMER x g c"];
    assert_eq!(outcome_of("XREADGROUP GROUP g c STREAMS x 0", &reply), named);
    assert_eq!(outcome_of("XREADGROUP GROUP g c STREAMS x 0", "-NOGROUP x\r\n"), [""; 0]);
    assert_eq!(outcome_of("XREADGROUP GROUP g c STREAMS x >", "*-1\r\n"), [""; 0]);
    assert_eq!(
        outcome_of("XCLAIM x g c 500 7-1 7-2 IDLE 100 JUSTID", "*1\r\n$3\r\n7-1\r\n"),
        ["XCLAIM x g c 0 7-1 JUSTID TIME 999900 FORCE"]
    );
    assert_eq!(outcome_of("XCLAIM x g c 500 7-1", "*0\r\n"), [""; 0]);
    assert_eq!(
        outcome_of(
            "XAUTOCLAIM x g c 500 0 COUNT 9",
            &format!("*3\r\n$3\r\n0-0\r\n*1\r\n{entry}*1\r\n$3\r\n6-1\r\n")
        ),
        ["XCLAIM x g c 0 7-1 TIME 1000000 FORCE", "XACK x g 6-1"]
    );
}

#[test]
fn replies_of_the_wrong_kind_change_nothing() {
    for line in [
        "SETNX k v",
        "SPOP s 2",
        "XADD x * f v",
        "XREADGROUP GROUP g c STREAMS x >",
        "XCLAIM x g c 0 1-1",
        "XAUTOCLAIM x g c 0 0",
        "BLPOP k 0",
        "BLMPOP 0 1 k LEFT",
        "BZPOPMIN k 0",
        "BZMPOP 0 1 k MIN",
        "GET k",
    ] {
        for reply in ["*0\r\n", "-ERR x\r\n", "*1\r\n*-1\r\n", "*2\r\n:1\r\n*1\r\n:1\r\n"] {
            assert_eq!(outcome_of(line, reply), [""; 0], "{line} {reply:?}");
        }
    }
}

#[test]
fn c_peers_get_words_they_know() {
    let renamed_to = |line| {
        with(line, |spec, args| {
            let mut out = Vec::new();
            renamed(spec, args, &mut out).then(|| lines(&out).pop().unwrap())
        })
    };
    assert_eq!(renamed_to("UNLINK a b").unwrap(), "DEL a b");
    assert_eq!(renamed_to("EVAL_RO s 1 k").unwrap(), "EVAL s 1 k");
    assert_eq!(renamed_to("EVAL_RO s 0"), None);
    assert_eq!(renamed_to("GET a"), None);
    let wrapped = |line| {
        with(line, |spec, args| {
            let mut out = Vec::new();
            in_script(spec, args, &mut out).then(|| lines(&out).pop().unwrap())
        })
    };
    let script = "EVAL return redis.pcall(unpack(ARGV))";
    assert_eq!(wrapped("HSET k f v g w").unwrap(), format!("{script} 1 k HSET k f v g w"));
    assert_eq!(wrapped("COPY a b").unwrap(), format!("{script} 2 a b COPY a b"));
    assert_eq!(wrapped("DBSIZE").unwrap(), format!("{script} 1 torc: DBSIZE"));
    let many = format!("SADD k{}", " m".repeat(EVAL_ARGS_MAX));
    assert_eq!(wrapped(&many), None);
}
