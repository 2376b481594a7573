//! Links between nodes, driven by hand: frames of types 3 and 4, and what else may come.

use torc::dispatch::view::NodeState;
use torc::proto::dnode::{DATA_PLAIN, HeaderDecoder, HeaderLimits, put_header};

use super::super::cluster::Config;
use super::super::user::request;
use super::super::world::World;

/// DNODE types.
const REQ: u8 = 3;
const FORWARD: u8 = 4;

fn frame(id: u64, kind: u8, words: &[&str]) -> Vec<u8> {
    let body = request(words);
    let mut out = Vec::new();
    put_header(&mut out, id, kind, 0, 1, true, DATA_PLAIN, body.len() as u64);
    out.extend(body);
    out
}

/// The answers on a link driven by hand: ids and bodies.
fn answers(w: &mut World, user: usize) -> Vec<(u64, String)> {
    let mut found = Vec::new();
    let bytes = w.users[user].rx.split().to_vec();
    let mut rest = bytes.as_slice();
    while let Ok(Some(header)) = HeaderDecoder::default().decode(rest, &HeaderLimits::default()) {
        assert_eq!((header.kind, header.version, header.skipped), (5, 1, 0));
        let (body, after) = rest[header.len..].split_at(header.plen as usize);
        found.push((header.id, String::from_utf8_lossy(body).trim_end().to_owned()));
        rest = after;
    }
    assert!(rest.is_empty(), "half a frame: {rest:?}");
    found
}

fn exchange(w: &mut World, user: usize, bytes: &[u8]) -> Vec<(u64, String)> {
    w.send_raw(user, bytes);
    w.run_ms(50);
    answers(w, user)
}

fn executed(w: &World, n: usize, verb: &str) -> usize {
    w.stores[n].executed.iter().filter(|c| c.starts_with(verb)).count()
}

#[test]
fn type_3_goes_to_the_own_store_whoever_owns_the_key() {
    let mut w = World::new(Config::new(&[&[2, 2], &[2]]));
    let link = w.peer_user(0);
    w.stores.iter_mut().for_each(|store| store.log = true);
    // Owned by the other node of the rack, by this node's own view.
    let foreign = w.key(1);
    let bytes = frame(7, REQ, &["INCR", &foreign]);
    assert_eq!(exchange(&mut w, link, &bytes), [(7, ":1".to_owned())]);
    let done: Vec<usize> = (0..6).map(|n| executed(&w, n, "INCR")).collect();
    assert_eq!(done, [1, 0, 0, 0, 0, 0]);
}

#[test]
fn type_4_fans_out_once_in_its_own_datacenter() {
    let mut w = World::new(Config::new(&[&[2, 2, 2], &[2, 2]]));
    let link = w.peer_user(0);
    w.stores.iter_mut().for_each(|store| store.log = true);
    let foreign = w.key(1);
    for (id, kind) in [(1, "INCR"), (2, "INCR")] {
        let bytes = frame(id, FORWARD, &[kind, &foreign]);
        assert_eq!(exchange(&mut w, link, &bytes), [(id, format!(":{id}"))]);
    }
    // Once on the owner in each rack here, nowhere else.
    let done: Vec<usize> = (0..10).map(|n| executed(&w, n, "INCR")).collect();
    assert_eq!(done, [0, 2, 0, 2, 0, 2, 0, 0, 0, 0]);
    assert_eq!(w.counters(0).requests_remote, 0, "never another type 4");
}

#[test]
fn type_4_is_answered_by_the_receivers_rack_or_the_next() {
    let mut w = World::new(Config::new(&[&[2, 2], &[2]]));
    let link = w.peer_user(0);
    let key = w.key(1);
    w.plant(&[1], &key, "own_rack");
    w.plant(&[3], &key, "other_rack");
    let bytes = frame(1, FORWARD, &["GET", &key]);
    assert_eq!(exchange(&mut w, link, &bytes), [(1, "$8\r\nown_rack".to_owned())]);
    w.crash(1);
    w.run_ms(50);
    let bytes = frame(2, FORWARD, &["GET", &key]);
    assert_eq!(exchange(&mut w, link, &bytes), [(2, "$10\r\nother_rack".to_owned())]);
}

