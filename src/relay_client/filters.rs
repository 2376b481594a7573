//! The filters of a relay's pools: one task for each wanted generation, as the catalog says.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

use super::planes::{Retry, Shared};
use super::status::End;
use super::{Consumer, News};
use crate::ckf::identity::PoolId;
use crate::relay::consumer::{CatalogView, FilterPlane, Step};
use crate::relay::key::ProducerKey;

/// How often it is asked anew which filters are wanted.
const LOOK: Duration = Duration::from_millis(500);

/// The catalog as it comes.
type Views = watch::Receiver<Option<Arc<CatalogView>>>;

/// Follows the filters of all wanted pools. Gives why the whole connection is void.
pub(super) async fn follow(shared: Shared, mut views: Views) -> Option<End> {
    let mut running: HashMap<PoolId, (ProducerKey, AbortHandle)> = HashMap::new();
    let mut tasks: JoinSet<Option<End>> = JoinSet::new();
    let mut ticks = tokio::time::interval(LOOK);
    loop {
        tokio::select! {
            changed = views.changed() => {
                // Without a catalog the filters go on by themselves.
                if changed.is_err() {
                    return std::future::pending().await;
                }
                let view = views.borrow_and_update().clone();
                if let Some(view) = view {
                    update(&shared, &view, &views, &mut running, &mut tasks);
                }
            }
            // What is wanted may change without the catalog.
            _ = ticks.tick() => {
                let view = views.borrow().clone();
                if let Some(view) = view {
                    update(&shared, &view, &views, &mut running, &mut tasks);
                }
            }
            Some(ended) = tasks.join_next() => {
                if let Ok(Some(end)) = ended {
                    return Some(end);
                }
            }
        }
    }
}

/// Ends the filters of pools and generations that are gone, begins those that are new.
fn update(
    shared: &Shared,
    view: &CatalogView,
    views: &Views,
    running: &mut HashMap<PoolId, (ProducerKey, AbortHandle)>,
    tasks: &mut JoinSet<Option<End>>,
) {
    let wanted: HashMap<PoolId, ProducerKey> = view
        .pools
        .iter()
        .filter(|pool| shared.consumer.wants(pool).is_ok())
        .map(|pool| (pool.key.pool(), pool.key))
        .collect();
    running.retain(|pool, (key, task)| {
        // A generation that was given up is not tried again.
        let stays = wanted.get(pool) == Some(key);
        if !stays {
            task.abort();
        }
        stays
    });
    for (pool, key) in wanted {
        running.entry(pool).or_insert_with(|| {
            let task = tasks.spawn(filter(shared.clone(), key, views.clone()));
            (key, task)
        });
    }
}

/// One generation's replica: taken out of answers whenever its stream is not whole, and when the
/// task ends.
struct Replica {
    consumer: Arc<dyn Consumer>,
    key: ProducerKey,
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.consumer.retire(&self.key);
    }
}

async fn filter(shared: Shared, key: ProducerKey, mut views: Views) -> Option<End> {
    let mut retry = Retry::new(shared.clock);
    loop {
        retry.begin();
        let end = {
            let consumer = Arc::clone(&shared.consumer);
            let replica = Replica { consumer, key };
            stream(&shared, &replica, &mut retry).await
        };
        if end.voids_connection() {
            return Some(end);
        }
        let (end, pause_ms) = retry.after(end);
        shared.consumer.news(News::FilterEnded { key, end, pause_ms });
        // The pool is left alone until the catalog shows another generation of it.
        let pause_ms = pause_ms?;
        let pause = tokio::time::sleep(Duration::from_millis(pause_ms));
        views.mark_unchanged();
        tokio::select! {
            () = pause => {}
            // A new catalog may have ended this task; if not, there is no use in waiting longer.
            _ = views.changed() => {}
        }
    }
}

/// One stream, to its end.
async fn stream(shared: &Shared, replica: &Replica, retry: &mut Retry) -> End {
    let key = &replica.key;
    let mut plane = FilterPlane::new(shared.connection.relay(), *key);
    let patience = shared.connection.recovery_attempt_timeout();
    let mut stream = match tokio::time::timeout(patience, shared.connection.filter(key)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(status)) => return End::from(status),
        Err(_) => return End::Stalled(patience),
    };
    loop {
        let next = stream.message();
        // Once it is whole, silence is no fault: heartbeats say how old it is.
        let next = match plane.installed() {
            Some(_) => Ok(next.await),
            None => tokio::time::timeout(patience, next).await,
        };
        let update = match next {
            Ok(Ok(Some(update))) => update,
            Ok(Ok(None)) => return End::Clean,
            Ok(Err(status)) => return End::from(status),
            Err(_) => return End::Stalled(patience),
        };
        retry.took_a_message();
        let step = match plane.take(&update) {
            Ok(step) => step,
            Err(fault) => return End::from(fault),
        };
        let taken = match step {
            Step::Partial => Ok(()),
            Step::Snapshot(snapshot) => replica.consumer.install(key, snapshot),
            Step::Delta { sequence, images } => replica.consumer.apply(key, sequence, images),
            Step::Heartbeat => Ok(()),
        };
        match taken {
            Ok(()) if plane.installed().is_some() => replica.consumer.heard(key),
            Ok(()) => {}
            Err(text) => return End::Replica(text),
        }
    }
}
