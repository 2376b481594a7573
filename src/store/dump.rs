//! DUMP and RESTORE, in Redis's own format, so that a key can be copied between nodes whatever
//! store they stand on.
//!
//! A payload is a type byte, the value, two bytes of format version (little endian) and a CRC-64.
//! Values are written in the plain forms every Redis since 5.0 reads; the compact forms of 7.0 are
//! read too (`dump_read`). Source: `rdb.c` and `cluster.c` of redis 7.0.

use crate::proto::args::Args;
use crate::proto::outbuf::OutBuf;

use super::command::{Command, Effect::*, Keys::*, row};
use super::db::{Db, Expiry};
use super::error::{CommandError, CommandResult};
use super::format::parse_i64;
use super::hash_value::Hash;
use super::value::Value;
use super::{arg, crc64, dump_read, keys, reply};

pub(super) const COMMANDS: &[Command] =
    &[row("dump", 2, One, Read, dump), row("restore", -4, One, Grow, restore)];

/// The format version written: the first one with binary scores that Redis 5 reads.
const VERSION: u16 = 9;

/// The format version of hashes whose fields expire (Redis 7.4), and the newest one read.
const VERSION_FIELD_EXPIRY: u16 = 12;

/// Bytes after the value: version and checksum.
const TRAILER: usize = 10;

/// Type bytes of the format.
pub(super) mod kind {
    pub(in crate::store) const STRING: u8 = 0;
    pub(in crate::store) const LIST: u8 = 1;
    pub(in crate::store) const SET: u8 = 2;
    pub(in crate::store) const HASH: u8 = 4;
    pub(in crate::store) const ZSET_2: u8 = 5;
    pub(in crate::store) const SET_INTSET: u8 = 11;
    pub(in crate::store) const HASH_LISTPACK: u8 = 16;
    pub(in crate::store) const ZSET_LISTPACK: u8 = 17;
    pub(in crate::store) const LIST_QUICKLIST_2: u8 = 18;
    pub(in crate::store) const SET_LISTPACK: u8 = 20;
    pub(in crate::store) const HASH_METADATA: u8 = 24;
}

fn dump(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    match db.record(&args[1]) {
        Some(record) => reply::bulk(out, &payload(&record.value)),
        None => reply::nil(out),
    }
    Ok(())
}

/// The payload of a value.
fn payload(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    let mut version = VERSION;
    match value {
        Value::Str(text) => {
            out.push(kind::STRING);
            push_string(&mut out, text.as_slice());
        }
        Value::List(list) => {
            out.push(kind::LIST);
            push_len(&mut out, list.len() as u64);
            list.iter().for_each(|item| push_string(&mut out, item.as_slice()));
        }
        Value::Set(set) => {
            out.push(kind::SET);
            push_len(&mut out, set.len() as u64);
            set.iter().for_each(|member| push_string(&mut out, member.as_slice()));
        }
        Value::ZSet(zset) => {
            out.push(kind::ZSET_2);
            push_len(&mut out, zset.len() as u64);
            for entry in zset.iter() {
                push_string(&mut out, entry.key.as_slice());
                out.extend_from_slice(&entry.value.to_le_bytes());
            }
        }
        Value::Hash(hash) if hash.next_expiry_ms() != 0 => {
            version = VERSION_FIELD_EXPIRY;
            push_volatile_hash(&mut out, hash);
        }
        Value::Hash(hash) => {
            out.push(kind::HASH);
            push_len(&mut out, hash.len() as u64);
            for entry in hash.iter() {
                push_string(&mut out, entry.key.as_slice());
                push_string(&mut out, entry.value.value.as_slice());
            }
        }
    }
    out.extend_from_slice(&version.to_le_bytes());
    let checksum = crc64::checksum(&out);
    out.extend_from_slice(&checksum.to_le_bytes());
    out
}

