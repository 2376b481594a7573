use super::*;
use crate::affinity::Affinity;
use crate::affinity::domain::tests::spec;
use crate::affinity::member::Change;
use crate::proto::args::Span;
use std::sync::Arc;

/// A node of datacenter `own` that publishes its keys and one domain of blocks.
fn node() -> Affinity {
    let keys = Domain::new(spec("keys", Kind::Keys(KeyProtocol::Resp), &["own", "far"])).unwrap();
    let kind = Kind::Blocks { block_size: 2, format: HashFormat::Standard };
    let blocks = Domain::new(spec("llm", kind, &["own", "far"])).unwrap();
    for domain in [&keys, &blocks] {
        domain.publish(1).unwrap();
        domain.set_hears(true, 1, 1);
    }
    Affinity::new(Arc::new(keys), vec![Arc::new(blocks)])
}

fn run_with(affinity: Option<&Affinity>, holds: &str, now_ms: u64, line: &str) -> String {
    let mut buffer = Vec::new();
    let mut spans = Vec::new();
    for word in line.split(' ') {
        let start = buffer.len();
        buffer.extend_from_slice(word.as_bytes());
        spans.push(Span::new(start, buffer.len()));
    }
    let args = Args::new(&buffer, &spans);
    let name = String::from_utf8(args[0].to_ascii_lowercase()).unwrap();
    assert!(is_command(&name));
    let context = Context {
        affinity,
        protocol: KeyProtocol::Resp,
        holds: &|key| Some(key == holds.as_bytes()),
        now_ms,
    };
    let mut out = Vec::new();
    execute(&context, &name, &args, &mut out);
    String::from_utf8(out).unwrap().replace("\r\n", " ").trim_end().into()
}

fn run(affinity: &Affinity, line: &str) -> String {
    run_with(Some(affinity), "", 10, line)
}

fn tell(affinity: &Affinity, key: &str) {
    let hash = ring_key_hash(KeyProtocol::Resp, key.as_bytes());
    let source = Source { worker_id: 1, dp_rank: 0 };
    affinity.keys().apply_changes(source, &[Change::Stored(hash)], 10).unwrap();
}

#[test]
fn where_says_how_sure_it_is() {
    let node = node();
    let unheard = "*1 *2 *2 $3 own $7 unknown *2 $3 far $7 unknown";
    assert_eq!(run(&node, "TORC.WHERE a"), unheard);
    tell(&node, "a");
    let reply = "*2 *2 *2 $3 own $5 maybe *2 $3 far $7 unknown \
                 *2 *2 $3 own $2 no *2 $3 far $7 unknown";
    assert_eq!(run(&node, "torc.where a b"), reply);
    let exact = "*1 *2 *2 $3 own $3 yes *2 $3 far $7 unknown";
    assert_eq!(run_with(Some(&node), "a", 10, "TORC.WHERE a"), exact);
    assert_eq!(run_with(Some(&node), "", 10_000, "TORC.WHERE a"), unheard);
}

#[test]
fn prefixes_of_keys_have_a_depth() {
    let node = node();
    tell(&node, "a");
    tell(&node, "b");
    let reply = "*2 *3 $3 own :2 :0 *3 $3 far $-1 $-1";
    assert_eq!(run(&node, "TORC.PREFIXKEYS a b c"), reply);
    assert_eq!(run(&node, "TORC.PREFIXKEYS x"), "*2 *3 $3 own :0 :0 *3 $3 far $-1 $-1");
}

