//! The contract's rules for values, row by row, as a consumer meets them in a relay's messages:
//! what it cannot use is left out alone, what it cannot trust voids the plane.

use std::sync::Arc;

use prost::Message;
use serde_json::Value;
use tokio::sync::Notify;
use torc::relay::ProducerKey;
use torc::relay::envelope::{CONTRACT_MARKER, PROTOCOL_VERSION};
use torc::relay::proto;

use crate::bad_peers::{catalog, right};
use crate::consumer::Follower;
use crate::producer::{BUCKETS, Producer};
use crate::scripted::{Script, Scripted};
use crate::server::{RELAY, until};

fn vectors() -> Value {
    serde_json::from_str(include_str!("../vectors/relay-messages.json")).unwrap()
}

fn decode<M: Message + Default>(row: &Value) -> M {
    let hex = row["hex"].as_str().unwrap();
    let byte = |i: usize| u8::from_str_radix(&hex[i..i + 2], 16).unwrap();
    M::decode(&(0..hex.len()).step_by(2).map(byte).collect::<Vec<u8>>()[..]).unwrap()
}

/// The recorded values of one type.
fn rows(kind: &str) -> Vec<Value> {
    let all = vectors()["validation"].as_array().unwrap().clone();
    all.into_iter().filter(|row| row["type"] == kind).collect()
}

fn message<M: Message + Default>(name: &str) -> M {
    let all = vectors();
    let lists = ["messages", "serving_load_messages"];
    let mut rows = lists.iter().flat_map(|list| all[list].as_array().unwrap());
    decode(rows.find(|row| row["name"] == name).unwrap())
}

/// The expected verdict of a row: nothing left out, or its fault.
fn fault(row: &Value) -> Vec<&str> {
    row["fault"].as_str().into_iter().collect()
}

#[tokio::test]
async fn every_recorded_pool_is_taken_or_left_out_alone() {
    let good = Producer::new("good", 1, BUCKETS);
    let rows = rows("KvPoolDescriptor");
    assert_eq!(rows.len(), 18);
    let says = rows.iter().zip(1..).map(|(row, revision)| {
        let mut update = catalog(revision, &[&good.descriptor("good")]);
        update.snapshot.as_mut().unwrap().pools.push(decode(row));
        update
    });
    let scripted = Scripted::with(|scripts| {
        scripts.catalog.push_back(Script::stays(says.collect()));
        scripts.filter.push_back(Script::stays(right(&good)));
    });
    let follower = Follower::default();
    let _following = follower.follow(&scripted.serve().await);
    until("all revisions", || follower.0.lock().unwrap().catalogs.len() == 18).await;
    until("the good pool's filter", || follower.0.lock().unwrap().replicas.len() == 1).await;
    let notes = follower.0.lock().unwrap();
    for (i, row) in rows.iter().enumerate() {
        assert_eq!(notes.left_out[i], fault(row), "{}", row["name"]);
        assert_eq!(notes.catalogs[i].0, 2 - fault(row).len(), "{}", row["name"]);
    }
    assert_eq!(notes.retired, 0, "the good pool was never touched");
}

#[tokio::test]
async fn every_recorded_producer_is_taken_left_out_or_not_trusted() {
    /// Its pool cannot be told from others.
    const NO_KEY: [&str; 7] = [
        "producer_no_pool_id",
        "identity_version_0",
        "no_indexer_domain",
        "no_cache_semantics",
        "digest_15_bytes",
        "digest_empty",
        "source_unspecified",
    ];
    let good = Producer::new("good", 1, BUCKETS);
    let rows = rows("ProducerIdentity");
    let (mut untrusted, mut left_out) = (0, 0);
    for row in &rows {
        let mut update = catalog(1, &[&good.descriptor("good"), &good.descriptor("bad")]);
        let pools = &mut update.snapshot.as_mut().unwrap().pools;
        pools[1].producer = Some(decode(row));
        let scripted =
            Scripted::with(|scripts| scripts.catalog.push_back(Script::stays(vec![update])));
        let follower = Follower::default();
        let _following = follower.follow(&scripted.serve().await);
        let name = row["name"].as_str().unwrap();
        if NO_KEY.contains(&name) {
            until(name, || follower.has_end("catalog", "untrusted_key")).await;
            assert_eq!(follower.0.lock().unwrap().catalogs, [], "{name}: nothing of it was taken");
            untrusted += 1;
            continue;
        }
        until(name, || follower.0.lock().unwrap().catalogs.len() == 1).await;
        assert_eq!(follower.0.lock().unwrap().left_out, [fault(row)], "{name}");
        left_out += fault(row).len();
    }
    assert_eq!((rows.len(), untrusted, left_out), (24, 7, 14));
}

