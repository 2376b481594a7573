//! One filter's mirror and its subscribers: a task that follows the publisher and fans out.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::{Notify, mpsc};

use super::admission::Refusal;
use super::counters::{StreamKind, add};
use super::pools::{Generation, NoHub};
use super::{Relay, lock};
use crate::affinity::publication::{Delta, Frame as Published, Subscriber};
use crate::net::clock::Clock;
use crate::relay::key::ProducerKey;
use crate::relay::mirror::{Cut, Mirror, MirrorError, Pacer};
use crate::relay::queue::{Frame, FrameQueue, Next, QueueLimits};
use crate::relay::reason::Reason;

/// Batches of the publisher that may wait for a hub; beyond it the hub begins anew.
const BATCHES_MAX: usize = 1_024;

/// One filter's mirror.
pub(super) struct Hub {
    key: ProducerKey,
    state: Mutex<State>,
    /// Wakes the task when the hub ends.
    ended: Notify,
}

struct State {
    mirror: Mirror,
    pacer: Pacer,
    subscribers: VecDeque<Arc<Subscription>>,
    /// Why it is of no more use.
    failed: Option<Reason>,
}

/// One subscriber's queue, shared by the hub, the snapshot's encoder and the connection.
pub(super) struct Subscription {
    queue: Mutex<(FrameQueue, Option<Reason>)>,
    /// There is something to take.
    filled: Notify,
    /// Something was taken, or the stream ended.
    taken: Notify,
}

impl Subscription {
    fn new(limits: QueueLimits, chunks: u32) -> Subscription {
        Subscription {
            queue: Mutex::new((FrameQueue::new(limits, chunks), None)),
            filled: Notify::new(),
            taken: Notify::new(),
        }
    }

    /// The next frame, or why the stream ended: none for a clean end.
    pub(super) fn take(&self) -> (Next, Option<Reason>) {
        let mut queue = lock(&self.queue);
        let next = queue.0.take();
        if matches!(next, Next::Frame(_)) {
            self.taken.notify_one();
        }
        (next, queue.1)
    }

    /// Ready when there may be something to take.
    pub(super) async fn filled(&self) {
        self.filled.notified().await;
    }

    /// Ends the stream; the first reason counts.
    pub(super) fn end(&self, reason: Option<Reason>) {
        let mut queue = lock(&self.queue);
        if !queue.0.has_ended() {
            queue.0.end();
            queue.1 = reason;
        }
        drop(queue);
        self.filled.notify_one();
        self.taken.notify_one();
    }

    fn has_ended(&self) -> bool {
        lock(&self.queue).0.has_ended()
    }

    /// Frames and bytes that wait.
    pub(super) fn waiting(&self) -> (usize, usize) {
        let queue = lock(&self.queue);
        (queue.0.frames(), queue.0.bytes())
    }

    fn push_delta(&self, frame: Frame) {
        let mut queue = lock(&self.queue);
        if queue.0.push_delta(frame).is_err() {
            queue.1 = Some(Reason::SubscriberLagged);
            self.taken.notify_one();
        }
        drop(queue);
        self.filled.notify_one();
    }

    /// Queues the chunks of a cut as the reader takes them. The stream ends when it takes none
    /// for `patience`.
    pub(super) async fn send_snapshot(&self, cut: Cut, patience: Duration) {
        let cut = Arc::new(cut);
        for index in 0..cut.chunks() {
            let source = Arc::clone(&cut);
            let encoded = tokio::task::spawn_blocking(move || source.chunk(index)).await;
            let mut frame = match encoded {
                Ok(Ok(frame)) => frame,
                Ok(Err(_)) => return self.end(Some(Reason::InvalidPublication)),
                Err(_) => return self.end(Some(Reason::Internal)),
            };
            loop {
                if self.has_ended() {
                    return;
                }
                let pushed = lock(&self.queue).0.push_chunk(frame);
                match pushed {
                    Ok(()) => break self.filled.notify_one(),
                    Err(back) => frame = back,
                }
                if tokio::time::timeout(patience, self.taken.notified()).await.is_err() {
                    return self.end(Some(Reason::SnapshotProgressTimeout));
                }
            }
        }
    }
}

/// Hands the publisher's frames on; says no when the hub does not keep up.
struct Tap(mpsc::Sender<Published>);

impl Subscriber for Tap {
    fn take(&mut self, frame: Published) -> bool {
        self.0.try_send(frame).is_ok()
    }
}

