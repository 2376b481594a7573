//! Writes that another gateway must do: the request goes to the index's sequencer as it came,
//! and its answer goes to the client.

use super::aliases::Resolved;
use super::call::Call;
use super::client::{ANSWER_BYTES_MAX, OutBody};
use super::core::Core;
use super::counters::count;
use super::error::{ApiError, Failure, json_response};
use super::idempotency::KEY_HEADER;
use super::others::GatewayFacts;
use super::sessions::SESSION_HEADER;
use super::writes::DEGRADED_HEADER;
use axum::response::Response;
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::{Request, StatusCode};
use std::sync::Arc;
use std::time::Duration;

/// Marks a request that was handed over, with the name of who did it: it is not passed on again.
const HANDED_HEADER: &str = "x-torc-handed-by";
/// What a handed-over request keeps of its head.
const REQUEST_HEADERS: [&str; 5] =
    ["content-type", "content-encoding", "authorization", KEY_HEADER, SESSION_HEADER];
/// What the client gets of the answer's head.
const ANSWER_HEADERS: [&str; 2] = [DEGRADED_HEADER, "retry-after"];
/// Pause between looks whether the other gateway is still alive.
const LOOK_PAUSE: Duration = Duration::from_millis(200);

/// Why the other gateway did not answer for a write.
enum Unanswered {
    /// It has not seen the request.
    NotSent,
    /// It may have seen it.
    Unknown,
}

/// The answer of the index's sequencer; `None` when this gateway is to do the write itself.
///
/// # Errors
/// The aliases were never read, or the outcome is unknown.
pub(super) async fn elsewhere(
    core: &Arc<Core>,
    call: &Call,
    name: &str,
    raw: &Bytes,
) -> Result<Option<Response>, Failure> {
    if core.others.known().is_empty() || call.headers.contains_key(HANDED_HEADER) {
        return Ok(None);
    }
    let Resolved::One(uid) = core.aliases.resolve(name).await? else { return Ok(None) };
    let Some(other) = core.others.sequencer(&uid) else { return Ok(None) };
    match hand_over(core, call, raw, &other).await {
        Ok(response) => {
            count(&core.counters.writes_handed_over);
            Ok(Some(response))
        }
        Err(Unanswered::NotSent) => {
            // The write is marked as unsure where it is sent to backends.
            count(&core.counters.handovers_failed);
            let gateway = other.id;
            tracing::warn!(plane = "doc", index = uid, gateway, "a write was not handed over");
            Ok(None)
        }
        Err(Unanswered::Unknown) => {
            count(&core.counters.handovers_failed);
            let message = format!(
                "the gateway of {} took the write and did not answer; its outcome is unknown. \
                 Repeating the same request is safe",
                other.id
            );
            Err(ApiError::new("miroir_timeout", message).into())
        }
    }
}

async fn hand_over(
    core: &Core,
    call: &Call,
    raw: &Bytes,
    to: &GatewayFacts,
) -> Result<Response, Unanswered> {
    let url = to.url.as_deref().ok_or(Unanswered::NotSent)?;
    let mut request = Request::builder()
        .method(call.method.clone())
        .uri(format!("{url}{}", call.target))
        .header(HANDED_HEADER, core.others.id());
    for name in REQUEST_HEADERS {
        if let Some(value) = call.headers.get(name) {
            request = request.header(name, value);
        }
    }
    let request = request.body(OutBody::Text(raw.clone())).map_err(|_| Unanswered::NotSent)?;
    let work = async {
        let answer = core.http_client().request(request).await;
        let answer = answer.map_err(|e| match e.is_connect() {
            true => Unanswered::NotSent,
            false => Unanswered::Unknown,
        })?;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|_| Unanswered::Unknown)?.to_bytes();
        let status = StatusCode::from_u16(head.status.as_u16()).unwrap_or(StatusCode::BAD_GATEWAY);
        let mut response = json_response(status, body);
        for name in ANSWER_HEADERS {
            if let Some(value) = head.headers.get(name) {
                response.headers_mut().insert(name, value.clone());
            }
        }
        Ok(response)
    };
    let gone = async {
        while core.others.is_alive(&to.id) {
            tokio::time::sleep(LOOK_PAUSE).await;
        }
    };
    let answered = async {
        tokio::select! {
            answer = work => answer,
            () = gone => Err(Unanswered::Unknown),
        }
    };
    let answered = tokio::time::timeout(core.settings.request_timeout, answered).await;
    answered.unwrap_or(Err(Unanswered::Unknown))
}
