//! Micro benches of the path from key to owners, and of the rebuild.
//!
//! `cargo bench --bench ring`

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use torc::hash::{HashTag, HashType, KeyHasher, map_hash};
use torc::ring::{Peer, PeerId, PeerState, Topology};
use torc::token::DynToken;

/// Keys used in turn, so that branches are not learnt by heart.
const KEYS: usize = 4096;

/// `racks` racks of `nodes` peers with `vnodes` tokens each, spread by a hash.
fn table(racks: usize, nodes: usize, vnodes: usize, hash: HashType) -> Vec<Peer> {
    let peer = |id: usize| Peer {
        id: PeerId(id as u32),
        name: format!("node-{id}.example"),
        host: format!("10.0.{}.{}", id / 250, id % 250),
        port: 8101,
        dc: "dc1".into(),
        rack: format!("rack{}", id % racks),
        tokens: (0..vnodes).map(|v| map_hash(hash, format!("{id}-{v}").as_bytes())).collect(),
        state: PeerState::Normal,
        reachable: true,
        is_local: id == 0,
        is_torc: true,
    };
    (0..racks * nodes).map(peer).collect()
}

fn keys() -> Vec<Vec<u8>> {
    (0..KEYS).map(|i| format!("user:{i:06}:profile").into_bytes()).collect()
}

/// Times `f` over the keys in turn.
fn per_key<T>(c: &mut Criterion, name: &str, mut f: impl FnMut(&[u8]) -> T) {
    let keys = keys();
    let mut next = 0;
    c.bench_function(name, |b| {
        b.iter(|| {
            next = (next + 1) % KEYS;
            f(black_box(&keys[next]))
        });
    });
}

fn hashes(c: &mut Criterion) {
    for hash in HashType::ALL {
        per_key(c, &format!("hash/{hash}, 19 bytes"), |key| map_hash(hash, key));
    }
    let tagged = KeyHasher { hash: HashType::Murmur, tag: Some(HashTag::new(b':', b':')) };
    per_key(c, "hash/murmur with a tag", |key| tagged.token(key));
}

fn tokens(c: &mut Criterion) {
    c.bench_function("token/parse 10 digits", |b| {
        b.iter(|| DynToken::parse_config(black_box("1383429731")));
    });
    let (low, high) = (DynToken::from_u32(1_383_429_731), DynToken::from_u32(3_530_913_378));
    c.bench_function("token/compare one word", |b| {
        b.iter(|| black_box(&low).cmp(black_box(&high)));
    });
}

fn lookups(c: &mut Criterion) {
    for hash in [HashType::Murmur, HashType::Murmur3] {
        let topology = Topology::build(table(3, 100, 64, hash)).expect("a ring");
        let name = format!("plan/{hash}, 3 racks x 100 x 64");
        per_key(c, &name, |key| {
            let owners = topology.owners(&map_hash(hash, key));
            (owners.owner(0), owners.owner(1), owners.owner(2))
        });
    }
}

fn rebuilds(c: &mut Criterion) {
    let mut group = c.benchmark_group("rebuild");
    group.sample_size(20);
    for (name, table) in [
        ("1,000 x 64 in 3 racks", table(3, 333, 64, HashType::Murmur)),
        ("1,000 x 1 in 3 racks", table(3, 333, 1, HashType::Murmur)),
        ("1,000 x 64 in 100 racks", table(100, 10, 64, HashType::Murmur)),
    ] {
        group.bench_function(name, |b| {
            b.iter_batched(
                || table.clone(),
                |table| Topology::build(table).expect("a ring"),
                criterion::BatchSize::LargeInput,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, hashes, tokens, lookups, rebuilds);
criterion_main!(benches);
