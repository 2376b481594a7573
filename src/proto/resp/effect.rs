//! What the replicas of a write get (decision: `verbatim`, `absolute`, `primary_first`).
//!
//! A write that has more than one target must do the same on each. One that names a time
//! relative to now names a point in time instead; one whose outcome depends on what is stored or
//! on chance runs on one replica, and the others get its outcome.

use crate::proto::args::Args;
use crate::proto::command::{Effect, KeySpec};

/// The rule by which a command's effect is found. The variants are the commands that need one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EffectRule {
    /// The same bytes for all.
    Verbatim,
    /// SET: EX and PX are relative; NX, XX, GET and IFEQ depend on what is stored.
    Set,
    /// SETEX.
    SetEx,
    /// PSETEX.
    PSetEx,
    /// GETEX: EX and PX are relative.
    GetEx,
    /// HGETEX, likewise.
    HGetEx,
    /// HSETEX: so they are here, and FNX and FXX depend on what is stored.
    HSetEx,
    /// MSETEX: EX and PX are relative, NX and XX depend on what is stored.
    MSetEx,
    /// EXPIRE.
    Expire,
    /// PEXPIRE.
    PExpire,
    /// HEXPIRE.
    HExpire,
    /// HPEXPIRE.
    HPExpire,
    /// RESTORE: its time to live is relative without ABSTTL.
    Restore,
    /// SETNX.
    SetNx,
    /// HSETNX.
    HSetNx,
    /// MSETNX.
    MSetNx,
    /// SPOP.
    SPop,
    /// XADD: an id may be left to the store.
    XAdd,
    /// XREADGROUP: what is delivered to one consumer.
    XReadGroup,
    /// XCLAIM: depends on how long entries were idle.
    XClaim,
    /// XAUTOCLAIM, likewise.
    XAutoClaim,
    /// BLPOP.
    BLPop,
    /// BRPOP.
    BRPop,
    /// BLMOVE.
    BLMove,
    /// BRPOPLPUSH.
    BRPopLPush,
    /// BLMPOP.
    BLMPop,
    /// BZPOPMIN, BZPOPMAX.
    BZPop,
    /// BZMPOP.
    BZMPop,
}

impl EffectRule {
    /// The effect of a command with these arguments.
    #[inline]
    pub fn of(self, args: &Args<'_>) -> Effect {
        match self {
            EffectRule::Verbatim => Effect::Verbatim,
            EffectRule::Set => conditional_or_relative(args, 3, args.len()),
            EffectRule::XAdd => xadd(args),
            EffectRule::GetEx => conditional_or_relative(args, 2, args.len()),
            EffectRule::HGetEx | EffectRule::HSetEx => {
                conditional_or_relative(args, 2, fields_word(args))
            }
            EffectRule::MSetEx => conditional_or_relative(args, msetex_options(args), args.len()),
            EffectRule::Restore => {
                let absolute = args.tail(4).iter().any(|a| a.eq_ignore_ascii_case(b"absttl"));
                let forever = args.get(2).is_some_and(|ttl| ttl == b"0");
                if absolute || forever { Effect::Verbatim } else { Effect::Absolute }
            }
            EffectRule::SetEx
            | EffectRule::PSetEx
            | EffectRule::Expire
            | EffectRule::PExpire
            | EffectRule::HExpire
            | EffectRule::HPExpire => Effect::Absolute,
            EffectRule::SetNx
            | EffectRule::HSetNx
            | EffectRule::MSetNx
            | EffectRule::SPop
            | EffectRule::XReadGroup
            | EffectRule::XClaim
            | EffectRule::XAutoClaim
            | EffectRule::BLPop
            | EffectRule::BRPop
            | EffectRule::BLMove
            | EffectRule::BRPopLPush
            | EffectRule::BLMPop
            | EffectRule::BZPop
            | EffectRule::BZMPop => Effect::PrimaryFirst,
        }
    }
}

/// The effect of options among the arguments from `from` to `end`: EX and PX are relative, the
/// others that count depend on what is stored.
fn conditional_or_relative(args: &Args<'_>, from: usize, end: usize) -> Effect {
    let mut effect = Effect::Verbatim;
    for i in from..end {
        match Word::of(&args[i]) {
            Word::Condition => return Effect::PrimaryFirst,
            Word::Seconds | Word::Millis => effect = Effect::Absolute,
            Word::Other => {}
        }
    }
    effect
}

/// What an option of the SET family means here.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    /// EX.
    Seconds,
    /// PX.
    Millis,
    /// NX, XX, FNX, FXX, GET, IFEQ, IFNE, IFDEQ, IFDNE.
    Condition,
    /// Anything else.
    Other,
}

impl Word {
    pub(super) fn of(word: &[u8]) -> Word {
        let is = |other: &[u8]| word.eq_ignore_ascii_case(other);
        match word.len() {
            2 if is(b"ex") => Word::Seconds,
            2 if is(b"px") => Word::Millis,
            2 if is(b"nx") || is(b"xx") => Word::Condition,
            3 if is(b"get") || is(b"fnx") || is(b"fxx") => Word::Condition,
            4 if is(b"ifeq") || is(b"ifne") => Word::Condition,
            5 if is(b"ifdeq") || is(b"ifdne") => Word::Condition,
            _ => Word::Other,
        }
    }
}

/// The place of the word FIELDS, or the end.
pub(super) fn fields_word(args: &Args<'_>) -> usize {
    let found = (2..args.len()).find(|&i| args[i].eq_ignore_ascii_case(b"fields"));
    found.unwrap_or(args.len())
}

/// Where the options of MSETEX begin: behind the pairs.
pub(super) fn msetex_options(args: &Args<'_>) -> usize {
    let keys = KeySpec::NumKeys { at: 1, step: 2 }.keys(args);
    keys.last().map_or(args.len(), |key| key + 2)
}

/// The place of the id among XADD's arguments: behind the options.
pub(super) fn xadd_id(args: &Args<'_>) -> Option<usize> {
    let mut i = 2;
    while let Some(word) = args.get(i) {
        if word.eq_ignore_ascii_case(b"nomkstream") {
            i += 1;
        } else if word.eq_ignore_ascii_case(b"maxlen") || word.eq_ignore_ascii_case(b"minid") {
            let marked = args.get(i + 1).is_some_and(|m| m == b"~" || m == b"=");
            i += if marked { 3 } else { 2 };
        } else if word.eq_ignore_ascii_case(b"limit") {
            i += 2;
        } else if ["keepref", "delref", "acked"]
            .iter()
            .any(|o| word.eq_ignore_ascii_case(o.as_bytes()))
        {
            i += 1;
        } else {
            return Some(i);
        }
    }
    None
}

fn xadd(args: &Args<'_>) -> Effect {
    match xadd_id(args).and_then(|i| args[i].last()) {
        Some(b'*') => Effect::PrimaryFirst,
        _ => Effect::Verbatim,
    }
}
