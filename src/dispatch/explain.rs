//! A plan in words: what `TORC.PLAN` and `torc plan` print.

use super::plan::{self, Hop, Op, Plan, Question, Role, Standing};
use super::requests::op_of;
use super::send::stores_values;
use super::view::View;
use crate::affinity::advice::{Advice, advise};
use crate::affinity::domain::Kind;
use crate::ckf::ringkey::ring_key_hash;
use crate::proto::args::Args;
use crate::proto::command::{Effect, Merge, Routing};
use crate::proto::resp::spec::CommandSpec;
use crate::ring::{Consistency, PeerIdx};

/// Where a request would go and why, one fact a line. `standings` are by [`PeerIdx`]; a `level`
/// of the connection wins over the view's; `now_ms` is on the monotonic clock, for the ages of
/// filters.
pub fn explain(
    view: &View,
    standings: &[Standing],
    spec: &CommandSpec,
    args: &Args<'_>,
    level: Option<Consistency>,
    now_ms: u64,
) -> Vec<String> {
    let op = op_of(view, spec, args);
    let default = if op == Op::Read { view.read } else { view.write };
    let level = level.unwrap_or(default);
    let mut lines = vec![format!("command: {} ({})", spec.name, words(op))];
    let keys: Vec<&[u8]> = spec.keys_of(args).filter_map(|i| args.get(i)).collect();
    if keys.is_empty() {
        let who = match spec.routing_of(args) {
            Routing::Ring if !view.settings.keyspace_node_only => "every owner of the own rack",
            Routing::AllNodes => "every node that is not down",
            Routing::Node
            | Routing::Keyed
            | Routing::LocalStore
            | Routing::Ring
            | Routing::Blocking
            | Routing::Transaction
            | Routing::Refused(_)
            | Routing::Hangup => "this node",
        };
        lines.push(format!("keys: none; served by {who}"));
        return lines;
    }
    if keys.len() > 1 {
        let how = match spec.merge {
            Merge::None => "must have one owner",
            Merge::Mget | Merge::Mset | Merge::SumInts | Merge::Values => {
                "split by owner, replies merged"
            }
        };
        lines.push(format!("keys: {}; {how}", keys.len()));
    }
    let effect = spec.effect_of(args);
    if op == Op::Write && view.topology.racks().len() > 1 && effect != Effect::Verbatim {
        lines.push(
            match effect {
                Effect::PrimaryFirst => {
                    "effect: the first rack runs it, the others get what it did"
                }
                Effect::Verbatim | Effect::Absolute => "effect: its relative time is made absolute",
            }
            .to_owned(),
        );
    }
    for key in keys {
        explain_key(view, standings, (op, level, spec.name), key, now_ms, &mut lines);
    }
    lines
}

fn words(op: Op) -> &'static str {
    match op {
        Op::Read => "read",
        Op::Write => "write",
    }
}

fn explain_key(
    view: &View,
    standings: &[Standing],
    (op, level, name_of_command): (Op, Consistency, &str),
    key: &[u8],
    now_ms: u64,
    lines: &mut Vec<String>,
) {
    let token = view.hasher.token(key);
    let terms = view.terms(key, &token, op == Op::Write, level);
    let owners = view.topology.owners(&token);
    lines.push(format!("key: {}", key.escape_ascii()));
    let hashed = view.hasher.tag.map_or(key, |tag| tag.tagged(key));
    let name = view.hasher.hash;
    lines.push(format!("token: {token} ({name} of \"{}\")", hashed.escape_ascii()));
    lines.push(format!("level: {}", terms.level));
    if let Some(bucket) = view.buckets.of(key) {
        lines.push(format!("bucket type: {}", bucket.name));
    }
    for (rack, info) in view.topology.racks().iter().enumerate() {
        let place = format!("{}/{}", view.topology.dc_name(info.dc_index), info.name);
        lines.push(match owners.owner(rack) {
            None => format!("owner in {place}: nobody"),
            Some(peer) => {
                format!("owner in {place}: {}", describe(view, standings, peer))
            }
        });
    }
    if op == Op::Read && terms.level == Consistency::DcOne {
        lines.extend(verdict(view, key, now_ms));
    }
    let stays = terms.stays && op == Op::Write && stores_values(name_of_command);
    if stays {
        lines.push("write replication: its values stay in this datacenter".to_owned());
    }
    let question = Question {
        topology: &view.topology,
        owners,
        op,
        level: terms.level,
        cap: terms.cap,
        read_fallback: view.settings.read_fallback,
        tried: 0,
        local_only: false,
        stays,
    };
    let mut plan = Plan::default();
    if let Err(failure) = plan::plan(&question, standings, &mut plan) {
        lines.push(format!("plan: {} ({})", failure.text(), failure.cause.text()));
        return;
    }
    for leg in &plan.legs {
        let hop = match leg.hop {
            Hop::Store => "own datastore",
            Hop::Peer => "peer",
            Hop::Forward => "forward to its datacenter",
        };
        let role = match leg.role {
            Role::Answer => "answers",
            Role::Count { .. } => "votes",
            Role::Swallow => "copy, not awaited",
        };
        let name = view.topology.peer(leg.peer).name;
        lines.push(format!("send: {name} ({hop}; {role})"));
    }
    for (rack, _) in &plan.missed {
        lines.push(format!("missed: rack {}", view.topology.racks()[*rack as usize].name));
    }
}

/// What the filters say about a key, and what is done about it.
fn verdict(view: &View, key: &[u8], now_ms: u64) -> Option<String> {
    let keys = view.affinity.as_ref()?.keys();
    let Kind::Keys(protocol) = keys.spec().kind else { return None };
    let mut mask = [0];
    let believed = keys.probe(&[ring_key_hash(protocol, key)], &mut mask, now_ms);
    let lanes = keys.lanes();
    let others = 1..lanes.iter().len() as u8;
    let advice = advise(lanes, mask[0], believed, 0, others, now_ms);
    let place = match advice {
        Advice::Local(_) => view.topology.local_dc(),
        Advice::Remote { lane } => lanes.get(lane).map_or("", |lane| lane.dc.as_str()),
    };
    let done = match view.settings.route_reads {
        true => "read in",
        false => "affinity.mode is advise, else read in",
    };
    Some(format!("affinity: {}; {done} {place}", advice.reason()))
}

fn describe(view: &View, standings: &[Standing], peer: PeerIdx) -> String {
    let info = view.topology.peer(peer);
    let standing = match standings.get(peer.0 as usize) {
        Some(Standing::Usable) => "usable",
        Some(Standing::Joining) => "usable, joining",
        Some(Standing::NotRoutable) => "not routable",
        Some(Standing::NotConnected) | None => "not connected",
    };
    let local = if info.is_local { ", this node" } else { "" };
    format!("{} {} ({standing}{local})", info.name, info.state)
}
