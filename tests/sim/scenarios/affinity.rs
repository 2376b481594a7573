//! Filters of what each datacenter holds, and reads by them, while messages, links and nodes fail.
//!
//! After every drain each lane is its producer's words and misses no key that a store holds
//! ([`World::drain_affinity`]). Whatever happens, a read gives the key's value or none.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use torc::dispatch::view::{BucketType, BucketTypes};
use torc::proto::resp::reply::{elements, is_null, text};

use super::super::cluster::Config;
use super::super::network::NetSettings;
use super::super::planes::Air;
use super::super::user::{Ask, brief, request};
use super::super::world::World;

/// A standby that lives has taken over after this long, milliseconds.
const TAKEOVER_MS: u64 = 5000;
/// A lane whose publisher is not heard is believed so long, milliseconds.
const STALE_MS: u64 = 30_000;
/// Room of the filters: they are told in more than one part.
const EXPECTED: u64 = 40_000;

fn value_of(key: &str) -> String {
    format!("value-of-{key}")
}

/// Datacenters of one rack each, that read where a key is and keep their values to themselves.
fn config(seed: u64, nodes: &[usize]) -> Config {
    let racks: Vec<[usize; 1]> = nodes.iter().map(|count| [*count]).collect();
    let dcs: Vec<&[usize]> = racks.iter().map(|rack| rack.as_slice()).collect();
    let kv = BucketType {
        name: "kv".into(),
        prefix: b"kv/".to_vec(),
        read: None,
        write: None,
        n_val: None,
        stays: true,
    };
    let tuned = Config::new(&dcs).embedded().tuned(|settings| settings.route_reads = true);
    Config { seed, buckets: BucketTypes::new(vec![kv], None), ..tuned }
}

/// A ring whose nodes find each other and tell what they hold.
fn ring(config: Config, air: Air) -> World {
    let count = config.dcs.iter().flatten().sum();
    let mut w = World::new(config);
    w.start_affinity(EXPECTED, air);
    w.start_gossip(&[]);
    w.converge(count);
    w
}

/// Writes keys through one node.
fn write(w: &mut World, node: usize, keys: &[String]) {
    let user = w.user(node);
    for key in keys {
        assert_eq!(w.ask(user, &format!("SET {key} {}", value_of(key))), "OK");
    }
}

fn named(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("kv/{prefix}/{n}")).collect()
}

/// Every running node gives what the stores of running nodes hold, and nothing else.
fn assert_reads(w: &mut World, keys: &[String]) {
    let running: Vec<usize> = (0..w.nodes.len()).filter(|n| w.nodes[*n].running()).collect();
    let users: Vec<usize> = running.iter().map(|n| w.user(*n)).collect();
    for key in keys {
        // A node that did not know the ring yet may have stored what is not its own.
        let owners = w.owners(key).into_iter().filter(|n| running.contains(n));
        let held = owners.into_iter().any(|n| w.in_store(n, &format!("EXISTS {key}")) == ":1");
        let expected = if held { value_of(key) } else { "(nil)".into() };
        for (user, node) in users.iter().zip(&running) {
            assert_eq!(w.ask(*user, &format!("GET {key}")), expected, "{key} at n{}", node + 1);
        }
    }
    users.into_iter().for_each(|user| w.lose_user(user));
}

#[test]
fn every_node_knows_and_reads_what_every_datacenter_holds() {
    let mut w = ring(config(1, &[2, 2, 1]), Air::clear());
    let keys: Vec<Vec<String>> = (0..5).map(|n| named(&n.to_string(), 60)).collect();
    for (node, keys) in keys.iter().enumerate() {
        write(&mut w, node, keys);
    }
    w.drain_affinity();
    // More came to a shard between two looks than it keeps events of.
    let user = w.user(0);
    for n in 0..4000 {
        w.send_line(user, &format!("SET kv/many/{n} {}", value_of(&format!("kv/many/{n}"))));
    }
    w.run_until("all are written", |w| w.users[user].waiting.is_empty());
    w.drain_affinity();
    assert!((0..2).any(|n| w.relistings(n) > 0), "events were lost");
    let all: Vec<String> = keys.concat();
    assert_reads(&mut w, &all);
    assert_reads(&mut w, &named("nowhere", 20));
    let there = w.opinion(0, &keys[4][0]);
    assert_eq!(there.values().filter(|held| **held == Some(true)).count(), 1, "{there:?}");
    assert!(w.counters(0).affinity_hits > 0 && w.counters(0).affinity_nobody > 0);
}