fn readiness(revision: u64, entries: Vec<proto::TopologyEntry>) -> proto::ServingReadinessUpdate {
    proto::ServingReadinessUpdate {
        protocol_version: PROTOCOL_VERSION,
        relay: Some(RELAY.into()),
        revision,
        entries,
        contract_marker: CONTRACT_MARKER,
    }
}

#[tokio::test]
async fn every_recorded_readiness_is_taken_or_left_out_alone() {
    let rows = rows("TopologyEntry");
    assert_eq!(rows.len(), 19);
    let named = |name: &str| rows.iter().find(|row| row["name"] == name).unwrap();
    let mut good: proto::TopologyEntry = decode(named("topology_ok"));
    good.canonical_model_id = "another".into();
    // Without its namespace an entry cannot be told from others: that one comes last.
    let last = "topology_namespace_empty";
    let order = || rows.iter().filter(|row| row["name"] != last);
    let says = order().chain([named(last)]).zip(1..);
    let says = says.map(|(row, revision)| readiness(revision, vec![good.clone(), decode(row)]));
    let scripted =
        Scripted::with(|scripts| scripts.readiness.push_back(Script::stays(says.collect())));
    let follower = Follower::default();
    let _following = follower.follow(&scripted.serve().await);
    until("the last one", || follower.has_end("readiness", "untrusted_key")).await;
    let notes = follower.0.lock().unwrap();
    for (i, row) in order().enumerate() {
        assert_eq!(notes.left_out[i], fault(row), "{}", row["name"]);
        assert_eq!(notes.readiness[i].0, 2 - fault(row).len(), "{}", row["name"]);
    }
}

#[tokio::test]
async fn a_readiness_that_contradicts_itself_is_void() {
    let good: proto::ServingReadinessUpdate = message("readiness_update");
    let entry = good.entries[0].clone();
    let first = readiness(4, vec![entry.clone()]);
    for (label, next) in [
        ("revision_went_back", readiness(3, vec![entry.clone()])),
        ("revision_content", readiness(4, Vec::new())),
        ("duplicate_key", readiness(5, vec![entry.clone(), entry])),
    ] {
        let scripted = Scripted::with(|scripts| {
            scripts.readiness.push_back(Script::stays(vec![first.clone(), first.clone(), next]));
            scripts.readiness.push_back(Script::stays(vec![first.clone()]));
        });
        let follower = Follower::default();
        let _following = follower.follow(&scripted.serve().await);
        until(label, || follower.has_end("readiness", label)).await;
        until("it is taken again", || follower.0.lock().unwrap().readiness.len() == 2).await;
        assert_eq!(follower.0.lock().unwrap().connected.len(), 1, "{label}");
    }
}

