//! Commands over the keys of a whole ring.

use std::collections::{BTreeMap, BTreeSet};

use super::super::scripted::{Scripted, ring, view};
use super::*;
use crate::dispatch::view::Settings;
use crate::ring::PeerState;

/// Two owners in the own rack, and one of another rack that nobody asks.
fn two_owners(settings: Settings) -> Scripted {
    let peers = ring(&[
        ("n1", "dc1/r1", 2147483647),
        ("n2", "dc1/r1", 4294967294),
        ("m1", "dc1/r2", 4294967294),
    ]);
    Scripted::new(peers, settings)
}

/// Keys of n1 and of n2 under the default hash.
fn keys_of_each(s: &Scripted) -> (Vec<String>, Vec<String>) {
    let view = Arc::clone(s.node.view());
    let owner = |key: &String| {
        let token = view.hasher.token(key.as_bytes());
        let owner = view.topology.owners(&token).owner(view.topology.own_rack());
        owner == Some(view.topology.local())
    };
    (0..20).map(|i| format!("k{i}")).partition(owner)
}

fn array(keys: &[&String]) -> String {
    let bulk = |key: &&String| format!("${}\r\n{key}\r\n", key.len());
    format!("*{}\r\n{}", keys.len(), keys.iter().map(bulk).collect::<String>())
}

#[test]
fn keys_are_those_of_every_owner_without_ghosts_and_reserved_names() {
    let mut s = two_owners(Settings::default());
    let (mine, theirs) = keys_of_each(&s);
    s.send("KEYS k*");
    assert_eq!(s.sent("store"), ["KEYS k*"]);
    assert_eq!(s.sent("n2"), ["3 KEYS k*"]);
    assert!(s.sent("m1").is_empty());
    let reserved = "torc:x".to_owned();
    s.answer("store", &array(&[&mine[0], &theirs[0], &reserved]));
    s.answer("n2", &array(&[&theirs[1], &mine[1]]));
    assert_eq!(s.replies(), array(&[&mine[0], &theirs[1]]));
}

#[test]
fn an_owner_that_cannot_be_asked_is_an_error() {
    let mut s = two_owners(Settings::default());
    s.lose("n2");
    s.send("DBSIZE");
    s.answer("store", ":3\r\n");
    let reply = s.replies();
    assert!(reply.starts_with("-ERR Peer: Peer Node is not connected (n2, r1"), "{reply}");
    // The answer that was still on its way belongs to nobody else.
    s.send("PING");
    assert_eq!(s.replies(), "+PONG\r\n");
}

#[test]
fn sizes_add_up() {
    let mut s = two_owners(Settings::default());
    s.send("DBSIZE");
    assert_eq!(s.sent("n2"), ["3 DBSIZE"]);
    s.answer("n2", ":4\r\n");
    s.answer("store", ":3\r\n");
    assert_eq!(s.replies(), ":7\r\n");
}

#[test]
fn a_random_key_is_asked_for_again_while_only_ghosts_come() {
    let mut s = two_owners(Settings::default());
    let (mine, theirs) = keys_of_each(&s);
    let bulk = |key: &String| format!("${}\r\n{key}\r\n", key.len());
    s.send("RANDOMKEY");
    assert_eq!(s.sent("n2"), ["3 RANDOMKEY", "3 DBSIZE"]);
    s.answer("store", &(bulk(&theirs[0]) + ":1\r\n"));
    s.answer("n2", "$-1\r\n");
    s.answer("n2", ":0\r\n");
    assert_eq!(s.sent("n2"), ["3 RANDOMKEY", "3 DBSIZE"]);
    s.answer("n2", "$-1\r\n");
    s.answer("n2", ":0\r\n");
    s.answer("store", &(bulk(&mine[0]) + ":2\r\n"));
    assert_eq!(s.replies(), bulk(&mine[0]));
}

#[test]
fn an_empty_ring_has_no_random_key() {
    let mut s = two_owners(Settings::default());
    s.send("RANDOMKEY");
    assert_eq!(s.sent("n2").len(), 2);
    s.answer("store", "$-1\r\n:0\r\n");
    s.answer("n2", "$-1\r\n");
    s.answer("n2", ":0\r\n");
    assert_eq!(s.replies(), "$-1\r\n");
}

#[test]
fn keys_are_drawn_by_the_weight_of_their_owners() {
    let picks = [(Some(b"a".to_vec()), 3), (None, 9), (Some(b"b".to_vec()), 1)];
    let drawn = (0..4).filter_map(|seed| draw(&picks, seed)).collect::<Vec<_>>();
    assert_eq!(drawn, [b"a", b"a", b"a", b"b"]);
    assert_eq!(draw(&[(None, 1)], 7), None);
}

