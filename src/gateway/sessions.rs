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
/// Age at which a pin that is read by is stored again: it lasts from its last use.
const REUSE_US: u64 = 60_000_000;
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
    /// When it was stored, microseconds since 1970.
    #[serde(default)]
    pub(super) used_us: u64,
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

    /// Whether every shard the write touched has a backend that took it and answers.
    fn is_usable(&self, placement: &Placement) -> bool {
        let topology = &placement.topology;
        let answers = |shard: ShardId| {
            let mut owners = topology.owners(shard, self.group).iter();
            owners.any(|b| self.acked.contains(b) && placement.backend(*b).is_live())
        };
        let touched = (0..topology.shards()).filter(|n| self.all || self.touched.contains(n));
        touched.map(ShardId).all(answers)
    }
}

impl Core {
    /// Keeps a session's last write.
    pub(super) async fn pin(&self, session: &str, pin: Pin) {
        let pin = Pin { used_us: self.clock.now_us(), ..pin };
        if let Err(error) = self.state.store(Class::Session, session, &pin).await {
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
        let find = |id: &String| placement.topology.find(id);
        let (touched, all) = match &pin.touched {
            Touched::All => (HashSet::new(), true),
            Touched::Some(shards) => (shards.iter().copied().collect(), false),
        };
        let acked = pin.acked.iter().filter_map(find).collect();
        let read = PinnedRead { group, acked, touched, all };
        let mut done = self.is_done(placement, &pin).await;
        if !done && self.settings.session_strategy == SessionStrategy::Block {
            self.wait_for_group(placement, &pin, &read).await;
        }
        // A group that cannot answer for the write is left, and not waited for again.
        done |= !read.is_usable(placement);
        if done {
            self.pin(session, Pin { group: None, ..pin }).await;
            return None;
        }
        if self.clock.now_us().saturating_sub(pin.used_us) >= REUSE_US {
            self.pin(session, pin).await;
        }
        Some(read)
    }

    async fn is_done(&self, placement: &Placement, pin: &Pin) -> bool {
        match self.tasks.load(pin.task).await {
            Ok(Some(entry)) => self.tasks.refresh(placement, entry).await.status.is_final(),
            // A task that is gone is older than any pin.
            Ok(None) => true,
            Err(_) => false,
        }
    }

    /// Waits until the pinned group has run the write, cannot answer for it any more, or the
    /// longest wait is over.
    async fn wait_for_group(&self, placement: &Placement, pin: &Pin, read: &PinnedRead) {
        let members: HashSet<&str> = placement
            .topology
            .members(read.group)
            .iter()
            .map(|member| placement.topology.id(*member))
            .collect();
        let wait = async {
            let mut pause = POLL_FIRST;
            while let Ok(Some(entry)) = self.tasks.load(pin.task).await {
                let entry = self.tasks.refresh(placement, entry).await;
                if !read.is_usable(placement) {
                    return;
                }
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
