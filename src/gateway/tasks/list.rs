//! `GET /tasks`: the newest first, over all slots.
//!
//! Tasks are found by their numbers. A page looks at so many of them only; where it stopped is
//! what it gives as `next`, so that who follows `next` sees every task there is.

use super::wanted::Wanted;
use super::{TaskEntry, Tasks};
use crate::gateway::call::Call;
use crate::gateway::error::ApiError;
use crate::gateway::kv::{Class, KvError};
use crate::gateway::placement::Placement;
use serde_json::{Value, json};

/// Numbers looked at for one page.
const LOOKS_MAX: usize = 10_000;
/// Numbers looked at for a page that is full, to count the matching ones.
const COUNTED_MAX: usize = 2_500;
/// Unfinished tasks of a listing whose backends are asked how they are.
const REFRESHED_MAX: usize = 100;
/// Entries read from the ring at the same time.
const LOADS_AT_ONCE: usize = 16;

/// The tasks a listing found.
struct Matching {
    uids: Vec<u64>,
    /// The number looking stopped at.
    next: Option<u64>,
}

impl Tasks {
    /// A page of tasks. `total` counts the matching ones among those that were looked at.
    pub(in crate::gateway) async fn list(
        &self,
        placement: &Placement,
        call: &Call,
    ) -> Result<Value, ApiError> {
        let wanted = Wanted::read(call)?;
        let Matching { mut uids, next } = self.matching(placement, &wanted).await?;
        let next = uids.get(wanted.limit).copied().or(next);
        let total = uids.len();
        uids.truncate(wanted.limit);
        let mut page = Vec::with_capacity(uids.len());
        for uids in uids.chunks(LOADS_AT_ONCE) {
            let entries = self.load_all(uids).await?;
            page.extend(entries.iter().flatten().map(TaskEntry::view));
        }
        let from = uids.first();
        Ok(json!({"results": page, "total": total, "limit": wanted.limit, "from": from,
            "next": next}))
    }

    /// The numbers of tasks a listing shows, in its order.
    async fn matching(&self, placement: &Placement, wanted: &Wanted) -> Result<Matching, ApiError> {
        let mut numbers = self.numbers_of(wanted).await?;
        let (mut uids, mut looks, mut refreshed) = (Vec::new(), 0, 0);
        loop {
            let chunk: Vec<u64> = numbers.by_ref().take(LOADS_AT_ONCE).collect();
            let looks_max = if uids.len() > wanted.limit { COUNTED_MAX } else { LOOKS_MAX };
            if chunk.is_empty() || looks >= looks_max {
                return Ok(Matching { uids, next: chunk.first().copied() });
            }
            looks += chunk.len();
            for entry in self.load_all(&chunk).await? {
                let Some(mut entry) = entry else { continue };
                if !entry.status.is_final() && refreshed < REFRESHED_MAX {
                    refreshed += 1;
                    entry = self.refresh(placement, entry).await;
                }
                if wanted.admits(&entry) {
                    uids.push(entry.uid);
                }
            }
        }
    }

    /// The numbers to look at.
    async fn numbers_of(&self, wanted: &Wanted) -> Result<Candidates, ApiError> {
        let stride = u64::from(self.numbers.stride);
        let mut runs: Vec<Run> = match &wanted.uids {
            Some(uids) => uids.iter().map(|uid| Run { least: *uid, most: *uid }).collect(),
            None => self.given_out().await?,
        };
        runs.sort_unstable();
        runs.dedup();
        let from = wanted.from;
        let runs = runs.into_iter().filter_map(|run| match (from, wanted.reverse) {
            (None, _) => Some(run),
            (Some(from), false) => run.at_most(from, stride),
            (Some(from), true) => run.at_least(from, stride),
        });
        Ok(Candidates { runs: runs.collect(), stride, rising: wanted.reverse })
    }

    /// The entries as last known, in the order of their numbers in `uids`.
    async fn load_all(&self, uids: &[u64]) -> Result<Vec<Option<TaskEntry>>, ApiError> {
        let mut entries: Vec<Option<TaskEntry>> = {
            let live = self.live();
            uids.iter().map(|uid| live.get(uid).cloned()).collect()
        };
        let mut loads = tokio::task::JoinSet::new();
        for (place, uid) in uids.iter().enumerate().filter(|(place, _)| entries[*place].is_none()) {
            let (state, name) = (self.state.clone(), uid.to_string());
            loads.spawn(async move { (place, state.load(Class::Task, &name).await) });
        }
        while let Some(loaded) = loads.join_next().await {
            let (place, entry) = loaded.map_err(|e| KvError(e.to_string()))?;
            entries[place] = entry?;
        }
        Ok(entries)
    }

