//! Session pinning: a client that says who it is reads its own writes.
//!
//! A pin is best effort: failing to keep it never fails a write, failing to read it means normal
//! routing.

use super::call::Call;
use super::core::Core;
use super::counters::count;
use super::kv::Class;
use super::placement::Placement;
use super::settings::SessionStrategy;
use super::tasks::Touched;
use crate::document::shard::ShardId;
use crate::document::task::Status;
use crate::document::topology::{BackendIdx, GroupIdx};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::time::Duration;

/// The header that names a session.
pub(super) const SESSION_HEADER: &str = "x-miroir-session";
/// Longest session name in bytes.
const NAME_BYTES_MAX: usize = 128;
/// First and longest pause between looks at a pinned write.
const POLL_FIRST: Duration = Duration::from_millis(25);
const POLL_LONGEST: Duration = Duration::from_millis(500);

/// A session's last write.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Pin {
    pub(super) task: u64,
    /// The lowest group that took all of the write. `None` ends a pin.
    pub(super) group: Option<u16>,
    /// Backends that acknowledged.
    pub(super) acked: Vec<String>,
    pub(super) touched: Touched,
}

/// The session a call names.
pub(super) fn session_of(call: &Call) -> Option<String> {
    let name = call.header(SESSION_HEADER)?;
    let visible = name.bytes().all(|b| (0x21..=0x7e).contains(&b));
    (visible && (1..=NAME_BYTES_MAX).contains(&name.len())).then(|| name.to_owned())
}

/// How a pinned read must go.
#[derive(Clone, Debug)]
pub(super) struct PinnedRead {
    pub(super) group: GroupIdx,
    acked: HashSet<BackendIdx>,
    touched: HashSet<u32>,
    all: bool,
}

impl PinnedRead {
    /// Whether a backend may answer for a shard: one that took the write, if it touched the shard.
    pub(super) fn allows(&self, shard: ShardId, backend: BackendIdx) -> bool {
        let touched = self.all || self.touched.contains(&shard.0);
        !touched || self.acked.contains(&backend)
    }
}

impl Core {
    /// Keeps a session's last write.
    pub(super) async fn pin(&self, session: &str, pin: &Pin) {
        if let Err(error) = self.state.store(Class::Session, session, pin).await {
            count(&self.counters.state_failures);
            tracing::debug!(plane = "doc", %error, "a session pin was not stored");
        }
    }

    /// How a read of this session must go; waits for the session's write where it is told to.
    pub(super) async fn pinned_read(
        &self,
        placement: &Placement,
        session: Option<&str>,
    ) -> Option<PinnedRead> {
        let session = session?;
        let pin: Pin = match self.state.load(Class::Session, session).await {
            Ok(pin) => pin?,
            Err(_) => {
                count(&self.counters.state_failures);
                return None;
            }
        };
        let group = GroupIdx(pin.group?);
        if usize::from(group.0) >= placement.topology.groups() {
            return None;
        }
        if self.is_done(placement, &pin).await {
            let ended = Pin { group: None, ..pin };
            self.pin(session, &ended).await;
            return None;
        }
        if self.settings.session_strategy == SessionStrategy::Block {
            self.wait_for_group(placement, &pin, group).await;
        }
        let find = |id: &String| placement.topology.find(id);
        let (touched, all) = match &pin.touched {
            Touched::All => (HashSet::new(), true),
            Touched::Some(shards) => (shards.iter().copied().collect(), false),
        };
        Some(PinnedRead { group, acked: pin.acked.iter().filter_map(find).collect(), touched, all })
    }

    async fn is_done(&self, placement: &Placement, pin: &Pin) -> bool {
        match self.tasks.load(pin.task).await {
            Ok(Some(entry)) => self.tasks.refresh(placement, entry).await.status.is_final(),
            // A task that is gone is older than any pin.
            Ok(None) => true,
            Err(_) => false,
        }
    }

    /// Waits until the pinned group has run the write, or the longest wait is over.
    async fn wait_for_group(&self, placement: &Placement, pin: &Pin, group: GroupIdx) {
        let members: HashSet<&str> = placement
            .topology
            .members(group)
            .iter()
            .map(|member| placement.topology.id(*member))
            .collect();
        let wait = async {
            let mut pause = POLL_FIRST;
            while let Ok(Some(entry)) = self.tasks.load(pin.task).await {
                let entry = self.tasks.refresh(placement, entry).await;
                let mut mine =
                    entry.parts.iter().filter(|part| members.contains(part.backend.as_str()));
                if mine.all(|part| part.lost || part.status().is_some_and(Status::is_final)) {
                    return;
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(POLL_LONGEST);
            }
        };
        if tokio::time::timeout(self.settings.session_wait, wait).await.is_err() {
            count(&self.counters.session_wait_timeouts);
        }
    }
}