#[test]
fn states_an_operator_set_hold_for_the_requests_of_other_nodes() {
    let mut w = World::new(Config::new(&[&[1, 1], &[1]]));
    w.stores.iter_mut().for_each(|store| store.log = true);
    let (link, user) = (w.peer_user(0), w.user(0));
    let refused = "-ERR Dynomite: Dynomite's current state does not allow this request";
    w.ask(user, "SET k 1");
    let mut id = 0;
    let mut serves = |w: &mut World, kind, words: &[&str]| {
        id += 1;
        let found = exchange(w, link, &frame(id, kind, words));
        assert_eq!((found.len(), found[0].0), (1, id), "one answer");
        !found[0].1.starts_with(refused)
    };
    for (state, reads, writes) in [
        (NodeState::Normal, true, true),
        (NodeState::WritesOnly, false, true),
        (NodeState::Resuming, false, true),
        (NodeState::Standby, false, false),
    ] {
        w.operate(0, state);
        assert_eq!(serves(&mut w, REQ, &["GET", "k"]), reads, "{state:?}");
        assert_eq!(serves(&mut w, REQ, &["SET", "k", "2"]), writes, "{state:?}");
        assert_eq!(serves(&mut w, REQ, &["EVAL", "return 1", "1", "k"]), writes, "{state:?}");
        assert!(serves(&mut w, REQ, &["PING"]), "the heartbeat is no request");
        // What is to be fanned out goes to the other rack at least.
        let before = executed(&w, 1, "SET");
        assert!(serves(&mut w, FORWARD, &["SET", "k", "3"]), "{state:?}");
        assert_eq!(executed(&w, 1, "SET"), before + 1, "{state:?}");
    }
}

#[test]
fn a_write_crosses_to_each_datacenter_once() {
    let mut w = World::new(Config::new(&[&[2, 2], &[2, 2, 2], &[1]]));
    let user = w.user(0);
    w.stores.iter_mut().for_each(|store| store.log = true);
    let key = w.key(1);
    assert_eq!(w.ask(user, &format!("INCR {key}")), ":1");
    w.run_ms(100);
    assert_eq!(w.counters(0).requests_remote, 2);
    let owners = w.owners(&key);
    let done: Vec<usize> = (0..11).filter(|n| executed(&w, *n, "INCR") == 1).collect();
    assert_eq!(done, owners);
    assert_eq!(done.len(), 6);
}

#[test]
fn a_link_to_another_datacenter_carries_its_rate_and_loses_nothing() {
    let config = Config::new(&[&[1, 1], &[1]]).tuned(|s| s.remote_frames_per_second = 20);
    let mut w = World::new(config);
    let user = w.user(0);
    w.run_ms(2000);
    w.stores.iter_mut().for_each(|store| store.log = true);
    (0..100).for_each(|i| w.send_line(user, &format!("SET k {i}")));
    w.run_ms(100);
    assert_eq!(w.users[user].replies.len(), 100, "who asked does not wait for the copies");
    assert_eq!(executed(&w, 1, "SET"), 100, "the own datacenter has them all");
    for (ms, least, most) in [(0, 15, 22), (1000, 35, 42), (1000, 55, 62), (3000, 100, 100)] {
        w.run_ms(ms);
        let far = executed(&w, 2, "SET");
        assert!((least..=most).contains(&far), "{far} copies after {ms} ms more");
    }
    assert_eq!(w.in_store(2, "GET k"), "99", "in the order they were written");
    assert_eq!(w.counters(0).timeouts, 0);
}

#[test]
fn answers_keep_the_order_of_requests_and_their_ids() {
    let mut w = World::new(Config::new(&[&[2, 2]]));
    let link = w.peer_user(0);
    let (here, there) = (w.key(0), w.key(1));
    // The second is slower than the others: it is fanned out.
    let mut bytes = frame(9, REQ, &["SET", &here, "1"]);
    bytes.extend(frame(5, FORWARD, &["SET", &there, "2"]));
    bytes.extend(frame(5, REQ, &["GET", &here]));
    let found = exchange(&mut w, link, &bytes);
    let want = [(9, "+OK"), (5, "+OK"), (5, "$1\r\n1")];
    assert_eq!(found, want.map(|(id, body)| (id, body.to_owned())));
}

