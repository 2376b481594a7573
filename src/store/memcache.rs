//! The store as a memcached: the classic commands of its text protocol, with flags and cas ids.
//!
//! memcached 1.6 is the reference (`proto_text.c`, `memcached.c`). Values are the same strings the
//! Redis side has; flags lie beside them, and a cas id is the number of the key's last change. A
//! key that holds no string is as good as absent. [`meta`] has the meta commands.

mod meta;
mod meta_flags;

use crate::proto::args::Args;
use crate::proto::outbuf::OutBuf;

use super::MemoryStore;
use super::blob::Blob;
use super::db::{Db, Edit, Expiry};
use super::error::CommandError;
use super::marks::Marks;
use super::settings::Eviction;
use super::shard::Record;
use super::usage::SHARDS;
use super::value::Value;
use crate::stamp::Stamping;

/// Up to this many seconds a time of expiry counts from now; above it is Unix time.
const RELATIVE_MAX_S: i64 = 60 * 60 * 24 * 30;

/// Longest key.
const KEY_BYTES_MAX: usize = 250;

const STORED: &str = "STORED";
const NOT_STORED: &str = "NOT_STORED";
const NOT_FOUND: &str = "NOT_FOUND";
const ERROR: &str = "ERROR";
const BAD_FORMAT: &str = "CLIENT_ERROR bad command line format";
const BAD_DELTA: &str = "CLIENT_ERROR invalid numeric delta argument";
const BAD_EXPTIME: &str = "CLIENT_ERROR invalid exptime argument";
const NOT_NUMERIC: &str = "CLIENT_ERROR cannot increment or decrement non-numeric value";
const TOO_LARGE: &str = "SERVER_ERROR object too large for cache";
const OUT_OF_MEMORY: &str = "SERVER_ERROR out of memory storing object";
const NO_DELAY: &str = "SERVER_ERROR a delayed flush_all is not supported by the embedded store";

/// When a request is carried out: milliseconds since the epoch, and among other writes.
struct Now<'a> {
    ms: u64,
    stamping: &'a mut Stamping,
}

/// A reply line, or the error line it is refused with.
type Line = Result<&'static str, &'static str>;

impl MemoryStore {
    /// Runs one memcache request and appends its reply, whatever the client said about wanting
    /// one. `args` are the words of the line, `data` is the block after it, without its line end.
    /// `now_ms` is wall-clock time in milliseconds since the epoch.
    pub fn execute_memcache(
        &self,
        args: &Args<'_>,
        data: Option<&[u8]>,
        now_ms: u64,
        stamping: &mut Stamping,
        out: &mut OutBuf,
    ) {
        let now = &mut Now { ms: now_ms, stamping };
        let line = match (args.get(0).unwrap_or_default(), data) {
            (b"get", None) => self.get(args.tail(1), false, now, out),
            (b"gets", None) => self.get(args.tail(1), true, now, out),
            (b"gat", None) => self.get_and_touch(args, false, now, out),
            (b"gats", None) => self.get_and_touch(args, true, now, out),
            (b"mg" | b"ms" | b"md" | b"ma" | b"me", _) => {
                return self.meta(args, data, now, out);
            }
            (verb, Some(data)) => self.store_item(verb, args, data, now),
            (b"incr", None) => return self.count(args, true, now, out),
            (b"decr", None) => return self.count(args, false, now, out),
            (b"delete", None) => self.delete(args, now),
            (b"touch", None) => self.touch(args, now),
            (b"flush_all", None) => self.flush_all(args, now),
            (b"stats", None) => self.stats(args.get(1).unwrap_or_default(), out),
            _ => Err(ERROR),
        };
        put_line(out, line.unwrap_or_else(|error| error));
    }

    fn get(&self, keys: Args<'_>, with_cas: bool, now: &mut Now<'_>, out: &mut OutBuf) -> Line {
        if keys.is_empty() {
            return Err(ERROR);
        }
        if keys.iter().any(|key| key.len() > KEY_BYTES_MAX) {
            return Err(BAD_FORMAT);
        }
        for key in keys.iter() {
            put_value(&mut self.open_key(key, now.ms, now.stamping), key, with_cas, out);
        }
        Ok("END")
    }

    fn get_and_touch(
        &self,
        args: &Args<'_>,
        with_cas: bool,
        now: &mut Now<'_>,
        out: &mut OutBuf,
    ) -> Line {
        if args.len() < 2 {
            return Err(ERROR);
        }
        let expiry = expiry(args.get(1), now.ms)?;
        if args.tail(2).iter().any(|key| key.len() > KEY_BYTES_MAX) {
            return Err(BAD_FORMAT);
        }
        for key in args.tail(2).iter() {
            let mut db = self.open_key(key, now.ms, now.stamping);
            put_value(&mut db, key, with_cas, out);
            if item(&mut db, key).is_some() {
                touch_item(&mut db, key, expiry);
            }
        }
        Ok("END")
    }

