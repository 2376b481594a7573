//! Who is let in: the checks of a call in the contract's order, and the permits of its kind.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::metadata::MetadataValue;
use tonic::{Code, Status};

use super::counters::{Counters, StreamKind};
use super::{Relay, semaphore};
use crate::config;
use crate::relay::envelope::{Request, RequestFault, check_request};
use crate::relay::key::ProducerKey;
use crate::relay::reason::{Reason, TRAILER, code_of};
use crate::relay::{Fault, proto};

/// Why a call or stream ends, with what to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) reason: Reason,
    text: String,
}

impl Refusal {
    pub(super) fn new(reason: Reason, text: impl Into<String>) -> Refusal {
        Refusal { reason, text: text.into() }
    }

    /// The status, with the reason in its trailer.
    pub(super) fn status(self) -> Status {
        let mut status = Status::new(Code::from_i32(code_of(self.reason)), self.text);
        let name = MetadataValue::from_static(self.reason.as_str_name());
        status.metadata_mut().insert(TRAILER, name);
        status
    }
}

impl From<RequestFault> for Refusal {
    fn from(fault: RequestFault) -> Refusal {
        let reason = match fault {
            RequestFault::ContractMarker(_) => Reason::ContractMismatch,
            RequestFault::SubscriberId => Reason::InvalidRequest,
        };
        Refusal::new(reason, fault.to_string())
    }
}

/// What is wrong with the producer a subscriber expects.
impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Refusal {
        let reason = match fault.is_unsupported() {
            true => Reason::UnsupportedFeature,
            false => Reason::InvalidRequest,
        };
        Refusal::new(reason, format!("expected_producer: {fault}"))
    }
}

/// Permits of each kind of stream, and of the encoders.
pub(super) struct Permits {
    catalog: Arc<Semaphore>,
    pool: Arc<Semaphore>,
    readiness: Arc<Semaphore>,
    load: Arc<Semaphore>,
    serving: Arc<Semaphore>,
    pub(super) snapshots: Arc<Semaphore>,
    pub(super) deltas: Arc<Semaphore>,
}

impl Permits {
    pub(super) fn new(limits: &config::Relay) -> Permits {
        Permits {
            catalog: semaphore(limits.max_catalog_subscribers),
            pool: semaphore(limits.max_pool_streams_total),
            readiness: semaphore(limits.max_readiness_subscribers),
            load: semaphore(limits.max_load_subscribers),
            serving: semaphore(limits.max_serving_load_subscribers),
            snapshots: semaphore(limits.publication_encoding_concurrency),
            deltas: semaphore(limits.publication_encoding_concurrency),
        }
    }

    fn of(&self, kind: StreamKind) -> &Arc<Semaphore> {
        match kind {
            StreamKind::Catalog => &self.catalog,
            StreamKind::Pool => &self.pool,
            StreamKind::Readiness => &self.readiness,
            StreamKind::Load => &self.load,
            StreamKind::ServingLoad => &self.serving,
        }
    }
}

/// A place among the streams of one kind, given back when dropped.
pub(super) struct Place {
    pub(super) kind: StreamKind,
    relay: Arc<Relay>,
    _permit: OwnedSemaphorePermit,
}

impl Place {
    /// The relay it is a place at.
    pub(super) fn relay(&self) -> &Arc<Relay> {
        &self.relay
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.relay.counters
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let open = &self.relay.counters.of(self.kind).open;
        open.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
    }
}

/// Checks of every stream: marker, label, then a permit without waiting.
pub(super) fn admit(
    relay: &Arc<Relay>,
    kind: StreamKind,
    request: &impl Request,
) -> Result<Place, Refusal> {
    check_request(request)?;
    place(relay, kind)
}

/// Checks of a filter's stream: the expected producer comes before the permit.
pub(super) fn admit_pool(
    relay: &Arc<Relay>,
    request: &proto::SubscribeKvPoolRequest,
) -> Result<(Place, ProducerKey), Refusal> {
    check_request(request)?;
    let producer = request.expected_producer.as_ref();
    let producer = producer.ok_or(Fault::MissingField("expected_producer"))?;
    let key = ProducerKey::try_from(producer)?;
    Ok((place(relay, StreamKind::Pool)?, key))
}

fn place(relay: &Arc<Relay>, kind: StreamKind) -> Result<Place, Refusal> {
    let permit = Arc::clone(relay.permits.of(kind)).try_acquire_owned().map_err(|_| {
        let text = format!("no more streams of kind {} are served", kind.label());
        Refusal::new(Reason::ResourceLimit, text)
    })?;
    super::counters::add(&relay.counters.of(kind).open, 1);
    super::counters::add(&relay.counters.of(kind).opened, 1);
    Ok(Place { kind, relay: Arc::clone(relay), _permit: permit })
}
