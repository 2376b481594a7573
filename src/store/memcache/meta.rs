//! The meta commands: mg, ms, md, ma and me, each with its flags.
//!
//! memcached 1.6.18 is the reference (`proto_text.c`): which flags are returned and in what order,
//! who wins the right to make a value anew (W), who is told that another one has it (Z) and that a
//! value is stale (X). What the flag `q` keeps quiet is left out at the client's end.

use super::meta_flags::{BAD_OPAQUE, Meta, decoded, encode, key_of};
use super::{
    BAD_FORMAT, Db, NOT_NUMERIC, Now, OUT_OF_MEMORY, TOO_LARGE, Value, counted, drop_if_over, item,
    join, put_line, touch_item,
};
use crate::proto::args::Args;
use crate::proto::outbuf::OutBuf;
use crate::store::MemoryStore;
use crate::store::db::Expiry;
use crate::store::marks::Marks;
use crate::store::settings::Eviction;

const BAD_OR_TWICE: &str = "CLIENT_ERROR invalid or duplicate flag";

/// What a line of flags tells of an item.
struct Seen {
    len: usize,
    flags: u32,
    cas: u64,
    expiry: Expiry,
    marks: Marks,
    idle_ms: u64,
}

type Answer = Result<(), &'static str>;

impl MemoryStore {
    /// Runs one meta command and appends its reply.
    pub(super) fn meta(
        &self,
        args: &Args<'_>,
        data: Option<&[u8]>,
        now: &mut Now<'_>,
        out: &mut OutBuf,
    ) {
        let answer = match (args.get(0).unwrap_or_default(), data) {
            (b"mg", None) => self.meta_get(args, now, out),
            (b"ms", Some(data)) => self.meta_set(args, data, now, out),
            (b"md", None) => self.meta_delete(args, now, out),
            (b"ma", None) => self.meta_arithmetic(args, now, out),
            (b"me", None) => self.meta_debug(args, now, out),
            _ => Err(super::ERROR),
        };
        if let Err(line) = answer {
            put_line(out, line);
        }
    }

    fn meta_get(&self, args: &Args<'_>, now: &mut Now<'_>, out: &mut OutBuf) -> Answer {
        let meta = Meta::parse(args, 2, now.ms)?;
        let mut db = self.open_key(&meta.key, now.ms, now.stamping);
        let created = item(&mut db, &meta.key).is_none();
        if created {
            if meta.vivify.is_none() {
                put_status(&meta, b"EN", out);
                return Ok(());
            }
            db.follow(&meta.key);
            db.set_item(&meta.key, b"", 0, Expiry::Never);
        }
        let mut seen = look(&mut db, &meta.key).ok_or(OUT_OF_MEMORY)?;
        let mut line = meta.head(seen.len);
        let won = put_flags(&meta, (&mut seen, created), now.ms, &mut line);
        out.put(&line);
        if meta.value {
            super::put_data(&mut db, &meta.key, out);
        }
        seen.marks.token_sent |= won;
        if !meta.no_update {
            seen.marks.fetched = true;
            db.record(&meta.key);
        }
        db.set_marks(&meta.key, seen.marks);
        touch_item(&mut db, &meta.key, seen.expiry);
        Ok(())
    }

    fn meta_set(
        &self,
        args: &Args<'_>,
        data: &[u8],
        now: &mut Now<'_>,
        out: &mut OutBuf,
    ) -> Answer {
        let meta = Meta::parse(args, 3, now.ms)?;
        let mode = meta.mode.unwrap_or(b'S');
        if !matches!(mode, b'S' | b'E' | b'A' | b'P' | b'R') {
            return Err("CLIENT_ERROR invalid mode for ms M token");
        }
        if data.len() > self.settings.string_bytes_max {
            return Err(TOO_LARGE);
        }
        if self.settings.eviction == Eviction::Refuse && self.usage.is_full() {
            return Err(OUT_OF_MEMORY);
        }
        let mut db = self.open_key(&meta.key, now.ms, now.stamping);
        let (code, ends) = meta.store(mode, data, &mut db)?;
        let stored = code == b"HD";
        let cas = look(&mut db, &meta.key).filter(|_| stored).map_or(0, |seen| seen.cas);
        let mut line = code.to_vec();
        for flag in &meta.flags {
            match flag[0] {
                b'O' => put_word(flag, &mut line),
                b'k' => meta.put_key(meta.binary, &mut line),
                b'c' => put_number(b'c', cas, &mut line),
                _ => {}
            }
        }
        line.extend_from_slice(b"\r\n");
        drop_if_over(&mut db, &meta.key, ends);
        drop(db);
        out.put(&line);
        if self.usage.is_over() {
            self.evict(now.ms);
        }
        Ok(())
    }

