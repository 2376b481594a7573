//! Frames and envelopes that cannot be taken, one relay for each.

use bytes::Bytes;
use serde_json::Value;
use torc::ckf::bucket::BucketImage;
use torc::ckf::cbi1::{self, Stamp};
use torc::ckf::format::CkfFormat;
use torc::relay::ProducerKey;
use torc::relay::descriptor::Descriptor;
use torc::relay::envelope::{CONTRACT_MARKER, PROTOCOL_VERSION};
use torc::relay::mirror::Mirror;
use torc::relay::proto::{self, FilterUpdateKind as Kind};
use torc::relay::queue::Frame;

use crate::bad_peers::{catalog, frame, right};
use crate::consumer::Follower;
use crate::producer::{BUCKETS, Producer, image};
use crate::scripted::{Script, Scripted};
use crate::server::{RELAY, until};

/// A frame of the recorded CBI1 format: four buckets, seed 42.
fn recorded(key: &ProducerKey, payload: Bytes) -> proto::FilterUpdate {
    proto::FilterUpdate {
        protocol_version: PROTOCOL_VERSION,
        relay: Some(RELAY.into()),
        producer: Some(key.into()),
        base_sequence: 3,
        sequence: 3,
        send_ts_us: 1,
        kind: Kind::SnapshotChunk as i32,
        payload,
        contract_marker: CONTRACT_MARKER,
    }
}

#[tokio::test]
async fn every_recorded_bad_payload_voids_its_replica_with_its_own_name() {
    let all: Value = serde_json::from_str(include_str!("../vectors/cbi1.json")).unwrap();
    let producer = Producer::new("a", 1, 4);
    let mut identity = *producer.key().identity();
    identity.format = CkfFormat::new(42, 4).unwrap();
    let key = ProducerKey::try_from(identity).unwrap();
    let pool = Descriptor { key, ..producer.descriptor("a") };
    let mut rows: Vec<(String, String, Vec<u8>)> = Vec::new();
    for row in all["rejected"].as_array().unwrap() {
        let hex = row["hex"].as_str().unwrap();
        let byte = |i: usize| u8::from_str_radix(&hex[i..i + 2], 16).unwrap();
        let bytes = (0..hex.len()).step_by(2).map(byte).collect();
        let text = |field: &str| row[field].as_str().unwrap().to_owned();
        rows.push((text("name"), text("expect_error"), bytes));
    }
    assert_eq!(rows.len(), 32);
    let large = cbi1::FRAME_BYTES_MAX + 8;
    rows.push(("one_word_over".into(), "frame_too_large".into(), vec![0; large]));
    for (name, label, payload) in rows {
        let scripted = Scripted::with(|scripts| {
            scripts.catalog.push_back(Script::stays(vec![catalog(1, &[&pool])]));
            scripts.filter.push_back(Script::stays(vec![recorded(&key, payload.into())]));
        });
        let follower = Follower::default();
        let _following = follower.follow(&scripted.serve().await);
        until(&name, || follower.has_end("filter", &label)).await;
        let notes = follower.0.lock().unwrap();
        assert_eq!((notes.replicas.len(), notes.connected.len()), (0, 1), "{name}");
        let again = notes.ends.iter().find(|end| end.0 == "filter").unwrap();
        assert!(again.2, "{name}: a fresh snapshot may be right");
    }
}

fn delta(producer: &Producer, base: u64, sequence: u64, images: &[BucketImage]) -> Frame {
    let key = producer.key();
    let stamp = Stamp { format: *key.format(), dc_id: key.pool().dc_id, epoch: sequence };
    let mut payload = Vec::new();
    cbi1::encode_delta(&mut payload, &stamp, base, images).unwrap();
    Frame { kind: Kind::Delta, base, sequence, payload: payload.into() }
}