#[test]
fn frames_cut_at_every_byte_are_answered() {
    let mut w = World::new(Config::new(&[&[2, 2]]).embedded());
    let there = w.key(1);
    let mut bytes = frame(1, FORWARD, &["SET", &there, "x"]);
    bytes.extend(frame(2, REQ, &["PING"]));
    for cut in 0..bytes.len() {
        let link = w.peer_user(0);
        w.send_raw(link, &bytes[..cut]);
        w.run_ms(10);
        let found = exchange(&mut w, link, &bytes[cut..]);
        assert_eq!(found, [(1, "+OK".to_owned()), (2, "+PONG".to_owned())], "cut at {cut}");
        w.lose_user(link);
    }
}

#[test]
fn a_request_that_would_upset_the_shared_connection_is_refused() {
    let mut w = World::new(Config::new(&[&[1]]));
    let (link, user) = (w.peer_user(0), w.user(0));
    w.ask(user, "SET k 1");
    for words in [
        &["MULTI"][..],
        &["SELECT", "3"],
        &["SUBSCRIBE", "news"],
        &["CLIENT", "REPLY", "OFF"],
        &["HELLO", "3"],
        &["MONITOR"],
        &["QUIT"],
        &[],
    ] {
        let mut bytes = frame(1, REQ, words);
        bytes.extend(frame(2, REQ, &["GET", "k"]));
        w.send_raw(link, &bytes);
        assert_eq!(w.ask(user, "GET k"), "1", "after {words:?}");
        w.run_ms(20);
        let found = answers(&mut w, link);
        assert_eq!(found.len(), 2, "{words:?}: {found:?}");
        assert!(found[0].1.starts_with("-ERR "), "{words:?}: {found:?}");
        assert_eq!(found[1], (2, "$1\r\n1".to_owned()), "{words:?}");
    }
}

#[test]
fn noise_and_foreign_frames_are_passed_over() {
    let mut w = World::new(Config::new(&[&[1]]));
    let link = w.peer_user(0);
    let mut rng = fastrand::Rng::with_seed(5);
    let noise: Vec<u8> = (0..4096).map(|_| rng.u8(..)).collect();
    let mut bytes = noise.clone();
    bytes.extend(frame(3, REQ, &["PING"]));
    bytes.extend(frame(4, 99, &["IGNORED"]));
    bytes.extend(frame(5, 0, &["IGNORED"]));
    bytes.extend(&noise[..100]);
    bytes.extend(frame(6, REQ, &["PING"]));
    let found = exchange(&mut w, link, &bytes);
    assert_eq!(found, [(3, "+PONG".to_owned()), (6, "+PONG".to_owned())]);
    assert_eq!(w.counters(0).unknown_frames_in, 2);
}

#[test]
fn noise_on_a_client_port_is_refused_and_harms_nobody() {
    let mut w = World::new(Config::new(&[&[1]]));
    let good = w.user(0);
    for seed in 0..50 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let noise: Vec<u8> = (0..4096).map(|_| rng.u8(..)).collect();
        let bad = w.peer_user(0);
        w.users[bad].kind = torc::dispatch::ClientKind::Client;
        w.expect(bad, 4096);
        w.send_raw(bad, &noise);
        assert_eq!(w.ask(good, &format!("SET k {seed}")), "OK");
        w.run_ms(20);
        w.lose_user(bad);
        assert_eq!(w.ask(good, "GET k"), seed.to_string());
    }
}

#[test]
fn gossip_and_control_frames_go_to_the_control_plane() {
    let mut w = World::new(Config::new(&[&[1]]));
    let link = w.peer_user(0);
    let mut bytes = frame(1, 7, &["GOSSIP"]);
    bytes.extend(frame(2, REQ, &["PING"]));
    bytes.extend(frame(3, 32, &["TORC"]));
    assert_eq!(exchange(&mut w, link, &bytes), [(2, "+PONG".to_owned())]);
    let kinds: Vec<u8> = w.nodes[0].control.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, [7, 32]);
    assert_eq!(w.nodes[0].control[0].1, request(&["GOSSIP"]));
}

#[test]
fn a_wrong_length_in_a_request_is_tolerated() {
    let mut w = World::new(Config::new(&[&[1]]));
    let link = w.peer_user(0);
    let mut bytes = Vec::new();
    for (id, plen) in [(1, 1), (2, 4000)] {
        put_header(&mut bytes, id, REQ, 0, 1, true, DATA_PLAIN, plen);
        bytes.extend(request(&["PING"]));
    }
    let found = exchange(&mut w, link, &bytes);
    assert_eq!(found, [(1, "+PONG".to_owned()), (2, "+PONG".to_owned())]);
}
