//! Random faults, each with an end.

use super::world::World;
use torc::ring::PeerState;

/// Something that is wrong for a while.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    Crash(usize),
    Freeze(usize),
    CutOff(usize, usize),
    StoreCrash(usize),
    StoreFreeze(usize),
    /// A node's detector takes another one for down; only this node's view changes.
    Doubt {
        node: usize,
        of: usize,
    },
    /// A user does not read its replies.
    Deaf(usize),
}

/// Which kinds of faults a run draws.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FaultMix {
    /// Mean time between two faults, milliseconds.
    pub(crate) every_ms: u64,
    /// Longest duration, milliseconds.
    pub(crate) lasts_ms: u64,
    /// Most faults at a time.
    pub(crate) together: usize,
}

impl World {
    /// Draws a fault and lets it begin; `None` for those that are over at once.
    pub(crate) fn begin_fault(&mut self) -> Option<Fault> {
        let nodes = self.nodes.len();
        let (node, other) = (self.rng.usize(0..nodes), self.rng.usize(0..nodes));
        let fault = match self.rng.u32(0..100) {
            0..15 if self.nodes[node].up => Fault::Crash(node),
            15..28 if self.nodes[node].running() => Fault::Freeze(node),
            28..45 if node != other => Fault::CutOff(node, other),
            45..52 if self.stores[node].up => Fault::StoreCrash(node),
            52..60 if self.stores[node].serves() => Fault::StoreFreeze(node),
            60..70 if node != other && self.nodes[node].running() => {
                Fault::Doubt { node, of: other }
            }
            70..75 => Fault::Deaf(self.rng.usize(0..self.users.len())),
            75..80 => {
                let user = self.rng.usize(0..self.users.len());
                self.hang_up(user);
                return None;
            }
            // A link breaks, after any byte in either direction.
            _ => {
                let (side, bytes) = (self.rng.usize(0..2), self.rng.usize(1..2000));
                self.note(|| format!("n{} to n{}: cut after {bytes}", node + 1, other + 1));
                self.cut_links(node, other, side, bytes);
                return None;
            }
        };
        self.note(|| format!("begins: {fault:?}"));
        match fault {
            Fault::Crash(n) => self.crash(n),
            Fault::Freeze(n) => self.freeze(n),
            Fault::CutOff(from, to) => {
                self.cut_off(from, to);
                if self.rng.bool() {
                    self.cut_off(to, from);
                }
            }
            Fault::StoreCrash(n) => self.crash_store(n, true),
            Fault::StoreFreeze(n) => self.freeze_store(n),
            Fault::Doubt { node, of } => self.doubt(node, of, false),
            Fault::Deaf(user) => self.users[user].reading = false,
        }
        Some(fault)
    }

    /// Ends a fault.
    pub(crate) fn end_fault(&mut self, fault: Fault) {
        self.note(|| format!("ends: {fault:?}"));
        match fault {
            Fault::Crash(n) if !self.nodes[n].up => self.restart(n),
            Fault::Freeze(n) if self.nodes[n].frozen => self.thaw(n),
            Fault::CutOff(from, to) => {
                self.join(from, to);
                self.join(to, from);
            }
            Fault::StoreCrash(n) if !self.stores[n].up => self.start_store(n),
            Fault::StoreFreeze(n) if self.stores[n].frozen => self.thaw_store(n),
            Fault::Doubt { node, of } if self.nodes[node].up => self.doubt(node, of, true),
            Fault::Deaf(user) => {
                self.users[user].reading = true;
                self.read_user(user);
            }
            // Another fault, or its end, came in between.
            Fault::Crash(_)
            | Fault::Freeze(_)
            | Fault::StoreCrash(_)
            | Fault::StoreFreeze(_)
            | Fault::Doubt { .. } => {}
        }
    }

    /// One node takes another for down, or for up again.
    fn doubt(&mut self, node: usize, of: usize, reachable: bool) {
        let mut table = self.table.clone();
        table[of].reachable = reachable;
        let view = self.config.view(&table, node);
        self.set_view(node, view);
        self.run_ms(0);
    }

    /// A user lets go of its connection, and comes back to some node that runs.
    pub(crate) fn hang_up(&mut self, user: usize) {
        let ops: Vec<_> =
            self.users[user].waiting.iter().filter_map(|ask| ask.op.clone()).collect();
        ops.iter().for_each(|op| self.close_keys(op));
        self.lose_user(user);
        self.users[user].node = self.rng.usize(0..self.nodes.len());
    }

    /// Ends everything that may be wrong.
    pub(crate) fn heal(&mut self) {
        self.net.forget_cuts();
        for n in 0..self.nodes.len() {
            self.table[n].state = PeerState::Normal;
            self.table[n].reachable = true;
            for other in 0..self.nodes.len() {
                self.join(n, other);
            }
            if !self.stores[n].up {
                self.start_store(n);
            }
            if self.stores[n].frozen {
                self.thaw_store(n);
            }
            if self.nodes[n].frozen {
                self.thaw(n);
            }
            if !self.nodes[n].up {
                self.restart(n);
            }
        }
        for user in 0..self.users.len() {
            self.users[user].reading = true;
            self.read_user(user);
        }
        self.publish();
    }
}
