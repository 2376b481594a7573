//! What is written through each node, what must be read, and what the datastores must hold then.

use std::collections::BTreeMap;

use super::ring::{Ring, owner_token};
use crate::client::{Client, Reply, bulk, encode, ok};
use crate::encrypted::value;
use crate::ring::wait_until;

/// What every key must hold in the end.
#[derive(Default)]
pub struct Model(BTreeMap<String, Vec<u8>>);

/// Keys of one MSET or MGET; a C node takes no more than what fits one of its buffers.
const BATCH: usize = 20;

/// Requests of one pipeline.
const PIPELINE: usize = 300;

impl Model {
    pub fn set(&mut self, client: &mut Client, key: &str, value: Vec<u8>, what: &str) {
        let reply = client.call(&[&b"SET"[..], key.as_bytes(), &value]);
        assert_eq!(reply, ok(), "{what}: SET {key} of {} bytes", value.len());
        self.0.insert(key.to_owned(), value);
    }

    /// Values of these lengths, one key each.
    pub fn set_lengths(&mut self, client: &mut Client, who: usize, lengths: &[usize], what: &str) {
        for len in lengths {
            self.set(client, &format!("len{who}:{len}"), value(*len, who), what);
        }
    }

    /// MSET and MGET.
    pub fn set_many(&mut self, client: &mut Client, who: usize, what: &str) {
        let pairs: Vec<(String, String)> =
            (0..BATCH).map(|i| (format!("many{who}:{i}"), format!("value {who} {i}"))).collect();
        let mut words = vec!["MSET"];
        words.extend(pairs.iter().flat_map(|(k, v)| [k.as_str(), v.as_str()]));
        assert_eq!(client.call(&words), ok(), "{what}: MSET");
        let mut words = vec!["MGET"];
        words.extend(pairs.iter().map(|(k, _)| k.as_str()));
        let right = pairs.iter().map(|(_, v)| bulk(v)).collect();
        assert_eq!(client.call(&words), Reply::Array(right), "{what}: MGET");
        self.0.extend(pairs.into_iter().map(|(k, v)| (k, v.into_bytes())));
    }

    /// Requests of several kinds that are in flight together.
    pub fn pipeline(&mut self, client: &mut Client, who: usize, what: &str) {
        let mut bytes = Vec::new();
        let mut right = Vec::new();
        for i in 0..PIPELINE {
            let (key, count) = (format!("pipe{who}:{}", i % 50), format!("count{who}"));
            let value = format!("{i}");
            match i % 3 {
                0 => {
                    bytes.extend(encode(&["SET", &key, &value]));
                    right.push(ok());
                    self.0.insert(key, value.into_bytes());
                }
                1 => {
                    bytes.extend(encode(&["GET", &key]));
                    right.push(self.0.get(&key).map_or(Reply::Nil, bulk));
                }
                _ => {
                    let next = (i / 3 + 1) as i64;
                    bytes.extend(encode(&["INCR", &count]));
                    right.push(Reply::Int(next));
                    self.0.insert(count, next.to_string().into_bytes());
                }
            }
        }
        client.send(&bytes).expect("sent");
        for (i, right) in right.iter().enumerate() {
            assert_eq!(
                client.reply().expect("a reply"),
                *right,
                "{what}: request {i} of a pipeline"
            );
        }
    }

    /// Reads all of it that is no longer than `longest` through another node.
    pub fn read_back(&self, client: &mut Client, longest: usize, what: &str) {
        for (key, value) in self.0.iter().filter(|(_, value)| value.len() <= longest) {
            let reply = client.call(&["GET", key]);
            let start = reply.text().chars().take(60).collect::<String>();
            assert!(reply == bulk(value), "{what}: {key} of {} bytes reads {start:?}", value.len());
        }
    }

    /// Every datastore holds exactly what is its own.
    pub fn compare_stores(&self, ring: &Ring, what: &str) {
        for node in &ring.nodes {
            let mine: Vec<_> =
                self.0.iter().filter(|(key, _)| owner_token(key) == node.token).collect();
            let mut store = node.connect_store();
            let place = format!("{what}: the datastore of {} {:?}", node.host, node.kind);
            for (key, value) in &mine {
                let right = bulk(value);
                let len = value.len();
                let what = format!("{place}: {key} of {len} bytes");
                wait_until(&what, || store.call(&["GET", key]) == right);
            }
            assert_eq!(store.call(&["DBSIZE"]), Reply::Int(mine.len() as i64), "{place}");
        }
    }
}
