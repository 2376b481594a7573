//! Encrypted peer links: who must encrypt, what outgoing links send, what incoming ones accept.
//!
//! Each side decides for the links it opens, by `secure_server_option` and the places of the two
//! nodes. This node also holds the links others open to that rule: a frame in plaintext on a link
//! that must be encrypted is refused. Bodies are deciphered where they lie in the receive buffer,
//! and enciphered into the output of each replica.
//!
//! Parity: `Netflix/dynomite` takes plaintext whatever its own option says, and goes on with some
//! other connection's key when one does not unwrap; here both end the link.

use std::sync::Arc;

use bytes::BytesMut;

use super::client::ClientId;
use super::gather::Said;
use super::peer_requests::envelope_of;
use super::plan::{Hop, Leg, Plan, Standing};
use super::requests::Stop;
use super::upstream::{Target, UpId};
use super::view::{Now, Protocol, View};
use super::{Dispatcher, Event};
use crate::proto::args::Span;
use crate::proto::dnode::crypto::{
    BodyCipher, ChunkCipher, CryptoError, ReceiveKey, SecureOption, TryCryptoRng, WRAPPED_BYTES,
    WrapKey,
};
use crate::proto::dnode::{Ext, FLAG_ENCRYPTED, Header, MsgType, put_header};
use crate::proto::outbuf::{OutBuf, SHARE_MIN};
use crate::ring::ReplicaSet;

/// Keys one incoming link may bring. A node sends one; each costs an RSA operation here.
const KEYS_MAX: u32 = 16;

/// Why a link another node opened was closed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkRefused {
    /// It is not encrypted and must be.
    #[error("it is in plaintext, but secure_server_option wants it encrypted")]
    Plain,
    /// It is encrypted, and this node has no key.
    #[error("it is encrypted, but secure_server_option is none here")]
    NoKeyFile,
    /// It brought more keys than any node does.
    #[error("it brought more than {KEYS_MAX} keys")]
    Keys,
    /// A key or a body does not fit.
    #[error("{0}")]
    Cipher(#[from] CryptoError),
}

/// Secret random bytes for keys.
pub type LinkRng = Box<dyn TryCryptoRng<Error = CryptoError>>;

/// What a worker needs for encrypted links.
pub struct Security {
    /// Which links are encrypted.
    pub option: SecureOption,
    /// The RSA key all nodes share.
    pub wrap_key: Arc<WrapKey>,
    /// `mbuf_size`, in bytes, the same on all nodes.
    pub mbuf_size: usize,
    /// Where keys come from.
    pub rng: LinkRng,
}

/// The cipher of a link this node opened.
#[derive(Debug)]
pub(super) struct OutgoingCipher {
    cipher: ChunkCipher,
    /// The data field of the first frame; empty once it was sent.
    wrapped: Vec<u8>,
}

impl OutgoingCipher {
    /// Appends one frame; the first one brings the key.
    pub(super) fn put(&mut self, out: &mut OutBuf, head: Head, body: &[u8]) {
        let wrapped = std::mem::take(&mut self.wrapped);
        let field = head.ext.encode();
        let data = if wrapped.is_empty() { field.as_slice() } else { &wrapped };
        put_sealed(out, head, data, &self.cipher, body);
    }

    /// Deciphers an answer in place; see [`BodyCipher::open_in_place`].
    pub(super) fn open(&self, sealed: &mut [u8]) -> Result<usize, CryptoError> {
        self.cipher.open_in_place(sealed)
    }
}

/// The numbers of a frame's header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) id: u64,
    pub(super) kind: MsgType,
    pub(super) version: u8,
    pub(super) same_dc: bool,
    /// Its data field.
    pub(super) ext: Ext,
}

impl Head {
    /// Appends the header of a frame in plaintext, whose body of `len` bytes is to follow.
    pub(super) fn put_plain(self, out: &mut OutBuf, len: usize) {
        let Head { id, kind, version, same_dc, ext } = self;
        let (out, field) = (out.tail_mut(), ext.encode());
        put_header(out, id, kind.code(), 0, version, same_dc, field.as_slice(), len as u64);
    }
}