    fn meta_delete(&self, args: &Args<'_>, now: &mut Now<'_>, out: &mut OutBuf) -> Answer {
        let meta = Meta::parse(args, 2, now.ms).map_err(in_other_words)?;
        let mut db = self.open_key(&meta.key, now.ms, now.stamping);
        let code = match look(&mut db, &meta.key) {
            None => b"NF",
            Some(seen) if meta.cas.is_some_and(|cas| cas != seen.cas) => b"EX",
            Some(_) if meta.stale => {
                db.make_stale(&meta.key);
                if let Some(expiry) = meta.ttl {
                    touch_item(&mut db, &meta.key, expiry);
                }
                b"HD"
            }
            Some(_) => {
                if meta.cas.is_some() {
                    db.follow(&meta.key);
                }
                db.remove(&meta.key);
                b"HD"
            }
        };
        put_status(&meta, code, out);
        Ok(())
    }

    fn meta_arithmetic(&self, args: &Args<'_>, now: &mut Now<'_>, out: &mut OutBuf) -> Answer {
        let meta = Meta::parse(args, 2, now.ms).map_err(in_other_words)?;
        let up = match meta.mode {
            None | Some(b'I' | b'+') => true,
            Some(b'D' | b'-') => false,
            Some(_) => return Err("CLIENT_ERROR invalid mode for ma M token"),
        };
        let mut db = self.open_key(&meta.key, now.ms, now.stamping);
        let found = look(&mut db, &meta.key);
        let created = found.is_none();
        let number = match found {
            None if meta.vivify.is_none() => {
                put_status(&meta, b"NF", out);
                return Ok(());
            }
            None => {
                let digits = meta.initial.to_string();
                db.set_item(&meta.key, digits.as_bytes(), 0, Expiry::Never);
                meta.initial
            }
            // An id of 0 is none, and an empty value is told before an id that differs.
            Some(seen) if seen.len > 0 && meta.cas.is_some_and(|c| c != 0 && c != seen.cas) => {
                put_status(&meta, b"EX", out);
                return Ok(());
            }
            Some(_) => {
                let delta = meta.delta.unwrap_or(1);
                counted(&mut db, &meta.key, delta, up).map_err(|_| NOT_NUMERIC)?
            }
        };
        let digits = number.to_string();
        let mut seen = look(&mut db, &meta.key).ok_or(OUT_OF_MEMORY)?;
        let mut line = meta.head(digits.len());
        for flag in &meta.flags {
            match flag[0] {
                b'k' => meta.put_key(meta.binary, &mut line),
                _ => put_flag(&meta, flag, (&mut seen, created), now.ms, &mut line),
            }
        }
        line.extend_from_slice(b"\r\n");
        out.put(&line);
        if meta.value {
            put_line(out, &digits);
        }
        touch_item(&mut db, &meta.key, seen.expiry);
        Ok(())
    }

    fn meta_debug(&self, args: &Args<'_>, now: &mut Now<'_>, out: &mut OutBuf) -> Answer {
        let word = key_of(args)?;
        let key = match args.get(2) {
            Some(b"b") => decoded(word).ok_or(BAD_FORMAT)?,
            Some(_) | None => word.to_vec(),
        };
        let mut db = self.open_key(&key, now.ms, now.stamping);
        let Some(seen) = look(&mut db, &key) else {
            put_line(out, "EN");
            return Ok(());
        };
        let mut line = b"ME ".to_vec();
        match seen.marks.binary {
            true => encode(&key, &mut line),
            false => line.extend_from_slice(&key),
        }
        let expires = seconds_left(&seen, now.ms);
        let fetched = if seen.marks.fetched { "yes" } else { "no" };
        let rest = format!(
            " exp={} la={} cas={} fetch={fetched} cls=1 size={}\r\n",
            if expires < 0 { -1 } else { -expires },
            seen.idle_ms / 1000,
            seen.cas,
            seen.len + key.len(),
        );
        line.extend_from_slice(rest.as_bytes());
        out.put(&line);
        Ok(())
    }
}

