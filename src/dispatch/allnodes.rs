//! Commands that concern every node: scripts and functions are loaded everywhere, FLUSHALL
//! empties every datastore (decision D13). Each node of every rack and datacenter that is not
//! down is asked as type 3; when one does not do it, the answer is an error that names it.

use std::sync::Arc;

use super::client::ClientId;
use super::failure::{Cause, Failure, FailureKind};
use super::gather::Said;
use super::plan::Standing;
use super::send::Parcel;
use super::task::{Next, Part, Task};
use super::view::{Now, Protocol, View};
use super::{Dispatcher, Frame};
use crate::proto::args::Args;
use crate::proto::command::TowardC;
use crate::proto::memcache;
use crate::proto::resp::encode;
use crate::proto::resp::reply::{elements, is_error, is_ok, parse_int};
use crate::proto::resp::spec::CommandSpec;
use crate::ring::PeerIdx;

/// How a datastore answers that is to delete a library it does not have.
const NOT_THERE: &[u8] = b"-ERR Library not found";

/// Nodes an error names at most.
const NAMED_MAX: usize = 8;

/// One command on its way to every node.
#[derive(Debug)]
pub(super) struct AllNodes {
    /// The snapshot it was planned on.
    view: Arc<View>,
    rule: Rule,
    peers: Vec<PeerIdx>,
    waiting: usize,
    /// This node's own answer.
    own: Vec<u8>,
    /// For EXISTS: what every node has so far.
    common: Option<Vec<bool>>,
    done: usize,
    /// Who did not do it, and why.
    missing: Vec<(PeerIdx, Vec<u8>)>,
}

/// When the command succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// When every node did it.
    Every,
    /// When any node did it: a running script is killed where it runs.
    Any,
    /// SCRIPT EXISTS: a script is there when every node has it.
    Common,
    /// FUNCTION DELETE: also where it was not, unless it was nowhere.
    Gone,
}

impl Rule {
    fn of(spec: &CommandSpec) -> Rule {
        match spec.name {
            "script|kill" | "function|kill" => Rule::Any,
            "script|exists" => Rule::Common,
            "function|delete" => Rule::Gone,
            _ => Rule::Every,
        }
    }
}

impl Dispatcher {
    /// Serves a command that concerns every node.
    pub(super) fn serve_all_nodes(
        &mut self,
        view: &View,
        id: ClientId,
        frame: &Frame<'_>,
        spec: &'static CommandSpec,
        args: Args<'_>,
        now: Now,
    ) {
        self.counters.client_writes += 1;
        if spec.name.starts_with("flush") && !view.settings.allow_flush {
            let name = spec.name.to_ascii_uppercase();
            let text = format!(
                "ERR {name} is refused: it would empty every node of the ring, and the setting \
                 allow_flush is off"
            );
            return self.reply_error(id, &text, now);
        }
        self.note_scripts(&args);
        self.note_libraries(&args);
        let envelope = self.request(view, id, spec, args).envelope;
        let peers = asked(view, self.links.standings());
        if let Some(failure) = self.refused_by(view, &peers, spec, &args) {
            return self.reply_in_turn(id.0, envelope, Said::Failed(failure), now);
        }
        let all = AllNodes::new(Arc::clone(&self.view), Rule::of(spec), &peers);
        let part = self.begin_task(id.0, envelope, Task::AllNodes(all), now);
        let stamp = self.new_stamp(view, now);
        for (number, peer) in (0..).zip(peers) {
            let part = Part { part: number, ..part };
            self.ask_node(view, peer, spec, Parcel { frame, args, stamp }, part, now);
        }
    }

    /// The first peer that cannot run the command at all, so that it is begun nowhere.
    fn refused_by(
        &self,
        view: &View,
        peers: &[PeerIdx],
        spec: &CommandSpec,
        args: &Args<'_>,
    ) -> Option<Failure> {
        if spec.toward_c_of(args) != TowardC::Refuse {
            return None;
        }
        let peer = peers.iter().find(|peer| !self.is_torc(view, **peer))?;
        let failure = Failure::new(FailureKind::NotSupported, Cause::NotSupportedByPeer);
        Some(failure.at(view.topology.peer(*peer).id))
    }
}

