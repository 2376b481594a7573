//! Strings: GET, SET and their family.

use crate::proto::args::Args;
use crate::proto::outbuf::OutBuf;

use super::arg;
use super::blob::Blob;
use super::command::{Command, Effect::*, Keys::*, row};
use super::db::{Db, Edit, Expiry};
use super::error::{CommandError, CommandResult};
use super::reply;
use super::set_options::{SetOptions, absolute_expiry};

pub(super) const COMMANDS: &[Command] = &[
    row("get", 2, One, Read, get),
    row("set", -3, One, Grow, set),
    row("setnx", 3, One, Grow, setnx),
    row("setex", 4, One, Grow, setex),
    row("psetex", 4, One, Grow, psetex),
    row("getset", 3, One, Grow, getset),
    row("getdel", 2, One, Write, getdel),
    row("getex", -2, One, Write, getex),
    row("mget", -2, From(1), Read, mget),
    row("mset", -3, Pairs, Grow, mset),
    row("msetnx", -3, Pairs, Grow, msetnx),
    row("append", 3, One, Grow, append),
    row("strlen", 2, One, Read, strlen),
    row("setrange", 4, One, Grow, setrange),
    row("getrange", 4, One, Read, getrange),
    row("substr", 4, One, Read, getrange),
];

fn get(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let found = db.read::<Blob>(&args[1])?;
    reply::blob_or_nil(out, found);
    Ok(())
}

fn set(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let (key, value) = (&args[1], &args[2]);
    if args.len() == 3 {
        db.set_string(key, value, Expiry::Never);
        reply::ok(out);
        return Ok(());
    }
    let options = SetOptions::parse_set(args)?;
    let expiry = options.expiry(args, "set", db.now_ms())?;
    let found = match options.get {
        true => {
            let old = db.read::<Blob>(key)?;
            reply::blob_or_nil(out, old);
            old.is_some()
        }
        false => (options.nx || options.xx) && db.exists(key),
    };
    if options.get || options.nx || options.xx {
        db.follow(key);
    }
    let allowed = if found { !options.nx } else { !options.xx };
    if allowed {
        db.set_string(key, value, expiry);
    }
    match (options.get, allowed) {
        (true, _) => {}
        (false, true) => reply::ok(out),
        (false, false) => reply::nil(out),
    }
    Ok(())
}

fn setnx(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let absent = !db.exists(&args[1]);
    if absent {
        db.follow(&args[1]);
        db.set_string(&args[1], &args[2], Expiry::Never);
    }
    reply::int(out, i64::from(absent));
    Ok(())
}

fn setex(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    set_for(db, args, out, 1_000, "setex")
}

fn psetex(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    set_for(db, args, out, 1, "psetex")
}

fn set_for(
    db: &mut Db<'_>,
    args: &Args<'_>,
    out: &mut OutBuf,
    unit_ms: i64,
    name: &'static str,
) -> CommandResult {
    let at = absolute_expiry(arg::int(args, 2)?, unit_ms, Some(db.now_ms()), name)?;
    db.set_string(&args[1], &args[3], Expiry::At(at));
    reply::ok(out);
    Ok(())
}

fn getset(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let old = db.read::<Blob>(&args[1])?;
    reply::blob_or_nil(out, old);
    db.set_string(&args[1], &args[2], Expiry::Never);
    Ok(())
}

fn getdel(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let old = db.read::<Blob>(&args[1])?;
    reply::blob_or_nil(out, old);
    db.remove(&args[1]);
    Ok(())
}

fn getex(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let key = &args[1];
    let options = SetOptions::parse_getex(args)?;
    // Redis looks the key up before it reads the expiry, so a missing key hides a bad one.
    if db.read::<Blob>(key)?.is_none() {
        reply::nil(out);
        return Ok(());
    }
    let expiry = options.expiry(args, "getex", db.now_ms())?;
    let found = db.read::<Blob>(key)?;
    reply::blob_or_nil(out, found);
    match expiry {
        Expiry::At(at) if at <= db.now_ms() => {
            db.remove(key);
        }
        Expiry::At(at) => {
            db.set_expiry(key, at);
        }
        Expiry::Never if options.persist => {
            db.set_expiry(key, 0);
        }
        Expiry::Never | Expiry::Keep => {}
    }
    Ok(())
}

fn mget(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    reply::array(out, args.len() - 1);
    for key in args.tail(1).iter() {
        // A key of another type is nil here, not an error.
        let found = db.read::<Blob>(key).unwrap_or(None);
        reply::blob_or_nil(out, found);
    }
    Ok(())
}

fn mset(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    if args.len().is_multiple_of(2) {
        return Err(CommandError::Arity("mset"));
    }
    set_pairs(db, args);
    reply::ok(out);
    Ok(())
}

fn msetnx(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    if args.len().is_multiple_of(2) {
        return Err(CommandError::Arity("msetnx"));
    }
    let absent = args.tail(1).iter().step_by(2).all(|key| !db.exists(key));
    if absent {
        args.tail(1).iter().step_by(2).for_each(|key| db.follow(key));
        set_pairs(db, args);
    }
    reply::int(out, i64::from(absent));
    Ok(())
}

fn set_pairs(db: &mut Db<'_>, args: &Args<'_>) {
    for at in (1..args.len()).step_by(2) {
        db.set_string(&args[at], &args[at + 1], Expiry::Never);
    }
}

fn append(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let (max, more) = (db.string_bytes_max(), &args[2]);
    let len = db.edit(&args[1], |text: &mut Blob| {
        let len = text.len() + more.len();
        if len > max {
            return Err(CommandError::StringTooLong);
        }
        match text.len() {
            0 => text.set(more),
            _ => text.make_mut().extend_from_slice(more),
        }
        Ok(Edit::Changed(len))
    })?;
    reply::count(out, len);
    Ok(())
}

fn strlen(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let len = db.read::<Blob>(&args[1])?.map_or(0, Blob::len);
    reply::count(out, len);
    Ok(())
}

fn setrange(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let (max, data) = (db.string_bytes_max(), &args[3]);
    let offset = usize::try_from(arg::int(args, 2)?).map_err(|_| CommandError::OffsetOutOfRange)?;
    if data.is_empty() {
        let len = db.read::<Blob>(&args[1])?.map_or(0, Blob::len);
        reply::count(out, len);
        return Ok(());
    }
    let len = db.edit(&args[1], |text: &mut Blob| {
        let end = offset.checked_add(data.len()).filter(|&end| end <= max);
        let end = end.ok_or(CommandError::StringTooLong)?;
        let bytes = text.make_mut();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[offset..end].copy_from_slice(data);
        Ok(Edit::Changed(bytes.len()))
    })?;
    reply::count(out, len);
    Ok(())
}

fn getrange(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let (start, end) = (arg::int(args, 2)?, arg::int(args, 3)?);
    let text = db.read::<Blob>(&args[1])?.map_or(&b""[..], Blob::as_slice);
    let len = text.len() as i64;
    // Unlike a list range, an end before the first byte gives that byte.
    let inverted = start < 0 && end < 0 && start > end;
    let from_end = |n: i64| {
        if n < 0 { n.saturating_add(len).max(0) } else { n }
    };
    let (from, to) = (from_end(start), from_end(end).min(len - 1));
    match inverted || from > to {
        true => reply::bulk(out, b""),
        false => reply::bulk(out, &text[from as usize..=to as usize]),
    }
    Ok(())
}
