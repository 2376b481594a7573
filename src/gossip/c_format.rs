//! Membership as nodes of the reference write it: the body of a type 7 frame.
//!
//! Records `<dc>$<rack>$<token>,<timestamp>,<state>,<address>` are separated by `|`. The token is
//! the first 32-bit word of the first token, the address has no port. A C node dies from a record
//! of any other form, and its connection from an empty body, so the writer takes only what it
//! can write exactly; the reader takes everything and leaves out what it cannot read.
//!
//! Source: `Netflix/dynomite` `src/dyn_gossip.c`, `src/dyn_dnode_msg.c` (`dmsg_parse`).

use std::net::Ipv4Addr;

use super::message::NAME_BYTES_MAX;
use crate::proto::dnode::{DATA_GOSSIP, MsgType, VERSION_C, put_header};

/// Longest body sent: a C node reads a frame only when it fits one buffer of 16 KiB.
pub const C_BODY_MAX: usize = 15_800;

/// The timestamp C nodes give to seeds they never heard of.
pub const C_NEVER_HEARD: u64 = 1_010_101;

/// Characters that have a meaning in the format.
const SEPARATORS: [char; 3] = ['$', ',', '|'];

/// States that C nodes may be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CState {
    /// Serving.
    Normal,
    /// Starting.
    Joining,
    /// Not answering.
    Down,
}

impl CState {
    /// The number on the wire.
    pub fn code(self) -> u32 {
        match self {
            CState::Normal => 4,
            CState::Joining => 7,
            CState::Down => 8,
        }
    }
}

/// One record to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CEntry {
    /// Datacenter.
    pub dc: String,
    /// Rack.
    pub rack: String,
    /// Low word of the first token.
    pub token: u32,
    /// Unix time in seconds.
    pub timestamp: u64,
    /// State.
    pub state: CState,
    /// Address, without its port.
    pub ip: Ipv4Addr,
}

impl CEntry {
    /// True when the names can be written.
    pub fn is_writable(&self) -> bool {
        let good = |name: &str| !name.is_empty() && !name.contains(SEPARATORS);
        good(&self.dc) && good(&self.rack) && self.dc.is_ascii() && self.rack.is_ascii()
    }
}

/// The bodies that tell `entries`, none longer than [`C_BODY_MAX`] and none empty. Entries that
/// cannot be written are left out.
pub fn write_bodies(entries: &[CEntry]) -> Vec<Vec<u8>> {
    let mut bodies: Vec<Vec<u8>> = Vec::new();
    for entry in entries.iter().filter(|e| e.is_writable()) {
        let text = format!(
            "{}${}${},{},{},{}",
            entry.dc,
            entry.rack,
            entry.token,
            entry.timestamp,
            entry.state.code(),
            entry.ip
        );
        match bodies.last_mut() {
            Some(body) if body.len() + 1 + text.len() <= C_BODY_MAX => {
                body.push(b'|');
                body.extend_from_slice(text.as_bytes());
            }
            Some(_) | None => bodies.push(text.into_bytes()),
        }
    }
    bodies
}

/// Appends a whole frame, to be written in one piece on a plaintext connection. Ids of these
/// frames are counted apart, from 0.
pub fn put_c_gossip_frame(out: &mut Vec<u8>, id: u64, same_dc: bool, body: &[u8]) {
    debug_assert!(!body.is_empty(), "an empty body kills a C node's connection");
    let (kind, plen) = (MsgType::GossipSyn.code(), body.len() as u64);
    put_header(out, id, kind, 0, VERSION_C, same_dc, DATA_GOSSIP, plen);
    out.extend_from_slice(body);
}

/// One record as read. Nothing in it is checked beyond its form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CRecord {
    /// Datacenter.
    pub dc: String,
    /// Rack.
    pub rack: String,
    /// Low word of the first token.
    pub token: u32,
    /// Unix time in seconds, by the holder's clock.
    pub timestamp: u64,
    /// State, as a number.
    pub state: u32,
    /// Host name or IPv4 address.
    pub host: String,
}

/// Reads a body; what is no record is `None`. An empty body has no records.
pub fn read_body(body: &[u8]) -> impl Iterator<Item = Option<CRecord>> {
    let records = body.split(|b| *b == b'|').filter(|r| !r.is_empty());
    records.map(|record| std::str::from_utf8(record).ok().and_then(read_record))
}

