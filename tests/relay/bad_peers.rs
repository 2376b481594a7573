//! The consumer's table, one relay that misbehaves for each row.

use tonic::metadata::MetadataValue;
use tonic::{Code, Status};

use torc::ckf::bucket::BucketImage;
use torc::relay::descriptor::Descriptor;
use torc::relay::envelope::{CONTRACT_MARKER, PROTOCOL_VERSION};
use torc::relay::mirror::Mirror;
use torc::relay::proto;
use torc::relay::queue::Frame;
use torc::relay::reason::TRAILER;

use crate::consumer::Follower;
use crate::producer::{BUCKETS, Producer};
use crate::scripted::{Script, Scripted};
use crate::server::{PASSES, RELAY, until};

pub fn catalog(revision: u64, pools: &[&Descriptor]) -> proto::KvPoolCatalogUpdate {
    proto::KvPoolCatalogUpdate {
        protocol_version: PROTOCOL_VERSION,
        relay: Some(RELAY.into()),
        revision,
        snapshot: Some(proto::KvPoolCatalogSnapshot {
            pools: pools.iter().map(|pool| (*pool).into()).collect(),
        }),
        contract_marker: CONTRACT_MARKER,
    }
}

pub fn frame(producer: &Producer, frame: &Frame) -> proto::FilterUpdate {
    proto::FilterUpdate {
        protocol_version: PROTOCOL_VERSION,
        relay: Some(RELAY.into()),
        producer: Some((&producer.key()).into()),
        base_sequence: frame.base,
        sequence: frame.sequence,
        send_ts_us: 1,
        kind: frame.kind as i32,
        payload: frame.payload.clone(),
        contract_marker: CONTRACT_MARKER,
    }
}

/// The frames of a right stream: snapshot, then one delta.
pub fn right(producer: &Producer) -> Vec<proto::FilterUpdate> {
    let mut mirror = Mirror::new(producer.key(), vec![0; BUCKETS as usize], 0).unwrap();
    let chunk = mirror.cut().chunk(0).unwrap();
    mirror.apply(&[BucketImage { bucket: 1, word: 1 }]).unwrap();
    let delta = mirror.publish().unwrap().unwrap();
    vec![frame(producer, &chunk), frame(producer, &delta)]
}

#[tokio::test]
async fn another_contract_is_given_up() {
    for (marker, version, label) in
        [(0, 1, "contract_marker"), (CONTRACT_MARKER, 2, "protocol_version")]
    {
        let scripted = Scripted::default();
        scripted.0.lock().unwrap().info = Some(proto::RelayInfo {
            protocol_version: version,
            relay: Some(RELAY.into()),
            contract_marker: marker,
        });
        let follower = Follower::default();
        let mut following = follower.follow(&scripted.serve().await);
        crate::server::within(&mut following.0).await.unwrap();
        let ends = follower.0.lock().unwrap().ends.clone();
        assert_eq!(ends, [("connection", label, false)]);
    }
}

#[tokio::test]
async fn a_message_of_another_life_voids_the_whole_connection() {
    let producer = Producer::new("dc1", 1, BUCKETS);
    let pool = producer.descriptor("dc1");
    let scripted = Scripted::default();
    {
        let mut scripts = scripted.0.lock().unwrap();
        let mut other = catalog(2, &[&pool]);
        other.relay.as_mut().unwrap().relay_incarnation += 1;
        scripts.catalog.push_back(Script::stays(vec![catalog(1, &[&pool]), other]));
        scripts.catalog.push_back(Script::stays(vec![catalog(1, &[&pool])]));
        scripts.filter.push_back(Script::stays(right(&producer)));
    }
    let follower = Follower::default();
    let _following = follower.follow(&scripted.serve().await);
    until("it connects again", || follower.0.lock().unwrap().connected.len() >= 2).await;
    assert!(follower.has_end("connection", "relay_changed"));
    until("everything is opened anew", || scripted.opened()[..3].iter().all(|n| *n >= 2)).await;
}

