//! Request bodies: bounded, decompressed, and counted against the bytes in flight.

use super::call::Call;
use super::error::ApiError;
use axum::body::Body;
use bytes::{Bytes, BytesMut};
use flate2::read::MultiGzDecoder;
use http_body_util::BodyExt;
use hyper::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Unit in which bytes in flight are counted.
const UNIT_BYTES: usize = 4 * 1024;
/// Longest time a body may take to arrive.
const ARRIVAL_MAX: Duration = Duration::from_secs(600);
/// Bytes a second of a body that is not given up, once it is late: a client that lets one byte
/// fall now and then must not keep its share of the bytes in flight.
const PACE_BYTES: u32 = 16 * 1024;
/// Bodies below this size are worked on where they are; larger ones on a blocking thread.
pub(super) const INLINE_BYTES_MAX: usize = 16 * 1024;

/// Bounds of request bodies, and the bytes of all requests in flight.
pub(super) struct Bodies {
    units: Arc<Semaphore>,
    units_total: usize,
    bytes_max: usize,
    idle_max: Duration,
}

/// A body that was read whole. Its bytes count as in flight until it is dropped.
pub(super) struct ReadBody {
    /// As sent.
    pub(super) raw: Bytes,
    /// Decompressed.
    pub(super) text: Bytes,
    _permit: OwnedSemaphorePermit,
}

impl Bodies {
    pub(super) fn new(bytes_max: usize, in_flight_bytes_max: usize, idle_max: Duration) -> Bodies {
        // One body of the largest size, compressed and not, must always fit.
        let units_total = (in_flight_bytes_max / UNIT_BYTES)
            .max(2 * units(bytes_max))
            .min(Semaphore::MAX_PERMITS);
        Bodies { units: Arc::new(Semaphore::new(units_total)), units_total, bytes_max, idle_max }
    }

    /// Bytes of bodies in flight.
    pub(super) fn in_flight_bytes(&self) -> usize {
        (self.units_total - self.units.available_permits()) * UNIT_BYTES
    }

