use super::*;
use crate::ckf::bucket::BucketImage;
use crate::ckf::cbi1::{self, Stamp};
use crate::relay::envelope::{CONTRACT_MARKER, PROTOCOL_VERSION};
use crate::relay::mirror::Mirror;
use crate::relay::proto::{self, FilterUpdateKind as Kind};
use crate::relay::queue::Frame;
use crate::relay::{ProducerKey, vectors};

const RELAY: RelayId = RelayId { drt_instance_id: 17, incarnation: 23 };

fn catalog() -> proto::KvPoolCatalogUpdate {
    vectors::message("catalog_update")
}

fn pools(update: &mut proto::KvPoolCatalogUpdate) -> &mut Vec<proto::KvPoolDescriptor> {
    &mut update.snapshot.as_mut().unwrap().pools
}

fn pool_id(pool: &mut proto::KvPoolDescriptor) -> &mut proto::KvPoolId {
    pool.producer.as_mut().unwrap().pool_id.as_mut().unwrap()
}

/// Two pools, the second changed.
fn with_second(change: impl FnOnce(&mut proto::KvPoolDescriptor)) -> proto::KvPoolCatalogUpdate {
    let mut update = catalog();
    let mut second = pools(&mut update)[0].clone();
    pool_id(&mut second).dc_id = 8;
    change(&mut second);
    pools(&mut update).push(second);
    update
}

fn void(update: proto::KvPoolCatalogUpdate) -> PlaneFault {
    CatalogPlane::new(RELAY).take(update).unwrap_err()
}

#[test]
fn a_catalog_is_taken_whole_and_repeats_are_silent() {
    let mut plane = CatalogPlane::new(RELAY);
    let view = plane.take(with_second(|_| {})).unwrap().unwrap();
    assert_eq!((view.revision, view.pools.len(), view.quarantined.len()), (9, 2, 0));
    assert_eq!(view.names.resolve("llama").unwrap().1.len(), 2);
    assert_eq!(plane.take(with_second(|_| {})), Ok(None));
    let mut changed = catalog();
    assert_eq!(plane.take(changed.clone()), Err(PlaneFault::RevisionContent(9)));
    changed.revision = 8;
    let back = PlaneFault::RevisionWentBack { before: 9, now: 8 };
    assert_eq!(plane.take(changed.clone()), Err(back));
    changed.revision = 12;
    assert_eq!(plane.take(changed).unwrap().unwrap().pools.len(), 1);
}

#[test]
fn a_pool_of_an_unknown_kind_is_quarantined_alone() {
    type Change = fn(&mut proto::KvPoolDescriptor);
    let unknown: [(&str, Change); 8] = [
        ("pool_identity_version", |pool| pool_id(pool).identity_version = 2),
        ("identity_source", |pool| {
            let domain = pool_id(pool).indexer_domain.as_mut().unwrap();
            domain.routing_scope.as_mut().unwrap().source = 9;
        }),
        ("unsupported_ckf_format", |pool| {
            let producer = pool.producer.as_mut().unwrap();
            producer.ckf_format.as_mut().unwrap().format_version = 2;
        }),
        ("query_hash_format", |pool| {
            pool.query_semantics.as_mut().unwrap().hash_format = 7;
        }),
        ("worker_role", |pool| pool.pool_roles.push(77)),
        ("unsupported_model_target", |pool| {
            pool.registrations[0].target.as_mut().unwrap().target = None;
        }),
        // Malformed, but its key can be read.
        ("missing_worker_roles", |pool| pool.pool_roles.clear()),
        ("zero_layout_generation", |pool| {
            pool.producer.as_mut().unwrap().layout_generation = 0;
        }),
    ];
    for (label, change) in unknown {
        let view = CatalogPlane::new(RELAY).take(with_second(change)).unwrap().unwrap();
        assert_eq!((view.pools.len(), view.quarantined.len()), (1, 1), "{label}");
        assert_eq!(view.quarantined[0].fault.label(), label);
    }
}