#[tokio::test]
async fn a_wrong_catalog_voids_the_catalog_alone() {
    let (a, b) = (Producer::new("a", 1, BUCKETS), Producer::new("b", 1, BUCKETS));
    let (a_pool, b_pool) = (a.descriptor("a"), b.descriptor("b"));
    let mut nameless = catalog(2, &[&a_pool]);
    nameless.snapshot.as_mut().unwrap().pools[0].producer = None;
    let wrong = [
        ("duplicate_key", catalog(2, &[&a_pool, &a_pool])),
        ("untrusted_key", nameless),
        ("revision_went_back", catalog(0, &[&a_pool])),
        ("revision_content", catalog(1, &[&a_pool])),
    ];
    for (label, update) in wrong {
        let scripted = Scripted::default();
        {
            let mut scripts = scripted.0.lock().unwrap();
            let first = catalog(1, &[&a_pool, &b_pool]);
            scripts.catalog.push_back(Script::stays(vec![first.clone(), update]));
            scripts.catalog.push_back(Script::stays(vec![first]));
            scripts.filter.push_back(Script::stays(Vec::new()));
        }
        let follower = Follower::default();
        let _following = follower.follow(&scripted.serve().await);
        until(label, || follower.has_end("catalog", label)).await;
        until("the catalog is opened again", || scripted.opened()[0] >= 2).await;
        let notes = follower.0.lock().unwrap();
        assert_eq!(notes.connected.len(), 1, "{label}: the connection stays");
        assert_eq!(
            (scripted.opened()[1], scripted.opened()[3]),
            (1, 2),
            "{label}: so do the others"
        );
    }
}

#[tokio::test]
async fn what_is_not_understood_is_left_out_and_the_rest_is_used() {
    let (a, b) = (Producer::new("a", 1, BUCKETS), Producer::new("b", 1, BUCKETS));
    let mut update = catalog(1, &[&a.descriptor("a"), &b.descriptor("b")]);
    update.snapshot.as_mut().unwrap().pools[1].pool_roles.push(99);
    let scripted = Scripted::default();
    {
        let mut scripts = scripted.0.lock().unwrap();
        scripts.catalog.push_back(Script::stays(vec![update]));
        scripts.filter.push_back(Script::stays(right(&a)));
    }
    let follower = Follower::default();
    let _following = follower.follow(&scripted.serve().await);
    until("the other pool's filter", || {
        let notes = follower.0.lock().unwrap();
        notes.replicas.get(&a.key()).is_some_and(|words| words[1] == 1)
    })
    .await;
    assert_eq!(follower.0.lock().unwrap().catalogs, [(1, 1)]);
    assert_eq!(scripted.opened()[3], 1);
    // The newest plane is missing there, which is no trouble.
    until("the missing plane is noticed", || follower.has_end("serving_load", "status")).await;
    assert!(follower.0.lock().unwrap().ends.contains(&("serving_load", "status", false)));
}

#[tokio::test]
async fn a_wrong_frame_voids_its_replica_alone_and_the_stream_is_opened_anew() {
    let producer = Producer::new("a", 1, BUCKETS);
    let frames = right(&producer);
    let changed = |change: fn(&mut proto::FilterUpdate)| {
        let mut wrong = frames[1].clone();
        change(&mut wrong);
        wrong
    };
    let wrong = [
        ("unknown_frame_kind", changed(|frame| frame.kind = 9)),
        (
            "magic",
            changed(|frame| {
                let mut bytes = frame.payload.to_vec();
                bytes[0] = 0;
                frame.payload = bytes.into();
            }),
        ),
        (
            "checksum",
            changed(|frame| {
                let mut bytes = frame.payload.to_vec();
                *bytes.last_mut().unwrap() ^= 1;
                frame.payload = bytes.into();
            }),
        ),
        ("sequence", changed(|frame| frame.sequence += 1)),
        ("gap", {
            let heartbeat = Frame::heartbeat(7);
            frame(&producer, &heartbeat)
        }),
        ("second_snapshot", frames[0].clone()),
    ];
    for (label, wrong) in wrong {
        let scripted = Scripted::default();
        {
            let mut scripts = scripted.0.lock().unwrap();
            let update = catalog(1, &[&producer.descriptor("a")]);
            scripts.catalog.push_back(Script::stays(vec![update]));
            scripts.filter.push_back(Script::stays(vec![frames[0].clone(), wrong]));
            scripts.filter.push_back(Script::stays(frames.clone()));
        }
        let follower = Follower::default();
        let _following = follower.follow(&scripted.serve().await);
        until(label, || follower.has_end("filter", label)).await;
        until("a fresh snapshot and its delta", || {
            let notes = follower.0.lock().unwrap();
            notes.replicas.get(&producer.key()).is_some_and(|words| words[1] == 1)
        })
        .await;
        let notes = follower.0.lock().unwrap();
        assert_eq!((notes.retired, notes.connected.len()), (1, 1), "{label}");
        assert_eq!(scripted.opened(), [1, 1, 1, 2], "{label}");
    }
}

