//! Dynomite's own paths (`src/dyn_stats.c`), with its bodies.
//!
//! Parity: `/peer/VERB/all` does what the verb says (the reference resets whichever verb was
//! used); a wrong argument is 400, and a peer name that fits several peers 409 (the reference
//! answers `OK` to both); `dc_each_safe_quorum` can be set.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use serde::Serialize;

use super::info::Info;
use super::reply::{self, DONE};
use super::view::{AdminView, Command, PeerVerb};
use super::{Admin, ring};
use crate::dispatch::view::NodeState;
use crate::ring::{Consistency, PeerId, Topology};

/// Bounds of the timeout factor; numbers beyond are cut, as in the reference.
const FACTOR: std::ops::RangeInclusive<u64> = 1..=10;

const HELP: &str = "\
/info                          counters, as JSON
/help                          this list
/ping                          OK
/cluster_describe              the nodes of the ring, as JSON
/loglevelup, /logleveldown     log more, log less
/setloglevel/N                 level of the log, 0 to 11
/historeset                    forget the latencies
/get_consistency               levels of reads and writes
/set_consistency/read/LEVEL    DC_ONE, DC_QUORUM, DC_SAFE_QUORUM, DC_EACH_SAFE_QUORUM
/set_consistency/write/LEVEL   the same for writes
/get_timeout_factor            factor of all deadlines
/set_timeout_factor/N          1 to 10
/state/get_state               the state of this node
/state/STATE                   normal, standby, writes_only, resuming
/read_repairs/enable, /read_repairs/disable
/peer/down/NAME, /peer/up/NAME, /peer/reset/NAME
                               a peer's name, its host when no other has it, or all
/live                          200 while the process runs
/ready                         200 once the node can serve, else 503 and why
/health                        200 while the levels can be met for every key, else 503; JSON
/ring                          racks, peers, shares and the last changes, as JSON
/relay                         streams, pools and upstreams of the relay, as JSON
/metrics                       for Prometheus
/affinity                      the filters: lanes, ages, loads and figures, as JSON
/documents                     servers, shards, lag and degraded writes of the gateway, as JSON
/log-level                     GET or PUT a log filter, from this machine only
POST /affinity/rebuild         new filters from all members; from this machine only
POST /ring/leave               give up this node's arc for good; from this machine only
POST /ring/forget/DC/RACK/TOKEN
                               remove a dead node; from this machine only
POST /ring/join/HOST:PORT      ask a peer port for its ring; from this machine only
";

pub(super) fn routes<V: AdminView>() -> Router<Arc<Admin<V>>> {
    Router::new()
        .route("/", get(|| async { reply::ok(HELP) }))
        .route("/help", get(|| async { reply::ok(HELP) }))
        .route("/ping", get(|| async { reply::ok(DONE) }))
        .route("/info", get(info::<V>))
        .route("/cluster_describe", get(cluster_describe::<V>))
        .route("/loglevelup", get(log_level_up::<V>))
        .route("/logleveldown", get(log_level_down::<V>))
        .route("/setloglevel/{level}", get(set_log_level::<V>))
        .route("/historeset", get(reset_histograms::<V>))
        .route("/get_consistency", get(consistency::<V>))
        .route("/set_consistency/{kind}/{level}", get(set_consistency::<V>))
        .route("/get_timeout_factor", get(timeout_factor::<V>))
        .route("/set_timeout_factor/{factor}", get(set_timeout_factor::<V>))
        .route("/state/get_state", get(state::<V>))
        .route("/state/{state}", get(set_state::<V>))
        .route("/read_repairs/{switch}", get(set_read_repairs::<V>))
        .route("/peer/{verb}/{name}", get(set_peer::<V>))
}

pub(super) type Node<V> = State<Arc<Admin<V>>>;

/// What a command answers when it was done: `body`, else why not.
pub(super) async fn done<V: AdminView>(admin: &Admin<V>, command: Command, body: &str) -> Response {
    match admin.view.command(command).await {
        Ok(()) => reply::ok(body),
        Err(refused) => reply::text(StatusCode::CONFLICT, format!("{refused}\n")),
    }
}

async fn info<V: AdminView>(State(admin): Node<V>) -> Response {
    let counters = admin.view.counters().await;
    let latency = admin.latency_since_reset(&counters.latency);
    let (view, now) = (admin.view.view(), admin.view.now());
    let info = Info { identity: admin.view.identity(), view: &view, now, counters, latency };
    reply::json(StatusCode::OK, &info)
}

#[derive(Serialize)]
struct Cluster<'a> {
    dcs: Vec<ring::DcServers<'a>>,
}

async fn cluster_describe<V: AdminView>(State(admin): Node<V>) -> Response {
    let view = admin.view.view();
    reply::json(StatusCode::OK, &Cluster { dcs: ring::servers(&view.topology) })
}

async fn log_level_up<V: AdminView>(State(admin): Node<V>) -> Response {
    admin.log.set_verbosity(admin.log.verbosity() + 1);
    reply::ok(DONE)
}

