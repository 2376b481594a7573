//! The scripts this node saw loaded, so that EVALSHA works on nodes that did not (decision F7).
//!
//! Shared by the workers of a node. Readers take a snapshot; only SCRIPT LOAD makes a new one.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use sha1::{Digest, Sha1};

use super::gather::Said;
use super::requests::Request;
use super::send::Ask;
use super::task::Written;
use super::view::{Now, View};
use super::{Dispatcher, Frame};
use crate::proto::args::Args;
use crate::proto::resp::decode::RequestDecoder;
use crate::proto::resp::table;

/// Scripts kept at most; the oldest goes first.
pub const SCRIPTS_MAX: usize = 1_000;

/// Bytes of all scripts together at most.
pub const SCRIPT_BYTES_MAX: usize = 8 << 20;

type ShaOne = [u8; 20];

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

fn digest_of(hex: &[u8]) -> Option<ShaOne> {
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

impl Dispatcher {
    /// Uses the scripts that all workers of a node share.
    pub fn share_scripts(&mut self, scripts: Arc<Scripts>) {
        self.scripts = scripts;
    }

    /// Serves EVALSHA. Where several replicas get it, it goes with the script's text if that is
    /// known, so that none of them lacks it; a single one is asked by the digest first.
    pub(super) fn serve_evalsha(
        &mut self,
        view: &View,
        frame: &Frame<'_>,
        request: &Request<'_>,
        now: Now,
    ) {
        let ask = request.ask(frame);
        let Some(text) = self.scripts.text_of(&request.args[1]) else {
            return self.ask(view, &ask, now);
        };
        let mut plan = std::mem::take(&mut self.plan);
        match self.make_plan(view, &ask, &mut plan) {
            Ok(level) if plan.legs.len() == 1 => {
                self.send(view, &Ask { replays: true, ..ask }, &plan, level, now);
            }
            Ok(level) => {
                let written = with_text(&request.args, &text);
                let spec = table::lookup(&written.args()[0]);
                let request = Request { args: written.args(), spec, ..*request };
                self.send(view, &request.ask(&Frame::Small(&written.bytes)), &plan, level, now);
            }
            Err(failure) => {
                self.reply_in_turn(request.client, request.envelope, Said::Failed(failure), now);
            }
        }
        self.plan = plan;
    }

    /// Sends a script with its text to a datastore that did not have it. False when the text is
    /// not known any more, or the datastore cannot be asked again.
    pub(super) fn replay_script(&mut self, key: u32, now: Now) -> bool {
        let slot = &mut self.slots[key as usize];
        slot.replays = false;
        slot.tried = 0;
        let request = std::mem::take(&mut slot.request);
        let view = Arc::clone(&self.view);
        let mut spans = Vec::new();
        let limits = &view.settings.request;
        if !matches!(RequestDecoder::default().decode(&request, limits, &mut spans), Ok(Some(_))) {
            return false;
        }
        let args = Args::new(&request, &spans);
        let Some(text) = args.get(1).and_then(|sha| self.scripts.text_of(sha)) else {
            return false;
        };
        self.counters.replayed_scripts += 1;
        self.resend(&view, key, &with_text(&args, &text).bytes, now)
    }

    /// Remembers what SCRIPT LOAD loads and forgets with SCRIPT FLUSH. For other commands it
    /// costs the look at the first word.
    #[inline]
    pub(super) fn note_scripts(&self, args: &Args<'_>) {
        match (args.get(0), args.get(1)) {
            (Some(name), Some(sub)) if name.eq_ignore_ascii_case(b"script") => {
                if sub.eq_ignore_ascii_case(b"flush") {
                    self.scripts.clear();
                } else if sub.eq_ignore_ascii_case(b"load") && args.len() == 3 {
                    self.scripts.remember(&args[2]);
                }
            }
            _ => {}
        }
    }
}

/// The call of a script by its text in place of its digest.
fn with_text(args: &Args<'_>, text: &[u8]) -> Written {
    let name: &[u8] = match args[0].len() {
        7 => b"EVAL",
        _ => b"EVAL_RO",
    };
    Written::command(args.iter().enumerate().map(|(i, arg)| match i {
        0 => name,
        1 => text,
        _ => arg,
    }))
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
