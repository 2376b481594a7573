//! A plan in words: what `TORC.PLAN` and `torc plan` print.

use super::plan::{self, Hop, Op, Plan, Question, Role, Standing};
use super::requests::op_of;
use super::route::is_routed;
use super::send::stores_values;
use super::view::View;
use crate::affinity::advice::{Advice, LocalReason, advise};
use crate::affinity::domain::Kind;
use crate::affinity::lanes::Lane;
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
        explain_key(view, standings, (op, level, spec), key, now_ms, &mut lines);
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
    (op, level, spec): (Op, Consistency, &CommandSpec),
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
    let stays = terms.stays && op == Op::Write && stores_values(spec.name);
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
    let mut elsewhere = None;
    if op == Op::Read && terms.level == Consistency::DcOne {
        let verdict = verdict(view, spec, key, now_ms);
        lines.extend(verdict.as_ref().map(|(_, line)| line.clone()));
        if let Some((Some(lane), _)) = verdict {
            elsewhere = remote(&question, view, lane, standings);
            lines.push(match &elsewhere {
                Some(name) => format!("send: {name} (peer; answers)"),
                None => "affinity: nobody can be asked there; read as ever".to_owned(),
            });
        }
    }
    let mut plan = Plan::default();
    if let Err(failure) = plan::plan(&question, standings, &mut plan) {
        lines.push(format!("plan: {} ({})", failure.text(), failure.cause.text()));
        return;
    }
    explain_legs(view, &plan, elsewhere.is_some(), lines);
}

/// Who is asked, as ever; `elsewhere` when another datacenter is asked before.
fn explain_legs(view: &View, plan: &Plan, elsewhere: bool, lines: &mut Vec<String>) {
    for leg in &plan.legs {
        let hop = match leg.hop {
            Hop::Store => "own datastore",
            Hop::Peer => "peer",
            Hop::Forward => "forward to its datacenter",
        };
        let role = match leg.role {
            Role::Answer if elsewhere => "asked if the key is not there",
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

/// What the filters say about a key, and what is done about it: the lane it is read from, unless
/// it is read as ever, and the words.
fn verdict(
    view: &View,
    spec: &CommandSpec,
    key: &[u8],
    now_ms: u64,
) -> Option<(Option<u8>, String)> {
    let keys = view.affinity.as_ref()?.keys();
    let Kind::Keys(protocol) = keys.spec().kind else { return None };
    let mut mask = [0];
    let believed = keys.probe(&[ring_key_hash(protocol, key)], &mut mask, now_ms);
    let lanes = keys.lanes();
    let others = 1..lanes.iter().len() as u8;
    let advice = advise(lanes, mask[0], believed, 0, others, now_ms);
    let (lane, place) = match advice {
        Advice::Local(_) => (None, view.topology.local_dc()),
        Advice::Remote { lane } => (Some(lane), lanes.get(lane)?.dc.as_str()),
    };
    let done = match (view.settings.route_reads, is_routed(spec)) {
        (true, true) => "read in",
        (true, false) => "this command is read as ever, others in",
        (false, _) => "affinity.mode is advise, else read in",
    };
    let mut line = format!("affinity: {}; {done} {place}", advice.reason());
    if advice == Advice::Local(LocalReason::NotKnown) {
        let unknown = lanes.iter().filter(|(number, _)| believed & (1 << number) == 0);
        let why = |(number, lane): (u8, &'_ Lane)| {
            format!(" ({}: {})", lane.dc, keys.lane_state(number, now_ms))
        };
        let why = unknown.map(why);
        line.extend(why);
    }
    let lane = lane.filter(|_| view.settings.route_reads && is_routed(spec));
    Some((lane, line))
}

/// The name of a key's owner in the datacenter of a lane.
fn remote(q: &Question<'_>, view: &View, lane: u8, standings: &[Standing]) -> Option<String> {
    let dc = &view.affinity.as_ref()?.keys().lanes().get(lane)?.dc;
    let remote = view.topology.remote_dcs().iter().find(|remote| remote.name == *dc)?;
    let (_, peer) = plan::reader_in(q, remote, standings)?;
    Some(view.topology.peer(peer).name.to_string())
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