/// Reads a record from the right, as the reference does.
fn read_record(text: &str) -> Option<CRecord> {
    let mut parts = text.rsplitn(4, ',');
    let (host, state, timestamp) = (parts.next()?, parts.next()?, parts.next()?);
    let mut names = parts.next()?.rsplitn(3, '$');
    let (token, rack, dc) = (names.next()?, names.next()?, names.next()?);
    let fits = |name: &&str| !name.is_empty() && name.len() <= NAME_BYTES_MAX;
    if ![host, rack, dc].iter().all(fits) || host.contains(SEPARATORS) {
        return None;
    }
    Some(CRecord {
        dc: dc.to_owned(),
        rack: rack.to_owned(),
        token: token.parse().ok()?,
        timestamp: timestamp.parse().ok()?,
        state: state.parse().ok()?,
        host: host.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(rack: &str, token: u32) -> CEntry {
        CEntry {
            dc: "dc1".into(),
            rack: rack.into(),
            token,
            timestamp: 1_795_982_735,
            state: CState::Normal,
            ip: Ipv4Addr::new(127, 0, 9, 1),
        }
    }

    #[test]
    fn recorded_bodies_are_read_and_written_byte_for_byte() {
        let vectors = crate::proto::dnode::tests::vectors();
        let mut records = 0;
        for frame in vectors["frames"].as_array().unwrap() {
            let (name, text) = (&frame["name"], &frame["payload_ascii"]);
            if frame["header"]["type"] != 7 {
                continue;
            }
            let body = text.as_str().unwrap().as_bytes();
            let read: Vec<CRecord> = read_body(body).map(|r| r.expect("a record")).collect();
            records += read.len();
            let entries = read.into_iter().map(|r| CEntry {
                dc: r.dc,
                rack: r.rack,
                token: r.token,
                timestamp: r.timestamp,
                state: match r.state {
                    4 => CState::Normal,
                    7 => CState::Joining,
                    8 => CState::Down,
                    other => panic!("{name}: state {other}"),
                },
                ip: r.host.parse().unwrap(),
            });
            let bodies = write_bodies(&entries.collect::<Vec<_>>());
            let mut out = Vec::new();
            for written in &bodies {
                let header = &frame["header"];
                let same_dc = header["same_dc"] == 1;
                put_c_gossip_frame(&mut out, header["msg_id"].as_u64().unwrap(), same_dc, written);
            }
            if !body.is_empty() {
                let hex = frame["hex"].as_str().unwrap();
                assert_eq!(out, crate::proto::dnode::tests::unhex(hex), "{name}");
            }
        }
        assert_eq!(records, 1 + 8 + 8 + 2);
    }

    #[test]
    fn large_tables_are_split_and_never_empty() {
        assert!(write_bodies(&[]).is_empty());
        let table: Vec<CEntry> = (0..1000).map(|i| entry("r1", i)).collect();
        let bodies = write_bodies(&table);
        assert!(bodies.len() > 1);
        let read: Vec<u32> = bodies
            .iter()
            .inspect(|body| assert!((1..=C_BODY_MAX).contains(&body.len())))
            .flat_map(|body| read_body(body).map(|r| r.unwrap().token))
            .collect();
        assert_eq!(read, (0..1000).collect::<Vec<_>>());
    }

    #[test]
    fn names_that_would_kill_a_c_node_are_left_out() {
        for rack in ["", "r$1", "r,1", "r|1", "r\u{e9}"] {
            assert!(write_bodies(&[entry(rack, 1)]).is_empty(), "{rack:?}");
        }
        assert_eq!(write_bodies(&[entry("", 1), entry("r1", 2)]).len(), 1);
    }

    #[test]
    fn malformed_records_are_left_out_one_by_one() {
        let body = b"nonsense|dc1$r1$7,5,4,10.0.0.1||dc1$r1$x,5,4,10.0.0.1|dc1$r1$7,5,4,|\xff";
        let read: Vec<_> = read_body(body).collect();
        assert_eq!(read.iter().flatten().count(), 1);
        assert_eq!(read.len(), 5);
        assert_eq!(read_body(b"").count(), 0);
        let odd = read_body(b"a$b$c$1,2,99,h").next().unwrap().unwrap();
        assert_eq!((odd.dc.as_str(), odd.rack.as_str(), odd.state), ("a$b", "c", 99));
    }
}
