//! Requests and replies cut anywhere, and long pipelines.

use std::collections::HashMap;

use torc::ring::Consistency::{DcOne, DcSafeQuorum};

use super::super::cluster::Config;
use super::super::network::NetSettings;
use super::super::user::{brief, request};
use super::super::world::World;

#[test]
fn a_request_cut_at_every_byte_is_answered() {
    let mut w = World::new(Config::new(&[&[2]]).embedded());
    let (here, there) = (w.key(0), w.key(1));
    let mut bytes = request(&["SET", &here, "1"]);
    bytes.extend(request(&["SET", &there, "\r\n$5\r\n"]));
    bytes.extend(b"PING inline\r\n");
    bytes.extend(request(&["MGET", &there, &here, "none"]));
    bytes.extend(request(&["NO-SUCH-COMMAND", "x"]));
    bytes.extend(request(&["DEL", &here, &there]));
    let want = [
        "OK",
        "OK",
        "inline",
        "[\r\n$5\r\n, 1, (nil)]",
        "-ERR unknown command 'NO-SUCH-COMMAND', with args beginning with: 'x'",
        ":2",
    ];
    for cut in 0..=bytes.len() {
        let user = w.user(0);
        w.expect(user, want.len());
        w.send_raw(user, &bytes[..cut]);
        w.run_ms(20);
        w.send_raw(user, &bytes[cut..]);
        for want in want {
            assert_eq!(brief(&w.reply(user)), want, "cut at {cut}");
        }
        w.lose_user(user);
    }
}

#[test]
fn a_request_its_client_never_finishes_does_nothing() {
    let mut w = World::new(Config::new(&[&[2]]).embedded());
    let there = w.key(1);
    let bytes = request(&["SET", &there, "value"]);
    for cut in 1..bytes.len() {
        let user = w.user(0);
        w.send_raw(user, &bytes[..cut]);
        w.run_ms(20);
        w.lose_user(user);
        w.run_ms(20);
        assert_eq!(w.in_store(1, &format!("EXISTS {there}")), ":0", "cut at {cut}");
        assert_eq!(w.nodes[0].dispatcher.in_flight(), 0);
        assert!(w.nodes[0].clients.len() == 1, "only the peer's link is left");
    }
}

#[test]
fn a_reply_cut_at_every_byte_is_never_half_a_reply() {
    let mut w = World::new(Config::new(&[&[2], &[1]]));
    let there = w.key(1);
    let user = w.user(0);
    for cut in 1..120 {
        let value = format!("value{cut}");
        assert_eq!(w.ask(user, &format!("SET {there} {value}")), "OK");
        w.cut_links(0, 1, 1, cut);
        let reply = w.ask(user, &format!("GET {there}"));
        assert!(reply == value || reply.starts_with(super::PEER_REFUSED), "{cut}: {reply}");
        w.run_ms(100);
        w.net.forget_cuts();
        w.run_until_connected();
        assert_eq!(w.ask(user, &format!("GET {there}")), value, "after a cut at {cut}");
    }
    assert!(w.counters(0).errors_peer > 10, "{:?}", w.counters(0));
}

#[test]
fn a_frame_cut_at_every_byte_on_its_way_to_a_peer_is_never_half_done() {
    let mut w = World::new(Config::new(&[&[2]]));
    let there = w.key(1);
    let user = w.user(0);
    for cut in 1..140 {
        w.cut_links(0, 1, 0, cut);
        let reply = w.ask(user, &format!("SET {there} value{cut}"));
        assert!(reply == "OK" || reply.starts_with(super::PEER_REFUSED), "{cut}: {reply}");
        w.run_ms(100);
        w.net.forget_cuts();
        w.run_until_connected();
        let stored = w.in_store(1, &format!("GET {there}"));
        let before = format!("value{}", cut - 1);
        let done = stored == format!("value{cut}");
        assert!(done || (reply != "OK" && (stored == before || cut == 1)), "{cut}: {stored}");
        assert_eq!(w.ask(user, &format!("SET {there} value{cut}")), "OK");
    }
}

/// What one Redis would answer.
#[derive(Default)]
struct Model {
    values: HashMap<String, String>,
}

impl Model {
    fn answer(&mut self, words: &[String]) -> String {
        let get = |m: &Model, key: &String| m.values.get(key).cloned().unwrap_or("(nil)".into());
        match words[0].as_str() {
            "SET" => {
                self.values.insert(words[1].clone(), words[2].clone());
                "OK".into()
            }
            "GET" => get(self, &words[1]),
            "MGET" => {
                let values: Vec<_> = words[1..].iter().map(|key| get(self, key)).collect();
                format!("[{}]", values.join(", "))
            }
            "DEL" => {
                let gone = words[1..].iter().filter(|key| self.values.remove(*key).is_some());
                format!(":{}", gone.count())
            }
            "EXISTS" => {
                let there = words[1..].iter().filter(|key| self.values.contains_key(*key));
                format!(":{}", there.count())
            }
            "MSET" => {
                for pair in words[1..].chunks(2) {
                    self.values.insert(pair[0].clone(), pair[1].clone());
                }
                "OK".into()
            }
            "INCR" => {
                let value = self.values.entry(words[1].clone()).or_insert("0".into());
                *value = (value.parse::<i64>().expect("a number") + 1).to_string();
                format!(":{value}")
            }
            "ECHO" => words[1].clone(),
            other => panic!("no such command in the model: {other}"),
        }
    }
}

