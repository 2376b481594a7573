//! Requests to backends: the only file that speaks to a Meilisearch. `handoff` uses the same
//! connections to speak to gateways.

use super::answers::{Answers, Share};
use super::call::encode_segment;
use super::settings::{BackendSettings, Key, Settings};
use super::tls::Connector;
use crate::document::batch::Payload;
use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE};
use hyper::{Method, Request, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde_json::Value;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use thiserror::Error;

/// Largest answer of a backend that is read.
pub(super) const ANSWER_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Requests in a row that must time out before a backend is taken for silent.
const SILENT_AFTER: u32 = 2;
/// Idle connections kept to each backend.
const IDLE_CONNECTIONS_MAX: usize = 32;

/// The connections all backends share.
pub(super) type HttpClient = Client<Connector, OutBody>;

/// A client for all backends of a gateway.
pub(super) fn http_client(connector: Connector) -> HttpClient {
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
        .build(connector)
}

/// The body of a request to a backend.
#[derive(Clone, Debug)]
pub(super) enum OutBody {
    Empty,
    Text(Bytes),
    /// Made piece by piece while it is sent.
    Documents(Box<Payload>),
}

impl Body for OutBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        let piece = match this {
            OutBody::Empty => None,
            OutBody::Text(text) => {
                let text = std::mem::take(text);
                *this = OutBody::Empty;
                Some(text)
            }
            OutBody::Documents(payload) => payload.next_piece(),
        };
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(match self {
            OutBody::Empty => 0,
            OutBody::Text(text) => text.len() as u64,
            OutBody::Documents(payload) => payload.total_bytes(),
        })
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, OutBody::Empty)
    }
}

/// A request to one backend.
#[derive(Clone, Debug)]
pub(super) struct Outbound {
    pub(super) method: Method,
    /// Path and query, beginning with `/`.
    pub(super) path: String,
    pub(super) body: OutBody,
}

impl Outbound {
    pub(super) fn get(path: impl Into<String>) -> Outbound {
        Outbound { method: Method::GET, path: path.into(), body: OutBody::Empty }
    }

    pub(super) fn delete(path: impl Into<String>) -> Outbound {
        Outbound { method: Method::DELETE, path: path.into(), body: OutBody::Empty }
    }

    /// The same request with one more query parameter.
    pub(super) fn with_parameter(mut self, name: &str, value: &str) -> Outbound {
        let before = if self.path.contains('?') { '&' } else { '?' };
        self.path.push_str(&format!("{before}{name}={}", encode_segment(value)));
        self
    }

    pub(super) fn json(method: Method, path: impl Into<String>, body: &Value) -> Outbound {
        let body = OutBody::Text(Bytes::from(body.to_string()));
        Outbound { method, path: path.into(), body }
    }
}

/// The path of an index.
pub(super) fn index_path(uid: &str) -> String {
    format!("/indexes/{}", encode_segment(uid))
}

/// A backend's answer.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) body: Bytes,
    /// What it takes of the bytes in flight.
    _share: Arc<Share>,
}

impl Reply {
    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    pub(super) fn json(&self) -> Option<Value> {
        serde_json::from_slice(&self.body).ok()
    }

    /// The body as text; empty when it is no UTF-8.
    pub(super) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap_or_default()
    }

    /// The `code` of a Meilisearch error body.
    pub(super) fn error_code(&self) -> Option<String> {
        let body = self.json()?;
        Some(body.get("code")?.as_str()?.to_owned())
    }

    /// Reads the answer to a write: the backend's task, or why it is no acknowledgement.
    pub(super) fn acknowledged(self) -> Result<u64, WriteFailure> {
        let status = self.status;
        if self.is_success() {
            let uid = self.json().and_then(|body| body.get("taskUid")?.as_u64());
            let missing = || WriteFailure::Failed(format!("status {status} without a task"));
            return uid.ok_or_else(missing);
        }
        Err(match status {
            401 | 403 => WriteFailure::KeyRefused,
            429 => WriteFailure::Failed("too many requests".to_owned()),
            // A method that is not served there: a server says no more.
            405 if self.body.is_empty() => WriteFailure::Rejected(self),
            400..=499 if self.error_code().is_some() => WriteFailure::Rejected(self),
            _ => WriteFailure::Failed(format!("status {status}")),
        })
    }
}

