//! Every node serves every key, at every level the reference can do, whoever is who.

use super::data::Model;
use super::ring::{Bins, Kind, Ring, Setup};
use crate::client::Client;
use crate::encrypted::LENGTHS;

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
        model.set_lengths(client, who, &LENGTHS, &what);
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

fn mixture(who: &'static str) {
    let Some(bins) = Bins::find("mixed rings") else { return };
    for secure in [false, true] {
        let what = format!("{who}, {}", if secure { "encrypted" } else { "plaintext" });
        let level = if secure { EACH } else { LEVELS[0] };
        let setup = Setup { who, secure, levels: [level; 2], extra: "" };
        let ring = Ring::start(&bins, &setup);
        if level == EACH {
            exercise(&ring, level, &what);
        }
        for level in LEVELS {
            ring.set_level(level);
            exercise(&ring, level, &what);
        }
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
        for who in 0..4 {
            let what =
                format!("encrypted: {secure}, through n{} ({:?})", who + 1, ring.nodes[who].kind);
            let mut model = Model::default();
            let mut client = ring.nodes[who].connect();
            model.set_lengths(&mut client, who, &[5 << 20, 64 << 20], &what);
            model.compare_stores(&ring, &what);
            model.read_back(&mut client, usize::MAX, &what);
            ring.flush();
        }
    }
}
