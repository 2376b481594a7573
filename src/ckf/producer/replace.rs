//! Replacing the content of some ranks by complete listings, built off to the side.

use super::{DcCkfState, EventData, EventError, RouterEvent, Source};
use crate::ckf::alloc::{self, OutOfMemory};
use crate::ckf::bucket::BucketImage;
use crate::ckf::hashing::{ExternalId, SequenceHash};

/// Why a replacement did not happen. The state is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplaceError {
    /// A listing is not about a rank that is being replaced, or is not a store event.
    #[error("a listing may only hold store events of the replaced ranks")]
    ForeignEvent,
    /// A listing is not parent-first, or breaks another rule.
    #[error("a listing cannot be applied: {0}")]
    Event(#[from] EventError),
    /// No memory for the second state.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
}

impl DcCkfState {
    /// Replaces everything of `ranks` by what `listing` stores (parents first) and ends the
    /// window, whose images are appended to `out`: only buckets that differ from what was last
    /// published. Blocks the filter has no place for are omitted, as always. On an error nothing
    /// has changed.
    pub fn replace_ranks<'a>(
        &mut self,
        ranks: &[Source],
        listing: impl IntoIterator<Item = &'a RouterEvent>,
        out: &mut Vec<BucketImage>,
    ) -> Result<(), ReplaceError> {
        let mut fresh = match DcCkfState::new(self.config) {
            Ok(fresh) => fresh,
            // The same configuration was accepted before, so memory is all that can be missing.
            Err(_) => return Err(ReplaceError::OutOfMemory(OutOfMemory)),
        };
        fresh.counters = self.counters;
        fresh.adopt(self, ranks)?;
        for event in listing {
            if !ranks.contains(&event.source) {
                return Err(ReplaceError::ForeignEvent);
            }
            let error = match &event.data {
                EventData::Stored { parent, start_position, blocks } => {
                    fresh.store(event.source, *parent, *start_position, blocks)
                }
                EventData::Appeared(keys) => fresh.store_keys(event.source, keys),
                EventData::Resolved(blocks) => {
                    fresh.store_resolved(event.source, blocks.iter().copied())
                }
                EventData::Removed(_) | EventData::Cleared => {
                    return Err(ReplaceError::ForeignEvent);
                }
            };
            match error {
                None | Some(EventError::CapacityExhausted) => {}
                Some(error) => return Err(error.into()),
            }
        }
        fresh.filter.continue_from(&self.filter)?;
        fresh.flush(out)?;
        *self = fresh;
        Ok(())
    }

    /// Takes over everything of `old` except what `ranks` hold. Blocks that were omitted get
    /// another chance after all that were not.
    fn adopt(&mut self, old: &DcCkfState, ranks: &[Source]) -> Result<(), ReplaceError> {
        for (source, id, hash) in old.ownership.iter_edges() {
            if !ranks.contains(&source) {
                self.adopt_edge(source, id, hash)?;
            }
        }
        let mut omitted = Vec::new();
        for entry in old.ownership.iter_omitted().filter(|(source, ..)| !ranks.contains(source)) {
            alloc::reserve(&mut omitted, 1)?;
            omitted.push(entry);
        }
        omitted.sort_unstable();
        for (source, id, hash) in omitted {
            self.adopt_edge(source, id, hash)?;
        }
        Ok(())
    }

    fn adopt_edge(
        &mut self,
        source: Source,
        id: ExternalId,
        hash: SequenceHash,
    ) -> Result<(), OutOfMemory> {
        let idx = self.ownership.enter_source(source)?;
        let edge = self.edge(id, hash);
        // The old state counted these owners, so they cannot be too many.
        self.ownership.reserve(idx, &[edge]).map_err(|_| OutOfMemory)?;
        self.ownership.reserve_omissions(idx, 1)?;
        self.filter.reserve_insertions(1)?;
        self.admit(idx, &edge);
        Ok(())
    }
}
