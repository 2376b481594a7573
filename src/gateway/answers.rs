//! Answers of backends, read whole and counted together: clients that read much at once must not
//! fill the memory.

use super::client::ANSWER_BYTES_MAX;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Unit in which bytes are counted.
const UNIT_BYTES: usize = 4 * 1024;
/// Answers up to this size are not counted: acknowledgements arrive whatever else is read.
const FREE_BYTES: usize = 64 * 1024;

/// The bytes of all answers that somebody holds.
#[derive(Debug)]
pub(super) struct Answers {
    units: Arc<Semaphore>,
    units_total: usize,
}

/// A share of them, given back when dropped.
pub(super) type Share = Option<OwnedSemaphorePermit>;

impl Answers {
    /// Room for so many bytes.
    pub(super) fn new(bytes_max: usize) -> Answers {
        let units_total = (bytes_max / UNIT_BYTES).min(Semaphore::MAX_PERMITS);
        Answers { units: Arc::new(Semaphore::new(units_total)), units_total }
    }

    /// Bytes that are held now.
    pub(super) fn in_flight_bytes(&self) -> usize {
        (self.units_total - self.units.available_permits()) * UNIT_BYTES
    }

    /// Reads an answer.
    ///
    /// # Errors
    /// In words: it broke off, is larger than any may be, or there is no room for it.
    pub(super) async fn read(&self, mut body: Incoming) -> Result<(Bytes, Share), String> {
        let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
        let mut text = BytesMut::with_capacity(announced.min(FREE_BYTES));
        let mut share = None;
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|error| error.to_string())?.into_data() else { continue };
            let bytes = text.len() + data.len();
            if bytes > ANSWER_BYTES_MAX {
                return Err(format!("an answer of more than {ANSWER_BYTES_MAX} bytes"));
            }
            self.grow(&mut share, bytes)?;
            text.extend_from_slice(&data);
        }
        Ok((text.freeze(), share))
    }

    /// Waiting for room would let half-read answers wait for each other.
    fn grow(&self, share: &mut Share, bytes: usize) -> Result<(), String> {
        if bytes <= FREE_BYTES {
            return Ok(());
        }
        let held = share.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let wanted = bytes.div_ceil(UNIT_BYTES).saturating_sub(held);
        let more = self.units.clone().try_acquire_many_owned(wanted as u32);
        let more = more.map_err(|_| "too many bytes of answers are in flight".to_owned())?;
        match share {
            Some(share) => share.merge(more),
            None => *share = Some(more),
        }
        Ok(())
    }
}
