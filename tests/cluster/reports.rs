//! What users of Dynomite and of proxies like it have reported, rebuilt: twenty tests, each named
//! for what must hold, with the report it comes from.

mod keys;
mod rough;
mod start;

use crate::client::{Client, Reply};
use crate::ring::{Layout, Ring, Store, memcached_bin, redis_bin};

/// One node in front of one redis-server.
fn single(test: &str) -> Option<Ring> {
    redis_ring(test, 1, "")
}

/// One rack of two nodes.
fn pair(test: &str) -> Option<Ring> {
    redis_ring(test, 2, "")
}

fn redis_ring(test: &str, nodes: usize, extra: &str) -> Option<Ring> {
    let store = Store::Redis(redis_bin(test)?);
    Some(Ring::start(Layout { dcs: vec![vec![nodes]], store, extra: extra.to_owned() }))
}

/// One node in front of one memcached.
fn memcached(test: &str) -> Option<Ring> {
    let store = Store::Memcached(memcached_bin(test)?);
    Some(Ring::start(Layout { dcs: vec![vec![1]], store, extra: "  data_store: 1\n".into() }))
}

/// One call, its words parted by blanks.
fn call(client: &mut Client, words: &str) -> Reply {
    client.call(&words.split(' ').collect::<Vec<_>>())
}

fn pong() -> Reply {
    Reply::Simple("PONG".into())
}

/// The connection is still good.
fn still_answers(client: &mut Client, after: &str) {
    assert_eq!(call(client, "PING"), pong(), "after {after}");
}
