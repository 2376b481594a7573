//! What torc nodes say to each other about membership, as protobuf.
//!
//! One message type serves the whole exchange: a `Syn` shows digests, the `Ack` to it shows the
//! receiver's, gives what is newer there and asks for what is newer here, a `Push` gives what was
//! asked for. Sizes are bounded on both ways, and fields of later versions are skipped.

use std::collections::BTreeMap;

use prost::Message;

use super::identity::{Addr, Slot, SlotId};
use super::record::{Claim, Kind, Record};
use crate::token::{DynToken, Sign};

/// Longest message that is read, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 256 * 1024;

/// Most entries of one list that are read.
pub(super) const ENTRIES_MAX: usize = 4096;

/// Most tokens of one node.
pub const TOKENS_MAX: usize = 4096;

/// Longest name of a datacenter, rack, host or node, in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// Most attributes of one record.
pub const ATTRIBUTES_MAX: usize = 16;

/// Unit in which the age of a sign of life travels.
const AGE_UNIT_MS: u64 = 10;

/// The age of what was never heard of.
const AGE_NEVER: u32 = u32::MAX;

/// The steps of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(super) enum Step {
    /// Nothing this version understands.
    Unknown = 0,
    /// Shows digests and wants an `Ack`.
    Syn = 1,
    /// Answers a `Syn`.
    Ack = 2,
    /// Gives records; answered only when it asks for some.
    Push = 3,
}

/// One message.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Gossip {
    #[prost(enumeration = "Step", tag = "1")]
    pub step: i32,
    /// The sender's slot.
    #[prost(fixed64, tag = "2")]
    pub from: u64,
    /// The sender's advertised host: where the answer goes.
    #[prost(string, tag = "3")]
    pub host: String,
    /// The sender's advertised port.
    #[prost(uint32, tag = "4")]
    pub port: u32,
    /// How many slots the sender could tell of.
    #[prost(uint32, tag = "5")]
    pub count: u32,
    #[prost(message, repeated, tag = "6")]
    pub digests: Vec<Digest>,
    /// Fresh records, to be passed on.
    #[prost(message, repeated, tag = "7")]
    pub rumors: Vec<RecordMsg>,
    /// Records the receiver lacked or asked for.
    #[prost(message, repeated, tag = "8")]
    pub records: Vec<RecordMsg>,
    /// Slots whose records the sender asks for.
    #[prost(fixed64, repeated, tag = "9")]
    pub wants: Vec<u64>,
}

/// What the sender holds of one slot.
#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Digest {
    #[prost(fixed64, tag = "1")]
    pub slot: u64,
    #[prost(uint64, tag = "2")]
    pub generation: u64,
    #[prost(uint64, tag = "3")]
    pub version: u64,
    /// The holder's newest sign of life known to the sender: milliseconds since it started.
    #[prost(uint64, tag = "4")]
    pub heartbeat: u64,
    /// For how long the sender knows of that heartbeat, in units of 10 ms.
    #[prost(uint32, tag = "5")]
    pub age: u32,
}

/// A record on the wire.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RecordMsg {
    #[prost(string, tag = "1")]
    pub dc: String,
    #[prost(string, tag = "2")]
    pub rack: String,
    /// A sign byte and the magnitude's words, least significant first, little endian.
    #[prost(bytes = "vec", repeated, tag = "3")]
    pub tokens: Vec<Vec<u8>>,
    #[prost(string, tag = "4")]
    pub host: String,
    #[prost(uint32, tag = "5")]
    pub port: u32,
    #[prost(string, tag = "6")]
    pub name: String,
    #[prost(uint32, tag = "7")]
    pub claim: u32,
    #[prost(uint64, tag = "8")]
    pub generation: u64,
    #[prost(uint64, tag = "9")]
    pub version: u64,
    #[prost(bool, tag = "10")]
    pub torc: bool,
    #[prost(uint64, tag = "11")]
    pub gone_at_ms: u64,
    #[prost(btree_map = "string, string", tag = "12")]
    pub attributes: BTreeMap<String, String>,
    #[prost(uint64, tag = "13")]
    pub heartbeat: u64,
    #[prost(uint32, tag = "14")]
    pub age: u32,
}

/// A sign of life in relative time, so that no two clocks need to agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Heartbeat {
    /// Milliseconds since the holder started, when it was alive; 0 is none.
    pub beat: u64,
    /// How long ago that was, in milliseconds; `None` when nobody ever heard it.
    pub age_ms: Option<u64>,
}

impl Heartbeat {
    pub(super) fn age_units(self) -> u32 {
        match self.age_ms {
            Some(ms) => u32::try_from(ms / AGE_UNIT_MS).unwrap_or(AGE_NEVER),
            None => AGE_NEVER,
        }
    }

