//! Commands on keys of any type.

use crate::proto::args::Args;
use crate::proto::outbuf::OutBuf;

use super::arg;
use super::command::{Command, Effect::*, Keys::*, row};
use super::db::{Db, Expiry};
use super::error::{CommandError, CommandResult};
use super::format::parse_i64;
use super::reply;
use super::value::Value;

pub(super) const COMMANDS: &[Command] = &[
    row("del", -2, From(1), Write, del),
    row("unlink", -2, Each(1), Write, del),
    row("exists", -2, Each(1), Read, exists),
    row("touch", -2, Each(1), Read, touch),
    row("type", 2, One, Read, type_of),
    row("rename", 3, Two, Write, rename),
    row("renamenx", 3, Two, Write, renamenx),
    row("copy", -3, Two, Grow, copy),
    row("object", -2, Second, Read, object),
];

fn del(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let gone = args.tail(1).iter().filter(|key| db.delete(key)).count();
    reply::count(out, gone);
    Ok(())
}

fn exists(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let found = args.tail(1).iter().filter(|key| db.look(key).is_some()).count();
    reply::count(out, found);
    Ok(())
}

fn touch(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let found = args.tail(1).iter().filter(|key| db.record(key).is_some()).count();
    reply::count(out, found);
    Ok(())
}

fn type_of(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let name = db.look(&args[1]).map_or("none", |r| r.value.type_name());
    reply::status(out, name);
    Ok(())
}

fn rename(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    rename_key(db, args, false)?;
    reply::ok(out);
    Ok(())
}

fn renamenx(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let renamed = rename_key(db, args, true)?;
    reply::int(out, i64::from(renamed));
    Ok(())
}

fn rename_key(db: &mut Db<'_>, args: &Args<'_>, only_if_free: bool) -> Result<bool, CommandError> {
    let (from, to) = (&args[1], &args[2]);
    if !db.exists(from) {
        return Err(CommandError::NoSuchKey);
    }
    if from == to {
        return Ok(!only_if_free);
    }
    if only_if_free && db.exists(to) {
        return Ok(false);
    }
    if let Some(record) = db.remove(from) {
        let expire_at_ms = record.expire_at_ms();
        put_with_expiry(db, to, record.value, expire_at_ms);
    }
    Ok(true)
}

fn put_with_expiry(db: &mut Db<'_>, key: &[u8], value: Value, expire_at_ms: u64) {
    if db.put(key, value) && expire_at_ms != 0 {
        db.set_expiry(key, expire_at_ms);
    }
}

fn copy(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let mut replace = false;
    let mut at = 3;
    while at < args.len() {
        if arg::is(&args[at], "replace") {
            replace = true;
        } else if arg::is(&args[at], "db") && at + 1 < args.len() {
            at += 1;
            // There is one database.
            match parse_i64(&args[at]) {
                Some(0) => {}
                Some(n) if i32::try_from(n).is_ok() => return Err(CommandError::DbIndex),
                Some(_) => return Err(CommandError::OutOfRange),
                None => return Err(CommandError::NotInteger),
            }
        } else {
            return Err(CommandError::Syntax);
        }
        at += 1;
    }
    let (from, to) = (&args[1], &args[2]);
    if from == to {
        return Err(CommandError::SameObject);
    }
    let found = db.record(from).map(|r| (r.value.clone(), r.expire_at_ms()));
    let copied = match found {
        Some((value, expire_at_ms)) if replace || !db.exists(to) => {
            put_with_expiry(db, to, value, expire_at_ms);
            true
        }
        Some(_) | None => false,
    };
    reply::int(out, i64::from(copied));
    Ok(())
}

fn object(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let wanted = args[1].to_ascii_lowercase();
    let name = match wanted.as_slice() {
        b"encoding" => "object|encoding",
        b"refcount" => "object|refcount",
        b"idletime" => "object|idletime",
        b"freq" => "object|freq",
        _ => {
            return Err(CommandError::unknown_subcommand(&args[1], "OBJECT"));
        }
    };
    if args.len() != 3 {
        return Err(CommandError::Arity(name));
    }
    let key = &args[2];
    let idle_ms = db.idle_ms(key).unwrap_or(0);
    match (db.look(key), wanted.as_slice()) {
        (None, _) => reply::nil(out),
        (Some(record), b"encoding") => reply::bulk(out, encoding(&record.value).as_bytes()),
        (Some(_), b"refcount") => reply::int(out, 1),
        (Some(_), b"idletime") => reply::int(out, (idle_ms / 1_000) as i64),
        (Some(_), _) => return Err(CommandError::NoLfu),
    }
    Ok(())
}

/// The encoding Redis would use for a value of this content; clients only look at it for strings.
fn encoding(value: &Value) -> &'static str {
    const EMBSTR_MAX: usize = 44;
    const LISTPACK_ENTRIES_MAX: usize = 128;
    match value {
        Value::Str(text) if parse_i64(text.as_slice()).is_some() => "int",
        Value::Str(super::blob::Blob::Growing(_)) => "raw",
        Value::Str(text) if text.len() <= EMBSTR_MAX => "embstr",
        Value::Str(_) => "raw",
        Value::List(_) => "quicklist",
        Value::Hash(hash) if hash.len() <= 4 * LISTPACK_ENTRIES_MAX => "listpack",
        Value::Set(set) if set.iter().all(|m| parse_i64(m.as_slice()).is_some()) => "intset",
        Value::ZSet(zset) if zset.len() <= LISTPACK_ENTRIES_MAX => "listpack",
        Value::Hash(_) | Value::Set(_) => "hashtable",
        Value::ZSet(_) => "skiplist",
    }
}

/// What a command that names an expiry does with `key`.
pub(super) fn expire(db: &mut Db<'_>, key: &[u8], expiry: Expiry) {
    match expiry {
        Expiry::Keep => {}
        Expiry::Never => {
            db.set_expiry(key, 0);
        }
        Expiry::At(at) if at <= db.now_ms() => {
            db.remove(key);
        }
        Expiry::At(at) => {
            db.set_expiry(key, at);
        }
    }
}