/// Why a write is not acknowledged by one backend.
#[derive(Clone, Debug, Error)]
pub(super) enum WriteFailure {
    /// Refused for what it says.
    #[error("refused with status {}: {}", .0.status, .0.text())]
    Rejected(Reply),
    /// The gateway's own key is wrong. Never shown to a client.
    #[error("the backend refuses node_master_key")]
    KeyRefused,
    /// The backend has not seen it.
    #[error("{0}")]
    Unsent(String),
    /// Not answered, or not understood: it may have been done.
    #[error("{0}")]
    Failed(String),
}

impl From<CallError> for WriteFailure {
    fn from(error: CallError) -> WriteFailure {
        match error {
            CallError::NotSent(_) => WriteFailure::Unsent(error.to_string()),
            CallError::NoAnswer(_) => WriteFailure::Failed(error.to_string()),
        }
    }
}

/// Why there is no answer.
#[derive(Clone, Debug, Error)]
pub(super) enum CallError {
    /// The backend has not seen the request.
    #[error("not sent: {0}")]
    NotSent(String),
    /// The backend may have seen it.
    #[error("no answer: {0}")]
    NoAnswer(String),
}

/// How a backend was last seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    /// Answers.
    Live,
    /// Refuses connections.
    Refusing,
    /// Takes requests and does not answer: not called until a probe is answered.
    Silent,
}

impl Health {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Health::Live => "live",
            Health::Refusing => "refusing",
            Health::Silent => "silent",
        }
    }
}

/// Whether a backend knows `customMetadata`; others refuse unknown parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Metadata {
    Unasked,
    Unknown,
    Taken,
}

/// The version of Meilisearch that is known to take `customMetadata`.
const METADATA_SINCE: (u32, u32) = (1, 50);

/// One Meilisearch server.
#[derive(Debug)]
pub(super) struct Backend {
    pub(super) id: String,
    pub(super) url: String,
    client: HttpClient,
    answers: Arc<Answers>,
    key: Option<Key>,
    timeout: Duration,
    health: AtomicU8,
    metadata: AtomicU8,
    timeouts: AtomicU32,
}

impl Backend {
    pub(super) fn new(
        backend: &BackendSettings,
        settings: &Settings,
        client: HttpClient,
        answers: Arc<Answers>,
    ) -> Backend {
        Backend {
            id: backend.id.clone(),
            url: backend.url.trim_end_matches('/').to_owned(),
            client,
            answers,
            key: settings.node_master_key.clone(),
            timeout: settings.node_timeout,
            health: AtomicU8::new(Health::Live as u8),
            metadata: AtomicU8::new(Metadata::Unasked as u8),
            timeouts: AtomicU32::new(0),
        }
    }

    pub(super) fn health(&self) -> Health {
        match self.health.load(Ordering::Relaxed) {
            0 => Health::Live,
            1 => Health::Refusing,
            _ => Health::Silent,
        }
    }

    pub(super) fn is_live(&self) -> bool {
        self.health() == Health::Live
    }

    fn set_health(&self, health: Health) {
        let before = self.health.swap(health as u8, Ordering::Relaxed);
        if before != health as u8 {
            // Another version may be there next time.
            self.metadata.store(Metadata::Unasked as u8, Ordering::Relaxed);
            let (backend, state) = (self.id.as_str(), health.as_str());
            tracing::info!(plane = "doc", backend, state, "a backend changed its state");
        }
    }