#[tokio::test]
async fn a_relay_that_never_ends_its_snapshot_is_asked_anew() {
    let producer = Producer::new("a", 1, 2 << 19);
    let chunk = frame(
        &producer,
        &Mirror::new(producer.key(), producer.words(), 0).unwrap().cut().chunk(0).unwrap(),
    );
    let scripted = Scripted::default();
    {
        let mut scripts = scripted.0.lock().unwrap();
        let update = catalog(1, &[&producer.descriptor("a")]);
        scripts.catalog.push_back(Script::stays(vec![update]));
        scripts.filter.push_back(Script::stays(vec![chunk]));
    }
    let follower = Follower::default();
    let _following = follower.follow_with(&scripted.serve().await, |settings| {
        settings.recovery_attempt_timeout = PASSES;
    });
    until("it is opened anew", || scripted.opened()[3] >= 2).await;
    assert!(follower.has_end("filter", "stalled"));
    let notes = follower.0.lock().unwrap();
    assert_eq!((notes.connected.len(), notes.replicas.len()), (1, 0));
}

#[tokio::test]
async fn a_plane_that_does_not_say_at_once_how_things_are_is_asked_anew() {
    let producer = Producer::new("a", 1, BUCKETS);
    let scripted = Scripted::with(|scripts| {
        scripts.catalog.push_back(Script::stays(Vec::new()));
        scripts.catalog.push_back(Script::stays(vec![catalog(1, &[&producer.descriptor("a")])]));
        scripts.filter.push_back(Script::stays(right(&producer)));
    });
    let follower = Follower::default();
    let _following = follower.follow_with(&scripted.serve().await, |settings| {
        settings.recovery_attempt_timeout = PASSES;
    });
    until("the filter is there", || {
        let notes = follower.0.lock().unwrap();
        notes.replicas.get(&producer.key()).is_some_and(|words| words[1] == 1)
    })
    .await;
    until("readiness is asked anew", || scripted.opened()[1] >= 3).await;
    assert!(follower.has_end("catalog", "stalled") && follower.has_end("readiness", "stalled"));
    // The catalog has spoken, and a window may take its time.
    assert_eq!((scripted.opened()[0], scripted.opened()[2]), (2, 1));
    assert_eq!(follower.0.lock().unwrap().connected.len(), 1);
}

#[tokio::test]
async fn a_clean_end_is_a_failure_and_a_gap_of_windows_reopens_that_stream() {
    let window = |sequence| proto::KvPoolLoadUpdate {
        protocol_version: PROTOCOL_VERSION,
        relay: Some(RELAY.into()),
        window_sequence: sequence,
        observed_ms: 1,
        window_ms: 1000,
        pools: Vec::new(),
        contract_marker: CONTRACT_MARKER,
    };
    let readiness = proto::ServingReadinessUpdate {
        protocol_version: PROTOCOL_VERSION,
        relay: Some(RELAY.into()),
        revision: 1,
        entries: Vec::new(),
        contract_marker: CONTRACT_MARKER,
    };
    let scripted = Scripted::default();
    {
        let mut scripts = scripted.0.lock().unwrap();
        scripts.load.push_back(Script::stays(vec![window(5), window(6), window(8)]));
        scripts.load.push_back(Script::stays(vec![window(9)]));
        scripts.readiness.push_back(Script::ends(vec![readiness.clone()]));
        scripts.readiness.push_back(Script::stays(vec![readiness]));
    }
    let follower = Follower::default();
    let _following = follower.follow(&scripted.serve().await);
    until("both are opened again", || scripted.opened()[1..3] == [2, 2]).await;
    until("the window after the gap", || follower.0.lock().unwrap().windows == [5, 6, 9]).await;
    assert!(follower.has_end("load", "window_gap"));
    assert!(follower.has_end("readiness", "clean_end"));
    assert_eq!(scripted.opened()[0], 1);
}

