//! What operators ask of the control plane, and how it is done.
//!
//! Each order carries a channel for its answer, which comes once the order is in force: the
//! machine changed, the snapshot was published.

use std::fmt;
use std::net::IpAddr;

use tokio::sync::oneshot;

use super::build::Knobs;
use super::control::Control;
use crate::config::Config;
use crate::dispatch::view::NodeState;
use crate::gossip::{Addr, Claim, ForgetError, Millis, Seed, Slot, Standing};
use crate::ring::{Consistency, PeerId};

/// An order is answered with this once it is in force.
pub type Done = oneshot::Sender<()>;

/// What an operator asks of the control plane.
#[derive(Debug)]
pub enum Order {
    /// Hold some peers down, let them up again, or judge them anew.
    Peers(Vec<PeerId>, PeerOrder, Done),
    /// Change levels, deadlines or the node's state.
    Tune(Tuning, Done),
    /// Follow what a seed provider says, besides the file.
    Seeds(Vec<Seed>),
    /// Go on with a configuration that was read again.
    Configure(Box<Config>),
    /// The name of a host means this address now.
    Resolved(String, IpAddr),
    /// Ask an address whose slot is not known.
    Contact(Addr, Done),
    /// Give up the arc for good and say so; answered once that is on the wire.
    Leave(Done),
    /// Say that this process stops and will be back; answered once that is on the wire.
    GoAway(Done),
    /// Remove a dead node.
    Forget(Slot, oneshot::Sender<Result<(), ForgetError>>),
    /// What is known of every node.
    Standings(oneshot::Sender<Vec<Standing>>),
    /// The datastore has what other racks have.
    Filled,
    /// Publish the ring as it is: lanes of datacenters outside of it are wanted.
    Republish,
    /// Tell everybody small facts of this node; without a value a fact is taken back.
    Tell(Vec<(&'static str, Option<String>)>),
}

/// What is to become of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerOrder {
    /// Down for this node, whatever is heard of it.
    Down,
    /// Judged by what is heard of it.
    Up,
    /// As one that was never heard of; its connections are made anew.
    Reset,
}

/// One of the [`Knobs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tuning {
    /// Level of reads for new requests.
    Read(Consistency),
    /// Level of writes for new requests.
    Write(Consistency),
    /// Factor of all deadlines, 1 to 10.
    TimeoutFactor(u64),
    /// The node's own state.
    State(NodeState),
}

/// What is in force then, as an event says it.
impl fmt::Display for Tuning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Tuning::Read(level) => write!(f, "reads at {level}"),
            Tuning::Write(level) => write!(f, "writes at {level}"),
            Tuning::TimeoutFactor(factor) => write!(f, "deadlines times {factor}"),
            Tuning::State(state) => write!(f, "state {state}"),
        }
    }
}

impl Knobs {
    fn set(&mut self, tuning: Tuning) {
        match tuning {
            Tuning::Read(level) => self.read = level,
            Tuning::Write(level) => self.write = level,
            Tuning::TimeoutFactor(factor) => self.timeout_factor = factor,
            Tuning::State(state) => self.state = state,
        }
    }
}

impl Control {
    pub(super) fn order(&mut self, order: Order) {
        let now = self.now();
        // Nobody awaits an answer any more when sending it fails.
        let _ = match order {
            Order::Peers(ids, what, done) => {
                ids.iter().for_each(|id| self.peer_order(*id, what, now));
                self.settle();
                done.send(())
            }
            Order::Tune(tuning, done) => {
                self.tune(tuning, now);
                self.settle();
                done.send(())
            }
            Order::Seeds(seeds) => {
                self.provided = seeds;
                self.follow_seeds();
                Ok(())
            }
            Order::Configure(config) => {
                self.reconfigure(*config);
                self.settle();
                Ok(())
            }
            Order::Resolved(host, ip) => {
                self.resolved(&host, ip, now);
                Ok(())
            }
            Order::Contact(addr, done) => {
                self.membership.add_contact(addr);
                done.send(())
            }
            Order::Leave(done) => {
                self.membership.leave(now);
                self.farewell = Some(done);
                self.settle();
                Ok(())
            }
            Order::GoAway(done) => {
                self.membership.go_away(now);
                self.farewell = Some(done);
                self.settle();
                Ok(())
            }
            Order::Forget(slot, done) => {
                let outcome = self.membership.forget(&slot, now);
                self.settle();
                done.send(outcome).map_err(|_| ())
            }
            Order::Filled => {
                self.membership.filled(now);
                Ok(())
            }
            Order::Republish => {
                self.publish();
                Ok(())
            }
            Order::Tell(facts) => {
                for (name, value) in facts {
                    if let Err(error) = self.membership.set_attribute(name, value.as_deref()) {
                        tracing::warn!(name, %error, "a fact of this node is not told");
                    }
                }
                Ok(())
            }
            Order::Standings(answer) => answer.send(self.membership.standings(now)).map_err(|_| ()),
        };
    }

    /// What is connected to an address a name meant before is connected anew.
    fn resolved(&mut self, host: &str, ip: IpAddr, now: Millis) {
        if !self.membership.resolved(host, ip, now) {
            return;
        }
        self.links.drop_host(host);
        let here = self.membership.members().filter(|m| m.record().addr.host == host);
        for member in here {
            self.shared.workers.iter().for_each(|worker| worker.reopen(member.id()));
        }
    }

    fn peer_order(&mut self, id: PeerId, what: PeerOrder, now: Millis) {
        let words = match what {
            PeerOrder::Down => "held down",
            PeerOrder::Up => "held down no more",
            PeerOrder::Reset => "judged and connected anew",
        };
        self.membership.ordered(Some(id), words, now);
        let known = match what {
            PeerOrder::Down => self.membership.force_down(id, true, now),
            PeerOrder::Up => self.membership.force_down(id, false, now),
            PeerOrder::Reset => self.membership.reset(id, now),
        };
        if known && what == PeerOrder::Reset {
            self.shared.workers.iter().for_each(|worker| worker.reopen(id));
        }
    }

    /// A node that serves nothing says so, so that nobody asks it. One that refuses reads alone
    /// must still be written to: it claims to be normal and refuses them itself.
    fn tune(&mut self, tuning: Tuning, now: Millis) {
        let before = self.knobs;
        self.knobs.set(tuning);
        if self.knobs != before {
            self.membership.ordered(None, &tuning.to_string(), now);
        }
        if let Tuning::State(state) = tuning {
            let claim = match state {
                NodeState::Standby => Claim::Standby,
                NodeState::Normal | NodeState::WritesOnly | NodeState::Resuming => Claim::Normal,
            };
            self.membership.set_local_claim(claim, now);
        }
        self.publish();
    }
}
