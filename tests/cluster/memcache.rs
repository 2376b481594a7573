//! memcache rings beside one memcached: the same bytes in, the same bytes out. And what only a
//! ring can get wrong: conditional writes through different nodes, and copies that differ.

use std::thread;

use crate::client::Client;
use crate::ring::{
    Layout, Node, Ring, Store, free_port, memcached_bin, memcached_process, wait_until,
};
use crate::steps::steps;

/// A key of the tests' own; its miss marks the end of a step's answers.
const LAST: &[u8] = b"mg the-end k\r\n";
const LAST_ANSWER: &[u8] = b"EN kthe-end\r\n";

fn ring(store: Store, dcs: Vec<Vec<usize>>, level: &str) -> Ring {
    let extra = format!(
        "  data_store: 1\n  allow_flush: true\n  read_consistency: {level}\n  \
         write_consistency: {level}\n"
    );
    Ring::start(Layout { dcs, store, extra })
}

/// What comes back for `bytes`.
fn ask(client: &mut Client, bytes: &[u8]) -> String {
    client.send(&[bytes, LAST].concat()).expect("sent");
    let answer = client.until(LAST_ANSWER).expect("an answer");
    String::from_utf8_lossy(&answer[..answer.len() - LAST_ANSWER.len()]).into_owned()
}

/// The same for any server: ids are those of its own, and so are its version and its clock.
fn comparable(answer: &str) -> String {
    let line = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["VALUE", key, flags, len, _id] => format!("VALUE {key} {flags} {len} ID"),
            ["VERSION", _] => "VERSION".to_owned(),
            [code, ..] if matches!(code.trim_end(), "HD" | "VA") => {
                let plain = |word: &&str| match (word.get(..1), word.get(1..)) {
                    (Some(flag @ ("c" | "t")), Some(number)) if number.parse::<u64>().is_ok() => {
                        format!("{flag}NUMBER")
                    }
                    _ => (*word).to_owned(),
                };
                words.iter().map(plain).collect::<Vec<_>>().join(" ")
            }
            _ => line.to_owned(),
        }
    };
    answer.split("\r\n").map(line).collect::<Vec<_>>().join("\\r\\n")
}

/// Runs the script on one memcached and on `ring`.
fn same_as_memcached(ring: &Ring, what: &str) {
    let bin = memcached_bin(what).expect("looked for before");
    let port = free_port();
    let _alone = memcached_process(&bin, port);
    let (mut alone, mut client) = (Client::connect(port), ring.nodes[0].connect());
    let mut different = Vec::new();
    for step in steps() {
        let right = comparable(&ask(&mut alone, &step));
        let ours = comparable(&ask(&mut client, &step));
        if ours != right {
            let step = step.escape_ascii();
            different.push(format!("{step}\n  ring:  {ours}\n  alone: {right}"));
        }
    }
    assert!(different.is_empty(), "{what}:\n{}", different.join("\n"));
    let keys =
        b"get a b d e n m word empty viv stale binary foo neg flags chunk lf new none qa qb nr\r\n";
    let right = ask(&mut alone, keys);
    for node in &ring.nodes {
        assert_eq!(ask(&mut node.connect(), keys), right, "{what}: through {}", node.rack);
    }
}

#[test]
fn one_node_answers_as_memcached() {
    let Some(bin) = memcached_bin("one_node_answers_as_memcached") else { return };
    for store in [Store::Memcached(bin), Store::EmbeddedMemcache] {
        let what = format!("one node, {store:?}");
        same_as_memcached(&ring(store, vec![vec![1]], "DC_ONE"), &what);
    }
}

#[test]
fn three_racks_answer_as_memcached_at_every_level() {
    let name = "three_racks_answer_as_memcached_at_every_level";
    let Some(bin) = memcached_bin(name) else { return };
    for level in ["DC_ONE", "DC_QUORUM", "DC_SAFE_QUORUM"] {
        for store in [Store::Memcached(bin.clone()), Store::EmbeddedMemcache] {
            let what = format!("three racks, {store:?}, {level}");
            let ring = ring(store, vec![vec![2, 2, 2]], level);
            same_as_memcached(&ring, &what);
            copies_are_equal(&ring);
        }
    }
}

/// The stores of nodes with the same token hold the same, memcached's own ids apart.
fn copies_are_equal(ring: &Ring) {
    let keys =
        b"get a b d e n m word empty viv stale binary foo neg flags chunk lf new none qa qb nr\r\n";
    let stores = ring.nodes.iter().filter(|node| node.redis.is_some());
    let mut held: Vec<(u32, String)> = Vec::new();
    for node in stores {
        held.push((node.token, ask(&mut node.connect_store(), keys)));
    }
    held.sort();
    held.dedup();
    assert!(held.len() <= 2, "copies differ: {held:#?}");
}

