//! What a command of the store can answer instead of a result.
//!
//! The texts are those of redis-server 7.0, because clients match on them; the differential test
//! compares every one. A command that returns an error has changed nothing.

use crate::proto::args::Args;

/// An error reply; its `Display` is the line after the minus sign.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum CommandError {
    #[error("WRONGTYPE Operation against a key holding the wrong kind of value")]
    WrongType,
    #[error("ERR syntax error")]
    Syntax,
    #[error("ERR wrong number of arguments for '{0}' command")]
    Arity(&'static str),
    #[error("ERR value is not an integer or out of range")]
    NotInteger,
    #[error("ERR value is out of range")]
    OutOfRange,
    #[error("ERR value is out of range, must be positive")]
    NotPositive,
    #[error("ERR value is out of range, value must between {0} and {1}")]
    NotInRange(i64, i64),
    #[error("ERR value is not a valid float")]
    NotFloat,
    #[error("ERR increment or decrement would overflow")]
    CounterOverflow,
    #[error("ERR decrement would overflow")]
    DecrementOverflow,
    #[error("ERR increment would produce NaN or Infinity")]
    FloatOverflow,
    #[error("ERR value is NaN or Infinity")]
    FloatNotFinite,
    #[error("ERR hash value is not an integer")]
    HashNotInteger,
    #[error("ERR hash value is not a float")]
    HashNotFloat,
    #[error("ERR invalid expire time in '{0}' command")]
    ExpireTime(&'static str),
    #[error("ERR NX and XX, GT or LT options at the same time are not compatible")]
    ExpireNxWithOther,
    #[error("ERR GT and LT options at the same time are not compatible")]
    ExpireGtWithLt,
    #[error("ERR no such key")]
    NoSuchKey,
    #[error("ERR index out of range")]
    IndexOutOfRange,
    #[error("ERR offset is out of range")]
    OffsetOutOfRange,
    #[error("ERR string exceeds maximum allowed size (proto-max-bulk-len)")]
    StringTooLong,
    #[error("ERR bit offset is not an integer or out of range")]
    BitOffset,
    #[error("ERR bit is not an integer or out of range")]
    BitValue,
    #[error("ERR The bit argument must be 1 or 0.")]
    BitArgument,
    #[error("ERR BITOP NOT must be called with a single source key.")]
    BitopNot,
    #[error(
        "ERR Invalid bitfield type. Use something like i16 u8. \
         Note that u64 is not supported but i64 is."
    )]
    BitfieldType,
    #[error("ERR Invalid OVERFLOW type specified")]
    BitfieldOverflow,
    #[error("ERR BITFIELD_RO only supports the GET subcommand")]
    BitfieldReadOnly,
    #[error("ERR The specified keys must contain string values")]
    LcsType,
    #[error("ERR If you want both the length and indexes, please just use IDX.")]
    LcsLenAndIdx,
    #[error("ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len")]
    LcsMemory,
    #[error("ERR timeout is not a float or out of range")]
    TimeoutNotFloat,
    #[error("ERR timeout is negative")]
    TimeoutNegative,
    #[error("ERR invalid cursor")]
    Cursor,
    #[error("ERR source and destination objects are the same")]
    SameObject,
    #[error("ERR DB index is out of range")]
    DbIndex,
    #[error("ERR numkeys should be greater than 0")]
    NumkeysZero,
    #[error("ERR Number of keys can't be greater than number of args")]
    NumkeysTooMany,
    #[error("ERR at least 1 input key is needed for '{0}' command")]
    NoInputKeys(&'static str),
    #[error("ERR LIMIT can't be negative")]
    LimitNegative,
    #[error("ERR count should be greater than 0")]
    CountZero,
    #[error("ERR COUNT can't be negative")]
    CountNegative,
    #[error("ERR MAXLEN can't be negative")]
    MaxlenNegative,
    #[error(
        "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... \
         or use negative to start from the end of the list"
    )]
    RankZero,
    #[error("ERR XX and NX options at the same time are not compatible")]
    ZaddXxNx,
    #[error("ERR GT, LT, and/or NX options at the same time are not compatible")]
    ZaddGtLtNx,
    #[error("ERR INCR option supports a single increment-element pair")]
    ZaddIncrPair,
    #[error("ERR resulting score is not a number (NaN)")]
    ScoreNan,
    #[error("ERR min or max is not a float")]
    RangeNotFloat,
    #[error("ERR min or max not valid string range item")]
    RangeNotLex,
    #[error("ERR weight value is not a float")]
    WeightNotFloat,
    #[error(
        "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX"
    )]
    LimitWithoutBy,
    #[error("ERR syntax error, WITHSCORES not supported in combination with BYLEX")]
    WithscoresByLex,
    #[error("ERR One or more scores can't be converted into double")]
    SortNotFloat,
    #[error(
        "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note \
         that when switching between policies at runtime LRU and LFU data will take some time to \
         adjust."
    )]
    NoLfu,
    #[error("OOM command not allowed when used memory > 'maxmemory'.")]
    OutOfMemory,
    #[error("ERR Bad data format")]
    DumpFormat,
    #[error("ERR DUMP payload version or checksum are wrong")]
    DumpChecksum,
    #[error("ERR Invalid TTL value, must be >= 0")]
    RestoreTtl,
    #[error("ERR Invalid IDLETIME value, must be >= 0")]
    RestoreIdle,
    #[error("ERR Invalid FREQ value, must be >= 0 and <= 255")]
    RestoreFreq,
    #[error("BUSYKEY Target key name already exists.")]
    BusyKey,
    /// A text that shows bytes the client sent, which need not be UTF-8.
    #[error("{}", String::from_utf8_lossy(.0))]
    Quoting(Vec<u8>),
    #[error("ERR scripts are not supported by the embedded store")]
    NoScripts,
    #[error("ERR Mandatory argument {0} is missing or not at the right position")]
    MissingArgument(&'static str),
    #[error("ERR Parameter `numFields` should be greater than 0")]
    NumFieldsZero,
    #[error("ERR The `numfields` parameter must match the number of arguments")]
    NumFieldsMismatch,
    #[error("ERR invalid expire time, must be >= 0")]
    FieldExpireNegative,
}

