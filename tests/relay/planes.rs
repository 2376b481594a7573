//! Catalog, readiness and load as streams.

use tonic::{Code, Streaming};
use torc::config;
use torc::relay::readiness::{Served, derive};
use torc::relay::reason::Reason;
use torc::relay_server::StreamKind;

use crate::producer::{BUCKETS, Producer};
use crate::server::{Server, catalog, load, next, readiness, serving, until, why, within};

#[tokio::test]
async fn the_catalog_comes_at_once_and_with_every_change() {
    let server = Server::start(config::Relay::default()).await;
    let mut client = server.client().await;
    let mut stream = client.watch_kv_pool_catalog(catalog()).await.unwrap().into_inner();
    let first = next(&mut stream).await;
    assert_eq!((first.revision, first.snapshot.unwrap().pools.len()), (0, 0));
    let (a, b) = (Producer::new("a", 1, BUCKETS), Producer::new("b", 1, BUCKETS));
    server.publish(&a, "a");
    let changed = next(&mut stream).await;
    assert_eq!((changed.revision, changed.snapshot.unwrap().pools.len()), (1, 1));
    // The same again changes nothing.
    server.publish(&a, "a");
    server.publish(&b, "b");
    let changed = next(&mut stream).await;
    assert_eq!((changed.revision, changed.snapshot.unwrap().pools.len()), (2, 2));
    server.relay.withdraw(&a.key().pool());
    let changed = next(&mut stream).await;
    let left = changed.snapshot.unwrap().pools;
    assert_eq!((changed.revision, left.len()), (3, 1));
    assert_eq!(left[0].serving_endpoint.as_ref().unwrap().component, "b");
    // Whoever comes later begins with the same.
    let mut late = client.watch_kv_pool_catalog(catalog()).await.unwrap().into_inner();
    assert_eq!(next(&mut late).await.revision, 3);
}

#[tokio::test]
async fn unchanged_planes_are_repeated() {
    let limits = config::Relay {
        catalog_heartbeat_interval_ms: 20,
        readiness_heartbeat_interval_ms: 20,
        ..config::Relay::default()
    };
    let server = Server::start(limits).await;
    let producer = Producer::new("a", 1, BUCKETS);
    server.publish(&producer, "a");
    let mut client = server.client().await;
    let mut stream = client.watch_kv_pool_catalog(catalog()).await.unwrap().into_inner();
    let first = next(&mut stream).await;
    for _ in 0..3 {
        assert_eq!(next(&mut stream).await, first);
    }
    let mut stream = client.subscribe_serving_readiness(readiness()).await.unwrap().into_inner();
    let first = next(&mut stream).await;
    assert_eq!((first.revision, first.entries.len()), (1, 0));
    assert_eq!(next(&mut stream).await, first);
    let pool = producer.descriptor("a");
    server.relay.set_readiness(derive(&[Served { pool: &pool, alive: Some(true) }]));
    loop {
        let now = next(&mut stream).await;
        if now.revision == 2 {
            assert_eq!((now.entries.len(), now.entries[0].state), (1, 2));
            break;
        }
        assert_eq!(now, first);
    }
}

#[tokio::test]
async fn windows_rise_by_one_and_begin_with_the_latest() {
    let limits = config::Relay { load_window_ms: 10, ..config::Relay::default() };
    let server = Server::start(limits).await;
    let producer = Producer::new("a", 1, BUCKETS);
    let mut client = server.client().await;
    let mut stream = client.subscribe_kv_pool_load(load()).await.unwrap().into_inner();
    let mut last = next(&mut stream).await;
    server.publish(&producer, "a");
    for _ in 0..20 {
        let window = next(&mut stream).await;
        assert_eq!(window.window_sequence, last.window_sequence + 1);
        assert_eq!(window.window_ms, 10);
        last = window;
    }
    let [entry] = &last.pools[..] else { panic!("one pool") };
    assert_eq!((entry.kv_used_blocks, entry.total_kv_blocks), (10, 40));
    assert_eq!((entry.kv_observed_ranks, entry.kv_expected_ranks), (1, 1));
    let mut stream = client.subscribe_serving_load(serving()).await.unwrap().into_inner();
    let first = next(&mut stream).await;
    assert!(first.window_sequence >= last.window_sequence);
    let second = next(&mut stream).await;
    assert_eq!(second.window_sequence, first.window_sequence + 1);
    // Every live pool is listed, even without data.
    assert_eq!(second.pools.len(), 1);
    torc::relay::serving::check_pool(&second.pools[0]).unwrap();
}

/// A relay whose windows are large and follow each other at once, so that a connection is soon
/// full.
async fn flooding() -> Server {
    let limits =
        config::Relay { load_window_ms: 1, load_fanout_capacity: 2, ..config::Relay::default() };
    let server = Server::start(limits).await;
    for n in 0..400 {
        let name = format!("dc{n}");
        server.publish(&Producer::new(&name, 1, 2), &name);
    }
    server
}

/// Reads one message, then nothing for many windows, and so on: a full connection is told when it
/// has room again.
async fn is_told<M>(server: &Server, kind: StreamKind, mut stream: Streaming<M>) {
    let status = within(async {
        loop {
            let window = || server.relay.report().load_window;
            let next = window() + 10;
            until("windows go by", || window() >= next).await;
            match stream.message().await {
                Ok(message) => assert!(message.is_some(), "the stream ended without a reason"),
                Err(status) => break status,
            }
        }
    })
    .await;
    assert_eq!(server.relay.counters().of(kind).ended(Reason::SubscriberLagged), 1);
    assert_eq!(why(&status), (Code::ResourceExhausted, Some(Reason::SubscriberLagged)));
}

#[tokio::test]
async fn whoever_misses_windows_is_told_so() {
    let server = flooding().await;
    let stream = server.client().await.subscribe_kv_pool_load(load()).await.unwrap();
    is_told(&server, StreamKind::Load, stream.into_inner()).await;
    let stream = server.client().await.subscribe_serving_load(serving()).await.unwrap();
    is_told(&server, StreamKind::ServingLoad, stream.into_inner()).await;
}
