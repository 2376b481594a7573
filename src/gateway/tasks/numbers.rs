//! Task numbers of one slot.

use crate::gateway::client::Outbound;
use crate::gateway::error::ApiError;
use crate::gateway::kv::{Class, KvError, State, TASK_KEPT};
use crate::gateway::others::Others;
use crate::gateway::placement::Placement;
use crate::gateway::settings::Settings;
use crate::gateway::time::WallClock;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

/// Sequence numbers reserved at a time.
const BLOCK: u64 = 64;
/// Numbers a client can read as a signed 32-bit integer.
const NUMBER_MAX: u64 = (1 << 31) - 1;
/// Age at which another gateway's claim on a slot has ended.
const CLAIM_AGE_US: u64 = 30_000_000;

/// Time after which a claim is renewed.
const RENEW_US: u64 = 10_000_000;

/// Time between two marks of how far a slot was.
const MARK_US: u64 = 6 * 3_600 * 1_000_000;

/// Time in which gateways that start together see each other's claims.
const SETTLE_PAUSE: Duration = Duration::from_millis(300);
/// Tries for a free slot before the caller is told.
const SETTLE_TRIES: usize = 3;

/// A slot's record in the ring.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Claim {
    /// Every sequence number below this one may have been given out.
    pub(super) ceiling: u64,
    /// Who gives numbers out.
    owner: String,
    /// When the owner began.
    since_us: u64,
    /// When the owner was last there.
    seen_us: u64,
    /// How far the sequence was at some times of the last days, the oldest first.
    #[serde(default)]
    marks: Vec<Mark>,
}

/// How far a slot's sequence was at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Mark {
    at_us: u64,
    /// Every sequence number below this one had been given out.
    next: u64,
}

impl Claim {
    /// The lowest sequence number whose task may still be there: all below it were given out so
    /// long ago that they have expired.
    pub(super) fn floor(&self, now_us: u64) -> u64 {
        let end_us = expired_before(now_us);
        if self.seen_us < end_us {
            return self.ceiling;
        }
        let past = self.marks.iter().filter(|mark| mark.at_us < end_us);
        past.map(|mark| mark.next).max().unwrap_or(0)
    }
}

/// Tasks given out before this time have expired. A task is kept from its end on; a day is more
/// than it takes to end.
fn expired_before(now_us: u64) -> u64 {
    const ENDED_US: u64 = 24 * 3_600 * 1_000_000;
    now_us.saturating_sub(TASK_KEPT.as_micros() as u64 + ENDED_US)
}

/// Adds a mark when the last one is old, and drops those that say no more than a later one.
fn mark(marks: &mut Vec<Mark>, now_us: u64, next: u64) {
    if marks.last().is_none_or(|last| now_us.saturating_sub(last.at_us) >= MARK_US) {
        marks.push(Mark { at_us: now_us, next });
    }
    let expired = marks.iter().filter(|mark| mark.at_us < expired_before(now_us)).count();
    marks.drain(..expired.saturating_sub(1));
}

/// A slot and its numbers that may be given out.
#[derive(Debug)]
struct Reserved {
    slot: u32,
    next: u64,
    ceiling: u64,
    /// When the claim was last looked at.
    claimed_us: u64,
    marks: Vec<Mark>,
}

/// Tasks of each backend that are looked at for the numbers they are marked with.
const MARKS_LOOKED_AT: usize = 1_000;

/// The highest number of a gateway's task that a backend's task is marked with. Backends keep
/// their tasks when the ring's nodes lose theirs, so no number is given out twice.
async fn highest_mark(placement: &Placement) -> Option<u64> {
    let mut asked = JoinSet::new();
    for backend in placement.by_health() {
        let backend = Arc::clone(backend);
        let request = Outbound::get(format!("/tasks?limit={MARKS_LOOKED_AT}"));
        asked.spawn(async move { backend.call(request).await });
    }
    let mut highest = None;
    while let Some(answer) = asked.join_next().await {
        let Ok(Ok(reply)) = answer else { continue };
        let Some(body) = reply.json().filter(|_| reply.is_success()) else { continue };
        let tasks = body.get("results").and_then(Value::as_array);
        let marks = tasks.into_iter().flatten().filter_map(|task| {
            let mark = task.get("customMetadata")?.as_str()?.strip_prefix("mtask-")?;
            mark.parse().ok().filter(|number| *number <= NUMBER_MAX)
        });
        highest = highest.max(marks.max());
    }
    highest
}

/// The sequence of one slot.
pub(super) struct Numbers {
    /// The slot the configuration names.
    wanted: Option<u32>,
    pub(super) stride: u32,
    gateway_id: String,
    others: Arc<Others>,
    state: State,
    clock: WallClock,
    /// `None` until the slot's record was read.
    reserved: Mutex<Option<Reserved>>,
    /// The slot in use, else why there is none; what others are told and operators see.
    standing: std::sync::Mutex<Result<u32, String>>,
}

