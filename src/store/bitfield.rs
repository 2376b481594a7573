//! BITFIELD: integers of any width inside a string.

use crate::proto::args::Args;
use crate::proto::outbuf::OutBuf;

use super::bits::parse_offset;
use super::blob::Blob;
use super::command::{Command, Effect::*, Keys::*, row};
use super::db::{Db, Edit};
use super::error::{CommandError, CommandResult};
use super::format::parse_i64;
use super::{arg, reply};

pub(super) const COMMANDS: &[Command] =
    &[row("bitfield", -2, One, Grow, bitfield), row("bitfield_ro", -2, One, Read, bitfield_ro)];

/// What happens to a value that does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Overflow {
    Wrap,
    Saturate,
    Fail,
}

/// An integer type of 1 to 64 bits (63 when unsigned).
#[derive(Clone, Copy, Debug)]
struct Width {
    signed: bool,
    bits: u32,
}

#[derive(Clone, Copy, Debug)]
enum Action {
    Get,
    Set(i64),
    Add(i64),
}

/// One operation of a BITFIELD command.
#[derive(Clone, Copy, Debug)]
struct Operation {
    action: Action,
    width: Width,
    offset: u64,
    overflow: Overflow,
}

fn bitfield(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let operations = parse(args, db.string_bytes_max())?;
    let writes = operations.iter().filter(|op| !matches!(op.action, Action::Get));
    let last_bit = writes.map(|op| op.offset + u64::from(op.width.bits) - 1).max();
    let Some(last_bit) = last_bit else {
        return read_only(db, &args[1], &operations, out);
    };
    let answers = db.edit(&args[1], |text: &mut Blob| {
        let bytes = text.make_mut();
        let needed = (last_bit / 8) as usize + 1;
        bytes.resize(bytes.len().max(needed), 0);
        let answers: Vec<_> = operations.iter().map(|op| op.run(bytes)).collect();
        Ok(Edit::Changed(answers))
    })?;
    write_answers(out, &answers);
    Ok(())
}

fn bitfield_ro(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let operations = parse(args, db.string_bytes_max())?;
    if operations.iter().any(|op| !matches!(op.action, Action::Get)) {
        return Err(CommandError::BitfieldReadOnly);
    }
    read_only(db, &args[1], &operations, out)
}

fn read_only(
    db: &mut Db<'_>,
    key: &[u8],
    operations: &[Operation],
    out: &mut OutBuf,
) -> CommandResult {
    let text = db.read::<Blob>(key)?.map_or(&b""[..], Blob::as_slice);
    let read = |op: &Operation| Some(op.width.shown(op.width.read(text, op.offset)));
    write_answers(out, &operations.iter().map(read).collect::<Vec<_>>());
    Ok(())
}

fn write_answers(out: &mut OutBuf, answers: &[Option<i64>]) {
    reply::array(out, answers.len());
    for answer in answers {
        match answer {
            Some(n) => reply::int(out, *n),
            None => reply::nil(out),
        }
    }
}

fn parse(args: &Args<'_>, string_bytes_max: usize) -> Result<Vec<Operation>, CommandError> {
    let mut operations = Vec::new();
    let mut overflow = Overflow::Wrap;
    let mut at = 2;
    while at < args.len() {
        let (word, left) = (&args[at], args.len() - at - 1);
        if arg::is(word, "overflow") && left >= 1 {
            overflow = parse_overflow(&args[at + 1])?;
            at += 2;
            continue;
        }
        let wants_value = arg::is(word, "set") || arg::is(word, "incrby");
        if !(wants_value && left >= 3 || arg::is(word, "get") && left >= 2) {
            return Err(CommandError::Syntax);
        }
        let width = parse_width(&args[at + 1]).ok_or(CommandError::BitfieldType)?;
        let offset = parse_offset(&args[at + 2], Some(width.bits.into()), string_bytes_max)?;
        let action = match wants_value {
            false => Action::Get,
            true if arg::is(word, "set") => Action::Set(arg::int(args, at + 3)?),
            true => Action::Add(arg::int(args, at + 3)?),
        };
        operations.push(Operation { action, width, offset, overflow });
        at += if wants_value { 4 } else { 3 };
    }
    Ok(operations)
}

fn parse_overflow(word: &[u8]) -> Result<Overflow, CommandError> {
    match () {
        () if arg::is(word, "wrap") => Ok(Overflow::Wrap),
        () if arg::is(word, "sat") => Ok(Overflow::Saturate),
        () if arg::is(word, "fail") => Ok(Overflow::Fail),
        () => Err(CommandError::BitfieldOverflow),
    }
}

fn parse_width(text: &[u8]) -> Option<Width> {
    let (signed, bits, max) = match text {
        [b'i', bits @ ..] => (true, bits, 64),
        [b'u', bits @ ..] => (false, bits, 63),
        _ => return None,
    };
    let bits = parse_i64(bits).filter(|n| (1..=max).contains(n))?;
    Some(Width { signed, bits: bits as u32 })
}

impl Operation {
    /// Runs the operation; `None` when the value did not fit and was to fail.
    fn run(&self, bytes: &mut [u8]) -> Option<i64> {
        let old = self.width.read(bytes, self.offset);
        let wanted = match self.action {
            Action::Get => return Some(self.width.shown(old)),
            // An unsigned field takes a negative number as the large one with the same bits.
            Action::Set(value) if self.width.signed => i128::from(value),
            Action::Set(value) => i128::from(value as u64),
            Action::Add(by) => self.width.value(old) + i128::from(by),
        };
        let (min, max) = self.width.limits();
        let new = match self.overflow {
            _ if (min..=max).contains(&wanted) => wanted,
            Overflow::Wrap => wanted,
            Overflow::Saturate => wanted.clamp(min, max),
            Overflow::Fail => return None,
        };
        self.width.write(bytes, self.offset, new as u64);
        let new = new as u64 & self.width.mask();
        match self.action {
            Action::Add(_) => Some(self.width.shown(new)),
            Action::Get | Action::Set(_) => Some(self.width.shown(old)),
        }
    }
}

impl Width {
    fn mask(self) -> u64 {
        u64::MAX >> (64 - self.bits)
    }

    fn limits(self) -> (i128, i128) {
        match self.signed {
            true => (-(1i128 << (self.bits - 1)), (1i128 << (self.bits - 1)) - 1),
            false => (0, (1i128 << self.bits) - 1),
        }
    }

    /// The number that these bits mean.
    fn value(self, raw: u64) -> i128 {
        i128::from(self.shown(raw))
    }

    /// The number that these bits mean; unsigned fields have 63 bits at most.
    fn shown(self, raw: u64) -> i64 {
        match self.signed {
            true => (raw << (64 - self.bits)) as i64 >> (64 - self.bits),
            false => raw as i64,
        }
    }

    /// The field's bits; what lies behind the end of the string is 0.
    fn read(self, bytes: &[u8], offset: u64) -> u64 {
        let bit = |at: u64| {
            let byte = bytes.get((at >> 3) as usize).copied().unwrap_or(0);
            u64::from(byte << (at & 7) >> 7)
        };
        (offset..offset + u64::from(self.bits)).fold(0, |raw, at| raw << 1 | bit(at))
    }

    fn write(self, bytes: &mut [u8], offset: u64, raw: u64) {
        for n in 0..u64::from(self.bits) {
            let at = offset + n;
            let on = raw >> (u64::from(self.bits) - 1 - n) & 1 == 1;
            let (byte, mask) = (&mut bytes[(at >> 3) as usize], 0x80u8 >> (at & 7));
            *byte = if on { *byte | mask } else { *byte & !mask };
        }
    }
}