/// md and ma do not tell what is wrong with their flags.
fn in_other_words(line: &'static str) -> &'static str {
    if line == BAD_OPAQUE { line } else { BAD_OR_TWICE }
}

impl Meta<'_> {
    /// Stores by the rules of `mode`. The code of the answer, and when the item is over if that is
    /// already so.
    fn store(
        &self,
        mode: u8,
        data: &[u8],
        db: &mut Db<'_>,
    ) -> Result<(&'static [u8], Expiry), &'static str> {
        let old = look(db, &self.key);
        let differs = |seen: &Seen| self.cas.is_some_and(|cas| cas != seen.cas);
        let marks = Marks { binary: self.binary, ..Marks::default() };
        let ttl = self.ttl.unwrap_or(Expiry::Never);
        let set = |db: &mut Db<'_>, expiry, marks| {
            let over = matches!(expiry, Expiry::At(at) if at < db.now_ms());
            if mode != b'S' || self.cas.is_some() {
                db.follow(&self.key);
            }
            // What is over goes when its id was told.
            let (kept, ends) = if over { (Expiry::Never, expiry) } else { (expiry, Expiry::Keep) };
            if db.set_item(&self.key, data, self.client_flags, kept) {
                db.set_marks(&self.key, marks);
            }
            Ok((&b"HD"[..], ends))
        };
        let refused = |code: &'static [u8]| Ok((code, Expiry::Keep));
        match (mode, old) {
            (b'E', None) => set(db, ttl, marks),
            (b'E', Some(_)) | (b'A' | b'P', None) => refused(b"NS"),
            (b'A' | b'P', Some(old)) => {
                // An id of 0 is none.
                if differs(&old) && self.cas != Some(0) {
                    return refused(b"EX");
                }
                join(db, &self.key, data, mode == b'P')?;
                Ok((b"HD", Expiry::Keep))
            }
            (b'R', None) if self.cas.is_none() => refused(b"NS"),
            (_, None) if self.cas.is_some() => refused(b"NF"),
            (_, Some(old)) if differs(&old) => match self.cas {
                // A value that was late already when it was asked for keeps the old one's time.
                Some(cas) if self.stale && cas != 0 && cas < old.cas => {
                    let marks = Marks { stale: true, token_sent: old.marks.token_sent, ..marks };
                    set(db, old.expiry, marks)
                }
                _ => refused(b"EX"),
            },
            _ => set(db, ttl, marks),
        }
    }
}

/// Appends the flags of mg that are returned, in the order asked. True when the client won the
/// right to make the value.
fn put_flags(
    meta: &Meta<'_>,
    (seen, created): (&mut Seen, bool),
    now_ms: u64,
    line: &mut Vec<u8>,
) -> bool {
    let marks = seen.marks;
    let mut won = false;
    for flag in &meta.flags {
        match flag[0] {
            b'R' => {
                let soon = match (seen.expiry, meta.recache) {
                    (Expiry::At(goes), Some(Expiry::At(at))) => goes < at,
                    _ => false,
                };
                won |= !marks.token_sent && !created && soon;
            }
            b's' => put_number(b's', seen.len as u64, line),
            b'f' => put_number(b'f', u64::from(seen.flags), line),
            b'l' => put_number(b'l', seen.idle_ms / 1000, line),
            b'h' => put_number(b'h', u64::from(marks.fetched), line),
            b'k' => meta.put_key(marks.binary, line),
            _ => put_flag(meta, flag, (&mut *seen, created), now_ms, line),
        }
        won |= flag[0] == b'N' && created;
    }
    if marks.token_sent {
        line.extend_from_slice(b" Z");
    }
    if marks.stale {
        line.extend_from_slice(b" X");
        won |= !marks.token_sent;
    }
    if won {
        line.extend_from_slice(b" W");
    }
    line.extend_from_slice(b"\r\n");
    won
}

/// Appends what a flag of mg or ma returns, and lets the item end when one says so.
fn put_flag(
    meta: &Meta<'_>,
    flag: &[u8],
    (seen, created): (&mut Seen, bool),
    now_ms: u64,
    line: &mut Vec<u8>,
) {
    match flag[0] {
        b'T' => seen.expiry = meta.ttl.unwrap_or(Expiry::Never),
        b'N' if created => seen.expiry = meta.vivify.unwrap_or(Expiry::Never),
        b't' => {
            line.extend_from_slice(format!(" t{}", seconds_left(seen, now_ms)).as_bytes());
        }
        b'c' => put_number(b'c', seen.cas, line),
        b'O' => put_word(flag, line),
        _ => {}
    }
}

/// The answer of a command without an item: its code, opaque and key.
fn put_status(meta: &Meta<'_>, code: &[u8], out: &mut OutBuf) {
    let mut line = code.to_vec();
    for flag in &meta.flags {
        match flag[0] {
            b'O' => put_word(flag, &mut line),
            b'k' => meta.put_key(meta.binary, &mut line),
            _ => {}
        }
    }
    line.extend_from_slice(b"\r\n");
    out.put(&line);
}

fn look(db: &mut Db<'_>, key: &[u8]) -> Option<Seen> {
    let idle_ms = db.idle_ms(key).unwrap_or(0);
    let record = item(db, key)?;
    let Value::Str(text) = &record.value else { return None };
    Some(Seen {
        len: text.len(),
        flags: record.flags,
        cas: record.version(),
        expiry: match record.expire_at_ms() {
            0 => Expiry::Never,
            at => Expiry::At(at),
        },
        marks: record.marks,
        idle_ms,
    })
}

/// Whole seconds until an item goes; -1 is never.
fn seconds_left(seen: &Seen, now_ms: u64) -> i64 {
    match seen.expiry {
        Expiry::At(at) => (at + 1).saturating_sub(now_ms).div_ceil(1000) as i64,
        Expiry::Never | Expiry::Keep => -1,
    }
}

fn put_word(word: &[u8], line: &mut Vec<u8>) {
    line.push(b' ');
    line.extend_from_slice(word);
}

fn put_number(flag: u8, number: u64, line: &mut Vec<u8>) {
    line.extend_from_slice(&[b' ', flag]);
    line.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}