/// Reads keys of the first datacenter through a node of the second one: each is planned there, and
/// nothing is read as ever for want of a filter.
fn assert_planned(w: &mut World, node: usize, keys: &[String]) {
    let user = w.user(node);
    let before = w.counters(node).clone();
    for key in keys {
        assert_eq!(w.ask(user, &format!("GET {key}")), value_of(key));
    }
    let now = w.counters(node);
    let planned = now.affinity_hits - before.affinity_hits;
    let as_ever = now.affinity_unknown - before.affinity_unknown;
    assert_eq!((planned, as_ever), (keys.len() as u64, 0));
    w.lose_user(user);
}

/// From the death of a publisher on: who takes over, and that it is warm, believed and read by in
/// time.
fn take_over(w: &mut World, first: usize, reader: usize, keys: &[String]) {
    let before = w.incarnation(first).expect("it publishes");
    let stands_by = |w: &World| w.publishers("dc1").into_iter().find(|n| *n != first);
    let left: Vec<String> =
        keys.iter().filter(|k| !w.owners(k).contains(&first)).cloned().collect();
    assert!(left.len() > keys.len() / 3 && left.len() < keys.len());
    let start_ms = w.now_ms();
    match w.config.seed % 2 {
        0 => w.freeze(first),
        _ => w.crash(first),
    }
    w.run_until("another one publishes", |w| stands_by(w).is_some());
    let second = stands_by(w).expect("one");
    // Nobody had to tell it anything anew.
    let used = w.domain(second).and_then(|d| d.publication()).map(|publication| publication.used);
    assert_eq!(used, Some(left.len() as u64), "seed={}", w.config.seed);
    w.run_until("and is believed", World::is_in_step);
    assert!(w.incarnation(second).expect("it publishes") > before);
    assert_planned(w, reader, &left);
    let took_ms = w.now_ms() - start_ms;
    assert!(took_ms <= TAKEOVER_MS, "seed={}: {took_ms} ms", w.config.seed);
}

#[test]
fn the_standby_takes_over_in_time_and_the_old_publisher_may_come_back() {
    for seed in 1..5 {
        let mut w = ring(config(seed, &[3, 2]), Air::clear());
        let (here, there) = (named("here", 90), named("there", 60));
        write(&mut w, 0, &here);
        write(&mut w, 4, &there);
        w.drain_affinity();
        let [first] = w.publishers("dc1")[..] else { panic!("one publisher") };
        take_over(&mut w, first, 3, &here);
        w.drain_affinity();
        // What lay in the other datacenter was known all the time.
        assert_reads(&mut w, &there);
        let second = w.publishers("dc1")[0];
        match w.nodes[first].frozen {
            true => w.thaw(first),
            false => w.restart(first),
        }
        w.converge(5);
        w.drain_affinity();
        write(&mut w, second, &here);
        w.drain_affinity();
        let all: Vec<String> = here.iter().chain(&there).cloned().collect();
        assert_reads(&mut w, &all);
    }
}

#[test]
fn a_datacenter_that_is_cut_off_is_not_believed_for_ever_and_comes_back() {
    let mut w = ring(config(5, &[2, 2]), Air::clear());
    let (here, there) = (named("here", 40), named("there", 40));
    write(&mut w, 0, &here);
    write(&mut w, 2, &there);
    w.drain_affinity();
    let pairs: Vec<(usize, usize)> = (0..2).flat_map(|a| (2..4).map(move |b| (a, b))).collect();
    for (a, b) in &pairs {
        w.cut_off(*a, *b);
        w.cut_off(*b, *a);
    }
    w.run_ms(STALE_MS + 2000);
    for n in 0..4 {
        let seen = w.opinion(n, &here[0]);
        let (own, other) = if n < 2 { ("dc1", "dc2") } else { ("dc2", "dc1") };
        assert_eq!((seen[own], seen[other]), (Some(n < 2), None), "n{}", n + 1);
    }
    // What is here is served, what is not is missed, and nothing fails.
    let user = w.user(0);
    assert_eq!(w.ask(user, &format!("GET {}", here[0])), value_of(&here[0]));
    assert_eq!(w.ask(user, &format!("GET {}", there[0])), "(nil)");
    write(&mut w, 1, &named("meanwhile", 20));
    for (a, b) in &pairs {
        w.join(*a, *b);
        w.join(*b, *a);
    }
    w.converge(4);
    w.drain_affinity();
    let all: Vec<String> = [here, there, named("meanwhile", 20)].concat();
    assert_reads(&mut w, &all);
}

