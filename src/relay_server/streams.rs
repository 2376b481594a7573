//! The streams of the calls: each ends with its reason, or cleanly when the relay stops.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::Stream;
use futures_util::stream::unfold;
use tokio::sync::{broadcast, watch};
use tokio::time::{Interval, MissedTickBehavior};
use tonic::Status;

use super::admission::{Place, Refusal};
use super::counters::add;
use super::hub::{Subscription, count_end};
use crate::net::clock::wall_us;
use crate::relay::envelope::{CONTRACT_MARKER, PROTOCOL_VERSION};
use crate::relay::key::ProducerKey;
use crate::relay::proto;
use crate::relay::queue::{Frame, Next};
use crate::relay::reason::Reason;

/// What a call that succeeded answers with.
pub(super) type Responses<M> = Pin<Box<dyn Stream<Item = Result<M, Status>> + Send>>;

/// Complete snapshots: the present one at once, each later one, and repeats on a fixed tick.
pub(super) fn snapshots<M: Clone + Send + Sync + 'static>(
    place: Place,
    mut now: watch::Receiver<Arc<M>>,
    repeat_ms: u64,
) -> Responses<M> {
    now.mark_changed();
    let closing = place.relay().closing.subscribe();
    let state = (place, now, ticks(repeat_ms), closing);
    Box::pin(unfold(state, |(place, mut now, mut tick, mut closing)| async move {
        tokio::select! {
            biased;
            _ = closing.wait_for(|closing| *closing) => return None,
            changed = now.changed() => changed.ok()?,
            _ = tick.tick() => {}
        }
        let message = Arc::clone(&now.borrow_and_update());
        add(&place.counters().of(place.kind).messages, 1);
        Some((Ok(M::clone(&message)), (place, now, tick, closing)))
    }))
}

/// Windows: the latest at once, then each that follows. Who misses one is told so.
pub(super) fn windows<M: Clone + Send + Sync + 'static>(
    place: Place,
    (latest, follow): (Arc<M>, broadcast::Receiver<Arc<M>>),
) -> Responses<M> {
    let closing = place.relay().closing.subscribe();
    let state = Some((place, Some(latest), follow, closing));
    Box::pin(unfold(state, |state| async move {
        let (place, latest, mut follow, mut closing) = state?;
        let message = match latest {
            Some(latest) => Ok(latest),
            None => tokio::select! {
                biased;
                _ = closing.wait_for(|closing| *closing) => return None,
                message = follow.recv() => message,
            },
        };
        match message {
            Ok(message) => {
                add(&place.counters().of(place.kind).messages, 1);
                Some((Ok(M::clone(&message)), Some((place, None, follow, closing))))
            }
            Err(broadcast::error::RecvError::Closed) => None,
            Err(broadcast::error::RecvError::Lagged(missed)) => {
                let reason = Reason::SubscriberLagged;
                place.counters().ended(place.kind, reason);
                let text = format!("{missed} windows were missed");
                Some((Err(Refusal::new(reason, text).status()), None))
            }
        }
    }))
}

/// One filter: what its queue holds, and heartbeats while that is empty.
pub(super) struct FilterStream {
    pub(super) place: Place,
    pub(super) key: ProducerKey,
    pub(super) subscription: Arc<Subscription>,
    pub(super) heartbeat_ms: u64,
}

impl FilterStream {
    /// The stream.
    pub(super) fn responses(self) -> Responses<proto::FilterUpdate> {
        let closing = self.place.relay().closing.subscribe();
        let state = Some((ticks(self.heartbeat_ms), closing, self));
        Box::pin(unfold(state, |state| async move {
            let (mut tick, mut closing, stream) = state?;
            let ended = async { closing.wait_for(|closing| *closing).await.is_ok() };
            let next = tokio::select! {
                biased;
                _ = ended => return None,
                next = stream.next(&mut tick) => next,
            };
            match next {
                Ok(frame) => {
                    tick.reset();
                    Some((Ok(stream.message(&frame)), Some((tick, closing, stream))))
                }
                Err(reason) => {
                    count_end(stream.place.relay(), reason);
                    let text = "the stream ended; subscribe again";
                    reason.map(|reason| (Err(Refusal::new(reason, text).status()), None))
                }
            }
        }))
    }

    /// The next frame, or why there is none.
    async fn next(&self, tick: &mut Interval) -> Result<Frame, Option<Reason>> {
        loop {
            let idle = match self.subscription.take() {
                (Next::Frame(frame), _) => return Ok(frame),
                (Next::Ended, reason) => return Err(reason),
                (Next::Idle(sequence), _) => Some(sequence),
                (Next::Nothing, _) => None,
            };
            tokio::select! {
                () = self.subscription.filled() => {}
                _ = tick.tick(), if idle.is_some() => {
                    return Ok(Frame::heartbeat(idle.unwrap_or_default()));
                }
            }
        }
    }

    fn message(&self, frame: &Frame) -> proto::FilterUpdate {
        let of_kind = self.place.counters().of(self.place.kind);
        add(&of_kind.messages, 1);
        add(&of_kind.payload_bytes, frame.payload.len() as u64);
        proto::FilterUpdate {
            protocol_version: PROTOCOL_VERSION,
            relay: Some(self.place.relay().id.into()),
            producer: Some((&self.key).into()),
            base_sequence: frame.base,
            sequence: frame.sequence,
            send_ts_us: wall_us(),
            kind: frame.kind as i32,
            payload: frame.payload.clone(),
            contract_marker: CONTRACT_MARKER,
        }
    }
}

/// A reader that is gone frees its queue and its encoder.
impl Drop for FilterStream {
    fn drop(&mut self) {
        self.subscription.end(None);
    }
}

/// Ticks that begin one period from now.
fn ticks(period_ms: u64) -> Interval {
    let period = Duration::from_millis(period_ms);
    let mut ticks = tokio::time::interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first tick of an interval is now.
    ticks.reset();
    ticks
}
