//! A relay's own copy of one producer's filter: cuts for new subscribers, deltas for all.
//!
//! The mirror numbers its batches itself, so that a burst of changes becomes few frames whatever
//! the producer's own batches were. A batch holds each changed bucket once, with its newest word;
//! a bucket that is back at what was published is left out, and a batch of nothing is none.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use fnv::FnvBuildHasher;

use super::key::ProducerKey;
use super::proto::FilterUpdateKind as Kind;
use super::queue::Frame;
use crate::ckf::bucket::BucketImage;
use crate::ckf::cbi1::{self, EncodeError, Stamp};

/// Why a mirror is of no use any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MirrorError {
    /// So many buckets changed that only a snapshot can tell; streams must begin anew.
    #[error("{0} buckets changed at once, more than one delta can hold")]
    Oversized(usize),
    /// The producer broke its own format; its generation is not to be trusted.
    #[error("the producer broke its format: {0}")]
    Invalid(EncodeError),
    /// No sequence is left in this generation.
    #[error("no sequence is left")]
    SequenceExhausted,
}

/// The filter at one sequence; shared, and unchanged while anybody holds it.
#[derive(Clone, Debug)]
pub struct Cut {
    /// Whose filter.
    pub key: ProducerKey,
    /// The batches it contains.
    pub sequence: u64,
    /// One word a bucket.
    pub words: Arc<Vec<u64>>,
}

impl Cut {
    /// Chunks a snapshot of it has.
    pub fn chunks(&self) -> u32 {
        cbi1::chunk_count(self.key.format().bucket_count)
    }

    /// One of them.
    pub fn chunk(&self, index: u32) -> Result<Frame, MirrorError> {
        let mut payload = Vec::new();
        cbi1::encode_chunk(&mut payload, &stamp(&self.key, self.sequence), &self.words, index)
            .map_err(MirrorError::Invalid)?;
        let (base, sequence) = (self.sequence, self.sequence);
        Ok(Frame { kind: Kind::SnapshotChunk, base, sequence, payload: Bytes::from(payload) })
    }
}

/// The copy.
#[derive(Debug)]
pub struct Mirror {
    key: ProducerKey,
    /// What was published up to `sequence`.
    words: Arc<Vec<u64>>,
    sequence: u64,
    /// Newest words of buckets that changed since.
    changed: HashMap<u32, u64, FnvBuildHasher>,
}

impl Mirror {
    /// A copy that begins with a producer's words. `sequence` is what streams begin at: 0 in a
    /// new generation, and never less than what was sent before in the same one.
    pub fn new(key: ProducerKey, words: Vec<u64>, sequence: u64) -> Result<Mirror, MirrorError> {
        let (expected, actual) = (key.format().bucket_count, words.len());
        if actual as u64 != expected {
            let error = EncodeError::SnapshotBucketCount { expected, actual };
            return Err(MirrorError::Invalid(error));
        }
        Ok(Mirror { key, words: Arc::new(words), sequence, changed: HashMap::default() })
    }

    /// Takes note of changed buckets. Nothing is taken when one of them lies outside the filter.
    pub fn apply(&mut self, images: &[BucketImage]) -> Result<(), MirrorError> {
        let buckets = self.words.len();
        if let Some(outside) = images.iter().find(|image| image.bucket as usize >= buckets) {
            return Err(MirrorError::Invalid(EncodeError::BucketIndex(outside.bucket)));
        }
        self.changed.extend(images.iter().map(|image| (image.bucket, image.word)));
        Ok(())
    }

