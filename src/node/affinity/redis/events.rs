//! What keyspace events say: which flags a store has to have set, and what follows from an event.
//!
//! From Redis 7.0 on `new` tells of every key that appears. Older stores tell what was done to a
//! key instead: it is there then, unless the event is one of those of a key that went, which come
//! after those of what emptied it. The names are those of the `notifyKeyspaceEvent` calls of Redis
//! 2.8 to 6.2; what an unknown one means (a module's, or another server's) is asked.

use crate::affinity::following::Way;

/// The flags of `notify-keyspace-events` a store needs: by event; new, generic, expired, evicted.
const FLAGS: &str = "Engxe";
/// The same before Redis 7.0: by event; all there are.
const OLDER_FLAGS: &str = "EA";

/// The same of servers that know only keys that expire.
const FEW_FLAGS: &str = "Ex";

/// A key went.
const GONE: [&[u8]; 5] = [b"del", b"evicted", b"expired", b"move_from", b"rename_from"];

/// Something was done to a key, which is there now; the most usual first.
const THERE: &str = "set hset lpush rpush sadd zadd xadd incrby expire append setrange setbit \
    pfadd hincrby hincrbyfloat incrbyfloat hdel persist restore rename_to move_to copy_to \
    lpop rpop linsert lrem lset ltrim sortstore spop srem sdiffstore sinterstore sunionstore \
    zincr zpopmax zpopmin zrem zremrangebylex zremrangebyrank zremrangebyscore \
    zdiffstore zinterstore zrangestore zunionstore georadiusstore geosearchstore \
    xdel xtrim xsetid xgroup-create xgroup-createconsumer xgroup-delconsumer xgroup-destroy \
    xgroup-setid";

/// What follows from an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// The key is there.
    There,
    /// It is not.
    Gone,
    /// One or the other.
    Perhaps,
    /// Nothing.
    Nothing,
}

/// What follows from the event `what` of a store that is followed so.
pub(super) fn said(way: Way, what: &[u8]) -> Said {
    if GONE.contains(&what) {
        return Said::Gone;
    }
    match (way, what) {
        (_, b"new") => Said::There,
        // All others are of keys that are there; `new` told of them.
        (Way::Embedded | Way::Events, _) => Said::Nothing,
        (Way::OlderEvents | Way::Observed, b"keymiss") => Said::Nothing,
        (Way::OlderEvents | Way::Observed, _) if is_there(what) => Said::There,
        (Way::OlderEvents | Way::Observed, _) => Said::Perhaps,
    }
}

fn is_there(what: &[u8]) -> bool {
    THERE.split(' ').any(|name| name.as_bytes() == what)
}

/// The flags that a way to follow a store lacks where `set` are set.
pub(super) fn missing(way: Way, set: &str) -> String {
    let needed = match way {
        Way::Embedded => "",
        Way::Events => FLAGS,
        Way::OlderEvents => OLDER_FLAGS,
        Way::Observed => FEW_FLAGS,
    };
    // A stands for many, but neither for E nor for n.
    let has = |flag: char| set.contains(flag) || (set.contains('A') && "gxe".contains(flag));
    needed.chars().filter(|flag| !has(*flag)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_stores_name_the_keys_that_appear_and_older_ones_what_was_done() {
        use Said::{Gone, Nothing, Perhaps, There};
        let cases = [
            ("new", There, There),
            ("set", Nothing, There),
            ("xgroup-setid", Nothing, There),
            ("georadiusstore", Nothing, There),
            ("rename_to", Nothing, There),
            ("del", Gone, Gone),
            ("expired", Gone, Gone),
            ("evicted", Gone, Gone),
            ("rename_from", Gone, Gone),
            ("move_from", Gone, Gone),
            ("keymiss", Nothing, Nothing),
            ("json.del", Nothing, Perhaps),
            ("", Nothing, Perhaps),
        ];
        for (what, newer, older) in cases {
            assert_eq!(said(Way::Events, what.as_bytes()), newer, "{what}");
            assert_eq!(said(Way::OlderEvents, what.as_bytes()), older, "{what}");
        }
    }
}
