//! What clients say first, beside what redis-server answers: passwords, protocol versions, names. And
//! what a node tells of itself.

use torc::proto::args::Args;
use torc::proto::resp::inline;

use crate::client::{Client, Reply, ok};
use crate::differential::tree::Tree;
use crate::ring::{Layout, Node, Ring, Store, free_port, redis_bin, redis_process, wait_until};

fn words(line: &str) -> Vec<Vec<u8>> {
    let (mut frame, mut spans) = (Vec::new(), Vec::new());
    inline::rewrite(line.as_bytes(), &mut frame, &mut spans).expect(line);
    Args::new(&frame, &spans).iter().map(<[u8]>::to_vec).collect()
}

/// What is sent on one connection after the other; of lines with `?` the types must be right.
const DIALOGUES: [&[&str]; 8] = [
    &["PING", "GET a", "NOSUCH", "GET", "AUTH wrong", "AUTH nobody secret", "GET a", "AUTH secret"],
    &["AUTH a b c", "AUTH default secret", "GET a", "AUTH wrong", "GET a"],
    &["HELLO 3", "HELLO 3 AUTH default wrong", "HGETALL none", "HELLO 4 AUTH default secret"],
    &[
        "?HELLO 3 AUTH default secret SETNAME me",
        "CLIENT GETNAME",
        "HGETALL none",
        "GET none",
        "RESET",
        "GET a",
        "AUTH secret",
        "CLIENT GETNAME",
        "HGETALL none",
    ],
    &[
        "HELLO 2 AUTH default",
        "HELLO 2 SETNAME",
        "?HELLO 2 AUTH default secret",
        "?HELLO 3",
        "GET n",
    ],
    &["MULTI", "EXEC", "SUBSCRIBE c", "HELLO", "ECHO x", "AUTH secret", "?HELLO", "ECHO x"],
    &["HELLO 2 AUTH default secret SETNAME \"a b\"", "GET a", "CLIENT SETNAME \"a b\""],
    &["RESET", "AUTH secret", "MULTI", "SET a 1", "RESET", "EXEC", "AUTH secret", "GET a", "QUIT"],
];

fn answers(port: u16, dialogue: &[&str]) -> Vec<String> {
    let mut client = Client::connect(port);
    let answer = |line: &&str| match line.strip_prefix('?') {
        Some(line) => format!("{line}: {:?}", Tree::ask(&mut client, &words(line)).types()),
        None => format!("{line}: {:?}", Tree::ask(&mut client, &words(line))),
    };
    dialogue.iter().map(answer).collect()
}

#[test]
fn passwords_and_protocols_are_answered_as_redis_answers_them() {
    let Some(bin) = redis_bin("passwords_and_protocols_are_answered_as_redis_answers_them") else {
        return;
    };
    let port = free_port();
    let _alone = redis_process(&bin, port);
    let set = ["CONFIG", "SET", "requirepass", "secret"];
    assert_eq!(Client::connect(port).call(&set), ok());
    for store in [Store::Redis(bin), Store::Embedded] {
        let mut ring = Ring::empty(Layout { dcs: Vec::new(), store, extra: String::new() });
        ring.set_extra("  auth: {requirepass: secret}\n");
        ring.add("dc1", "r1", 0);
        let node = &ring.nodes[0];
        wait_usable(node);
        for dialogue in DIALOGUES {
            assert_eq!(answers(node.client, dialogue), answers(port, dialogue));
        }
    }
}

/// One pipeline: its protocol changes while the first replies are on their way.
const CHANGING: [&str; 14] = [
    "HSET hash f v",
    "HGETALL hash",
    "?HELLO 3",
    "HGETALL hash",
    "GET none",
    "MULTI",
    "HGETALL hash",
    "EXEC",
    "?HELLO 2",
    "HGETALL hash",
    "GET none",
    "?HELLO 3",
    "RESET",
    "SMEMBERS none",
];

