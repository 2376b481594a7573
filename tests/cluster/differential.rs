//! Every command of the table, through one node and through a ring of three racks, in RESP2 and in
//! RESP3: each reply must be the one redis-server gives alone.
//!
//! The lines are those of `tests/oracle/lift.txt` and `differential.txt`. Keys get a common hash tag,
//! so that each command has one owner. Sets and maps are compared without their order. A command of
//! the table without a line fails the test, unless `NO_LINE` says why it has none.

use std::collections::BTreeSet;

use torc::proto::args::Args;
use torc::proto::command::Routing;
use torc::proto::resp::inline;
use torc::proto::resp::spec::CommandSpec;
use torc::proto::resp::table::{self, ModuleCommands};

use crate::client::Client;
use crate::ring::{Layout, Ring, Store, free_port, redis_bin, redis_process};

mod keys;
pub mod tree;

use tree::Tree;

const LINES: [&str; 2] = [include_str!("../oracle/lift.txt"), include_str!("differential.txt")];

/// What keeps the keys of all lines at one owner.
const TAG: &str = "{d}";

/// Commands that have no line, beside those that are refused and those of this node alone.
const NO_LINE: [(&str, &str); 10] = [
    ("bgrewriteaof", "writes files"),
    ("bgsave", "writes files"),
    ("function|kill", "there is no function running that could be killed"),
    ("script|kill", "there is no script running that could be killed"),
    ("command", "tells of the node's own table"),
    ("quit", "closes the connection"),
    ("post", "closes the connection"),
    ("host:", "closes the connection"),
    ("dyno_config:conn_consistency", "is no command of Redis"),
    ("command|list", "tells of the node's own table"),
];

/// Lines whose answer rightly differs, with the reason.
const OTHERWISE: [(&str, &str); 2] = [
    // The node answers these two itself, so that clients of clusters, which send them before they
    // ask, can go on. A redis-server alone refuses them.
    ("READONLY", "changes nothing here"),
    ("READWRITE", "changes nothing here"),
];

/// One line of the scripts.
struct Line {
    text: &'static str,
    how: How,
    words: Vec<Vec<u8>>,
    name: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    Exact,
    Types,
    AnyOrder,
    /// All pages of a scan, as one set.
    Scan {
        cursor: usize,
    },
}

fn lines() -> Vec<Line> {
    let texts = LINES.iter().flat_map(|file| file.lines());
    texts.filter(|line| !line.is_empty() && !line.starts_with('#')).map(Line::of).collect()
}

impl Line {
    fn of(text: &'static str) -> Line {
        let marked = |c: char| text.strip_prefix(c);
        let (rest, how) = match (marked('?'), marked('~')) {
            (Some(rest), _) => (rest, How::Types),
            (_, Some(rest)) => (rest, How::AnyOrder),
            _ => (text, How::Exact),
        };
        let (mut frame, mut spans) = (Vec::new(), Vec::new());
        inline::rewrite(rest.as_bytes(), &mut frame, &mut spans).expect(text);
        let args = Args::new(&frame, &spans);
        let mut words: Vec<Vec<u8>> = args.iter().map(<[u8]>::to_vec).collect();
        let spec = table::find(&args, &ModuleCommands::default()).ok();
        let mut tagged: Vec<usize> = spec.map_or(Vec::new(), |s| s.keys_of(&args).collect());
        let name = spec.map_or("", |spec| spec.name);
        match name {
            "keys" => tagged.push(1),
            "scan" => tagged.extend(pattern_at(&words)),
            "sort" | "sort_ro" => {
                tagged.extend((3..words.len()).filter(|i| is_pattern(&words, *i)))
            }
            _ => {}
        }
        for i in tagged {
            words[i] = [TAG.as_bytes(), &words[i]].concat();
        }
        let how = match name {
            "keys" => How::AnyOrder,
            "scan" if words[1] == b"0" => How::Scan { cursor: 1 },
            "hscan" | "sscan" | "zscan" if words[2] == b"0" => How::Scan { cursor: 2 },
            _ => how,
        };
        Line { text, how, words, name }
    }

    /// What a server says.
    fn ask(&self, client: &mut Client) -> Tree {
        let How::Scan { cursor: at } = self.how else {
            return Tree::ask(client, &self.words);
        };
        let (mut words, mut found) = (self.words.clone(), Vec::new());
        loop {
            match Tree::ask(client, &words) {
                Tree::Many('*', mut page) if page.len() == 2 => {
                    let Some(Tree::Many(_, keys)) = page.pop() else { panic!("{}", self.text) };
                    let Some(Tree::One(_, cursor)) = page.pop() else { panic!("{}", self.text) };
                    found.extend(keys);
                    if cursor == b"0" {
                        return Tree::Many('*', found).sorted();
                    }
                    words[at] = cursor;
                }
                error => return error,
            }
        }
    }
}

/// True for a pattern of SORT that names keys.
fn is_pattern(words: &[Vec<u8>], i: usize) -> bool {
    matches!(words[i - 1].as_slice(), b"BY" | b"GET") && words[i].contains(&b'*')
}

