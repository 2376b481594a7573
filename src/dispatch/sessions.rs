//! CLIENT and its subcommands: what a connection says about itself, and what is told of others.

use super::Dispatcher;
use super::client::{Client, ClientId};
use super::orders::Ends;
use crate::proto::args::Args;
use crate::proto::resp::encode;

/// What CLIENT LIST and CLIENT KILL call connections of clients and of others.
const TYPES: [&str; 5] = ["normal", "master", "replica", "slave", "pubsub"];

/// What is said of a name that would break the lines of CLIENT LIST.
pub(super) const BAD_NAME: &[u8] =
    b"ERR Client names cannot contain spaces, newlines or special characters.";

/// Which connections CLIENT LIST is to tell of.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Listed {
    All,
    Nobody,
    /// These, in this order.
    Ids(Vec<u64>),
}

impl Listed {
    /// Reads the options of CLIENT LIST; an error is the whole text of the reply.
    pub(super) fn of(args: &Args<'_>) -> Result<Listed, String> {
        let is = |word: &str| args[2].eq_ignore_ascii_case(word.as_bytes());
        match args.len() {
            2 => Ok(Listed::All),
            4 if is("type") => match type_of(&args[3])? {
                "normal" => Ok(Listed::All),
                _ => Ok(Listed::Nobody),
            },
            4.. if is("id") => {
                let ids: Option<Vec<u64>> = args.tail(3).iter().map(number).collect();
                ids.map(Listed::Ids).ok_or("ERR Invalid client ID".into())
            }
            _ => Err("ERR syntax error".into()),
        }
    }

    /// The lines to be told; each comes with its connection's id.
    pub(super) fn text(&self, lines: &mut [(u64, String)]) -> String {
        lines.sort_unstable();
        let line = |id: &u64| {
            let at = lines.binary_search_by_key(id, |(id, _)| *id).ok()?;
            Some(lines[at].1.as_str())
        };
        match self {
            Listed::All => lines.iter().map(|(_, line)| line.as_str()).collect(),
            Listed::Nobody => String::new(),
            Listed::Ids(ids) => ids.iter().filter_map(line).collect(),
        }
    }
}

pub(super) fn type_of(word: &[u8]) -> Result<&'static str, String> {
    let found = TYPES.into_iter().find(|name| word.eq_ignore_ascii_case(name.as_bytes()));
    found.ok_or_else(|| format!("ERR Unknown client type '{}'", String::from_utf8_lossy(word)))
}

pub(super) fn number(word: &[u8]) -> Option<u64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

impl Dispatcher {
    /// Answers a subcommand of CLIENT that concerns the asking connection.
    pub(super) fn client_command(
        &mut self,
        id: ClientId,
        sub: &str,
        args: &Args<'_>,
        out: &mut Vec<u8>,
    ) {
        let client = &mut self.clients[id.0 as usize];
        match sub {
            "id" => encode::int(out, client.number as i64),
            "getname" => match client.session.as_ref().filter(|s| !s.name.is_empty()) {
                Some(session) => encode::bulk(out, &session.name),
                None => encode::null_bulk(out),
            },
            "setname" if is_printable(&args[2]) => {
                client.session().name = args[2].to_vec();
                encode::simple(out, b"OK");
            }
            "setname" => encode::error(out, BAD_NAME),
            "setinfo" => set_info(client, args, out),
            "no-evict" | "no-touch" => match on_or_off(&args[2]) {
                Some(_) => encode::simple(out, b"OK"),
                None => encode::error(out, b"ERR syntax error"),
            },
            "reply" if args[2].eq_ignore_ascii_case(b"on") => encode::simple(out, b"OK"),
            "reply" if args[2].eq_ignore_ascii_case(b"off") => {
                encode::error(out, b"ERR only CLIENT REPLY ON is offered by this node");
            }
            "reply" if args[2].eq_ignore_ascii_case(b"skip") => {
                encode::error(out, b"ERR only CLIENT REPLY ON is offered by this node");
            }
            "reply" => encode::error(out, b"ERR syntax error"),
            "tracking" => match on_or_off(&args[2]) {
                Some(false) => encode::simple(out, b"OK"),
                Some(true) => {
                    encode::error(out, b"ERR client side caching is not offered by this node")
                }
                None => encode::error(out, b"ERR syntax error"),
            },
            "getredir" => encode::int(out, -1),
            "trackinginfo" => tracking_info(out),
            _ => {
                let sub = String::from_utf8_lossy(&args[1]);
                let text = format!("ERR unknown subcommand '{sub}'. Try CLIENT HELP.");
                encode::error(out, text.as_bytes());
            }
        }
    }

    /// One line of CLIENT LIST for each client of this worker, with its id.
    pub(super) fn client_lines(&self, ends: impl Fn(ClientId) -> Ends) -> Vec<(u64, String)> {
        let clients = self.clients.iter().filter(|(_, client)| client.peer.is_none());
        let line = |(key, client): (usize, &Client)| {
            (client.number, line_of(client, &ends(ClientId(key as u32))))
        };
        clients.map(line).collect()
    }
}

pub(super) fn is_printable(text: &[u8]) -> bool {
    text.iter().all(|b| (b'!'..=b'~').contains(b))
}

fn set_info(client: &mut Client, args: &Args<'_>, out: &mut Vec<u8>) {
    let (name, value) = (&args[2], &args[3]);
    let option = match name {
        _ if name.eq_ignore_ascii_case(b"lib-name") => "lib-name",
        _ if name.eq_ignore_ascii_case(b"lib-ver") => "lib-ver",
        _ => {
            let option = String::from_utf8_lossy(name);
            return encode::error(out, format!("ERR Unrecognized option '{option}'").as_bytes());
        }
    };
    if !is_printable(value) {
        let text = format!("ERR {option} cannot contain spaces, newlines or special characters.");
        return encode::error(out, text.as_bytes());
    }
    match option {
        "lib-name" => client.session().lib_name = value.to_vec(),
        _ => client.session().lib_version = value.to_vec(),
    }
    encode::simple(out, b"OK");
}

fn line_of(client: &Client, ends: &Ends) -> String {
    let session = client.session.as_deref();
    let text = |bytes: Option<&Vec<u8>>| {
        bytes.map(|b| String::from_utf8_lossy(b).into_owned()).unwrap_or_default()
    };
    let flags = match () {
        () if client.waits_for_key() => "b",
        () if client.multi.is_some() => "x",
        () => "N",
    };
    format!(
        "id={} addr={} laddr={} name={} flags={flags} db=0 sub=0 psub=0 multi={} user=default \
         resp={} lib-name={} lib-ver={}\n",
        client.number,
        ends.remote,
        ends.local,
        text(session.map(|s| &s.name)),
        client.multi.as_ref().map_or(-1, |multi| multi.len() as i64),
        if client.resp3 { 3 } else { 2 },
        text(session.map(|s| &s.lib_name)),
        text(session.map(|s| &s.lib_version)),
    )
}

fn tracking_info(out: &mut Vec<u8>) {
    encode::array(out, 6);
    encode::bulk(out, b"flags");
    encode::array(out, 1);
    encode::bulk(out, b"off");
    encode::bulk(out, b"redirect");
    encode::int(out, -1);
    encode::bulk(out, b"prefixes");
    encode::array(out, 0);
}

fn on_or_off(word: &[u8]) -> Option<bool> {
    if word.eq_ignore_ascii_case(b"on") {
        Some(true)
    } else if word.eq_ignore_ascii_case(b"off") {
        Some(false)
    } else {
        None
    }
}