fn value(answer: &str) -> Option<(String, String)> {
    let mut lines = answer.split("\r\n");
    let id = lines.next()?.strip_prefix("VALUE ")?.split(' ').nth(3)?.to_owned();
    Some((lines.next()?.to_owned(), id))
}

fn gets(client: &mut Client, key: &str) -> (String, String) {
    let answer = ask(client, format!("gets {key}\r\n").as_bytes());
    value(&answer).unwrap_or_else(|| panic!("gets {key}: {answer}"))
}

fn cas(client: &mut Client, key: &str, new: &str, id: &str) -> String {
    let line = format!("cas {key} 0 0 {} {id}\r\n{new}\r\n", new.len());
    ask(client, line.as_bytes()).trim_end().to_owned()
}

#[test]
fn a_cas_is_decided_once_whichever_nodes_are_asked() {
    let name = "a_cas_is_decided_once_whichever_nodes_are_asked";
    let Some(bin) = memcached_bin(name) else { return };
    for store in [Store::Memcached(bin), Store::EmbeddedMemcache] {
        for level in ["DC_ONE", "DC_SAFE_QUORUM"] {
            let ring = ring(store.clone(), vec![vec![1, 1, 1]], level);
            an_id_is_good_at_every_node(&ring);
            every_increment_is_counted(&ring);
            one_of_many_adds_wins(&ring);
        }
    }
}

fn an_id_is_good_at_every_node(ring: &Ring) {
    let mut nodes: Vec<Client> = ring.nodes.iter().map(Node::connect).collect();
    assert_eq!(ask(&mut nodes[0], b"set k 3 0 1\r\n0\r\n"), "STORED\r\n");
    for i in 0..9 {
        let (read, write, other) = (i % 3, (i + 1) % 3, (i + 2) % 3);
        let (value, id) = gets(&mut nodes[read], "k");
        assert_eq!(value, i.to_string());
        let next = (i + 1).to_string();
        assert_eq!(cas(&mut nodes[write], "k", &next, &id), "STORED");
        assert_eq!(cas(&mut nodes[other], "k", "x", &id), "EXISTS");
        // The same with meta commands.
        let meta = ask(&mut nodes[write], b"mg k v c\r\n");
        let id = meta.split(['\r', ' ']).find_map(|word| word.strip_prefix('c')).expect("an id");
        let set = |id: &str| format!("ms k 1 C{id}\r\n{next}\r\n").into_bytes();
        assert_eq!(ask(&mut nodes[other], &set(id)), "HD\r\n");
        assert_eq!(ask(&mut nodes[read], &set(id)), "EX\r\n");
    }
}

/// Three clients at three nodes count by gets and cas, and by incr.
fn every_increment_is_counted(ring: &Ring) {
    const EACH: usize = 25;
    let mut first = ring.nodes[0].connect();
    assert_eq!(ask(&mut first, b"set sum 0 0 1\r\n0\r\nset n 0 0 1\r\n0\r\n").lines().count(), 2);
    thread::scope(|scope| {
        for node in &ring.nodes {
            scope.spawn(|| {
                let mut client = node.connect();
                let mut done = 0;
                while done < EACH {
                    // At a safe level copies may differ while others write.
                    let Some((value, id)) = value(&ask(&mut client, b"gets sum\r\n")) else {
                        continue;
                    };
                    let next = (value.parse::<u32>().expect("a number") + 1).to_string();
                    done += usize::from(cas(&mut client, "sum", &next, &id) == "STORED");
                    ask(&mut client, b"incr n 1 noreply\r\n");
                }
            });
        }
    });
    let all = EACH * ring.nodes.len();
    for node in &ring.nodes {
        let mut client = node.connect();
        wait_until(&format!("the sum is {all} through {}", node.rack), || {
            value(&ask(&mut client, b"gets sum\r\n")).is_some_and(|(sum, _)| sum == all.to_string())
        });
    }
}