fn pattern_at(words: &[Vec<u8>]) -> Option<usize> {
    Some(words.iter().position(|word| word == b"MATCH")? + 1)
}

/// All answers of one server, asked from the beginning.
fn run(port: u16, resp3: bool, lines: &[Line]) -> Vec<Tree> {
    let mut client = Client::connect(port);
    for words in [&["FLUSHALL"][..], &["FUNCTION", "FLUSH"], &["SCRIPT", "FLUSH"]] {
        let reply = client.call(words);
        assert!(!reply.is_error(), "{words:?}: {reply:?}");
    }
    let hello = |client: &mut Client| {
        if resp3 {
            Tree::ask(client, &[b"HELLO".to_vec(), b"3".to_vec()]);
        }
    };
    hello(&mut client);
    let mut replies = Vec::with_capacity(lines.len());
    for line in lines {
        replies.push(line.ask(&mut client));
        if line.name == "reset" {
            hello(&mut client);
        }
    }
    replies
}

/// Whether a machine is busy must not show in SLOWLOG.
fn log_nothing_slow(redis_port: u16) {
    let set = ["CONFIG", "SET", "slowlog-log-slower-than", "-1"];
    assert!(!Client::connect(redis_port).call(&set).is_error());
}

/// True for each line whose command the server has.
fn known(port: u16, lines: &[Line]) -> Vec<bool> {
    let mut client = Client::connect(port);
    let mut knows = |line: &Line| {
        let words = ["COMMAND", "INFO", line.name];
        line.name.is_empty() || client.call(&words).text() != "(nil)"
    };
    lines.iter().map(&mut knows).collect()
}

/// What a server at `port` says otherwise than redis-server did.
fn differences(port: u16, lines: &[Line], right: &Right, what: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (resp3, theirs) in [(false, &right.resp2), (true, &right.resp3)] {
        let ours = run(port, resp3, lines);
        for (i, line) in lines.iter().enumerate().filter(|(i, _)| right.known[*i]) {
            let (ours, theirs) = (&ours[i], &theirs[i]);
            let like = &right.resp3[i];
            let equal = match line.how {
                How::Types => ours.types() == theirs.types(),
                How::Exact | How::Scan { .. } => ours.ordered_as(like) == theirs.ordered_as(like),
                How::AnyOrder => ours.clone().sorted() == theirs.clone().sorted(),
            };
            if !equal && !OTHERWISE.iter().any(|(other, _)| *other == line.text) {
                let protocol = if resp3 { 3 } else { 2 };
                let text = line.text;
                found.push(format!(
                    "{what}, RESP{protocol}, {text}\n   ours {ours:?}\n theirs {theirs:?}"
                ));
            }
        }
    }
    found
}

struct Right {
    resp2: Vec<Tree>,
    resp3: Vec<Tree>,
    known: Vec<bool>,
}

#[test]
fn every_command_answers_as_redis_does_alone() {
    let name = "every_command_answers_as_redis_does_alone";
    let Some(bin) = redis_bin(name) else { return };
    let lines = lines();
    let port = free_port();
    let _alone = redis_process(&bin, port);
    log_nothing_slow(port);
    let right = Right {
        resp2: run(port, false, &lines),
        resp3: run(port, true, &lines),
        known: known(port, &lines),
    };
    let unknown: BTreeSet<&str> =
        lines.iter().zip(&right.known).filter(|(_, known)| !**known).map(|(l, _)| l.name).collect();
    if !unknown.is_empty() {
        println!("skipped: {name}: {} has not: {unknown:?}", bin.display());
    }
    let extra = "  hash_tag: '{}'\n  allow_flush: true\n";
    let mut wrong = Vec::new();
    for (what, racks) in [("one node", vec![1]), ("three racks", vec![2, 2, 2])] {
        let (dcs, store) = (vec![racks], Store::Redis(bin.clone()));
        let ring = Ring::start(Layout { dcs, store, extra: extra.into() });
        ring.nodes.iter().for_each(|node| log_nothing_slow(node.redis_port));
        // The last rack is neither the first one nor the owner's own node.
        let node = ring.nodes.last().expect("a node");
        wrong.extend(differences(node.client, &lines, &right, what));
    }
    assert!(wrong.is_empty(), "{} differences\n{}", wrong.len(), wrong.join("\n"));
}

fn needs_a_line(row: &CommandSpec) -> bool {
    let refused = matches!(row.routing, Routing::Refused(_));
    let own = row.name.starts_with("torc.");
    !row.container && !refused && !own && NO_LINE.iter().all(|(name, _)| *name != row.name)
}

#[test]
fn every_command_has_a_line() {
    let used: BTreeSet<&str> = lines().iter().map(|line| line.name).collect();
    let missing: Vec<&str> = table::rows()
        .filter(|row| needs_a_line(row) && !used.contains(row.name))
        .map(|row| row.name)
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
    for (name, why) in NO_LINE {
        assert!(table::rows().any(|row| row.name == name), "{name}: {why}");
    }
}
