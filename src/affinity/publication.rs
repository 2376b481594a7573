//! What a publisher publishes, for subscribers inside its process.
//!
//! The node that publishes a domain's pool for its datacenter gives every subscriber a [`Cut`]
//! (the whole filter at one sequence) and from then on, in order, the [`Delta`]s that follow it:
//! the first one leads from the cut's sequence to the next. Both are taken under the producer's
//! lock, so nothing is missed or told twice. [`Frame::Ended`] is the last frame: this node no
//! longer publishes, or a new generation of the producer began; subscribing again gives the new
//! cut under the new identity.
//!
//! A subscriber that cannot take a frame says so and is forgotten: it has to begin anew, the
//! others are not held up. [`Subscriber::take`] is called with the producer's lock held, on
//! whatever thread changed the producer (the control runtime, or a worker that was told an
//! engine's event); it must only hand the frame on, say into a bounded channel.
//!
//! ```text
//! let publication = domain.publication();            // None: another node publishes this pool
//! if publication.complete { .. }                     // false: do not offer the pool yet
//! let cut = domain.subscribe(Box::new(my_queue))?;   // identity, sequence, words
//! ```
//!
//! What may be offered: a pool whose publication is [`Publication::complete`], which means that
//! every live node of the datacenter has told what it holds. A publication that is not complete
//! says "not here" for keys it has not heard of yet.

use std::sync::Arc;

use crate::ckf::bucket::BucketImage;
use crate::ckf::identity::ProducerIdentity;

/// The pool this node publishes, now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publication {
    /// Pool, incarnation, generation and format.
    pub identity: ProducerIdentity,
    /// The last batch that was handed out.
    pub sequence: u64,
    /// Whether every live node of the datacenter has told what it holds.
    pub complete: bool,
    /// Distinct keys or blocks held.
    pub used: u64,
    /// Distinct keys or blocks the filter is sized for.
    pub capacity: u64,
    /// Nodes of the datacenter that tell what they hold.
    pub members: u32,
    /// Nodes of the datacenter that have to.
    pub members_expected: u32,
}

/// The whole filter at one sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Whose filter.
    pub identity: ProducerIdentity,
    /// The last batch it contains.
    pub sequence: u64,
    /// One word a bucket.
    pub words: Vec<u64>,
}

/// The buckets that changed from one sequence to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delta {
    /// The sequence it starts from.
    pub base: u64,
    /// The sequence it leads to: `base + 1`.
    pub sequence: u64,
    /// New words, never none; every bucket at most once.
    pub images: Arc<[BucketImage]>,
}

/// What follows a cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A change.
    Delta(Delta),
    /// The generation ended; nothing follows.
    Ended,
}

/// Somebody who follows a publication.
pub trait Subscriber: Send {
    /// Takes the next frame. False when it cannot: then no further frame comes.
    fn take(&mut self, frame: Frame) -> bool;
}