fn one_of_many_adds_wins(ring: &Ring) {
    for round in 0..10 {
        let added = thread::scope(|scope| {
            let add = |node: &Node, number: usize| {
                let line = format!("add once-{round} 0 0 1\r\n{number}\r\n");
                ask(&mut node.connect(), line.as_bytes())
            };
            let adds: Vec<_> = ring
                .nodes
                .iter()
                .enumerate()
                .map(|(number, node)| scope.spawn(move || add(node, number)))
                .collect();
            adds.into_iter().map(|add| add.join().expect("answered")).collect::<Vec<_>>()
        });
        let winners: Vec<_> = (0..added.len()).filter(|i| added[*i] == "STORED\r\n").collect();
        assert_eq!(winners.len(), 1, "{added:?}");
        let (value, _) = gets(&mut ring.nodes[0].connect(), &format!("once-{round}"));
        assert_eq!(value, winners[0].to_string());
    }
}

/// All stores count their ids alike here, so without marks the old id would be good elsewhere.
#[test]
fn an_id_of_a_store_that_is_away_is_good_nowhere_else() {
    let name = "an_id_of_a_store_that_is_away_is_good_nowhere_else";
    let Some(bin) = memcached_bin(name) else { return };
    let mut ring = ring(Store::Memcached(bin), vec![vec![1, 1, 1]], "DC_ONE");
    let mut client = ring.nodes[1].connect();
    assert_eq!(ask(&mut client, b"set k 0 0 3\r\nold\r\n"), "STORED\r\n");
    let (_, id) = gets(&mut client, "k");
    ring.nodes[0].kill();
    wait_until("another store decides", || {
        let now = value(&ask(&mut client, b"gets k\r\n"));
        now.is_some_and(|(_, now)| now != id)
    });
    assert_eq!(cas(&mut client, "k", "new", &id), "EXISTS");
    let (_, id) = gets(&mut client, "k");
    assert_eq!(cas(&mut ring.nodes[2].connect(), "k", "new", &id), "STORED");
    assert_eq!(gets(&mut client, "k").0, "new");
}

#[test]
fn stores_that_missed_writes_have_no_say_in_a_get_of_several() {
    let what = "stores_that_missed_writes_have_no_say_in_a_get_of_several";
    let Some(bin) = memcached_bin(what) else { return };
    let ring = ring(Store::Memcached(bin), vec![vec![1, 1, 1]], "DC_QUORUM");
    let mut stores: Vec<Client> = ring.nodes.iter().map(Node::connect_store).collect();
    for (missed, key) in ["a", "b", "c"].into_iter().enumerate() {
        for (number, store) in stores.iter_mut().enumerate() {
            let value = if number == missed { "old" } else { "new" };
            let line = format!("set {key} 0 0 3\r\n{value}\r\n");
            assert_eq!(ask(store, line.as_bytes()), "STORED\r\n");
        }
    }
    // One that is in all stores, and differs in each.
    for (number, store) in stores.iter_mut().enumerate() {
        assert_eq!(ask(store, format!("set d 0 0 1\r\n{number}\r\n").as_bytes()), "STORED\r\n");
    }
    for node in &ring.nodes {
        let mut client = node.connect();
        let value = |key: &str| format!("VALUE {key} 0 3\r\nnew\r\n");
        let right = [value("c"), value("a"), value("b"), value("a")].concat() + "END\r\n";
        assert_eq!(ask(&mut client, b"get c a none b a\r\n"), right);
        let with_d = ask(&mut client, b"get a d b\r\n");
        let d = with_d.strip_prefix(&value("a")).and_then(|rest| rest.strip_prefix("VALUE d 0 1"));
        assert!(d.is_some_and(|rest| rest.ends_with(&(value("b") + "END\r\n"))), "{with_d}");
        // What is told with an id is what the store has in which a cas with it is tried.
        let mut gets = ask(&mut client, b"gets a b c\r\n");
        for key in ["a", "b", "c"] {
            let (_, line) = gets.split_once(&format!("VALUE {key} 0 3 ")).expect("a value");
            let (id, rest) = line.split_once("\r\nnew\r\n").expect("the new value");
            let is_held = cas(&mut client, key, "new", id) == "STORED";
            let of_first = ask(&mut stores[0], format!("get {key}\r\n").as_bytes());
            assert_eq!(is_held, of_first.contains("new"), "{key}");
            gets = rest.to_owned();
        }
    }
}