#[tokio::test]
async fn a_pool_that_turns_unusable_loses_its_filter_and_the_other_keeps_its_own() {
    let (a, b) = (Producer::new("a", 1, BUCKETS), Producer::new("b", 1, BUCKETS));
    let (a_pool, b_pool) = (a.descriptor("a"), b.descriptor("b"));
    type Change = fn(&mut proto::KvPoolDescriptor);
    let changes: [(&str, Change); 4] = [
        ("worker_role", |pool| pool.pool_roles.push(99)),
        ("unsupported_model_target", |pool| {
            pool.registrations[0].target = Some(proto::ModelTarget { target: None });
        }),
        ("zero_query_block_size", |pool| {
            pool.query_semantics.as_mut().unwrap().kv_block_size = 0;
        }),
        ("pool_identity_version", |pool| {
            let producer = pool.producer.as_mut().unwrap();
            producer.pool_id.as_mut().unwrap().identity_version = 2;
        }),
    ];
    for (label, change) in changes {
        let mut worse = catalog(2, &[&a_pool, &b_pool]);
        change(&mut worse.snapshot.as_mut().unwrap().pools[1]);
        let gate = Arc::new(Notify::new());
        let scripted = Scripted::with(|scripts| {
            let first = Script::stays(vec![catalog(1, &[&a_pool, &b_pool])]);
            scripts.catalog.push_back(first.then(&gate, worse));
            for producer in [&a, &b] {
                let dc_id = producer.key().pool().dc_id.get();
                scripts.filter_of.insert(dc_id, Script::stays(right(producer)));
            }
        });
        let follower = Follower::default();
        let _following = follower.follow(&scripted.serve().await);
        until("both filters", || follower.0.lock().unwrap().replicas.len() == 2).await;
        gate.notify_one();
        until(label, || follower.0.lock().unwrap().left_out.last() == Some(&vec![label])).await;
        until("its filter is void", || follower.0.lock().unwrap().retired == 1).await;
        let notes = follower.0.lock().unwrap();
        assert_eq!((notes.catalogs.last(), notes.connected.len()), (Some(&(1, 1)), 1), "{label}");
        assert!(notes.replicas.contains_key(&a.key()), "{label}");
        assert_eq!(notes.ends.iter().filter(|end| end.0 == "filter").count(), 0, "{label}");
        assert_eq!(scripted.opened()[3], 2, "{label}: the other one goes on");
    }
}

type Serving = proto::ServingLoadUpdate;

fn load(update: &mut Serving, model: bool) -> &mut proto::LoadView {
    let load = match model {
        true => &mut update.models[0].load,
        false => &mut update.pools[0].load,
    };
    load.as_mut().unwrap()
}

fn tokens(update: &mut Serving, model: bool) -> &mut proto::TokenLoadStats {
    load(update, model).tokens.as_mut().unwrap()
}

fn requests(update: &mut Serving) -> &mut proto::RequestLifecycleStats {
    load(update, true).requests.as_mut().unwrap()
}

