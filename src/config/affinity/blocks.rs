//! `affinity.domains`: blocks of tokens that engines tell of.

use super::{BlockDomain, BlockDomainKeys, BlockHashing, check_expected};
use crate::ckf::digest::Selection;
use crate::ckf::hashing::HashFormat;
use crate::config::error::{Fault, Faults};
use crate::config::node::{Mark, Node, Value};

/// Names of domains no block domain may have.
const RESERVED: &str = "keys";

/// Checks the entries and completes them.
pub(super) fn block_domains(
    entries: &[BlockDomainKeys],
    root: &Node,
    faults: &mut Faults,
    authority: &Selection,
) -> Vec<BlockDomain> {
    let list = root.get("affinity").and_then(|section| section.get("domains"));
    let mut domains: Vec<BlockDomain> = Vec::new();
    for (index, keys) in entries.iter().enumerate() {
        let item = list.and_then(|list| match &list.value {
            Value::List(items) => items.get(index),
            Value::Map(_) | Value::Text(_) | Value::Null => Some(list),
        });
        let mark = |key: &str| item.and_then(|n| n.find(&[key])).or(item.map(|n| n.mark));
        check_expected("expected_blocks", keys.expected_blocks, mark("expected_blocks"), faults);
        let Some(domain) = complete(keys, &mark, faults, authority) else { continue };
        check_distinct(&domain, &domains, &mark, faults);
        domains.push(domain);
    }
    domains
}

fn complete(
    keys: &BlockDomainKeys,
    mark: &dyn Fn(&str) -> Option<Mark>,
    faults: &mut Faults,
    authority: &Selection,
) -> Option<BlockDomain> {
    let mut needs = |key: &str, accepted: &str| {
        let what = format!("a domain of blocks needs `{key}`");
        faults.push(Fault::new(what).at(mark("")).accepted(accepted));
    };
    if keys.name.is_none() {
        needs("name", "what TORC.KV, TORC.PREFIX and TORC.TOKENS call it");
    }
    if keys.block_size.is_none() {
        needs("block_size", "tokens of one block, as the engines have it");
    }
    if keys.semantics.is_none() {
        needs("semantics", "names and values, such as {model: meta/llama}");
    }
    if keys.block_size == Some(0) {
        let what = "a block of 0 tokens is none";
        faults.push(Fault::new(what).at(mark("block_size")).accepted("1 or more"));
    }
    let hash = match keys.hash {
        BlockHashing::Standard => HashFormat::Standard,
        BlockHashing::Eagle => HashFormat::Eagle,
    };
    Some(BlockDomain {
        name: keys.name.clone()?,
        block_size: keys.block_size.filter(|size| *size > 0)?,
        hash,
        expected_blocks: keys.expected_blocks,
        semantics: keys.semantics.as_ref()?.0.clone(),
        scope: keys.scope.as_ref().map_or_else(|| authority.clone(), |map| map.0.clone()),
    })
}

/// Commands tell domains apart by name, consumers in other rings by what they mean.
fn check_distinct(
    domain: &BlockDomain,
    others: &[BlockDomain],
    mark: &dyn Fn(&str) -> Option<Mark>,
    faults: &mut Faults,
) {
    let name = &domain.name;
    if name == RESERVED || others.iter().any(|other| other.name == *name) {
        let accepted = "a name of its own; `keys` is the ring's";
        let what = format!("domain `{name}` is taken");
        faults.push(Fault::new(what).at(mark("name")).accepted(accepted));
    }
    let same = |other: &&BlockDomain| {
        BlockDomain {
            name: name.clone(),
            expected_blocks: domain.expected_blocks,
            ..(*other).clone()
        } == *domain
    };
    if let Some(other) = others.iter().find(same) {
        let what = format!("domains `{}` and `{name}` mean the same blocks", other.name);
        let accepted = "another `semantics`, `scope`, `block_size` or `hash` for each";
        faults.push(Fault::new(what).at(mark("semantics")).accepted(accepted));
    }
}
