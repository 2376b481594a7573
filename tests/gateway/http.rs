//! A small HTTP client for tests.

use crate::cluster::PATIENCE;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::header::HeaderMap;
use hyper::{Method, Request};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

/// An answer, its body read.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    /// The body as JSON; null when it is empty.
    pub(crate) fn json(&self) -> Value {
        if self.body.is_empty() {
            return Value::Null;
        }
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {:?}", self.body))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// The error code of the body.
    pub(crate) fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }
}

/// A client of one server.
#[derive(Clone)]
pub(crate) struct Http {
    base: String,
    inner: Client<HttpConnector, Full<Bytes>>,
    pub(crate) headers: Vec<(String, String)>,
}

impl Http {
    pub(crate) fn new(base: impl Into<String>) -> Http {
        let inner = Client::builder(TokioExecutor::new()).build_http();
        Http { base: base.into(), inner, headers: Vec::new() }
    }

    /// The address of the server.
    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    /// The same client with one more header on every request.
    pub(crate) fn with(&self, name: &str, value: &str) -> Http {
        let mut other = self.clone();
        other.headers.push((name.to_owned(), value.to_owned()));
        other
    }

    pub(crate) async fn send(&self, method: &str, path: &str, body: impl Into<Bytes>) -> Answer {
        self.try_send(method, path, body).await.expect("the server answers")
    }

    /// `None` when the server does not answer.
    pub(crate) async fn try_get(&self, path: &str) -> Option<Answer> {
        self.try_send("GET", path, Bytes::new()).await
    }

    async fn try_send(&self, method: &str, path: &str, body: impl Into<Bytes>) -> Option<Answer> {
        let mut request = Request::builder()
            .method(Method::from_bytes(method.as_bytes()).unwrap())
            .uri(format!("{}{path}", self.base));
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(body.into())).unwrap();
        let answer = async {
            let (parts, body) = self.inner.request(request).await.ok()?.into_parts();
            let body = body.collect().await.ok()?.to_bytes();
            Some(Answer { status: parts.status.as_u16(), headers: parts.headers, body })
        };
        tokio::time::timeout(PATIENCE, answer).await.expect("an answer or none in time")
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, Bytes::new()).await
    }

    pub(crate) async fn json(&self, method: &str, path: &str, body: &Value) -> Answer {
        self.with("content-type", "application/json").send(method, path, body.to_string()).await
    }
}
