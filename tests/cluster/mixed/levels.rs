//! Every node serves every key, at every level the reference can do, whoever is who.

use super::data::Model;
use super::ring::{Bins, Kind, Ring, Setup};
use crate::client::Client;

/// Levels a C node takes while it runs.
const LEVELS: [&str; 3] = ["DC_ONE", "DC_QUORUM", "DC_SAFE_QUORUM"];

/// The level that covers all datacenters. A C node has to be started with it, and reaches it over
/// encrypted links alone: in plaintext it compares bodies together with their headers.
const EACH: &str = "DC_EACH_SAFE_QUORUM";

/// Writes through every node, reads through every node, compares every datastore.
fn exercise(ring: &Ring, level: &str, what: &str) {
    let mut model = Model::default();
    let mut clients: Vec<Client> = ring.nodes.iter().map(|n| n.connect()).collect();
    for (who, client) in clients.iter_mut().enumerate() {
        let what = format!("{what} {level} through n{} ({:?})", who + 1, ring.nodes[who].kind);
        model.set_lengths(client, who, &lengths(), &what);
        model.set_many(client, who, &what);
        if !is_weak(ring, who, level) {
            model.pipeline(client, who, &what);
        }
    }
    model.compare_stores(ring, &format!("{what} {level}"));
    for (who, client) in clients.iter_mut().enumerate() {
        let what = format!("{what} {level} through n{} ({:?})", who + 1, ring.nodes[who].kind);
        let longest = if is_weak(ring, who, level) { WEAK_LONGEST } else { usize::MAX };
        model.read_back(client, longest, &what);
    }
    ring.flush();
}

/// Where a coordinator finds no quorum in a ring of C nodes alone either: for requests in flight
/// together, and for answers that do not fit one of its buffers.
fn is_weak(ring: &Ring, who: usize, level: &str) -> bool {
    level == EACH && ring.nodes[who].kind == Kind::C
}

/// Longest value that surely fits one of its buffers.
const WEAK_LONGEST: usize = 8_000;

/// Lengths at and around those where a buffer or a chunk of the cipher ends: as a value, as the
/// answer that carries it, and as the request that does.
fn lengths() -> Vec<usize> {
    let around = |edge: usize| [edge - 1, edge, edge + 1];
    let edges = [16_304, 16_320, 16_336].into_iter();
    let framed = edges.flat_map(|edge| [edge, edge - ANSWER_EXTRA, edge - REQUEST_EXTRA]);
    [0, 1, 65_536, 1 << 20].into_iter().chain(framed.flat_map(around)).collect()
}

/// Bytes beside the value in an answer of that length.
const ANSWER_EXTRA: usize = 10;

/// The same in a SET of a key of ten bytes.
const REQUEST_EXTRA: usize = 40;

fn mixture(who: &str) {
    if let Some(bins) = Bins::find("mixed rings") {
        run(&bins, who, "", |_, _| {});
    }
}

/// Runs a mixture at every level, in plaintext and encrypted; then `more`.
fn run(bins: &Bins, who: &str, extra: &'static str, more: impl Fn(&Ring, &str)) {
    for secure in [false, true] {
        let what = format!("{who}, {}", if secure { "encrypted" } else { "plaintext" });
        let level = if secure { EACH } else { LEVELS[0] };
        let setup = Setup { who, secure, levels: [level; 2], extra };
        let ring = Ring::start(bins, &setup);
        if level == EACH {
            exercise(&ring, level, &what);
        }
        for level in LEVELS {
            ring.set_level(level);
            exercise(&ring, level, &what);
        }
        more(&ring, &what);
    }
}

/// What fails here as well is no fault of torc.
#[test]
fn c_nodes_alone() {
    mixture("cccccccc");
}

#[test]
fn one_torc_node_among_seven_c_nodes() {
    mixture("ctcccccc");
}

#[test]
fn one_c_node_among_seven_torc_nodes() {
    mixture("tttttctt");
}

#[test]
fn every_rack_has_one_of_each() {
    mixture("cttcctct");
}

#[test]
fn a_rack_of_each_in_every_datacenter() {
    mixture("ttccttcc");
}

