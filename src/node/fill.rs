//! A node whose embedded store began empty copies its arc from another rack (decision E11).
//!
//! All keys of a rack of its datacenter are looked at; those it owns are dumped there and restored
//! here, each with the stamp of its last write, so that what was written here meanwhile stays.
//! A command that builds on what is there (INCR, HSET) may have met an empty key here: then the
//! copy comes too late by its stamp, and is asked for again with that command in it.

use std::io;
use std::ops::AddAssign;
use std::sync::Arc;
use std::time::Duration;

use super::Shared;
use super::orders::Order;
use crate::dispatch::view::View;
use crate::gossip::Addr;
use crate::net::clock::wall_ms;
use crate::net::names::Names;
use crate::net::peer_store::{Answer, PeerStore};
use crate::net::secure::LinkSecurity;
use crate::proto::args::{Args, Span};
use crate::proto::outbuf::OutBuf;
use crate::proto::resp::reply;
use crate::ring::{PeerRef, PeerState};
use crate::stamp::{Stamp, Stamping};
use crate::store::MemoryStore;

/// When the first copy begins: by then every coordinator sends its writes here too.
const BEGIN_AFTER: Duration = Duration::from_secs(3);

/// How often is looked whether there is something to do, or to do again.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Keys of a page of SCAN, about.
const PAGE_KEYS: &[u8] = b"256";

/// Keys asked for at a time: their values are in memory together.
const BATCH_KEYS: usize = 8;

/// How often a key is asked for again whose copy came too late, and after how long.
const AGAIN_MAX: usize = 5;
const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Most keys and bytes a second, so that the others have time for their clients.
const KEYS_PER_SECOND: u64 = 10_000;
const BYTES_PER_SECOND: u64 = 32 << 20;

/// What was copied.
#[derive(Clone, Copy, Debug, Default)]
struct Copied {
    keys: u64,
    bytes: u64,
    /// Keys that did not fit, or could not be read here.
    failed: u64,
}

impl AddAssign for Copied {
    fn add_assign(&mut self, other: Copied) {
        self.keys += other.keys;
        self.bytes += other.bytes;
        self.failed += other.failed;
    }
}

/// What the task needs.
pub(super) struct Fill {
    pub(super) shared: Arc<Shared>,
    pub(super) store: Arc<MemoryStore>,
    /// The question a link begins with.
    pub(super) probe: &'static [u8],
    pub(super) security: Option<LinkSecurity>,
    pub(super) names: Names,
}

impl Fill {
    /// Copies what this node owns as long as it is joining, and says when that is done.
    pub(super) async fn run(self) {
        let join_max = Duration::from_millis(self.shared.config.cluster.join_max_ms);
        let _ = tokio::time::timeout(join_max, async {
            tokio::time::sleep(BEGIN_AFTER).await;
            while !self.is_filled().await {
                tokio::time::sleep(LOOK_EVERY).await;
            }
            // Sending fails only while the node stops.
            let _ = self.shared.orders.send(Order::Filled);
        })
        .await;
    }

    /// One attempt; false when there is nothing to do yet, or not all of it was done.
    async fn is_filled(&self) -> bool {
        let view = self.shared.view.load_full();
        let local = view.topology.peer(view.topology.local());
        if !local.is_joining() {
            return false;
        }
        let mut all = Copied::default();
        let mut done = 0;
        for rack in view.topology.local_racks().filter(|rack| *rack != view.topology.own_rack()) {
            let Some(peers) = sources(&view, rack) else { continue };
            for peer in peers {
                match self.copy_from(&view, &peer).await {
                    Ok(copied) => all += copied,
                    Err(error) => {
                        tracing::warn!(%peer, %error, "copying from another rack; to be repeated");
                        return false;
                    }
                }
            }
            done += 1;
            // With keys that some racks hold only, all of them are looked at.
            if self.shared.config.bucket_types.iter().all(|bucket| bucket.n_val.is_none()) {
                break;
            }
        }
        // Another arc is another copy.
        let same = self.shared.view.load().topology.digest() == view.topology.digest();
        if done > 0 && same {
            let Copied { keys, bytes, failed } = all;
            tracing::info!("copied {keys} keys ({bytes} bytes) from other racks, {failed} failed");
        }
        done > 0 && same
    }

