//! What engines told this node about their blocks, so that it can be told again.
//!
//! Each event is judged here at once, so that its sender hears what became of it. What it did
//! goes to the holders of the pool's exact state; a new holder is given everything.

use crate::ckf::hashing::{ExternalId, SequenceHash};
use crate::ckf::producer::{
    Applied, BuildError, DcCkfState, EventData, EventError, ProducerConfig, RouterEvent, Source,
};

/// Blocks that wait to be sent, over which they are given up and everything is told anew.
const WAITING_BLOCKS_MAX: usize = 1 << 17;

/// Blocks of one event of a listing.
const LISTED_PER_EVENT: usize = 1024;

/// The blocks engines told of, and what of it is still to be sent.
#[derive(Debug)]
pub(super) struct Journal {
    state: DcCkfState,
    waiting: Vec<RouterEvent>,
    waiting_blocks: usize,
    overrun: bool,
}

/// What a journal has for the holders.
#[derive(Debug, PartialEq, Eq)]
pub enum News {
    /// What happened since the last time.
    Events(Vec<RouterEvent>),
    /// Too much happened: everything has to be told anew.
    Overrun,
}

impl Journal {
    pub(super) fn new(config: ProducerConfig) -> Result<Journal, BuildError> {
        let state = DcCkfState::new(config)?;
        Ok(Journal { state, waiting: Vec::new(), waiting_blocks: 0, overrun: false })
    }

    /// Judges an event; gives what it did, for the holders.
    pub(super) fn take(&mut self, event: &RouterEvent) -> (Applied, Option<RouterEvent>) {
        let effect = self.effect(event);
        let applied = self.state.apply(event, &mut Vec::new());
        let effect = match applied.first_error {
            None | Some(EventError::CapacityExhausted) => effect,
            Some(_) => None,
        };
        if let Some(effect) = &effect {
            self.wait(effect.clone());
        }
        (applied, effect)
    }

    /// What happened since the last call.
    pub(super) fn news(&mut self) -> News {
        self.waiting_blocks = 0;
        let events = std::mem::take(&mut self.waiting);
        match std::mem::take(&mut self.overrun) {
            true => News::Overrun,
            false => News::Events(events),
        }
    }

    /// Everything engines hold, as events.
    pub(super) fn listing(&self) -> Vec<RouterEvent> {
        listing(self.state.edges().collect())
    }

    fn wait(&mut self, event: RouterEvent) {
        if self.overrun {
            return;
        }
        self.waiting_blocks += event.blocks();
        self.waiting.push(event);
        if self.waiting_blocks > WAITING_BLOCKS_MAX {
            self.waiting = Vec::new();
            self.overrun = true;
        }
    }

    /// The event with every block's place in its chain resolved.
    fn effect(&self, event: &RouterEvent) -> Option<RouterEvent> {
        let EventData::Stored { parent, blocks, .. } = &event.data else {
            return Some(event.clone());
        };
        let mut previous = match parent {
            None => None,
            Some(id) => Some(self.state.canonical(event.source, *id)?),
        };
        let resolved = blocks.iter().map(|block| {
            let hash = SequenceHash::after(previous, block.tokens_hash);
            previous = Some(hash);
            (block.id, hash)
        });
        let data = EventData::Resolved(resolved.collect());
        Some(RouterEvent { data, ..event.clone() })
    }
}

/// Edges as events, each about one source.
pub(super) fn listing(mut edges: Vec<(Source, ExternalId, SequenceHash)>) -> Vec<RouterEvent> {
    edges.sort_unstable();
    edges
        .chunk_by(|a, b| a.0 == b.0)
        .flat_map(|of_source| of_source.chunks(LISTED_PER_EVENT))
        .map(|run| {
            let blocks = run.iter().map(|(_, id, hash)| (*id, *hash)).collect();
            RouterEvent::device(run[0].0, EventData::Resolved(blocks))
        })
        .collect()
}
