//! The writing half of the pool: one lane at a time, one slice at a time.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{Command, Gates, Work};
use crate::ckf::consumer::LANES;
use crate::ckf::consumer::lane::{AssignError, LaneIngestor, LaneOutcome};
use crate::ckf::publication::CkfSnapshot;

/// Words of a snapshot written before other lanes get their turn: about 0.1 ms of stores.
const SLICE_WORDS: usize = 16_384;

/// What a worker did with one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    pub(super) lane: u8,
    pub(super) epoch: u64,
    /// Nothing when the command was stale.
    pub(super) outcome: Option<Done>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Done {
    Assigned(Result<(), AssignError>),
    Judged(LaneOutcome),
}

/// Writes the lanes it was given. The shell calls [`PoolWorker::run`] while there is work.
#[derive(Debug)]
pub struct PoolWorker {
    gates: Arc<Gates>,
    lanes: [Option<Queue>; LANES],
    /// The lane whose turn it is.
    turn: usize,
}

#[derive(Debug)]
struct Queue {
    ingestor: LaneIngestor,
    commands: VecDeque<Command>,
    /// Words written of the snapshot at the front.
    written: usize,
}

impl PoolWorker {
    pub(super) fn new(gates: Arc<Gates>) -> PoolWorker {
        PoolWorker { gates, lanes: [const { None }; LANES], turn: 0 }
    }

    pub(super) fn adopt(&mut self, ingestor: LaneIngestor) {
        let lane = usize::from(ingestor.lane());
        self.lanes[lane] = Some(Queue { ingestor, commands: VecDeque::new(), written: 0 });
    }

    /// Takes a command. Its lane must be one of this worker's.
    pub fn submit(&mut self, command: Command) {
        let queue = self.lanes[usize::from(command.lane)].as_mut();
        queue.expect("a lane of this worker").commands.push_back(command);
    }

    /// True while [`PoolWorker::run`] has something to do.
    pub fn has_work(&self) -> bool {
        self.lanes.iter().flatten().any(|queue| !queue.commands.is_empty())
    }

    /// Does one slice of work for the next lane that has any. Gives a report when that ended a
    /// command; a snapshot takes several slices.
    pub fn run(&mut self) -> Option<Report> {
        for _ in 0..LANES {
            self.turn = (self.turn + 1) % LANES;
            if let Some(queue) = &mut self.lanes[self.turn]
                && !queue.commands.is_empty()
            {
                return queue.run(&self.gates);
            }
        }
        None
    }
}

impl Queue {
    fn run(&mut self, gates: &Gates) -> Option<Report> {
        let Queue { ingestor, commands, written } = self;
        let command = commands.front()?;
        let (lane, epoch) = (command.lane, command.epoch);
        let current = gates.if_current(lane, epoch, || ()).is_some();
        let outcome = if current {
            match &command.work {
                Work::Assign(identity, lease) => {
                    Some(Done::Assigned(ingestor.assign(*identity, *lease)))
                }
                Work::Snapshot(snapshot) => {
                    let done = install(ingestor, snapshot, written, gates, epoch)?;
                    done.map(Done::Judged)
                }
                Work::Delta(delta) => Some(Done::Judged(ingestor.apply_delta(delta))),
                Work::Drain(marker) => Some(Done::Judged(ingestor.complete_drain(marker))),
            }
        } else {
            None
        };
        commands.pop_front();
        *written = 0;
        Some(Report { lane, epoch, outcome })
    }
}

/// Writes the next slice. `None` while there is more; else the outcome, or nothing when the lane
/// was retired meanwhile.
fn install(
    ingestor: &mut LaneIngestor,
    snapshot: &CkfSnapshot,
    written: &mut usize,
    gates: &Gates,
    epoch: u64,
) -> Option<Option<LaneOutcome>> {
    if *written == 0
        && let Err(outcome) = ingestor.check_snapshot(snapshot)
    {
        return Some(Some(outcome));
    }
    let end = snapshot.words.len().min(*written + SLICE_WORDS);
    ingestor.write_words(*written as u32, &snapshot.words[*written..end]);
    *written = end;
    if end < snapshot.words.len() {
        return None;
    }
    let sequence = snapshot.sequence;
    let lane = ingestor.lane();
    let entered = gates.if_current(lane, epoch, || ingestor.enter_answers(sequence));
    Some(entered.map(|()| LaneOutcome::SnapshotInstalled { sequence }))
}
