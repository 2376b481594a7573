//! A publisher whose every batch the test decides.

use std::sync::{Arc, Mutex};

use torc::affinity::publication::{Cut, Delta, Frame, Subscriber};
use torc::ckf::bucket::BucketImage;
use torc::ckf::digest::{self, Selection};
use torc::ckf::format::CkfFormat;
use torc::ckf::hashing::HashFormat;
use torc::ckf::identity::{IndexerDomainId, PoolId, ProducerIdentity};
use torc::relay::ProducerKey;
use torc::relay::descriptor::{Descriptor, Endpoint, Registration, Role, Semantics, Target};
use torc::relay_server::PoolSource;

/// Buckets of most filters here: one chunk.
pub const BUCKETS: u64 = 1024;

#[derive(Clone)]
pub struct Producer(Arc<Mutex<Inner>>);

struct Inner {
    identity: ProducerIdentity,
    words: Vec<u64>,
    sequence: u64,
    subscribers: Vec<Box<dyn Subscriber>>,
}

pub fn domain() -> IndexerDomainId {
    let map = Selection::explicit([("authority", "relay-test")]).unwrap();
    IndexerDomainId {
        cache_semantics: digest::cache_semantics(&map, 2, HashFormat::Standard),
        routing_scope: digest::routing_scope(&map),
    }
}

pub fn identity(dc: &str, incarnation: u64, buckets: u64) -> ProducerIdentity {
    ProducerIdentity {
        pool: PoolId { indexer_domain: domain(), dc_id: digest::dc_id(dc) },
        producer_incarnation: incarnation,
        layout_generation: 1,
        format: CkfFormat::new(7, buckets).unwrap(),
    }
}

pub fn image(bucket: u32, word: u64) -> BucketImage {
    BucketImage { bucket, word }
}

impl Producer {
    pub fn new(dc: &str, incarnation: u64, buckets: u64) -> Producer {
        let words = vec![0; buckets as usize];
        let identity = identity(dc, incarnation, buckets);
        Producer(Arc::new(Mutex::new(Inner {
            identity,
            words,
            sequence: 40,
            subscribers: Vec::new(),
        })))
    }

    pub fn key(&self) -> ProducerKey {
        ProducerKey::try_from(self.0.lock().unwrap().identity).unwrap()
    }

    /// Its pool, served at `component`.
    pub fn descriptor(&self, component: &str) -> Descriptor {
        Descriptor {
            key: self.key(),
            endpoint: Endpoint {
                namespace: "ns".into(),
                component: component.into(),
                endpoint: "dnode".into(),
            },
            registrations: vec![Registration {
                canonical_id: "llama".into(),
                target: Target::Base("llama".into()),
                aliases: vec!["chat".into()],
            }],
            semantics: Semantics { block_size: 2, format: HashFormat::Standard },
            roles: vec![Role::Aggregated],
        }
    }

    pub fn words(&self) -> Vec<u64> {
        self.0.lock().unwrap().words.clone()
    }

    /// How many follow it.
    pub fn followers(&self) -> usize {
        self.0.lock().unwrap().subscribers.len()
    }

    /// Publishes a batch.
    pub fn change(&self, images: &[BucketImage]) {
        let mut inner = self.0.lock().unwrap();
        for image in images {
            inner.words[image.bucket as usize] = image.word;
        }
        let base = inner.sequence;
        inner.sequence += 1;
        inner.tell(Frame::Delta(Delta { base, sequence: base + 1, images: images.into() }));
    }

    /// Tells something no right publisher would.
    pub fn tell(&self, frame: Frame) {
        self.0.lock().unwrap().tell(frame);
    }

    /// Drops everybody who follows, as if they had been too slow.
    pub fn drop_followers(&self) {
        self.0.lock().unwrap().subscribers.clear();
    }
}

impl Inner {
    fn tell(&mut self, frame: Frame) {
        self.subscribers.retain_mut(|subscriber| subscriber.take(frame.clone()));
    }
}

impl PoolSource for Producer {
    fn subscribe(&self, subscriber: Box<dyn Subscriber>) -> Option<Cut> {
        let mut inner = self.0.lock().unwrap();
        inner.subscribers.push(subscriber);
        Some(Cut { identity: inner.identity, sequence: inner.sequence, words: inner.words.clone() })
    }
}
