//! Task numbers of one slot.

use crate::gateway::error::ApiError;
use crate::gateway::kv::{Class, KvError, State};
use crate::gateway::settings::Settings;
use crate::gateway::time::WallClock;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use tokio::sync::Mutex;

/// Sequence numbers reserved at a time.
const BLOCK: u64 = 64;
/// Numbers a client can read as a signed 32-bit integer.
const NUMBER_MAX: u64 = (1 << 31) - 1;
/// Age at which another gateway's claim on a slot has ended.
const CLAIM_AGE_US: u64 = 30_000_000;

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
}

/// A slot and its numbers that may be given out.
#[derive(Debug)]
struct Reserved {
    slot: u32,
    next: u64,
    ceiling: u64,
}

/// The sequence of one slot.
pub(super) struct Numbers {
    /// The slot the configuration names.
    wanted: Option<u32>,
    pub(super) stride: u32,
    gateway_id: String,
    since_us: u64,
    state: State,
    clock: WallClock,
    /// `None` until the slot's record was read.
    reserved: Mutex<Option<Reserved>>,
}

impl Numbers {
    pub(super) fn new(
        settings: &Settings,
        gateway_id: &str,
        state: State,
        clock: WallClock,
    ) -> Numbers {
        Numbers {
            wanted: settings.slot,
            stride: settings.max_gateways.max(1),
            gateway_id: gateway_id.to_owned(),
            since_us: clock.now_us(),
            state,
            clock,
            reserved: Mutex::default(),
        }
    }

    /// The next number.
    ///
    /// # Errors
    /// No slot's record was ever read, another gateway uses the slot, or numbers have run out.
    pub(super) async fn next(&self) -> Result<u64, ApiError> {
        let mut held = self.reserved.lock().await;
        let reserved = self.begun(&mut held).await?;
        if reserved.next >= reserved.ceiling {
            let ceiling = reserved.next + BLOCK;
            if let Err(error) = self.claim(reserved.slot, ceiling).await {
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
    pub(super) async fn slot(&self) -> Result<u32, ApiError> {
        let mut held = self.reserved.lock().await;
        Ok(self.begun(&mut held).await?.slot)
    }

    async fn begun<'a>(
        &self,
        held: &'a mut Option<Reserved>,
    ) -> Result<&'a mut Reserved, ApiError> {
        match held {
            Some(reserved) => Ok(reserved),
            None => {
                let mut begun = self.begin().await;
                for _ in 1..SETTLE_TRIES {
                    if begun.is_ok() || self.wanted.is_some() {
                        break;
                    }
                    begun = self.begin().await;
                }
                Ok(held.insert(begun?))
            }
        }
    }

    /// Takes a slot and reads where it stands.
    async fn begin(&self) -> Result<Reserved, ApiError> {
        let (slot, claim) = match self.wanted {
            Some(slot) => (slot, self.read(slot).await?),
            None => self.free_slot().await?,
        };
        if let Some(other) = claim.as_ref().filter(|claim| self.is_taken(claim)) {
            let message = format!(
                "documents.slot {slot} is in use by {}; give every gateway a slot of its own",
                other.owner
            );
            tracing::error!(plane = "doc", message);
            return Err(ApiError::new("miroir_state_unavailable", message));
        }
        let had = claim.as_ref().is_some_and(|claim| claim.owner == self.gateway_id);
        let next = claim.map_or(0, |claim| claim.ceiling);
        self.claim(slot, next).await?;
        if self.wanted.is_none() && !had {
            self.settle(slot).await?;
        }
        Ok(Reserved { slot, next, ceiling: next })
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

    /// The slot this gateway had, else the lowest whose gateway is not there.
    async fn free_slot(&self) -> Result<(u32, Option<Claim>), ApiError> {
        let mut free = None;
        for slot in 0..self.stride {
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
        claim.owner != self.gateway_id && claim.since_us < self.since_us && self.is_fresh(claim)
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

    async fn claim(&self, slot: u32, ceiling: u64) -> Result<(), KvError> {
        let claim = Claim {
            ceiling,
            owner: self.gateway_id.clone(),
            since_us: self.since_us,
            seen_us: self.clock.now_us(),
        };
        self.state.store(Class::Sequence, &slot.to_string(), &claim).await
    }

    /// Renews the claim, or gives the slot up to a gateway that had it first.
    pub(super) async fn keep(&self) {
        let mut held = self.reserved.lock().await;
        // An error shows when a number is asked for.
        let Ok(reserved) = self.begun(&mut held).await else { return };
        let (slot, ceiling) = (reserved.slot, reserved.ceiling);
        match self.read(slot).await {
            Ok(Some(claim)) if self.is_taken(&claim) => *held = None,
            Ok(_) => {
                if let Err(error) = self.claim(slot, ceiling).await {
                    tracing::debug!(plane = "doc", %error, "the slot's claim was not renewed");
                }
            }
            Err(error) => tracing::debug!(plane = "doc", %error, "the slot was not looked at"),
        }
    }
}
