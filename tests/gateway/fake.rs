//! A fake Meilisearch: torc's built-in document server with word search, a request log and
//! switches for everything that can go wrong.

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use serde_json::{Map, Value};
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use torc::gateway::WallClock;
use torc::gateway::builtin::{Engine, router};

/// How a fake answers.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Mode {
    /// As Meilisearch does.
    #[default]
    Normal,
    /// Takes requests and never answers.
    Silent,
    /// This status and body, whatever was asked.
    Always(u16, &'static str),
    /// After a pause, as Meilisearch does.
    Slow(Duration),
    /// As Meilisearch does, after pauses of 0 to 20 ms that differ from request to request: what
    /// is sent at the same time arrives in another order.
    Uneven,
    /// As Meilisearch does, but answers to paths that end so wait for another mode: they tell
    /// what was true when they were asked.
    Held(&'static str),
}

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) authorization: Option<String>,
    pub(crate) body: Bytes,
}

impl Seen {
    pub(crate) fn is_write(&self) -> bool {
        self.method != "GET" && !self.target.ends_with("/fetch") && !self.target.contains("/search")
    }
}

struct Shared {
    mode: watch::Sender<Mode>,
    held: AtomicUsize,
    log: Mutex<Vec<Seen>>,
    router: Router,
}

/// One fake server. It stops when dropped.
pub(crate) struct Fake {
    pub(crate) address: std::net::SocketAddr,
    engine: Arc<Mutex<Engine>>,
    bell: Arc<Notify>,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
    queue: JoinHandle<()>,
}

/// The wall clock of tests.
#[allow(clippy::disallowed_methods, reason = "tests hand the system's clock in")]
pub(crate) fn clock() -> WallClock {
    WallClock::new(|| {
        let since = std::time::SystemTime::now().duration_since(UNIX_EPOCH);
        since.map_or(0, |since| since.as_micros() as u64)
    })
}

/// The wall clock with a hand to move it on: microseconds ahead of the system's.
pub(crate) fn hand_clock() -> (Arc<AtomicU64>, WallClock) {
    let (ahead, real) = (Arc::new(AtomicU64::new(0)), clock());
    let shared = ahead.clone();
    (ahead, WallClock::new(move || real.now_us() + shared.load(Ordering::Relaxed)))
}

impl Fake {
    pub(crate) async fn start(master_key: Option<&str>) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let engine = Arc::new(Mutex::new(Engine::new(clock(), Some(words))));
        let bell = Arc::new(Notify::new());
        let router = router(engine.clone(), bell.clone(), master_key);
        let (mode, held) = (watch::Sender::default(), AtomicUsize::new(0));
        let shared = Arc::new(Shared { mode, held, log: Mutex::default(), router });
        let queue = tokio::spawn(run_queue(engine.clone(), bell.clone()));
        let accepting = Some(tokio::spawn(accept(listener, shared.clone())));
        Fake { address, engine, bell, shared, accepting, queue }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn set(&self, mode: Mode) {
        self.shared.mode.send_replace(mode);
    }

    /// Answers that wait, or waited.
    pub(crate) fn held(&self) -> usize {
        self.shared.held.load(Ordering::Relaxed)
    }

    /// Works on the engine, then lets its queue go on.
    pub(crate) fn engine<T>(&self, work: impl FnOnce(&mut Engine) -> T) -> T {
        let result = work(&mut self.engine.lock().unwrap());
        self.bell.notify_one();
        result
    }

    /// Every request so far; the log starts anew.
    pub(crate) fn take_log(&self) -> Vec<Seen> {
        std::mem::take(&mut self.shared.log.lock().unwrap())
    }

    /// Requests so far to paths that begin so.
    pub(crate) fn asked(&self, path: &str) -> usize {
        let log = self.shared.log.lock().unwrap();
        log.iter().filter(|seen| seen.target.starts_with(path)).count()
    }

    pub(crate) fn writes(&self) -> Vec<Seen> {
        self.shared.log.lock().unwrap().iter().filter(|seen| seen.is_write()).cloned().collect()
    }

    /// Refuses connections from now on; what it stored stays.
    pub(crate) async fn stop(&mut self) {
        if let Some(accepting) = self.accepting.take() {
            accepting.abort();
            let _ = accepting.await;
        }
    }

    /// Takes connections again at the same address.
    pub(crate) async fn resume(&mut self) {
        if self.accepting.is_none() {
            let listener = TcpListener::bind(self.address).await.expect("the port is still free");
            self.accepting = Some(tokio::spawn(accept(listener, self.shared.clone())));
        }
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.queue.abort();
        if let Some(accepting) = &self.accepting {
            accepting.abort();
        }
    }
}

/// Connections die with this task: they are its children.
async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(serve(stream, shared.clone()));
    }
}

async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    let service = service_fn(move |request| answer(request, shared.clone()));
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn answer(
    request: Request<Incoming>,
    shared: Arc<Shared>,
) -> Result<Response<Body>, Infallible> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let authorization = parts.headers.get("authorization");
    shared.log.lock().unwrap().push(Seen {
        method: parts.method.to_string(),
        target: parts.uri.to_string(),
        authorization: authorization.map(|value| value.to_str().unwrap().to_owned()),
        body: body.clone(),
    });
    let mode = shared.mode.borrow().clone();
    let path = parts.uri.path().to_owned();
    match mode {
        Mode::Normal | Mode::Held(_) => {}
        Mode::Silent => std::future::pending().await,
        Mode::Always(status, text) => {
            let mut response = Response::new(Body::from(text));
            *response.status_mut() = StatusCode::from_u16(status).unwrap();
            return Ok(response);
        }
        Mode::Slow(pause) => tokio::time::sleep(pause).await,
        Mode::Uneven => {
            let step = shared.log.lock().unwrap().len() * 7 % 11;
            tokio::time::sleep(Duration::from_millis(2 * step as u64)).await;
        }
    }
    let request = Request::from_parts(parts, Body::from(body));
    let answer = TowerToHyperService::new(shared.router.clone()).call(request).await;
    if matches!(mode, Mode::Held(end) if path.ends_with(end)) {
        let mut mode = shared.mode.subscribe();
        shared.held.fetch_add(1, Ordering::Relaxed);
        let _ = mode.wait_for(|mode| !matches!(mode, Mode::Held(_))).await;
    }
    answer
}

async fn run_queue(engine: Arc<Mutex<Engine>>, bell: Arc<Notify>) {
    loop {
        bell.notified().await;
        while engine.lock().unwrap().run_next() {
            tokio::task::yield_now().await;
        }
    }
}

/// Matches documents that have every word of the query; more words of the query in a document's
/// text make a better score.
fn words(document: &Map<String, Value>, query: &str) -> Option<f64> {
    let text: Vec<String> = document
        .values()
        .filter_map(Value::as_str)
        .flat_map(|text| {
            text.to_lowercase().split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        })
        .collect();
    let mut hits = 0;
    for word in query.to_lowercase().split_whitespace() {
        let found = text.iter().filter(|candidate| candidate.as_str() == word).count();
        if found == 0 {
            return None;
        }
        hits += found;
    }
    Some(hits as f64 / (text.len() + 1) as f64)
}