#[test]
fn keys_with_one_tag_are_in_one_store_and_are_read_together() {
    let name = "keys_with_one_tag_are_in_one_store_and_are_read_together";
    let Some(bin) = memcached_bin(name) else { return };
    let (dcs, store) = (vec![vec![2, 2]], Store::Memcached(bin));
    let extra = "  data_store: 1\n  hash_tag: '{}'\n".to_owned();
    let ring = Ring::start(Layout { dcs, store, extra });
    let mut client = ring.nodes[0].connect();
    let sets: String = (0..20).map(|i| format!("set {{tag}}{i} 0 0 1\r\nx\r\n")).collect();
    assert_eq!(ask(&mut client, sets.as_bytes()), "STORED\r\n".repeat(20));
    let keys = |verb: &str| (0..20).fold(verb.to_owned(), |line, i| format!("{line} {{tag}}{i}"));
    let values: String = (0..20).map(|i| format!("VALUE {{tag}}{i} 0 1\r\nx\r\n")).collect();
    for verb in ["get", "gat 100"] {
        let answer = ask(&mut client, format!("{}\r\n", keys(verb)).as_bytes());
        assert_eq!(answer, format!("{values}END\r\n"), "{verb}");
    }
    let held = |node: &Node| {
        ask(&mut node.connect_store(), format!("{}\r\n", keys("get")).as_bytes())
            .matches("VALUE")
            .count()
    };
    for rack in ring.nodes.chunks(2) {
        let mut counts = [held(&rack[0]), held(&rack[1])];
        counts.sort_unstable();
        assert_eq!(counts, [0, 20]);
    }
}

#[test]
fn flush_all_reaches_every_store_when_it_is_allowed() {
    let name = "flush_all_reaches_every_store_when_it_is_allowed";
    let Some(bin) = memcached_bin(name) else { return };
    let open = ring(Store::Memcached(bin), vec![vec![2, 2], vec![1]], "DC_ONE");
    let mut client = open.nodes[0].connect();
    let sets: String = (0..20).map(|i| format!("set k{i} 0 0 1\r\nx\r\n")).collect();
    assert_eq!(ask(&mut client, sets.as_bytes()), "STORED\r\n".repeat(20));
    assert_eq!(ask(&mut client, b"flush_all\r\n"), "OK\r\n");
    assert_eq!(ask(&mut client, b"flush_all noreply\r\n"), "");
    let all = (0..20).fold("get".to_owned(), |line, i| format!("{line} k{i}")) + "\r\n";
    for node in &open.nodes {
        assert_eq!(ask(&mut node.connect_store(), all.as_bytes()), "END\r\n");
    }
    let extra = "  data_store: 1\n".to_owned();
    let dcs = vec![vec![1, 1]];
    let shut = Ring::start(Layout { dcs, store: Store::EmbeddedMemcache, extra });
    let mut client = shut.nodes[0].connect();
    assert_eq!(ask(&mut client, b"set k 0 0 1\r\nx\r\n"), "STORED\r\n");
    let refused = ask(&mut client, b"flush_all\r\n");
    assert!(refused.starts_with("SERVER_ERROR flush_all is refused"), "{refused}");
    assert_eq!(ask(&mut client, b"flush_all noreply\r\n"), "");
    assert_eq!(ask(&mut client, b"get k\r\n"), "VALUE k 0 1\r\nx\r\nEND\r\n");
}

#[test]
fn a_client_of_the_binary_protocol_is_refused_in_words() {
    let ring = ring(Store::EmbeddedMemcache, vec![vec![1]], "DC_ONE");
    let mut other = ring.nodes[0].connect();
    let mut client = ring.nodes[0].connect();
    client.send(b"\x80\x0b\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0").expect("sent");
    let answer = String::from_utf8(client.line().expect("a line")).expect("text");
    assert!(answer.starts_with("CLIENT_ERROR") && answer.contains("binary"), "{answer}");
    assert!(client.line().is_err(), "the connection is closed");
    assert_eq!(ask(&mut other, b"get k\r\n"), "END\r\n");
}

#[test]
fn stats_are_the_nodes_own_and_by_argument_the_stores() {
    let name = "stats_are_the_nodes_own_and_by_argument_the_stores";
    let Some(bin) = memcached_bin(name) else { return };
    for store in [Store::Memcached(bin), Store::EmbeddedMemcache] {
        let ring = ring(store, vec![vec![1]], "DC_ONE");
        let mut client = ring.nodes[0].connect();
        let has = |answer: &str, name: &str| answer.lines().any(|line| line.starts_with(name));
        assert!(has(&ask(&mut client, b"stats\r\n"), "STAT ring_digest "));
        let settings = ask(&mut client, b"stats settings\r\n");
        assert!(has(&settings, "STAT maxbytes ") && has(&settings, "STAT item_size_max "));
        assert_eq!(ask(&mut client, b"stats reset\r\n"), "RESET\r\n");
    }
}
