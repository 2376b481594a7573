//! Health, reflection, compression, crowds, and the end.

use std::sync::atomic::Ordering;

use tonic::Code;
use tonic::codec::CompressionEncoding;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{ServerReflectionRequest, ServerReflectionResponse};
use torc::config;
use torc::relay::reason::Reason;

use crate::filters::Replica;
use crate::producer::{BUCKETS, Producer};
use crate::server::{Server, catalog, end, load, next, readiness, until, why, within};

/// "Serving" of the health service.
const SERVING: i32 = 1;
const NOT_SERVING: i32 = 2;

#[tokio::test]
async fn health_is_told_by_name_and_turns_when_the_relay_stops() {
    let mut server = Server::start(config::Relay::default()).await;
    let mut health = HealthClient::new(server.channel().await);
    for name in ["", "dynamo.kvrelay.v1.KvEventRelay"] {
        let request = HealthCheckRequest { service: name.into() };
        let answer = health.check(request).await.unwrap().into_inner();
        assert_eq!(answer.status, SERVING, "{name}");
    }
    let unknown = HealthCheckRequest { service: "other".into() };
    assert_eq!(health.check(unknown).await.unwrap_err().code(), Code::NotFound);
    let watched = HealthCheckRequest { service: "dynamo.kvrelay.v1.KvEventRelay".into() };
    let mut changes = health.watch(watched).await.unwrap().into_inner();
    assert_eq!(next(&mut changes).await.status, SERVING);
    server.begin_stop();
    assert_eq!(next(&mut changes).await.status, NOT_SERVING);
    drop(changes);
    server.stopped().await;
}

async fn reflected(
    client: &mut ServerReflectionClient<tonic::transport::Channel>,
    request: MessageRequest,
) -> ServerReflectionResponse {
    let request = ServerReflectionRequest { host: String::new(), message_request: Some(request) };
    let stream = tokio_stream::once(request);
    let mut answers = client.server_reflection_info(stream).await.unwrap().into_inner();
    next(&mut answers).await
}

#[tokio::test]
async fn reflection_is_version_1() {
    let server = Server::start(config::Relay::default()).await;
    let mut client = ServerReflectionClient::new(server.channel().await);
    let list = reflected(&mut client, MessageRequest::ListServices(String::new())).await;
    let Some(MessageResponse::ListServicesResponse(list)) = list.message_response else {
        panic!("a list");
    };
    let names: Vec<&str> = list.service.iter().map(|service| service.name.as_str()).collect();
    assert!(names.contains(&"dynamo.kvrelay.v1.KvEventRelay"), "{names:?}");
    assert!(names.contains(&"grpc.health.v1.Health"), "{names:?}");
    let symbol = "dynamo.kvrelay.v1.FilterUpdate".into();
    let file = reflected(&mut client, MessageRequest::FileContainingSymbol(symbol)).await;
    assert!(matches!(file.message_response, Some(MessageResponse::FileDescriptorResponse(_))));
    // Clients of the earlier version are told that there is none.
    use tonic_reflection::pb::v1alpha::server_reflection_client as alpha;
    let mut old = alpha::ServerReflectionClient::new(server.channel().await);
    let nothing = tokio_stream::empty();
    let status = old.server_reflection_info(nothing).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
}

#[tokio::test]
async fn zstd_is_used_with_those_who_offer_it() {
    let server = Server::start(config::Relay::default()).await;
    let producer = Producer::new("dc1", 1, 1 << 19);
    server.publish(&producer, "dc1");
    let zstd = CompressionEncoding::Zstd;
    let mut client = server.client().await.accept_compressed(zstd).send_compressed(zstd);
    let response = client.watch_kv_pool_catalog(catalog()).await.unwrap();
    let encoding = response.metadata().get("grpc-encoding").map(|e| e.to_str().unwrap().to_owned());
    assert_eq!(encoding.as_deref(), Some("zstd"));
    Replica::open(&mut client, &producer).await.converge(&producer).await;
    let mut plain = server.client().await;
    let response = plain.watch_kv_pool_catalog(catalog()).await.unwrap();
    assert!(response.metadata().get("grpc-encoding").is_none());
}

#[tokio::test]
async fn streams_end_cleanly_when_the_relay_stops() {
    let mut server = Server::start(config::Relay::default()).await;
    let producer = Producer::new("dc1", 1, BUCKETS);
    server.publish(&producer, "dc1");
    let mut client = server.client().await;
    let mut a = client.watch_kv_pool_catalog(catalog()).await.unwrap().into_inner();
    let mut b = client.subscribe_serving_readiness(readiness()).await.unwrap().into_inner();
    let mut c = client.subscribe_kv_pool_load(load()).await.unwrap().into_inner();
    let mut filter = Replica::open(&mut client, &producer).await;
    filter.converge(&producer).await;
    server.begin_stop();
    end(&mut a).await.unwrap();
    end(&mut b).await.unwrap();
    end(&mut c).await.unwrap();
    end(&mut filter.stream).await.unwrap();
    drop(client);
    server.stopped().await;
}

#[tokio::test]
async fn a_reader_that_does_not_read_cannot_hold_the_relay_up() {
    let server = Server::start(config::Relay::default()).await;
    let producer = Producer::new("dc1", 1, 8 << 19);
    server.publish(&producer, "dc1");
    let stuck = Replica::open(&mut server.client().await, &producer).await;
    server.stop().await;
    drop(stuck);
}

#[tokio::test]
async fn a_crowd_is_refused_and_disturbs_nobody() {
    const CROWD: usize = 10_000;
    let server = Server::start(config::Relay::default()).await;
    let producer = Producer::new("dc1", 1, BUCKETS);
    server.publish(&producer, "dc1");
    let mut reader = Replica::open(&mut server.client().await, &producer).await;
    reader.converge(&producer).await;
    let channel = server.channel().await;
    let mut crowd = tokio::task::JoinSet::new();
    for _ in 0..CROWD {
        let mut client = crate::server::Client::new(channel.clone());
        crowd.spawn(async move { client.watch_kv_pool_catalog(catalog()).await });
    }
    let mut open = Vec::new();
    let mut refused = 0;
    while let Some(answer) = within(crowd.join_next()).await {
        match answer.unwrap() {
            Ok(stream) => open.push(stream),
            Err(status) => {
                let limit = (Code::ResourceExhausted, Some(Reason::ResourceLimit));
                assert_eq!(why(&status), limit);
                refused += 1;
            }
        }
    }
    assert_eq!((open.len(), refused), (64, CROWD - 64));
    producer.change(&[crate::producer::image(1, 1)]);
    reader.converge(&producer).await;
    drop(open);
    let kind = torc::relay_server::StreamKind::Catalog;
    until("their permits come back", || {
        server.relay.counters().of(kind).open.load(Ordering::Relaxed) == 0
    })
    .await;
}