    /// The delta of all that changed; none when nothing did.
    pub fn publish(&mut self) -> Result<Option<Frame>, MirrorError> {
        let mut images: Vec<BucketImage> = self
            .changed
            .drain()
            .map(|(bucket, word)| BucketImage { bucket, word })
            .filter(|image| self.words[image.bucket as usize] != image.word)
            .collect();
        if images.is_empty() {
            return Ok(None);
        }
        if images.len() > cbi1::DELTA_IMAGES_MAX {
            return Err(MirrorError::Oversized(images.len()));
        }
        images.sort_unstable_by_key(|image| image.bucket);
        let base = self.sequence;
        let sequence = base.checked_add(1).ok_or(MirrorError::SequenceExhausted)?;
        let mut payload = Vec::new();
        cbi1::encode_delta(&mut payload, &stamp(&self.key, sequence), base, &images)
            .map_err(MirrorError::Invalid)?;
        // Copied only while a snapshot of the old words is being sent.
        let words = Arc::make_mut(&mut self.words);
        for image in &images {
            words[image.bucket as usize] = image.word;
        }
        self.sequence = sequence;
        Ok(Some(Frame { kind: Kind::Delta, base, sequence, payload: Bytes::from(payload) }))
    }

    /// What a new subscriber begins with: all that was published so far.
    pub fn cut(&self) -> Cut {
        Cut { key: self.key, sequence: self.sequence, words: Arc::clone(&self.words) }
    }

    /// Whether there is something to publish.
    pub fn has_changes(&self) -> bool {
        !self.changed.is_empty()
    }

    /// The last batch published.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Whose copy it is.
    pub fn key(&self) -> &ProducerKey {
        &self.key
    }
}

fn stamp(key: &ProducerKey, epoch: u64) -> Stamp {
    Stamp { format: *key.format(), dc_id: key.pool().dc_id, epoch }
}

/// When a mirror publishes: soon after the first change, but under lasting change no more often
/// than subscribers can be expected to take frames from their queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pacer {
    threshold: u32,
    delay_us: u64,
    burst: u64,
    events: u32,
    since_us: Option<u64>,
    /// When the frames sent so far would all have been due at the lasting rate.
    paid_until_us: u64,
}

/// Time between two frames under lasting change.
pub const LASTING_INTERVAL_US: u64 = 20_000;

impl Pacer {
    /// Publishes once `threshold` batches of the producer wait, or `delay_us` microseconds after
    /// the first of them. `queue_frames` is the length of subscribers' queues; half of it can
    /// follow each other at once.
    pub fn new(threshold: u32, delay_us: u64, queue_frames: usize) -> Pacer {
        let burst = (queue_frames as u64 / 2).max(1);
        Pacer { threshold, delay_us, burst, events: 0, since_us: None, paid_until_us: 0 }
    }

    /// A batch of the producer came.
    pub fn note(&mut self, now_us: u64) {
        self.events = self.events.saturating_add(1);
        self.since_us.get_or_insert(now_us);
    }

    /// When to publish; none while nothing waits.
    pub fn due_us(&self) -> Option<u64> {
        let since = self.since_us?;
        let wanted = if self.events >= self.threshold { since } else { since + self.delay_us };
        let ahead = (self.burst - 1) * LASTING_INTERVAL_US;
        Some(wanted.max(self.paid_until_us.saturating_sub(ahead)))
    }

