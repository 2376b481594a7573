//! Who is let in: the contract's order of checks, each with its status and reason.

use prost::Message;
use tonic::Code;
use torc::config;
use torc::relay::proto;
use torc::relay::reason::Reason;

use crate::producer::{BUCKETS, Producer};
use crate::server::{Client, Server, catalog, load, next, pool, readiness, serving, why};

type Why = (Code, Option<Reason>);

const MISMATCH: Why = (Code::FailedPrecondition, Some(Reason::ContractMismatch));
const INVALID: Why = (Code::InvalidArgument, Some(Reason::InvalidRequest));
const LIMIT: Why = (Code::ResourceExhausted, Some(Reason::ResourceLimit));

/// Opens a stream of each kind after `change` did something to its request's label and marker.
async fn all_streams(client: &mut Client, change: impl Fn(&mut String, &mut u32)) -> Vec<Why> {
    let key = Producer::new("nowhere", 1, BUCKETS).key();
    let (mut a, mut b, mut c, mut d, mut e) =
        (catalog(), readiness(), load(), serving(), pool(&key));
    change(&mut a.subscriber_id, &mut a.contract_marker);
    change(&mut b.subscriber_id, &mut b.contract_marker);
    change(&mut c.subscriber_id, &mut c.contract_marker);
    change(&mut d.subscriber_id, &mut d.contract_marker);
    change(&mut e.subscriber_id, &mut e.contract_marker);
    vec![
        why(&client.watch_kv_pool_catalog(a).await.unwrap_err()),
        why(&client.subscribe_serving_readiness(b).await.unwrap_err()),
        why(&client.subscribe_kv_pool_load(c).await.unwrap_err()),
        why(&client.subscribe_serving_load(d).await.unwrap_err()),
        why(&client.subscribe_kv_pool(e).await.unwrap_err()),
    ]
}

#[tokio::test]
async fn the_marker_comes_first_and_then_the_label() {
    let server = Server::start(config::Relay::default()).await;
    let mut client = server.client().await;
    let unmarked = proto::RelayInfoRequest::default();
    assert_eq!(why(&client.get_relay_info(unmarked).await.unwrap_err()), MISMATCH);
    let both = all_streams(&mut client, |label, marker| {
        (*marker, *label) = (0x4b56_5230, String::new());
    });
    assert_eq!(both.await, [MISMATCH; 5]);
    for bad in ["", "a\u{0}b", "tab\there", &"x".repeat(129), &"\u{e9}".repeat(65)] {
        let refused = all_streams(&mut client, |label, _| *label = bad.into()).await;
        assert_eq!(refused, [INVALID; 5], "{bad:?}");
    }
    let endless = all_streams(&mut client, |label, _| *label = "x".repeat(1 << 20)).await;
    assert_eq!(endless, [INVALID; 5]);
    // The marker and the label come before the producer, whatever is wrong with that.
    let mut both = pool(&Producer::new("nowhere", 1, BUCKETS).key());
    let producer = both.expected_producer.as_mut().unwrap();
    producer.pool_id.as_mut().unwrap().identity_version = 2;
    both.subscriber_id.clear();
    let (labelled, mut unmarked) = (both.clone(), both.clone());
    assert_eq!(why(&client.subscribe_kv_pool(labelled).await.unwrap_err()), INVALID);
    unmarked.contract_marker = 0;
    assert_eq!(why(&client.subscribe_kv_pool(unmarked).await.unwrap_err()), MISMATCH);
    both.subscriber_id = "test".into();
    let unsupported = (Code::FailedPrecondition, Some(Reason::UnsupportedFeature));
    assert_eq!(why(&client.subscribe_kv_pool(both).await.unwrap_err()), unsupported);
    // The longest label there can be, twice: it is a label and no key.
    let mut longest = catalog();
    longest.subscriber_id = "x".repeat(128);
    for _ in 0..2 {
        let mut stream = client.watch_kv_pool_catalog(longest.clone()).await.unwrap().into_inner();
        assert_eq!(next(&mut stream).await.revision, 0);
    }
}

#[tokio::test]
async fn a_relay_says_who_it_is() {
    let server = Server::start(config::Relay::default()).await;
    let request = proto::RelayInfoRequest { contract_marker: 0x4b56_5231 };
    let info = server.client().await.get_relay_info(request).await.unwrap().into_inner();
    let bytes = info.encode_to_vec();
    let text = include_str!("../vectors/relay-messages.json");
    let all: serde_json::Value = serde_json::from_str(text).unwrap();
    let row = all["messages"].as_array().unwrap().iter().find(|row| row["name"] == "relay_info");
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(row.unwrap()["hex"], hex);
}

