//! Datastores that misbehave.

use super::super::cluster::Config;
use super::super::user::{brief, request};
use super::super::world::World;
use super::{STORE_REFUSED, assert_error};

#[test]
fn a_reply_nobody_asked_for_drops_the_connection_and_reaches_nobody() {
    let mut w = World::new(Config::new(&[&[1]]));
    let (one, other) = (w.user(0), w.user(0));
    w.ask(one, "SET k 1");
    // Two replies to one request.
    w.stores[0].script.push_back(b"$1\r\n1\r\n$7\r\nforeign\r\n".to_vec());
    assert_eq!(w.ask(one, "GET k"), "1");
    w.run_ms(5);
    assert_eq!(w.counters(0).surplus_replies, 1);
    for user in [other, one, other] {
        let reply = w.ask(user, "GET k");
        assert!(reply == "1" || reply.starts_with(STORE_REFUSED), "{reply}");
    }
    w.run_until_connected();
    assert_eq!(w.ask(other, "GET k"), "1");
}

#[test]
fn bytes_on_an_idle_store_connection_drop_it() {
    let mut w = World::new(Config::new(&[&[1]]));
    let user = w.user(0);
    w.say_from_store(0, b"+surprise\r\n");
    w.run_ms(2);
    assert_eq!(w.counters(0).surplus_replies, 1);
    w.run_until_connected();
    assert_eq!(w.ask(user, "PING"), "PONG");
    assert_eq!(w.ask(user, "SET k 1"), "OK");
}

#[test]
fn an_unreadable_reply_fails_what_was_in_flight_and_no_more() {
    let mut w = World::new(Config::new(&[&[1]]));
    let user = w.user(0);
    for garbage in
        [&b"?what\r\n"[..], b"$-5\r\n", b"*2\r\n$1\r\na\r\n!", b"$3\r\nabcd\r\n", b":x\r\n"]
    {
        w.stores[0].script.push_back(garbage.to_vec());
        w.expect(user, 2);
        w.send_raw(user, &request(&["GET", "k"]).repeat(2));
        for _ in 0..2 {
            assert_error(&brief(&w.reply(user)), STORE_REFUSED, "(unreadable reply)");
        }
        w.run_until_connected();
        assert_eq!(w.ask(user, "GET k"), "(nil)");
    }
}

#[test]
fn a_store_that_is_gone_is_an_error_at_once_and_used_when_it_is_back() {
    let mut w = World::new(Config::new(&[&[1]]));
    let user = w.user(0);
    w.ask(user, "SET k 1");
    w.crash_store(0, true);
    w.run_ms(5);
    let (reply, took_ms) = w.timed(user, "GET k");
    assert_error(&reply, STORE_REFUSED, "(n1, r1, not connected)");
    assert!(took_ms < 5);
    w.start_store(0);
    w.run_ms(2000);
    assert_eq!(w.ask(user, "GET k"), "1");
}

#[test]
fn what_was_sent_to_a_store_that_dies_is_unknown() {
    let mut w = World::new(Config::new(&[&[1]]));
    let user = w.user(0);
    w.freeze_store(0);
    w.send_line(user, "SET k 1");
    w.run_ms(5);
    w.crash_store(0, true);
    assert_error(&brief(&w.reply(user)), STORE_REFUSED, "(connection closed)");
}

#[test]
fn several_connections_keep_each_clients_order() {
    let mut w = World::new(Config::new(&[&[2]]).tuned(|settings| {
        settings.datastore_connections = 3;
        settings.local_peer_connections = 3;
    }));
    assert_eq!(w.nodes[0].upstreams.len(), 6);
    let (here, there) = (w.key(0), w.key(1));
    let users: Vec<usize> = (0..4).map(|_| w.user(0)).collect();
    for round in 0..50 {
        for user in &users {
            for key in [&here, &there] {
                w.send_line(*user, &format!("SET {key}{user} {round}"));
                w.send_line(*user, &format!("GET {key}{user}"));
            }
        }
        for user in &users {
            for _ in 0..2 {
                assert_eq!(brief(&w.reply(*user)), "OK");
                assert_eq!(brief(&w.reply(*user)), round.to_string());
            }
        }
    }
}

/// Connections to one node break one after the other while clients write through them; what was
/// acknowledged to one client is done in the order it was asked.
#[test]
fn a_clients_order_survives_connections_that_come_and_go() {
    for seed in 1..=10 {
        let config = Config::new(&[&[2]]).tuned(|settings| settings.local_peer_connections = 3);
        let mut w = World::new(Config { seed, ..config });
        w.stores[1].log = true;
        let keys: Vec<String> = w.keys(1).take(4).collect();
        let users: Vec<(usize, String)> = keys.into_iter().map(|key| (w.user(0), key)).collect();
        let mut sent = [0; 4];
        for round in 0..1000 {
            if round % 40 == 0 {
                let links = w.nodes[0].upstreams.values().filter(|up| up.host == 1);
                let links: Vec<_> = links.filter_map(|up| Some(up.port.as_ref()?.link)).collect();
                let link = links[w.rng.usize(..links.len())];
                w.net.cut_after(link, 0, 1);
            }
            for ((user, key), sent) in users.iter().zip(&mut sent) {
                if w.users[*user].waiting.len() < 8 {
                    w.send_line(*user, &format!("SET {key} {sent}"));
                    *sent += 1;
                }
            }
            w.run_ms(1);
        }
        w.run_ms(10_000);
        for ((user, key), sent) in users.iter().zip(sent) {
            let replies: Vec<String> = w.users[*user].replies.iter().map(|r| brief(r)).collect();
            assert_eq!(replies.len(), sent, "seed={seed}: every request has a reply");
            let lost = replies.iter().filter(|reply| *reply != "OK").count();
            assert!(lost > 0 && lost < sent / 4, "seed={seed}: {lost} of {sent}");
            let start = format!("SET {key} ");
            let done = w.stores[1].executed.iter().filter_map(|line| line.strip_prefix(&start));
            let done = done.map(|number| number.parse::<usize>().expect("a number"));
            let done: Vec<usize> = done.filter(|number| replies[*number] == "OK").collect();
            assert!(done.is_sorted(), "seed={seed}: user {user}: {done:?}");
        }
    }
}
