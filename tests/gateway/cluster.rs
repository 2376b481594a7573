//! A gateway in front of fakes, all in this process.

use crate::fake::{Fake, clock};
use crate::http::{Answer, Http};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use torc::document::topology::Topology;
use torc::gateway::{BackendSettings, Gateway, Key, MemoryKv, RingKv, Settings, WallClock};

pub(crate) const NODE_KEY: &str = "node-key";

/// How long anything may take: a bound for slow machines, not a measurement.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);
/// A time of the gateway that is over in no test.
pub(crate) const NEVER: Duration = Duration::from_secs(24 * 3_600);
/// The node timeout where a test waits for one to pass: long beside what a backend that answers
/// takes on a slow machine.
pub(crate) const PASSES: Duration = Duration::from_secs(3);

/// Shape of a cluster.
pub(crate) struct Shape {
    pub(crate) groups: usize,
    pub(crate) members: usize,
    pub(crate) copies: usize,
    pub(crate) shards: u32,
}

pub(crate) struct Cluster {
    pub(crate) fakes: Vec<Fake>,
    pub(crate) http: Http,
    pub(crate) settings: Settings,
    pub(crate) kv: Arc<dyn RingKv>,
    pub(crate) gateway: Arc<Gateway>,
    serving: JoinHandle<()>,
}

impl Cluster {
    pub(crate) async fn start(shape: Shape) -> Cluster {
        Cluster::with(shape, |_| ()).await
    }

    /// Backends are `node-0`, `node-1`, ... over all groups.
    pub(crate) async fn with(shape: Shape, change: impl FnOnce(&mut Settings)) -> Cluster {
        let mut fakes = Vec::new();
        let mut groups = Vec::new();
        for _ in 0..shape.groups {
            let mut group = Vec::new();
            for _ in 0..shape.members {
                let fake = Fake::start(Some(NODE_KEY)).await;
                let id = format!("node-{}", fakes.len());
                group.push(BackendSettings { id, url: fake.url() });
                fakes.push(fake);
            }
            groups.push(group);
        }
        let mut settings = Settings {
            shards: shape.shards,
            replication_factor: shape.copies,
            groups,
            node_master_key: Key::new(NODE_KEY),
            slot: Some(0),
            refresh_interval: Duration::from_millis(20),
            node_timeout: NEVER,
            request_timeout: NEVER,
            task_lost_after: NEVER,
            session_wait: NEVER,
            body_idle_max: NEVER,
            ..Settings::default()
        };
        change(&mut settings);
        let kv: Arc<dyn RingKv> = Arc::new(MemoryKv::new(clock()));
        let (gateway, http, serving) = serve(settings.clone(), kv.clone()).await;
        Cluster { fakes, http, settings, kv, gateway, serving }
    }

    /// A second gateway over the same backends and the same ring.
    pub(crate) async fn another(&self, change: impl FnOnce(&mut Settings)) -> (Arc<Gateway>, Http) {
        let mut settings = self.settings.clone();
        change(&mut settings);
        let (gateway, http, _) = serve(settings, self.kv.clone()).await;
        (gateway, http)
    }

    /// Kills the gateway and starts one anew with the same ring.
    pub(crate) async fn restart(&mut self) {
        self.restart_at(clock()).await;
    }

    /// The same with a clock of its own.
    pub(crate) async fn restart_at(&mut self, clock: WallClock) {
        self.serving.abort();
        let started = serve_at(self.settings.clone(), self.kv.clone(), clock).await;
        (self.gateway, self.http, self.serving) = started;
    }

    pub(crate) fn topology(&self) -> Topology {
        self.settings.topology().unwrap()
    }

    /// What the gateway last saw of a backend.
    pub(crate) fn state_of(&self, id: &str) -> Value {
        let status = self.gateway.status();
        let groups = status["groups"].as_array().into_iter().flatten();
        let mut all = groups.flat_map(|group| group["backends"].as_array().into_iter().flatten());
        all.find(|backend| backend["id"] == id).cloned().unwrap_or_default()
    }

    pub(crate) async fn stop(&mut self, nodes: &[usize]) {
        for node in nodes {
            self.fakes[*node].stop().await;
        }
    }

    pub(crate) async fn resume(&mut self, nodes: &[usize]) {
        for node in nodes {
            self.fakes[*node].resume().await;
        }
    }

    /// Clears the request logs of all fakes.
    pub(crate) fn forget_requests(&self) {
        for fake in &self.fakes {
            fake.take_log();
        }
    }

    /// Write requests every fake has seen.
    pub(crate) fn writes(&self) -> Vec<usize> {
        self.fakes.iter().map(|fake| fake.writes().len()).collect()
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.http.json("POST", path, body).await
    }

    /// Posts documents to `movies`, which must be accepted, and waits until they are stored.
    pub(crate) async fn add(&self, documents: &Value) -> Value {
        let answer = self.post("/indexes/movies/documents", documents).await;
        assert_eq!(answer.status, 202, "{:?}", answer.json());
        self.succeeded(&answer).await
    }

    /// The task of a 202 once it is finished.
    pub(crate) async fn task(&self, answer: &Answer) -> Value {
        finished(&self.http, answer).await
    }

    pub(crate) async fn succeeded(&self, answer: &Answer) -> Value {
        let task = self.task(answer).await;
        assert_eq!(task["status"], "succeeded", "{task}");
        task
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// A gateway that may be handed writes gets its real address as its own.
pub(crate) async fn serve(
    settings: Settings,
    kv: Arc<dyn RingKv>,
) -> (Arc<Gateway>, Http, JoinHandle<()>) {
    serve_at(settings, kv, clock()).await
}

async fn serve_at(
    mut settings: Settings,
    kv: Arc<dyn RingKv>,
    clock: WallClock,
) -> (Arc<Gateway>, Http, JoinHandle<()>) {
    let name = format!("gateway-{}", settings.slot.unwrap_or(0));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    settings.own_url = settings.own_url.map(|_| url.clone());
    let gateway = Arc::new(Gateway::new(settings, &name, kv, clock).unwrap());
    let http = Http::new(url);
    let running = gateway.clone();
    let serving = tokio::spawn(async move {
        running.run(listener, Duration::ZERO, std::future::pending()).await;
    });
    (gateway, http, serving)
}

pub(crate) async fn finished(http: &Http, answer: &Answer) -> Value {
    assert_eq!(answer.status, 202, "{:?}", answer.json());
    let uid = answer.json()["taskUid"].as_u64().expect("a numeric task");
    in_time("the task is finished", async {
        loop {
            let task = http.get(&format!("/tasks/{uid}")).await;
            assert_eq!(task.status, 200, "{:?}", task.json());
            let task = task.json();
            if !["enqueued", "processing"].contains(&task["status"].as_str().unwrap()) {
                return task;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await
}

/// `doc-<from>..doc-<to>`.
pub(crate) fn documents(range: std::ops::Range<usize>) -> Value {
    let one = |i: usize| json!({"id": format!("doc-{i}"), "n": i, "title": format!("title {i}")});
    Value::Array(range.map(one).collect())
}

/// Repeats a look until it shows what is expected.
pub(crate) async fn eventually(what: &str, mut look: impl AsyncFnMut() -> bool) {
    in_time(what, async {
        while !look().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
}

/// Work that ends; the test fails when it does not.
async fn in_time<T>(what: &str, work: impl Future<Output = T>) -> T {
    let Ok(done) = tokio::time::timeout(PATIENCE, work).await else { panic!("never: {what}") };
    done
}