#[tokio::test]
async fn each_reason_of_a_relay_has_its_reaction() {
    let producer = Producer::new("a", 1, BUCKETS);
    let refused = |code: Code, reason: &'static str| {
        let mut status = Status::new(code, "no");
        if !reason.is_empty() {
            status.metadata_mut().insert(TRAILER, MetadataValue::from_static(reason));
        }
        status
    };
    // A reason that is none, or not known, is told by its status.
    let label = |reason: &'static str| match torc::relay::reason::parse(reason) {
        Some(_) => reason,
        None => "status",
    };
    // Tried again, or the pool is left alone.
    let none = "";
    let table = [
        (Code::ResourceExhausted, "RELAY_ERROR_REASON_SNAPSHOT_PROGRESS_TIMEOUT", true),
        (Code::FailedPrecondition, "RELAY_ERROR_REASON_INVALID_PUBLICATION", true),
        (Code::Internal, "RELAY_ERROR_REASON_INTERNAL", true),
        (Code::FailedPrecondition, none, true),
        (Code::Unavailable, none, true),
        (Code::Internal, "RELAY_ERROR_REASON_UNSPECIFIED", true),
        (Code::Unavailable, "A_REASON_OF_LATER", true),
        (Code::Unimplemented, none, false),
        (Code::Unavailable, "RELAY_ERROR_REASON_PUBLICATION_UNAVAILABLE", true),
        (Code::ResourceExhausted, "RELAY_ERROR_REASON_SUBSCRIBER_LAGGED", true),
        (Code::ResourceExhausted, "RELAY_ERROR_REASON_RESOURCE_LIMIT", true),
        (Code::NotFound, "RELAY_ERROR_REASON_POOL_NOT_FOUND", true),
        (Code::FailedPrecondition, "RELAY_ERROR_REASON_PRODUCER_CHANGED", true),
        (Code::FailedPrecondition, "RELAY_ERROR_REASON_UNSUPPORTED_FEATURE", false),
        (Code::InvalidArgument, "RELAY_ERROR_REASON_INVALID_REQUEST", false),
    ];
    for (code, reason, again) in table {
        let scripted = Scripted::default();
        {
            let mut scripts = scripted.0.lock().unwrap();
            let update = catalog(1, &[&producer.descriptor("a")]);
            scripts.catalog.push_back(Script::stays(vec![update]));
            scripts.filter.push_back(Script::fails(refused(code, reason)));
            scripts.filter.push_back(Script::stays(right(&producer)));
        }
        let follower = Follower::default();
        let _following = follower.follow(&scripted.serve().await);
        let label = label(reason);
        until(reason, || follower.has_end("filter", label)).await;
        let ends = follower.ends();
        assert!(ends.contains(&("filter", label, again)), "{code:?} {reason}: {ends:?}");
        if again {
            until("the filter is there", || {
                let notes = follower.0.lock().unwrap();
                notes.replicas.get(&producer.key()).is_some_and(|words| words[1] == 1)
            })
            .await;
        } else {
            assert_eq!(scripted.opened()[3], 1, "{reason}");
        }
    }
}

#[tokio::test]
async fn a_limit_without_a_reason_is_this_sides_and_another_contract_ends_all() {
    let producer = Producer::new("a", 1, BUCKETS);
    let limit = Status::new(Code::ResourceExhausted, "larger than max");
    let mut mismatch = Status::new(Code::FailedPrecondition, "no");
    let contract = "RELAY_ERROR_REASON_CONTRACT_MISMATCH";
    mismatch.metadata_mut().insert(TRAILER, MetadataValue::from_static(contract));
    let table = [
        (limit, vec![("filter", "status", true), ("filter", "local_limit", false)]),
        (mismatch, vec![("connection", contract, false)]),
    ];
    for (status, expected) in table {
        let scripted = Scripted::with(|scripts| {
            let update = catalog(1, &[&producer.descriptor("a")]);
            scripts.catalog.push_back(Script::stays(vec![update]));
            scripts.filter.push_back(Script::fails(status));
        });
        let follower = Follower::default();
        let _following = follower.follow(&scripted.serve().await);
        let of_it = || follower.ends().into_iter().filter(|end| end.0 != "serving_load");
        until("the end", || of_it().count() >= expected.len()).await;
        assert_eq!(of_it().collect::<Vec<_>>(), expected);
    }
}