#[tokio::test]
async fn every_recorded_producer_gets_the_recorded_reply() {
    let server = Server::start(config::Relay::default()).await;
    let mut client = server.client().await;
    let text = include_str!("../vectors/relay-messages.json");
    let all: serde_json::Value = serde_json::from_str(text).unwrap();
    let mut refused = 0;
    for row in all["validation"].as_array().unwrap() {
        if row["type"] != "ProducerIdentity" {
            continue;
        }
        let hex = row["hex"].as_str().unwrap();
        let bytes: Vec<u8> = (0..hex.len())
            .step_by(2)
            .map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap())
            .collect();
        let producer = proto::ProducerIdentity::decode(&bytes[..]).unwrap();
        let request = proto::SubscribeKvPoolRequest {
            subscriber_id: "test".into(),
            expected_producer: Some(producer),
            contract_marker: 0x4b56_5231,
        };
        let status = client.subscribe_kv_pool(request).await.unwrap_err();
        let (code, reason) = why(&status);
        let reason = reason.unwrap().as_str_name();
        match row.get("subscribe_reply") {
            None => {
                assert_eq!((code, reason), (Code::NotFound, "RELAY_ERROR_REASON_POOL_NOT_FOUND"))
            }
            Some(reply) => {
                refused += 1;
                assert_eq!(reply["trailer"], reason, "{}", row["name"]);
                let expected = match reply["status"].as_str().unwrap() {
                    "INVALID_ARGUMENT" => Code::InvalidArgument,
                    "FAILED_PRECONDITION" => Code::FailedPrecondition,
                    other => panic!("{other}"),
                };
                assert_eq!(code, expected, "{}", row["name"]);
            }
        }
    }
    assert!(refused > 15, "{refused}");
    let mut missing = pool(&Producer::new("a", 1, BUCKETS).key());
    missing.expected_producer = None;
    assert_eq!(why(&client.subscribe_kv_pool(missing).await.unwrap_err()), INVALID);
}

#[tokio::test]
async fn each_kind_of_stream_has_its_own_permits() {
    let limits = config::Relay {
        max_catalog_subscribers: 1,
        max_readiness_subscribers: 1,
        max_load_subscribers: 1,
        max_serving_load_subscribers: 1,
        max_pool_streams_total: 1,
        ..config::Relay::default()
    };
    let server = Server::start(limits).await;
    let producer = Producer::new("dc1", 1, BUCKETS);
    server.publish(&producer, "dc1");
    let mut client = server.client().await;
    let a = client.watch_kv_pool_catalog(catalog()).await.unwrap();
    let b = client.subscribe_serving_readiness(readiness()).await.unwrap();
    let c = client.subscribe_kv_pool_load(load()).await.unwrap();
    let d = client.subscribe_serving_load(serving()).await.unwrap();
    let e = client.subscribe_kv_pool(pool(&producer.key())).await.unwrap();
    // A full server says so before it looks for the pool.
    let more = all_streams(&mut client, |_, _| {}).await;
    assert_eq!(more, [LIMIT; 5]);
    // But a malformed producer is malformed first.
    let mut malformed = pool(&producer.key());
    malformed.expected_producer.as_mut().unwrap().layout_generation = 0;
    assert_eq!(why(&client.subscribe_kv_pool(malformed).await.unwrap_err()), INVALID);
    drop((a, b, c, d, e));
    let kinds = torc::relay_server::StreamKind::ALL;
    crate::server::until("permits come back", || {
        let open = |kind: &torc::relay_server::StreamKind| {
            let counters = server.relay.counters();
            counters.of(*kind).open.load(std::sync::atomic::Ordering::Relaxed)
        };
        kinds.iter().map(open).sum::<u64>() == 0
    })
    .await;
    client.subscribe_kv_pool(pool(&producer.key())).await.unwrap();
}

#[tokio::test]
async fn a_pool_is_found_by_its_generation() {
    let limits = config::Relay { max_subscribers_per_pool: 1, ..config::Relay::default() };
    let server = Server::start(limits).await;
    let producer = Producer::new("dc1", 5, BUCKETS);
    server.publish(&producer, "dc1");
    let mut client = server.client().await;
    let unknown = Producer::new("dc9", 5, BUCKETS).key();
    let status = client.subscribe_kv_pool(pool(&unknown)).await.unwrap_err();
    assert_eq!(why(&status), (Code::NotFound, Some(Reason::PoolNotFound)));
    for other in [Producer::new("dc1", 6, BUCKETS), Producer::new("dc1", 5, 2 * BUCKETS)] {
        let status = client.subscribe_kv_pool(pool(&other.key())).await.unwrap_err();
        assert_eq!(why(&status), (Code::FailedPrecondition, Some(Reason::ProducerChanged)));
    }
    let _first = client.subscribe_kv_pool(pool(&producer.key())).await.unwrap();
    let status = client.subscribe_kv_pool(pool(&producer.key())).await.unwrap_err();
    assert_eq!(why(&status), LIMIT);
}

#[tokio::test]
async fn idle_mirrors_make_room_and_busy_ones_do_not() {
    let limits = config::Relay { max_initialized_pool_hubs: 1, ..config::Relay::default() };
    let server = Server::start(limits).await;
    let (a, b) = (Producer::new("a", 1, BUCKETS), Producer::new("b", 1, BUCKETS));
    server.publish(&a, "a");
    server.publish(&b, "b");
    let mut client = server.client().await;
    let mut first = client.subscribe_kv_pool(pool(&a.key())).await.unwrap().into_inner();
    next(&mut first).await;
    let status = client.subscribe_kv_pool(pool(&b.key())).await.unwrap_err();
    assert_eq!(why(&status), LIMIT);
    drop(first);
    let relay = &server.relay;
    crate::server::until("the mirror is idle", || relay.report().idle_hubs == 1).await;
    let mut second = client.subscribe_kv_pool(pool(&b.key())).await.unwrap().into_inner();
    next(&mut second).await;
    let counters = server.relay.counters();
    assert_eq!(counters.hubs_evicted.load(std::sync::atomic::Ordering::Relaxed), 1);
}
