//! Strings as arrays of bits; bit 0 is the highest bit of the first byte.

use crate::proto::args::Args;
use crate::proto::outbuf::OutBuf;

use super::arg;
use super::blob::Blob;
use super::command::{Command, Effect::*, Keys::*, row};
use super::db::{Db, Edit};
use super::error::{CommandError, CommandResult};
use super::format::parse_i64;
use super::reply;
use super::value::Value;

pub(super) const COMMANDS: &[Command] = &[
    row("setbit", 4, One, Grow, setbit),
    row("getbit", 3, One, Read, getbit),
    row("bitcount", -2, One, Read, bitcount),
    row("bitpos", -3, One, Read, bitpos),
    row("bitop", -4, From(2), Grow, bitop),
];

/// A bit offset: `#n` counts fields of `width` bits where that is allowed. The byte it names must
/// fit into the longest string.
pub(super) fn parse_offset(
    text: &[u8],
    width: Option<u64>,
    string_bytes_max: usize,
) -> Result<u64, CommandError> {
    let (number, factor) = match (text, width) {
        ([b'#', rest @ ..], Some(width)) => (rest, width),
        _ => (text, 1),
    };
    parse_i64(number)
        .and_then(|n| u64::try_from(n).ok())
        .and_then(|n| n.checked_mul(factor))
        .filter(|bit| bit >> 3 < string_bytes_max as u64)
        .ok_or(CommandError::BitOffset)
}

fn setbit(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let offset = parse_offset(&args[2], None, db.string_bytes_max())?;
    let on = match parse_i64(&args[3]) {
        Some(0) => false,
        Some(1) => true,
        Some(_) | None => return Err(CommandError::BitValue),
    };
    let was = db.edit(&args[1], |text: &mut Blob| {
        let bytes = text.make_mut();
        let (at, mask) = ((offset >> 3) as usize, 0x80u8 >> (offset & 7));
        if bytes.len() <= at {
            bytes.resize(at + 1, 0);
        }
        let was = bytes[at] & mask != 0;
        bytes[at] = if on { bytes[at] | mask } else { bytes[at] & !mask };
        Ok(Edit::Changed(was))
    })?;
    reply::int(out, i64::from(was));
    Ok(())
}

fn getbit(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let offset = parse_offset(&args[2], None, db.string_bytes_max())?;
    let text = db.read::<Blob>(&args[1])?.map_or(&b""[..], Blob::as_slice);
    let byte = text.get((offset >> 3) as usize).copied().unwrap_or(0);
    reply::int(out, i64::from(byte << (offset & 7) >> 7));
    Ok(())
}

/// Reads the unit of a range: bits or bytes.
fn is_bits(word: &[u8]) -> Result<bool, CommandError> {
    match () {
        () if arg::is(word, "bit") => Ok(true),
        () if arg::is(word, "byte") => Ok(false),
        () => Err(CommandError::Syntax),
    }
}

/// First and last bit of a range as these commands read it: ends before the start of the string
/// are moved to it. `None` when the range is empty.
fn bit_range(start: i64, end: i64, bits: bool, len: usize) -> Option<(usize, usize)> {
    let total = if bits { len as i64 * 8 } else { len as i64 };
    let clamp = |n: i64| {
        if n < 0 { n.saturating_add(total).max(0) } else { n }
    };
    let (start, end) = (clamp(start), clamp(end).min(total - 1));
    if start > end {
        return None;
    }
    let (start, end) = (start as usize, end as usize);
    Some(if bits { (start, end) } else { (start * 8, end * 8 + 7) })
}

fn bitcount(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let Some(text) = db.read::<Blob>(&args[1])? else {
        reply::int(out, 0);
        return Ok(());
    };
    let range = match args.len() {
        2 => bit_range(0, -1, false, text.len()),
        4 | 5 => {
            let (start, end) = (arg::int(args, 2)?, arg::int(args, 3)?);
            let bits = args.get(4).map_or(Ok(false), is_bits);
            match start < 0 && end < 0 && start > end {
                true => None,
                false => bit_range(start, end, bits?, text.len()),
            }
        }
        _ => return Err(CommandError::Syntax),
    };
    let ones = range.map_or(0, |(first, last)| count_ones(text.as_slice(), first, last));
    reply::int(out, ones as i64);
    Ok(())
}

