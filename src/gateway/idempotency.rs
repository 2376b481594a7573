//! Idempotency keys: a write that is sent again is answered again, not done again.
//!
//! The raw request is hashed, before anything is injected. Only accepted writes are remembered.
//! While two gateways run one key at the same moment both may do the write; documents are keyed,
//! so that costs a task and nothing else.

use super::call::Call;
use super::error::ApiError;
use super::kv::{Class, State};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};

/// The header that carries a key.
pub(super) const KEY_HEADER: &str = "idempotency-key";
/// Longest key in bytes.
const KEY_BYTES_MAX: usize = 255;

/// An accepted write's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Written {
    /// The JSON body of the 202.
    pub(super) body: String,
    /// The value of `X-Miroir-Degraded`.
    pub(super) degraded: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    request: String,
    answer: Written,
}

/// Keys being worked on here.
pub(super) struct Idempotency {
    state: State,
    running: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

/// What a key says about a request.
pub(super) enum Seen {
    /// Do it, and hand the answer to [`Idempotency::finish`].
    New(Turn),
    /// It was done: this was the answer.
    Before(Written),
}

/// The right to work on one key.
pub(super) struct Turn {
    name: String,
    request: String,
    _held: tokio::sync::OwnedMutexGuard<()>,
}

/// The key of a call, if it has one.
///
/// # Errors
/// The key is empty, too long, or no text.
pub(super) fn key_of(call: &Call) -> Result<Option<String>, ApiError> {
    let Some(value) = call.headers.get(KEY_HEADER) else { return Ok(None) };
    match std::str::from_utf8(value.as_bytes()) {
        Ok(key) if (1..=KEY_BYTES_MAX).contains(&key.len()) => Ok(Some(key.to_owned())),
        _ => {
            let message = format!("an Idempotency-Key is text of 1 to {KEY_BYTES_MAX} bytes");
            Err(ApiError::new("miroir_invalid_idempotency_key", message))
        }
    }
}

/// The hash of a raw request.
pub(super) fn request_hash(method: &str, target: &str, body: &[u8]) -> String {
    let mut hash = Sha256::new();
    for part in [method.as_bytes(), b"\0", target.as_bytes(), b"\0", body] {
        hash.update(part);
    }
    hex(&hash.finalize())
}

fn hex(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(out, "{byte:02x}");
    }
    out
}

impl Idempotency {
    pub(super) fn new(state: State) -> Idempotency {
        Idempotency { state, running: Mutex::default() }
    }

    /// Looks a key up; waits while the same key is worked on here.
    ///
    /// # Errors
    /// The key was used for another request, or the state cannot be read.
    pub(super) async fn begin(&self, key: &str, request: String) -> Result<Seen, ApiError> {
        let name = hex(&Sha256::digest(key.as_bytes()));
        let lock = {
            let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
            running.retain(|_, lock| Arc::strong_count(lock) > 1);
            running.entry(name.clone()).or_default().clone()
        };
        let held = lock.lock_owned().await;
        let stored: Option<Stored> = self.state.load(Class::Idempotency, &name).await?;
        match stored {
            None => Ok(Seen::New(Turn { name, request, _held: held })),
            Some(stored) if stored.request == request => Ok(Seen::Before(stored.answer)),
            Some(_) => Err(ApiError::new(
                "miroir_idempotency_key_reused",
                "this Idempotency-Key was used for another request",
            )),
        }
    }

    /// Remembers an accepted write.
    pub(super) async fn finish(&self, turn: Turn, answer: &Written) {
        let stored = Stored { request: turn.request, answer: answer.clone() };
        if let Err(error) = self.state.store(Class::Idempotency, &turn.name, &stored).await {
            tracing::warn!(plane = "doc", %error, "an idempotency key was not remembered");
        }
    }
}
