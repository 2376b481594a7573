//! Streams of filters: snapshot, deltas, heartbeats, and every way they end.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::task::JoinHandle;
use tonic::{Code, Status, Streaming};
use torc::affinity::publication::{Cut, Delta, Frame, Subscriber};
use torc::ckf::cbi1::DELTA_IMAGES_MAX;
use torc::config;
use torc::relay::consumer::{FilterPlane, Step};
use torc::relay::proto::FilterUpdate;
use torc::relay::reason::Reason;
use torc::relay_server::PoolSource;

use crate::producer::{BUCKETS, Producer, image};
use crate::server::{Client, RELAY, Server, end, next, pool, until, why};

/// A subscriber that keeps a replica by the consumer's own rules.
pub struct Replica {
    pub stream: Streaming<FilterUpdate>,
    pub plane: FilterPlane,
    pub words: Vec<u64>,
    pub heartbeats: u64,
}

impl Replica {
    pub async fn open(client: &mut Client, producer: &Producer) -> Replica {
        let key = producer.key();
        let stream = client.subscribe_kv_pool(pool(&key)).await.unwrap().into_inner();
        let plane = FilterPlane::new(RELAY, key);
        Replica { stream, plane, words: Vec::new(), heartbeats: 0 }
    }

    /// Takes one frame.
    pub async fn step(&mut self) {
        let update = next(&mut self.stream).await;
        match self.plane.take(&update).unwrap() {
            Step::Partial => assert!(self.words.is_empty()),
            Step::Snapshot(snapshot) => self.words = snapshot.words,
            Step::Delta { images, .. } => {
                for image in images {
                    self.words[image.bucket as usize] = image.word;
                }
            }
            Step::Heartbeat => self.heartbeats += 1,
        }
    }

    /// Takes frames until the replica holds what the producer does.
    pub async fn converge(&mut self, producer: &Producer) {
        while self.words != producer.words() {
            self.step().await;
        }
    }
}

fn ended(server: &Server, reason: Reason) -> u64 {
    server.relay.counters().of(torc::relay_server::StreamKind::Pool).ended(reason)
}

#[tokio::test]
async fn many_subscribers_share_one_mirror_and_converge() {
    let server = Server::start(config::Relay::default()).await;
    let producer = Producer::new("dc1", 1, BUCKETS);
    producer.change(&[image(3, 3)]);
    server.publish(&producer, "dc1");
    let mut client = server.client().await;
    let mut first = Replica::open(&mut client, &producer).await;
    let update = next(&mut first.stream).await;
    // A new generation's first cut is number 0, whatever its publisher counts.
    assert_eq!((update.base_sequence, update.sequence), (0, 0));
    assert!(matches!(first.plane.take(&update), Ok(Step::Snapshot(_))));
    first.words = producer.words();
    for round in 0..10 {
        producer.change(&[image(round, 100), image(1023, u64::from(round))]);
    }
    first.converge(&producer).await;
    let mut second = Replica::open(&mut client, &producer).await;
    second.converge(&producer).await;
    producer.change(&[image(9, 9)]);
    first.converge(&producer).await;
    second.converge(&producer).await;
    assert_eq!(first.plane.installed(), second.plane.installed());
    assert_eq!(producer.followers(), 1);
}

#[tokio::test]
async fn a_table_of_several_chunks_arrives_whole() {
    let server = Server::start(config::Relay::default()).await;
    let producer = Producer::new("dc1", 1, 4 << 19);
    producer.change(&[image(0, 1), image((4 << 19) - 1, 2), image(1 << 19, 3)]);
    server.publish(&producer, "dc1");
    let mut replica = Replica::open(&mut server.client().await, &producer).await;
    // What changes meanwhile comes after the last chunk.
    producer.change(&[image(5, 5)]);
    replica.converge(&producer).await;
}

#[tokio::test]
async fn silence_is_broken_by_heartbeats_that_repeat_the_sequence() {
    let limits = config::Relay { pool_heartbeat_interval_ms: 10, ..config::Relay::default() };
    let server = Server::start(limits).await;
    let producer = Producer::new("dc1", 1, BUCKETS);
    server.publish(&producer, "dc1");
    let mut replica = Replica::open(&mut server.client().await, &producer).await;
    while replica.heartbeats < 2 {
        replica.step().await;
    }
    producer.change(&[image(1, 1)]);
    replica.converge(&producer).await;
    let before = replica.heartbeats;
    while replica.heartbeats < before + 2 {
        replica.step().await;
    }
    assert_eq!(replica.plane.installed(), Some(1));
}

#[tokio::test]
async fn nothing_is_sent_for_changes_that_were_taken_back() {
    let limits = config::Relay { pool_heartbeat_interval_ms: 50, ..config::Relay::default() };
    let server = Server::start(limits).await;
    let producer = Producer::new("dc1", 1, BUCKETS);
    server.publish(&producer, "dc1");
    let mut replica = Replica::open(&mut server.client().await, &producer).await;
    replica.step().await;
    producer.change(&[image(1, 0)]);
    while replica.heartbeats == 0 {
        replica.step().await;
    }
    assert_eq!(replica.plane.installed(), Some(0));
}

