//! `TORC.REPLICAS CMD ARGS...`: a read of one key, put to its owner in every rack of the local
//! datacenter, with all their answers side by side and no vote.
//!
//! Operators see with it which replica has what. The document gateway reads its small state this
//! way, because it keeps versions inside its values: the newest wins, whatever a majority says
//! (decision J3).

use std::sync::Arc;

use super::client::ClientId;
use super::failure::{Cause, Failure, FailureKind};
use super::gather::Said;
use super::plan::Op;
use super::requests::op_of;
use super::send::Parcel;
use super::task::{Next, Part, Task, Written};
use super::view::{Now, View};
use super::{Dispatcher, Frame};
use crate::proto::args::Args;
use crate::proto::command::Routing;
use crate::proto::resp::encode;
use crate::proto::resp::spec::CommandSpec;
use crate::ring::PeerIdx;

/// One read on its way to every rack.
#[derive(Debug)]
pub(super) struct Replicas {
    /// The snapshot it was planned on.
    view: Arc<View>,
    /// The owner in each rack; `None` where nobody owns the key.
    owners: Vec<Option<PeerIdx>>,
    /// What each of them said, as a reply.
    answers: Vec<Vec<u8>>,
    waiting: usize,
}

impl Dispatcher {
    /// Serves `TORC.REPLICAS`; `command` is what follows it.
    pub(super) fn serve_replicas(
        &mut self,
        view: &View,
        id: ClientId,
        command: Args<'_>,
        now: Now,
    ) {
        let Some(spec) = self.known_command(view, id, &command, now) else { return };
        let Some(key) = key_of_read(view, spec, &command) else {
            let text = format!("ERR TORC.REPLICAS runs reads of one key, not '{}'", spec.name);
            return self.reply_error(id, &text, now);
        };
        if let Some(failure) = self.forbidden(view, Op::Read) {
            return self.reply_in_turn(id.0, Default::default(), Said::Failed(failure), now);
        }
        let owners = view.topology.owners(&view.hasher.token(key));
        let owners: Vec<Option<PeerIdx>> =
            view.topology.local_racks().map(|rack| owners.owner(rack)).collect();
        let replicas = Replicas {
            view: Arc::clone(&self.view),
            answers: vec![Vec::new(); owners.len()],
            waiting: owners.len(),
            owners: owners.clone(),
        };
        let part = self.begin_task(id.0, Default::default(), Task::Replicas(replicas), now);
        let written = Written::command(command.iter());
        let frame = Frame::Small(&written.bytes);
        for (number, owner) in (0..).zip(owners) {
            let part = Part { part: number, ..part };
            match owner {
                Some(peer) => {
                    let parcel = Parcel { frame: &frame, args: written.args(), stamp: None };
                    self.ask_node(view, peer, spec, parcel, part, now);
                }
                None => {
                    let nobody = Failure::new(FailureKind::NoQuorum, Cause::NoReplica);
                    self.feed_task(part, Said::Failed(nobody), Default::default(), now);
                }
            }
        }
    }
}

/// The key of a command that reads one key and nothing else.
fn key_of_read<'a>(view: &View, spec: &CommandSpec, command: &Args<'a>) -> Option<&'a [u8]> {
    if spec.routing_of(command) != Routing::Keyed || op_of(view, spec, command) != Op::Read {
        return None;
    }
    let mut keys = spec.keys_of(command).filter_map(|i| command.get(i));
    let key = keys.next()?;
    keys.next().is_none().then_some(key)
}

impl Replicas {
    /// Takes the answer of rack number `part`.
    pub(super) fn take(&mut self, part: u16, said: Said<'_>) -> Next {
        self.waiting -= 1;
        let answer = &mut self.answers[usize::from(part)];
        match &said {
            Said::Failed(failure) => {
                let text = format!("ERR {} ({})", failure.text(), failure.cause.text());
                encode::error(answer, text.as_bytes());
            }
            Said::Reply(_) | Said::Large(_) => {
                answer.extend_from_slice(said.bytes().unwrap_or_default());
            }
        }
        if self.waiting > 0 {
            return Next::Wait;
        }
        let topology = &self.view.topology;
        let mut out = Vec::new();
        encode::array(&mut out, self.answers.len());
        for ((rack, owner), answer) in topology.local_racks().zip(&self.owners).zip(&self.answers) {
            encode::array(&mut out, 3);
            encode::bulk(&mut out, topology.racks()[rack].name.as_bytes());
            let name = owner.map_or("", |peer| topology.peer(peer).name);
            encode::bulk(&mut out, name.as_bytes());
            out.extend_from_slice(answer);
        }
        Next::Reply(out)
    }
}

#[cfg(test)]
mod tests {
    use super::super::scripted::{Scripted, ring};
    use super::super::view::Settings;

    fn three_racks() -> Scripted {
        let peers = ring(&[
            ("a", "dc1/r1", 1),
            ("b", "dc1/r2", 1),
            ("c", "dc1/r3", 1),
            ("far", "dc2/r1", 1),
        ]);
        Scripted::new(peers, Settings::default())
    }

    #[test]
    fn every_local_rack_is_asked_once_and_all_answers_are_shown() {
        let mut s = three_racks();
        s.send("TORC.REPLICAS GET k");
        assert_eq!(s.sent("store"), ["GET k"]);
        assert_eq!(s.sent("b"), ["3 GET k"]);
        assert_eq!(s.sent("c"), ["3 GET k"]);
        assert!(s.sent("far").is_empty());
        s.answer("c", "$3\r\nnew\r\n");
        s.answer("b", "-ERR Storage: Datastore refused connection\r\n");
        assert_eq!(s.replies(), "", "it waits for all");
        s.answer("store", "$-1\r\n");
        assert_eq!(
            s.replies(),
            "*3\r\n*3\r\n$2\r\nr1\r\n$1\r\na\r\n$-1\r\n\
             *3\r\n$2\r\nr2\r\n$1\r\nb\r\n-ERR Storage: Datastore refused connection\r\n\
             *3\r\n$2\r\nr3\r\n$1\r\nc\r\n$3\r\nnew\r\n"
        );
    }

    #[test]
    fn a_rack_that_cannot_be_asked_is_an_error_in_its_place() {
        let mut s = three_racks();
        s.lose("b");
        s.send("TORC.REPLICAS TTL k");
        assert_eq!(s.sent("c"), ["3 TTL k"]);
        s.answer("store", ":7\r\n");
        s.answer("c", ":7\r\n");
        let reply = s.replies();
        let error = "b\r\n-ERR Peer: Peer Node is not connected (not connected)\r\n";
        assert!(reply.contains(error), "{reply}");
        assert_eq!(reply.matches(":7\r\n").count(), 2);
    }

    #[test]
    fn writes_and_reads_of_several_keys_are_refused() {
        let mut s = three_racks();
        for refused in ["SET k v", "MGET a b", "KEYS *", "PING", "BLPOP k 0"] {
            s.send(&format!("TORC.REPLICAS {refused}"));
            let reply = s.replies();
            assert!(reply.starts_with("-ERR TORC.REPLICAS runs reads of one key"), "{reply}");
        }
        s.send("TORC.REPLICAS NOSUCH");
        assert!(s.replies().starts_with("-ERR unknown command"));
    }
}
