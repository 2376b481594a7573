//! What a client asks of all workers of its node: figures, the list of clients, CLIENT KILL and
//! CLIENT UNBLOCK.

use super::blocking::Waits;
use super::client::{Client, ClientId};
use super::sessions::{Listed, number, type_of};
use super::view::Now;
use super::waiting::NOTHING;
use super::{Dispatcher, Event};
use crate::proto::args::Args;
use crate::proto::resp::spec::CommandSpec;

const SYNTAX: &str = "ERR syntax error";

/// What a client gets that is not to wait any longer, if that is to be an error.
const UNBLOCKED: &[u8] = b"-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n";

/// What a worker is to do for its part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Nothing but to tell its figures.
    Figures,
    /// To list its clients.
    List,
    /// To end these clients.
    Kill(Victims),
    /// To let a client wait no longer.
    Unblock {
        /// Its id.
        client: u64,
        /// It gets an error, not an empty reply.
        error: bool,
    },
}

/// The addresses of the two ends of a connection, as Redis shows them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    /// The client's.
    pub remote: String,
    /// The node's.
    pub local: String,
}

/// Whom CLIENT KILL is to end: everybody who is what it names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Victims {
    asker: u64,
    spares_asker: bool,
    id: Option<u64>,
    remote: Option<Vec<u8>>,
    local: Option<Vec<u8>>,
    /// Clients of other types than `normal` are on no node.
    normal: bool,
}

impl Order {
    /// Reads a request of the client with the id `asker`. An error is the whole text of the reply.
    pub(super) fn of(spec: &CommandSpec, args: &Args<'_>, asker: u64) -> Result<Order, String> {
        match spec.name {
            "client|kill" => Victims::of(args, asker).map(Order::Kill),
            "client|unblock" => unblock(args),
            "client|list" => Listed::of(args).map(|_| Order::List),
            "client|info" => Ok(Order::List),
            _ => Ok(Order::Figures),
        }
    }
}

fn unblock(args: &Args<'_>) -> Result<Order, String> {
    let is = |word: &str| args[3].eq_ignore_ascii_case(word.as_bytes());
    let error = match args.len() {
        3 => false,
        4 if is("timeout") => false,
        4 if is("error") => true,
        5.. => {
            let sub = String::from_utf8_lossy(&args[1]);
            let what = "unknown subcommand or wrong number of arguments for";
            return Err(format!("ERR {what} '{sub}'. Try CLIENT HELP."));
        }
        _ => return Err("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR".into()),
    };
    match number(&args[2]) {
        Some(client) => Ok(Order::Unblock { client, error }),
        None => Err("ERR value is not an integer or out of range".into()),
    }
}

impl Victims {
    fn of(args: &Args<'_>, asker: u64) -> Result<Victims, String> {
        let mut victims = Victims {
            asker,
            spares_asker: true,
            id: None,
            remote: None,
            local: None,
            normal: true,
        };
        if args.len() == 3 {
            // In the old form one may end oneself.
            victims.spares_asker = false;
            victims.remote = Some(args[2].to_vec());
            return Ok(victims);
        }
        let options = args.tail(2);
        for i in (0..options.len()).step_by(2) {
            let value = options.get(i + 1).ok_or(SYNTAX)?;
            match options[i].to_ascii_lowercase().as_slice() {
                b"id" => {
                    let id = number(value).filter(|id| *id > 0);
                    victims.id = Some(id.ok_or("ERR client-id should be greater than 0")?);
                }
                b"type" => victims.normal = type_of(value)? == "normal",
                b"addr" => victims.remote = Some(value.to_vec()),
                b"laddr" => victims.local = Some(value.to_vec()),
                b"user" if value == b"default" => {}
                b"user" => {
                    let user = String::from_utf8_lossy(value);
                    return Err(format!("ERR No such user '{user}'"));
                }
                b"skipme" if value.eq_ignore_ascii_case(b"yes") => victims.spares_asker = true,
                b"skipme" if value.eq_ignore_ascii_case(b"no") => victims.spares_asker = false,
                _ => return Err(SYNTAX.into()),
            }
        }
        Ok(victims)
    }

    fn has(&self, id: u64, ends: impl Fn() -> Ends) -> bool {
        let at = |wanted: &Option<Vec<u8>>, end: fn(Ends) -> String| {
            wanted.as_ref().is_none_or(|wanted| *wanted == end(ends()).into_bytes())
        };
        self.normal
            && self.id.is_none_or(|wanted| wanted == id)
            && !(self.spares_asker && id == self.asker)
            && at(&self.remote, |ends| ends.remote)
            && at(&self.local, |ends| ends.local)
    }
}

impl Dispatcher {
    /// Ends clients; gives their number. Who asked for it gets the answer before.
    pub(super) fn kill(&mut self, victims: &Victims, ends: impl Fn(ClientId) -> Ends) -> u64 {
        let mut killed = 0;
        for (key, client) in &mut self.clients {
            let id = ClientId(key as u32);
            let may = client.peer.is_none() && !client.closing;
            if !may || !victims.has(client.number, || ends(id)) {
                continue;
            }
            killed += 1;
            client.closing = true;
            if client.number != victims.asker {
                self.events.push_back(Event::Kill { client: id });
            }
        }
        killed
    }

    /// Lets a client wait no longer; false when there is none that does.
    pub(super) fn unblock(&mut self, client: u64, error: bool, now: Now) -> bool {
        let is =
            |c: &Client| c.number == client && c.peer.is_none() && c.waits_for_key() && !c.closing;
        let found = self.clients.iter().find(|(_, client)| is(client));
        let said = if error { UNBLOCKED } else { NOTHING };
        match found.and_then(|(_, client)| client.waits) {
            Some(Waits::Upstream(up)) => self.end_leased(up, said, now),
            Some(Waits::Store(place)) => self.end_place(place, said, now),
            Some(Waits::Exec(_)) | None => return false,
        }
        true
    }
}

#[cfg(test)]
mod tests;
