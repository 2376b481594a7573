//! Task numbers of one slot.

use crate::gateway::error::ApiError;
use crate::gateway::kv::{Class, KvError, State};
use crate::gateway::settings::Settings;
use crate::gateway::time::WallClock;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

/// Sequence numbers reserved at a time.
const BLOCK: u64 = 64;
/// Numbers a client can read as a signed 32-bit integer.
const NUMBER_MAX: u64 = (1 << 31) - 1;
/// Age at which another gateway's claim on a slot has ended.
const CLAIM_AGE_US: u64 = 30_000_000;

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

#[derive(Debug, Default)]
struct Reserved {
    next: u64,
    ceiling: u64,
    ready: bool,
}

/// The sequence of one slot.
pub(super) struct Numbers {
    pub(super) slot: u32,
    pub(super) stride: u32,
    gateway_id: String,
    since_us: u64,
    state: State,
    clock: WallClock,
    reserved: Mutex<Reserved>,
}

impl Numbers {
    pub(super) fn new(
        settings: &Settings,
        gateway_id: &str,
        state: State,
        clock: WallClock,
    ) -> Numbers {
        Numbers {
            slot: settings.slot,
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
    /// The slot's record was never read, another gateway uses the slot, or numbers have run out.
    pub(super) async fn next(&self) -> Result<u64, ApiError> {
        let mut reserved = self.reserved.lock().await;
        if !reserved.ready {
            *reserved = self.begin().await?;
        }
        if reserved.next >= reserved.ceiling {
            let ceiling = reserved.next + BLOCK;
            if let Err(error) = self.claim(ceiling).await {
                // Numbers go on; after a restart before the next success some might be given
                // out twice, which costs a lost task and never a document.
                tracing::warn!(plane = "doc", %error, "task numbers were not reserved");
            }
            reserved.ceiling = ceiling;
        }
        let sequence = reserved.next;
        reserved.next += 1;
        let number = sequence * u64::from(self.stride) + u64::from(self.slot);
        if number > NUMBER_MAX {
            return Err(ApiError::new("internal", "the task numbers of this gateway are used up"));
        }
        Ok(number)
    }

    /// Reads where the slot stands.
    async fn begin(&self) -> Result<Reserved, ApiError> {
        let claim = self.read(self.slot).await?;
        if let Some(other) = claim.as_ref().filter(|claim| self.is_taken(claim)) {
            let message = format!(
                "documents.slot {} is in use by {}; give every gateway a slot of its own",
                self.slot, other.owner
            );
            tracing::error!(plane = "doc", message);
            return Err(ApiError::new("miroir_state_unavailable", message));
        }
        let next = claim.map_or(0, |claim| claim.ceiling);
        Ok(Reserved { next, ceiling: next, ready: true })
    }

    /// Another gateway holds the slot, was there before, and is alive.
    fn is_taken(&self, claim: &Claim) -> bool {
        claim.owner != self.gateway_id
            && claim.since_us < self.since_us
            && self.clock.now_us().saturating_sub(claim.seen_us) < CLAIM_AGE_US
    }

    /// A slot's record.
    pub(super) async fn read(&self, slot: u32) -> Result<Option<Claim>, KvError> {
        self.state.load(Class::Sequence, &slot.to_string()).await
    }

    /// Whether a slot's gateway was there lately.
    pub(super) async fn is_alive(&self, slot: u32) -> Result<bool, KvError> {
        let claim = self.read(slot).await?;
        let age = |claim: Claim| self.clock.now_us().saturating_sub(claim.seen_us);
        Ok(claim.is_some_and(|claim| age(claim) < CLAIM_AGE_US))
    }

    async fn claim(&self, ceiling: u64) -> Result<(), KvError> {
        let claim = Claim {
            ceiling,
            owner: self.gateway_id.clone(),
            since_us: self.since_us,
            seen_us: self.clock.now_us(),
        };
        self.state.store(Class::Sequence, &self.slot.to_string(), &claim).await
    }

    /// Renews the claim, or gives the slot up to a gateway that had it first.
    pub(super) async fn keep(&self) {
        let mut reserved = self.reserved.lock().await;
        if !reserved.ready {
            // An error shows when a number is asked for.
            if let Ok(begun) = self.begin().await {
                *reserved = begun;
            }
            return;
        }
        match self.read(self.slot).await {
            Ok(Some(claim)) if self.is_taken(&claim) => reserved.ready = false,
            Ok(_) if reserved.ceiling > 0 => {
                if let Err(error) = self.claim(reserved.ceiling).await {
                    tracing::debug!(plane = "doc", %error, "the slot's claim was not renewed");
                }
            }
            Ok(_) | Err(_) => {}
        }
    }
}
