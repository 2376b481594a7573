//! Checks of the ring a file describes: tokens against the hash, and nodes against each other.

use super::error::{Fault, Faults};
use super::node::{Mark, Node, Value};
use super::pool::Pool;
use crate::hash::HashType;
use crate::token::{DynToken, Sign};

/// One node of the file: where it stands, and where it is.
struct Member<'a> {
    what: String,
    mark: Option<Mark>,
    datacenter: &'a str,
    rack: &'a str,
    tokens: Vec<DynToken>,
}

/// Checks tokens and seeds.
pub(super) fn check(pool: &Pool, root: &Node, faults: &mut Faults) {
    let members = members(pool, root);
    for member in &members {
        token_form(pool, member, faults);
    }
    duplicate_tokens(&members, faults);
    duplicate_addresses(pool, root, faults);
    if pool.hash == Some(HashType::Murmur3) && pool.enable_gossip == Some(true) {
        faults.push(
            Fault::new("gossip with C nodes cannot carry the four-word tokens of murmur3")
                .at(root.find(&["enable_gossip"]))
                .accepted("enable_gossip: false with murmur3"),
        );
    }
}

fn members<'a>(pool: &'a Pool, root: &Node) -> Vec<Member<'a>> {
    let mut members = vec![Member {
        what: "this node".into(),
        mark: root.find(&["tokens"]),
        datacenter: pool.datacenter.as_deref().unwrap_or("localdc"),
        rack: pool.rack.as_deref().unwrap_or("localrack"),
        tokens: pool.tokens.iter().flatten().flat_map(|list| list.tokens.clone()).collect(),
    }];
    for (seed, mark) in pool.dyn_seeds.iter().flatten().zip(seed_marks(pool, root)) {
        members.push(Member {
            what: seed.address.to_string(),
            mark,
            datacenter: &seed.datacenter,
            rack: &seed.rack,
            tokens: seed.tokens.clone(),
        });
    }
    members
}

/// The marks of the seeds that are still on the list, in its order.
fn seed_marks(pool: &Pool, root: &Node) -> Vec<Option<Mark>> {
    let seeds = pool.dyn_seeds.as_deref().unwrap_or_default();
    let nodes: &[Node] = match root.get("dyn_seeds") {
        Some(node) => match &node.value {
            Value::List(items) => items,
            Value::Text(_) | Value::Map(_) | Value::Null => std::slice::from_ref(node),
        },
        None => &[],
    };
    // An entry for this node itself may have been taken off.
    let mut left = nodes.iter();
    seeds
        .iter()
        .map(|seed| left.find(|node| is_text(node, &seed.text)).map(|node| node.mark))
        .collect()
}

fn is_text(node: &Node, text: &str) -> bool {
    matches!(&node.value, Value::Text(t) if t == text)
}

fn token_form(pool: &Pool, member: &Member<'_>, faults: &mut Faults) {
    let hash = pool.hash.unwrap_or_default();
    let words = if hash == HashType::Murmur3 { 4 } else { 1 };
    let mut fault = |what: String, accepted: &str| {
        faults.push(Fault::new(what).at(member.mark).accepted(accepted));
    };
    for token in &member.tokens {
        let text = token.to_string();
        if token.words().len() != words && words == 4 {
            fault(
                format!(
                    "token {text} of {} has one word; every murmur3 key lies above it",
                    member.what
                ),
                "0x and 32 hex digits; `torc tokens plan --hash murmur3 --nodes N` prints them",
            );
        } else if token.words().len() != words {
            fault(
                format!("token {text} of {} lies above every {hash} key", member.what),
                "decimal digits; 0x and 32 hex digits only with hash: murmur3",
            );
        } else if token.sign() == Sign::Negative && !pool.cluster.torc_only {
            fault(
                format!(
                    "token {text} of {} is negative, which C nodes order otherwise",
                    member.what
                ),
                "tokens from 0 on, or cluster.torc_only: true",
            );
        }
    }
}

/// No token twice in a rack.
fn duplicate_tokens(members: &[Member<'_>], faults: &mut Faults) {
    let mut seen: std::collections::HashMap<(&str, &str, DynToken), usize> = Default::default();
    for (i, member) in members.iter().enumerate() {
        for token in &member.tokens {
            let slot = (member.datacenter, member.rack, *token);
            let Some(&first) = seen.get(&slot) else {
                seen.insert(slot, i);
                continue;
            };
            let other = &members[first];
            let what = match first == i {
                true => format!("token {token} is given twice for {}", member.what),
                false => format!(
                    "token {token} in rack {} is both {}'s and {}'s",
                    member.rack, other.what, member.what
                ),
            };
            let fault = Fault::new(what).at(member.mark.or(other.mark));
            faults.push(match first == i {
                true => fault,
                false => fault.earlier(other.mark, "the other is"),
            });
        }
    }
}

fn duplicate_addresses(pool: &Pool, root: &Node, faults: &mut Faults) {
    let seeds = pool.dyn_seeds.as_deref().unwrap_or_default();
    let marks = seed_marks(pool, root);
    let mut seen = std::collections::HashMap::new();
    for (i, seed) in seeds.iter().enumerate() {
        if let Some(first) = seen.insert(&seed.address, i) {
            faults.push(
                Fault::new(format!("{} is listed twice", seed.address))
                    .at(marks[i])
                    .earlier(marks[first], "first listed"),
            );
        }
    }
}