#[test]
fn tokens_events_and_prefixes_belong_together() {
    let node = node();
    let hashes = run(&node, "TORC.TOKENS 1 2 3 4 5");
    let words: Vec<&str> = hashes.split(' ').collect();
    assert_eq!((words[0], words[1], words.len()), ("*2", "*2", 11));
    let (first, second, chain) = (words[3], words[8], words[10]);
    assert_eq!(words[5], first);
    // Worker 1 holds both blocks, worker 2 the first; the ids are the engines' own.
    let stored = |line: String| run(&node, &line);
    assert_eq!(stored(format!("TORC.KV STORED 1 0 - 70 {first} 71 {second}")), ":2");
    assert_eq!(stored(format!("TORC.KV STORED DOMAIN llm 2 0 - 5 {first}")), ":1");
    let both = "*2 *3 $3 own :2 :0 *3 $3 far $-1 $-1";
    assert_eq!(stored(format!("TORC.PREFIX {first} {chain}")), both);
    assert_eq!(stored(format!("TORC.PREFIX DOMAIN llm BLOCKS {first} {second} 9")), both);
    assert_eq!(run(&node, "TORC.KV REMOVED 1 0 71 99"), ":1");
    let one = "*2 *3 $3 own :1 :0 *3 $3 far $-1 $-1";
    assert_eq!(stored(format!("TORC.PREFIX {first} {chain}")), one);
    assert_eq!(run(&node, "TORC.KV CLEARED 1 0"), "+OK");
    assert_eq!(stored(format!("TORC.PREFIX {first} {chain}")), one);
    assert_eq!(run(&node, "TORC.KV CLEARED 2 0"), "+OK");
    let none = "*2 *3 $3 own :0 :0 *3 $3 far $-1 $-1";
    assert_eq!(stored(format!("TORC.PREFIX {first} {chain}")), none);
    let orphan = run(&node, "TORC.KV STORED 1 0 70 72 5");
    assert_eq!(orphan, "-ERR the parent block is not known to this source");
}

#[test]
fn tokens_take_their_shape_from_options() {
    let of = |line: &str| run_with(None, "", 0, line);
    assert_eq!(of("TORC.TOKENS BLOCK 4 1 2 3"), "*0");
    let plain = of("TORC.TOKENS BLOCK 2 1 2 3 4");
    assert!(plain.starts_with("*2 "));
    assert!(of("TORC.TOKENS BLOCK 2 EAGLE 1 2 3 4").starts_with("*1 "));
    let salted = of("TORC.TOKENS BLOCK 2 LORA a NAMESPACE b 0x1 2 3 4");
    assert!(salted.starts_with("*2 ") && salted != plain);
}

#[test]
fn mistakes_are_named() {
    let node = node();
    let cases = [
        ("TORC.PREFIX DOMAIN nope 1", "-ERR no affinity domain 'nope'"),
        ("TORC.PREFIX x", "-ERR 'x' is not a 64-bit hash"),
        ("TORC.PREFIX +1", "-ERR '+1' is not a 64-bit hash"),
        ("TORC.PREFIX DOMAIN", "-ERR syntax error, expected more arguments"),
        (
            "TORC.PREFIX BLOCKS",
            "-ERR syntax error, expected [DOMAIN name] [BLOCKS] hash [hash ...]",
        ),
        ("TORC.TOKENS 4294967296", "-ERR '4294967296' is not a 32-bit token id"),
        ("TORC.TOKENS BLOCK 0 1", "-ERR a block needs at least one token"),
        ("TORC.TOKENS DOMAIN keys 1", "-ERR domain 'keys' holds ring keys, not blocks of tokens"),
        (
            "TORC.KV STORED DOMAIN keys 1 0 - 1 1",
            "-ERR domain 'keys' holds ring keys, not blocks of tokens",
        ),
        ("TORC.KV MOVED 1 0 1", "-ERR syntax error, expected STORED, REMOVED or CLEARED"),
        (
            "TORC.KV STORED 1 0 - 1",
            "-ERR syntax error, expected STORED [DOMAIN name] worker rank parent|- id hash \
             [id hash ...]",
        ),
        ("TORC.KV CLEARED 1 0 5", "-ERR syntax error, expected CLEARED [DOMAIN name] worker rank"),
        ("TORC.KV STORED 1 4294967296 - 1 1", "-ERR '4294967296' is not a rank"),
    ];
    for (line, reply) in cases {
        assert_eq!(run(&node, line), reply, "{line}");
    }
    let off = "-ERR affinity is off on this node; see affinity.mode";
    assert_eq!(run_with(None, "", 0, "TORC.WHERE a"), off);
    assert_eq!(run_with(None, "", 0, "TORC.KV CLEARED 1 0"), off);
    // Any node takes engines' events, whoever publishes.
    let kind = Kind::Blocks { block_size: 2, format: HashFormat::Standard };
    let silent = Affinity::new(
        Arc::new(Domain::new(spec("keys", Kind::Keys(KeyProtocol::Resp), &["own"])).unwrap()),
        vec![Arc::new(Domain::new(spec("llm", kind, &["own"])).unwrap())],
    );
    assert_eq!(run(&silent, "TORC.KV STORED 1 0 - 1 1"), ":1");
    assert_eq!(run(&silent, "TORC.KV CLEARED 1 0"), "+OK");
}