/// How the plane ends, and what spoils a window so.
type Spoiled = (&'static str, fn(&mut Serving));

const SPOILED: [Spoiled; 24] = [
    ("untrusted_key", |u| u.pools[0].producer = None),
    ("untrusted_key", |u| u.pools[0].producer.as_mut().unwrap().layout_generation = 0),
    ("duplicate_key", |u| u.pools.push(u.pools[0].clone())),
    ("untrusted_key", |u| u.models[0].namespace.clear()),
    ("untrusted_key", |u| u.models[0].canonical_model_id = " x".into()),
    ("duplicate_key", |u| u.models.push(u.models[0].clone())),
    ("unusable_window", |u| u.pools[0].load = None),
    ("unusable_window", |u| u.pools[0].deployment = None),
    ("unusable_window", |u| load(u, false).tokens = None),
    ("unusable_window", |u| load(u, false).requests = Some(Default::default())),
    ("unusable_window", |u| load(u, false).status = 0),
    ("unusable_window", |u| load(u, false).status = 9),
    // Unavailable views have no gauges.
    ("unusable_window", |u| tokens(u, false).active_prefill_tokens = Some(1)),
    ("unusable_window", |u| load(u, false).status = 1),
    ("unusable_window", |u| tokens(u, false).input_tokens_total = Some(0)),
    ("unusable_window", |u| u.models[0].load = None),
    ("unusable_window", |u| u.models[0].deployment = None),
    ("unusable_window", |u| load(u, true).requests = None),
    ("unusable_window", |u| tokens(u, true).output_tokens_total = None),
    ("unusable_window", |u| requests(u).requests_generating = Some(1)),
    ("unusable_window", |u| tokens(u, true).active_decode_blocks = Some(1)),
    ("unusable_window", |u| load(u, true).status = 1),
    ("unusable_window", |u| {
        let pools = &mut u.models[0].deployment.as_mut().unwrap().serving_pools;
        pools.push(pools[0].clone());
    }),
    ("unusable_window", |u| {
        let pools = &mut u.models[0].deployment.as_mut().unwrap().serving_pools;
        pools[0].identity_version = 0;
    }),
];

#[tokio::test]
async fn a_serving_window_is_used_whole_or_not_at_all() {
    let mut good: Serving = message("serving_load_pool_unavailable_model_degraded");
    good.relay = Some(RELAY.into());
    let next = |change: &dyn Fn(&mut Serving)| {
        let mut next = good.clone();
        next.window_sequence += 1;
        change(&mut next);
        next
    };
    for (i, (label, spoil)) in SPOILED.into_iter().enumerate() {
        let says = vec![good.clone(), next(&spoil)];
        let scripted = Scripted::with(|s| s.serving.push_back(Script::stays(says)));
        let follower = Follower::default();
        let _following = follower.follow(&scripted.serve().await);
        until(label, || follower.has_end("serving_load", label)).await;
        let notes = follower.0.lock().unwrap();
        assert_eq!(notes.serving[0], (1, 1), "{i} {label}");
        assert_eq!((notes.serving.len(), notes.connected.len()), (1, 1), "{i} {label}");
    }
    // A key of an unknown kind is skipped, complete views have their gauges, windows may not gap.
    let newer = next(&|u| {
        let producer = u.pools[0].producer.as_mut().unwrap();
        producer.ckf_format.as_mut().unwrap().slots_per_bucket = 8;
    });
    let mut complete: Serving = message("serving_load_pool_complete");
    (complete.relay, complete.window_sequence) = (good.relay, good.window_sequence + 2);
    let gap = Serving { window_sequence: good.window_sequence + 4, ..good.clone() };
    let says = vec![good.clone(), newer, complete.clone(), gap];
    let scripted = Scripted::with(|s| s.serving.push_back(Script::stays(says)));
    let follower = Follower::default();
    let _following = follower.follow(&scripted.serve().await);
    until("the gap", || follower.has_end("serving_load", "window_gap")).await;
    let models = complete.models.len();
    assert_eq!(follower.0.lock().unwrap().serving, [(1, 1), (0, 1), (1, models)]);
}

#[tokio::test]
async fn a_load_window_with_a_key_that_cannot_be_trusted_is_void() {
    let mut good: proto::KvPoolLoadUpdate = message("load_update_partial_coverage");
    good.relay = Some(RELAY.into());
    let key = ProducerKey::try_from(good.pools[0].producer.as_ref().unwrap()).unwrap();
    assert_ne!(key.identity().layout_generation, 0);
    type Change = fn(&mut proto::KvPoolLoadUpdate);
    let changes: [(&str, Change); 3] = [
        ("untrusted_key", |u| u.pools[0].producer = None),
        ("untrusted_key", |u| u.pools[0].producer.as_mut().unwrap().layout_generation = 0),
        ("duplicate_key", |u| u.pools.push(u.pools[0].clone())),
    ];
    for (label, change) in changes {
        let mut next = good.clone();
        next.window_sequence += 1;
        change(&mut next);
        let says = vec![good.clone(), next];
        let scripted = Scripted::with(|s| s.load.push_back(Script::stays(says)));
        let follower = Follower::default();
        let _following = follower.follow(&scripted.serve().await);
        until(label, || follower.has_end("load", label)).await;
        assert_eq!(follower.0.lock().unwrap().windows[0], good.window_sequence, "{label}");
    }
}
