//! What nodes tell each other about filters, as protobuf in control frames.
//!
//! Hashes travel as packed little-endian words; fields of later versions are skipped.

use prost::Message;

use crate::affinity::domain::StoreLoad;
use crate::affinity::publication::Delta;
use crate::ckf::bucket::BucketImage;
use crate::ckf::format::CkfFormat;
use crate::ckf::hashing::{ExternalId, SequenceHash};
use crate::ckf::producer::{EventData, RouterEvent, Source};

/// Type 34: what a member holds, to those who keep its datacenter's exact state; and the answer.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Feed {
    /// The sender's slot.
    #[prost(fixed64, tag = "1")]
    pub from: u64,
    #[prost(fixed64, tag = "2")]
    pub domain: u64,
    /// Rises with every listing the member begins.
    #[prost(uint64, tag = "3")]
    pub session: u64,
    /// Number of this batch in its session, from 1; in an answer the last one that was applied.
    #[prost(uint64, tag = "4")]
    pub sequence: u64,
    #[prost(enumeration = "FeedKind", tag = "5")]
    pub kind: i32,
    /// False while the member does not know what it holds.
    #[prost(bool, tag = "6")]
    pub sure: bool,
    #[prost(message, repeated, tag = "7")]
    pub events: Vec<EventMsg>,
    /// How full the member's store is, when it knows.
    #[prost(message, optional, tag = "8")]
    pub load: Option<LoadMsg>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct LoadMsg {
    /// Bytes in use.
    #[prost(uint64, tag = "1")]
    pub used: u64,
    /// The most it may hold, when there is a limit.
    #[prost(uint64, optional, tag = "2")]
    pub total: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(super) enum FeedKind {
    /// Nothing this version understands.
    Unknown = 0,
    /// Part of a listing.
    Listing = 1,
    /// The last part of a listing: what was not listed is not held.
    Listed = 2,
    /// What changed; without events a sign of life.
    Changes = 3,
    /// Everything up to the sequence was applied.
    Applied = 4,
    /// The session is not known here: begin a new one.
    Begin = 5,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct EventMsg {
    #[prost(fixed64, tag = "1")]
    pub worker: u64,
    #[prost(uint32, tag = "2")]
    pub rank: u32,
    #[prost(enumeration = "EventKind", tag = "3")]
    pub kind: i32,
    #[prost(fixed64, repeated, tag = "4")]
    pub ids: Vec<u64>,
    /// As long as `ids` when resolved, else empty.
    #[prost(fixed64, repeated, tag = "5")]
    pub hashes: Vec<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(super) enum EventKind {
    Unknown = 0,
    Appeared = 1,
    Resolved = 2,
    Removed = 3,
    Cleared = 4,
}

/// Type 35: a pool's filter, from those who have it to those who want it.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Filter {
    /// The sender's slot.
    #[prost(fixed64, tag = "1")]
    pub from: u64,
    #[prost(fixed64, tag = "2")]
    pub domain: u64,
    /// The pool's datacenter.
    #[prost(fixed64, tag = "3")]
    pub dc: u64,
    #[prost(enumeration = "FilterKind", tag = "4")]
    pub kind: i32,
    #[prost(uint64, tag = "5")]
    pub incarnation: u64,
    #[prost(uint64, tag = "6")]
    pub generation: u64,
    #[prost(uint64, tag = "7")]
    pub buckets: u64,
    #[prost(fixed64, tag = "8")]
    pub seed: u64,
    /// The last change the sender has.
    #[prost(uint64, tag = "9")]
    pub sequence: u64,
    /// First bucket of a part, asked for or given.
    #[prost(uint32, tag = "10")]
    pub first: u32,
    /// Buckets asked for.
    #[prost(uint32, tag = "11")]
    pub count: u32,
    /// Words of a part, little endian.
    #[prost(bytes = "vec", tag = "12")]
    pub words: Vec<u8>,
    #[prost(message, repeated, tag = "13")]
    pub changes: Vec<ChangeMsg>,
    /// Whether the pool can be believed.
    #[prost(bool, tag = "14")]
    pub complete: bool,
    /// Milliseconds since its publisher was heard, by the sender.
    #[prost(uint64, tag = "15")]
    pub age_ms: u64,
    /// Datacenters of other rings.
    #[prost(message, repeated, tag = "16")]
    pub abroad: Vec<AbroadMsg>,
}

/// A datacenter of another ring.
#[derive(Clone, PartialEq, Message)]
pub(super) struct AbroadMsg {
    /// What it is called here.
    #[prost(string, tag = "1")]
    pub dc: String,
    /// Whether its filter is here and believed.
    #[prost(bool, tag = "2")]
    pub ready: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(super) enum FilterKind {
    Unknown = 0,
    /// Wants to follow; `incarnation` is the greatest one the sender has heard of.
    Follow = 1,
    /// Wants a part of the words, and to follow.
    Fetch = 2,
    /// A part of the words.
    Part = 3,
    /// Changes, in order.
    Changes = 4,
    /// A sign of life, and where the sender is.
    Beat = 5,
    /// Which datacenters of other rings the sender follows for its own datacenter.
    Abroad = 6,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ChangeMsg {
    #[prost(uint64, tag = "1")]
    pub base: u64,
    #[prost(fixed32, repeated, tag = "2")]
    pub buckets: Vec<u32>,
    #[prost(fixed64, repeated, tag = "3")]
    pub words: Vec<u64>,
}

impl From<StoreLoad> for LoadMsg {
    fn from(load: StoreLoad) -> LoadMsg {
        LoadMsg { used: load.used, total: load.total }
    }
}

impl From<LoadMsg> for StoreLoad {
    fn from(load: LoadMsg) -> StoreLoad {
        StoreLoad { used: load.used, total: load.total }
    }
}

impl EventMsg {
    /// An event that names blocks by what they are; others have no form here.
    pub(super) fn new(event: &RouterEvent) -> Option<EventMsg> {
        let (kind, ids, hashes) = match &event.data {
            EventData::Appeared(keys) => {
                (EventKind::Appeared, keys.iter().map(|key| key.0).collect(), Vec::new())
            }
            EventData::Resolved(blocks) => (
                EventKind::Resolved,
                blocks.iter().map(|(id, _)| id.0).collect(),
                blocks.iter().map(|(_, hash)| hash.0).collect(),
            ),
            EventData::Removed(ids) => {
                (EventKind::Removed, ids.iter().map(|id| id.0).collect(), Vec::new())
            }
            EventData::Cleared => (EventKind::Cleared, Vec::new(), Vec::new()),
            EventData::Stored { .. } => return None,
        };
        let Source { worker_id: worker, dp_rank: rank } = event.source;
        Some(EventMsg { worker, rank, kind: kind.into(), ids, hashes })
    }

    /// The event; none when it is of a kind this version does not understand.
    pub(super) fn event(&self) -> Option<RouterEvent> {
        let ids = self.ids.iter().copied();
        let data = match self.kind() {
            EventKind::Appeared => EventData::Appeared(ids.map(SequenceHash).collect()),
            EventKind::Resolved if self.ids.len() == self.hashes.len() => {
                let hashes = self.hashes.iter().copied().map(SequenceHash);
                EventData::Resolved(ids.map(ExternalId).zip(hashes).collect())
            }
            EventKind::Removed => EventData::Removed(ids.map(ExternalId).collect()),
            EventKind::Cleared => EventData::Cleared,
            EventKind::Resolved | EventKind::Unknown => return None,
        };
        Some(RouterEvent::device(Source { worker_id: self.worker, dp_rank: self.rank }, data))
    }
}

impl ChangeMsg {
    pub(super) fn new(delta: &Delta) -> ChangeMsg {
        ChangeMsg {
            base: delta.base,
            buckets: delta.images.iter().map(|image| image.bucket).collect(),
            words: delta.images.iter().map(|image| image.word).collect(),
        }
    }

    pub(super) fn delta(&self) -> Option<Delta> {
        let images = self.buckets.iter().zip(&self.words);
        let images = images.map(|(bucket, word)| BucketImage { bucket: *bucket, word: *word });
        let sequence = self.base.checked_add(1)?;
        let whole = self.buckets.len() == self.words.len();
        whole.then(|| Delta { base: self.base, sequence, images: images.collect() })
    }
}

impl Filter {
    /// The format of the filter it speaks of, if it is one.
    pub(super) fn format(&self) -> Option<CkfFormat> {
        CkfFormat::new(self.seed, self.buckets).ok()
    }

    /// The words of a part.
    pub(super) fn part(&self) -> impl ExactSizeIterator<Item = u64> + '_ {
        let word = |bytes: &[u8]| {
            let mut word = [0; 8];
            word.copy_from_slice(bytes);
            u64::from_le_bytes(word)
        };
        self.words.chunks_exact(8).map(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_and_changes_come_back_as_they_were() {
        let source = Source { worker_id: 7, dp_rank: 3 };
        let all = [
            EventData::Appeared(vec![SequenceHash(1), SequenceHash(u64::MAX)]),
            EventData::Resolved(vec![(ExternalId(1), SequenceHash(2))]),
            EventData::Removed(vec![ExternalId(5)]),
            EventData::Cleared,
        ];
        for data in all {
            let event = RouterEvent::device(source, data);
            let bytes = EventMsg::new(&event).unwrap().encode_to_vec();
            assert_eq!(EventMsg::decode(&bytes[..]).unwrap().event(), Some(event));
        }
        let images = [BucketImage { bucket: 3, word: 9 }];
        let delta = Delta { base: 4, sequence: 5, images: images.into() };
        assert_eq!(ChangeMsg::new(&delta).delta(), Some(delta));
    }

    #[test]
    fn what_does_not_fit_together_is_nothing() {
        let event =
            EventMsg { kind: EventKind::Resolved.into(), ids: vec![1], ..Default::default() };
        assert_eq!(event.event(), None);
        assert_eq!(EventMsg { kind: 77, ..Default::default() }.event(), None);
        let change = ChangeMsg { base: 1, buckets: vec![1], words: Vec::new() };
        assert_eq!(change.delta(), None);
        assert_eq!(ChangeMsg { base: u64::MAX, ..Default::default() }.delta(), None);
        let filter = Filter { words: vec![1; 17], ..Filter::default() };
        assert_eq!(filter.part().len(), 2);
    }
}
