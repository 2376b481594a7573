//! The planes of one connection, each with its own stream, machine and pauses.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tonic::Status;
use tonic::codec::Streaming;

use super::connection::Connection;
use super::status::End;
use super::{Consumer, News, Plane, filters};
use crate::net::clock::Clock;
use crate::relay::consumer::{
    Backoff, CatalogPlane, CatalogView, LoadPlane, PlaneFault, ReadinessPlane, ServingPlane,
};
use crate::relay::reason::Reaction;

/// What the tasks of one connection share.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) connection: Connection,
    pub(super) consumer: Arc<dyn Consumer>,
    pub(super) clock: Clock,
}

/// Follows all planes until the connection is void. Planes that the relay does not have, or that
/// cannot be helped, end alone.
pub(super) async fn follow(
    connection: Connection,
    consumer: &Arc<dyn Consumer>,
    clock: Clock,
) -> End {
    let shared = Shared { connection, consumer: Arc::clone(consumer), clock };
    let (views, views_in) = watch::channel(None);
    let mut tasks = JoinSet::new();
    tasks.spawn(catalog(shared.clone(), views));
    tasks.spawn(readiness(shared.clone()));
    tasks.spawn(load(shared.clone()));
    tasks.spawn(serving(shared.clone()));
    tasks.spawn(filters::follow(shared, views_in));
    // Dropping the set ends the other tasks, and with them their replicas.
    while let Some(ended) = tasks.join_next().await {
        match ended {
            Ok(Some(end)) => return end,
            Ok(None) => {}
            Err(error) => return End::Connect(format!("a task of the relay's client: {error}")),
        }
    }
    End::Clean
}

async fn catalog(shared: Shared, views: watch::Sender<Option<Arc<CatalogView>>>) -> Option<End> {
    let open = || shared.connection.catalog();
    let take = |machine: &mut CatalogPlane, update| {
        if let Some(view) = machine.take(update)? {
            let view = Arc::new(view);
            shared.consumer.news(News::Catalog(Arc::clone(&view)));
            views.send_replace(Some(view));
        }
        Ok(())
    };
    let machine = || CatalogPlane::new(shared.connection.relay());
    plane(&shared, Plane::Catalog, open, machine, take).await
}

async fn readiness(shared: Shared) -> Option<End> {
    let open = || shared.connection.readiness();
    let take = |machine: &mut ReadinessPlane, update| {
        if let Some(view) = machine.take(update)? {
            shared.consumer.news(News::Readiness(Arc::new(view)));
        }
        Ok(())
    };
    let machine = || ReadinessPlane::new(shared.connection.relay());
    plane(&shared, Plane::Readiness, open, machine, take).await
}

async fn load(shared: Shared) -> Option<End> {
    let open = || shared.connection.load();
    let take = |machine: &mut LoadPlane, update| {
        shared.consumer.news(News::Load(Arc::new(machine.take(&update)?)));
        Ok(())
    };
    let machine = || LoadPlane::new(shared.connection.relay());
    plane(&shared, Plane::Load, open, machine, take).await
}

async fn serving(shared: Shared) -> Option<End> {
    let open = || shared.connection.serving();
    let take = |machine: &mut ServingPlane, update| {
        shared.consumer.news(News::Serving(Arc::new(machine.take(update)?)));
        Ok(())
    };
    let machine = || ServingPlane::new(shared.connection.relay());
    plane(&shared, Plane::ServingLoad, open, machine, take).await
}

/// Follows one plane; gives why the whole connection is void, or nothing when the plane alone is
/// given up.
async fn plane<M, U, F: Future<Output = Result<Streaming<U>, Status>>>(
    shared: &Shared,
    plane: Plane,
    open: impl Fn() -> F,
    machine: impl Fn() -> M,
    take: impl Fn(&mut M, U) -> Result<(), PlaneFault>,
) -> Option<End> {
    let mut retry = Retry::new(shared.clock);
    let patience = shared.connection.recovery_attempt_timeout();
    // These say at once how things are; windows come when they come.
    let first = matches!(plane, Plane::Catalog | Plane::Readiness).then_some(patience);
    loop {
        retry.begin();
        let mut machine = machine();
        let take = |update| {
            retry.took_a_message();
            take(&mut machine, update)
        };
        let end = match tokio::time::timeout(patience, open()).await {
            Ok(Ok(stream)) => read(stream, first, take).await,
            Ok(Err(status)) => End::from(status),
            Err(_) => End::Stalled(patience),
        };
        if end.voids_connection() {
            return Some(end);
        }
        let (end, pause_ms) = retry.after(end);
        shared.consumer.news(News::PlaneEnded { plane, end, pause_ms });
        tokio::time::sleep(Duration::from_millis(pause_ms?)).await;
    }
}

/// One stream, to its end. `first` is the longest wait for its first message.
async fn read<U>(
    mut stream: Streaming<U>,
    first: Option<Duration>,
    mut take: impl FnMut(U) -> Result<(), PlaneFault>,
) -> End {
    let mut patience = first;
    loop {
        let next = stream.message();
        let next = match patience {
            Some(patience) => match tokio::time::timeout(patience, next).await {
                Ok(next) => next,
                Err(_) => return End::Stalled(patience),
            },
            None => next.await,
        };
        patience = None;
        match next {
            Ok(Some(update)) => {
                if let Err(fault) = take(update) {
                    return End::from(fault);
                }
            }
            Ok(None) => return End::Clean,
            Err(status) => return End::from(status),
        }
    }
}

/// When one stream is opened again.
pub(super) struct Retry {
    clock: Clock,
    backoff: Backoff,
    begun_ms: u64,
    /// Times in a row that a message was too large for this side.
    too_large: u32,
}

impl Retry {
    pub(super) fn new(clock: Clock) -> Retry {
        Retry { clock, backoff: Backoff::default(), begun_ms: 0, too_large: 0 }
    }

    pub(super) fn begin(&mut self) {
        self.begun_ms = self.clock.now().mono_ms();
    }

    pub(super) fn took_a_message(&mut self) {
        self.too_large = 0;
    }

    /// The end as it is to be told, and the pause; none when trying again cannot help.
    pub(super) fn after(&mut self, end: End) -> (End, Option<u64>) {
        let (reaction, end) = match end.reaction() {
            // Once may be chance; the second time it is this side's configuration.
            Reaction::LocalLimit if self.too_large > 0 => {
                (Reaction::Stop, End::LocalLimit(end.to_string()))
            }
            reaction => (reaction, end),
        };
        self.too_large += u32::from(reaction == Reaction::LocalLimit);
        let pause = match reaction {
            Reaction::Stop | Reaction::NoSuchPlane | Reaction::QuarantinePool => None,
            Reaction::Backoff | Reaction::RefreshCatalog | Reaction::LocalLimit => {
                let healthy_ms = self.clock.now().mono_ms().saturating_sub(self.begun_ms);
                Some(self.backoff.pause_ms(healthy_ms, fastrand::u64(..)))
            }
        };
        (end, pause)
    }
}