/// Somebody who asks, and what the answers to it may be.
struct Asker {
    user: usize,
    /// The keys of each read that waits for its answer; none for writes.
    asked: VecDeque<Vec<String>>,
}

impl Asker {
    fn new(w: &mut World, node: usize) -> Asker {
        Asker { user: w.user(node), asked: VecDeque::new() }
    }

    /// Sends words; a user whose node is away goes to another one.
    fn send(&mut self, w: &mut World, words: &[String], keys: Vec<String>) -> bool {
        self.check(w);
        if w.users[self.user].link.is_none() {
            self.asked.clear();
            let node = w.rng.usize(0..w.nodes.len());
            w.users[self.user].node = node;
        }
        if !w.send_raw(self.user, &request(words)) {
            return false;
        }
        let ask = Ask { sent_us: w.now_us, op: None };
        w.users[self.user].waiting.push_back(ask);
        self.asked.push_back(keys);
        true
    }

    /// Looks at the answers so far: each value belongs to its key.
    fn check(&mut self, w: &mut World) {
        while let Some(reply) = w.users[self.user].replies.pop_front() {
            let keys = self.asked.pop_front().expect("a reply to a question");
            let values = match reply.first() {
                Some(b'-') => continue,
                _ if keys.is_empty() => continue,
                Some(b'*') => elements(&reply).collect(),
                _ => vec![&reply[..]],
            };
            assert_eq!(values.len(), keys.len(), "{keys:?}: {}", brief(&reply));
            for (key, value) in keys.iter().zip(values) {
                let right = is_null(value) || text(value) == Some(value_of(key).as_bytes());
                assert!(right, "{key}: {}", brief(value));
            }
        }
        if w.users[self.user].link.is_none() {
            self.asked.clear();
        }
    }
}

/// Something that is wrong for a while.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    Crash(usize),
    Freeze(usize),
    Cut(usize, usize),
}

fn begin(w: &mut World) -> Option<Trouble> {
    let (node, other) = (w.rng.usize(0..w.nodes.len()), w.rng.usize(0..w.nodes.len()));
    let trouble = match w.rng.u32(0..3) {
        0 if w.nodes[node].up => Trouble::Crash(node),
        1 if w.nodes[node].running() => Trouble::Freeze(node),
        _ if node != other => Trouble::Cut(node, other),
        _ => return None,
    };
    w.note(|| format!("begins: {trouble:?}"));
    match trouble {
        Trouble::Crash(n) => w.crash(n),
        Trouble::Freeze(n) => w.freeze(n),
        Trouble::Cut(a, b) => {
            w.cut_off(a, b);
            w.cut_off(b, a);
        }
    }
    Some(trouble)
}

fn end(w: &mut World, trouble: Trouble) {
    match trouble {
        Trouble::Crash(n) if !w.nodes[n].up => w.restart(n),
        Trouble::Freeze(n) if w.nodes[n].frozen => w.thaw(n),
        Trouble::Crash(_) | Trouble::Freeze(_) => {}
        Trouble::Cut(a, b) => {
            w.join(a, b);
            w.join(b, a);
        }
    }
}