#[tokio::test]
async fn a_withdrawn_or_replaced_generation_ends_its_streams() {
    let server = Server::start(config::Relay::default()).await;
    let (old, new) = (Producer::new("dc1", 1, BUCKETS), Producer::new("dc1", 2, BUCKETS));
    server.publish(&old, "dc1");
    let mut client = server.client().await;
    let mut replica = Replica::open(&mut client, &old).await;
    replica.step().await;
    server.publish(&new, "dc1");
    let gone = (Code::Unavailable, Some(Reason::PublicationUnavailable));
    assert_eq!(why(&end(&mut replica.stream).await.unwrap_err()), gone);
    let status = client.subscribe_kv_pool(pool(&old.key())).await.unwrap_err();
    assert_eq!(why(&status), (Code::FailedPrecondition, Some(Reason::ProducerChanged)));
    let mut replica = Replica::open(&mut client, &new).await;
    replica.step().await;
    server.relay.withdraw(&new.key().pool());
    assert_eq!(why(&end(&mut replica.stream).await.unwrap_err()), gone);
    let status = client.subscribe_kv_pool(pool(&new.key())).await.unwrap_err();
    assert_eq!(why(&status), (Code::NotFound, Some(Reason::PoolNotFound)));
}

#[tokio::test]
async fn what_a_mirror_missed_makes_its_streams_begin_anew() {
    let server = Server::start(config::Relay::default()).await;
    let producer = Producer::new("dc1", 1, BUCKETS);
    server.publish(&producer, "dc1");
    let mut client = server.client().await;
    let gone = (Code::Unavailable, Some(Reason::PublicationUnavailable));
    let mut replica = Replica::open(&mut client, &producer).await;
    producer.change(&[image(1, 1)]);
    replica.converge(&producer).await;
    let sequence = replica.plane.installed();
    producer.drop_followers();
    assert_eq!(why(&end(&mut replica.stream).await.unwrap_err()), gone);
    producer.change(&[image(2, 2)]);
    let mut replica = Replica::open(&mut client, &producer).await;
    replica.converge(&producer).await;
    // The pool is the same generation, so its numbers go on.
    assert!(replica.plane.installed() >= sequence);
    // Its publisher says that the generation ended.
    producer.tell(Frame::Ended);
    assert_eq!(why(&end(&mut replica.stream).await.unwrap_err()), gone);
}

#[tokio::test]
async fn a_change_too_large_for_a_frame_ends_the_streams() {
    let server = Server::start(config::Relay::default()).await;
    let producer = Producer::new("dc1", 1, 1 << 19);
    server.publish(&producer, "dc1");
    let mut client = server.client().await;
    let mut replica = Replica::open(&mut client, &producer).await;
    replica.step().await;
    let images: Vec<_> = (0..=DELTA_IMAGES_MAX as u32).map(|bucket| image(bucket, 1)).collect();
    producer.change(&images);
    let gone = (Code::Unavailable, Some(Reason::PublicationUnavailable));
    assert_eq!(why(&end(&mut replica.stream).await.unwrap_err()), gone);
    let mut replica = Replica::open(&mut client, &producer).await;
    replica.converge(&producer).await;
}

#[tokio::test]
async fn a_publisher_that_breaks_its_own_rules_is_withdrawn() {
    let server = Server::start(config::Relay::default()).await;
    let wrong = [
        Delta { base: 47, sequence: 48, images: Arc::from([image(1, 1)]) },
        Delta { base: 40, sequence: 41, images: Arc::from([image(BUCKETS as u32, 1)]) },
    ];
    let mut client = server.client().await;
    for (life, delta) in (1..).zip(wrong) {
        let producer = Producer::new("dc1", life, BUCKETS);
        server.publish(&producer, "dc1");
        let mut replica = Replica::open(&mut client, &producer).await;
        replica.step().await;
        producer.tell(Frame::Delta(delta));
        let status = end(&mut replica.stream).await.unwrap_err();
        let invalid = (Code::FailedPrecondition, Some(Reason::InvalidPublication));
        assert_eq!(why(&status), invalid);
        until("it leaves the catalog", || server.relay.published().is_empty()).await;
        // And does not come back under the same generation.
        server.publish(&producer, "dc1");
        assert!(server.relay.published().is_empty());
    }
}

/// A publisher that gives less than its whole filter.
struct Short(Producer);

impl PoolSource for Short {
    fn subscribe(&self, subscriber: Box<dyn Subscriber>) -> Option<Cut> {
        let mut cut = self.0.subscribe(subscriber)?;
        cut.words.pop();
        Some(cut)
    }
}

