//! Effects of commands that waited, until every replica has them.
//!
//! A client that waits is woken by somebody else's write, and both have copies on their way to
//! the other racks: what was taken may be told to a replica before it was put there. Nothing is
//! there to be removed then, and the effect is sent again a little later. It names what was taken
//! by its value or id, so that nothing else goes in its place.

use super::Dispatcher;
use super::effects::Effected;
use super::gather::Said;
use super::slot::{Envelope, Owner, Stage};
use super::task::{Next, Part, Task};
use super::upstream::Ticket;
use super::view::Now;
use crate::proto::resp::reply::{is_null, parse_int};

/// The first pause between two attempts; it doubles from there.
const PAUSE_FIRST_MS: u64 = 10;

/// Attempts at most: the last one is five seconds after the first.
const ATTEMPTS_MAX: u8 = 10;

/// One effect on its way to one replica.
#[derive(Debug)]
pub(super) struct Chase {
    effected: Effected,
    /// Who counts the first answer, if anybody.
    report: Option<Part>,
    attempts: u8,
}

/// A chase that is to be tried again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due {
    at_ms: u64,
    slot: u32,
    generation: u32,
}

impl Dispatcher {
    /// Sends an effect to a replica until it finds what it takes away there.
    pub(super) fn chase(&mut self, effected: Effected, report: Option<Part>, now: Now) {
        let chase = Chase { effected: effected.clone(), report, attempts: 1 };
        let stage = Stage::Task(Box::new(Task::Chase(chase)));
        let (slot, generation) = self.new_slot(Owner::Nobody, stage, Envelope::default(), now);
        self.send_chase(effected, (slot, generation), now);
    }

    fn send_chase(&mut self, effected: Effected, (slot, generation): (u32, u32), now: Now) {
        let ticket = Ticket::of(slot, generation);
        self.send_effect(&effected, ticket, now);
    }

    /// Who counts the first answer of a chase.
    pub(super) fn take_report(&mut self, part: Part) -> Option<Part> {
        let slot = self.slots.get_mut(part.slot as usize)?;
        match &mut slot.stage {
            Stage::Task(task) if slot.generation == part.generation => match task.as_mut() {
                Task::Chase(chase) => chase.report.take(),
                Task::Ring(_)
                | Task::AllNodes(_)
                | Task::Primary(_)
                | Task::Replicas(_)
                | Task::Watch(_)
                | Task::Backfill(_)
                | Task::Script(_)
                | Task::Libraries(_)
                | Task::Config(_) => None,
            },
            _ => None,
        }
    }

    /// Puts a chase aside for a while.
    pub(super) fn chase_later(&mut self, part: Part, pause_ms: u64, now: Now) {
        let Part { slot, generation, .. } = part;
        self.chases.push(Due { at_ms: now.mono_ms() + pause_ms, slot, generation });
    }

    /// When the next one is due.
    pub(super) fn chase_due_ms(&self) -> Option<u64> {
        self.chases.iter().map(|due| due.at_ms).min()
    }

    /// Sends what is due.
    pub(super) fn resend_chases(&mut self, now: Now) {
        for due in std::mem::take(&mut self.chases) {
            if due.at_ms > now.mono_ms() {
                self.chases.push(due);
                continue;
            }
            let slot = self.slots.get(due.slot as usize).filter(|s| s.generation == due.generation);
            let Some(Stage::Task(task)) = slot.map(|slot| &slot.stage) else { continue };
            let Task::Chase(chase) = task.as_ref() else { continue };
            let effected = chase.effected.clone();
            self.send_chase(effected, (due.slot, due.generation), now);
        }
    }
}

impl Chase {
    /// Takes what the replica said.
    pub(super) fn take(&mut self, said: Said<'_>) -> Next {
        let missed = said.bytes().is_some_and(|reply| {
            is_null(reply) || parse_int(reply) == Some(0) || reply.starts_with(b"*0\r\n")
        });
        if !missed || self.attempts == ATTEMPTS_MAX {
            return Next::Reply(Vec::new());
        }
        let pause_ms = PAUSE_FIRST_MS << (self.attempts - 1);
        self.attempts += 1;
        Next::Later(pause_ms)
    }
}

/// The same answer once more.
pub(super) fn again<'a>(said: &'a Said<'_>) -> Said<'a> {
    match said {
        Said::Failed(failure) => Said::Failed(*failure),
        Said::Reply(reply) => Said::Reply(reply),
        Said::Large(reply) => Said::Reply(reply),
    }
}
