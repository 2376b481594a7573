//! How many clients the process's open files allow.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors that are kept for everything but clients: peers, stores, listeners, files.
const KEPT: u64 = 256;

/// Fewer clients than this would be a node in name only.
const CLIENTS_MIN: u64 = 16;

/// The most clients at once: `wanted` (`limits.client_connections`), or less when the process may
/// not open so many files. The limit is raised as far as the system lets it.
pub(super) fn clients_max(wanted: usize) -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let open_max = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(error) => {
            tracing::debug!(%error, "the limit of open files stays as it is");
            limit.current
        }
    };
    let allowed = fitting(wanted, open_max);
    if allowed < wanted {
        tracing::warn!(
            wanted,
            allowed,
            "limits.client_connections is lowered: the process may open {} files, and {KEPT} are \
             kept for other uses",
            open_max.unwrap_or(u64::MAX),
        );
    }
    allowed
}

fn fitting(wanted: usize, open_max: Option<u64>) -> usize {
    let Some(open_max) = open_max else { return wanted };
    let allowed = open_max.saturating_sub(KEPT).max(CLIENTS_MIN);
    wanted.min(usize::try_from(allowed).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_leave_descriptors_for_the_rest() {
        assert_eq!(fitting(10_000, None), 10_000);
        assert_eq!(fitting(10_000, Some(1 << 20)), 10_000);
        assert_eq!(fitting(10_000, Some(1024)), 768);
        assert_eq!(fitting(100, Some(1024)), 100);
        assert_eq!(fitting(100, Some(64)), 16);
    }
}
