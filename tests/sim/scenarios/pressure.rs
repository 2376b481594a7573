//! Limits: who is not read any more, that nothing grows beyond them, and that all goes on.

use torc::dispatch::{ClientId, Conn, UpId};

use super::super::cluster::Config;
use super::super::network::NetSettings;
use super::super::user::{brief, request};
use super::super::world::World;

/// What a node holds for its clients, bytes.
fn client_bytes(w: &World, n: usize) -> usize {
    let node = &w.nodes[n];
    let held = |client: &u32| node.dispatcher.output_len(Conn::Client(ClientId(*client)));
    node.clients.keys().map(held).sum()
}

/// What a node holds for its upstreams, bytes.
fn upstream_bytes(w: &World, n: usize) -> usize {
    let node = &w.nodes[n];
    let held = |up: &u32| node.dispatcher.output_len(Conn::Upstream(UpId(*up)));
    node.upstreams.keys().map(held).sum()
}

#[test]
fn a_client_with_too_much_in_flight_is_not_read_until_half_is_answered() {
    let mut w = World::new(Config::new(&[&[1]]).tuned(|s| s.client_in_flight_max = 8));
    let user = w.user(0);
    w.freeze_store(0);
    for i in 0..100 {
        w.send_line(user, &format!("SET k {i}"));
    }
    w.run_ms(100);
    assert_eq!(w.nodes[0].dispatcher.in_flight(), 8);
    assert_eq!(w.counters(0).pauses_client_limit, 1);
    // Others are served meanwhile.
    let other = w.user(0);
    assert_eq!(w.ask(other, "ECHO here"), "here");
    w.thaw_store(0);
    for _ in 0..100 {
        assert_eq!(w.reply(user), b"+OK\r\n");
    }
    assert_eq!(w.ask(user, "GET k"), "99");
}

#[test]
fn a_client_that_does_not_read_its_replies_is_not_read_either() {
    let net = NetSettings { window: 4 << 10, ..NetSettings::default() };
    let config = Config { net, ..Config::new(&[&[2]]) };
    let mut w = World::new(config.tuned(|s| s.client_output_max = 64 << 10));
    let user = w.user(0);
    let there = w.key(1);
    let value = "v".repeat(1000);
    w.ask(user, &format!("SET {there} {value}"));
    w.users[user].reading = false;
    for _ in 0..2000 {
        w.send_line(user, &format!("GET {there}"));
    }
    w.run_ms(2000);
    let held = client_bytes(&w, 0);
    assert!((60 << 10..1200 << 10).contains(&held), "{held} bytes");
    let other = w.user(0);
    assert_eq!(w.ask(other, &format!("GET {there}")), value);
    w.users[user].reading = true;
    w.read_user(user);
    for i in 0..2000 {
        assert_eq!(brief(&w.reply(user)), value, "reply {i}");
    }
}

#[test]
fn replies_that_wait_for_their_turn_count_too() {
    let mut w = World::new(Config::new(&[&[2]]).tuned(|s| {
        s.client_output_max = 100 << 10;
        s.timeout_ms = 60_000;
    }));
    let user = w.user(0);
    let (here, there) = (w.key(0), w.key(1));
    let value = "v".repeat(10_000);
    w.plant(&[0], &here, &value);
    w.freeze(1);
    // One answer is missing at the head of the line; 900 of ten kilobytes wait behind it.
    w.send_line(user, &format!("GET {there}"));
    for chunk in 0..30 {
        for _ in 0..30 {
            w.send_line(user, &format!("GET {here}"));
        }
        w.run_ms(20 + chunk);
    }
    let slots = w.nodes[0].dispatcher.in_flight();
    assert!((11..=45).contains(&slots), "{slots} replies are held");
    w.thaw(1);
    assert_eq!(brief(&w.reply(user)), "(nil)");
    for _ in 0..900 {
        assert_eq!(brief(&w.reply(user)), value);
    }
}

#[test]
fn a_slow_peer_stops_those_who_need_it_and_nobody_else() {
    let net = NetSettings { window: 8 << 10, ..NetSettings::default() };
    let config = Config { net, ..Config::new(&[&[3]]) };
    let mut w = World::new(config.tuned(|s| {
        s.upstream_output_max = 32 << 10;
        s.timeout_ms = 60_000;
    }));
    let (mine, slow, quick) = (w.key(0), w.key(1), w.key(2));
    let writers: Vec<usize> = (0..3).map(|_| w.user(0)).collect();
    w.freeze(1);
    let value = "v".repeat(1000);
    for user in &writers {
        for i in 0..100 {
            w.send_line(*user, &format!("SET {slow}{user}-{i} {value}"));
        }
    }
    w.run_ms(1000);
    let held = upstream_bytes(&w, 0);
    assert!((30 << 10..36 << 10).contains(&held), "{held} bytes");
    assert!(w.counters(0).pauses_upstream_limit >= 3);
    // A client that needs the slow one too waits; its request is not lost.
    let late = w.user(0);
    w.send_line(late, &format!("SET {slow} last"));
    let other = w.user(0);
    for key in [&mine, &quick] {
        let (reply, took_ms) = w.timed(other, &format!("SET {key} x"));
        assert!(reply == "OK" && took_ms < 20, "{reply} after {took_ms} ms");
    }
    w.thaw(1);
    for user in writers {
        for _ in 0..100 {
            assert_eq!(w.reply(user), b"+OK\r\n");
        }
    }
    assert_eq!(w.reply(late), b"+OK\r\n");
}

