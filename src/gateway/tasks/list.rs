//! `GET /tasks`: the newest first, over all slots.

use super::wanted::Wanted;
use super::{TaskEntry, Tasks};
use crate::gateway::call::Call;
use crate::gateway::error::ApiError;
use crate::gateway::kv::{Class, KvError};
use crate::gateway::placement::Placement;
use serde_json::{Value, json};

/// Numbers looked at for one listing.
const LOOKS_MAX: usize = 2_500;
/// Numbers without an entry, in a row, after which a listing ends: older ones have expired.
const MISSES_MAX: usize = 1_100;
/// Unfinished tasks of a listing whose backends are asked how they are.
const REFRESHED_MAX: usize = 100;
/// Entries read from the ring at the same time.
const LOADS_AT_ONCE: usize = 16;

impl Tasks {
    /// A page of tasks. `total` counts the matching ones among those that were looked at.
    pub(in crate::gateway) async fn list(
        &self,
        placement: &Placement,
        call: &Call,
    ) -> Result<Value, ApiError> {
        let wanted = Wanted::read(call)?;
        let mut uids = self.matching(placement, &wanted).await?;
        if wanted.reverse {
            uids.reverse();
        }
        let next = uids.get(wanted.limit).copied();
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

    /// The numbers of tasks a listing shows, greatest first.
    async fn matching(&self, placement: &Placement, wanted: &Wanted) -> Result<Vec<u64>, ApiError> {
        let mut candidates = self.candidates(wanted).await?;
        let (mut found, mut looks, mut misses, mut refreshed) = (Vec::new(), 0, 0, 0);
        while looks < LOOKS_MAX && misses <= MISSES_MAX {
            let chunk: Vec<u64> = candidates.by_ref().take(LOADS_AT_ONCE).collect();
            if chunk.is_empty() {
                break;
            }
            looks += chunk.len();
            for entry in self.load_all(&chunk).await? {
                let Some(mut entry) = entry else {
                    misses += 1;
                    continue;
                };
                misses = 0;
                if !entry.status.is_final() && refreshed < REFRESHED_MAX {
                    refreshed += 1;
                    entry = self.refresh(placement, entry).await;
                }
                if wanted.admits(&entry) {
                    found.push(entry.uid);
                }
            }
        }
        Ok(found)
    }

    async fn candidates(&self, wanted: &Wanted) -> Result<Candidates, ApiError> {
        let stride = u64::from(self.numbers.stride);
        let mut heads = match &wanted.uids {
            // Each is the head of a slot of its own.
            Some(uids) => uids.clone(),
            None => self.highest_numbers().await?,
        };
        heads.sort_unstable();
        heads.dedup();
        let (most, least) = match (wanted.from, wanted.reverse) {
            (Some(from), false) => (from, 0),
            (Some(from), true) => (u64::MAX, from),
            (None, _) => (u64::MAX, 0),
        };
        if wanted.uids.is_some() {
            heads.retain(|uid| (least..=most).contains(uid));
            return Ok(Candidates { heads, stride: None, least });
        }
        let below = |head: u64| {
            let steps = head.saturating_sub(most).div_ceil(stride);
            head.checked_sub(steps * stride)
        };
        let heads = heads.into_iter().filter_map(below).collect();
        Ok(Candidates { heads, stride: Some(stride), least })
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

    /// The highest number each slot may have given out.
    async fn highest_numbers(&self) -> Result<Vec<u64>, ApiError> {
        let stride = self.numbers.stride;
        let mut highest = Vec::new();
        for slot in 0..stride {
            if let Some(claim) = self.numbers.read(slot).await?
                && claim.ceiling > 0
            {
                highest.push((claim.ceiling - 1) * u64::from(stride) + u64::from(slot));
            }
        }
        Ok(highest)
    }
}

/// Task numbers, greatest first.
struct Candidates {
    /// The next number of each slot.
    heads: Vec<u64>,
    /// What lies between two numbers of a slot; without it each head is all there is.
    stride: Option<u64>,
    /// No number below this one.
    least: u64,
}

impl Iterator for Candidates {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let at = (0..self.heads.len()).max_by_key(|i| self.heads[*i])?;
        let uid = self.heads[at];
        match self.stride.and_then(|stride| uid.checked_sub(stride)) {
            Some(lower) => self.heads[at] = lower,
            None => {
                self.heads.swap_remove(at);
            }
        }
        (uid >= self.least).then_some(uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_all_slots_come_in_order_and_end_where_they_must() {
        let all = |heads: &[u64], stride, least| {
            Candidates { heads: heads.to_vec(), stride, least }.collect::<Vec<_>>()
        };
        assert_eq!(all(&[32, 17], Some(16), 0), [32, 17, 16, 1, 0]);
        assert_eq!(all(&[32, 17], Some(16), 16), [32, 17, 16]);
        assert_eq!(all(&[3, 9, 4], None, 0), [9, 4, 3]);
        assert_eq!(all(&[], Some(16), 0), [0_u64; 0]);
    }
}