    /// SET and its family.
    fn store_item(&self, verb: &[u8], args: &Args<'_>, data: &[u8], now: &mut Now<'_>) -> Line {
        let key = args.get(1).filter(|key| key.len() <= KEY_BYTES_MAX).ok_or(BAD_FORMAT)?;
        let flags = args.get(2).and_then(number::<u32>).ok_or(BAD_FORMAT)?;
        let expiry = expiry(args.get(3), now.ms).map_err(|_| BAD_FORMAT)?;
        if data.len() > self.settings.string_bytes_max {
            return Err(TOO_LARGE);
        }
        if self.settings.eviction == Eviction::Refuse && self.usage.is_full() {
            return Err(OUT_OF_MEMORY);
        }
        let mut db = self.open_key(key, now.ms, now.stamping);
        let old = item(&mut db, key).map(Record::version);
        let set = |mut db: Db<'_>| {
            if verb != b"set" {
                db.follow(key);
            }
            if db.set_item(key, data, flags, expiry) {
                drop_if_over(&mut db, key, expiry);
            }
        };
        let line = match (verb, old) {
            (b"set", _) | (b"add", None) | (b"replace", Some(_)) => {
                set(db);
                Ok(STORED)
            }
            (b"add", Some(_)) | (b"replace" | b"append" | b"prepend", None) => Ok(NOT_STORED),
            (b"append", Some(_)) => join(&mut db, key, data, false),
            (b"prepend", Some(_)) => join(&mut db, key, data, true),
            (b"cas", None) => Ok(NOT_FOUND),
            (b"cas", Some(version)) => {
                match args.get(5).and_then(number::<u64>).ok_or(BAD_FORMAT)? == version {
                    true => {
                        set(db);
                        Ok(STORED)
                    }
                    false => Ok("EXISTS"),
                }
            }
            _ => Err(ERROR),
        };
        if self.usage.is_over() {
            self.evict(now.ms);
        }
        line
    }

    /// INCR and DECR.
    fn count(&self, args: &Args<'_>, up: bool, now: &mut Now<'_>, out: &mut OutBuf) {
        let key = args.get(1).unwrap_or_default();
        let delta = args.get(2).and_then(number::<u64>);
        let answer = delta.ok_or(BAD_DELTA).and_then(|delta| {
            let mut db = self.open_key(key, now.ms, now.stamping);
            if item(&mut db, key).is_none() {
                return Err(NOT_FOUND);
            }
            counted(&mut db, key, delta, up).map_err(|_| NOT_NUMERIC)
        });
        match answer {
            Ok(number) => put_line(out, itoa::Buffer::new().format(number)),
            Err(line) => put_line(out, line),
        }
    }

    fn delete(&self, args: &Args<'_>, now: &mut Now<'_>) -> Line {
        let key = args.get(1).ok_or(ERROR)?;
        let mut db = self.open_key(key, now.ms, now.stamping);
        match item(&mut db, key).is_some() {
            true => {
                db.remove(key);
                Ok("DELETED")
            }
            false => Ok(NOT_FOUND),
        }
    }

    fn touch(&self, args: &Args<'_>, now: &mut Now<'_>) -> Line {
        let key = args.get(1).ok_or(ERROR)?;
        let expiry = expiry(args.get(2), now.ms)?;
        let mut db = self.open_key(key, now.ms, now.stamping);
        match item(&mut db, key).map(|record| record.marks) {
            Some(marks) => {
                db.set_marks(key, Marks { fetched: true, ..marks });
                touch_item(&mut db, key, expiry);
                Ok("TOUCHED")
            }
            None => Ok(NOT_FOUND),
        }
    }

    /// The figures memcached has by argument. The node's own are `stats` without one.
    fn stats(&self, what: &[u8], out: &mut OutBuf) -> Line {
        match what {
            b"reset" => return Ok("RESET"),
            // There are no slabs, and items are not counted by size.
            b"items" | b"slabs" | b"sizes" => {}
            b"settings" => {
                let evictions = match self.settings.eviction {
                    Eviction::Refuse => "off",
                    Eviction::AllKeysLru | Eviction::VolatileLru => "on",
                };
                put_line(out, &format!("STAT maxbytes {}", self.settings.memory_bytes_max));
                put_line(out, &format!("STAT evictions {evictions}"));
                put_line(out, &format!("STAT item_size_max {}", self.settings.string_bytes_max));
            }
            _ => return Err(ERROR),
        }
        Ok("END")
    }

    fn flush_all(&self, args: &Args<'_>, now: &mut Now<'_>) -> Line {
        match args.get(1) {
            None | Some(b"0" | b"noreply") => {}
            Some(_) => return Err(NO_DELAY),
        }
        for number in 0..SHARDS {
            let mut shard = self.lock(number as u8);
            shard.begin(now.stamping, now.ms);
            let removed = shard.clear();
            // The lock is gone when the keys are dropped.
            drop(shard);
            drop(removed);
        }
        Ok("OK")
    }
}