impl Hub {
    /// Begins to mirror a generation.
    pub(super) fn start(
        relay: &Arc<Relay>,
        generation: &Arc<Generation>,
    ) -> Result<Arc<Hub>, NoHub> {
        let (frames, frames_in) = mpsc::channel(BATCHES_MAX);
        let cut = generation.source.subscribe(Box::new(Tap(frames))).ok_or(NoHub::Gone)?;
        if cut.identity != *generation.key.identity() {
            // It was replaced a moment ago; the catalog will say so.
            return Err(NoHub::Replaced);
        }
        let sequence = generation.sequence.load(std::sync::atomic::Ordering::Relaxed);
        let mirror = Mirror::new(generation.key, cut.words, sequence).map_err(NoHub::Broken)?;
        let limits = &relay.limits;
        let pacer = Pacer::new(
            limits.publication_threshold,
            limits.publication_delay_ms.saturating_mul(1_000),
            limits.publication_queue_capacity,
        );
        let state = State { mirror, pacer, subscribers: VecDeque::new(), failed: None };
        let hub =
            Arc::new(Hub { key: generation.key, state: Mutex::new(state), ended: Notify::new() });
        add(&relay.counters.hubs_started, 1);
        let task = Task {
            relay: Arc::downgrade(relay),
            generation: Arc::clone(generation),
            hub: Arc::clone(&hub),
            clock: relay.clock,
            published: cut.sequence,
        };
        tokio::spawn(task.run(frames_in));
        Ok(hub)
    }

    /// Whether it is of no more use.
    pub(super) fn has_failed(&self) -> bool {
        lock(&self.state).failed.is_some()
    }

    /// Whether nobody is subscribed.
    pub(super) fn is_idle(&self) -> bool {
        let mut state = lock(&self.state);
        state.subscribers.retain(|s| !s.has_ended());
        state.subscribers.is_empty()
    }

    /// The last sequence, and frames and bytes that wait for each subscriber.
    pub(super) fn progress(&self) -> (u64, Vec<(usize, usize)>) {
        let state = lock(&self.state);
        (state.mirror.sequence(), state.subscribers.iter().map(|s| s.waiting()).collect())
    }

    /// A new subscriber: a cut, and a queue for all that follows it.
    pub(super) fn subscribe(
        &self,
        limits: QueueLimits,
        subscribers_max: usize,
    ) -> Result<(Cut, Arc<Subscription>), Refusal> {
        let mut state = lock(&self.state);
        if let Some(reason) = state.failed {
            return Err(Refusal::new(reason, "the filter's publication begins anew"));
        }
        state.subscribers.retain(|s| !s.has_ended());
        if state.subscribers.len() >= subscribers_max {
            let text = "this pool has as many subscribers as it may";
            return Err(Refusal::new(Reason::ResourceLimit, text));
        }
        let cut = state.mirror.cut();
        let subscription = Arc::new(Subscription::new(limits, cut.chunks()));
        state.subscribers.push_back(Arc::clone(&subscription));
        Ok((cut, subscription))
    }

    /// Ends the hub and all its streams; the first reason counts.
    pub(super) fn end(&self, reason: Reason) {
        let subscribers = {
            let mut state = lock(&self.state);
            state.failed.get_or_insert(reason);
            std::mem::take(&mut state.subscribers)
        };
        for subscriber in subscribers {
            subscriber.end(Some(reason));
        }
        self.ended.notify_one();
    }

    fn apply(&self, delta: &Delta, now_us: u64) -> Result<(), MirrorError> {
        let mut state = lock(&self.state);
        state.mirror.apply(&delta.images)?;
        state.pacer.note(now_us);
        Ok(())
    }

    fn due_us(&self) -> Option<u64> {
        lock(&self.state).pacer.due_us()
    }

    /// Sends what changed to everybody. Gives the images sent.
    fn publish(&self, now_us: u64) -> Result<Option<Frame>, MirrorError> {
        let mut state = lock(&self.state);
        state.pacer.published(now_us);
        let Some(frame) = state.mirror.publish()? else { return Ok(None) };
        for subscriber in &state.subscribers {
            subscriber.push_delta(frame.clone());
        }
        state.subscribers.retain(|s| !s.has_ended());
        Ok(Some(frame))
    }
}

/// The task of one hub.
struct Task {
    relay: Weak<Relay>,
    generation: Arc<Generation>,
    hub: Arc<Hub>,
    clock: Clock,
    /// The last batch of the publisher.
    published: u64,
}

impl Task {
    async fn run(mut self, mut frames: mpsc::Receiver<Published>) {
        loop {
            let now_us = self.clock.now().mono_us;
            let due = self.hub.due_us();
            let ended = match due {
                // However fast batches come, what is due goes out.
                Some(due) if due <= now_us => self.publish().await,
                due => {
                    let wait = due.map(|due| Duration::from_micros(due - now_us));
                    tokio::select! {
                        () = self.hub.ended.notified() => return,
                        frame = frames.recv() => self.take(frame),
                        () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {
                            continue;
                        }
                    }
                }
            };
            if let Err(reason) = ended {
                return self.give_up(reason);
            }
        }
    }

    fn take(&mut self, frame: Option<Published>) -> Result<(), Reason> {
        match frame {
            Some(Published::Delta(delta)) => {
                // The publisher numbers its batches without a gap, or it broke its own rules.
                if delta.base != self.published || delta.sequence != self.published + 1 {
                    return Err(Reason::InvalidPublication);
                }
                self.published = delta.sequence;
                let now_us = self.clock.now().mono_us;
                self.hub.apply(&delta, now_us).map_err(reason_of)
            }
            // The generation ended, or the hub missed something.
            Some(Published::Ended) | None => Err(Reason::PublicationUnavailable),
        }
    }

