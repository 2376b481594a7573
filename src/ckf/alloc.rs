//! Memory that is asked for before it is needed, so that running out changes nothing.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};

/// A reservation failed. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("out of memory")]
pub struct OutOfMemory;

/// Room for `additional` more elements.
pub(crate) fn reserve<T>(vec: &mut Vec<T>, additional: usize) -> Result<(), OutOfMemory> {
    if vec.capacity() - vec.len() >= additional {
        return Ok(());
    }
    check_injected()?;
    vec.try_reserve(additional).map_err(|_| OutOfMemory)
}

/// Room for `additional` more elements and no others.
pub(crate) fn reserve_exact<T>(vec: &mut Vec<T>, additional: usize) -> Result<(), OutOfMemory> {
    if vec.capacity() - vec.len() >= additional {
        return Ok(());
    }
    check_injected()?;
    vec.try_reserve_exact(additional).map_err(|_| OutOfMemory)
}

/// An empty vector with room for exactly `capacity` elements.
pub(crate) fn with_capacity<T>(capacity: usize) -> Result<Vec<T>, OutOfMemory> {
    check_injected()?;
    let mut vec = Vec::new();
    vec.try_reserve_exact(capacity).map_err(|_| OutOfMemory)?;
    Ok(vec)
}

/// Room for `additional` more entries of a map.
pub(crate) fn reserve_map<K: Eq + Hash, V, S: BuildHasher>(
    map: &mut HashMap<K, V, S>,
    additional: usize,
) -> Result<(), OutOfMemory> {
    if map.capacity() - map.len() >= additional {
        return Ok(());
    }
    check_injected()?;
    map.try_reserve(additional).map_err(|_| OutOfMemory)
}

#[cfg(not(test))]
fn check_injected() -> Result<(), OutOfMemory> {
    Ok(())
}

#[cfg(test)]
pub(crate) use injection::{allow_all, fail_at};

#[cfg(test)]
fn check_injected() -> Result<(), OutOfMemory> {
    injection::check()
}

/// Lets tests fail the nth reservation of their thread.
#[cfg(test)]
mod injection {
    use super::OutOfMemory;
    use std::cell::Cell;

    thread_local! {
        static REMAINING: Cell<Option<u32>> = const { Cell::new(None) };
        static FAILED: Cell<bool> = const { Cell::new(false) };
    }

    /// Every reservation from the one numbered `n` (from 0) on fails until [`allow_all`].
    pub(crate) fn fail_at(n: u32) {
        REMAINING.set(Some(n));
        FAILED.set(false);
    }

    /// Ends the failing; true when some reservation had failed.
    pub(crate) fn allow_all() -> bool {
        REMAINING.set(None);
        FAILED.take()
    }

    pub(super) fn check() -> Result<(), OutOfMemory> {
        match REMAINING.get() {
            None => Ok(()),
            Some(0) => {
                FAILED.set(true);
                Err(OutOfMemory)
            }
            Some(n) => {
                REMAINING.set(Some(n - 1));
                Ok(())
            }
        }
    }
}