/// Counts an item that is there up or down; the new number.
fn counted(db: &mut Db<'_>, key: &[u8], delta: u64, up: bool) -> Result<u64, CommandError> {
    let counted = db.edit_existing(key, |text: &mut Blob| {
        let len = text.len();
        let old = counter(text.as_slice()).ok_or(CommandError::NotInteger)?;
        let new = match up {
            true => old.wrapping_add(delta),
            false => old.saturating_sub(delta),
        };
        // Parity: a number that got shorter keeps its place, filled up with blanks.
        let padded = format!("{new:<len$}");
        text.set(padded.as_bytes());
        Ok(Edit::Changed((new, text.len() > len)))
    });
    let (new, longer) = counted?.ok_or(CommandError::NotInteger)?;
    if longer {
        // Parity: it is another item then.
        db.set_marks(key, Marks::default());
    }
    Ok(new)
}

/// The record at `key` when it holds a string.
fn item<'d>(db: &'d mut Db<'_>, key: &[u8]) -> Option<&'d Record> {
    db.peek(key).filter(|record| matches!(record.value, Value::Str(_)))
}

/// Appends one VALUE block, or nothing.
fn put_value(db: &mut Db<'_>, key: &[u8], with_cas: bool, out: &mut OutBuf) {
    let Some(record) = db.fetch(key) else {
        return;
    };
    let Value::Str(text) = &record.value else {
        return;
    };
    let mut digits = itoa::Buffer::new();
    out.put(b"VALUE ");
    out.put(key);
    out.put(b" ");
    out.put(digits.format(record.flags).as_bytes());
    out.put(b" ");
    out.put(digits.format(text.len()).as_bytes());
    if with_cas {
        out.put(b" ");
        out.put(digits.format(record.version()).as_bytes());
    }
    out.put(b"\r\n");
    put_text(text, out);
}

/// Appends the data of an item that is there.
fn put_data(db: &mut Db<'_>, key: &[u8], out: &mut OutBuf) {
    if let Some(Record { value: Value::Str(text), .. }) = db.peek(key) {
        put_text(text, out);
    }
}

fn put_text(text: &Blob, out: &mut OutBuf) {
    match text {
        Blob::Shared(data) => out.put_shared(data.as_ref().clone()),
        Blob::Inline { .. } | Blob::Heap(_) | Blob::Growing(_) => out.put(text.as_slice()),
    }
    out.put(b"\r\n");
}

/// Appends or prepends to an item that is there; its flags and expiry stay.
fn join(db: &mut Db<'_>, key: &[u8], data: &[u8], before: bool) -> Line {
    let max = db.string_bytes_max();
    let joined = db.edit_existing(key, |text: &mut Blob| {
        if text.len() + data.len() > max {
            return Err(CommandError::StringTooLong);
        }
        let at = if before { 0 } else { text.len() };
        text.make_mut().splice(at..at, data.iter().copied());
        Ok(Edit::Changed(()))
    });
    db.set_marks(key, Marks::default());
    joined.map(|_| STORED).map_err(|_| TOO_LARGE)
}

/// Sets the expiry of an item that is there; its cas id stays.
fn touch_item(db: &mut Db<'_>, key: &[u8], expiry: Expiry) {
    let at = match expiry {
        Expiry::At(at) => at,
        Expiry::Keep | Expiry::Never => 0,
    };
    db.touch(key, at);
    drop_if_over(db, key, expiry);
}

/// Removes an item whose time is over already.
fn drop_if_over(db: &mut Db<'_>, key: &[u8], expiry: Expiry) {
    if matches!(expiry, Expiry::At(at) if at < db.now_ms()) {
        db.remove(key);
    }
}

/// A time of expiry: seconds from now, Unix time, never (0), or over at once (negative).
fn expiry(word: Option<&[u8]>, now_ms: u64) -> Result<Expiry, &'static str> {
    let seconds = word.and_then(number::<i32>).ok_or(BAD_EXPTIME)?;
    let seconds = i64::from(seconds);
    Ok(match seconds {
        0 => Expiry::Never,
        ..0 => Expiry::At(now_ms - 1),
        // A key lives through its last millisecond, an item only up to its time.
        1..=RELATIVE_MAX_S => Expiry::At(now_ms + seconds as u64 * 1_000 - 1),
        _ => Expiry::At(seconds as u64 * 1_000 - 1),
    })
}

fn number<T: std::str::FromStr>(word: &[u8]) -> Option<T> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// A stored number. Parity: read as strtoull does, blanks and a sign before it, and what stands
/// behind a blank or a zero byte does not count.
fn counter(text: &[u8]) -> Option<u64> {
    let is_blank = |byte: &u8| byte.is_ascii_whitespace() || *byte == b'\x0b';
    let text = &text[text.iter().position(|byte| !is_blank(byte))?..];
    let is_negated = text.first() == Some(&b'-');
    let digits = text.strip_prefix(b"+").or(text.strip_prefix(b"-")).unwrap_or(text);
    let end = digits.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(digits.len());
    let found: u64 = number(&digits[..end])?;
    let found = if is_negated { found.wrapping_neg() } else { found };
    let ends = digits.get(end).is_none_or(|byte| is_blank(byte) || *byte == 0);
    (ends && !(is_negated && found > i64::MAX as u64)).then_some(found)
}

fn put_line(out: &mut OutBuf, line: &str) {
    out.put(line.as_bytes());
    out.put(b"\r\n");
}

#[cfg(test)]
mod tests;