#[test]
fn a_datacenter_of_each() {
    mixture("cccctttt");
}

/// Values many buffers long pass every kind of hop: from either kind of coordinator to either kind
/// of owner, in both datacenters.
#[test]
fn values_of_five_and_of_sixty_four_mebibytes() {
    let Some(bins) = Bins::find("large values in mixed rings") else { return };
    for secure in [false, true] {
        // Ciphering is slow in a build for tests.
        let extra = "  timeout: 60000\n";
        let ring =
            Ring::start(&bins, &Setup { who: "cttcctct", secure, levels: ["DC_ONE"; 2], extra });
        large_values(&ring, 0..4, &format!("encrypted: {secure}"));
    }
}

fn large_values(ring: &Ring, through: impl IntoIterator<Item = usize>, what: &str) {
    for who in through {
        let what = format!("{what}, through n{} ({:?})", who + 1, ring.nodes[who].kind);
        let mut model = Model::default();
        let mut client = ring.nodes[who].connect();
        model.set_lengths(&mut client, who, &[5 << 20, 64 << 20], &what);
        model.compare_stores(ring, &what);
        model.read_back(&mut client, usize::MAX, &what);
        ring.flush();
    }
}

/// One node of each kind in each datacenter, as far as there are such.
fn one_of_each(ring: &Ring) -> Vec<usize> {
    let mut found: Vec<usize> = Vec::new();
    let same = |a: usize, b: usize| {
        let (a, b) = (&ring.nodes[a], &ring.nodes[b]);
        (a.kind, a.dc) == (b.kind, b.dc)
    };
    for n in 0..ring.nodes.len() {
        if !found.iter().any(|other| same(*other, n)) {
            found.push(n);
        }
    }
    found
}

/// The mixtures of eight nodes that differ in more than names: of those that are the same but for
/// which datacenter is the first, which rack of a datacenter, and which token, one. Bit `i` is set
/// when node `i` is torc.
fn distinct() -> Vec<u8> {
    let renamed = |mixture: u8, names: u8| {
        let bit = |flag: u8| names >> flag & 1;
        let place = |i: u8| {
            let dc = i >> 2 ^ bit(0);
            let rack = (i >> 1 & 1) ^ bit(1 + (i >> 2));
            dc << 2 | rack << 1 | ((i & 1) ^ bit(3))
        };
        (0..8).fold(0, |all, i| all | (mixture >> place(i) & 1) << i)
    };
    let first = |mixture: &u8| (0..16).all(|names| renamed(*mixture, names) >= *mixture);
    (1..255).filter(first).collect()
}

fn letters(mixture: u8) -> String {
    (0..8).map(|i| if mixture >> i & 1 == 1 { 't' } else { 'c' }).collect()
}

/// Runs the mixtures that `SOAK_MIXTURES` asks for: `distinct`, `all` of both kinds, or words like
/// `ctcctttc` with commas between them. What fails is told at the end.
#[test]
fn every_mixture_that_is_asked_for() {
    assert_eq!(distinct().len(), 32);
    let Ok(asked) = std::env::var("SOAK_MIXTURES") else {
        println!("skipped: every mixture: SOAK_MIXTURES names none");
        return;
    };
    let Some(bins) = Bins::find("every mixture") else { return };
    let words: Vec<String> = match asked.as_str() {
        "distinct" => distinct().into_iter().map(letters).collect(),
        "all" => (1..255).map(letters).collect(),
        words => words.split(',').map(str::to_owned).collect(),
    };
    let mut failed = Vec::new();
    for (number, who) in words.iter().enumerate() {
        let whole = || {
            // Ciphering is slow in a build for tests.
            run(&bins, who, "  timeout: 60000\n", |ring, what| {
                ring.set_level(LEVELS[0]);
                large_values(ring, one_of_each(ring), what);
            });
        };
        let right = std::panic::catch_unwind(whole).is_ok();
        println!(
            "{who}: {} ({} of {})",
            if right { "ok" } else { "FAILED" },
            number + 1,
            words.len()
        );
        if !right {
            failed.push(who);
        }
    }
    assert!(failed.is_empty(), "{failed:?} of {}", words.len());
}
