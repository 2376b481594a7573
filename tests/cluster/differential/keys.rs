//! COMMAND GETKEYS and GETKEYSANDFLAGS: what a node tells of the keys of every line is what
//! redis-server tells.

use super::tree::Tree;
use super::{Line, known, lines};
use crate::client::Client;
use crate::ring::{Layout, Ring, Store, free_port, redis_bin, redis_process};

/// Lines whose answer rightly differs, with the reason.
const OTHERWISE: [(&str, &str); 1] =
    [("PFMERGE pm", "redis-server wants a source to tell of, though the command needs none")];

/// What a server tells of the keys of a line.
fn told(client: &mut Client, sub: &str, line: &Line) -> Tree {
    let words = [b"COMMAND".to_vec(), sub.as_bytes().to_vec()];
    Tree::ask(client, &words.into_iter().chain(line.words.iter().cloned()).collect::<Vec<_>>())
}

#[test]
fn keys_and_their_flags_are_told_as_redis_tells_them() {
    let name = "keys_and_their_flags_are_told_as_redis_tells_them";
    let Some(bin) = redis_bin(name) else { return };
    let lines = lines();
    let port = free_port();
    let _alone = redis_process(&bin, port);
    let known = known(port, &lines);
    let layout = Layout { dcs: vec![vec![1]], store: Store::Embedded, extra: String::new() };
    let ring = Ring::start(layout);
    let (mut ours, mut theirs) = (ring.nodes[0].connect(), Client::connect(port));
    let mut wrong = Vec::new();
    for (line, _) in lines.iter().zip(known).filter(|(_, known)| *known) {
        if OTHERWISE.iter().any(|(other, _)| *other == line.text) {
            continue;
        }
        for sub in ["GETKEYS", "GETKEYSANDFLAGS"] {
            let (ours, theirs) = (told(&mut ours, sub, line), told(&mut theirs, sub, line));
            if ours != theirs {
                wrong.push(format!("{sub} {}\n   ours {ours:?}\n theirs {theirs:?}", line.text));
            }
        }
    }
    assert!(wrong.is_empty(), "{} differences\n{}", wrong.len(), wrong.join("\n"));
}
