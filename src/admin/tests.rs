//! The pages over a node that only remembers what it was told.

use std::sync::{Arc, Mutex};

use axum::body::{Body, to_bytes};
use axum::http::{Method, Request, StatusCode};
use axum::{Extension, Router};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use tower::ServiceExt;
use tracing::Subscriber;

use super::*;
use crate::dispatch::Counters;
use crate::dispatch::view::{BucketTypes, NodeState, Now, Settings, View};
use crate::gossip::{DownCause, Kind, Reach, Slot, Standing};
use crate::hash::KeyHasher;
use crate::net::http::Caller;
use crate::ring::{Consistency, Peer, PeerId, PeerRef, PeerState, Topology};
use crate::token::DynToken;

mod dynomite;
mod own;
mod wire;

/// What the fake node was told, and what it says.
#[derive(Default)]
struct Told {
    commands: Mutex<Vec<Command>>,
    refuse: Option<&'static str>,
    waiting: Option<&'static str>,
    alarm: Option<&'static str>,
    down: Vec<u32>,
    read: Consistency,
}

#[derive(Clone, Default)]
struct Fake(Arc<Told>);

/// Two datacenters: dc1 with racks r1 (two nodes) and r2, dc2 with rack r1.
fn topology(down: &[u32]) -> Topology {
    let peer = |id: u32, host: &str, dc: &str, rack: &str, token: u32| Peer {
        id: PeerId(id),
        name: format!("{host}:{}", 8101 + id),
        host: host.into(),
        port: 8101 + id as u16,
        dc: dc.into(),
        rack: rack.into(),
        tokens: vec![DynToken::from_u32(token)],
        state: PeerState::Normal,
        reachable: !down.contains(&id),
        is_local: id == 0,
        is_torc: id != 3,
    };
    Topology::build(vec![
        peer(0, "10.0.0.1", "dc1", "r1", 0),
        peer(1, "10.0.0.2", "dc1", "r1", 1 << 31),
        peer(2, "10.0.0.2", "dc1", "r2", 0),
        peer(3, "10.1.0.1", "dc2", "r1", 7),
    ])
    .unwrap()
}

impl AdminView for Fake {
    fn identity(&self) -> Identity {
        Identity { pool: "pool".into(), store: "127.0.0.1:6379".into(), source: "host1".into() }
    }

    fn now(&self) -> Now {
        Now { mono_us: 61_000_000, wall_us: 1_700_000_000_999_000 }
    }

    fn view(&self) -> Arc<View> {
        Arc::new(View {
            topology: topology(&self.0.down),
            hasher: KeyHasher::default(),
            read: self.0.read,
            write: Consistency::DcOne,
            buckets: BucketTypes::default(),
            state: NodeState::WritesOnly,
            affinity: None,
            settings: Settings { timeout_factor: 3, ..Settings::default() },
        })
    }

    async fn counters(&self) -> Counters {
        let mut counters = Counters { clients: 5, client_reads: 70, ..Counters::default() };
        counters.latency.record(900);
        counters.latency.record(100);
        counters
    }

    fn latches(&self) -> Vec<Latch> {
        let waiting_for = self.0.waiting.map(str::to_owned);
        vec![
            Latch { name: "listeners", waiting_for: None },
            Latch { name: "datastore", waiting_for },
        ]
    }

    async fn standings(&self) -> Vec<Standing> {
        let standing = |peer: PeerRef<'_>| Standing {
            id: peer.id,
            slot: Slot::new(peer.dc, peer.rack, peer.tokens[0]),
            kind: if peer.is_torc { Kind::Torc } else { Kind::C },
            reach: match peer.reachable {
                true => Reach::Up,
                false => Reach::Down(DownCause::Silent),
            },
            since_ms: 9_000,
            heard_ms: (!peer.is_local).then_some(70),
            phi: if peer.reachable { 0.1234 } else { f64::INFINITY },
            generation: 3,
            attributes: Default::default(),
        };
        topology(&self.0.down).peers().map(standing).collect()
    }

    fn affinity_report(&self) -> Option<crate::affinity::mesh::PlaneReport> {
        None
    }

    fn alarms(&self) -> Vec<String> {
        self.0.alarm.map(str::to_owned).into_iter().collect()
    }

    fn events(&self) -> Vec<Event> {
        vec![Event {
            at_ms: 5,
            slot: "dc1/r1/2147483648".into(),
            what: "down".into(),
            cause: "no sign of life".into(),
        }]
    }

    fn collect(&self, registry: &mut Registry) {
        registry.register("hints_kept", "Hints kept", Counter::<u64>::default());
    }

    fn relay(&self) -> Option<serde_json::Value> {
        None
    }

    async fn command(&self, command: Command) -> Result<(), Refused> {
        self.0.commands.lock().unwrap().push(command);
        self.0.refuse.map_or(Ok(()), |why| Err(Refused(why.into())))
    }
}

/// A fake node behind its pages.
struct Pages {
    told: Arc<Told>,
    router: Router,
    log: Arc<Log>,
    /// The log's filter lives in it.
    _subscriber: Box<dyn Subscriber + Send + Sync>,
}

fn pages(told: Told) -> Pages {
    let (subscriber, log) = Log::build(5, None).unwrap();
    let (told, log) = (Arc::new(told), Arc::new(log));
    let router = router(Fake(Arc::clone(&told)), Arc::clone(&log));
    Pages { told, router, log, _subscriber: subscriber }
}

impl Pages {
    /// Status, content type, body.
    async fn ask(&self, method: Method, path: &str, body: &str) -> (u16, String, String) {
        self.ask_from("127.0.0.1:5000", method, path, body).await
    }

    async fn ask_from(
        &self,
        caller: &str,
        method: Method,
        path: &str,
        body: &str,
    ) -> (u16, String, String) {
        let router = self.router.clone().layer(Extension(Caller {
            remote: caller.parse().unwrap(),
            local: "10.0.0.1:22222".parse().unwrap(),
        }));
        let request = Request::builder().method(method).uri(path);
        let request = request.body(Body::from(body.to_owned())).unwrap();
        let response = router.oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let kind = response.headers().get("content-type").map(|v| v.to_str().unwrap().to_owned());
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (status, kind.unwrap_or_default(), String::from_utf8(body.to_vec()).unwrap())
    }

    /// Status and body of a GET.
    async fn get(&self, path: &str) -> (u16, String) {
        let (status, _, body) = self.ask(Method::GET, path, "").await;
        (status, body)
    }

    /// The commands since the last call.
    fn commands(&self) -> Vec<Command> {
        std::mem::take(&mut self.told.commands.lock().unwrap())
    }
}

#[tokio::test]
async fn unknown_paths_and_methods_are_said_so() {
    let pages = pages(Told::default());
    let (status, kind, body) = pages.ask(Method::GET, "/getseeds", "").await;
    assert_eq!((status, body.as_str()), (404, "no such path: /getseeds; see /help\n"));
    assert_eq!(kind, "text/plain; charset=utf-8");
    let (status, body) = pages.get("/infos").await;
    assert_eq!(status, StatusCode::NOT_FOUND.as_u16(), "{body}");
    let (status, _, body) = pages.ask(Method::DELETE, "/info", "").await;
    assert_eq!((status, body.as_str()), (405, "DELETE is not for this path; see /help\n"));
}