    /// All that waited was published.
    pub fn published(&mut self, now_us: u64) {
        (self.events, self.since_us) = (0, None);
        self.paid_until_us = self.paid_until_us.max(now_us) + LASTING_INTERVAL_US;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ckf::cbi1::{Assembler, Frame as Decoded, decode};
    use crate::relay::{proto, vectors};

    fn key() -> ProducerKey {
        let message: proto::ProducerIdentity = vectors::message("producer_identity");
        ProducerKey::try_from(&message).unwrap()
    }

    fn image(bucket: u32, word: u64) -> BucketImage {
        BucketImage { bucket, word }
    }

    fn mirror() -> Mirror {
        Mirror::new(key(), vec![0; 1024], 0).unwrap()
    }

    #[test]
    fn a_batch_holds_each_changed_bucket_once() {
        let mut mirror = mirror();
        mirror.apply(&[image(9, 1), image(3, 7)]).unwrap();
        mirror.apply(&[image(9, 2), image(5, 1), image(5, 0)]).unwrap();
        let frame = mirror.publish().unwrap().unwrap();
        assert_eq!((frame.kind, frame.base, frame.sequence), (Kind::Delta, 0, 1));
        let Decoded::Delta(delta) = decode(&frame.payload, key().format()).unwrap() else {
            panic!("a delta");
        };
        assert_eq!((delta.base_epoch, delta.epoch), (0, 1));
        assert_eq!(delta.images().collect::<Vec<_>>(), [image(3, 7), image(9, 2)]);
        // Nothing is no batch, and what was reverted is nothing.
        mirror.apply(&[image(3, 8), image(3, 7)]).unwrap();
        assert!(mirror.has_changes());
        assert_eq!(mirror.publish(), Ok(None));
        assert_eq!((mirror.sequence(), mirror.has_changes()), (1, false));
    }

    #[test]
    fn a_cut_stays_as_it_was() {
        let mut mirror = mirror();
        mirror.apply(&[image(1, 1)]).unwrap();
        mirror.publish().unwrap();
        let cut = mirror.cut();
        mirror.apply(&[image(1, 2)]).unwrap();
        assert_eq!(mirror.publish().unwrap().unwrap().base, cut.sequence);
        assert_eq!((cut.chunks(), cut.words[1], mirror.cut().words[1]), (1, 1, 2));
        let chunk = cut.chunk(0).unwrap();
        let mut assembler = Assembler::new(*key().format());
        let decoded = decode(&chunk.payload, key().format()).unwrap();
        let snapshot = assembler.push(&decoded).unwrap().unwrap();
        assert_eq!((snapshot.epoch, &snapshot.words), (1, &*cut.words));
    }

    #[test]
    fn what_breaks_the_format_is_refused_whole() {
        let mut mirror = mirror();
        let invalid = MirrorError::Invalid(EncodeError::BucketIndex(1024));
        assert_eq!(mirror.apply(&[image(0, 1), image(1024, 1)]), Err(invalid));
        assert!(!mirror.has_changes());
        assert!(Mirror::new(key(), vec![0; 1023], 0).is_err());
        let mut last = Mirror::new(key(), vec![0; 1024], u64::MAX).unwrap();
        last.apply(&[image(0, 1)]).unwrap();
        assert_eq!(last.publish(), Err(MirrorError::SequenceExhausted));
    }

    #[test]
    fn too_many_changes_need_a_snapshot() {
        let buckets = (cbi1::DELTA_IMAGES_MAX as u64 + 1).next_power_of_two();
        let mut identity = *key().identity();
        identity.format.bucket_count = buckets;
        let key = ProducerKey::try_from(identity).unwrap();
        let mut mirror = Mirror::new(key, vec![0; buckets as usize], 0).unwrap();
        let most = cbi1::DELTA_IMAGES_MAX as u32;
        let images: Vec<BucketImage> = (0..=most).map(|bucket| image(bucket, 1)).collect();
        mirror.apply(&images[1..]).unwrap();
        assert!(mirror.publish().unwrap().is_some());
        let images: Vec<BucketImage> = (0..=most).map(|bucket| image(bucket, 2)).collect();
        mirror.apply(&images).unwrap();
        assert_eq!(mirror.publish(), Err(MirrorError::Oversized(images.len())));
    }

    #[test]
    fn a_lone_change_is_soon_out_and_lasting_change_is_paced() {
        let mut pacer = Pacer::new(16, 1_000, 16);
        assert_eq!(pacer.due_us(), None);
        pacer.note(5_000);
        pacer.note(5_500);
        assert_eq!(pacer.due_us(), Some(6_000));
        (0..16).for_each(|_| pacer.note(5_600));
        assert_eq!(pacer.due_us(), Some(5_000));
        pacer.published(5_700);
        assert_eq!(pacer.due_us(), None);
        // Half a queue of frames can go at once, then one each 20 ms.
        let mut now = 5_700;
        for _ in 0..100 {
            pacer.note(now);
            now = pacer.due_us().unwrap().max(now);
            pacer.published(now);
        }
        let lasting = (100 - 7) * LASTING_INTERVAL_US;
        assert!((lasting - 40_000..lasting + 40_000).contains(&now), "{now}");
    }
}
