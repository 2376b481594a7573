//! A consumer that takes note of everything, and how it follows a right relay.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::task::JoinHandle;
use torc::ckf::bucket::BucketImage;
use torc::ckf::cbi1::Snapshot;
use torc::config;
use torc::net::clock::Clock;
use torc::relay::ProducerKey;
use torc::relay::descriptor::Descriptor;
use torc::relay::envelope::RelayId;
use torc::relay_client::{Consumer, News, Settings, follow};

use crate::producer::{BUCKETS, Producer, image};
use crate::server::{NEVER, RELAY, Server, until};

/// What a follower found out.
#[derive(Default)]
pub struct Notes {
    pub connected: Vec<RelayId>,
    pub catalogs: Vec<(usize, usize)>,
    pub readiness: Vec<(usize, usize)>,
    /// Why entries were left out, one list for each catalog and each readiness.
    pub left_out: Vec<Vec<&'static str>>,
    pub windows: Vec<u64>,
    /// Pools and models of each serving window.
    pub serving: Vec<(usize, usize)>,
    /// Plane or `filter`, its end, and whether it is tried again.
    pub ends: Vec<(&'static str, &'static str, bool)>,
    pub replicas: HashMap<ProducerKey, Vec<u64>>,
    pub retired: usize,
}

#[derive(Clone, Default)]
pub struct Follower(pub Arc<Mutex<Notes>>);

impl Follower {
    /// Follows a relay until dropped.
    pub fn follow(&self, address: &str) -> Following {
        self.follow_with(address, |_| {})
    }

    pub fn follow_with(&self, address: &str, change: impl FnOnce(&mut Settings)) -> Following {
        let mut settings = Settings {
            address: address.into(),
            subscriber_id: "follower".into(),
            max_message_bytes: 8 << 20,
            keepalive_interval: NEVER,
            keepalive_timeout: NEVER,
            recovery_attempt_timeout: NEVER,
        };
        change(&mut settings);
        let consumer = Arc::new(self.clone());
        Following(tokio::spawn(follow(settings, consumer, Clock::start())))
    }

    pub fn has_end(&self, plane: &str, label: &str) -> bool {
        self.0.lock().unwrap().ends.iter().any(|end| (end.0, end.1) == (plane, label))
    }

    /// Ends so far, and whether each was tried again.
    pub fn ends(&self) -> Vec<(&'static str, &'static str, bool)> {
        self.0.lock().unwrap().ends.clone()
    }

    pub fn holds(&self, producer: &Producer) -> bool {
        self.0.lock().unwrap().replicas.get(&producer.key()) == Some(&producer.words())
    }
}

pub struct Following(pub JoinHandle<()>);

impl Drop for Following {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Consumer for Follower {
    fn news(&self, news: News) {
        let mut notes = self.0.lock().unwrap();
        match news {
            News::Connected(relay) => notes.connected.push(relay),
            News::Catalog(view) => {
                notes.catalogs.push((view.pools.len(), view.quarantined.len()));
                notes.left_out.push(view.quarantined.iter().map(|q| q.fault.label()).collect());
            }
            News::Readiness(view) => {
                notes.readiness.push((view.entries.len(), view.quarantined.len()));
                notes.left_out.push(view.quarantined.iter().map(|q| q.fault.label()).collect());
            }
            News::Load(view) => notes.windows.push(view.window.sequence),
            News::Serving(view) => notes.serving.push((view.pools.len(), view.models.len())),
            News::PlaneEnded { plane, end, pause_ms } => {
                notes.ends.push((plane.label(), end.label(), pause_ms.is_some()));
            }
            News::FilterEnded { end, pause_ms, .. } => {
                notes.ends.push(("filter", end.label(), pause_ms.is_some()));
            }
        }
    }

    fn wants(&self, _: &Descriptor) -> Result<(), String> {
        Ok(())
    }

    fn install(&self, key: &ProducerKey, snapshot: Snapshot) -> Result<(), String> {
        self.0.lock().unwrap().replicas.insert(*key, snapshot.words);
        Ok(())
    }

    fn apply(&self, key: &ProducerKey, _: u64, images: Vec<BucketImage>) -> Result<(), String> {
        let mut notes = self.0.lock().unwrap();
        let words = notes.replicas.get_mut(key).ok_or("nothing installed")?;
        images.iter().for_each(|image| words[image.bucket as usize] = image.word);
        Ok(())
    }

    fn heard(&self, _: &ProducerKey) {}

    fn retire(&self, key: &ProducerKey) {
        let mut notes = self.0.lock().unwrap();
        notes.retired += usize::from(notes.replicas.remove(key).is_some());
    }
}

#[tokio::test]
async fn every_plane_of_a_right_relay_is_followed() {
    let limits = config::Relay { load_window_ms: 20, ..config::Relay::default() };
    let server = Server::start(limits).await;
    let producer = Producer::new("dc1", 1, BUCKETS);
    producer.change(&[image(1, 1)]);
    server.publish(&producer, "dc1");
    let follower = Follower::default();
    let _following = follower.follow(&server.address);
    until("the filter is there", || follower.holds(&producer)).await;
    producer.change(&[image(2, 2)]);
    until("the change is there", || follower.holds(&producer)).await;
    until("windows come", || follower.0.lock().unwrap().windows.len() > 3).await;
    {
        let notes = follower.0.lock().unwrap();
        assert_eq!(notes.connected, [RELAY]);
        assert_eq!(notes.ends, []);
        assert_eq!(notes.readiness[0], (0, 0));
    }
    // Another generation takes its place; the old replica goes first.
    let next = Producer::new("dc1", 2, BUCKETS);
    next.change(&[image(3, 3)]);
    server.publish(&next, "dc1");
    until("the next generation is there", || follower.holds(&next)).await;
    until("the old one is gone", || !follower.holds(&producer)).await;
    server.relay.withdraw(&next.key().pool());
    until("a withdrawn pool is forgotten", || !follower.holds(&next)).await;
}

#[tokio::test]
async fn a_relay_that_comes_back_is_another_life() {
    let server = Server::start(config::Relay::default()).await;
    let producer = Producer::new("dc1", 1, BUCKETS);
    server.publish(&producer, "dc1");
    let follower = Follower::default();
    let _following = follower.follow(&server.address);
    until("the filter is there", || follower.holds(&producer)).await;
    let address = server.address.clone();
    server.stop().await;
    until("the replica is void", || !follower.holds(&producer)).await;
    let again = RelayId { incarnation: 24, ..RELAY };
    let server = Server::start_as(again, config::Relay::default(), &address).await;
    producer.change(&[image(9, 9)]);
    server.publish(&producer, "dc1");
    until("the filter is back", || follower.holds(&producer)).await;
    let notes = follower.0.lock().unwrap();
    assert_eq!(notes.connected.last(), Some(&again));
}

#[tokio::test]
async fn a_limit_of_this_side_is_diagnosed_and_not_tried_for_ever() {
    let server = Server::start(config::Relay::default()).await;
    let producer = Producer::new("dc1", 1, 1 << 19);
    server.publish(&producer, "dc1");
    let follower = Follower::default();
    // The usual limit of clients: a full chunk does not fit.
    let _following = follower.follow_with(&server.address, |settings| {
        settings.max_message_bytes = 4 << 20;
    });
    until("the diagnosis", || follower.has_end("filter", "local_limit")).await;
    let notes = follower.0.lock().unwrap();
    let last = notes.ends.iter().rfind(|end| end.0 == "filter").unwrap();
    assert_eq!(*last, ("filter", "local_limit", false));
}