#[test]
fn a_catalog_that_cannot_be_trusted_is_void() {
    let mut update = catalog();
    update.contract_marker = 0;
    let fault = void(update);
    assert!(fault.is_final() && fault.voids_connection());
    let mut update = catalog();
    update.protocol_version = 2;
    assert!(void(update).is_final());
    let mut update = catalog();
    update.relay.as_mut().unwrap().relay_incarnation = 24;
    let fault = void(update);
    assert_eq!(fault, PlaneFault::RelayChanged);
    assert!(fault.voids_connection() && !fault.is_final());
    let mut update = catalog();
    update.snapshot = None;
    assert_eq!(void(update), PlaneFault::MissingSnapshot);
    assert_eq!(void(with_second(|pool| pool_id(pool).dc_id = 7)), PlaneFault::DuplicateKey);
    let fault = void(with_second(|pool| pool.producer = None));
    assert_eq!(fault.label(), "untrusted_key");
    let fault = void(with_second(|pool| {
        let domain = pool_id(pool).indexer_domain.as_mut().unwrap();
        domain.cache_semantics.as_mut().unwrap().digest.truncate(15);
    }));
    assert_eq!(fault.label(), "untrusted_key");
}

#[test]
fn a_readiness_entry_with_something_unknown_is_never_taken_for_ready() {
    let update: proto::ServingReadinessUpdate = vectors::message("readiness_update");
    let take = |change: &dyn Fn(&mut proto::TopologyEntry)| {
        let mut update = update.clone();
        let mut second = update.entries[0].clone();
        second.canonical_model_id = "second".into();
        change(&mut second);
        update.entries.push(second);
        ReadinessPlane::new(RELAY).take(update)
    };
    let plain = take(&|_| {}).unwrap().unwrap();
    assert_eq!((plain.entries.len(), plain.quarantined.len()), (2, 0));
    type Change<'a> = &'a dyn Fn(&mut proto::TopologyEntry);
    let quarantining: [(&str, Change<'_>); 5] = [
        ("readiness_state", &|entry| entry.state = 3),
        ("readiness_state", &|entry| entry.adapters[0].state = 3),
        ("worker_role", &|entry| entry.members[0].roles.push(99)),
        ("worker_role", &|entry| entry.missing_roles.push(99)),
        ("missing_topology_members", &|entry| entry.members.clear()),
    ];
    for (label, change) in quarantining {
        let view = take(change).unwrap().unwrap();
        assert_eq!((view.entries.len(), view.quarantined.len()), (1, 1), "{label}");
        assert_eq!(view.quarantined[0].fault.label(), label);
    }
    let same = |entry: &mut proto::TopologyEntry| entry.canonical_model_id = "llama".into();
    assert_eq!(take(&same), Err(PlaneFault::DuplicateKey));
    let nameless = take(&|entry| entry.namespace.clear());
    assert_eq!(nameless.unwrap_err().label(), "untrusted_key");
}

#[test]
fn windows_follow_each_other() {
    let update: proto::KvPoolLoadUpdate = vectors::message("load_update_partial_coverage");
    let mut plane = LoadPlane::new(RELAY);
    let view = plane.take(&update).unwrap();
    assert_eq!((view.window.sequence, view.pools.len()), (12, 1));
    assert!(!view.pools[0].is_authoritative());
    let idle: proto::KvPoolLoadUpdate = vectors::message("load_update_idle_window");
    assert_eq!(plane.take(&idle).unwrap().pools.len(), 0);
    let gap = PlaneFault::WindowGap { before: 13, now: 13 };
    assert_eq!(plane.take(&idle), Err(gap));
    assert!(!gap.voids_connection());

    let fresh = |change: &dyn Fn(&mut proto::KvPoolLoadUpdate)| {
        let mut update = update.clone();
        change(&mut update);
        LoadPlane::new(RELAY).take(&update)
    };
    let twice = fresh(&|update| update.pools.push(update.pools[0].clone()));
    assert_eq!(twice, Err(PlaneFault::DuplicateKey));
    let nameless = fresh(&|update| update.pools[0].producer = None);
    assert_eq!(nameless.unwrap_err().label(), "untrusted_key");
    let newer = fresh(&|update| {
        let producer = update.pools[0].producer.as_mut().unwrap();
        producer.pool_id.as_mut().unwrap().identity_version = 2;
    });
    assert_eq!(newer.unwrap().unsupported, 1);
}

#[test]
fn a_serving_window_is_usable_whole_or_not_at_all() {
    let update: proto::ServingLoadUpdate =
        vectors::message("serving_load_pool_unavailable_model_degraded");
    let take = |change: &dyn Fn(&mut proto::ServingLoadUpdate)| {
        let mut update = update.clone();
        change(&mut update);
        ServingPlane::new(RELAY).take(update)
    };
    let view = take(&|_| {}).unwrap();
    assert_eq!((view.pools.len(), view.models.len()), (1, 1));
    let spoiled = take(&|update| update.pools[0].deployment = None);
    assert_eq!(spoiled.unwrap_err().label(), "unusable_window");
    let spoiled = take(&|update| update.models[0].load = None);
    assert_eq!(spoiled.unwrap_err().label(), "unusable_window");
    let twice = take(&|update| update.models.push(update.models[0].clone()));
    assert_eq!(twice, Err(PlaneFault::DuplicateKey));
    let nameless = take(&|update| update.models[0].namespace.clear());
    assert_eq!(nameless.unwrap_err().label(), "untrusted_key");
    let newer = take(&|update| {
        let producer = update.pools[0].producer.as_mut().unwrap();
        producer.ckf_format.as_mut().unwrap().fingerprint_bits = 17;
    });
    assert_eq!(newer.unwrap().pools.len(), 0);
}

/// A producer of two chunks' worth would need 8 MiB; one chunk says as much.
fn key() -> ProducerKey {
    let message: proto::ProducerIdentity = vectors::message("producer_identity");
    ProducerKey::try_from(&message).unwrap()
}

fn update(frame: &Frame) -> proto::FilterUpdate {
    proto::FilterUpdate {
        protocol_version: PROTOCOL_VERSION,
        relay: Some(RELAY.into()),
        producer: Some((&key()).into()),
        base_sequence: frame.base,
        sequence: frame.sequence,
        send_ts_us: 1,
        kind: frame.kind as i32,
        payload: frame.payload.clone(),
        contract_marker: CONTRACT_MARKER,
    }
}

fn image(bucket: u32, word: u64) -> BucketImage {
    BucketImage { bucket, word }
}

/// A mirror, and a plane that has its snapshot at sequence 4.
fn installed() -> (Mirror, FilterPlane) {
    let mirror = Mirror::new(key(), vec![3; 1024], 4).unwrap();
    let mut plane = FilterPlane::new(RELAY, key());
    let chunk = mirror.cut().chunk(0).unwrap();
    let Ok(Step::Snapshot(snapshot)) = plane.take(&update(&chunk)) else { panic!("a snapshot") };
    assert_eq!((snapshot.epoch, snapshot.words), (4, vec![3; 1024]));
    assert_eq!(plane.installed(), Some(4));
    (mirror, plane)
}

fn delta(base: u64, sequence: u64, images: &[BucketImage]) -> Frame {
    let mut payload = Vec::new();
    let stamp = Stamp { format: *key().format(), dc_id: key().pool().dc_id, epoch: sequence };
    cbi1::encode_delta(&mut payload, &stamp, base, images).unwrap();
    Frame { kind: Kind::Delta, base, sequence, payload: payload.into() }
}

#[test]
fn a_replica_follows_a_mirror() {
    let (mut mirror, mut plane) = installed();
    assert_eq!(plane.take(&update(&Frame::heartbeat(4))), Ok(Step::Heartbeat));
    mirror.apply(&[image(7, 7)]).unwrap();
    let frame = mirror.publish().unwrap().unwrap();
    let step = Step::Delta { sequence: 5, images: vec![image(7, 7)] };
    assert_eq!(plane.take(&update(&frame)), Ok(step));
    assert_eq!(plane.take(&update(&Frame::heartbeat(5))), Ok(Step::Heartbeat));
}

#[test]
fn any_frame_that_does_not_continue_voids_the_replica() {
    let good = delta(4, 5, &[image(1, 1)]);
    let reject = |frame: &Frame, change: &dyn Fn(&mut proto::FilterUpdate)| {
        let (_, mut plane) = installed();
        let mut update = update(frame);
        change(&mut update);
        plane.take(&update).unwrap_err().label()
    };
    let same = |_: &mut proto::FilterUpdate| {};
    assert_eq!(reject(&delta(5, 6, &[image(1, 1)]), &same), "gap");
    assert_eq!(reject(&delta(3, 4, &[image(1, 1)]), &same), "gap");
    assert_eq!(reject(&delta(4, 6, &[image(1, 1)]), &same), "gap");
    assert_eq!(reject(&delta(4, 5, &[]), &same), "empty_delta");
    assert_eq!(reject(&good, &|update| update.sequence = 6), "sequence");
    assert_eq!(reject(&good, &|update| update.base_sequence = 3), "sequence");
    assert_eq!(reject(&good, &|update| update.kind = 4), "unknown_frame_kind");
    assert_eq!(reject(&good, &|update| update.kind = 0), "unknown_frame_kind");
    assert_eq!(reject(&good, &|update| update.kind = 1), "second_snapshot");
    assert_eq!(reject(&good, &|update| update.payload = "CBI1".into()), "truncated");
    assert_eq!(
        reject(&good, &|update| update.relay.as_mut().unwrap().drt_instance_id = 1),
        "relay_changed"
    );
    assert_eq!(reject(&good, &|update| update.contract_marker = 1), "contract_marker");
    assert_eq!(reject(&good, &|update| update.producer = None), "missing_field");
    let generation = |update: &mut proto::FilterUpdate| {
        update.producer.as_mut().unwrap().producer_incarnation = 1;
    };
    assert_eq!(reject(&good, &generation), "other_producer");
    assert_eq!(reject(&Frame::heartbeat(5), &same), "gap");
    assert_eq!(reject(&Frame::heartbeat(4), &|update| update.base_sequence = 3), "gap");
    assert_eq!(reject(&Frame::heartbeat(4), &|update| update.payload = "x".into()), "payload_kind");
}

#[test]
fn nothing_but_chunks_makes_a_snapshot() {
    let mut plane = FilterPlane::new(RELAY, key());
    let early = plane.take(&update(&delta(4, 5, &[image(1, 1)])));
    assert_eq!(early, Err(FilterFault::BeforeSnapshot(Kind::Delta)));
    let early = plane.take(&update(&Frame::heartbeat(0)));
    assert_eq!(early, Err(FilterFault::BeforeSnapshot(Kind::Heartbeat)));
    let chunk = Mirror::new(key(), vec![0; 1024], 4).unwrap().cut().chunk(0).unwrap();
    let reject = |frame: &Frame, change: &dyn Fn(&mut proto::FilterUpdate)| {
        let mut update = update(frame);
        change(&mut update);
        FilterPlane::new(RELAY, key()).take(&update).unwrap_err().label()
    };
    assert_eq!(reject(&chunk, &|update| update.base_sequence = 3), "sequence");
    assert_eq!(reject(&chunk, &|update| update.sequence = 5), "sequence");
    let payload = delta(4, 4, &[]).payload;
    assert_eq!(reject(&chunk, &|update| update.payload = payload.clone()), "payload_kind");
    let mut foreign = Vec::new();
    let stamp = Stamp { format: *key().format(), dc_id: crate::ckf::digest::dc_id("x"), epoch: 4 };
    cbi1::encode_chunk(&mut foreign, &stamp, &vec![0; 1024], 0).unwrap();
    let foreign = bytes::Bytes::from(foreign);
    assert_eq!(reject(&chunk, &|update| update.payload = foreign.clone()), "other_datacenter");
}