#[test]
fn each_reply_is_of_the_protocol_its_request_was_sent_in() {
    let Some(bin) = redis_bin("each_reply_is_of_the_protocol_its_request_was_sent_in") else {
        return;
    };
    let port = free_port();
    let _alone = redis_process(&bin, port);
    let commands = CHANGING.map(|line| words(line.trim_start_matches('?')));
    let answers = |port: u16| -> Vec<String> {
        let replies = Tree::ask_at_once(&mut Client::connect(port), &commands);
        let told = CHANGING.iter().zip(&replies).map(|(line, reply)| match line.contains('?') {
            true => format!("{line}: {:?}", reply.types()),
            false => format!("{line}: {reply:?}"),
        });
        told.collect()
    };
    let expected = answers(port);
    for store in [Store::Redis(bin), Store::Embedded] {
        let ring = Ring::start(Layout { dcs: vec![vec![1]], store, extra: String::new() });
        assert_eq!(answers(ring.nodes[0].client), expected);
    }
}

/// Waits until a node with a password serves its clients.
fn wait_usable(node: &Node) {
    wait_until("it serves", || {
        let Ok(mut client) = Client::try_connect(node.client) else { return false };
        client.try_call(&["AUTH", "secret"]).is_ok_and(|reply| reply == ok())
            && client.try_call(&["GET", "k"]).is_ok_and(|reply| reply == Reply::Nil)
    });
}

/// The entries of a map.
fn entries(tree: Tree) -> Vec<(Tree, Tree)> {
    let Tree::Many('%', parts) = tree else { panic!("no map: {tree:?}") };
    let mut parts = parts.into_iter();
    std::iter::from_fn(|| Some((parts.next()?, parts.next()?))).collect()
}

#[test]
fn a_node_tells_of_its_commands_and_of_itself() {
    let (dcs, store) = (vec![vec![1]], Store::Embedded);
    let ring = Ring::start(Layout { dcs, store, extra: String::new() });
    let mut client = ring.nodes[0].connect();
    let mut ask = |line: &str| Tree::ask(&mut client, &words(line));
    ask("HELLO 3");
    let docs = entries(ask("COMMAND DOCS"));
    assert_eq!(ask("COMMAND COUNT"), Tree::One(':', docs.len().to_string().into_bytes()));
    let bulk = |text: &str| Tree::One('$', text.into());
    let one = entries(ask("COMMAND DOCS get client"));
    assert_eq!(
        one.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>(),
        [bulk("get"), bulk("client")]
    );
    let [(_, get), (_, client_docs)] = one.try_into().expect("two");
    let names = |doc: Tree| entries(doc).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    assert_eq!(names(get), [bulk("summary"), bulk("group")]);
    let subcommands = entries(client_docs).pop().expect("subcommands");
    assert_eq!(subcommands.0, bulk("subcommands"));
    assert!(names(subcommands.1).contains(&bulk("client|setname")));
    let Tree::Many('*', rows) = ask("COMMAND") else { panic!("no list") };
    assert_eq!(rows.len(), docs.len());
    for row in rows {
        let Tree::Many('*', columns) = row else { panic!("{row:?}") };
        assert_eq!(columns.len(), 10);
        assert!(matches!(columns[2], Tree::Many('~', _)), "flags are a set");
    }
    // Client libraries ask for what only newer servers have, and go on.
    let line = "CLIENT MAINT_NOTIFICATIONS ON moving-endpoint-type none";
    let Tree::One('-', error) = ask(line) else { panic!("{line}") };
    let words = "ERR unknown subcommand 'MAINT_NOTIFICATIONS'. Try CLIENT HELP.";
    assert_eq!(String::from_utf8_lossy(&error), words);
    let mut info = String::new();
    // Who asked whether the ring is settled may be on its way out.
    wait_until("one client", || {
        let Tree::One('=', text) = ask("INFO") else { panic!("no verbatim string") };
        info = String::from_utf8_lossy(&text).into_owned();
        info.contains("\r\nconnected_clients:1\r\n")
    });
    let process = format!("process_id:{}", ring.nodes[0].process.as_ref().expect("it runs").id());
    for figure in ["loading:0", "redis_version:7.0.15", "role:master", &process] {
        assert!(info.lines().any(|line| line == figure), "{figure} in {info}");
    }
    let Tree::One('=', clients) = ask("INFO clients") else { panic!("no verbatim string") };
    assert!(!String::from_utf8_lossy(&clients).contains("loading"), "one section");
    assert_eq!(ask("PING"), Tree::One('+', b"PONG".to_vec()));
}