fn draw(rng: &mut fastrand::Rng) -> Vec<String> {
    let key = |rng: &mut fastrand::Rng| format!("k{}", rng.u32(0..200));
    let keys = |rng: &mut fastrand::Rng| (0..rng.usize(1..6)).map(|_| key(rng)).collect::<Vec<_>>();
    let mut words: Vec<String> = Vec::new();
    match rng.u32(0..100) {
        0..30 => words.extend(["SET".into(), key(rng), rng.u64(..).to_string()]),
        30..60 => words.extend(["GET".into(), key(rng)]),
        60..70 => {
            words.push("MGET".into());
            words.extend(keys(rng));
        }
        70..75 => {
            words.push("DEL".into());
            words.extend(keys(rng));
        }
        75..80 => {
            words.push("EXISTS".into());
            words.extend(keys(rng));
        }
        80..85 => {
            words.push("MSET".into());
            words.extend(keys(rng).into_iter().flat_map(|key| [key, rng.u32(..).to_string()]));
        }
        85..92 => words.extend(["INCR".into(), format!("c{}", rng.u32(0..10))]),
        _ => words.extend(["ECHO".into(), rng.u64(..).to_string()]),
    }
    words
}

fn pipeline(config: Config, commands: usize) {
    let mut w = World::new(config);
    let user = w.user(0);
    let mut model = Model::default();
    let mut rng = fastrand::Rng::with_seed(w.config.seed);
    let (mut bytes, mut want) = (Vec::new(), Vec::new());
    for _ in 0..commands {
        let words = draw(&mut rng);
        want.push((model.answer(&words), words.join(" ")));
        bytes.extend(request(&words));
    }
    w.expect(user, commands);
    w.send_raw(user, &bytes);
    for (i, (want, line)) in want.iter().enumerate() {
        assert_eq!(&brief(&w.reply(user)), want, "command {i}: {line}");
    }
}

#[test]
fn ten_thousand_mixed_commands_come_back_in_order() {
    let net = NetSettings { choppy: true, window: 32 << 10, ..NetSettings::default() };
    pipeline(Config { net, ..Config::new(&[&[3, 2], &[2]]) }, 10_000);
}

#[test]
fn a_pipeline_is_right_at_a_quorum_and_with_small_limits() {
    for level in [DcOne, DcSafeQuorum] {
        let net = NetSettings { choppy: true, ..NetSettings::default() };
        let config = Config { net, seed: 7, ..Config::new(&[&[2, 2, 2]]).level(level) };
        let small = config.tuned(|settings| {
            settings.client_in_flight_max = 16;
            settings.client_output_max = 1024;
            settings.upstream_output_max = 1024;
            settings.upstream_in_flight_max = 8;
        });
        pipeline(small, 1000);
    }
}

#[test]
fn a_pipeline_is_right_on_the_embedded_store() {
    pipeline(Config { seed: 3, ..Config::new(&[&[2, 2, 2]]).embedded() }, 2000);
}

#[test]
fn what_all_workers_say_comes_in_its_turn() {
    let mut w = World::new(Config::new(&[&[2]]));
    let user = w.user(0);
    let there = w.key(1);
    for round in 0..20 {
        let (set, get) = (format!("SET {there} {round}"), format!("GET {there}"));
        let replies = w.ask_all(user, &[&set, "INFO clients", &get, "CLIENT LIST", "PING"]);
        assert_eq!([&replies[0], &replies[2], &replies[4]], ["OK", &round.to_string(), "PONG"]);
        assert!(replies[1].contains("connected_clients:"), "{}", replies[1]);
        assert!(replies[3].contains("addr=sim"), "{}", replies[3]);
    }
    // Who asks may be gone before the answer, and so may be the node.
    for gone in ["user", "node"] {
        w.send_line(user, "INFO");
        w.send_line(user, &format!("GET {there}"));
        w.run_until("the question is asked", |w| !w.nodes[0].roll_calls.is_empty());
        match gone {
            "user" => w.lose_user(user),
            _ => w.crash(0),
        }
        w.run_ms(100);
        assert_eq!(w.nodes[0].dispatcher.in_flight(), 0, "{gone}");
    }
    w.restart(0);
    w.run_ms(100);
    let user = w.user(0);
    assert!(w.ask(user, "INFO clients").contains("connected_clients:"));
}
