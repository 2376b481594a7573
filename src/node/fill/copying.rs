//! One copy of what a node owns, from several racks.
//!
//! The nodes of one rack after the other are asked for their keys. For each key that this node
//! owns, its owners in all the racks tell when it was written last; where that was latest, the
//! value is dumped and restored here with that stamp, so that what was written here meanwhile
//! stays. Where a removal is the latest, it is noted here as well. What an earlier rack settled is
//! not asked for again.
//!
//! A command that builds on what is there (INCR, HSET) may have met an empty key here: then the
//! copy comes too late by its stamp, and is asked for again with that command in it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::ops::AddAssign;
use std::time::Duration;

use super::{Fill, Source, owns};
use crate::dispatch::view::View;
use crate::gossip::Addr;
use crate::net::clock::wall_ms;
use crate::net::peer_store::{Answer, PeerStore};
use crate::proto::args::{Args, Span};
use crate::proto::outbuf::OutBuf;
use crate::proto::resp::reply;
use crate::ring::PeerIdx;
use crate::stamp::{Stamp, Stamping};
use crate::store::MemoryStore;

/// Keys of a page of SCAN, about.
const PAGE_KEYS: &[u8] = b"256";

/// Keys asked for at a time: their values are in memory together.
const BATCH_KEYS: usize = 8;

/// How often a key is asked for again whose copy came too late, and after how long.
const AGAIN_MAX: usize = 5;
const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Most keys and bytes copied a second, and keys looked at, so that the others have time for their
/// clients.
const KEYS_PER_SECOND: u64 = 10_000;
const BYTES_PER_SECOND: u64 = 32 << 20;
const LOOKS_PER_SECOND: u64 = 100_000;

/// Why a copy was given up.
#[derive(Debug, thiserror::Error)]
#[error("{peer}: {source}")]
pub(super) struct CopyError {
    peer: Addr,
    source: io::Error,
}

/// What was copied.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Copied {
    pub(super) keys: u64,
    pub(super) bytes: u64,
    /// Keys that did not fit, or could not be read here.
    pub(super) failed: u64,
}

impl AddAssign for Copied {
    fn add_assign(&mut self, other: Copied) {
        self.keys += other.keys;
        self.bytes += other.bytes;
        self.failed += other.failed;
    }
}

/// What a node knows of a key.
#[derive(Clone, Copy, Debug)]
struct Found {
    at: PeerIdx,
    /// When it was written, or removed.
    stamp: Stamp,
    /// It is not there.
    gone: bool,
}

/// One copy.
pub(super) struct Copying<'a> {
    fill: &'a Fill,
    view: &'a View,
    racks: &'a [Source],
    links: HashMap<PeerIdx, PeerStore>,
    copied: Copied,
}

