//! Links between processes: bytes stay in order inside a link and take a drawn time; a link may
//! be cut after any byte, held up by a partition, or full because its reader does not read.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

use torc::dispatch::ClientKind;

/// A link, by number. Numbers are not used again.
pub(crate) type LinkId = usize;

/// Which end of a link: 0 opened it, 1 accepted it.
pub(crate) type Side = usize;

/// What stands at one end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// A node's connection to its store or to a peer.
    Upstream { node: usize, up: u32 },
    /// A connection a node accepted.
    Client { node: usize, client: u32 },
    /// A connection to a node that is too frozen to accept it.
    Backlog { node: usize, kind: ClientKind },
    /// A connection the store of a node accepted.
    Store { node: usize },
    /// A user's connection to a node.
    User { user: usize },
    /// Nobody any more.
    Gone,
}

impl End {
    /// The host it runs on, for partitions; users stand beside all of them.
    fn host(self) -> Option<usize> {
        match self {
            End::Upstream { node, .. }
            | End::Client { node, .. }
            | End::Backlog { node, .. }
            | End::Store { node } => Some(node),
            End::User { .. } | End::Gone => None,
        }
    }
}

/// How the network behaves.
#[derive(Clone, Debug)]
pub(crate) struct NetSettings {
    /// Time a piece is under way, microseconds.
    pub(crate) delay_us: Range<u64>,
    /// Bytes a link holds until its reader reads.
    pub(crate) window: usize,
    /// Whether writes and reads are split at drawn places.
    pub(crate) choppy: bool,
    /// Whether bytes that were sent before a connection was lost still arrive.
    pub(crate) late_bytes: bool,
}

impl Default for NetSettings {
    fn default() -> NetSettings {
        NetSettings { delay_us: 100..1000, window: 256 << 10, choppy: false, late_bytes: false }
    }
}

enum Piece {
    Bytes(Vec<u8>),
    End,
}

/// One direction of a link.
#[derive(Default)]
pub(crate) struct Way {
    flying: VecDeque<(u64, Piece)>,
    flying_bytes: usize,
    last_due_us: u64,
    arrived: VecDeque<u8>,
    ended: bool,
    /// The writer waits for room.
    pub(crate) blocked: bool,
    cut_after: Option<usize>,
    shut: bool,
}

/// Two ends and the ways between them; `ways[side]` carries what `ends[side]` writes.
pub(crate) struct Link {
    pub(crate) ends: [End; 2],
    ways: [Way; 2],
    hosts: [Option<usize>; 2],
}

/// All links.
pub(crate) struct Network {
    pub(crate) settings: NetSettings,
    pub(crate) links: Vec<Link>,
    /// From host, to host.
    cut_off: BTreeSet<(usize, usize)>,
}

impl Network {
    pub(crate) fn new(settings: NetSettings) -> Network {
        Network { settings, links: Vec::new(), cut_off: BTreeSet::new() }
    }

    pub(crate) fn open(&mut self, opener: End, acceptor: End) -> LinkId {
        let hosts = [opener.host(), acceptor.host()];
        self.links.push(Link { ends: [opener, acceptor], ways: Default::default(), hosts });
        self.links.len() - 1
    }

    /// Bytes that may be written now; none at all once the link is closed, but then they go
    /// nowhere, so a writer is never held up by that.
    pub(crate) fn room(&self, link: LinkId, side: Side) -> usize {
        let way = &self.links[link].ways[side];
        match way.shut {
            true => usize::MAX,
            false => self.settings.window.saturating_sub(way.flying_bytes + way.arrived.len()),
        }
    }

    /// Writes `bytes`; returns when they arrive (and the end of both ways, if that cut the link).
    pub(crate) fn send(
        &mut self,
        link: LinkId,
        side: Side,
        mut bytes: Vec<u8>,
        now_us: u64,
        rng: &mut fastrand::Rng,
    ) -> Vec<(Side, u64)> {
        let way = &mut self.links[link].ways[side];
        if way.shut {
            return Vec::new();
        }
        let cut = match &mut way.cut_after {
            Some(left) if bytes.len() >= *left => {
                bytes.truncate(*left);
                true
            }
            Some(left) => {
                *left -= bytes.len();
                false
            }
            None => false,
        };
        way.flying_bytes += bytes.len();
        let mut due = vec![(side, self.fly(link, side, Piece::Bytes(bytes), now_us, rng))];
        if cut {
            for side in [0, 1] {
                due.push((side, self.fly(link, side, Piece::End, now_us, rng)));
                self.links[link].ways[side].shut = true;
            }
        }
        due
    }

    fn fly(
        &mut self,
        link: LinkId,
        side: Side,
        piece: Piece,
        now_us: u64,
        rng: &mut fastrand::Rng,
    ) -> u64 {
        let way = &mut self.links[link].ways[side];
        let due = way.last_due_us.max(now_us + rng.u64(self.settings.delay_us.clone()));
        way.last_due_us = due;
        way.flying.push_back((due, piece));
        due
    }

