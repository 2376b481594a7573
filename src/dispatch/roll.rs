//! INFO, CLIENT LIST and the like: what all workers of a node say or do together.
//!
//! The shell carries the question to every worker and brings back the sum; until then the reply
//! is owed, in its client's order. A dispatcher that is told of no others answers for itself.

use std::sync::Arc;

use super::client::ClientId;
use super::gather::Said;
use super::orders::{Ends, Order};
use super::sessions::Listed;
use super::slot::{Envelope, Owner, Slot, Stage};
use super::task::Written;
use super::view::{Now, View};
use super::{Counters, Dispatcher, Event, info};
use crate::proto::args::Args;
use crate::proto::resp::spec::CommandSpec;
use crate::proto::resp::{encode, table};

/// A question to all workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RollCall {
    slot: u32,
    generation: u32,
    /// What each of them is to do.
    pub order: Order,
}

/// What workers answer.
#[derive(Clone, Debug, Default)]
pub struct Roll {
    /// Their figures.
    pub counters: Counters,
    /// A line for each of their clients, with the client's id.
    pub clients: Vec<(u64, String)>,
    /// How many clients they ended, or let wait no longer.
    pub done: u64,
}

impl Roll {
    /// Adds another worker's.
    pub fn add(&mut self, other: Roll) {
        self.counters.add(&other.counters);
        self.clients.extend(other.clients);
        self.done += other.done;
    }
}

impl Dispatcher {
    /// There are other workers: what concerns all of them is asked of the shell.
    pub fn has_siblings(&mut self) {
        self.siblings = true;
    }

    /// What this worker says and does for its part. `ends` names the ends of a connection.
    pub fn roll(&mut self, order: &Order, ends: impl Fn(ClientId) -> Ends, now: Now) -> Roll {
        let (mut clients, mut done) = (Vec::new(), 0);
        match order {
            Order::Figures => {}
            Order::List => clients = self.client_lines(ends),
            Order::Kill(victims) => done = self.kill(victims, ends),
            Order::Unblock { client, error } => {
                done = u64::from(self.unblock(*client, *error, now));
            }
        }
        Roll { counters: self.figures(), clients, done }
    }

    /// The counters, with the gauges that are counted when they are asked for.
    pub fn figures(&self) -> Counters {
        Counters {
            in_flight: self.in_flight() as u64,
            waiting: self.waiting() as u64,
            ..self.counters.clone()
        }
    }

    /// Serves INFO, CLIENT LIST and others that concern all workers.
    pub(super) fn serve_roll(
        &mut self,
        view: &View,
        id: ClientId,
        spec: &'static CommandSpec,
        args: Args<'_>,
        now: Now,
    ) {
        let order = match Order::of(spec, &args, self.clients[id.0 as usize].number) {
            Ok(order) => order,
            Err(text) => return self.reply_error(id, &text, now),
        };
        let envelope = Envelope { shape: spec.shape_of(&args), ..Envelope::default() };
        if !self.siblings {
            let roll = self.roll(&order, |_| Ends::default(), now);
            let reply = self.told(view, id.0, spec, &args, roll, now);
            return self.reply_in_turn(id.0, envelope, Said::Reply(&reply), now);
        }
        let (slot, generation) = self.new_slot(Owner::Client(id.0), Stage::Single, envelope, now);
        self.slots[slot as usize].request = Written::command(args.iter()).bytes;
        self.events.push_back(Event::RollCall(RollCall { slot, generation, order }));
    }

    /// All workers have answered.
    pub fn on_roll(&mut self, call: &RollCall, roll: Roll, now: Now) {
        let asked = |slot: &&mut Slot| slot.generation == call.generation;
        let Some(slot) = self.slots.get_mut(call.slot as usize).filter(asked) else { return };
        let Owner::Client(client) = slot.owner else { return self.free(call.slot) };
        let request = std::mem::take(&mut slot.request);
        let view = Arc::clone(&self.view);
        let Some(request) = Written::decoded(&request) else { return };
        let args = request.args();
        let Ok(spec) = table::find(&args, &view.settings.modules) else { return };
        let reply = self.told(&view, client, spec, &args, roll, now);
        self.complete(call.slot, Said::Reply(&reply), now);
    }

    fn told(
        &self,
        view: &View,
        client: u32,
        spec: &CommandSpec,
        args: &Args<'_>,
        mut roll: Roll,
        now: Now,
    ) -> Vec<u8> {
        let mut out = Vec::new();
        let listed = match spec.name {
            "client|kill" if args.len() == 3 => {
                match roll.done {
                    0 => encode::error(&mut out, b"ERR No such client"),
                    _ => encode::simple(&mut out, b"OK"),
                }
                return out;
            }
            "client|kill" | "client|unblock" => {
                encode::int(&mut out, roll.done as i64);
                return out;
            }
            "client|list" => Listed::of(args),
            "client|info" => Ok(Listed::Ids(vec![self.clients[client as usize].number])),
            _ => {
                let store = self.embedded.as_ref().and_then(|store| store.report());
                let usable = self.links.usable();
                let text = info::text(view, usable, &roll.counters, store, args, now);
                encode::bulk(&mut out, text.as_bytes());
                return out;
            }
        };
        match listed {
            Ok(listed) => encode::bulk(&mut out, listed.text(&mut roll.clients).as_bytes()),
            Err(text) => encode::error(&mut out, text.as_bytes()),
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::super::scripted::{Scripted, ring};
    use super::*;
    use crate::dispatch::view::Settings;

    #[test]
    fn figures_of_all_workers_are_told_in_the_clients_order() {
        let mut s = Scripted::new(ring(&[("n1", "dc1/r1", 1)]), Settings::default());
        s.node.has_siblings();
        s.send("INFO clients");
        s.send("CLIENT LIST ID 9 1099511627777");
        s.send("PING");
        assert_eq!(s.replies(), "");
        let mut calls = Vec::new();
        while let Some(event) = s.node.poll_event() {
            if let Event::RollCall(call) = event {
                calls.push(call);
            }
        }
        let here = |_| Ends { remote: "here".into(), local: "there".into() };
        let mut roll = s.node.roll(&Order::List, here, s.now);
        let counters = Counters { clients: 5, waiting: 2, ..Counters::default() };
        roll.add(Roll { counters, clients: vec![(9, "id=9\n".into())], done: 0 });
        s.node.on_roll(&calls[1], roll.clone(), s.now);
        assert_eq!(s.replies(), "", "the first one is owed first");
        s.node.on_roll(&calls[0], roll.clone(), s.now);
        let text = s.replies();
        assert!(text.contains("connected_clients:6\r\nblocked_clients:2\r\n"), "{text}");
        let lines = text.split("id=").collect::<Vec<_>>();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(
            lines[1].starts_with('9') && lines[2].contains(" addr=here laddr=there "),
            "{text}"
        );
        assert!(text.ends_with("+PONG\r\n"));
        // It may be asked for by somebody who left.
        s.node.on_roll(&calls[0], roll, s.now);
    }
}