/// Readers and writers at work for `ms` while things fail and messages do what `air` says.
/// Gives the keys that were written.
fn storm(w: &mut World, ms: u64, troubles: usize) -> Vec<String> {
    let mut askers: Vec<Asker> = (0..w.nodes.len()).map(|node| Asker::new(w, node)).collect();
    let end_ms = w.now_ms() + ms;
    let mut wrong: Vec<(u64, Trouble)> = Vec::new();
    let mut keys: Vec<String> = named("first", 20);
    while w.now_ms() < end_ms {
        let pause = w.rng.u64(1..40);
        w.run_ms(pause);
        let asker = w.rng.usize(0..askers.len());
        let asker = &mut askers[asker];
        let pick = |w: &mut World| keys[w.rng.usize(0..keys.len())].clone();
        match w.rng.u32(0..10) {
            0..3 => {
                let key = format!("kv/storm/{}", w.rng.u32(0..2000));
                asker.send(w, &["SET".into(), key.clone(), value_of(&key)], Vec::new());
                keys.push(key);
            }
            3 => {
                let key = pick(w);
                asker.send(w, &["UNLINK".into(), key], Vec::new());
            }
            4..6 => {
                let picked: Vec<String> = (0..4).map(|_| pick(w)).collect();
                let words = std::iter::once("MGET".to_owned()).chain(picked.clone());
                asker.send(w, &words.collect::<Vec<_>>(), picked);
            }
            _ => {
                let key = pick(w);
                asker.send(w, &["GET".into(), key.clone()], vec![key]);
            }
        }
        let now_ms = w.now_ms();
        let over: Vec<_> = wrong.extract_if(.., |(at, _)| *at <= now_ms).collect();
        over.into_iter().for_each(|(_, trouble)| end(w, trouble));
        if wrong.len() < troubles && w.rng.u32(0..40) == 0 {
            let lasts_ms = w.rng.u64(0..8000);
            wrong.extend(begin(w).map(|trouble| (now_ms + lasts_ms, trouble)));
        }
    }
    wrong.into_iter().for_each(|(_, trouble)| end(w, trouble));
    for n in 0..w.nodes.len() {
        end(w, Trouble::Crash(n));
        end(w, Trouble::Freeze(n));
        (0..w.nodes.len()).for_each(|other| w.join(n, other));
    }
    askers.iter_mut().for_each(|asker| {
        asker.check(w);
        w.lose_user(asker.user);
    });
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// Storms of several seeds, each followed by peace in which everything is known and right.
fn storms(what: &str, troubles: usize, air: impl Fn() -> Air) {
    for seed in super::super::random::chosen_seeds() {
        let _note = super::super::random::Note::new(seed, "affinity");
        let mut w = ring(config(seed, &[2, 2, 1]), air());
        w.trace = super::super::random::is_replay();
        let keys = storm(&mut w, 25_000, troubles);
        w.set_air(Air::clear());
        w.converge(5);
        w.run_ms(12_000);
        w.drain_affinity();
        // What was wrong about a key is forgotten by now.
        w.run_ms(6000);
        assert_reads(&mut w, &keys);
        eprintln!("seed={seed} {what}: {} keys", keys.len());
    }
}

#[test]
fn messages_that_are_lost_repeated_late_and_out_of_order_change_nothing() {
    storms("wild messages", 0, Air::wild);
}

#[test]
fn nodes_that_crash_freeze_and_are_cut_off_change_no_value_and_lanes_recover() {
    storms("troubles", 2, Air::breaking);
}

#[test]
fn everything_at_once_leads_to_no_wrong_value() {
    storms("everything", 3, Air::wild);
}

#[test]
fn values_that_are_stored_in_both_places_do_not_come_back_once_they_are_deleted() {
    let mut refused = 0;
    for seed in 1..5 {
        let slow = NetSettings { delay_us: 100..60_000, ..NetSettings::default() };
        let config = config(seed, &[1, 1]).tuned(|settings| settings.backfill = true);
        let mut w = ring(Config { net: slow, ..config }, Air::clear());
        let keys = named("there", 400);
        write(&mut w, 1, &keys);
        w.drain_affinity();
        let (near, far) = (w.user(0), w.user(1));
        let mut deleted = BTreeSet::new();
        let mut fetched = BTreeMap::new();
        for round in 0..keys.len() * 3 {
            let key = keys[w.rng.usize(0..keys.len())].clone();
            match w.rng.u32(0..10) {
                0..4 => w.send_line(near, &format!("GET {key}")),
                4..7 => {
                    let other = keys[w.rng.usize(0..keys.len())].clone();
                    w.send_line(near, &format!("MGET {key} {other}"));
                }
                7 => {
                    w.send_line(near, &format!("DEL {key}"));
                    deleted.insert(key);
                }
                _ => {
                    w.send_line(far, &format!("DEL {key}"));
                    deleted.insert(key);
                }
            }
            if round % 4 == 0 {
                let pause = w.rng.u64(0..40);
                w.run_ms(pause);
            }
        }
        w.run_ms(5000);
        for key in &keys {
            let held: Vec<bool> =
                (0..2).map(|n| w.in_store(n, &format!("EXISTS {key}")) == ":1").collect();
            assert!(!deleted.contains(key) || held == [false; 2], "seed={seed} {key}: {held:?}");
            fetched.entry(held).and_modify(|count| *count += 1).or_insert(1);
        }
        assert!(fetched.get(&vec![true; 2]).is_some_and(|both| *both > 20), "{fetched:?}");
        refused += w.counters(0).affinity_backfills_refused;
        w.users[near].replies.clear();
        w.drain_affinity();
        assert_reads(&mut w, &keys);
    }
    assert!(refused > 0, "no value met a delete");
}