    async fn publish(&self) -> Result<(), Reason> {
        let Some(relay) = self.relay.upgrade() else {
            return Err(Reason::PublicationUnavailable);
        };
        let permit = Arc::clone(&relay.permits.deltas).acquire_owned().await;
        // The semaphore is never closed.
        let _permit = permit.map_err(|_| Reason::Internal)?;
        if let Some(frame) = self.hub.publish(self.clock.now().mono_us).map_err(reason_of)? {
            self.generation.sent(frame.sequence);
            add(&relay.counters.deltas, 1);
            add(&relay.counters.images, images(&frame));
        }
        Ok(())
    }

    fn give_up(&self, reason: Reason) {
        self.hub.end(reason);
        let Some(relay) = self.relay.upgrade() else { return };
        add(&relay.counters.hubs_failed, 1);
        if reason == Reason::InvalidPublication {
            relay.fence(self.hub.key.identity(), "its batches broke its own format or order");
        }
    }
}

impl Drop for Task {
    /// After a panic nobody may wait for a hub that is gone, nor begin another with its publisher.
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.hub.end(Reason::Internal);
            if let Some(relay) = self.relay.upgrade() {
                relay.fence(self.hub.key.identity(), "its mirror panicked");
            }
        }
    }
}

fn images(frame: &Frame) -> u64 {
    const HEAD: usize = 60;
    const IMAGE: usize = 12;
    (frame.payload.len().saturating_sub(HEAD) / IMAGE) as u64
}

fn reason_of(error: MirrorError) -> Reason {
    match error {
        MirrorError::Oversized(_) => Reason::PublicationUnavailable,
        MirrorError::Invalid(_) | MirrorError::SequenceExhausted => Reason::InvalidPublication,
    }
}

/// Counts how a stream of this kind ended.
pub(super) fn count_end(relay: &Relay, reason: Option<Reason>) {
    if let Some(reason) = reason {
        relay.counters.ended(StreamKind::Pool, reason);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::affinity::publication;
    use crate::ckf::digest::{self, Selection};
    use crate::ckf::format::CkfFormat;
    use crate::ckf::hashing::HashFormat;
    use crate::ckf::identity::{IndexerDomainId, PoolId, ProducerIdentity};
    use crate::config;
    use crate::relay::descriptor::{Descriptor, Endpoint, Registration, Role, Semantics, Target};
    use crate::relay::envelope::RelayId;
    use crate::relay_server::PoolSource;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    struct Empty(ProducerIdentity);

    impl PoolSource for Empty {
        fn subscribe(&self, _: Box<dyn Subscriber>) -> Option<publication::Cut> {
            Some(publication::Cut { identity: self.0, sequence: 0, words: vec![0; 16] })
        }
    }

    fn pool() -> (Descriptor, Arc<Empty>) {
        let map = Selection::explicit([("authority", "hub")]).unwrap();
        let indexer_domain = IndexerDomainId {
            cache_semantics: digest::cache_semantics(&map, 2, HashFormat::Standard),
            routing_scope: digest::routing_scope(&map),
        };
        let identity = ProducerIdentity {
            pool: PoolId { indexer_domain, dc_id: digest::dc_id("dc1") },
            producer_incarnation: 1,
            layout_generation: 1,
            format: CkfFormat::new(7, 16).unwrap(),
        };
        let name = || "one".to_owned();
        let descriptor = Descriptor {
            key: ProducerKey::try_from(identity).unwrap(),
            endpoint: Endpoint { namespace: name(), component: name(), endpoint: name() },
            registrations: vec![Registration {
                canonical_id: name(),
                target: Target::Base(name()),
                aliases: Vec::new(),
            }],
            semantics: Semantics { block_size: 2, format: HashFormat::Standard },
            roles: vec![Role::Aggregated],
        };
        (descriptor, Arc::new(Empty(identity)))
    }

    #[tokio::test]
    async fn a_mirror_that_panics_ends_its_streams_and_withdraws_its_pool() {
        let id = RelayId { drt_instance_id: 1, incarnation: 1 };
        let relay = Relay::new(id, config::Relay::default(), Clock::start());
        let (descriptor, source) = pool();
        relay.publish(descriptor.clone(), source.clone()).unwrap();
        let generation = relay.pools.get(&descriptor.key.pool()).unwrap();
        let hub = relay.pools.hub(&relay, &generation).ok().unwrap();
        let limits = QueueLimits { frames: 16, bytes: 1 << 20 };
        let (_, stream) = hub.subscribe(limits, 1).ok().unwrap();
        let task = Task {
            relay: Arc::downgrade(&relay),
            generation,
            hub,
            clock: relay.clock,
            published: 0,
        };
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _task = task;
            panic!("as a wrong mirror might");
        }));
        assert!(panicked.is_err());
        assert!(matches!(stream.take(), (Next::Ended, Some(Reason::Internal))));
        relay.publish(descriptor, source).unwrap();
        assert!(relay.published().is_empty(), "it does not come back");
    }
}