    /// The numbers each slot may have given out and whose tasks may still be there.
    async fn given_out(&self) -> Result<Vec<Run>, ApiError> {
        let (stride, now_us) = (self.numbers.stride, self.clock.now_us());
        let mut runs = Vec::new();
        for slot in 0..stride {
            let Some(claim) = self.numbers.read(slot).await? else { continue };
            let number = |sequence: u64| sequence * u64::from(stride) + u64::from(slot);
            let floor = claim.floor(now_us);
            if floor < claim.ceiling {
                runs.push(Run { least: number(floor), most: number(claim.ceiling - 1) });
            }
        }
        Ok(runs)
    }
}

/// Numbers of one slot, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Run {
    least: u64,
    most: u64,
}

impl Run {
    /// What of it is not above a number.
    fn at_most(self, most: u64, stride: u64) -> Option<Run> {
        let steps = self.most.saturating_sub(most).div_ceil(stride);
        let most = self.most.checked_sub(steps.checked_mul(stride)?)?;
        (most >= self.least).then_some(Run { most, ..self })
    }

    /// What of it is not below a number.
    fn at_least(self, least: u64, stride: u64) -> Option<Run> {
        let steps = least.saturating_sub(self.least).div_ceil(stride);
        let least = self.least.checked_add(steps.checked_mul(stride)?)?;
        (least <= self.most).then_some(Run { least, ..self })
    }
}

/// Task numbers of all slots in one order.
struct Candidates {
    runs: Vec<Run>,
    stride: u64,
    /// The least number first.
    rising: bool,
}

impl Iterator for Candidates {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let places = 0..self.runs.len();
        let at = match self.rising {
            true => places.min_by_key(|i| self.runs[*i].least)?,
            false => places.max_by_key(|i| self.runs[*i].most)?,
        };
        let run = self.runs[at];
        let (uid, beyond) = match self.rising {
            true => (run.least, run.least.checked_add(1)),
            false => (run.most, run.most.checked_sub(1)),
        };
        let rest = beyond.and_then(|beyond| match self.rising {
            true => run.at_least(beyond, self.stride),
            false => run.at_most(beyond, self.stride),
        });
        match rest {
            Some(rest) => self.runs[at] = rest,
            None => {
                self.runs.swap_remove(at);
            }
        }
        Some(uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_all_slots_come_in_order_and_end_where_they_must() {
        let all = |runs: &[(u64, u64)], rising| {
            let runs = runs.iter().map(|(least, most)| Run { least: *least, most: *most });
            Candidates { runs: runs.collect(), stride: 16, rising }.collect::<Vec<_>>()
        };
        assert_eq!(all(&[(0, 32), (1, 17)], false), [32, 17, 16, 1, 0]);
        assert_eq!(all(&[(0, 32), (1, 17)], true), [0, 1, 16, 17, 32]);
        assert_eq!(all(&[(16, 32), (17, 17)], false), [32, 17, 16]);
        assert_eq!(all(&[(3, 3), (9, 9), (4, 4)], false), [9, 4, 3]);
        assert_eq!(all(&[], true), [0_u64; 0]);
        let run = Run { least: 16, most: 64 };
        let cut = |run: Option<Run>| run.map(|run| (run.least, run.most));
        assert_eq!(cut(run.at_most(63, 16)), Some((16, 48)));
        assert_eq!(cut(run.at_most(100, 16)), Some((16, 64)));
        assert_eq!(cut(run.at_most(15, 16)), None);
        assert_eq!(cut(run.at_least(17, 16)), Some((32, 64)));
        assert_eq!(cut(run.at_least(0, 16)), Some((16, 64)));
        assert_eq!(cut(run.at_least(65, 16)), None);
        assert_eq!(cut(run.at_least(u64::MAX, 16)), None);
        assert_eq!(all(&[(u64::MAX, u64::MAX)], true), [u64::MAX]);
        assert_eq!(all(&[(u64::MAX, u64::MAX)], false), [u64::MAX]);
    }
}
