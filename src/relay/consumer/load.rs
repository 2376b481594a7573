//! The two load planes of a consumer. Windows follow each other without a gap; a window is used
//! whole or not at all.

use std::collections::HashSet;

use super::{PlaneFault, check_sender};
use crate::relay::envelope::RelayId;
use crate::relay::key::ProducerKey;
use crate::relay::load::{PoolLoad, Window};
use crate::relay::{Fault, proto, serving};

/// How full the pools are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadView {
    /// Which window.
    pub window: Window,
    /// The pools in it.
    pub pools: Vec<PoolLoad>,
    /// Pools of a kind we do not know, left out.
    pub unsupported: usize,
}

/// The machine of the pool load.
#[derive(Debug)]
pub struct LoadPlane {
    relay: RelayId,
    last: Option<u64>,
}

impl LoadPlane {
    /// A plane of a connection to this relay.
    pub fn new(relay: RelayId) -> LoadPlane {
        LoadPlane { relay, last: None }
    }

    /// Takes a window.
    pub fn take(&mut self, update: &proto::KvPoolLoadUpdate) -> Result<LoadView, PlaneFault> {
        check_sender(update, self.relay)?;
        check_window(self.last, update.window_sequence)?;
        let mut pools = Vec::new();
        let mut seen = HashSet::new();
        for message in &update.pools {
            let Some(key) = key_of(message.producer.as_ref(), &mut seen)? else { continue };
            let load = PoolLoad::try_from(message).map_err(PlaneFault::Window)?;
            debug_assert_eq!(load.key, key);
            pools.push(load);
        }
        self.last = Some(update.window_sequence);
        let unsupported = update.pools.len() - pools.len();
        let window = Window {
            sequence: update.window_sequence,
            observed_ms: update.observed_ms,
            window_ms: update.window_ms,
        };
        Ok(LoadView { window, pools, unsupported })
    }
}

/// What pools and models are doing; entries as they came, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct ServingView {
    /// Which window.
    pub window: Window,
    /// The pools in it.
    pub pools: Vec<(ProducerKey, proto::PoolServingLoad)>,
    /// The models in it.
    pub models: Vec<proto::ModelServingLoad>,
}

/// The machine of the serving load.
#[derive(Debug)]
pub struct ServingPlane {
    relay: RelayId,
    last: Option<u64>,
}

impl ServingPlane {
    /// A plane of a connection to this relay.
    pub fn new(relay: RelayId) -> ServingPlane {
        ServingPlane { relay, last: None }
    }

    /// Takes a window.
    pub fn take(&mut self, update: proto::ServingLoadUpdate) -> Result<ServingView, PlaneFault> {
        check_sender(&update, self.relay)?;
        check_window(self.last, update.window_sequence)?;
        let mut pools = Vec::new();
        let mut seen = HashSet::new();
        for message in update.pools {
            let Some(key) = key_of(message.producer.as_ref(), &mut seen)? else { continue };
            serving::check_pool(&message).map_err(PlaneFault::Window)?;
            pools.push((key, message));
        }
        let mut seen = HashSet::new();
        for model in &update.models {
            if !seen.insert(serving::model_key(model).map_err(PlaneFault::Key)?) {
                return Err(PlaneFault::DuplicateKey);
            }
            serving::check_model(model).map_err(PlaneFault::Window)?;
        }
        self.last = Some(update.window_sequence);
        let window = Window {
            sequence: update.window_sequence,
            observed_ms: update.observed_ms,
            window_ms: update.window_ms,
        };
        Ok(ServingView { window, pools, models: update.models })
    }
}

/// The first window is whatever comes; each other is the next.
fn check_window(last: Option<u64>, now: u64) -> Result<(), PlaneFault> {
    match last {
        Some(before) if before.checked_add(1) != Some(now) => {
            Err(PlaneFault::WindowGap { before, now })
        }
        Some(_) | None => Ok(()),
    }
}

/// The key of an entry; none for a kind we do not know.
fn key_of(
    producer: Option<&proto::ProducerIdentity>,
    seen: &mut HashSet<ProducerKey>,
) -> Result<Option<ProducerKey>, PlaneFault> {
    let producer = producer.ok_or(PlaneFault::Key(Fault::MissingField("producer")))?;
    match ProducerKey::try_from(producer) {
        Ok(key) if seen.insert(key) => Ok(Some(key)),
        Ok(_) => Err(PlaneFault::DuplicateKey),
        Err(fault) if fault.is_unsupported() => Ok(None),
        Err(fault) => Err(PlaneFault::Key(fault)),
    }
}
