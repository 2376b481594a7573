//! Commands on keys, by data type.

use super::super::effect::EffectRule as Fx;
use super::super::key_use::{
    self, ADDS, ASKS, CHANGES, CHANGES_AND_TELLS, COUNTS, KeyUse, MAKES, MERGES, POPS, READS,
    REMOVES, REPLACES, TAKES_AWAY,
};
use super::super::shape::{Shape, ShapeRule};
use super::super::spec::{ANY, CommandSpec, admin, container, read, refused, write};
use crate::proto::args::Args;
use crate::proto::command::Class::{self, Read, Write};
use crate::proto::command::Compare::{First as Any, Unordered, UnorderedPairs};
use crate::proto::command::KeySpec::{
    self, DestNumKeys, First, FirstAndStore, None as NoKey, NumKeys, Range, Streams,
};
use crate::proto::command::Merge::{Mget, Mset, SumInts};
use crate::proto::command::Routing::{self, Blocking, Keyed, Ring};
use crate::proto::command::TowardC::{Eval, Refuse, Rewrite};
use crate::proto::command::store_word;

const ALL: KeySpec = Range { first: 1, last: -1, step: 1 };
const PAIRS: KeySpec = Range { first: 1, last: -1, step: 2 };
const BOTH: KeySpec = Range { first: 1, last: 2, step: 1 };
const SECOND: KeySpec = Range { first: 2, last: 2, step: 1 };
const FROM_SECOND: KeySpec = Range { first: 2, last: -1, step: 1 };
const BUT_LAST: KeySpec = Range { first: 1, last: -2, step: 1 };
const COUNTED: KeySpec = NumKeys { at: 1, step: 1 };
const COUNTED_SECOND: KeySpec = NumKeys { at: 2, step: 1 };
const COUNTED_PAIRS: KeySpec = NumKeys { at: 1, step: 2 };

const NEEDS_SELECT: &str = "only database 0 exists on a node of a ring";
const MIGRATES: &str = "MIGRATE is not offered: the ring places keys itself";

const fn with_scores(from: u8) -> ShapeRule {
    ShapeRule::Option { word: "withscores", from, then: Shape::ScorePairs }
}

fn sort_class(args: &Args<'_>) -> Class {
    if store_word(args, 2).is_some() { Write } else { Read }
}

fn radius_class(args: &Args<'_>) -> Class {
    if store_word(args, 5).is_some() { Write } else { Read }
}

fn getex_class(args: &Args<'_>) -> Class {
    if args.len() > 2 { Write } else { Read }
}

/// BITFIELD that only gets.
fn bitfield_class(args: &Args<'_>) -> Class {
    let writes = |w: &[u8]| w.eq_ignore_ascii_case(b"set") || w.eq_ignore_ascii_case(b"incrby");
    if args.tail(2).iter().any(writes) { Write } else { Read }
}

fn bitfield_use(args: &Args<'_>) -> KeyUse {
    match bitfield_class(args) {
        Class::Write => CHANGES_AND_TELLS,
        Class::Read | Class::Admin => READS,
    }
}

/// XREAD and XREADGROUP wait only with BLOCK, which stands before STREAMS.
fn waits_if_told(args: &Args<'_>) -> Routing {
    for word in args.tail(1).iter() {
        if word.eq_ignore_ascii_case(b"block") {
            return Blocking;
        }
        if word.eq_ignore_ascii_case(b"streams") {
            break;
        }
    }
    Keyed
}

