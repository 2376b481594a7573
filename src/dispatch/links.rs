//! The upstream connections a worker holds: opened and closed as the view says, and what
//! happens to the requests on them when they come and go.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::effects::StoreVersion;
use super::failure::{Cause, Failure};
use super::gather::Said;
use super::plan::Standing;
use super::throttle::Throttle;
use super::upstream::{NOBODY, Target, Ticket, UpId, Upstream};
use super::view::{Now, View};
use super::{Dispatcher, Event, Frame};
use crate::proto::dnode::{Ext, MsgType, VERSION_TORC};
use crate::ring::{PeerId, PeerIdx};

#[derive(Debug)]
struct PeerLink {
    address: (String, u16),
    same_dc: bool,
    ups: Vec<UpId>,
}

/// Upstream connections by what they lead to.
#[derive(Debug, Default)]
pub(super) struct Links {
    store: Vec<UpId>,
    /// Ordered, so that the same history gives the same bytes.
    peers: BTreeMap<PeerId, PeerLink>,
    /// Places in `flat` by [`PeerIdx`] of the view in use.
    places: Vec<(u32, u32)>,
    flat: Vec<UpId>,
    standings: Vec<Standing>,
}

impl Links {
    /// How each peer of the view can be asked.
    pub(super) fn standings(&self) -> &[Standing] {
        &self.standings
    }

    /// Peers that can be asked, this node included.
    pub(super) fn usable(&self) -> usize {
        let usable = |s: &&Standing| matches!(s, Standing::Usable | Standing::Joining);
        self.standings.iter().filter(usable).count()
    }

    /// The connections that lead to the datastore or a peer and serve all clients.
    pub(super) fn to(&self, target: Target) -> &[UpId] {
        match target {
            Target::Store => &self.store,
            Target::Peer(peer) => self.peers.get(&peer).map_or(&[], |link| &link.ups),
        }
    }

    /// The connections to a peer, or to the datastore for the local node.
    pub(super) fn of(&self, peer: PeerIdx) -> &[UpId] {
        let (first, len) = self.places[peer.0 as usize];
        &self.flat[first as usize..(first + len) as usize]
    }
}

impl Dispatcher {
    pub(super) fn open_store(&mut self) {
        if self.embedded.is_some() {
            self.libraries.sure = true;
            return;
        }
        for _ in 0..self.view.settings.datastore_connections.max(1) {
            let up = self.open(Target::Store, true, None);
            self.links.store.push(up);
        }
    }

    /// Plans with another snapshot from now on. Requests in flight finish as they were planned:
    /// a link the snapshot does not name gets no more of them, and is closed once it owes none.
    pub fn set_view(&mut self, view: Arc<View>) {
        self.view = Arc::clone(&view);
        self.views += 1;
        let gone = self.take_links_not_in(&view);
        for peer in view.topology.peers().filter(|p| !p.is_local && p.state.owns_arc()) {
            if self.links.peers.contains_key(&peer.id) {
                continue;
            }
            let same_dc = peer.dc == view.topology.local_dc();
            let address = (peer.host.to_owned(), peer.port);
            let count = match same_dc {
                true => view.settings.local_peer_connections,
                false => view.settings.remote_peer_connections,
            };
            let ups: Vec<UpId> = (0..count.max(1))
                .map(|_| self.open(Target::Peer(peer.id), same_dc, Some(address.clone())))
                .collect();
            for up in &ups {
                let up = &mut self.ups[up.0 as usize];
                up.same_rack = peer.rack_index == view.topology.own_rack();
                let rate = view.settings.remote_frames_per_second;
                up.throttle = (!same_dc).then(|| Box::new(Throttle::new(rate)));
            }
            self.links.peers.insert(peer.id, PeerLink { address, same_dc, ups });
        }
        self.believe_torc(&view);
        // What follows may plan again, so the links must already be those of the new snapshot,
        // and which racks were tried is told by numbers of the old one.
        self.index_links();
        self.slots.iter_mut().for_each(|(_, slot)| slot.tried = 0);
        for id in gone {
            self.ups[id.0 as usize].retired = true;
            self.release_waiters(id);
            self.close_if_retired(id);
        }
    }

    /// A connection was made or lost. `cause` says why it was lost.
    pub fn on_upstream_state(&mut self, id: UpId, connected: bool, cause: Cause, now: Now) {
        let Some(up) = self.ups.get_mut(id.0 as usize) else { return };
        if up.up {
            up.up = false;
            self.counters.upstreams_up -= 1;
            self.index_standings();
            self.fail_upstream(id, cause, now);
            self.release_younger(id);
        }
        match connected {
            true => self.begin(id, now),
            false => self.lose_leased(id, cause, now),
        }
        self.release_waiters(id);
        self.close_if_retired(id);
    }

    fn begin(&mut self, id: UpId, now: Now) {
        self.ups[id.0 as usize].reset();
        if self.begin_cipher(id).is_err() {
            return self.unusable.push(id);
        }
        let up = &mut self.ups[id.0 as usize];
        up.up = true;
        up.last_heard_ms = now.mono_ms();
        self.counters.upstreams_up += 1;
        let target = up.target;
        self.wait_for_older(id);
        match target {
            Target::Peer(_) => self.probe(id, now),
            Target::Store if self.ups[id.0 as usize].lease.is_some() => {
                self.ask_store_client(id, now);
            }
            Target::Store => {
                self.store_version = StoreVersion::Unknown;
                self.libraries.doubt();
            }
        }
        self.send_pending(id, now);
        self.index_standings();
    }