    /// Sends one request. A request that was not sent is tried once more.
    pub(super) async fn call(&self, request: Outbound) -> Result<Reply, CallError> {
        if self.health() == Health::Silent {
            return Err(CallError::NotSent("the backend does not answer".to_owned()));
        }
        self.exchange(request, self.timeout).await
    }

    /// Whether writes of documents may carry a mark of the gateway's task.
    pub(super) fn takes_metadata(&self) -> bool {
        self.metadata.load(Ordering::Relaxed) == Metadata::Taken as u8
    }

    /// Learns the backend's version, unless it is known.
    pub(super) async fn learn_version(&self) {
        if self.metadata.load(Ordering::Relaxed) != Metadata::Unasked as u8 {
            return;
        }
        let Ok(reply) = self.call(Outbound::get("/version")).await else { return };
        let Some(body) = reply.json().filter(|_| reply.is_success()) else { return };
        let version = body.get("pkgVersion").and_then(Value::as_str).unwrap_or_default();
        let mut numbers = version.split('.').map_while(|number| number.parse::<u32>().ok());
        let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        let known = if version >= METADATA_SINCE { Metadata::Taken } else { Metadata::Unknown };
        self.metadata.store(known as u8, Ordering::Relaxed);
    }

    /// Asks whether the backend answers at all.
    pub(super) async fn probe(&self, timeout: Duration) {
        // The state changes with the answer; there is nothing else to learn from it.
        let _ = self.exchange(Outbound::get("/health"), timeout).await;
    }

    async fn exchange(&self, request: Outbound, timeout: Duration) -> Result<Reply, CallError> {
        let work = async {
            match self.send(request.clone()).await {
                Err(CallError::NotSent(_)) => self.send(request).await,
                other => other,
            }
        };
        let result = tokio::time::timeout(timeout, work).await;
        match &result {
            Ok(Ok(_)) => {
                self.timeouts.store(0, Ordering::Relaxed);
                self.set_health(Health::Live);
            }
            Ok(Err(CallError::NotSent(_))) => self.set_health(Health::Refusing),
            Ok(Err(CallError::NoAnswer(_))) => {}
            Err(_) => {
                if self.timeouts.fetch_add(1, Ordering::Relaxed) + 1 >= SILENT_AFTER {
                    self.set_health(Health::Silent);
                }
            }
        }
        result.unwrap_or_else(|_| {
            Err(CallError::NoAnswer(format!("not within {} ms", timeout.as_millis())))
        })
    }

    async fn send(&self, request: Outbound) -> Result<Reply, CallError> {
        let not_sent = |e: &dyn std::fmt::Display| CallError::NotSent(e.to_string());
        let no_answer = |e: &dyn std::fmt::Display| CallError::NoAnswer(e.to_string());
        let uri: Uri = format!("{}{}", self.url, request.path).parse().map_err(|e| not_sent(&e))?;
        let mut builder = Request::builder().method(request.method).uri(uri);
        if !matches!(request.body, OutBody::Empty) {
            builder = builder.header(CONTENT_TYPE, "application/json");
        }
        if let Some(key) = &self.key {
            builder = builder.header(AUTHORIZATION, format!("Bearer {}", key.expose()));
        }
        let request = builder.body(request.body).map_err(|e| not_sent(&e))?;
        let response = self
            .client
            .request(request)
            .await
            .map_err(|e| if e.is_connect() { not_sent(&e) } else { no_answer(&e) })?;
        let status = response.status().as_u16();
        let read = self.answers.read(response.into_body()).await;
        let (body, share) = read.map_err(|e| no_answer(&e))?;
        Ok(Reply { status, body, _share: Arc::new(share) })
    }

    /// A write: its task at the backend, or why there is none.
    pub(super) async fn write(&self, request: Outbound) -> Result<u64, WriteFailure> {
        let outcome = self.call(request).await?.acknowledged();
        if matches!(outcome, Err(WriteFailure::KeyRefused)) {
            let backend = self.id.as_str();
            tracing::error!(plane = "doc", backend, "the backend refuses node_master_key");
        }
        outcome
    }
}
