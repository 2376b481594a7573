//! Order of writes: one queue per index and backend.
//!
//! Two overlapping writes must reach all replicas of a document in the same order, or the
//! replicas differ for good. A request takes its places in all the lanes it needs in one step;
//! a lane lets the next request go when the one before was answered or timed out.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::oneshot;

type LaneKey = (String, String);

/// All lanes of a gateway.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    lanes: Mutex<HashMap<LaneKey, Lane>>,
    requests_max: usize,
}

/// A lane exists while somebody holds its turn.
#[derive(Debug, Default)]
struct Lane {
    waiting: VecDeque<oneshot::Sender<()>>,
}

impl Lanes {
    /// Lanes in which at most `requests_max` requests wait.
    pub(super) fn new(requests_max: usize) -> Arc<Lanes> {
        Arc::new(Lanes { lanes: Mutex::default(), requests_max })
    }

    /// Takes a place in the lane of each backend at once. `None` stands for a lane that is full.
    /// `with` runs in the same step, so what it records has the order of the lanes.
    pub(super) fn take<'a, T>(
        self: &Arc<Lanes>,
        index: &str,
        backends: impl Iterator<Item = &'a str>,
        with: impl FnOnce() -> T,
    ) -> (Vec<Option<Place>>, T) {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let places = backends
            .map(|backend| {
                let key = (index.to_owned(), backend.to_owned());
                let turn = match lanes.get_mut(&key) {
                    None => {
                        lanes.insert(key.clone(), Lane::default());
                        None
                    }
                    Some(lane) if lane.waiting.len() >= self.requests_max => return None,
                    Some(lane) => {
                        let (sender, turn) = oneshot::channel();
                        lane.waiting.push_back(sender);
                        Some(turn)
                    }
                };
                Some(Place { lanes: self.clone(), key, turn })
            })
            .collect();
        (places, with())
    }

    /// Requests waiting or running for a backend, over all indexes.
    pub(super) fn depth(&self, backend: &str) -> usize {
        let lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let mine = lanes.iter().filter(|((_, id), _)| id == backend);
        mine.map(|(_, lane)| 1 + lane.waiting.len()).sum()
    }

    fn pass_on(&self, key: &LaneKey) {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(lane) = lanes.get_mut(key) else { return };
        while let Some(next) = lane.waiting.pop_front() {
            if next.send(()).is_ok() {
                return;
            }
        }
        lanes.remove(key);
    }
}

/// A place in one lane. Dropping it lets the next request go.
#[derive(Debug)]
pub(super) struct Place {
    lanes: Arc<Lanes>,
    key: LaneKey,
    /// `None` once it is this place's turn.
    turn: Option<oneshot::Receiver<()>>,
}

impl Place {
    /// Waits until all requests before this one are done.
    pub(super) async fn turn(&mut self) {
        if let Some(turn) = &mut self.turn {
            // The sender lives in the lane until it sends.
            let _ = turn.await;
            self.turn = None;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(turn) = &mut self.turn {
            turn.close();
            if turn.try_recv().is_err() {
                return;
            }
        }
        self.lanes.pass_on(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(lanes: &Arc<Lanes>, backends: &[&str]) -> Vec<Option<Place>> {
        lanes.take("i", backends.iter().copied(), || ()).0
    }

    #[tokio::test]
    async fn requests_go_one_after_another_in_every_lane() {
        let lanes = Lanes::new(100);
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for request in 0..20 {
            let backends: &[&str] = if request % 3 == 0 { &["a"] } else { &["a", "b"] };
            for (backend, place) in backends.iter().zip(take(&lanes, backends)) {
                let Some(mut place) = place else { continue };
                let order = order.clone();
                let backend = (*backend).to_owned();
                tasks.push(tokio::spawn(async move {
                    place.turn().await;
                    tokio::task::yield_now().await;
                    order.lock().unwrap().push((backend, request));
                }));
            }
        }
        for task in tasks {
            task.await.unwrap();
        }
        let order = order.lock().unwrap();
        for backend in ["a", "b"] {
            let mine: Vec<_> = order.iter().filter(|(b, _)| b == backend).map(|x| x.1).collect();
            assert!(mine.is_sorted(), "{backend}: {mine:?}");
        }
        assert_eq!(lanes.depth("a") + lanes.depth("b"), 0);
    }

    #[tokio::test]
    async fn a_dropped_place_lets_the_next_go_and_a_full_lane_refuses() {
        let lanes = Lanes::new(2);
        let first = take(&lanes, &["a"]).remove(0).unwrap();
        let second = take(&lanes, &["a"]).remove(0).unwrap();
        let mut third = take(&lanes, &["a"]).remove(0).unwrap();
        assert!(take(&lanes, &["a"]).remove(0).is_none());
        drop(second);
        drop(first);
        third.turn().await;
        assert_eq!(lanes.depth("a"), 1);
        drop(third);
        assert_eq!(lanes.depth("a"), 0);
    }
}