    /// What an upstream leads to; `None` once it was closed.
    pub fn target(&self, id: UpId) -> Option<Target> {
        self.ups.get(id.0 as usize).map(|up| up.target)
    }

    /// Asks a peer who it is; its answer also shows that it lives.
    pub(super) fn probe(&mut self, id: UpId, now: Now) {
        let body = self.view.settings.protocol.probe();
        self.touch_upstream(id);
        let deadline_ms = self.deadline_ms(id, now);
        let up = &mut self.ups[id.0 as usize];
        let ticket = Ticket { deadline_ms, ..Ticket::of(NOBODY, 0) };
        let dnode_id = up.push(ticket, now.mono_ms());
        up.put_request(dnode_id, MsgType::Req, VERSION_TORC, Ext::default(), &Frame::Small(body));
    }

    fn open(&mut self, target: Target, same_dc: bool, address: Option<(String, u16)>) -> UpId {
        let settings = &self.view.settings;
        let up = Upstream::new(target, same_dc, settings.protocol, settings.reply);
        let id = UpId(self.ups.insert(up) as u32);
        self.events.push_back(Event::Connect { up: id, target, address, once: false });
        id
    }

    /// Forgets the links that `view` does not name, and returns their connections.
    fn take_links_not_in(&mut self, view: &View) -> Vec<UpId> {
        let wanted: BTreeMap<PeerId, (&str, u16, bool)> = view
            .topology
            .peers()
            .filter(|p| !p.is_local && p.state.owns_arc())
            .map(|p| (p.id, (p.host, p.port, p.dc == view.topology.local_dc())))
            .collect();
        let stays = |id: &PeerId, link: &PeerLink| {
            let now = (link.address.0.as_str(), link.address.1, link.same_dc);
            wanted.get(id) == Some(&now)
        };
        let gone: Vec<PeerId> = self
            .links
            .peers
            .iter()
            .filter(|(id, link)| !stays(id, link))
            .map(|(id, _)| *id)
            .collect();
        let links = gone.iter().filter_map(|peer| self.links.peers.remove(peer));
        links.flat_map(|link| link.ups).collect()
    }

    /// Links to peers the snapshot knows as torc are torc's from their first request on: its stamp
    /// must not be left to the time it arrives at.
    fn believe_torc(&mut self, view: &View) {
        for peer in view.topology.peers().filter(|peer| peer.is_torc) {
            let ups = self.links.peers.get(&peer.id).map(|link| link.ups.as_slice());
            for up in ups.unwrap_or_default() {
                self.ups[up.0 as usize].is_torc = true;
            }
        }
    }

    /// Closes a link that is wanted no more, once nothing is awaited from it.
    pub(super) fn close_if_retired(&mut self, id: UpId) {
        let Some(up) = self.ups.get_mut(id.0 as usize) else { return };
        if !up.retired || (up.up && up.in_flight() > 0) {
            return;
        }
        if up.up {
            up.up = false;
            self.counters.upstreams_up -= 1;
        }
        self.ups.remove(id.0 as usize);
        self.events.push_back(Event::Disconnect { up: id });
    }

    /// Fails every request that awaits a reply of `id`, or plans it again.
    fn fail_upstream(&mut self, id: UpId, cause: Cause, now: Now) {
        let up = &mut self.ups[id.0 as usize];
        let (target, shared) = (up.target, up.lease.is_none());
        for (ticket, unsent) in up.drain() {
            match unsent.filter(|_| shared) {
                Some(frame) => self.plan_again(id, ticket, frame, cause, now),
                None => {
                    let failure = Failure::sent(target, cause);
                    let lease = self.ups.get(id.0 as usize).and_then(|up| up.lease.as_ref());
                    let said = lease.map_or(Said::Failed(failure), |lease| lease.ending(failure));
                    self.answer(ticket, said, now);
                }
            }
        }
    }

    fn index_links(&mut self) {
        self.links.places.clear();
        self.links.flat.clear();
        for peer in self.view.topology.peers() {
            let ups = match self.links.peers.get(&peer.id) {
                _ if peer.is_local => self.links.store.as_slice(),
                Some(link) => link.ups.as_slice(),
                None => &[],
            };
            self.links.places.push((self.links.flat.len() as u32, ups.len() as u32));
            self.links.flat.extend_from_slice(ups);
        }
        self.index_standings();
    }

    fn index_standings(&mut self) {
        let embedded = self.embedded.is_some();
        self.links.standings.clear();
        for peer in self.view.topology.peers() {
            let connected = (peer.is_local && embedded)
                || self.links.of(peer.idx).iter().any(|up| self.ups[up.0 as usize].up);
            self.links.standings.push(match connected {
                _ if !peer.is_local && !peer.routable() => Standing::NotRoutable,
                false => Standing::NotConnected,
                true if peer.is_joining() => Standing::Joining,
                true => Standing::Usable,
            });
        }
    }
}