    /// Reads and decompresses the body of a call.
    ///
    /// # Errors
    /// It is larger than the limit, cannot be read or decompressed, or there is no room for it.
    pub(super) async fn read(&self, call: &mut Call) -> Result<ReadBody, ApiError> {
        let encoding = call.headers.get(CONTENT_ENCODING);
        let encoding = encoding.map(|value| value.as_bytes().to_ascii_lowercase());
        let gzip = match encoding.as_deref() {
            None | Some(b"" | b"identity") => false,
            Some(b"gzip" | b"x-gzip") => true,
            Some(other) => {
                let shown = String::from_utf8_lossy(other);
                let message = format!("the Content-Encoding `{shown}` is not supported; use gzip");
                return Err(ApiError::new("invalid_content_type", message));
            }
        };
        let announced =
            call.headers.get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse().ok());
        if announced.is_some_and(|bytes: usize| bytes > self.bytes_max) {
            return Err(self.too_large());
        }
        let mut permit = self.reserve(announced.unwrap_or(0)).await?;
        let raw = self.collect(call, &mut permit, announced.unwrap_or(0));
        let raw = tokio::time::timeout(ARRIVAL_MAX, raw).await.map_err(|_| stalled())??;
        if !gzip {
            return Ok(ReadBody { text: raw.clone(), raw, _permit: permit });
        }
        let text = self.unzip(raw.clone(), &mut permit).await?;
        Ok(ReadBody { raw, text, _permit: permit })
    }

    /// A share of the bytes in flight for an answer of unknown size.
    async fn reserve(&self, bytes: usize) -> Result<OwnedSemaphorePermit, ApiError> {
        let wanted = u32::try_from(units(bytes)).unwrap_or(u32::MAX);
        let permit = self.units.clone().acquire_many_owned(wanted).await;
        permit.map_err(|_| overloaded())
    }

    /// Grows a share. Waiting here could make two half-read bodies wait for each other.
    fn grow(&self, permit: &mut OwnedSemaphorePermit, bytes: usize) -> Result<(), ApiError> {
        let wanted = units(bytes).saturating_sub(permit.num_permits());
        if wanted == 0 {
            return Ok(());
        }
        let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
        let more = self.units.clone().try_acquire_many_owned(wanted).map_err(|_| overloaded())?;
        permit.merge(more);
        Ok(())
    }

    async fn collect(
        &self,
        call: &mut Call,
        permit: &mut OwnedSemaphorePermit,
        announced: usize,
    ) -> Result<Bytes, ApiError> {
        let mut body = call.take_body();
        let mut raw = BytesMut::with_capacity(announced.min(self.bytes_max));
        // Nor may one that stops in the middle.
        let next = async |body: &mut Body| tokio::time::timeout(self.idle_max, body.frame()).await;
        let mut late = std::pin::pin!(tokio::time::sleep(self.idle_max));
        loop {
            let frame = tokio::select! {
                frame = next(&mut body) => frame.map_err(|_| stalled())?,
                () = &mut late => return Err(stalled()),
            };
            let Some(frame) = frame else { return Ok(raw.freeze()) };
            let frame = frame.map_err(|e| {
                ApiError::new("bad_request", format!("the request body cannot be read: {e}"))
            })?;
            let Ok(data) = frame.into_data() else { continue };
            if raw.len() + data.len() > self.bytes_max {
                return Err(self.too_large());
            }
            self.grow(permit, raw.len() + data.len())?;
            raw.extend_from_slice(&data);
            let later = Duration::from_secs(data.len() as u64) / PACE_BYTES;
            let deadline = late.deadline() + later;
            late.as_mut().reset(deadline);
        }
    }

    async fn unzip(
        &self,
        raw: Bytes,
        permit: &mut OwnedSemaphorePermit,
    ) -> Result<Bytes, ApiError> {
        // What it will come to is not known: hold the most it may be while it is unpacked.
        self.grow(permit, raw.len() + self.bytes_max)?;
        let bytes_max = self.bytes_max;
        let held = raw.len();
        let unzipped = tokio::task::spawn_blocking(move || unzip(&raw, bytes_max)).await;
        let text = unzipped.map_err(|e| ApiError::new("internal", e.to_string()))?;
        let text = text.map_err(|reason| {
            let message = format!("The gzip payload provided is malformed. `{reason}`.");
            ApiError::new("malformed_payload", message)
        })?;
        let text = text.ok_or_else(|| self.too_large())?;
        let kept = units(held + text.len());
        drop(permit.split(permit.num_permits().saturating_sub(kept)));
        Ok(text)
    }

    fn too_large(&self) -> ApiError {
        let message = format!(
            "The provided payload reached the size limit. The maximum accepted payload size is \
             {} bytes.",
            self.bytes_max
        );
        ApiError::new("payload_too_large", message)
    }
}

fn units(bytes: usize) -> usize {
    bytes.div_ceil(UNIT_BYTES)
}

fn stalled() -> ApiError {
    ApiError::new("bad_request", "the request body comes too slowly, or stopped coming")
}

fn overloaded() -> ApiError {
    ApiError::new("miroir_overloaded", "too many bytes of requests are in flight; try again later")
}

/// `None` when it unpacks to more than `bytes_max`.
fn unzip(raw: &[u8], bytes_max: usize) -> std::io::Result<Option<Bytes>> {
    let mut text = Vec::new();
    let limit = bytes_max as u64 + 1;
    MultiGzDecoder::new(raw).take(limit).read_to_end(&mut text)?;
    Ok((text.len() <= bytes_max).then(|| Bytes::from(text)))
}

/// Runs work on a large body where it cannot delay others.
pub(super) async fn off_reactor<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiError> {
    if bytes <= INLINE_BYTES_MAX {
        return Ok(work());
    }
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|e| ApiError::new("internal", format!("the request could not be worked on: {e}")))
}