pub(super) const GENERIC: &[CommandSpec] = &[
    write("copy", -3, BOTH).uses_both(READS, REPLACES),
    write("del", -2, ALL).uses(REMOVES).merge(SumInts).c(1, ANY),
    read("dump", 2, First).cmp(Any).c(1, 1),
    read("exists", -2, ALL).uses(ASKS).merge(SumInts).c(1, ANY),
    write("expire", -3, First).fx(Fx::Expire).c(2, 2),
    write("expireat", -3, First).c(2, 2),
    read("expiretime", 2, First).cmp(Any),
    read("keys", 2, NoKey).to(Ring).cmp(Unordered).c(1, 1),
    refused("migrate", -6, MIGRATES),
    refused("move", 3, NEEDS_SELECT),
    container("object"),
    read("object|encoding", 3, SECOND).uses(ASKS).cmp(Any),
    read("object|freq", 3, SECOND).uses(ASKS).cmp(Any),
    read("object|idletime", 3, SECOND).uses(ASKS).cmp(Any),
    read("object|refcount", 3, SECOND).uses(ASKS).cmp(Any),
    write("persist", 2, First).c(1, 1),
    write("pexpire", -3, First).fx(Fx::PExpire).c(2, 2),
    write("pexpireat", -3, First).c(2, 2),
    read("pexpiretime", 2, First).cmp(Any),
    read("pttl", 2, First).cmp(Any).c(1, 1),
    read("randomkey", 1, NoKey).to(Ring).cmp(Any).c_else(Eval),
    write("rename", 3, BOTH).uses_both(POPS, REPLACES),
    write("renamenx", 3, BOTH).uses_both(POPS, MAKES),
    write("restore", -4, First).uses(REPLACES).fx(Fx::Restore).c(3, 3),
    read("scan", -2, NoKey).to(Ring).cmp(Any).c(1, ANY),
    write("sort", -2, FirstAndStore { from: 2 })
        .uses_both(READS, REPLACES)
        .class_by(sort_class)
        .reference(Read)
        .patterns()
        .c(1, ANY),
    read("sort_ro", -2, First).patterns(),
    read("touch", -2, ALL).uses(ASKS).merge(SumInts),
    read("ttl", 2, First).cmp(Any).reference(Write).c(1, 1),
    read("type", 2, First).uses(ASKS).c(1, 1),
    write("unlink", -2, ALL).uses(REMOVES).merge(SumInts).c_else(Rewrite),
];

pub(super) const STRING: &[CommandSpec] = &[
    write("append", 3, First).uses(ADDS).c(2, 2),
    write("decr", 2, First).uses(CHANGES_AND_TELLS).c(1, 1),
    write("decrby", 3, First).uses(CHANGES_AND_TELLS).c(2, 2),
    write("delex", -2, First).uses(TAKES_AWAY),
    read("digest", 2, First),
    read("get", 2, First).c(1, 1),
    write("getdel", 2, First).uses(POPS),
    write("getex", -2, First).uses(CHANGES_AND_TELLS).class_by(getex_class).fx(Fx::GetEx),
    read("getrange", 4, First).c(3, 3),
    write("getset", 3, First).uses(CHANGES_AND_TELLS).c(2, 2),
    write("incr", 2, First).uses(CHANGES_AND_TELLS).c(1, 1),
    write("incrby", 3, First).uses(CHANGES_AND_TELLS).c(2, 2),
    write("incrbyfloat", 3, First).uses(CHANGES_AND_TELLS).c(2, 2),
    read("lcs", -3, BOTH).lift_by(ShapeRule::Option { word: "idx", from: 3, then: Shape::Map }),
    read("mget", -2, ALL).merge(Mget).c(1, ANY),
    write("mset", -3, PAIRS).uses(REPLACES).merge(Mset).c(2, ANY),
    write("msetex", -4, COUNTED_PAIRS).uses(REPLACES).fx(Fx::MSetEx),
    write("msetnx", -3, PAIRS).uses(MAKES).fx(Fx::MSetNx),
    write("psetex", 4, First).uses(REPLACES).fx(Fx::PSetEx).c(3, 3),
    write("set", -3, First).uses_by(key_use::of_set).fx(Fx::Set).c(1, ANY),
    write("setex", 4, First).uses(REPLACES).fx(Fx::SetEx).c(3, 3),
    write("setnx", 3, First).uses(MAKES).fx(Fx::SetNx).c(2, 2),
    write("setrange", 4, First).c(3, 3),
    read("strlen", 2, First).uses(ASKS).c(1, 1),
    read("substr", 4, First),
];

pub(super) const BITMAP: &[CommandSpec] = &[
    read("bitcount", -2, First).c(1, ANY),
    write("bitfield", -2, First).uses_by(bitfield_use).class_by(bitfield_class),
    read("bitfield_ro", -2, First),
    write("bitop", -4, FROM_SECOND).uses_both(REPLACES, READS),
    read("bitpos", -3, First),
    read("getbit", 3, First).c(2, 2),
    write("setbit", 4, First).uses(CHANGES_AND_TELLS).c(3, 3),
];

