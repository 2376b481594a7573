//! The tables of a domain. One holds the filters of this node's own size. While datacenters are
//! resized, one after the other, a second one beside it holds those of another size: so the old
//! filters answer until the new ones are here, on both sides, and a lane is in one table at a time.

use std::sync::Arc;

use arc_swap::ArcSwapOption;

use super::inlets::NotInstalled;
use super::{Chain, DomainError};
use crate::ckf::consumer::lane::LaneIngestor;
use crate::ckf::consumer::{ClaimError, ConsumerConfig, GlobalCkfIndexer, LANES, PrefixDepths};
use crate::ckf::format::CkfFormat;
use crate::ckf::hashing::SequenceHash;

/// Hashes looked up at a time in the second table.
const BESIDE_RUN: usize = 64;

/// Why a filter of another size has no place here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OtherSize {
    /// It is made by other rules.
    #[error("its filter has seed {theirs:#x}, this node's {ours:#x}")]
    Seed {
        /// The filter's.
        theirs: u64,
        /// This node's.
        ours: u64,
    },
    /// Its table would be too large.
    #[error(
        "its filter has {theirs} buckets, this node's {ours}; a table for it needs {needs} MiB, \
         and affinity.memory_max_bytes leaves {left}"
    )]
    TooLarge {
        /// Buckets of the filter.
        theirs: u64,
        /// Buckets of this node's filters.
        ours: u64,
        /// Memory of the table, MiB.
        needs: u64,
        /// Memory there is for it, MiB.
        left: u64,
    },
    /// Filters of two sizes are here already.
    #[error(
        "its filter has {theirs} buckets, this node's {ours}, others' {beside}: \
         affinity.expected_keys must become the same in every datacenter"
    )]
    Third {
        /// Buckets of the filter.
        theirs: u64,
        /// Buckets of this node's filters.
        ours: u64,
        /// Buckets of the filters beside them.
        beside: u64,
    },
}

/// The tables that answer.
#[derive(Debug)]
pub(super) struct Tables {
    config: ConsumerConfig,
    own: GlobalCkfIndexer,
    beside: ArcSwapOption<GlobalCkfIndexer>,
    /// Memory the second table may need.
    beside_bytes_max: u64,
}

impl Tables {
    pub(super) fn new(config: ConsumerConfig, beside_bytes_max: u64) -> Result<Self, DomainError> {
        let own = GlobalCkfIndexer::new(config.clone())?;
        let beside = ArcSwapOption::empty();
        Ok(Tables { config, own, beside, beside_bytes_max })
    }

    /// The lanes that answer.
    pub(super) fn ready_lanes(&self) -> u16 {
        let beside = self.beside.load();
        self.own.ready_lanes() | beside.as_ref().map_or(0, |beside| beside.ready_lanes())
    }

    /// Bytes of all tables.
    pub(super) fn bytes(&self) -> usize {
        let beside = self.beside.load();
        self.own.table_bytes() + beside.as_ref().map_or(0, |beside| beside.table_bytes())
    }

    /// For each hash the lanes that may hold it; gives the lanes that answered.
    pub(super) fn probe(&self, hashes: &[SequenceHash], masks: &mut [u16]) -> u16 {
        let mut ready = self.own.probe(hashes, masks);
        if let Some(beside) = &*self.beside.load() {
            for (hashes, masks) in hashes.chunks(BESIDE_RUN).zip(masks.chunks_mut(BESIDE_RUN)) {
                let mut found = [0; BESIDE_RUN];
                let found = &mut found[..hashes.len()];
                ready |= beside.probe(hashes, found);
                masks.iter_mut().zip(found).for_each(|(mask, found)| *mask |= *found);
            }
        }
        ready
    }

    /// How deep each lane holds a chain.
    pub(super) fn depths(&self, chain: Chain<'_>) -> PrefixDepths {
        let ask = |indexer: &GlobalCkfIndexer| {
            let found = match chain {
                Chain::Sequence(hashes) => indexer.prefix_depths(hashes),
                Chain::Blocks(blocks) => indexer.prefix_depths_of_blocks(blocks, &mut Vec::new()),
            };
            found.unwrap_or(PrefixDepths { ready: 0, depths: [0; LANES] })
        };
        let mut all = ask(&self.own);
        if let Some(beside) = &*self.beside.load() {
            let found = ask(beside);
            all.ready |= found.ready;
            let pairs = all.depths.iter_mut().zip(found.depths);
            pairs.for_each(|(depth, found)| *depth = (*depth).max(found));
        }
        all
    }

    /// Whether filters of a format may be in a lane. `others` are the formats of the other lanes
    /// that other nodes publish.
    pub(super) fn check(
        &self,
        format: CkfFormat,
        mut others: impl Iterator<Item = CkfFormat>,
    ) -> Result<(), OtherSize> {
        let ours = self.config.format;
        let (theirs_buckets, ours_buckets) = (format.bucket_count, ours.bucket_count);
        if (CkfFormat { bucket_count: ours_buckets, ..format }) != ours {
            return Err(OtherSize::Seed { theirs: format.seed, ours: ours.seed });
        }
        if format == ours {
            return Ok(());
        }
        if let Some(third) = others.find(|other| *other != ours && *other != format) {
            let (theirs, ours, beside) = (theirs_buckets, ours_buckets, third.bucket_count);
            return Err(OtherSize::Third { theirs, ours, beside });
        }
        let row = 8 * self.config.lanes.len().next_power_of_two() as u64;
        let needs = theirs_buckets.saturating_mul(row);
        if needs > self.beside_bytes_max {
            let (needs, left) = (needs.div_ceil(1 << 20), self.beside_bytes_max >> 20);
            let (theirs, ours) = (theirs_buckets, ours_buckets);
            return Err(OtherSize::TooLarge { theirs, ours, needs, left });
        }
        Ok(())
    }

    /// Claims a lane for filters of a checked format, in the table for them; it is made when
    /// there is none. Questions see a new one from [`Tables::show`] on.
    pub(super) fn claim(
        &self,
        lane: u8,
        format: CkfFormat,
    ) -> Result<(LaneIngestor, Option<Arc<GlobalCkfIndexer>>), NotInstalled> {
        if format == self.config.format {
            return Ok((self.own.claim_lane(lane)?, None));
        }
        let there = self.beside.load_full().filter(|beside| *beside.format() == format);
        let beside = match there {
            Some(beside) => beside,
            None => {
                let config = ConsumerConfig { format, ..self.config.clone() };
                Arc::new(GlobalCkfIndexer::new(config)?)
            }
        };
        Ok((beside.claim_lane(lane)?, Some(beside)))
    }

    /// Lets questions see the table a lane was claimed in.
    pub(super) fn show(&self, table: Option<Arc<GlobalCkfIndexer>>) {
        if table.is_some() {
            self.beside.store(table);
        }
    }

    /// Claims the lane of what this node publishes.
    pub(super) fn claim_own(&self, lane: u8) -> Result<LaneIngestor, ClaimError> {
        self.own.claim_lane(lane)
    }

    /// Gives the second table up when none of `used` is in it.
    pub(super) fn close_unused(&self, mut used: impl Iterator<Item = CkfFormat>) {
        if !used.any(|format| format != self.config.format) && self.beside.load().is_some() {
            self.beside.store(None);
        }
    }
}