impl<'a> Copying<'a> {
    /// A copy from all of `racks`.
    pub(super) fn new(fill: &'a Fill, view: &'a View, racks: &'a [Source]) -> Copying<'a> {
        Copying { fill, view, racks, links: HashMap::new(), copied: Copied::default() }
    }

    /// Copies everything.
    ///
    /// # Errors
    /// A node of the racks cannot be asked, or answers what makes no sense.
    pub(super) async fn run(mut self) -> Result<Copied, CopyError> {
        let racks = self.racks;
        for (turn, rack) in racks.iter().enumerate() {
            for peer in &rack.peers {
                self.copy_from(turn, *peer).await?;
            }
        }
        Ok(self.copied)
    }

    /// Settles the keys that one node has; `turn` racks were looked through before.
    async fn copy_from(&mut self, turn: usize, from: PeerIdx) -> Result<(), CopyError> {
        let mut cursor = b"0".to_vec();
        loop {
            let scan = [&b"SCAN"[..], &cursor, b"COUNT", PAGE_KEYS];
            let answers = self.ask(from, [scan]).await?;
            let page = answers.first().and_then(|answer| page(&answer.reply));
            let (next, mut keys) =
                page.ok_or_else(|| self.failed(from, io::Error::other("no page of keys")))?;
            keys.retain(|key| owns(self.view, key));
            self.settle(turn, from, keys).await?;
            if next == b"0" {
                return Ok(());
            }
            cursor = next;
        }
    }

    /// Settles some keys of `from`.
    async fn settle(
        &mut self,
        turn: usize,
        from: PeerIdx,
        keys: Vec<Vec<u8>>,
    ) -> Result<(), CopyError> {
        let looks = keys.len() as u64;
        let found = self.look(from, keys.iter().map(Vec::as_slice)).await?;
        let mut open: Vec<(Vec<u8>, Found)> = keys.into_iter().zip(found).collect();
        if turn > 0 {
            open.retain(|(key, found)| stamp_here(&self.fill.store, key) < found.stamp);
        }
        self.ask_others(turn, &mut open).await?;
        let mut left: HashMap<PeerIdx, Vec<&[u8]>> = HashMap::new();
        for (key, found) in &open {
            match found.gone {
                true => remove(&self.fill.store, key, found.stamp),
                false => left.entry(found.at).or_default().push(key),
            }
        }
        for (peer, keys) in left {
            for batch in keys.chunks(BATCH_KEYS) {
                self.copy(peer, batch).await?;
            }
        }
        tokio::time::sleep(Duration::from_micros(looks * 1_000_000 / LOOKS_PER_SECOND)).await;
        Ok(())
    }

    /// Looks whether racks other than number `turn` know of later writes.
    async fn ask_others(
        &mut self,
        turn: usize,
        keys: &mut [(Vec<u8>, Found)],
    ) -> Result<(), CopyError> {
        let racks = self.racks;
        for (_, other) in racks.iter().enumerate().filter(|(number, _)| *number != turn) {
            let mut owners: HashMap<PeerIdx, Vec<usize>> = HashMap::new();
            for (at, (key, _)) in keys.iter().enumerate() {
                let owner = self.view.topology.owners(&self.view.hasher.token(key));
                if let Some(owner) = owner.owner(other.rack) {
                    owners.entry(owner).or_default().push(at);
                }
            }
            for (owner, places) in owners {
                let asked = places.iter().map(|at| keys[*at].0.as_slice());
                let found = self.look(owner, asked).await?;
                for (at, found) in places.into_iter().zip(found) {
                    if found.stamp > keys[at].1.stamp {
                        keys[at].1 = found;
                    }
                }
            }
        }
        Ok(())
    }

    /// What a node knows of some keys.
    async fn look<'k>(
        &mut self,
        at: PeerIdx,
        keys: impl Iterator<Item = &'k [u8]>,
    ) -> Result<Vec<Found>, CopyError> {
        let answers = self.ask(at, keys.map(|key| [&b"PEXPIRETIME"[..], key])).await?;
        let found = answers.iter().map(|answer| match reply::parse_int(&answer.reply) {
            Some(-2) => Found { at, stamp: answer.stamp, gone: true },
            Some(_) => Found { at, stamp: answer.stamp.max(Stamp::OLDEST), gone: false },
            None => Found { at, stamp: Stamp::NONE, gone: false },
        });
        Ok(found.collect())
    }

    /// Copies some keys, again and again while what is here was written later than the copy.
    async fn copy(&mut self, from: PeerIdx, keys: &[&[u8]]) -> Result<(), CopyError> {
        let mut left = keys.to_vec();
        for again in 0..=AGAIN_MAX {
            let asked = left.iter().flat_map(|key| [[&b"PEXPIRETIME"[..], *key], [b"DUMP", *key]]);
            let answers = self.ask(from, asked).await?;
            let mut late = Vec::new();
            let mut round = Copied::default();
            for (key, answers) in left.iter().zip(answers.chunks_exact(2)) {
                match restore(&self.fill.store, key, &answers[0], &answers[1], again > 0) {
                    Restored::Done(bytes) => {
                        round += Copied { keys: 1, bytes: bytes as u64, failed: 0 };
                    }
                    Restored::Gone => {}
                    Restored::Failed => round.failed += 1,
                    Restored::Late => late.push(*key),
                }
            }
            self.copied += round;
            let keys_us = left.len() as u64 * 1_000_000 / KEYS_PER_SECOND;
            let bytes_us = round.bytes * 1_000_000 / BYTES_PER_SECOND;
            tokio::time::sleep(Duration::from_micros(keys_us.max(bytes_us))).await;
            if late.is_empty() {
                break;
            }
            left = late;
            tokio::time::sleep(AGAIN_AFTER).await;
        }
        Ok(())
    }

