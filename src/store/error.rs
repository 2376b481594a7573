//! What a command of the store can answer instead of a result.
//!
//! The texts are those of redis-server 7.0, because clients match on them; the differential test
//! compares every one. A command that returns an error has changed nothing.

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
    #[error("ERR Unsupported option {0}")]
    UnsupportedOption(String),
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
    #[error("ERR Number of keys can't be negative")]
    NumkeysNegative,
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
    #[error("ERR {0} option of SORT is not supported by the embedded store")]
    SortPattern(&'static str),
    #[error("ERR Unknown subcommand or wrong number of arguments for '{0}'. Try {1} HELP.")]
    Subcommand(String, &'static str),
    #[error("ERR unknown subcommand '{0}'. Try {1} HELP.")]
    UnknownSubcommand(String, &'static str),
    #[error(
        "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note \
         that when switching between policies at runtime LRU and LFU data will take some time to \
         adjust."
    )]
    NoLfu,
    #[error("OOM command not allowed when used memory > 'maxmemory'.")]
    OutOfMemory,
    #[error("ERR unknown command '{0}', with args beginning with: {1}")]
    UnknownCommand(String, String),
    #[error("ERR scripts are not supported by the embedded store")]
    NoScripts,
    #[error("ERR {0} is not supported by the embedded store")]
    Unsupported(&'static str),
    #[error("ERR Mandatory argument {0} is missing or not at the right position")]
    MissingArgument(&'static str),
    #[error("ERR Parameter `numFields` should be greater than 0")]
    NumFieldsZero,
    #[error("ERR The `numfields` parameter must match the number of arguments")]
    NumFieldsMismatch,
    #[error("ERR invalid expire time, must be >= 0")]
    FieldExpireNegative,
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
}

/// What every command returns: its reply is in the output, or nothing is.
pub(super) type CommandResult = Result<(), CommandError>;
