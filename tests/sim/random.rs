//! Random histories: faults while users work, then peace, in which everything must come right.
//!
//! `SIM_SEEDS=n` runs that many seeds of each ring; `SIM_SEED=s` runs one and prints what happens.

use torc::ring::Consistency::{DcEachSafeQuorum, DcOne, DcQuorum, DcSafeQuorum};

use super::cluster::Config;
use super::faults::{Fault, FaultMix};
use super::network::NetSettings;
use super::workload::{KEYS_IN_USE, key_name, parse_value};
use super::world::World;

/// Seeds of each ring when nobody says otherwise.
const SEEDS: u64 = 3;

/// Virtual time under faults, milliseconds.
const STORM_MS: u64 = 20_000;

/// Virtual time in which everything must have come right, milliseconds.
const CALM_MS: u64 = 20_000;

/// Prints the seed when a run fails.
pub(crate) struct Note {
    seed: u64,
    ring: &'static str,
}

impl Note {
    pub(crate) fn new(seed: u64, ring: &'static str) -> Note {
        Note { seed, ring }
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed={} ring={}: replay with SIM_SEED={}", self.seed, self.ring, self.seed);
        }
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// True when one seed is run again.
pub(crate) fn is_replay() -> bool {
    number("SIM_SEED").is_some()
}

/// The seeds to run: several, or the one that is asked for.
pub(crate) fn chosen_seeds() -> std::ops::Range<u64> {
    let count = number("SIM_SEEDS").unwrap_or(SEEDS);
    number("SIM_SEED").map_or(1..count + 1, |seed| seed..seed + 1)
}

/// Runs a ring with several seeds, or with the one that is asked for.
fn seeds(ring: &'static str, run: impl Fn(&mut World), config: impl Fn(u64) -> Config) {
    for seed in chosen_seeds() {
        let _note = Note::new(seed, ring);
        let mut world = World::new(tight(Config { seed, ..config(seed) }));
        world.trace = is_replay();
        world.history.late_writes = world.config.net.late_bytes;
        run(&mut world);
        let (answered, errors) = (world.history.answered, world.history.errors);
        eprintln!("seed={seed} ring={ring}: {answered} answered, {errors} of them errors");
    }
}

/// Small limits, so that they are hit.
fn tight(config: Config) -> Config {
    config.tuned(|settings| {
        settings.timeout_ms = 1000;
        settings.client_in_flight_max = 8;
        settings.client_output_max = 4 << 10;
        settings.upstream_output_max = 8 << 10;
        settings.upstream_in_flight_max = 32;
    })
}

/// Every third seed has slow links, every other one of the rest narrow ones. Not both: then
/// requests time out for no other reason.
fn choppy(seed: u64) -> NetSettings {
    let slow = seed.is_multiple_of(3);
    NetSettings {
        delay_us: 50..if slow { 40_000 } else { 2000 },
        window: if slow || seed.is_multiple_of(2) { 128 << 10 } else { 4 << 10 },
        choppy: true,
        late_bytes: false,
    }
}

/// Users at work while faults come and go.
fn storm(world: &mut World, mix: FaultMix) {
    for n in 0..world.nodes.len() {
        world.user(n);
    }
    let end_us = world.now_us + STORM_MS * 1000;
    let mut faults: Vec<(u64, Fault)> = Vec::new();
    let mut next_fault_us = world.now_us;
    while world.now_us < end_us {
        let pause = world.rng.u64(1..30);
        world.run_ms(pause);
        let user = world.rng.usize(0..world.users.len());
        if world.users[user].waiting.len() < 40 && !world.burst(user) {
            world.hang_up(user);
        }
        let now_us = world.now_us;
        for (_, over) in faults.extract_if(.., |(at, _)| *at <= now_us).collect::<Vec<_>>() {
            world.end_fault(over);
        }
        if now_us >= next_fault_us && faults.len() < mix.together {
            next_fault_us = now_us + world.rng.u64(0..mix.every_ms * 2000);
            let lasts_us = world.rng.u64(0..mix.lasts_ms * 1000);
            faults.extend(world.begin_fault().map(|fault| (now_us + lasts_us, fault)));
        }
    }
    world.heal();
    world.check_digests();
}

/// After the faults: nobody waits, every level works, every replica agrees.
fn calm(world: &mut World) {
    world.run_ms(CALM_MS);
    world.run_until_connected();
    for user in 0..world.users.len() {
        let waiting = &world.users[user].waiting;
        assert!(waiting.is_empty(), "user {user} still waits for {waiting:?}");
    }
    // One clean write of every key reaches everybody.
    let users = world.users.len();
    let first = world.history.keys.len().saturating_sub(KEYS_IN_USE);
    for key in first..world.history.keys.len() {
        let seq = world.history.keys[key].issued + 1;
        world.history.keys[key].issued = seq;
        let value = format!("{key}:{seq}:");
        let name = key_name(key);
        world.send(key % users, &[b"SET", name.as_slice(), value.as_bytes()]);
        assert_eq!(world.reply(key % users), b"+OK\r\n", "a write of key {key} in peace");
    }
    world.run_ms(1000);
    for key in first..world.history.keys.len() {
        let name = String::from_utf8(key_name(key)).expect("a name");
        let want = world.history.keys[key].issued;
        for user in 0..users {
            let found = world.ask(user, &format!("GET {name}"));
            assert_eq!(parse_value(found.as_bytes()), Some((key, want)), "read by user {user}");
        }
        let holders = world.owners(&name);
        for n in 0..world.nodes.len() {
            let found = world.in_store(n, &format!("GET {name}"));
            let value = parse_value(found.as_bytes());
            match holders.contains(&n) {
                true => assert_eq!(value, Some((key, want)), "in the store of n{}", n + 1),
                false => assert_eq!(value, None, "n{} holds a key of others", n + 1),
            }
        }
    }
    // Other replicas may still be at the last reads, and heartbeats come and go.
    world.run_until("no slot is left behind", |world| {
        world.nodes.iter().all(|node| node.dispatcher.in_flight() == 0)
    });
}

const STORMY: FaultMix = FaultMix { every_ms: 400, lasts_ms: 4000, together: 4 };

/// One replica of three at a time: a level with a majority never fails.
const GENTLE: FaultMix = FaultMix { every_ms: 800, lasts_ms: 3000, together: 1 };

fn both(mix: FaultMix) -> impl Fn(&mut World) {
    move |world| {
        storm(world, mix);
        calm(world);
    }
}

#[test]
fn three_racks_keep_acknowledged_writes_in_a_storm() {
    seeds("three racks, safe", both(STORMY), |seed| {
        let net = choppy(seed);
        Config { net, ..Config::new(&[&[2, 2, 2]]).level(DcSafeQuorum) }
    });
}

#[test]
fn three_racks_serve_with_one_fault_at_a_time() {
    seeds("three racks, gentle", both(GENTLE), |seed| {
        let net = choppy(seed);
        Config { net, ..Config::new(&[&[1, 1, 1]]).levels(DcSafeQuorum, DcQuorum) }
    });
}

#[test]
fn five_racks_keep_acknowledged_writes_in_a_storm() {
    seeds("five racks, safe", both(STORMY), |seed| {
        let net = choppy(seed);
        Config { net, ..Config::new(&[&[1, 1, 1, 1, 1]]).level(DcSafeQuorum) }
    });
}

#[test]
fn two_datacenters_at_dc_one_give_no_wrong_answer() {
    seeds("two datacenters, one", both(STORMY), |seed| {
        let level = if seed.is_multiple_of(2) { DcOne } else { DcQuorum };
        Config { net: choppy(seed), ..Config::ring_a().level(level) }
    });
}

#[test]
fn two_datacenters_keep_writes_acknowledged_in_each() {
    seeds("two datacenters, each", both(STORMY), |seed| {
        let net = choppy(seed);
        Config { net, ..Config::new(&[&[1, 1, 1], &[1, 1, 1]]).level(DcEachSafeQuorum) }
    });
}

#[test]
fn bytes_that_come_late_do_no_harm_beyond_what_they_must() {
    seeds("three racks, late bytes", both(STORMY), |seed| {
        let net = NetSettings { late_bytes: true, ..choppy(seed) };
        Config { net, ..Config::new(&[&[1, 1, 1]]).level(DcSafeQuorum) }
    });
}