/// What a stream says wrong, and how it ends then; the first is what it says before.
fn wrong_streams(producer: &Producer) -> Vec<(&'static str, Vec<proto::FilterUpdate>)> {
    let frames = right(producer);
    let [snapshot, first] = &frames[..] else { panic!("two frames") };
    let next = |base, sequence, images: &[BucketImage]| {
        frame(producer, &delta(producer, base, sequence, images))
    };
    let changed = |change: &dyn Fn(&mut proto::FilterUpdate)| {
        let mut other = next(1, 2, &[image(2, 2)]);
        change(&mut other);
        vec![snapshot.clone(), first.clone(), other]
    };
    let after = |other: proto::FilterUpdate| vec![snapshot.clone(), first.clone(), other];
    let heartbeat = |sequence| frame(producer, &Frame::heartbeat(sequence));
    let other_dc = {
        let foreign = Producer::new("elsewhere", 1, BUCKETS);
        let mut other = next(1, 2, &[image(2, 2)]);
        other.payload = delta(&foreign, 1, 2, &[image(2, 2)]).payload;
        other
    };
    vec![
        ("gap", after(first.clone())),
        ("gap", after(next(0, 2, &[image(1, 1)]))),
        ("gap", after(next(2, 3, &[image(1, 1)]))),
        ("gap", after(next(1, 3, &[image(1, 1)]))),
        ("gap", after(heartbeat(0))),
        ("gap", after(heartbeat(2))),
        ("empty_delta", after(next(1, 2, &[]))),
        ("before_snapshot", vec![first.clone()]),
        ("before_snapshot", vec![heartbeat(0)]),
        ("second_snapshot", after(snapshot.clone())),
        ("sequence", changed(&|update| update.sequence = 3)),
        ("sequence", changed(&|update| update.base_sequence = 0)),
        ("payload_kind", changed(&|update| update.payload = snapshot.payload.clone())),
        ("payload_kind", {
            let mut full = heartbeat(1);
            full.payload = first.payload.clone();
            after(full)
        }),
        ("unknown_frame_kind", changed(&|update| update.kind = 0)),
        ("unknown_frame_kind", changed(&|update| update.kind = 4)),
        ("unknown_frame_kind", changed(&|update| update.kind = -1)),
        ("other_datacenter", after(other_dc)),
        (
            "other_producer",
            changed(&|update| {
                update.producer.as_mut().unwrap().producer_incarnation += 1;
            }),
        ),
        (
            "other_producer",
            changed(&|update| {
                update.producer.as_mut().unwrap().layout_generation += 1;
            }),
        ),
        ("missing_field", changed(&|update| update.producer = None)),
        (
            "pool_identity_version",
            changed(&|update| {
                let producer = update.producer.as_mut().unwrap();
                producer.pool_id.as_mut().unwrap().identity_version = 2;
            }),
        ),
    ]
}

#[tokio::test]
async fn gaps_replays_and_mixed_generations_void_the_replica_and_it_begins_anew() {
    let producer = Producer::new("a", 1, BUCKETS);
    for (i, (label, says)) in wrong_streams(&producer).into_iter().enumerate() {
        let scripted = Scripted::with(|scripts| {
            let update = catalog(1, &[&producer.descriptor("a")]);
            scripts.catalog.push_back(Script::stays(vec![update]));
            scripts.filter.push_back(Script::stays(says));
            scripts.filter.push_back(Script::stays(right(&producer)));
        });
        let follower = Follower::default();
        let _following = follower.follow(&scripted.serve().await);
        until(label, || follower.has_end("filter", label)).await;
        until("a fresh snapshot and its delta", || {
            let notes = follower.0.lock().unwrap();
            scripted.opened()[3] == 2
                && notes.replicas.get(&producer.key()).is_some_and(|words| words[1] == 1)
        })
        .await;
        let notes = follower.0.lock().unwrap();
        assert_eq!(notes.replicas[&producer.key()][2], 0, "{i} {label}: nothing wrong was taken");
        assert_eq!(notes.connected.len(), 1, "{i} {label}");
        let ends = notes.ends.iter().filter(|end| end.0 != "serving_load");
        assert_eq!(ends.collect::<Vec<_>>(), [&("filter", label, true)], "{i}");
    }
}

