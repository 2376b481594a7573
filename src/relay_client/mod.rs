//! The relay's consumer over gRPC: follows one relay, torc's or Dynamo's, for as long as asked.
//!
//! ```text
//! connect ─▶ GetRelayInfo ─▶ catalog ─▶ a filter for each wanted pool
//!    ▲                    ├▶ readiness
//!    │                    ├▶ load
//!    └── pause ◀── end ───┴▶ serving load
//! ```
//!
//! Every plane opens, validates and reopens its own stream (`planes`, `filters`); a fault of one
//! is no fault of the others. Only a message of another relay, or of another life of it, ends the
//! whole connection. What is found out goes to a [`Consumer`]: the node fills its lanes with it,
//! `torc relay watch` prints it. Rules are those of [`crate::relay::consumer`]; ends of streams
//! are judged by [`crate::relay::reason`].

mod connection;
mod filters;
mod planes;
mod status;

use std::sync::Arc;
use std::time::Duration;

use crate::ckf::bucket::BucketImage;
use crate::ckf::cbi1::Snapshot;
use crate::net::clock::Clock;
use crate::relay::consumer::{Backoff, CatalogView, LoadView, ReadinessView, ServingView};
use crate::relay::descriptor::Descriptor;
use crate::relay::envelope::RelayId;
use crate::relay::key::ProducerKey;

pub use self::connection::{ConnectError, Connection};
pub use self::status::{End, relay_error_reason};

/// The generated client over the messages of [`crate::relay::proto`].
#[allow(missing_docs, unreachable_pub, clippy::all)]
pub mod grpc {
    include!(concat!(env!("OUT_DIR"), "/client/dynamo.kvrelay.v1.rs"));
}

/// The planes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Plane {
    /// The connection itself.
    Connection,
    /// Which pools there are.
    Catalog,
    /// Which models can serve.
    Readiness,
    /// How full the pools are.
    Load,
    /// What pools and models are doing.
    ServingLoad,
}

impl Plane {
    /// Fixed name for metrics and people.
    pub fn label(self) -> &'static str {
        match self {
            Plane::Connection => "connection",
            Plane::Catalog => "catalog",
            Plane::Readiness => "readiness",
            Plane::Load => "load",
            Plane::ServingLoad => "serving_load",
        }
    }
}

/// What is found out about a relay.
#[derive(Clone, Debug)]
pub enum News {
    /// It answered, and this is who it is.
    Connected(RelayId),
    /// Its catalog.
    Catalog(Arc<CatalogView>),
    /// Its readiness.
    Readiness(Arc<ReadinessView>),
    /// Its last window of load.
    Load(Arc<LoadView>),
    /// Its last window of serving load.
    Serving(Arc<ServingView>),
    /// A plane's state is void; it is opened again unless `pause_ms` is none.
    PlaneEnded {
        /// Which.
        plane: Plane,
        /// Why.
        end: End,
        /// Milliseconds until it is opened again.
        pause_ms: Option<u64>,
    },
    /// A filter's replica is void; it is opened again unless `pause_ms` is none.
    FilterEnded {
        /// Which.
        key: ProducerKey,
        /// Why.
        end: End,
        /// Milliseconds until it is opened again.
        pause_ms: Option<u64>,
    },
}

/// Somebody who follows a relay. Calls come from several tasks and must not block.
pub trait Consumer: Send + Sync + 'static {
    /// What was found out.
    fn news(&self, news: News);

    /// Whether a pool's filter is wanted, and in plain words why not.
    fn wants(&self, pool: &Descriptor) -> Result<(), String>;

    /// A whole filter. An error makes its stream begin anew.
    fn install(&self, key: &ProducerKey, snapshot: Snapshot) -> Result<(), String>;

    /// The change from `sequence - 1` to `sequence`. An error makes its stream begin anew.
    fn apply(
        &self,
        key: &ProducerKey,
        sequence: u64,
        images: Vec<BucketImage>,
    ) -> Result<(), String>;

    /// Its stream lives.
    fn heard(&self, key: &ProducerKey);

    /// The replica is void: it must not be asked any more.
    fn retire(&self, key: &ProducerKey);
}

/// How a relay is followed.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `host:port`.
    pub address: String,
    /// How this consumer calls itself, for the relay's operators.
    pub subscriber_id: String,
    /// Largest message it takes.
    pub max_message_bytes: usize,
    /// Silence after which the connection is probed.
    pub keepalive_interval: Duration,
    /// Time for the answer.
    pub keepalive_timeout: Duration,
    /// Time for the state that a stream begins with, or the next part of it.
    pub recovery_attempt_timeout: Duration,
}

/// Follows a relay for ever: connects, follows its planes, and connects anew after a pause.
/// Ends only when trying again cannot help; the last news says why.
pub async fn follow(settings: Settings, consumer: Arc<dyn Consumer>, clock: Clock) {
    let mut backoff = Backoff::default();
    loop {
        let begun_ms = clock.now().mono_ms();
        let end = match Connection::open(&settings).await {
            Ok(connection) => {
                consumer.news(News::Connected(connection.relay()));
                planes::follow(connection, &consumer, clock).await
            }
            Err(error) => End::from(error),
        };
        let healthy_ms = clock.now().mono_ms() - begun_ms;
        let pause_ms = (!end.is_final()).then(|| backoff.pause_ms(healthy_ms, fastrand::u64(..)));
        let plane = Plane::Connection;
        consumer.news(News::PlaneEnded { plane, end, pause_ms });
        match pause_ms {
            Some(pause_ms) => tokio::time::sleep(Duration::from_millis(pause_ms)).await,
            None => return,
        }
    }
}