pub(super) const HASH: &[CommandSpec] = &[
    write("hdel", -3, First).uses(TAKES_AWAY).c(1, ANY),
    read("hexists", 3, First).uses(ASKS).c(2, 2),
    write("hexpire", -6, First).fx(Fx::HExpire),
    write("hexpireat", -6, First),
    read("hexpiretime", -5, First).cmp(Any),
    read("hget", 3, First).c(2, 2),
    read("hgetall", 2, First).cmp(UnorderedPairs).lift(Shape::Map).c(1, 1),
    write("hgetdel", -5, First).uses(POPS),
    write("hgetex", -5, First).uses(CHANGES_AND_TELLS).fx(Fx::HGetEx),
    write("hincrby", 4, First).uses(CHANGES_AND_TELLS).c(3, 3),
    write("hincrbyfloat", 4, First).uses(CHANGES_AND_TELLS).c(3, 3),
    read("hkeys", 2, First).cmp(Unordered).c(1, 1),
    read("hlen", 2, First).uses(ASKS).c(1, 1),
    read("hmget", -3, First).c(1, ANY),
    write("hmset", -4, First).c(1, ANY),
    write("hpersist", -5, First),
    write("hpexpire", -6, First).fx(Fx::HPExpire),
    write("hpexpireat", -6, First),
    read("hpexpiretime", -5, First).cmp(Any),
    read("hpttl", -5, First).cmp(Any),
    read("hrandfield", -2, First).cmp(Any).lift_by(ShapeRule::Option {
        word: "withvalues",
        from: 3,
        then: Shape::Pairs,
    }),
    read("hscan", -3, First).cmp(Any).c(1, ANY),
    write("hset", -4, First).c(3, 3),
    write("hsetex", -6, First).fx(Fx::HSetEx),
    write("hsetnx", 4, First).uses(ADDS).fx(Fx::HSetNx).c(3, 3),
    read("hstrlen", 3, First).uses(ASKS),
    read("httl", -5, First).cmp(Any),
    read("hvals", 2, First).cmp(Unordered).c(1, 1),
];

pub(super) const LIST: &[CommandSpec] = &[
    write("blmove", 6, BOTH).uses_both(POPS, ADDS).to(Blocking).fx(Fx::BLMove).c_else(Refuse),
    write("blmpop", -5, COUNTED_SECOND).uses(POPS).to(Blocking).fx(Fx::BLMPop).c_else(Refuse),
    write("blpop", -3, BUT_LAST).uses(POPS).to(Blocking).fx(Fx::BLPop).c_else(Refuse),
    write("brpop", -3, BUT_LAST).uses(POPS).to(Blocking).fx(Fx::BRPop).c_else(Refuse),
    write("brpoplpush", 4, BOTH)
        .uses_both(POPS, ADDS)
        .to(Blocking)
        .fx(Fx::BRPopLPush)
        .c_else(Refuse),
    read("lindex", 3, First).c(2, 2),
    write("linsert", 5, First).uses(ADDS).c(4, 4),
    read("llen", 2, First).uses(ASKS).c(1, 1),
    write("lmove", 5, BOTH).uses_both(POPS, ADDS),
    write("lmpop", -4, COUNTED).uses(POPS),
    write("lpop", -2, First).uses(POPS).c(1, 1),
    read("lpos", -3, First),
    write("lpush", -3, First).uses(ADDS).c(1, ANY),
    write("lpushx", -3, First).uses(ADDS).c(2, 2),
    read("lrange", 4, First).c(3, 3),
    write("lrem", 4, First).uses(TAKES_AWAY).c(3, 3),
    write("lset", 4, First).c(3, 3),
    write("ltrim", 4, First).uses(TAKES_AWAY).c(3, 3),
    write("rpop", -2, First).uses(POPS).c(1, 1),
    write("rpoplpush", 3, BOTH).uses_both(POPS, ADDS).c(2, 2),
    write("rpush", -3, First).uses(ADDS).c(1, ANY),
    write("rpushx", -3, First).uses(ADDS).c(2, 2),
];

pub(super) const SET: &[CommandSpec] = &[
    write("sadd", -3, First).uses(ADDS).c(1, ANY),
    read("scard", 2, First).uses(ASKS).c(1, 1),
    read("sdiff", -2, ALL).cmp(Unordered).lift(Shape::Set).c(1, ANY),
    write("sdiffstore", -3, ALL).uses_both(REPLACES, READS).c(1, ANY),
    read("sinter", -2, ALL).cmp(Unordered).lift(Shape::Set).c(1, ANY),
    read("sintercard", -3, COUNTED),
    write("sinterstore", -3, ALL).uses_both(CHANGES, READS).c(1, ANY),
    read("sismember", 3, First).uses(ASKS).c(2, 2),
    read("smembers", 2, First).cmp(Unordered).lift(Shape::Set).c(1, 1),
    read("smismember", -3, First),
    write("smove", 4, BOTH).uses_both(POPS, ADDS).c(3, 3),
    write("spop", -2, First)
        .uses(POPS)
        .fx(Fx::SPop)
        .lift_by(ShapeRule::Len { len: 3, then: Shape::Set, or: Shape::Same })
        .c(1, ANY),
    read("srandmember", -2, First).cmp(Any).c(1, 1),
    write("srem", -3, First).uses(TAKES_AWAY).c(1, ANY),
    read("sscan", -3, First).cmp(Any).c(1, ANY),
    read("sunion", -2, ALL).cmp(Unordered).lift(Shape::Set).c(1, ANY),
    write("sunionstore", -3, ALL).uses_both(REPLACES, READS).reference(Read).c(1, ANY),
];

