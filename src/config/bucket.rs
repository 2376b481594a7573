//! Bucket types: keys of one prefix with their own consistency and number of replicas.

use super::error::{Fault, Faults};
use super::node::{Node, Value};
use super::section::section;
use crate::ring::Consistency;

section! {
    /// One entry of `bucket_types`.
    pub(super) struct BucketTypeKeys {
        /// The name, unique in the list.
        pub(super) name: Option<String> = None,
        /// Keys that begin with it are of this type; the longest prefix wins. Default: the name
        /// and a slash.
        pub(super) prefix: Option<String> = None,
        /// Level of reads. Default: the connection's.
        pub(super) read_consistency: Option<Consistency> = None,
        /// Level of writes. Default: the connection's.
        pub(super) write_consistency: Option<Consistency> = None,
        /// Most racks of a datacenter that hold a key. Default: all racks.
        pub(super) n_val: Option<usize> = None,
        /// Whether a key has one value for ever, until it is deleted. Default: false.
        pub(super) immutable: bool = false,
    }
}

/// A type of keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketType {
    /// Unique in the pool.
    pub name: String,
    /// Keys that begin with it are of this type.
    pub prefix: String,
    /// Level of reads; the connection's when absent.
    pub read_consistency: Option<Consistency>,
    /// Level of writes; the connection's when absent.
    pub write_consistency: Option<Consistency>,
    /// Most racks of a datacenter that hold a key; all when absent.
    pub n_val: Option<usize>,
    /// Whether a key has one value for ever, until it is deleted.
    pub immutable: bool,
}

/// Completes the entries and checks them against each other. `node` is the list they came from.
pub(super) fn complete(
    entries: &[BucketTypeKeys],
    node: Option<&Node>,
    faults: &mut Faults,
) -> Vec<BucketType> {
    let mut types: Vec<BucketType> = Vec::new();
    for (i, keys) in entries.iter().enumerate() {
        let item = node.and_then(|list| item_of(list, i));
        let at = |key: &str| item.and_then(|n| n.find(&[key])).or(item.map(|n| n.mark));
        let Some(name) = &keys.name else {
            faults.push(
                Fault::new("a bucket type has no `name`")
                    .at(item.map(|n| n.mark))
                    .accepted("name: a text of its own, beside the others"),
            );
            continue;
        };
        if keys.n_val == Some(0) {
            faults.push(
                Fault::new("`n_val` 0 would keep a key nowhere")
                    .at(at("n_val"))
                    .accepted("1 or more; leave it out for all racks"),
            );
        }
        let prefix = keys.prefix.clone().unwrap_or_else(|| format!("{name}/"));
        if types.iter().any(|t| t.name == *name) {
            faults.push(Fault::new(format!("bucket type `{name}` is listed twice")).at(at("name")));
        } else if let Some(other) = types.iter().find(|t| t.prefix == prefix) {
            let what = format!("bucket type `{}` has the same prefix `{prefix}`", other.name);
            faults.push(Fault::new(what).at(at("prefix")));
        }
        types.push(BucketType {
            name: name.clone(),
            prefix,
            read_consistency: keys.read_consistency,
            write_consistency: keys.write_consistency,
            n_val: keys.n_val,
            immutable: keys.immutable,
        });
    }
    types
}

fn item_of(list: &Node, index: usize) -> Option<&Node> {
    match &list.value {
        Value::List(items) => items.get(index),
        Value::Map(_) => Some(list),
        Value::Text(_) | Value::Null => None,
    }
}