#[tokio::test]
async fn chunks_of_a_snapshot_come_in_order_or_not_at_all() {
    let producer = Producer::new("a", 1, 2 << 19);
    let cut = |sequence| Mirror::new(producer.key(), producer.words(), sequence).unwrap().cut();
    let chunk = |sequence, index| frame(&producer, &cut(sequence).chunk(index).unwrap());
    for says in [vec![chunk(0, 1)], vec![chunk(0, 0), chunk(5, 1)], vec![chunk(5, 0), chunk(0, 1)]]
    {
        let scripted = Scripted::with(|scripts| {
            let update = catalog(1, &[&producer.descriptor("a")]);
            scripts.catalog.push_back(Script::stays(vec![update]));
            scripts.filter.push_back(Script::stays(says));
            // A snapshot may begin over again.
            let good = vec![chunk(5, 0), chunk(7, 0), chunk(7, 1)];
            scripts.filter.push_back(Script::stays(good));
        });
        let follower = Follower::default();
        let _following = follower.follow(&scripted.serve().await);
        until("the wrong order", || follower.has_end("filter", "chunk_sequence")).await;
        until("the whole filter", || follower.holds(&producer)).await;
    }
}

/// One plane's first message with a wrong envelope.
fn misaddressed(
    plane: usize,
    change: &dyn Fn(&mut u32, &mut u32, &mut Option<proto::RelayIdentity>),
) -> Scripted {
    let producer = Producer::new("a", 1, BUCKETS);
    let mut says = (
        catalog(1, &[&producer.descriptor("a")]),
        proto::ServingReadinessUpdate {
            protocol_version: PROTOCOL_VERSION,
            relay: Some(RELAY.into()),
            revision: 1,
            entries: Vec::new(),
            contract_marker: CONTRACT_MARKER,
        },
        proto::KvPoolLoadUpdate {
            protocol_version: PROTOCOL_VERSION,
            relay: Some(RELAY.into()),
            window_sequence: 1,
            observed_ms: 1,
            window_ms: 1,
            pools: Vec::new(),
            contract_marker: CONTRACT_MARKER,
        },
        proto::ServingLoadUpdate {
            protocol_version: PROTOCOL_VERSION,
            relay: Some(RELAY.into()),
            window_sequence: 1,
            observed_ms: 1,
            window_ms: 1,
            pools: Vec::new(),
            models: Vec::new(),
            contract_marker: CONTRACT_MARKER,
        },
        right(&producer).remove(0),
    );
    macro_rules! change {
        ($message:expr) => {
            change(
                &mut $message.contract_marker,
                &mut $message.protocol_version,
                &mut $message.relay,
            )
        };
    }
    match plane {
        0 => change!(says.0),
        1 => change!(says.1),
        2 => change!(says.2),
        3 => change!(says.3),
        _ => change!(says.4),
    }
    Scripted::with(|scripts| {
        scripts.catalog.push_back(Script::stays(vec![says.0]));
        scripts.readiness.push_back(Script::stays(vec![says.1]));
        scripts.load.push_back(Script::stays(vec![says.2]));
        scripts.serving.push_back(Script::stays(vec![says.3]));
        scripts.filter.push_back(Script::stays(vec![says.4]));
    })
}

#[tokio::test]
async fn a_wrong_envelope_in_any_plane_voids_the_connection() {
    for plane in 0..5 {
        for (label, again) in [
            ("contract_marker", false),
            ("protocol_version", false),
            ("missing_relay", true),
            ("relay_changed", true),
        ] {
            let scripted = misaddressed(plane, &|marker, version, relay| match label {
                "contract_marker" => *marker = 0,
                "protocol_version" => *version = 2,
                "missing_relay" => relay.as_mut().unwrap().relay_incarnation = 0,
                _ => relay.as_mut().unwrap().drt_instance_id += 1,
            });
            let follower = Follower::default();
            let mut following = follower.follow(&scripted.serve().await);
            until(label, || follower.has_end("connection", label)).await;
            let first = follower.ends()[0];
            assert_eq!(first, ("connection", label, again), "plane {plane}");
            if !again {
                crate::server::within(&mut following.0).await.unwrap();
            }
        }
    }
}