/// Appends one encrypted frame.
pub(super) fn put_sealed(
    out: &mut OutBuf,
    head: Head,
    data: &[u8],
    cipher: &ChunkCipher,
    body: &[u8],
) {
    let Head { id, kind, version, same_dc, .. } = head;
    let len = cipher.sealed_len(body.len());
    let tail = out.tail_mut();
    put_header(tail, id, kind.code(), FLAG_ENCRYPTED, version, same_dc, data, len as u64);
    if len < SHARE_MIN {
        return cipher.seal(body, tail);
    }
    let mut sealed = Vec::new();
    cipher.seal(body, &mut sealed);
    out.put_shared(sealed.into());
}

/// What an incoming link brought for its encryption.
#[derive(Debug, Default)]
pub(super) struct IncomingSecurity {
    key: Option<ReceiveKey>,
    keys_taken: u32,
    /// The present frame's body is deciphered already, and its header counts accordingly.
    opened: bool,
    /// The IP address at the other end; empty when it has none.
    origin: String,
    /// The snapshot (see [`Dispatcher::views`]) by which plaintext was last allowed; 0 for none.
    plain_by: u64,
}

impl IncomingSecurity {
    /// The cipher of answers; `None` while everything came in plaintext.
    pub(super) fn answers(&self) -> Option<&ChunkCipher> {
        self.key.as_ref()?.answers()
    }

    /// A new frame begins.
    pub(super) fn next_frame(&mut self) {
        self.opened = false;
    }
}

impl Dispatcher {
    /// Encrypts links from now on, as `security` says. To be called before anything connects.
    pub fn secure_links(&mut self, security: Security) {
        self.security = Some(security);
    }

    /// Tells where a link of another node comes from: an IP address without port.
    pub fn set_origin(&mut self, id: ClientId, ip: &str) {
        let client = self.clients.get_mut(id.0 as usize);
        if let Some(peer) = client.and_then(|c| c.peer.as_mut()) {
            peer.security.origin = ip.to_owned();
        }
    }

    /// Makes the key of a link that was just connected, if it is to be encrypted. On an error the
    /// link cannot be used.
    pub(super) fn begin_cipher(&mut self, id: UpId) -> Result<(), CryptoError> {
        let up = &mut self.ups[id.0 as usize];
        up.cipher = None;
        let (Some(security), Target::Peer(_)) = (&mut self.security, up.target) else {
            return Ok(());
        };
        if security.option.encrypts(up.same_dc, up.same_rack) {
            let Security { wrap_key, mbuf_size, rng, .. } = security;
            let (cipher, wrapped) = ChunkCipher::for_new_link(wrap_key, *mbuf_size, &mut **rng)?;
            up.cipher = Some(Box::new(OutgoingCipher { cipher, wrapped }));
        }
        Ok(())
    }

    /// True when a frame in plaintext may come on this link.
    pub(super) fn plain_is_allowed(&mut self, view: &View, id: ClientId, header: &Header) -> bool {
        let Some(security) = &self.security else { return true };
        let Some(peer) = &mut self.clients[id.0 as usize].peer else { return true };
        let link = &mut peer.security;
        if link.plain_by != self.views
            && plain_allowed(security.option, view, header.same_dc, &link.origin)
        {
            link.plain_by = self.views;
        }
        link.plain_by == self.views
    }

    /// Lets no C node pass on what it would lose: a request of more than one chunk that came
    /// encrypted and goes on encrypted (measured under `rack` and `all`). In its place every rack
    /// of its datacenter is asked from here.
    pub(super) fn spread_forwards(
        &self,
        view: &View,
        owners: ReplicaSet<'_>,
        request: usize,
        plan: &mut Plan,
    ) {
        let Some(security) = &self.security else { return };
        // Half of a chunk is far enough from its edge, whatever headers are counted in.
        if !security.option.encrypts(true, false) || request < security.mbuf_size / 2 {
            return;
        }
        let lossy = |leg: &Leg| leg.hop == Hop::Forward && !self.is_torc(view, leg.peer);
        while let Some(at) = plan.legs.iter().position(lossy) {
            let Leg { rack, role, .. } = plan.legs.remove(at);
            let dcs = &mut view.topology.remote_dcs().iter();
            let racks = dcs.find(|dc| dc.racks.contains(&rack.into())).map(|dc| dc.racks.clone());
            for rack in racks.unwrap_or_default() {
                let owner = owners.owner(rack);
                let standing = owner.map(|peer| self.links.standings()[peer.0 as usize]);
                match (owner, standing) {
                    (Some(peer), Some(Standing::Usable | Standing::Joining)) => {
                        plan.legs.push(Leg { peer, rack: rack as u16, hop: Hop::Peer, role });
                    }
                    _ => plan.missed.push((rack as u16, owner)),
                }
            }
        }
    }