    /// The process at `side` lets go of the link after everything was said.
    pub(crate) fn finish(
        &mut self,
        link: LinkId,
        side: Side,
        now_us: u64,
        rng: &mut fastrand::Rng,
    ) -> Option<(Side, u64)> {
        let late_bytes = std::mem::replace(&mut self.settings.late_bytes, true);
        let due = self.close(link, side, now_us, rng);
        self.settings.late_bytes = late_bytes;
        due
    }

    /// The process at `side` dies or gives the link up. What it wrote arrives only where late
    /// bytes are allowed; that it is gone arrives in any case.
    pub(crate) fn close(
        &mut self,
        link: LinkId,
        side: Side,
        now_us: u64,
        rng: &mut fastrand::Rng,
    ) -> Option<(Side, u64)> {
        let state = &mut self.links[link];
        state.ends[side] = End::Gone;
        state.ways[1 - side] = Way { shut: true, ..Way::default() };
        if state.ways[side].shut {
            return None;
        }
        if !self.settings.late_bytes {
            state.ways[side].flying.clear();
            state.ways[side].flying_bytes = 0;
            state.ways[side].arrived.clear();
        }
        let due = self.fly(link, side, Piece::End, now_us, rng);
        self.links[link].ways[side].shut = true;
        Some((side, due))
    }

    /// Cuts the link after `bytes` more bytes written by `side`.
    pub(crate) fn cut_after(&mut self, link: LinkId, side: Side, bytes: usize) {
        self.links[link].ways[side].cut_after = Some(bytes);
    }

    /// Takes back all cuts that did not happen yet.
    pub(crate) fn forget_cuts(&mut self) {
        let ways = self.links.iter_mut().flat_map(|link| &mut link.ways);
        ways.for_each(|way| way.cut_after = None);
    }

    /// Lets what is due on a way arrive; true when there was something.
    pub(crate) fn deliver(&mut self, link: LinkId, side: Side, now_us: u64) -> bool {
        if self.is_held(link, side) {
            return false;
        }
        let way = &mut self.links[link].ways[side];
        let mut any = false;
        while way.flying.front().is_some_and(|(due, _)| *due <= now_us) {
            any = true;
            match way.flying.pop_front() {
                Some((_, Piece::Bytes(bytes))) => {
                    way.flying_bytes -= bytes.len();
                    way.arrived.extend(bytes);
                }
                Some((_, Piece::End)) => way.ended = true,
                None => {}
            }
        }
        any
    }

    /// Takes bytes that arrived for `side`. `None` at the end of the stream.
    pub(crate) fn read(
        &mut self,
        link: LinkId,
        side: Side,
        rng: &mut fastrand::Rng,
    ) -> Option<Vec<u8>> {
        let way = &mut self.links[link].ways[1 - side];
        if way.arrived.is_empty() {
            return if way.ended { None } else { Some(Vec::new()) };
        }
        let len = match self.settings.choppy {
            true => rng.usize(1..=way.arrived.len()),
            false => way.arrived.len(),
        };
        Some(way.arrived.drain(..len).collect())
    }

    /// Marks the writer at `side` as waiting for room.
    pub(crate) fn block(&mut self, link: LinkId, side: Side) {
        self.links[link].ways[side].blocked = true;
    }

    /// True once when a writer waits and there is room again.
    pub(crate) fn take_unblocked(&mut self, link: LinkId, side: Side) -> bool {
        let waits = self.links[link].ways[side].blocked && self.room(link, side) > 0;
        if waits {
            self.links[link].ways[side].blocked = false;
        }
        waits
    }

    /// Stops all bytes from host `from` to host `to`.
    pub(crate) fn cut_off(&mut self, from: usize, to: usize) {
        self.cut_off.insert((from, to));
    }

    /// Ends a partition in one direction; returns the ways that have something to deliver.
    pub(crate) fn join(&mut self, from: usize, to: usize) -> Vec<(LinkId, Side)> {
        self.cut_off.remove(&(from, to));
        let all = (0..self.links.len()).flat_map(|link| [(link, 0), (link, 1)]);
        all.filter(|(link, side)| {
            let state = &self.links[*link];
            let hosts = (state.hosts[*side], state.hosts[1 - *side]);
            hosts == (Some(from), Some(to)) && !state.ways[*side].flying.is_empty()
        })
        .collect()
    }

    /// True when neither direction between two hosts is cut off.
    pub(crate) fn joined(&self, a: usize, b: usize) -> bool {
        !self.cut_off.contains(&(a, b)) && !self.cut_off.contains(&(b, a))
    }

    /// Every end of `node`: its number, and its side.
    pub(crate) fn ends_of(&self, node: usize) -> Vec<(LinkId, Side)> {
        let all = (0..self.links.len()).flat_map(|link| [(link, 0), (link, 1)]);
        all.filter(|(link, side)| match self.links[*link].ends[*side] {
            End::Upstream { node: n, .. }
            | End::Client { node: n, .. }
            | End::Backlog { node: n, .. } => n == node,
            End::Store { .. } | End::User { .. } | End::Gone => false,
        })
        .collect()
    }

    fn is_held(&self, link: LinkId, side: Side) -> bool {
        let hosts = self.links[link].hosts;
        match (hosts[side], hosts[1 - side]) {
            (Some(from), Some(to)) => self.cut_off.contains(&(from, to)),
            _ => false,
        }
    }
}