impl CommandError {
    /// The text as it goes to the client.
    pub(super) fn text(&self) -> Vec<u8> {
        match self {
            CommandError::Quoting(text) => text.clone(),
            other => other.to_string().into_bytes(),
        }
    }

    /// An option that a command does not know.
    pub(super) fn unsupported_option(option: &[u8]) -> CommandError {
        CommandError::Quoting([b"ERR Unsupported option ", option].concat())
    }

    /// A subcommand that a command does not know.
    pub(super) fn unknown_subcommand(word: &[u8], command: &str) -> CommandError {
        let word = &word[..word.len().min(QUOTED_MAX)];
        let help = format!("'. Try {command} HELP.");
        CommandError::Quoting([b"ERR unknown subcommand '", word, help.as_bytes()].concat())
    }

    /// A command that the store does not know, with as much of its arguments as Redis shows.
    pub(super) fn unknown_command(args: &Args<'_>) -> CommandError {
        let cut = |arg: &'_ [u8], max: usize| {
            let end = arg.iter().position(|&b| b == 0).unwrap_or(arg.len());
            arg[..end.min(max)].to_vec()
        };
        let mut shown = Vec::new();
        for arg in args.tail(1).iter() {
            if shown.len() >= QUOTED_MAX {
                break;
            }
            let arg = cut(arg, QUOTED_MAX - shown.len());
            shown.extend_from_slice(&[b"'", arg.as_slice(), b"' "].concat());
        }
        let name = cut(args.get(0).unwrap_or_default(), QUOTED_MAX);
        let parts = [b"ERR unknown command '", &name[..], b"', with args beginning with: ", &shown];
        CommandError::Quoting(parts.concat())
    }
}

/// Most bytes of the client's that an error text shows.
const QUOTED_MAX: usize = 128;

/// What every command returns: its reply is in the output, or nothing is.
pub(super) type CommandResult = Result<(), CommandError>;
