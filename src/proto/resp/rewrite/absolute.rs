//! Relative times become points in time, so that all replicas forget a key at the same moment.

use super::super::effect::{self, EffectRule, Word};
use super::super::spec::CommandSpec;
use super::{Words, integer};
use crate::proto::args::Args;

/// Appends the command with its relative time made absolute. `now_ms` is Unix time.
///
/// False, and nothing is appended, when there is no relative time in it, or none that Redis would
/// take, or one that has already passed (which deletes at once, everywhere): then the command is
/// sent as it came. The store must know PXAT (Redis 6.2) except for the EXPIRE family.
pub fn absolute(spec: &CommandSpec, args: &Args<'_>, now_ms: u64, out: &mut Vec<u8>) -> bool {
    let Some(words) = rewritten(spec.effect, args, now_ms) else {
        return false;
    };
    words.write(out);
    true
}

fn rewritten<'a>(rule: EffectRule, args: &Args<'a>, now_ms: u64) -> Option<Words<'a>> {
    let seconds = |i: usize| moment(args.get(i)?, 1000, now_ms);
    let millis = |i: usize| moment(args.get(i)?, 1, now_ms);
    match rule {
        EffectRule::Set => options(args, 3, args.len(), now_ms),
        EffectRule::GetEx => options(args, 2, args.len(), now_ms),
        EffectRule::HGetEx | EffectRule::HSetEx => {
            options(args, 2, effect::fields_word(args), now_ms)
        }
        EffectRule::MSetEx => options(args, effect::msetex_options(args), args.len(), now_ms),
        EffectRule::SetEx => set_at(args, seconds(2)?),
        EffectRule::PSetEx => set_at(args, millis(2)?),
        EffectRule::Expire => at(b"PEXPIREAT", args, seconds(2)?),
        EffectRule::PExpire => at(b"PEXPIREAT", args, millis(2)?),
        EffectRule::HExpire => at(b"HPEXPIREAT", args, seconds(2)?),
        EffectRule::HPExpire => at(b"HPEXPIREAT", args, millis(2)?),
        EffectRule::Restore => {
            let mut words = at(b"RESTORE", args, millis(2)?)?;
            words.push(b"ABSTTL");
            Some(words)
        }
        EffectRule::Verbatim
        | EffectRule::SetNx
        | EffectRule::HSetNx
        | EffectRule::MSetNx
        | EffectRule::SPop
        | EffectRule::XAdd
        | EffectRule::XReadGroup
        | EffectRule::XClaim
        | EffectRule::XAutoClaim
        | EffectRule::BLPop
        | EffectRule::BRPop
        | EffectRule::BLMove
        | EffectRule::BRPopLPush
        | EffectRule::BLMPop
        | EffectRule::BZPop
        | EffectRule::BZMPop => None,
    }
}

/// The point in time of a duration, in Unix milliseconds; `None` unless it lies ahead.
pub(super) fn moment(duration: &[u8], unit_ms: i64, now_ms: u64) -> Option<i64> {
    let duration = integer(duration).filter(|n| *n > 0)?;
    duration.checked_mul(unit_ms)?.checked_add(i64::try_from(now_ms).ok()?)
}

/// EX and PX among the words from `from` to `end` become PXAT.
fn options<'a>(args: &Args<'a>, from: usize, end: usize, now_ms: u64) -> Option<Words<'a>> {
    let mut words = Words::default();
    let mut found = false;
    let mut i = 0;
    while let Some(word) = args.get(i) {
        let unit_ms = match Word::of(word) {
            Word::Seconds if (from..end).contains(&i) => 1000,
            Word::Millis if (from..end).contains(&i) => 1,
            _ => {
                words.push(word);
                i += 1;
                continue;
            }
        };
        words.push(b"PXAT").push_number(moment(args.get(i + 1)?, unit_ms, now_ms)?);
        found = true;
        i += 2;
    }
    found.then_some(words)
}

/// SETEX and PSETEX: `SET key value PXAT t`.
fn set_at<'a>(args: &Args<'a>, at_ms: i64) -> Option<Words<'a>> {
    let mut words = Words::of(&[b"SET", args.get(1)?, args.get(3)?, b"PXAT"]);
    words.push_number(at_ms);
    Some(words)
}

/// `verb key t`, and what follows the time.
fn at<'a>(verb: &'static [u8], args: &Args<'a>, at_ms: i64) -> Option<Words<'a>> {
    let mut words = Words::of(&[verb, args.get(1)?]);
    words.push_number(at_ms).extend(args.tail(3).iter());
    Some(words)
}