    pub(super) fn from_wire(beat: u64, age: u32) -> Heartbeat {
        let known = beat > 0 && age != AGE_NEVER;
        Heartbeat { beat, age_ms: known.then_some(u64::from(age) * AGE_UNIT_MS) }
    }
}

impl Gossip {
    /// Reads a message; `None` when it is malformed or beyond the limits.
    pub(super) fn read(bytes: &[u8]) -> Option<Gossip> {
        if bytes.len() > MESSAGE_BYTES_MAX {
            return None;
        }
        let message = Gossip::decode(bytes).ok()?;
        let lists = [
            message.digests.len(),
            message.rumors.len(),
            message.records.len(),
            message.wants.len(),
        ];
        let bounded = lists.iter().all(|len| *len <= ENTRIES_MAX);
        (bounded && message.sender().is_some()).then_some(message)
    }

    /// Where the sender says it listens.
    pub(super) fn sender(&self) -> Option<Addr> {
        read_addr(&self.host, self.port)
    }
}

impl Digest {
    pub(super) fn new(slot: SlotId, record: &Record, heartbeat: Heartbeat) -> Digest {
        Digest {
            slot: slot.0,
            generation: record.generation,
            version: record.version,
            heartbeat: heartbeat.beat,
            age: heartbeat.age_units(),
        }
    }
}

impl RecordMsg {
    pub(super) fn new(record: &Record, heartbeat: Heartbeat) -> RecordMsg {
        RecordMsg {
            dc: record.slot.dc.clone(),
            rack: record.slot.rack.clone(),
            tokens: record.tokens.iter().map(write_token).collect(),
            host: record.addr.host.clone(),
            port: record.addr.port.into(),
            name: record.name.clone(),
            claim: record.claim.code(),
            generation: record.generation,
            version: record.version,
            torc: record.kind == Kind::Torc,
            gone_at_ms: record.gone_at_ms,
            attributes: record.attributes.clone(),
            heartbeat: heartbeat.beat,
            age: heartbeat.age_units(),
        }
    }

    /// The record and the sign of life that came with it; `None` when it is malformed or
    /// beyond the limits.
    pub(super) fn read(self) -> Option<(Record, Heartbeat)> {
        let heartbeat = Heartbeat::from_wire(self.heartbeat, self.age);
        let names = [&self.dc, &self.rack, &self.name];
        let named = names.iter().all(|n| !n.is_empty() && n.len() <= NAME_BYTES_MAX);
        let attributes = self.attributes.len() <= ATTRIBUTES_MAX
            && self.attributes.iter().all(|(k, v)| attribute_fits(k, v));
        if !named || !attributes || self.tokens.len() > TOKENS_MAX {
            return None;
        }
        let tokens = self.tokens.iter().map(|t| read_token(t));
        let tokens: Vec<DynToken> = tokens.collect::<Option<_>>()?;
        let record = Record {
            slot: Slot { dc: self.dc, rack: self.rack, token: *tokens.first()? },
            tokens,
            addr: read_addr(&self.host, self.port)?,
            name: self.name,
            kind: if self.torc { Kind::Torc } else { Kind::C },
            claim: Claim::from_code(self.claim),
            generation: self.generation,
            version: self.version,
            gone_at_ms: self.gone_at_ms,
            attributes: self.attributes,
        };
        (record.kind != Kind::Torc || record.generation > 0).then_some((record, heartbeat))
    }
}

/// True when an attribute is short enough to travel.
pub(super) fn attribute_fits(key: &str, value: &str) -> bool {
    !key.is_empty() && key.len() <= NAME_BYTES_MAX && value.len() <= NAME_BYTES_MAX
}

fn read_addr(host: &str, port: u32) -> Option<Addr> {
    let port = u16::try_from(port).ok().filter(|port| *port > 0)?;
    let fits = !host.is_empty() && host.len() <= NAME_BYTES_MAX;
    fits.then(|| Addr::new(host, port))
}

fn write_token(token: &DynToken) -> Vec<u8> {
    let sign = match token.sign() {
        Sign::Negative => 0,
        Sign::Zero => 1,
        Sign::Positive => 2,
    };
    let mut bytes = vec![sign];
    for word in token.words() {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes
}

fn read_token(bytes: &[u8]) -> Option<DynToken> {
    let (sign, words) = bytes.split_first()?;
    let sign = match sign {
        0 => Sign::Negative,
        1 => Sign::Zero,
        2 => Sign::Positive,
        _ => return None,
    };
    let (words, rest) = words.as_chunks::<4>();
    if !rest.is_empty() {
        return None;
    }
    let words: Vec<u32> = words.iter().map(|w| u32::from_le_bytes(*w)).collect();
    DynToken::from_words(sign, &words)
}

#[cfg(test)]
mod tests;
