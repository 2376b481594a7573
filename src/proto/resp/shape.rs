//! What kind of RESP3 reply a command has, decided from its arguments when it is planned.
//!
//! Measured against redis-server 7.0 on a RESP3 connection; commands that are newer follow the
//! documented replies.

use crate::proto::args::Args;
use crate::proto::command::KeySpec;

/// How a RESP2 reply is turned into RESP3. One byte, kept with each request in flight.
///
/// Whatever the shape, nulls become the RESP3 null, and errors stay as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Shape {
    /// Only nulls change.
    #[default]
    Same,
    /// A flat list of keys and values becomes a map.
    Map,
    /// An array of such lists becomes an array of maps.
    Maps,
    /// An array becomes a set.
    Set,
    /// A bulk string becomes a double.
    Double,
    /// So does each element of an array.
    Doubles,
    /// A flat list becomes an array of pairs.
    Pairs,
    /// A map in which the value of `flags` is a set.
    FlagMap,
    /// A flat list of members and scores becomes an array of pairs with a double.
    ScorePairs,
    /// The last of two or three elements is a score: a double.
    LastScore,
    /// A key and an array of members with scores: ZMPOP.
    KeyScorePairs,
    /// An array of coordinate pairs: doubles.
    Coordinates,
    /// An array of hits of a geo search, in which the only arrays are coordinates.
    GeoHits,
    /// An array of streams with their entries becomes a map.
    Streams,
    /// An array of arrays of [key, value] becomes an array of maps: TORC.WHERE.
    EntryMaps,
    /// An array of [key, value, value, ...] becomes a map from key to the array of values:
    /// TORC.PREFIX.
    Rows,
    /// XINFO STREAM ... FULL.
    StreamFull,
    /// A bulk string becomes a verbatim string.
    Verbatim,
    /// A map whose strings are doubles and whose arrays are maps: MEMORY STATS.
    Stats,
    /// FUNCTION LIST.
    FunctionList,
    /// A map of maps: FUNCTION STATS.
    MapOfMaps,
    /// LATENCY HISTOGRAM.
    Histograms,
    /// COMMAND and COMMAND INFO.
    Commands,
    /// COMMAND DOCS.
    CommandDocs,
    /// COMMAND GETKEYSANDFLAGS.
    KeysAndFlags,
}

/// How a command's [`Shape`] follows from its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShapeRule {
    /// Always this one.
    Is(Shape),
    /// `then` when the option stands at argument `from` or later, behind the keys.
    Option {
        /// The option, in lower case.
        word: &'static str,
        /// The first place it can have.
        from: u8,
        /// The shape with it.
        then: Shape,
    },
    /// `then` when there are at least `len` arguments, else `or`.
    Len {
        /// Arguments with the command name.
        len: u8,
        /// The shape with that many.
        then: Shape,
        /// The shape with fewer.
        or: Shape,
    },
    /// ZADD answers a score with INCR.
    ZaddIncr,
    /// A geo search with coordinates.
    GeoSearch,
    /// XINFO STREAM.
    StreamInfo,
}

impl ShapeRule {
    /// The shape for given arguments; `keys` is the command's column.
    #[inline]
    pub fn of(self, args: &Args<'_>, keys: KeySpec) -> Shape {
        match self {
            ShapeRule::Is(shape) => shape,
            ShapeRule::Option { word, from, then } => {
                let from = match keys {
                    KeySpec::NumKeys { .. } => keys.keys(args).last().map_or(1, |key| key + 1),
                    _ => usize::from(from),
                };
                if has_word(args, from, word) { then } else { Shape::Same }
            }
            ShapeRule::Len { len, then, or } => {
                if args.len() >= usize::from(len) {
                    then
                } else {
                    or
                }
            }
            ShapeRule::ZaddIncr => zadd_incr(args),
            ShapeRule::GeoSearch => geo_search(args),
            ShapeRule::StreamInfo => {
                if has_word(args, 3, "full") {
                    Shape::StreamFull
                } else {
                    Shape::Map
                }
            }
        }
    }
}

fn has_word(args: &Args<'_>, from: usize, word: &str) -> bool {
    args.tail(from).iter().any(|arg| arg.eq_ignore_ascii_case(word.as_bytes()))
}

/// The options stand before the first score.
fn zadd_incr(args: &Args<'_>) -> Shape {
    for arg in args.tail(2).iter() {
        if arg.eq_ignore_ascii_case(b"incr") {
            return Shape::Double;
        }
        if !["nx", "xx", "gt", "lt", "ch"].iter().any(|o| arg.eq_ignore_ascii_case(o.as_bytes())) {
            break;
        }
    }
    Shape::Same
}

/// The member after FROMMEMBER may have any name.
fn geo_search(args: &Args<'_>) -> Shape {
    let mut words = args.tail(2).iter();
    while let Some(word) = words.next() {
        if word.eq_ignore_ascii_case(b"withcoord") {
            return Shape::GeoHits;
        }
        if word.eq_ignore_ascii_case(b"frommember") {
            words.next();
        }
    }
    Shape::Same
}