/// A hash with the earliest expiry once, and each field's as a distance from it (0 is never).
fn push_volatile_hash(out: &mut Vec<u8>, hash: &Hash) {
    let times = hash.iter().map(|entry| entry.value.expire_at_ms);
    let first = times.filter(|&at| at != 0).min().unwrap_or(0);
    out.push(kind::HASH_METADATA);
    out.extend_from_slice(&first.to_le_bytes());
    push_len(out, hash.len() as u64);
    for entry in hash.iter() {
        let at = entry.value.expire_at_ms;
        push_len(out, if at == 0 { 0 } else { at - first + 1 });
        push_string(out, entry.key.as_slice());
        push_string(out, entry.value.value.as_slice());
    }
}

fn push_string(out: &mut Vec<u8>, text: &[u8]) {
    push_len(out, text.len() as u64);
    out.extend_from_slice(text);
}

/// A length in 1, 2, 5 or 9 bytes, big endian.
fn push_len(out: &mut Vec<u8>, len: u64) {
    match len {
        0..0x40 => out.push(len as u8),
        0x40..0x4000 => out.extend_from_slice(&(0x4000 | len as u16).to_be_bytes()),
        0x4000..=0xffff_ffff => {
            out.push(0x80);
            out.extend_from_slice(&(len as u32).to_be_bytes());
        }
        _ => {
            out.push(0x81);
            out.extend_from_slice(&len.to_be_bytes());
        }
    }
}

/// Options of RESTORE.
#[derive(Default)]
struct Options {
    replace: bool,
    absolute: bool,
}

impl Options {
    fn parse(args: &Args<'_>) -> Result<Options, CommandError> {
        let mut options = Options::default();
        let (mut idle, mut frequency) = (false, false);
        let mut at = 4;
        while at < args.len() {
            let (word, value) = (&args[at], args.get(at + 1));
            if arg::is(word, "replace") {
                options.replace = true;
            } else if arg::is(word, "absttl") {
                options.absolute = true;
            } else if let (true, Some(value)) = (arg::is(word, "idletime") && !frequency, value) {
                // Accepted and not kept: a key that arrives was used now.
                match parse_i64(value).ok_or(CommandError::NotInteger)? {
                    0.. => idle = true,
                    _ => return Err(CommandError::RestoreIdle),
                }
                at += 1;
            } else if let (true, Some(value)) = (arg::is(word, "freq") && !idle, value) {
                match parse_i64(value).ok_or(CommandError::NotInteger)? {
                    0..=255 => frequency = true,
                    _ => return Err(CommandError::RestoreFreq),
                }
                at += 1;
            } else {
                return Err(CommandError::Syntax);
            }
            at += 1;
        }
        Ok(options)
    }
}

fn restore(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let options = Options::parse(args)?;
    let (key, payload) = (&args[1], &args[3]);
    if !options.replace && db.exists(key) {
        return Err(CommandError::BusyKey);
    }
    let ttl = arg::int(args, 2)?;
    let ttl = u64::try_from(ttl).map_err(|_| CommandError::RestoreTtl)?;
    let body = checked(payload).ok_or(CommandError::DumpChecksum)?;
    let value = dump_read::value(body, db.string_bytes_max()).ok_or(CommandError::DumpFormat)?;
    let base = if options.absolute { 0 } else { db.now_ms() };
    if db.put(key, value) && ttl != 0 {
        keys::expire(db, key, Expiry::At(base.saturating_add(ttl)));
    }
    reply::ok(out);
    Ok(())
}