    async fn copy_from(&self, view: &View, peer: &Addr) -> io::Result<Copied> {
        let security = self.security.as_ref();
        let mut link = PeerStore::open(peer, false, self.probe, security, &self.names).await?;
        let mut copied = Copied::default();
        let mut cursor = b"0".to_vec();
        loop {
            let scan = [&b"SCAN"[..], &cursor, b"COUNT", PAGE_KEYS];
            let answers = link.ask([scan]).await?;
            let page = answers.first().and_then(|answer| page(&answer.reply));
            let (next, keys) = page.ok_or_else(|| io::Error::other("no page of keys"))?;
            let mine: Vec<Vec<u8>> = keys.into_iter().filter(|key| owns(view, key)).collect();
            for batch in mine.chunks(BATCH_KEYS) {
                copied += self.copy(&mut link, batch).await?;
            }
            if next == b"0" {
                return Ok(copied);
            }
            cursor = next;
        }
    }

    /// Copies some keys, again and again while what is here was written later than the copy.
    async fn copy(&self, link: &mut PeerStore, keys: &[Vec<u8>]) -> io::Result<Copied> {
        let mut copied = Copied::default();
        let mut left: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        for again in 0..=AGAIN_MAX {
            let asked = left.iter().flat_map(|key| [[&b"PEXPIRETIME"[..], *key], [b"DUMP", *key]]);
            let answers = link.ask(asked).await?;
            let mut late = Vec::new();
            let mut round = Copied::default();
            for (key, answers) in left.iter().zip(answers.chunks_exact(2)) {
                match self.restore(key, &answers[0], &answers[1], again > 0) {
                    Restored::Done(bytes) => {
                        round += Copied { keys: 1, bytes: bytes as u64, failed: 0 };
                    }
                    Restored::Gone => {}
                    Restored::Failed => round.failed += 1,
                    Restored::Late => late.push(*key),
                }
            }
            copied += round;
            let keys_us = left.len() as u64 * 1_000_000 / KEYS_PER_SECOND;
            let bytes_us = round.bytes * 1_000_000 / BYTES_PER_SECOND;
            tokio::time::sleep(Duration::from_micros(keys_us.max(bytes_us))).await;
            if late.is_empty() {
                break;
            }
            left = late;
            tokio::time::sleep(AGAIN_AFTER).await;
        }
        Ok(copied)
    }

    /// Takes over one key. A copy that was asked for `again` has in it what was written here, and
    /// stands above that.
    fn restore(&self, key: &[u8], expiry: &Answer, dump: &Answer, again: bool) -> Restored {
        let (Some(at_ms), Some(payload)) =
            (reply::parse_int(&expiry.reply), reply::text(&dump.reply))
        else {
            return if reply::is_null(&dump.reply) { Restored::Gone } else { Restored::Failed };
        };
        let at_ms = at_ms.max(0).to_string();
        let words = [b"RESTORE", key, at_ms.as_bytes(), payload, b"REPLACE", b"ABSTTL"];
        let last = dump.stamp.max(Stamp::OLDEST);
        let mut stamping = Stamping::with(Some(if again { last.next() } else { last }));
        let mut out = OutBuf::new();
        let (bytes, spans) = request(&words);
        self.store.execute_stamped(&Args::new(&bytes, &spans), wall_ms(), &mut stamping, &mut out);
        match stamping.outrun {
            true => Restored::Late,
            false if reply::is_error(out.front()) => Restored::Failed,
            false => Restored::Done(payload.len()),
        }
    }
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

/// The nodes of a rack, when together they have everything and can be asked.
fn sources(view: &View, rack: usize) -> Option<Vec<Addr>> {
    let topology = &view.topology;
    let owns_arc = |peer: &PeerRef<'_>| peer.state.owns_arc() && !peer.tokens.is_empty();
    let peers = topology.peers().filter(|peer| peer.rack_index == rack && owns_arc(peer));
    let full = |p: PeerRef<'_>| p.state == PeerState::Normal && p.routable() && p.is_torc;
    let peers: Vec<Option<Addr>> =
        peers.map(|peer| full(peer).then(|| Addr::new(peer.host, peer.port))).collect();
    if peers.is_empty() { None } else { peers.into_iter().collect() }
}

/// Whether this node holds `key`.
fn owns(view: &View, key: &[u8]) -> bool {
    let topology = &view.topology;
    let token = view.hasher.token(key);
    let own = topology.own_rack();
    let mine = topology.owners(&token).owner(own) == Some(topology.local());
    let capped = view.buckets.of(key).and_then(|bucket| bucket.n_val);
    mine && capped.is_none_or(|n_val| {
        topology.capped_racks(&token, topology.local_racks(), n_val).any(|rack| rack == own)
    })
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