#[test]
fn a_scan_visits_one_node_after_the_other() {
    let mut s = two_owners(Settings::default());
    let (mine, theirs) = keys_of_each(&s);
    let (mut cursor, mut found) = ("0".to_owned(), Vec::new());
    for _ in 0..4 {
        s.send(&format!("SCAN {cursor} COUNT 2"));
        let (at_store, at_peer) = (s.sent("store"), s.sent("n2"));
        let (name, keys, request) = match at_peer.first() {
            Some(request) => ("n2", &theirs, request.trim_start_matches("3 ").to_owned()),
            None => ("store", &mine, at_store[0].clone()),
        };
        assert!(at_store.len() + at_peer.len() == 1);
        let own = request.split(' ').nth(1).unwrap();
        let (next, key) = if own == "0" { ("1099511627775", &keys[0]) } else { ("0", &keys[1]) };
        let next = format!("*2\r\n${}\r\n{next}\r\n{}", next.len(), array(&[key]));
        s.answer(name, &next);
        let reply = s.replies();
        let page = reply.as_bytes();
        let mut parts = elements(page);
        cursor = String::from_utf8(text(parts.next().unwrap()).unwrap().to_vec()).unwrap();
        let keys = elements(parts.next().unwrap());
        found.extend(keys.map(|k| String::from_utf8(text(k).unwrap().to_vec()).unwrap()));
    }
    assert_eq!(cursor, "0");
    found.sort();
    let mut all = [&mine[..2], &theirs[..2]].concat();
    all.sort();
    assert_eq!(found, all);
}

#[test]
fn a_cursor_of_another_ring_begins_anew_and_one_of_none_is_an_error() {
    let mut s = two_owners(Settings::default());
    s.send(&format!("SCAN {} COUNT 3", i64::MAX));
    let (name, request) = match s.sent("n2").first() {
        Some(request) => ("n2", request.trim_start_matches("3 ").to_owned()),
        None => ("store", s.sent("store")[0].clone()),
    };
    assert_eq!(request, "SCAN 0 COUNT 3");
    s.answer(name, "*2\r\n$1\r\n0\r\n*0\r\n");
    assert!(!s.replies().starts_with("*2\r\n$1\r\n0\r\n"), "the other node follows");
    s.send("SCAN x");
    assert_eq!(s.replies(), "-ERR invalid cursor\r\n");
}

#[test]
fn a_datastore_cursor_that_does_not_fit_is_named() {
    let mut s = two_owners(Settings::default());
    s.send("SCAN 0");
    let name = if s.sent("n2").is_empty() { "store" } else { "n2" };
    s.answer(name, "*2\r\n$13\r\n2199023255552\r\n*0\r\n");
    assert_eq!(s.replies(), "-ERR the cursor of a datastore has more than 41 bits\r\n");
}

#[test]
fn a_setting_keeps_them_to_the_own_node() {
    let mut s = two_owners(Settings { keyspace_node_only: true, ..Settings::default() });
    s.send("SCAN 7 MATCH x");
    assert_eq!(s.sent("store"), ["SCAN 7 MATCH x"]);
    assert!(s.sent("n2").is_empty());
    s.answer("store", "*2\r\n$1\r\n0\r\n*0\r\n");
    assert_eq!(s.replies(), "*2\r\n$1\r\n0\r\n*0\r\n");
}

#[test]
fn torc_local_asks_the_own_datastore_alone() {
    let mut s = two_owners(Settings::default());
    let (_, theirs) = keys_of_each(&s);
    s.send(&format!("TORC.LOCAL GET {}", theirs[0]));
    assert_eq!(s.sent("store"), [format!("GET {}", theirs[0])]);
    s.answer("store", "$-1\r\n");
    assert_eq!(s.replies(), "$-1\r\n");
    for refused in ["TORC.LOCAL MULTI", "TORC.LOCAL BLPOP a 0", "TORC.LOCAL FLUSHALL"] {
        s.send(refused);
        assert!(s.replies().starts_with("-ERR TORC.LOCAL does not run '"), "{refused}");
    }
    s.send("TORC.LOCAL NOSUCH");
    assert!(s.replies().starts_with("-ERR unknown command"));
}