#[test]
fn a_client_that_waits_for_a_peer_goes_on_when_the_peer_is_gone() {
    let net = NetSettings { window: 2 << 10, ..NetSettings::default() };
    let config = Config { net, ..Config::new(&[&[2]]) };
    let mut w = World::new(config.tuned(|s| s.upstream_output_max = 4 << 10));
    let user = w.user(0);
    let there = w.key(1);
    w.freeze(1);
    let value = "v".repeat(1000);
    for _ in 0..50 {
        w.send_line(user, &format!("SET {there} {value}"));
    }
    w.run_ms(1000);
    assert!(w.counters(0).pauses_upstream_limit > 0);
    w.crash(1);
    for _ in 0..50 {
        let reply = brief(&w.reply(user));
        assert!(reply.starts_with("-ERR Peer: Peer Node"), "{reply}");
    }
    assert_eq!(w.ask(user, "ECHO alive"), "alive");
}

#[test]
fn too_many_requests_on_one_upstream_wait_as_well() {
    let mut w = World::new(Config::new(&[&[2]]).tuned(|s| s.upstream_in_flight_max = 10));
    let users: Vec<usize> = (0..5).map(|_| w.user(0)).collect();
    let there = w.key(1);
    w.freeze(1);
    for user in &users {
        for i in 0..20 {
            w.send_line(*user, &format!("SET {there}{user} {i}"));
        }
    }
    w.run_ms(500);
    assert!(w.nodes[0].dispatcher.in_flight() <= 10);
    w.thaw(1);
    for user in &users {
        for _ in 0..20 {
            assert_eq!(w.reply(*user), b"+OK\r\n");
        }
        assert_eq!(w.ask(*user, &format!("GET {there}{user}")), "19");
    }
}

#[test]
fn a_peers_link_is_paused_like_a_client() {
    // Node 1 asks node 2, whose store is frozen: the bytes pile up at node 1, within its limit.
    let net = NetSettings { window: 8 << 10, ..NetSettings::default() };
    let config = Config { net, ..Config::new(&[&[2]]) };
    let mut w = World::new(config.tuned(|s| {
        s.client_in_flight_max = 16;
        s.upstream_output_max = 16 << 10;
        s.timeout_ms = 60_000;
    }));
    let users: Vec<usize> = (0..8).map(|_| w.user(0)).collect();
    let there = w.key(1);
    w.freeze_store(1);
    let value = "v".repeat(500);
    for user in &users {
        for _ in 0..40 {
            w.send_line(*user, &format!("SET {there}{user} {value}"));
        }
    }
    w.run_ms(2000);
    assert_eq!(w.nodes[1].dispatcher.in_flight(), 16);
    assert!(upstream_bytes(&w, 0) < 18 << 10);
    w.thaw_store(1);
    for user in users {
        for _ in 0..40 {
            assert_eq!(w.reply(user), b"+OK\r\n");
        }
    }
}

#[test]
fn a_client_that_leaves_takes_its_requests_with_it() {
    let mut w = World::new(Config::new(&[&[2, 2]]));
    let there = w.key(1);
    let here = w.key(0);
    w.freeze(1);
    for _ in 0..20 {
        let user = w.user(0);
        w.send_line(user, &format!("MGET {there} {here}"));
        w.send_line(user, &format!("SET {there} x"));
        w.send_line(user, &format!("GET {here}"));
        w.run_ms(5);
        w.lose_user(user);
    }
    w.run_ms(100);
    assert_eq!(w.counters(0).clients, 0);
    w.thaw(1);
    w.run_until("nothing is left", |w| w.nodes[0].dispatcher.in_flight() == 0);
    let user = w.user(0);
    assert_eq!(w.ask(user, &format!("MGET {there} {here}")), "[x, (nil)]");
}

#[test]
fn a_request_longer_than_its_limit_is_refused_in_words() {
    let mut w = World::new(Config::new(&[&[1]]).tuned(|s| s.request.bulk_bytes_max = 1000));
    let user = w.user(0);
    w.expect(user, 2);
    w.send_raw(user, &request(&["SET", "k", &"v".repeat(1000)]));
    assert_eq!(w.reply(user), b"+OK\r\n");
    w.send_raw(user, &request(&["SET", "k", &"v".repeat(1001)]));
    assert!(brief(&w.reply(user)).starts_with("-ERR Protocol error"));
    w.run_until("the client is let go", |w| w.users[user].link.is_none());
}