#[tokio::test]
async fn what_a_publisher_gives_is_the_filter_asked_for_or_none() {
    let server = Server::start(config::Relay::default()).await;
    let mut client = server.client().await;
    let (old, new) = (Producer::new("dc1", 1, BUCKETS), Producer::new("dc1", 2, BUCKETS));
    // Its publisher went on a moment before the catalog says so.
    server.relay.publish(old.descriptor("dc1"), Arc::new(new.clone())).unwrap();
    let status = client.subscribe_kv_pool(pool(&old.key())).await.unwrap_err();
    assert_eq!(why(&status), (Code::FailedPrecondition, Some(Reason::ProducerChanged)));
    server.publish(&new, "dc1");
    Replica::open(&mut client, &new).await.converge(&new).await;
    let short = Producer::new("dc1", 3, BUCKETS);
    server.relay.publish(short.descriptor("dc1"), Arc::new(Short(short.clone()))).unwrap();
    let status = client.subscribe_kv_pool(pool(&short.key())).await.unwrap_err();
    assert_eq!(why(&status), (Code::FailedPrecondition, Some(Reason::InvalidPublication)));
    assert!(server.relay.published().is_empty(), "it is withdrawn");
}

#[tokio::test]
async fn a_reader_that_stops_loses_its_stream_and_nobody_elses() {
    let server = Server::start(config::Relay::default()).await;
    let producer = Producer::new("dc1", 1, 1 << 19);
    server.publish(&producer, "dc1");
    // A connection of its own, so that its window is its own.
    let mut slow = Replica::open(&mut server.client().await, &producer).await;
    let mut reader = Replica::open(&mut server.client().await, &producer).await;
    slow.step().await;
    reader.converge(&producer).await;
    // Frames of a megabyte fill any buffer on the way.
    let mut round = 0;
    while ended(&server, Reason::SubscriberLagged) == 0 && slow.words.len() == 1 << 19 {
        round += 1;
        let images: Vec<_> = (0..90_000).map(|bucket| image(bucket, round)).collect();
        producer.change(&images);
        reader.converge(&producer).await;
        let full = server.relay.report().pools[0].subscribers.len() == 1;
        if full {
            break;
        }
    }
    let status = end(&mut slow.stream).await.unwrap_err();
    assert_eq!(why(&status), (Code::ResourceExhausted, Some(Reason::SubscriberLagged)));
    producer.change(&[image(1, 77)]);
    reader.converge(&producer).await;
}

#[tokio::test]
async fn a_reader_that_stops_within_its_snapshot_frees_the_encoder() {
    let limits = config::Relay {
        publication_queue_bytes: torc::config::ByteSize(4_194_624),
        publication_encoding_concurrency: 1,
        // Long enough for any reader that reads at all.
        snapshot_progress_timeout_ms: 3_000,
        ..config::Relay::default()
    };
    let server = Server::start(limits).await;
    let producer = Producer::new("dc1", 1, 16 << 19);
    server.publish(&producer, "dc1");
    let mut slow = Replica::open(&mut server.client().await, &producer).await;
    // The only encoder is its; another subscriber waits until it is given up.
    let mut other = Replica::open(&mut server.client().await, &producer).await;
    other.converge(&producer).await;
    let status = end(&mut slow.stream).await.unwrap_err();
    let timeout = (Code::ResourceExhausted, Some(Reason::SnapshotProgressTimeout));
    assert_eq!(why(&status), timeout);
    // The generation is as good as before.
    assert_eq!(server.relay.published().len(), 1);
    assert_eq!(server.relay.counters().hubs_failed.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_subscriber_that_waits_for_an_encoder_hears_that_the_relay_stops() {
    let (mut server, waiting, _slow) = waiting_for_an_encoder().await;
    server.begin_stop();
    let status = crate::server::within(waiting).await.unwrap().unwrap_err();
    assert_eq!(why(&status), (Code::Unavailable, Some(Reason::PublicationUnavailable)));
    server.stopped().await;
}

#[tokio::test]
async fn a_subscriber_that_waits_for_an_encoder_hears_that_its_pool_is_gone() {
    let (server, waiting, _slow) = waiting_for_an_encoder().await;
    server.relay.withdraw(&Producer::new("dc2", 1, BUCKETS).key().pool());
    let status = crate::server::within(waiting).await.unwrap().unwrap_err();
    assert_eq!(why(&status), (Code::Unavailable, Some(Reason::PublicationUnavailable)));
}

/// A relay whose only encoder is busy with a reader that does not read, and a subscriber of the
/// pool `dc2` that waits for it.
async fn waiting_for_an_encoder() -> (Server, JoinHandle<Result<(), Status>>, Replica) {
    let limits = config::Relay {
        publication_queue_bytes: torc::config::ByteSize(4_194_624),
        publication_encoding_concurrency: 1,
        ..config::Relay::default()
    };
    let server = Server::start(limits).await;
    let producer = Producer::new("dc1", 1, 16 << 19);
    let other = Producer::new("dc2", 1, BUCKETS);
    server.publish(&producer, "dc1");
    server.publish(&other, "dc2");
    let slow = Replica::open(&mut server.client().await, &producer).await;
    let mut client = server.client().await;
    let waiting =
        tokio::spawn(async move { client.subscribe_kv_pool(pool(&other.key())).await.map(|_| ()) });
    let kind = torc::relay_server::StreamKind::Pool;
    until("both have a permit", || {
        server.relay.counters().of(kind).open.load(Ordering::Relaxed) == 2
    })
    .await;
    (server, waiting, slow)
}
