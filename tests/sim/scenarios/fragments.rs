//! Commands over many keys, whose owners are several nodes.

use torc::ring::Consistency::DcSafeQuorum;

use super::super::cluster::Config;
use super::super::user::brief;
use super::super::world::World;
use super::{NO_QUORUM, NOT_CONNECTED, assert_error};

/// Two keys of each of three nodes of one rack.
fn keys(w: &World) -> Vec<String> {
    (0..3).flat_map(|position| w.keys(position).take(2)).collect()
}

#[test]
fn keys_of_several_nodes_come_back_in_the_order_asked() {
    let mut w = World::new(Config::new(&[&[3]]));
    let user = w.user(1);
    let k = keys(&w);
    let mset = format!("MSET {} 0 {} 2 {} 4", k[0], k[2], k[4]);
    assert_eq!(w.ask(user, &mset), "OK");
    let all = [4, 1, 0, 2, 3, 0].map(|i| k[i].as_str()).join(" ");
    // Keys that are asked twice count twice.
    assert_eq!(w.ask(user, &format!("MGET {all}")), "[4, (nil), 0, 2, (nil), 0]");
    assert_eq!(w.ask(user, &format!("EXISTS {all}")), ":4");
    assert_eq!(w.ask(user, &format!("TOUCH {all}")), ":4");
    // But a key can be deleted once only.
    assert_eq!(w.ask(user, &format!("DEL {all}")), ":3");
    assert_eq!(w.ask(user, &format!("MGET {all}")).matches("nil").count(), 6);
    assert_eq!(w.ask(user, &format!("MSET {0} a {1} b {0} c", k[0], k[2])), "OK");
    assert_eq!(w.ask(user, &format!("MGET {} {}", k[0], k[2])), "[c, b]");
    assert_eq!(w.ask(user, &format!("UNLINK {} {} {}", k[0], k[2], k[0])), ":2");
    assert!(w.counters(1).fragments > 10);
}

#[test]
fn each_owner_is_asked_once() {
    let mut w = World::new(Config::new(&[&[3]]));
    let user = w.user(0);
    let k = keys(&w);
    w.stores.iter_mut().for_each(|store| store.log = true);
    w.ask(user, &format!("MGET {}", k.join(" ")));
    for n in 0..3 {
        let commands = &w.stores[n].executed;
        let mget: Vec<_> = commands.iter().filter(|c| c.starts_with("MGET")).collect();
        assert_eq!(mget, [&format!("MGET {} {}", k[2 * n], k[2 * n + 1])]);
    }
}

#[test]
fn one_failing_part_is_the_answer_and_the_connection_lives() {
    let mut w = World::new(Config::new(&[&[3]]));
    let user = w.user(0);
    let k = keys(&w);
    w.ask(user, &format!("MSET {} 0 {} 2 {} 4", k[0], k[2], k[4]));
    w.crash(2);
    w.run_ms(100);
    let both = format!("{} {}", k[0], k[4]);
    for verb in ["MGET", "EXISTS", "DEL"] {
        let reply = w.ask(user, &format!("{verb} {both}"));
        assert_error(&reply, NOT_CONNECTED, "(n3, r1, not connected)");
    }
    let reply = w.ask(user, &format!("MSET {} x {} y", k[4], k[0]));
    assert_error(&reply, NOT_CONNECTED, "n3");
    // What the others were asked is done: an error means unknown, not undone.
    assert_eq!(w.ask(user, &format!("MGET {} {}", k[0], k[2])), "[y, 2]");
    w.restart(2);
    w.run_ms(2000);
    assert_eq!(w.ask(user, &format!("MGET {both}")), "[y, 4]");
}

#[test]
fn a_stores_own_error_for_one_part_is_the_answer() {
    let mut w = World::new(Config::new(&[&[3]]));
    let user = w.user(0);
    let k = keys(&w);
    w.stores[1].script.push_back(b"-OOM command not allowed\r\n".to_vec());
    let reply = w.ask(user, &format!("MSET {} 1 {} 2 {} 3", k[0], k[2], k[4]));
    assert_eq!(reply, "-OOM command not allowed");
    assert_eq!(w.ask(user, &format!("MGET {} {} {}", k[0], k[2], k[4])), "[1, (nil), 3]");
}

#[test]
fn a_key_without_a_value_is_refused_and_nothing_is_misread() {
    for config in [Config::new(&[&[3]]), Config::new(&[&[3]]).embedded()] {
        let mut w = World::new(config);
        let user = w.user(0);
        let k = keys(&w);
        let lines = [
            format!("MSET {} 1 {}", k[0], k[2]),
            format!("MSET {} 1 {} 2 {}", k[4], k[0], k[2]),
            format!("SET {} right", k[0]),
            format!("GET {}", k[0]),
            format!("GET {}", k[2]),
            format!("GET {}", k[4]),
        ];
        let replies = w.ask_all(user, &lines.each_ref().map(String::as_str));
        let wrong = "-ERR wrong number of arguments for 'mset' command";
        assert_eq!(replies, [wrong, wrong, "OK", "right", "(nil)", "(nil)"]);
    }
}

#[test]
fn commands_that_need_one_owner_say_so() {
    let mut w = World::new(Config::new(&[&[3]]));
    let user = w.user(0);
    let k = keys(&w);
    w.ask(user, &format!("SET {} 1", k[0]));
    let reply = w.ask(user, &format!("RENAME {} {}", k[0], k[2]));
    assert_error(&reply, "-ERR Dynomite: Keys of this command cannot span", "hash tag");
    let reply = w.ask(user, &format!("EVAL x 2 {} {}", k[0], k[2]));
    assert_error(&reply, "-ERR Dynomite: Keys in the script cannot span multiple nodes", "");
    assert_eq!(w.ask(user, &format!("RENAME {} {}", k[0], k[1])), "OK");
    assert_eq!(w.ask(user, &format!("GET {}", k[1])), "1");
}

#[test]
fn thousands_of_keys_and_large_values_are_split_and_joined() {
    let mut w = World::new(Config::new(&[&[3, 2]]));
    let user = w.user(0);
    let names: Vec<String> = (0..3000).map(|i| format!("many{i}")).collect();
    let mut mset = vec!["MSET".to_owned()];
    for (i, name) in names.iter().enumerate() {
        let value = if i % 500 == 0 { "v".repeat(20_000) } else { format!("v{i}") };
        mset.extend([name.clone(), value]);
    }
    w.send(user, &mset);
    assert_eq!(w.reply(user), b"+OK\r\n");
    let mut mget = vec!["MGET".to_owned()];
    mget.extend(names);
    w.send(user, &mget);
    let values: Vec<&String> = mset[1..].iter().skip(1).step_by(2).collect();
    let reply = w.reply(user);
    let found: Vec<String> = torc::proto::resp::reply::elements(&reply).map(brief).collect();
    assert!(found.iter().eq(values), "3000 values in order");
}

#[test]
fn a_part_without_a_majority_fails_the_whole() {
    let mut w = World::new(Config::new(&[&[2, 2]]).level(DcSafeQuorum));
    let user = w.user(0);
    let (good, bad) = (w.key(0), w.key(1));
    w.ask(user, &format!("MSET {good} 1 {bad} 1"));
    w.plant(&[3], &bad, "2");
    let reply = w.ask(user, &format!("MGET {good} {bad}"));
    assert_error(&reply, NO_QUORUM, "(replicas disagree)");
    assert_eq!(w.ask(user, &format!("MGET {good} {good}")), "[1, 1]");
}