impl Numbers {
    pub(super) fn new(
        settings: &Settings,
        others: Arc<Others>,
        state: State,
        clock: WallClock,
    ) -> Numbers {
        Numbers {
            wanted: settings.slot,
            stride: settings.max_gateways.max(1),
            gateway_id: others.id().to_owned(),
            others,
            state,
            clock,
            reserved: Mutex::default(),
            standing: std::sync::Mutex::new(Err("no slot was taken yet".to_owned())),
        }
    }

    /// The slot in use, else why there is none.
    pub(super) fn standing(&self) -> Result<u32, String> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn stand(&self, standing: Result<u32, String>) {
        *self.standing.lock().unwrap_or_else(PoisonError::into_inner) = standing;
    }

    /// The next number.
    ///
    /// # Errors
    /// No slot's record was ever read, another gateway uses the slot, or numbers have run out.
    pub(super) async fn next(&self, placement: &Placement) -> Result<u64, ApiError> {
        let mut held = self.reserved.lock().await;
        let reserved = self.begun(&mut held, placement).await?;
        if reserved.next >= reserved.ceiling {
            let ceiling = reserved.next + BLOCK;
            mark(&mut reserved.marks, self.clock.now_us(), reserved.next);
            if let Err(error) = self.claim(reserved.slot, ceiling, &reserved.marks).await {
                // Numbers go on; after a restart before the next success some might be given
                // out twice, which costs a lost task and never a document.
                tracing::warn!(plane = "doc", %error, "task numbers were not reserved");
            }
            reserved.ceiling = ceiling;
        }
        let sequence = reserved.next;
        reserved.next += 1;
        let number = sequence * u64::from(self.stride) + u64::from(reserved.slot);
        if number > NUMBER_MAX {
            return Err(ApiError::new("internal", "the task numbers of this gateway are used up"));
        }
        Ok(number)
    }

    /// The slot this gateway gives numbers of.
    pub(super) async fn slot(&self, placement: &Placement) -> Result<u32, ApiError> {
        let mut held = self.reserved.lock().await;
        Ok(self.begun(&mut held, placement).await?.slot)
    }