async fn log_level_down<V: AdminView>(State(admin): Node<V>) -> Response {
    admin.log.set_verbosity(admin.log.verbosity().saturating_sub(1));
    reply::ok(DONE)
}

async fn set_log_level<V: AdminView>(State(admin): Node<V>, Path(level): Path<String>) -> Response {
    let Ok(level) = level.parse() else {
        return reply::bad_request("not a level", "0 to 11");
    };
    admin.log.set_verbosity(level);
    reply::ok(DONE)
}

async fn reset_histograms<V: AdminView>(State(admin): Node<V>) -> Response {
    admin.reset_latency(admin.view.counters().await.latency);
    reply::ok(DONE)
}

async fn consistency<V: AdminView>(State(admin): Node<V>) -> Response {
    let view = admin.view.view();
    let (read, write) = (view.read, view.write);
    reply::ok(format!("Read Consistency: {read}\r\nWrite Consistency: {write}\r\n"))
}

async fn set_consistency<V: AdminView>(
    State(admin): Node<V>,
    Path((kind, level)): Path<(String, String)>,
) -> Response {
    let Ok(level) = level.parse::<Consistency>() else {
        let accepted = Consistency::ALL.map(Consistency::name).join(", ");
        return reply::bad_request("not a consistency level", &accepted);
    };
    let command = match kind.as_str() {
        "read" => Command::ReadConsistency(level),
        "write" => Command::WriteConsistency(level),
        _ => return reply::bad_request("neither reads nor writes", "read, write"),
    };
    done(&admin, command, DONE).await
}

async fn timeout_factor<V: AdminView>(State(admin): Node<V>) -> Response {
    let factor = admin.view.view().settings.timeout_factor;
    reply::ok(format!("Timeout factor: {factor}\n"))
}

async fn set_timeout_factor<V: AdminView>(
    State(admin): Node<V>,
    Path(factor): Path<String>,
) -> Response {
    let Ok(factor) = factor.parse::<u64>() else {
        return reply::bad_request("not a factor", "1 to 10");
    };
    let factor = factor.clamp(*FACTOR.start(), *FACTOR.end());
    done(&admin, Command::TimeoutFactor(factor), DONE).await
}

async fn state<V: AdminView>(State(admin): Node<V>) -> Response {
    let state = admin.view.view().state;
    reply::ok(format!("State: {state}\n"))
}

async fn set_state<V: AdminView>(State(admin): Node<V>, Path(state): Path<String>) -> Response {
    let state = match state.as_str() {
        "normal" => NodeState::Normal,
        "standby" => NodeState::Standby,
        "writes_only" => NodeState::WritesOnly,
        "resuming" => NodeState::Resuming,
        _ => return reply::bad_request("not a state", "normal, standby, writes_only, resuming"),
    };
    done(&admin, Command::State(state), DONE).await
}

async fn set_read_repairs<V: AdminView>(
    State(admin): Node<V>,
    Path(switch): Path<String>,
) -> Response {
    let on = match switch.as_str() {
        "enable" => true,
        "disable" => false,
        _ => return reply::bad_request("not a switch", "enable, disable"),
    };
    let word = if on { "ENABLED" } else { "DISABLED" };
    done(&admin, Command::ReadRepairs(on), &format!("Read Repairs: {word}\r\n")).await
}

async fn set_peer<V: AdminView>(
    State(admin): Node<V>,
    Path((verb, name)): Path<(String, String)>,
) -> Response {
    let verb = match verb.as_str() {
        "down" => PeerVerb::Down,
        "up" => PeerVerb::Up,
        "reset" => PeerVerb::Reset,
        _ => return reply::bad_request("not a thing to do to a peer", "down, up, reset"),
    };
    match find_peers(&admin.view.view().topology, &name) {
        Ok(peers) => done(&admin, Command::Peers(peers, verb), DONE).await,
        Err(response) => *response,
    }
}

/// The peers a name means: all, the one of that name, or the only one on that host.
fn find_peers(topology: &Topology, name: &str) -> Result<Vec<PeerId>, Box<Response>> {
    let others = || topology.peers().filter(|peer| !peer.is_local);
    if name == "all" {
        return Ok(others().map(|peer| peer.id).collect());
    }
    if let Some(peer) = others().find(|peer| peer.name == name) {
        return Ok(vec![peer.id]);
    }
    let on_host: Vec<_> = others().filter(|peer| peer.host == name).collect();
    let names = |peers: &mut dyn Iterator<Item = String>| peers.collect::<Vec<_>>().join(", ");
    match on_host.as_slice() {
        [peer] => Ok(vec![peer.id]),
        [] => {
            let known = names(&mut others().map(|peer| peer.name.to_owned()));
            let body = format!("no peer {name}; peers: {known}\n");
            Err(Box::new(reply::text(StatusCode::NOT_FOUND, body)))
        }
        several => {
            let known = names(&mut several.iter().map(|peer| peer.name.to_owned()));
            let body = format!("{name} is the host of several peers: {known}\n");
            Err(Box::new(reply::text(StatusCode::CONFLICT, body)))
        }
    }
}