    /// Asks a node, on the connection to it.
    async fn ask<'k, C>(&mut self, peer: PeerIdx, commands: C) -> Result<Vec<Answer>, CopyError>
    where
        C: IntoIterator<Item: IntoIterator<Item = &'k [u8], IntoIter: ExactSizeIterator>>,
    {
        let link = match self.links.entry(peer) {
            Entry::Occupied(open) => Ok(open.into_mut()),
            Entry::Vacant(place) => {
                let Fill { security, probe, names, .. } = self.fill;
                let to = addr(self.view, peer);
                let link = PeerStore::open(&to, false, probe, security.as_ref(), names).await;
                link.map(|link| place.insert(link))
            }
        };
        let answers = match link {
            Ok(link) => link.ask(commands).await,
            Err(error) => Err(error),
        };
        answers.map_err(|error| self.failed(peer, error))
    }

    fn failed(&self, peer: PeerIdx, source: io::Error) -> CopyError {
        CopyError { peer: addr(self.view, peer), source }
    }
}

fn addr(view: &View, peer: PeerIdx) -> Addr {
    let peer = view.topology.peer(peer);
    Addr::new(peer.host, peer.port)
}

/// When `key` was written or removed here.
fn stamp_here(store: &MemoryStore, key: &[u8]) -> Stamp {
    let mut stamping = Stamping::with(Some(Stamp::NONE));
    execute(store, &[b"PEXPIRETIME", key], &mut stamping);
    stamping.found
}

/// Notes that `key` was removed, unless it was written later.
fn remove(store: &MemoryStore, key: &[u8], stamp: Stamp) {
    execute(store, &[b"DEL", key], &mut Stamping::with(Some(stamp)));
}

/// Takes over one key. A copy that was asked for `again` has in it what was written here, and
/// stands above that.
fn restore(
    store: &MemoryStore,
    key: &[u8],
    expiry: &Answer,
    dump: &Answer,
    again: bool,
) -> Restored {
    let (Some(at_ms), Some(payload)) = (reply::parse_int(&expiry.reply), reply::text(&dump.reply))
    else {
        return if reply::is_null(&dump.reply) { Restored::Gone } else { Restored::Failed };
    };
    let at_ms = at_ms.max(0).to_string();
    let words = [b"RESTORE", key, at_ms.as_bytes(), payload, b"REPLACE", b"ABSTTL"];
    let last = dump.stamp.max(Stamp::OLDEST);
    let mut stamping = Stamping::with(Some(if again { last.next() } else { last }));
    let out = execute(store, &words, &mut stamping);
    match stamping.outrun {
        true => Restored::Late,
        false if reply::is_error(out.front()) => Restored::Failed,
        false => Restored::Done(payload.len()),
    }
}

/// Runs a command on the own store.
fn execute(store: &MemoryStore, words: &[&[u8]], stamping: &mut Stamping) -> OutBuf {
    let mut out = OutBuf::new();
    let (bytes, spans) = request(words);
    store.execute_stamped(&Args::new(&bytes, &spans), wall_ms(), stamping, &mut out);
    out
}

/// What became of one key.
enum Restored {
    /// It is here, with so many bytes.
    Done(usize),
    /// It is not there any more.
    Gone,
    /// What is here was written later.
    Late,
    /// It cannot be had.
    Failed,
}

/// A page of SCAN: the next cursor and the keys.
fn page(text: &[u8]) -> Option<(Vec<u8>, Vec<Vec<u8>>)> {
    let mut parts = reply::elements(text);
    let cursor = reply::text(parts.next()?)?.to_vec();
    let keys = reply::elements(parts.next()?);
    Some((cursor, keys.filter_map(reply::text).map(<[u8]>::to_vec).collect()))
}

/// A command as the store takes it.
fn request(words: &[&[u8]]) -> (Vec<u8>, Vec<Span>) {
    let mut bytes = Vec::new();
    let spans = words.iter().map(|word| {
        let start = bytes.len();
        bytes.extend_from_slice(word);
        Span::new(start, bytes.len())
    });
    let spans = spans.collect();
    (bytes, spans)
}
