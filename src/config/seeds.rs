//! The seed list: `host:port:rack:dc:tokens [name]`, read from the right, so that an IPv6 address
//! may stand first.

use std::str::FromStr;

use serde_json::{Value as Json, json};

use super::addr::{HostPort, check_host, parse_port, split_name};
use super::setting::{Bad, Text, text_settings};
use super::tokens::TokenList;
use crate::token::DynToken;

text_settings!(Seed);

/// A peer that the configuration names.
#[derive(Debug, Clone, PartialEq)]
pub struct Seed {
    /// Where its peer port is. The host is not resolved yet.
    pub address: HostPort,
    /// Its rack.
    pub rack: String,
    /// Its datacenter.
    pub datacenter: String,
    /// Its tokens, in the order of the text.
    pub tokens: Vec<DynToken>,
    /// Its name, when one is given; else peers are known by `host:port`.
    pub name: Option<String>,
    /// The entry as written.
    pub(super) text: String,
    /// Token texts that do not mean their decimal value.
    pub(super) odd_texts: Vec<String>,
}

/// The five fields, from the right: tokens, datacenter, rack, port; the rest is the host.
const FIELDS: usize = 5;

/// A text that is no entry of a seed list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` {what}; expected host:port:rack:dc:tokens [name]")]
pub struct SeedError {
    /// The text.
    pub text: String,
    /// What is wrong with it.
    pub what: String,
}

/// One entry as seed providers give it; a name is accepted too.
impl FromStr for Seed {
    type Err = SeedError;

    fn from_str(text: &str) -> Result<Seed, SeedError> {
        Seed::parse(text).map_err(|bad| SeedError { text: text.to_owned(), what: bad.what })
    }
}

impl Text for Seed {
    fn accepted() -> String {
        "host:port:rack:dc:tokens [name]".into()
    }

    fn parse(text: &str) -> Result<Seed, Bad> {
        let (entry, name) = split_name(text);
        let fields: Vec<&str> = entry.rsplitn(FIELDS, ':').collect();
        let [tokens, datacenter, rack, port, host] = fields[..] else {
            let count = fields.len();
            return Err(Bad::new(format!("has {count} of the {FIELDS} fields")));
        };
        check_host(host)?;
        let at = host.len() + 1;
        let port_number = parse_port(port, at..at + port.len(), 1)?;
        let at = at + port.len() + 1;
        named(rack, "rack", at)?;
        let at = at + rack.len() + 1;
        named(datacenter, "datacenter", at)?;
        let at = at + datacenter.len() + 1;
        if tokens.is_empty() {
            return Err(Bad::new("has no token").within(at - 1..at));
        }
        let list = TokenList::read(tokens).map_err(|(reason, range)| {
            let range = at + range.start..at + range.end;
            Bad::new(format!("has wrong tokens: {reason}")).within(range)
        })?;
        Ok(Seed {
            address: HostPort::new(host, port_number),
            rack: rack.to_owned(),
            datacenter: datacenter.to_owned(),
            tokens: list.tokens,
            name: name.map(str::to_owned),
            text: text.to_owned(),
            odd_texts: list.odd_texts,
        })
    }

    fn schema() -> Json {
        json!({"type": "string", "pattern": ":[0-9]+:[^:]+:[^:]+:[^:]+$"})
    }
}

fn named(field: &str, what: &str, at: usize) -> Result<(), Bad> {
    match field.is_empty() {
        true => Err(Bad::new(format!("has no {what}")).within(at - 1..at + 1)),
        false => Ok(()),
    }
}
