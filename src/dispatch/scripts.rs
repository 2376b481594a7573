//! The scripts whose texts a node knows (decision F7).
//!
//! Shared by the workers of a node. Readers take a snapshot; only a text that is new makes another
//! one.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use sha1::{Digest, Sha1};

/// Scripts kept at most; the oldest goes first.
pub const SCRIPTS_MAX: usize = 1_000;

/// Bytes of all scripts together at most.
pub const SCRIPT_BYTES_MAX: usize = 8 << 20;

pub(super) type ShaOne = [u8; 20];

/// The texts of scripts by their digests.
#[derive(Debug, Default)]
pub struct Scripts {
    known: ArcSwap<Known>,
}

#[derive(Clone, Debug, Default)]
struct Known {
    texts: HashMap<ShaOne, Bytes>,
    /// Oldest first.
    order: VecDeque<ShaOne>,
    bytes: usize,
}

impl Scripts {
    /// Keeps a script's text; the oldest ones go when there are too many.
    pub fn remember(&self, text: &[u8]) {
        let sha: ShaOne = Sha1::digest(text).into();
        if text.len() > SCRIPT_BYTES_MAX || self.known.load().texts.contains_key(&sha) {
            return;
        }
        let text = Bytes::copy_from_slice(text);
        self.known.rcu(|known| {
            let mut known = Known::clone(known);
            known.add(sha, text.clone());
            known
        });
    }

    /// The text whose digest is `hex`, in any case.
    pub fn text_of(&self, hex: &[u8]) -> Option<Bytes> {
        self.known.load().texts.get(&digest_of(hex)?).cloned()
    }

    /// Keeps a text if it is the one with the digest `hex`.
    pub(super) fn remember_as(&self, hex: &[u8], text: &[u8]) -> bool {
        let right = digest_of(hex).is_some_and(|sha| sha == ShaOne::from(Sha1::digest(text)));
        if right {
            self.remember(text);
        }
        right
    }

    /// Forgets all of them.
    pub fn clear(&self) {
        self.known.store(Arc::default());
    }
}

impl Known {
    fn add(&mut self, sha: ShaOne, text: Bytes) {
        self.bytes += text.len();
        if let Some(old) = self.texts.insert(sha, text) {
            self.bytes -= old.len();
            return;
        }
        self.order.push_back(sha);
        while self.order.len() > SCRIPTS_MAX || self.bytes > SCRIPT_BYTES_MAX {
            let Some(oldest) = self.order.pop_front() else { break };
            self.bytes -= self.texts.remove(&oldest).map_or(0, |text| text.len());
        }
    }
}

/// What a digest in hexadecimal digits says.
pub(super) fn digest_of(hex: &[u8]) -> Option<ShaOne> {
    let mut sha = ShaOne::default();
    if hex.len() != 2 * sha.len() {
        return None;
    }
    for (byte, pair) in sha.iter_mut().zip(hex.chunks_exact(2)) {
        let digit = |d: u8| char::from(d).to_digit(16);
        *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
    }
    Some(sha)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_found_by_its_digest_in_any_case() {
        let scripts = Scripts::default();
        scripts.remember(b"return 1");
        let hex = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";
        assert_eq!(scripts.text_of(hex.as_bytes()).as_deref(), Some(&b"return 1"[..]));
        let upper = hex.to_ascii_uppercase();
        assert!(scripts.text_of(upper.as_bytes()).is_some());
        assert_eq!(scripts.text_of(b"e0e1"), None);
        assert_eq!(scripts.text_of("g".repeat(40).as_bytes()), None);
        assert!(!scripts.remember_as(hex.as_bytes(), b"return 2"));
        scripts.clear();
        assert!(scripts.remember_as(hex.as_bytes(), b"return 1"));
        assert!(scripts.text_of(hex.as_bytes()).is_some());
        scripts.clear();
        assert_eq!(scripts.text_of(hex.as_bytes()), None);
    }

    #[test]
    fn the_oldest_scripts_go_first() {
        let mut known = Known::default();
        let sha = |n: usize| {
            let mut sha = ShaOne::default();
            sha[..8].copy_from_slice(&n.to_le_bytes());
            sha
        };
        for n in 0..SCRIPTS_MAX + 1 {
            known.add(sha(n), Bytes::from_static(b"x"));
        }
        assert_eq!((known.texts.len(), known.bytes), (SCRIPTS_MAX, SCRIPTS_MAX));
        assert!(!known.texts.contains_key(&sha(0)) && known.texts.contains_key(&sha(1)));
        known.add(sha(0), Bytes::from(vec![b'x'; SCRIPT_BYTES_MAX]));
        assert_eq!((known.texts.len(), known.bytes), (1, SCRIPT_BYTES_MAX));
    }
}