    async fn begun<'a>(
        &self,
        held: &'a mut Option<Reserved>,
        placement: &Placement,
    ) -> Result<&'a mut Reserved, ApiError> {
        if let Some(reserved) = held
            && let Some(older) = self.others.older_with_slot(reserved.slot)
        {
            let slot = reserved.slot;
            tracing::error!(
                plane = "doc",
                slot,
                older = older.id,
                "an older gateway uses the \
                            same task slot: this one gives it up"
            );
            *held = None;
        }
        match held {
            Some(reserved) => Ok(reserved),
            None => {
                let mut begun = self.begin(placement).await;
                for _ in 1..SETTLE_TRIES {
                    if begun.is_ok() || self.wanted.is_some() {
                        break;
                    }
                    begun = self.begin(placement).await;
                }
                let standing = begun.as_ref().map(|reserved| reserved.slot);
                self.stand(standing.map_err(|error| error.message.clone()));
                Ok(held.insert(begun?))
            }
        }
    }

    /// Takes a slot and reads where it stands.
    async fn begin(&self, placement: &Placement) -> Result<Reserved, ApiError> {
        let (slot, claim) = match self.wanted {
            Some(slot) => (slot, self.read(slot).await?),
            None => self.free_slot().await?,
        };
        let older = self.others.older_with_slot(slot).map(|older| older.id);
        let taken = || claim.as_ref().filter(|claim| self.is_taken(claim));
        if let Some(other) = older.or_else(|| Some(taken()?.owner.clone())) {
            let message = format!(
                "documents.slot {slot} is in use by {other}; give every gateway a slot of its own"
            );
            tracing::error!(plane = "doc", message);
            return Err(ApiError::new("miroir_state_unavailable", message));
        }
        let had = claim.as_ref().is_some_and(|claim| claim.owner == self.gateway_id);
        let mut marks = claim.as_ref().map_or_else(Vec::new, |claim| claim.marks.clone());
        let next = match claim {
            Some(claim) => claim.ceiling,
            // The first start, or a ring that lost all it had. The latest tasks may be unmarked.
            None => {
                let marked = highest_mark(placement).await;
                marked.map_or(0, |uid| uid / u64::from(self.stride) + 1 + BLOCK)
            }
        };
        mark(&mut marks, self.clock.now_us(), next);
        self.claim(slot, next, &marks).await?;
        if self.wanted.is_none() && !had {
            self.settle(slot).await?;
        }
        Ok(Reserved { slot, next, ceiling: next, claimed_us: self.clock.now_us(), marks })
    }

    /// Gateways that start together may claim one free slot; the newest claim keeps it.
    async fn settle(&self, slot: u32) -> Result<(), ApiError> {
        tokio::time::sleep(SETTLE_PAUSE).await;
        match self.read(slot).await? {
            Some(claim) if claim.owner == self.gateway_id => Ok(()),
            _ => {
                let message = "another gateway took the same task slot just now; try again";
                Err(ApiError::new("miroir_state_unavailable", message))
            }
        }
    }

    /// The slot this gateway had, else the lowest that no other gateway tells to use and whose
    /// last one is not there.
    async fn free_slot(&self) -> Result<(u32, Option<Claim>), ApiError> {
        let (mut free, taken) = (None, self.others.slots());
        for slot in (0..self.stride).filter(|slot| !taken.contains(slot)) {
            let claim = self.read(slot).await?;
            if claim.as_ref().is_some_and(|claim| claim.owner == self.gateway_id) {
                return Ok((slot, claim));
            }
            if free.is_none() && claim.as_ref().is_none_or(|claim| !self.is_fresh(claim)) {
                free = Some((slot, claim));
            }
        }
        free.ok_or_else(|| {
            let message = "every documents.slot is in use; raise documents.max_gateways";
            ApiError::new("miroir_state_unavailable", message)
        })
    }

    /// Another gateway holds the slot, was there before, and is alive.
    fn is_taken(&self, claim: &Claim) -> bool {
        let earlier = claim.since_us < self.others.since_us();
        claim.owner != self.gateway_id && earlier && self.is_fresh(claim)
    }

    fn is_fresh(&self, claim: &Claim) -> bool {
        self.clock.now_us().saturating_sub(claim.seen_us) < CLAIM_AGE_US
    }

    /// A slot's record.
    pub(super) async fn read(&self, slot: u32) -> Result<Option<Claim>, KvError> {
        self.state.load(Class::Sequence, &slot.to_string()).await
    }

    /// Whether a slot's gateway was there lately.
    pub(super) async fn is_alive(&self, slot: u32) -> Result<bool, KvError> {
        Ok(self.read(slot).await?.is_some_and(|claim| self.is_fresh(&claim)))
    }

    async fn claim(&self, slot: u32, ceiling: u64, marks: &[Mark]) -> Result<(), KvError> {
        let claim = Claim {
            ceiling,
            owner: self.gateway_id.clone(),
            since_us: self.others.since_us(),
            seen_us: self.clock.now_us(),
            marks: marks.to_vec(),
        };
        self.state.store(Class::Sequence, &slot.to_string(), &claim).await
    }

    /// Takes a slot where there is none; from time to time renews its claim, or gives the slot
    /// up to a gateway that had it first.
    pub(super) async fn keep(&self, placement: &Placement) {
        let mut held = self.reserved.lock().await;
        // An error shows when a number is asked for.
        let Ok(reserved) = self.begun(&mut held, placement).await else { return };
        let (slot, ceiling, marks) = (reserved.slot, reserved.ceiling, reserved.marks.clone());
        if self.clock.now_us().saturating_sub(reserved.claimed_us) < RENEW_US {
            return;
        }
        reserved.claimed_us = self.clock.now_us();
        match self.read(slot).await {
            Ok(Some(claim)) if self.is_taken(&claim) => {
                self.stand(Err(format!("{} took slot {slot} first", claim.owner)));
                *held = None;
            }
            Ok(_) => {
                if let Err(error) = self.claim(slot, ceiling, &marks).await {
                    tracing::debug!(plane = "doc", %error, "the slot's claim was not renewed");
                }
            }
            Err(error) => tracing::debug!(plane = "doc", %error, "the slot was not looked at"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_tell_what_has_expired_and_stay_few() {
        let day = 24 * 3_600 * 1_000_000;
        let (mut marks, mut now, mut next) = (Vec::new(), 100 * day, 0);
        for _ in 0..40 * 24 {
            mark(&mut marks, now, next);
            now += day / 24;
            next += 100;
        }
        assert!(marks.len() < 40, "{}", marks.len());
        let claim = Claim {
            ceiling: next + BLOCK,
            owner: "me".into(),
            since_us: 0,
            seen_us: now,
            marks: marks.clone(),
        };
        let floor = claim.floor(now);
        // 100 an hour: all of the last eight days, and at most some hours more.
        assert!((next - 8 * 2_400 - 1_000..=next - 8 * 2_400).contains(&floor), "{floor}");
        assert_eq!(Claim { marks: Vec::new(), ..claim.clone() }.floor(now), 0, "nobody knows");
        assert_eq!(claim.floor(now + 9 * day), next + BLOCK, "its gateway is long gone");
    }
}