/// The part of a payload before its trailer, when version and checksum are right.
fn checked(payload: &[u8]) -> Option<&[u8]> {
    let (body, trailer) = payload.split_at_checked(payload.len().checked_sub(TRAILER)?)?;
    let (version, checksum) = trailer.split_first_chunk::<2>()?;
    let signed = &payload[..body.len() + 2];
    let given = u64::from_le_bytes(checksum.try_into().ok()?);
    let readable = u16::from_le_bytes(*version) <= VERSION_FIELD_EXPIRY;
    // A checksum of 0 means that none was made.
    (readable && (given == 0 || given == crc64::checksum(signed))).then_some(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::blob::Blob;

    /// What redis-server 7.0.15 answers to DUMP of a string, a list of two integers and two
    /// strings, a set of integers, a sorted set, a hash, and a compressed hash.
    const RECORDED: &[(&[u8], &str)] = &[
        (b"\x00\x05hello\n\x00cr\xdfve4 \n", "string"),
        (b"\x00\xc190\n\x00\x9d\x94\xea'\x93\xfc\x08\xb9", "string"),
        (
            b"\x12\x01\x02\x14\x14\x00\x00\x00\x04\x00\x81a\x02\x81b\x02\x0c\x01\xf2\x9f\x86\x01\
              \x04\xff\n\x00\xf3IS\xa9/\xe6\xec\xf4",
            "list",
        ),
        (
            b"\x0b\x0e\x02\x00\x00\x00\x03\x00\x00\x00\x01\x00\x02\x00,\x01\n\x00\xe5\x10\xb2\x8e\
              {\x95)\xaa",
            "set",
        ),
        (
            b"\x11\x14\x14\x00\x00\x00\x04\x00\x81a\x02\x831.5\x04\x81b\x02\x02\x01\xff\n\x00\xfa\
              \x02\xb4%\xaf\x18\x87c",
            "zset",
        ),
        (
            b"\x10\x12\x12\x00\x00\x00\x04\x00\x81f\x02\x81v\x02\x81g\x02M\x01\xff\n\x00\xb4_\xca\
              GM\xaf\x11\xfd",
            "hash",
        ),
        (b"\x04\x01\x01f\xc3\t@F\x01vv\xe09\x00\x01vv\n\x00\xf2\x1b\xfa\n\x02\xf2t\x9c", "hash"),
    ];

    fn read(payload: &[u8]) -> Option<Value> {
        dump_read::value(checked(payload)?, 1 << 20)
    }

    #[test]
    fn recorded_payloads_are_read() {
        for (payload, name) in RECORDED {
            let value = read(payload).unwrap_or_else(|| panic!("{name}"));
            assert_eq!(value.type_name(), *name);
            let again = read(&super::payload(&value)).expect("our own payload");
            assert_eq!(again.type_name(), *name);
        }
        assert!(
            matches!(read(RECORDED[1].0), Some(Value::Str(text)) if text == Blob::new(b"12345"))
        );
    }

    #[test]
    fn cut_or_changed_payloads_are_refused_and_harm_nobody() {
        for (payload, _) in RECORDED {
            for end in 0..payload.len() {
                assert!(read(&payload[..end]).is_none());
            }
            let body = &payload[..payload.len() - TRAILER];
            for at in 0..body.len() {
                for bit in 0..8 {
                    let mut changed = payload.to_vec();
                    changed[at] ^= 1 << bit;
                    assert!(checked(&changed).is_none());
                    // Even when the checksum is right the reader must survive.
                    let _ = dump_read::value(&changed[..body.len()], 1 << 20);
                }
            }
        }
    }

    #[test]
    fn field_expiry_survives() {
        let mut hash = Hash::default();
        for (field, at) in [("a", 0), ("b", 5_000), ("c", 4_000)] {
            hash.set(field.as_bytes(), b"v");
            hash.set_expiry(field.as_bytes(), at);
        }
        let Some(Value::Hash(again)) = read(&payload(&Value::Hash(Box::new(hash)))) else {
            panic!("no hash");
        };
        let times = ["a", "b", "c"].map(|f| again.get(f.as_bytes()).unwrap().expire_at_ms);
        assert_eq!((times, again.next_expiry_ms()), ([0, 5_000, 4_000], 4_000));
    }
}
