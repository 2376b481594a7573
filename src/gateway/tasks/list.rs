//! `GET /tasks`: the newest first, over all slots.

use super::{TaskEntry, Tasks, parse_uid};
use crate::document::task::Status;
use crate::gateway::call::Call;
use crate::gateway::error::ApiError;
use crate::gateway::placement::Placement;
use serde_json::{Value, json};

/// Numbers looked at for one listing.
const LOOKS_MAX: usize = 2_500;
/// Numbers without an entry, in a row, after which a listing ends: older ones have expired.
const MISSES_MAX: usize = 1_100;
/// Entries of a page when the request does not say, and at most.
const LIMIT_DEFAULT: u64 = 20;
const LIMIT_MAX: u64 = 1_000;
/// Finished tasks a backend is not asked about; unfinished ones of a page are, this many.
const REFRESHED_MAX: usize = 100;

/// What a listing asks for.
struct Wanted {
    statuses: Option<Vec<Status>>,
    types: Option<Vec<String>>,
    indexes: Option<Vec<String>>,
    uids: Option<Vec<u64>>,
    limit: usize,
    from: Option<u64>,
}

impl Wanted {
    fn read(call: &Call) -> Result<Wanted, ApiError> {
        let list = |name: &str| {
            let text = call.parameter(name)?;
            (text != "*").then(|| text.split(',').map(|t| t.trim().to_owned()).collect::<Vec<_>>())
        };
        let statuses = list("statuses").map(|names| {
            let status = |name: &String| {
                Status::parse(name).ok_or_else(|| {
                    let message = format!("`{name}` is not a valid task status.");
                    ApiError::new("invalid_task_statuses", message)
                })
            };
            names.iter().map(status).collect::<Result<Vec<_>, _>>()
        });
        let uids = list("uids")
            .map(|names| names.iter().map(|name| parse_uid(name)).collect::<Result<Vec<_>, _>>());
        let limit = call.number("limit", "invalid_task_limit")?.unwrap_or(LIMIT_DEFAULT);
        Ok(Wanted {
            statuses: statuses.transpose()?,
            types: list("types"),
            indexes: list("indexUids"),
            uids: uids.transpose()?,
            limit: limit.min(LIMIT_MAX) as usize,
            from: call.number("from", "invalid_task_from")?,
        })
    }

    fn admits(&self, entry: &TaskEntry) -> bool {
        let among = |list: &Option<Vec<String>>, value: &str| {
            list.as_ref().is_none_or(|list| list.iter().any(|item| item == value))
        };
        self.statuses.as_ref().is_none_or(|list| list.contains(&entry.status))
            && among(&self.types, entry.kind.as_str())
            && among(&self.indexes, &entry.index_uid)
    }
}

impl Tasks {
    /// A page of tasks. `total` counts the matching ones that were looked at.
    pub(in crate::gateway) async fn list(
        &self,
        placement: &Placement,
        call: &Call,
    ) -> Result<Value, ApiError> {
        let wanted = Wanted::read(call)?;
        let mut candidates = match &wanted.uids {
            Some(uids) => Candidates::Listed(sorted(uids.clone())),
            None => Candidates::Counted(self.highest_numbers().await?),
        };
        let mut page = Vec::new();
        let (mut total, mut next, mut misses, mut refreshed) = (0, None, 0, 0);
        for _ in 0..LOOKS_MAX {
            let Some(uid) = candidates.next(u64::from(self.numbers.stride)) else { break };
            if wanted.from.is_some_and(|from| uid > from) {
                continue;
            }
            let Some(mut entry) = self.load(uid).await? else {
                misses += 1;
                if misses > MISSES_MAX {
                    break;
                }
                continue;
            };
            misses = 0;
            if !entry.status.is_final() && refreshed < REFRESHED_MAX {
                refreshed += 1;
                entry = self.refresh(placement, entry).await;
            }
            if !wanted.admits(&entry) {
                continue;
            }
            total += 1;
            if page.len() < wanted.limit {
                page.push(entry.view());
            } else if next.is_none() {
                next = Some(uid);
            }
        }
        let from = page.first().map(|view| view["uid"].clone());
        Ok(json!({"results": page, "total": total, "limit": wanted.limit, "from": from,
            "next": next}))
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

/// Ascending and without repeats, so that the greatest is last.
fn sorted(mut uids: Vec<u64>) -> Vec<u64> {
    uids.sort_unstable();
    uids.dedup();
    uids
}

/// Task numbers, greatest first.
enum Candidates {
    /// Ascending; taken from the end.
    Listed(Vec<u64>),
    /// The next number of each slot.
    Counted(Vec<u64>),
}

impl Candidates {
    fn next(&mut self, stride: u64) -> Option<u64> {
        match self {
            Candidates::Listed(uids) => uids.pop(),
            Candidates::Counted(heads) => {
                let at = (0..heads.len()).max_by_key(|i| heads[*i])?;
                let uid = heads[at];
                match uid.checked_sub(stride) {
                    Some(lower) => heads[at] = lower,
                    None => {
                        heads.swap_remove(at);
                    }
                }
                Some(uid)
            }
        }
    }
}
