//! CLIENT and its subcommands: what a connection says about itself, and what is told of others.

use super::Dispatcher;
use super::client::{Client, ClientId};
use crate::proto::args::Args;
use crate::proto::resp::encode;

/// What CLIENT LIST and CLIENT KILL call connections of clients and of others.
const TYPES: [&str; 5] = ["normal", "master", "replica", "slave", "pubsub"];

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

fn type_of(word: &[u8]) -> Result<&'static str, String> {
    let found = TYPES.into_iter().find(|name| word.eq_ignore_ascii_case(name.as_bytes()));
    found.ok_or_else(|| format!("ERR Unknown client type '{}'", String::from_utf8_lossy(word)))
}

fn number(word: &[u8]) -> Option<u64> {
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
            "setname" => encode::error(
                out,
                b"ERR Client names cannot contain spaces, newlines or special characters.",
            ),
            "setinfo" => set_info(client, args, out),
            "info" => encode::bulk(out, line_of(client, "").as_bytes()),
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
            "kill" => kill(args, out),
            "unblock" => unblock(args, out),
            _ => {
                let text = format!(
                    "ERR unknown subcommand '{}'. Try CLIENT HELP.",
                    sub.to_ascii_uppercase()
                );
                encode::error(out, text.as_bytes());
            }
        }
    }

    /// One line of CLIENT LIST for each client of this worker, with its id.
    pub fn client_lines(&self, address: impl Fn(ClientId) -> String) -> Vec<(u64, String)> {
        let clients = self.clients.iter().filter(|(_, client)| client.peer.is_none());
        let line = |(key, client): (usize, &Client)| {
            (client.number, line_of(client, &address(ClientId(key as u32))))
        };
        clients.map(line).collect()
    }
}

fn is_printable(text: &[u8]) -> bool {
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

/// No connection is killed through another one: none is found, whatever is asked for.
fn kill(args: &Args<'_>, out: &mut Vec<u8>) {
    if args.len() == 3 {
        return encode::error(out, b"ERR No such client");
    }
    let mut i = 2;
    while i < args.len() {
        let is = |word: &str| args[i].eq_ignore_ascii_case(word.as_bytes());
        let Some(value) = args.get(i + 1) else { return encode::error(out, b"ERR syntax error") };
        if is("id") && number(value).is_none_or(|id| id == 0) {
            return encode::error(out, b"ERR client-id should be greater than 0");
        }
        if let Some(text) = type_of(value).err().filter(|_| is("type")) {
            return encode::error(out, text.as_bytes());
        }
        let known = ["id", "type", "addr", "laddr", "user", "skipme"].iter().any(|word| is(word));
        if !known {
            return encode::error(out, b"ERR syntax error");
        }
        i += 2;
    }
    encode::int(out, 0);
}

/// No wait is ended through another connection: nobody is found who waits.
fn unblock(args: &Args<'_>, out: &mut Vec<u8>) {
    let is = |word: &&str| args[3].eq_ignore_ascii_case(word.as_bytes());
    if args.len() > 4 || (args.len() == 4 && !["timeout", "error"].iter().any(is)) {
        let text = b"ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR";
        return encode::error(out, text);
    }
    match number(&args[2]) {
        Some(_) => encode::int(out, 0),
        None => encode::error(out, b"ERR value is not an integer or out of range"),
    }
}

fn line_of(client: &Client, address: &str) -> String {
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
        "id={} addr={address} name={} flags={flags} db=0 sub=0 psub=0 multi={} resp={} lib-name={} \
         lib-ver={}\n",
        client.number,
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