fn count_ones(text: &[u8], first: usize, last: usize) -> u64 {
    let bytes = &text[first / 8..=last / 8];
    let (words, rest) = bytes.as_chunks::<8>();
    let words = words.iter().map(|w| u64::from(u64::from_ne_bytes(*w).count_ones()));
    let rest = rest.iter().map(|b| u64::from(b.count_ones()));
    let before = text[first / 8] & !(0xff >> (first % 8));
    let after = text[last / 8] & !(0xff << (7 - last % 8));
    words.sum::<u64>() + rest.sum::<u64>()
        - u64::from(before.count_ones())
        - u64::from(after.count_ones())
}

fn bitpos(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let wanted = match arg::int(args, 2)? {
        0 => false,
        1 => true,
        _ => return Err(CommandError::BitArgument),
    };
    let Some(text) = db.read::<Blob>(&args[1])? else {
        reply::int(out, if wanted { -1 } else { 0 });
        return Ok(());
    };
    let range = match args.len() {
        3 => bit_range(0, -1, false, text.len()),
        4..=6 => {
            let start = arg::int(args, 3)?;
            let bits = args.get(5).map_or(Ok(false), is_bits)?;
            let end = if args.len() >= 5 { arg::int(args, 4)? } else { -1 };
            bit_range(start, end, bits, text.len())
        }
        _ => return Err(CommandError::Syntax),
    };
    let found = range.map(|(first, last)| find_bit(text.as_slice(), first, last, wanted));
    let answer = match found {
        None => -1,
        Some(Some(at)) => at as i64,
        // Without an end the string goes on with zeros.
        Some(None) if !wanted && args.len() < 5 => text.len() as i64 * 8,
        Some(None) => -1,
    };
    reply::int(out, answer);
    Ok(())
}

fn find_bit(text: &[u8], first: usize, last: usize, wanted: bool) -> Option<usize> {
    let skip = if wanted { 0x00 } else { 0xff };
    let mut at = first;
    while at <= last {
        if at.is_multiple_of(8) {
            let whole = text[at / 8..=last / 8].iter().take_while(|&&b| b == skip).count();
            at += whole * 8;
            if at > last {
                return None;
            }
        }
        if (text[at / 8] << (at % 8) >> 7 == 1) == wanted {
            return Some(at);
        }
        at += 1;
    }
    None
}

fn bitop(db: &mut Db<'_>, args: &Args<'_>, out: &mut OutBuf) -> CommandResult {
    let combine: fn(u8, u8) -> u8 = match args[1].to_ascii_lowercase().as_slice() {
        b"and" => |a, b| a & b,
        b"or" => |a, b| a | b,
        b"xor" => |a, b| a ^ b,
        b"not" if args.len() != 4 => return Err(CommandError::BitopNot),
        b"not" => |a, _| !a,
        _ => return Err(CommandError::Syntax),
    };
    let mut result: Vec<u8> = Vec::new();
    let not = arg::is(&args[1], "not");
    for (number, key) in args.tail(3).iter().enumerate() {
        let text = db.read::<Blob>(key)?.map_or(&b""[..], Blob::as_slice);
        if number == 0 {
            result = text.to_vec();
            continue;
        }
        result.resize(result.len().max(text.len()), 0);
        let padded = text.iter().copied().chain(std::iter::repeat(0));
        result.iter_mut().zip(padded).for_each(|(a, b)| *a = combine(*a, b));
    }
    if not {
        result.iter_mut().for_each(|a| *a = combine(*a, 0));
    }
    let len = result.len();
    match len {
        0 => drop(db.remove(&args[2])),
        _ => drop(db.put(&args[2], Value::Str(Blob::from_vec(result)))),
    }
    reply::count(out, len);
    Ok(())
}