#[test]
fn nodes_of_the_reference_are_asked_in_their_own_words() {
    let mut peers = ring(&[("n1", "dc1/r1", 1), ("c1", "dc1/r1", 4294967294)]);
    peers[1].is_torc = false;
    let mut s = Scripted::new(peers, Settings::default());
    s.send("KEYS *");
    assert_eq!(s.sent("c1"), ["3 KEYS *"]);
    s.send("DBSIZE");
    assert_eq!(s.sent("c1"), ["3 EVAL return redis.pcall(unpack(ARGV)) 1 torc: DBSIZE"]);
}

/// Stores as a scan sees them: each node has the keys it owns, and those it owned once.
struct Stores(BTreeMap<String, BTreeSet<String>>);

impl Stores {
    /// Gives every key to its owners; who joins still lacks its own.
    fn settle(&mut self, view: &View, keys: &[String]) {
        for key in keys {
            let owners = view.topology.owners(&view.hasher.token(key.as_bytes()));
            for peer in owners.iter().flatten().map(|peer| view.topology.peer(peer)) {
                if !peer.is_joining() {
                    let name = if peer.is_local { "store" } else { peer.name };
                    self.0.entry(name.into()).or_default().insert(key.clone());
                }
            }
        }
    }

    /// One call of a scan; gives the next cursor and the keys of the page.
    fn page(&self, s: &mut Scripted, cursor: &str) -> (String, Vec<String>) {
        s.send(&format!("SCAN {cursor}"));
        let asked = ["store", "n2", "n3", "m1", "m2"].into_iter().find_map(|name| {
            let sent = if s.has(name) { s.sent(name) } else { Vec::new() };
            Some((name, sent.first()?.rsplit(' ').next()?.parse::<usize>().ok()?))
        });
        let (name, own) = asked.expect("somebody is asked");
        let none = BTreeSet::new();
        let keys: Vec<&String> = self.0.get(name).unwrap_or(&none).iter().collect();
        let page: Vec<&String> = keys.iter().skip(own).take(5).copied().collect();
        let next = if own + 5 < keys.len() { (own + 5).to_string() } else { "0".into() };
        s.answer(name, &format!("*2\r\n${}\r\n{next}\r\n{}", next.len(), array(&page)));
        let reply = s.replies();
        let mut parts = elements(reply.as_bytes());
        let word = |part: &[u8]| String::from_utf8(text(part).unwrap().to_vec()).unwrap();
        let next = word(parts.next().unwrap());
        (next, elements(parts.next().unwrap()).map(word).collect())
    }
}

/// What is known of `n3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Third {
    Absent,
    Joining,
    Normal,
    Dead,
}

/// Two racks; `n3` is a third node of the first one.
fn rack_of_three(third: Third) -> Arc<View> {
    let mut peers = ring(&[
        ("n1", "dc1/r1", 1431655765),
        ("n2", "dc1/r1", 2863311530),
        ("n3", "dc1/r1", 4294967294),
        ("m1", "dc1/r2", 2147483647),
        ("m2", "dc1/r2", 4294967294),
    ]);
    match third {
        Third::Absent => drop(peers.remove(2)),
        Third::Joining => peers[2].state = PeerState::Joining,
        Third::Normal => {}
        Third::Dead => peers[2].reachable = false,
    }
    view(peers, Settings::default())
}

#[test]
fn a_scan_is_complete_while_nodes_come_and_go() {
    use Third::{Absent, Dead, Joining, Normal};
    let keys: Vec<String> = (0..60).map(|i| format!("key{i}")).collect();
    let histories: [&[Third]; 5] = [
        &[Absent, Normal],
        &[Normal, Absent],
        &[Absent, Joining, Normal],
        &[Joining],
        &[Normal, Dead, Normal],
    ];
    // The ring changes after each number of pages, from none to more than there are.
    for (history, pages) in histories.iter().flat_map(|h| (0..16).map(move |pages| (*h, pages))) {
        let first = rack_of_three(history[0]);
        let mut s = Scripted::with_view(Arc::clone(&first));
        let mut stores = Stores(BTreeMap::new());
        stores.settle(&first, &keys);
        let (mut cursor, mut found) = ("0".to_owned(), BTreeSet::new());
        let mut later = history[1..].iter();
        for page in 0.. {
            assert!(page < 200, "it ends");
            if page >= pages
                && let Some(state) = later.next()
            {
                let next = rack_of_three(*state);
                s.node.set_view(Arc::clone(&next));
                s.connect();
                stores.settle(&next, &keys);
            }
            let (next, page) = stores.page(&mut s, &cursor);
            found.extend(page);
            cursor = next;
            if cursor == "0" {
                break;
            }
        }
        let missed = keys.iter().filter(|key| !found.contains(*key)).count();
        assert_eq!(missed, 0, "{history:?}, change after {pages} pages");
    }
}