pub(super) const SORTED_SET: &[CommandSpec] = &[
    write("bzmpop", -5, COUNTED_SECOND)
        .uses(POPS)
        .to(Blocking)
        .fx(Fx::BZMPop)
        .lift(Shape::KeyScorePairs)
        .c_else(Refuse),
    write("bzpopmax", -3, BUT_LAST)
        .uses(POPS)
        .to(Blocking)
        .fx(Fx::BZPop)
        .lift(Shape::LastScore)
        .c_else(Refuse),
    write("bzpopmin", -3, BUT_LAST)
        .uses(POPS)
        .to(Blocking)
        .fx(Fx::BZPop)
        .lift(Shape::LastScore)
        .c_else(Refuse),
    write("zadd", -4, First).lift_by(ShapeRule::ZaddIncr).c(1, ANY),
    read("zcard", 2, First).uses(ASKS).c(1, 1),
    read("zcount", 4, First).c(3, 3),
    read("zdiff", -3, COUNTED).lift_by(with_scores(0)),
    write("zdiffstore", -4, DestNumKeys).uses_both(REPLACES, READS),
    write("zincrby", 4, First).uses(CHANGES_AND_TELLS).lift(Shape::Double).c(3, 3),
    read("zinter", -3, COUNTED).lift_by(with_scores(0)),
    read("zintercard", -3, COUNTED),
    write("zinterstore", -4, DestNumKeys).uses_both(REPLACES, READS).reference(Read).c(1, ANY),
    read("zlexcount", 4, First).c(3, 3),
    write("zmpop", -4, COUNTED).uses(POPS).lift(Shape::KeyScorePairs),
    read("zmscore", -3, First).lift(Shape::Doubles),
    write("zpopmax", -2, First).uses(POPS).lift_by(ZPOP),
    write("zpopmin", -2, First).uses(POPS).lift_by(ZPOP),
    read("zrandmember", -2, First).cmp(Any).lift_by(with_scores(3)),
    read("zrange", -4, First).lift_by(with_scores(4)).c(1, ANY),
    read("zrangebylex", -4, First).c(1, ANY),
    read("zrangebyscore", -4, First).lift_by(with_scores(4)).c(1, ANY),
    write("zrangestore", -5, BOTH).uses_both(REPLACES, READS),
    read("zrank", -3, First).lift_by(RANK_SCORE).c(2, 2),
    write("zrem", -3, First).uses(TAKES_AWAY).c(1, ANY),
    write("zremrangebylex", 4, First).uses(TAKES_AWAY).c(3, 3),
    write("zremrangebyrank", 4, First).uses(TAKES_AWAY).c(3, 3),
    write("zremrangebyscore", 4, First).uses(TAKES_AWAY).c(3, 3),
    read("zrevrange", -4, First).lift_by(with_scores(4)).c(1, ANY),
    read("zrevrangebylex", -4, First).c(1, ANY),
    read("zrevrangebyscore", -4, First).lift_by(with_scores(4)).c(1, ANY),
    read("zrevrank", -3, First).lift_by(RANK_SCORE).c(2, 2),
    read("zscan", -3, First).cmp(Any).c(1, ANY),
    read("zscore", 3, First).lift(Shape::Double).c(2, 2),
    read("zunion", -3, COUNTED).lift_by(with_scores(0)),
    write("zunionstore", -4, DestNumKeys).uses_both(REPLACES, READS).reference(Read).c(1, ANY),
];

const ZPOP: ShapeRule = ShapeRule::Len { len: 3, then: Shape::ScorePairs, or: Shape::LastScore };

const RANK_SCORE: ShapeRule =
    ShapeRule::Option { word: "withscore", from: 3, then: Shape::LastScore };