    /// Takes one encrypted frame; `false` when more bytes are needed.
    pub(super) fn sealed_frame(
        &mut self,
        view: &View,
        id: ClientId,
        header: Header,
        buf: &mut BytesMut,
        pos: &mut usize,
        spans: &mut Vec<Span>,
        now: Now,
    ) -> Result<bool, Stop> {
        let end = *pos + header.len + header.plen as usize;
        if buf.len() < end {
            return Ok(false);
        }
        let header = match self.open_body(id, header, &mut buf[*pos..end]) {
            Ok(header) => header,
            Err(why) => return Err(self.refuse_link(id, why)),
        };
        // The body ends with its frame: what comes behind must not be taken for a part of it.
        let behind = buf.split_off(end);
        let taken = self.peer_frame(view, id, header, buf, pos, spans, now);
        if taken == Ok(true) {
            *pos = buf.len();
        }
        buf.unsplit(behind);
        match taken {
            Ok(false) => Err(self.drop_link(id)),
            Ok(true) | Err(_) => taken,
        }
    }

    /// Deciphers a whole frame in place. The header it returns, which is also the one kept for
    /// this frame, takes the padding in, so that the plaintext follows it.
    fn open_body(
        &mut self,
        id: ClientId,
        mut header: Header,
        frame: &mut [u8],
    ) -> Result<Header, LinkRefused> {
        let Some(security) = &mut self.security else { return Err(LinkRefused::NoKeyFile) };
        let Some(peer) = &mut self.clients[id.0 as usize].peer else { return Ok(header) };
        let link = &mut peer.security;
        if link.opened {
            return Ok(header);
        }
        let (head, body) = frame.split_at_mut(header.len);
        let data = header.data.of(head);
        if data.len() == WRAPPED_BYTES {
            link.keys_taken += 1;
            if link.keys_taken > KEYS_MAX {
                return Err(LinkRefused::Keys);
            }
        }
        let key = link.key.get_or_insert_with(|| ReceiveKey::new(security.mbuf_size));
        let cipher = key.accept(&header, data, &security.wrap_key, &mut *security.rng)?;
        let plain = cipher.open_in_place(body)?;
        header.len += body.len() - plain;
        header.plen = plain as u64;
        link.opened = true;
        peer.header = Some(header);
        Ok(header)
    }

    /// Answers a request that came in plaintext where it must not, and closes its link.
    pub(super) fn refuse_plain(&mut self, id: ClientId, header: &Header, now: Now) -> Stop {
        if matches!(header.msg_type(), MsgType::Req | MsgType::ReqForward) {
            let prefix = match self.view.settings.protocol {
                Protocol::Redis => "-ERR",
                Protocol::Memcache => "SERVER_ERROR",
            };
            let text = format!("{prefix} {PLAIN_TEXT}\r\n");
            self.reply_in_turn(id.0, envelope_of(header), Said::Reply(text.as_bytes()), now);
        }
        self.refuse_link(id, LinkRefused::Plain)
    }

    fn refuse_link(&mut self, id: ClientId, why: LinkRefused) -> Stop {
        self.counters.refused_links += 1;
        self.clients[id.0 as usize].closing = true;
        self.events.push_back(Event::LinkRefused { from: id, why });
        Stop::Closed
    }
}

/// What a node is told whose request came in plaintext. It begins as an error of a replica does.
const PLAIN_TEXT: &str = "Peer: this link must be encrypted (secure_server_option)";

/// Whether a link may be in plaintext. The frames say whether the sender is of this datacenter;
/// that, and the rack, are known better when the sender's address is that of a peer. An address
/// nobody is known at proves nothing: nodes behind a name or a second interface use one.
fn plain_allowed(option: SecureOption, view: &View, same_dc: bool, origin: &str) -> bool {
    if option.encrypts(same_dc, true) {
        return false;
    }
    let topology = &view.topology;
    let mut there = topology.peers().filter(|p| p.host == origin).peekable();
    there.peek().is_none()
        || there.any(|p| {
            let same_rack = p.rack_index == topology.own_rack();
            !option.encrypts(p.dc == topology.local_dc(), same_rack)
        })
}

#[cfg(test)]
mod tests;
