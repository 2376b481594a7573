//! Clients that hardly read, and more of them than are let in.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};
use torc::config;
use torc::relay_server::StreamKind;

use crate::filters::Replica;
use crate::producer::{BUCKETS, Producer, image};
use crate::server::{Client, Server, catalog, load, next, pool, until, within};

/// A way to `address` that carries one byte a second back from it; gives its own address.
async fn trickle(address: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let here = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let (client, _) = listener.accept().await.unwrap();
        let socket = TcpSocket::new_v4().unwrap();
        // What lies in buffers on the way is little.
        socket.set_recv_buffer_size(4096).unwrap();
        let server = socket.connect(address.parse().unwrap()).await.unwrap();
        let (mut from_client, mut to_client) = client.into_split();
        let (mut from_server, mut to_server) = server.into_split();
        tokio::spawn(async move {
            // It ends with the client.
            let _ = tokio::io::copy(&mut from_client, &mut to_server).await;
        });
        while let Ok(byte) = from_server.read_u8().await {
            if to_client.write_u8(byte).await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    here
}

async fn trickling_client(server: &Server) -> Client {
    let address = trickle(server.address.clone()).await;
    let channel = tonic::transport::Endpoint::from_shared(format!("http://{address}")).unwrap();
    Client::new(channel.connect_lazy()).max_decoding_message_size(8 << 20)
}

#[tokio::test]
async fn a_reader_of_one_byte_a_second_holds_nothing_up() {
    let limits = config::Relay {
        publication_queue_bytes: torc::config::ByteSize(4_194_624),
        publication_encoding_concurrency: 1,
        // Long enough for any reader that reads at all.
        snapshot_progress_timeout_ms: 3_000,
        load_window_ms: 1,
        load_fanout_capacity: 4,
        ..config::Relay::default()
    };
    let server = Server::start(limits).await;
    let producer = Producer::new("dc1", 1, 8 << 19);
    server.publish(&producer, "dc1");
    let mut slow = trickling_client(&server).await;
    let key = producer.key();
    let mut of_windows = slow.clone();
    let asked = [
        tokio::spawn(async move { slow.subscribe_kv_pool(pool(&key)).await.map(|_| ()) }),
        tokio::spawn(async move { of_windows.subscribe_kv_pool_load(load()).await.map(|_| ()) }),
    ];
    let open = |kind| server.relay.counters().of(kind).open.load(Ordering::Relaxed);
    until("both streams are open", || open(StreamKind::Pool) + open(StreamKind::Load) == 2).await;
    // The only encoder is its until it is given up; then it is the next one's.
    let mut other = Replica::open(&mut server.client().await, &producer).await;
    for round in 1..20 {
        producer.change(&[image(round, 1)]);
    }
    other.converge(&producer).await;
    // What it has not read yet is not kept for it: a frame in its connection at most.
    let waiting = || server.relay.report().pools[0].subscribers.clone();
    until("its queue is gone", || waiting().len() == 1).await;
    let mut windows = server.client().await.subscribe_kv_pool_load(load()).await.unwrap();
    let first = next(windows.get_mut()).await.window_sequence;
    assert!(next(windows.get_mut()).await.window_sequence > first);
    // With its connection its permits come back.
    asked.iter().for_each(tokio::task::JoinHandle::abort);
    drop(asked);
    until("its permits come back", || open(StreamKind::Pool) + open(StreamKind::Load) == 2).await;
}

#[tokio::test]
async fn more_connections_than_may_be_wait_to_be_accepted() {
    const MOST: usize = 3;
    let limits = config::Relay { connections_max: MOST, ..config::Relay::default() };
    let server = Server::start(limits).await;
    let producer = Producer::new("dc1", 1, BUCKETS);
    server.publish(&producer, "dc1");
    let mut held = Vec::new();
    for _ in 0..MOST {
        let mut client = server.client().await;
        let stream = client.watch_kv_pool_catalog(catalog()).await.unwrap().into_inner();
        held.push((client, stream));
    }
    let mut crowd = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let channel = server.channel().await;
        crowd.spawn(async move {
            Client::new(channel).watch_kv_pool_catalog(catalog()).await.map(|_| ())
        });
    }
    // Those inside are served while all others wait.
    producer.change(&[image(1, 1)]);
    server.relay.withdraw(&producer.key().pool());
    for (_, stream) in &mut held {
        while next(stream).await.revision < 2 {}
    }
    let accepted = server.relay.counters().connections.load(Ordering::Relaxed);
    assert_eq!((accepted, crowd.try_join_next().is_none()), (MOST as u64, true));
    drop(held);
    // One after the other gets its turn.
    while let Some(answer) = within(crowd.join_next()).await {
        answer.unwrap().unwrap();
    }
}