const GEO_COORD: ShapeRule = ShapeRule::Option { word: "withcoord", from: 5, then: Shape::GeoHits };

pub(super) const GEO: &[CommandSpec] = &[
    write("geoadd", -5, First).c(1, ANY),
    read("geodist", -4, First).c(1, ANY),
    read("geohash", -2, First).c(1, ANY),
    read("geopos", -2, First).lift(Shape::Coordinates).c(1, ANY),
    write("georadius", -6, FirstAndStore { from: 5 })
        .uses_both(READS, REPLACES)
        .class_by(radius_class)
        .reference(Read)
        .lift_by(GEO_COORD)
        .c(1, ANY),
    read("georadius_ro", -6, First).lift_by(GEO_COORD),
    write("georadiusbymember", -5, FirstAndStore { from: 5 })
        .uses_both(READS, REPLACES)
        .class_by(radius_class)
        .reference(Read)
        .lift_by(GEO_COORD)
        .c(1, ANY),
    read("georadiusbymember_ro", -5, First).lift_by(GEO_COORD),
    read("geosearch", -7, First).lift_by(ShapeRule::GeoSearch),
    write("geosearchstore", -8, BOTH).uses_both(REPLACES, READS),
];

pub(super) const HYPERLOGLOG: &[CommandSpec] = &[
    write("pfadd", -2, First).uses(ADDS).c(1, ANY),
    read("pfcount", -2, ALL).uses(COUNTS).reference(Write).c(1, 1),
    write("pfmerge", -2, ALL).uses_both(MERGES, READS),
];

pub(super) const STREAM: &[CommandSpec] = &[
    write("xack", -4, First),
    write("xackdel", -6, First).uses(TAKES_AWAY),
    write("xadd", -5, First).fx(Fx::XAdd),
    write("xautoclaim", -6, First).uses(TAKES_AWAY).fx(Fx::XAutoClaim),
    write("xclaim", -6, First).fx(Fx::XClaim),
    write("xdel", -3, First).uses(TAKES_AWAY),
    write("xdelex", -5, First).uses(TAKES_AWAY),
    container("xgroup"),
    write("xgroup|create", -5, SECOND).uses(ADDS),
    write("xgroup|createconsumer", 5, SECOND).uses(ADDS),
    write("xgroup|delconsumer", 5, SECOND).uses(TAKES_AWAY),
    write("xgroup|destroy", 4, SECOND).uses(TAKES_AWAY),
    write("xgroup|setid", -5, SECOND),
    container("xinfo"),
    read("xinfo|consumers", 4, SECOND).cmp(Any).lift(Shape::Maps),
    read("xinfo|groups", 3, SECOND).cmp(Any).lift(Shape::Maps),
    read("xinfo|stream", -3, SECOND).cmp(Any).lift_by(ShapeRule::StreamInfo),
    read("xlen", 2, First).uses(ASKS),
    read("xpending", -3, First).cmp(Any),
    read("xrange", -4, First),
    read("xread", -4, Streams).to_by(waits_if_told).lift(Shape::Streams),
    write("xreadgroup", -7, Streams)
        .uses(READS)
        .to_by(waits_if_told)
        .fx(Fx::XReadGroup)
        .lift(Shape::Streams),
    read("xrevrange", -4, First),
    write("xsetid", -3, First),
    write("xtrim", -4, First).uses(TAKES_AWAY),
];

/// Vector sets, of Redis 8.
pub(super) const VECTOR_SET: &[CommandSpec] = &[
    write("vadd", -5, First),
    read("vcard", 2, First),
    read("vdim", 2, First),
    read("vemb", -3, First),
    read("vgetattr", 3, First),
    read("vinfo", 2, First).cmp(Any),
    read("vismember", 3, First),
    read("vlinks", -3, First).cmp(Any),
    read("vrandmember", -2, First).cmp(Any),
    read("vrange", -4, First),
    write("vrem", 3, First),
    write("vsetattr", 4, First),
    read("vsim", -4, First),
];

/// Commands about all keys of the ring.
pub(super) const KEYSPACE: &[CommandSpec] = &[
    read("dbsize", 1, NoKey).to(Ring).merge(SumInts).cmp(Any).c_else(Eval),
    write("flushall", -1, NoKey).to(Routing::AllNodes).c_else(Eval),
    write("flushdb", -1, NoKey).to(Routing::AllNodes).c_else(Eval),
    refused("swapdb", 3, NEEDS_SELECT),
    admin("select", 2, Routing::Node),
];