/// Every node that is not down; this node among them.
pub(super) fn asked(view: &View, standings: &[Standing]) -> Vec<PeerIdx> {
    let asked = |idx: &PeerIdx| {
        *idx == view.topology.local()
            || standings.get(idx.0 as usize).is_some_and(|s| *s != Standing::NotRoutable)
    };
    view.topology.peers().map(|peer| peer.idx).filter(asked).collect()
}

impl AllNodes {
    pub(super) fn new(view: Arc<View>, rule: Rule, peers: &[PeerIdx]) -> AllNodes {
        AllNodes {
            view,
            rule,
            waiting: peers.len(),
            peers: peers.to_vec(),
            own: Vec::new(),
            common: None,
            done: 0,
            missing: Vec::new(),
        }
    }

    /// Takes the answer of node number `part`.
    pub(super) fn take(&mut self, part: u16, said: Said<'_>) -> Next {
        self.waiting -= 1;
        let peer = self.peers[usize::from(part)];
        let reply = match &said {
            Said::Failed(failure) => {
                self.missing.push((peer, failure.cause.text().into()));
                &[]
            }
            Said::Reply(_) | Said::Large(_) => said.bytes().unwrap_or_default(),
        };
        if self.rule == Rule::Gone && reply.starts_with(NOT_THERE) {
            // A datastore that joined lately may never have had it.
        } else if self.is_error(reply) {
            let text = reply.strip_prefix(b"-").unwrap_or(reply);
            let text = text.strip_suffix(b"\r\n").unwrap_or(text);
            self.missing.push((peer, text.to_vec()));
        } else if !reply.is_empty() {
            self.done += usize::from(self.rule != Rule::Any || is_ok(reply));
            if self.rule == Rule::Common {
                self.has(reply);
            }
        }
        if peer == self.view.topology.local() {
            self.own = reply.to_vec();
        }
        if self.waiting > 0 {
            return Next::Wait;
        }
        Next::Reply(self.answer())
    }

    fn is_error(&self, reply: &[u8]) -> bool {
        match self.view.settings.protocol {
            Protocol::Redis => is_error(reply),
            Protocol::Memcache => memcache::reply::is_error(reply),
        }
    }

    fn has(&mut self, reply: &[u8]) {
        let there = elements(reply).map(|e| parse_int(e) == Some(1));
        match &mut self.common {
            None => self.common = Some(there.collect()),
            Some(common) => common.iter_mut().zip(there).for_each(|(all, one)| *all &= one),
        }
    }

    fn answer(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        if self.rule == Rule::Any && self.done > 0 {
            encode::simple(&mut out, b"OK");
            return out;
        }
        if let Some((_, first)) = self.missing.first() {
            // What no node does is told in the datastore's own words.
            let same = self.missing.iter().all(|(_, text)| text == first);
            if self.done == 0 && same && self.is_error(&self.own) {
                return std::mem::take(&mut self.own);
            }
            match self.view.settings.protocol {
                Protocol::Redis => {
                    encode::error(&mut out, format!("ERR {}", self.names()).as_bytes());
                }
                Protocol::Memcache => {
                    out = format!("SERVER_ERROR {}\r\n", self.names()).into_bytes();
                }
            }
            return out;
        }
        match &self.common {
            Some(common) => {
                encode::array(&mut out, common.len());
                common.iter().for_each(|all| encode::int(&mut out, i64::from(*all)));
            }
            None if self.rule == Rule::Gone && self.done > 0 => encode::simple(&mut out, b"OK"),
            None => out = std::mem::take(&mut self.own),
        }
        out
    }

    fn names(&self) -> String {
        let topology = &self.view.topology;
        let told = self.missing.iter().take(NAMED_MAX).map(|(peer, why)| {
            let peer = topology.peer(*peer);
            format!("{} ({}, {}): {}", peer.name, peer.dc, peer.rack, String::from_utf8_lossy(why))
        });
        let mut text = told.collect::<Vec<_>>().join("; ");
        if self.missing.len() > NAMED_MAX {
            text += &format!("; and {} more", self.missing.len() - NAMED_MAX);
        }
        let (missing, all) = (self.missing.len(), self.peers.len());
        format!("Dynomite: {missing} of {all} nodes did not do it: {text}")
    }
}

#[cfg(test)]
mod tests;
