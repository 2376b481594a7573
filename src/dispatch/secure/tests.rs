//! Two dispatchers and the bytes between them.

use std::collections::HashMap;
use std::io::IoSlice;
use std::sync::{Arc, Mutex};

use rsa::pkcs1::{DecodeRsaPrivateKey, EncodeRsaPrivateKey};

use super::*;
use crate::dispatch::failure::Cause;
use crate::dispatch::view::{BucketTypes, NodeState, Settings};
use crate::dispatch::{ClientKind, Conn, Embedded, UpstreamError};
use crate::hash::{HashType, KeyHasher};
use crate::proto::args::Args;
use crate::proto::dnode::crypto::TryRng;
use crate::proto::dnode::tests::{unhex, vectors};
use crate::proto::dnode::{Ext, HeaderDecoder, HeaderLimits, VERSION_C};
use crate::proto::outbuf::SLICES_MAX;
use crate::proto::resp::encode;
use crate::ring::{Consistency, Peer, PeerId, PeerState, Topology};
use crate::stamp::Stamping;
use crate::token::DynToken;

const MBUF: usize = 16 * 1024;
const CHUNK: usize = MBUF - 64;

/// Repeatable bytes.
struct Bytes(fastrand::Rng);

impl TryRng for Bytes {
    type Error = CryptoError;

    fn try_next_u32(&mut self) -> Result<u32, CryptoError> {
        Ok(self.0.u32(..))
    }

    fn try_next_u64(&mut self) -> Result<u64, CryptoError> {
        Ok(self.0.u64(..))
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), CryptoError> {
        self.0.fill(bytes);
        Ok(())
    }
}

impl TryCryptoRng for Bytes {}

/// A source that failed.
struct Dry;

impl TryRng for Dry {
    type Error = CryptoError;

    fn try_next_u32(&mut self) -> Result<u32, CryptoError> {
        Err(CryptoError::Random)
    }

    fn try_next_u64(&mut self) -> Result<u64, CryptoError> {
        Err(CryptoError::Random)
    }

    fn try_fill_bytes(&mut self, _: &mut [u8]) -> Result<(), CryptoError> {
        Err(CryptoError::Random)
    }
}

impl TryCryptoRng for Dry {}

fn wrap_key() -> Arc<WrapKey> {
    let der = unhex(vectors()["rsa_key_pkcs1_der_hex"].as_str().unwrap());
    let key = rsa::PrivateKey::from_pkcs1_der(&der).unwrap();
    Arc::new(WrapKey::from_pem(&key.to_pkcs1_pem(Default::default()).unwrap()).unwrap())
}

fn security(option: SecureOption, mbuf_size: usize) -> Security {
    let rng = Box::new(Bytes(fastrand::Rng::with_seed(7)));
    Security { option, wrap_key: wrap_key(), mbuf_size, rng }
}

/// SET and GET, enough to see what arrives.
#[derive(Default)]
struct Shelf(Mutex<HashMap<Vec<u8>, Vec<u8>>>);

impl Embedded for Shelf {
    fn execute(&self, args: &Args<'_>, _: u64, _: &mut Stamping, out: &mut OutBuf) {
        let mut shelf = self.0.lock().unwrap();
        match args.len() {
            3 => {
                shelf.insert(args[1].to_vec(), args[2].to_vec());
                out.put(b"+OK\r\n");
            }
            2 => match shelf.get(&args[1]) {
                Some(value) => encode::bulk(out.tail_mut(), value),
                None => encode::null_bulk(out.tail_mut()),
            },
            _ => out.put(b"+PONG\r\n"),
        }
    }

    fn version_of(&self, key: &[u8], _: u64) -> u64 {
        u64::from(self.0.lock().unwrap().contains_key(key))
    }
}

/// One node of a pair, each in a datacenter and rack of its own choice.
struct Node {
    dispatcher: Dispatcher,
    shelf: Arc<Shelf>,
    up: UpId,
}

/// Number 1 owns what the two share a rack for, but token 0, which nobody asks for.
fn view(local: u32, other: (&str, &str)) -> Arc<View> {
    let places = [("dc1", "r1"), other];
    let peer = |id: u32| Peer {
        id: PeerId(id),
        name: format!("n{id}"),
        host: format!("10.0.0.{id}"),
        port: 8101,
        dc: places[id as usize].0.into(),
        rack: places[id as usize].1.into(),
        tokens: vec![DynToken::from_u32(id * u32::MAX)],
        state: PeerState::Normal,
        reachable: true,
        is_local: id == local,
        is_torc: true,
    };
    Arc::new(View {
        topology: Topology::build(vec![peer(0), peer(1)]).unwrap(),
        hasher: KeyHasher { hash: HashType::Murmur, tag: None },
        read: Consistency::DcOne,
        write: Consistency::DcOne,
        buckets: BucketTypes::default(),
        state: NodeState::Normal,
        settings: Settings::default(),
        affinity: None,
    })
}

fn node(local: u32, other: (&str, &str), security: Option<Security>) -> Node {
    let shelf = Arc::new(Shelf::default());
    let store: Arc<dyn Embedded> = Arc::clone(&shelf) as _;
    let mut dispatcher = Dispatcher::new(0, view(local, other), Some(store));
    if let Some(security) = security {
        dispatcher.secure_links(security);
    }
    let Some(Event::Connect { up, .. }) = dispatcher.poll_event() else { panic!("one peer") };
    Node { dispatcher, shelf, up }
}

fn head(id: u64) -> Head {
    Head { id, kind: MsgType::Req, version: VERSION_C, same_dc: true, ext: Ext::default() }
}

fn now() -> Now {
    Now { mono_us: 1_000_000, wall_us: 1000 }
}

impl Node {
    fn connect(&mut self) {
        self.dispatcher.on_upstream_state(self.up, true, Cause::Closed, now());
    }

    fn take(&mut self, conn: Conn) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let n = self.dispatcher.output(conn, &mut slices);
            if n == 0 {
                return all;
            }
            let before = all.len();
            slices[..n].iter().for_each(|s| all.extend_from_slice(s));
            self.dispatcher.on_written(conn, all.len() - before);
        }
    }

    fn refusal(&mut self) -> Option<LinkRefused> {
        std::iter::from_fn(|| self.dispatcher.poll_event()).find_map(|event| match event {
            Event::LinkRefused { why, .. } => Some(why),
            _ => None,
        })
    }
}

/// Node 0 and node 1, a link from 0 to 1, and a client of 0.
struct Pair {
    asking: Node,
    asked: Node,
    link: ClientId,
    user: ClientId,
    piece: usize,
    buffers: [BytesMut; 2],
    /// Everything that was on the link, by direction.
    wire: [Vec<u8>; 2],
}

impl Pair {
    fn new(other: (&str, &str), asking: Option<Security>, asked: Option<Security>) -> Pair {
        let (mut asking, mut asked) = (node(0, other, asking), node(1, other, asked));
        asking.connect();
        let link = asked.dispatcher.add_client(ClientKind::Peer);
        let user = asking.dispatcher.add_client(ClientKind::Client);
        let (buffers, wire) = Default::default();
        Pair { asking, asked, link, user, piece: usize::MAX, buffers, wire }
    }

    /// Carries bytes both ways until none are left.
    fn carry(&mut self) -> Result<(), UpstreamError> {
        loop {
            let there = self.asking.take(Conn::Upstream(self.asking.up));
            self.wire[0].extend_from_slice(&there);
            for piece in there.chunks(self.piece) {
                self.buffers[0].extend_from_slice(piece);
                let asked = &mut self.asked.dispatcher;
                asked.on_client_bytes(self.link, &mut self.buffers[0], now());
            }
            let back = self.asked.take(Conn::Client(self.link));
            self.wire[1].extend_from_slice(&back);
            for piece in back.chunks(self.piece) {
                self.buffers[1].extend_from_slice(piece);
                let asking = &mut self.asking;
                asking.dispatcher.on_upstream_bytes(asking.up, &mut self.buffers[1], now())?;
            }
            if there.is_empty() && back.is_empty() {
                return Ok(());
            }
        }
    }

    fn ask(&mut self, words: &[&[u8]]) -> Vec<u8> {
        let mut request = Vec::new();
        encode::command(&mut request, words.iter().copied());
        let mut buf = BytesMut::from(&request[..]);
        self.asking.dispatcher.on_client_bytes(self.user, &mut buf, now());
        self.carry().unwrap();
        self.asking.take(Conn::Client(self.user))
    }
}

fn bulk(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    encode::bulk(&mut out, value);
    out
}

/// Headers of the frames in `wire`, and whether each brought a key.
fn frames(mut wire: &[u8]) -> Vec<(Header, bool)> {
    let mut found = Vec::new();
    while let Some(header) =
        HeaderDecoder::default().decode(wire, &HeaderLimits::default()).unwrap()
    {
        found.push((header, header.data.len() == WRAPPED_BYTES));
        wire = &wire[header.len + header.plen as usize..];
    }
    assert!(wire.is_empty());
    found
}

#[test]
fn values_pass_a_link_within_one_rack_under_all() {
    for piece in [usize::MAX, 1000, 61] {
        let secure = |mbuf| Some(security(SecureOption::All, mbuf));
        let mut pair = Pair::new(("dc1", "r1"), secure(MBUF), secure(MBUF));
        pair.piece = piece;
        for len in [0, 1, CHUNK - 40, CHUNK - 16, CHUNK, CHUNK + 16, MBUF, 200_000] {
            let value = vec![b'v'; len];
            assert_eq!(pair.ask(&[b"SET", b"k", &value]), b"+OK\r\n");
            assert_eq!(pair.asked.shelf.0.lock().unwrap()[&b"k"[..]], value);
            assert_eq!(pair.ask(&[b"GET", b"k"]), bulk(&value), "{len} in pieces of {piece}");
        }
        assert_eq!(pair.ask(&[b"GET", b"none"]), b"$-1\r\n");
        for (number, wire) in pair.wire.iter().enumerate() {
            let frames = frames(wire);
            assert!(frames.iter().all(|(header, _)| header.encrypted()));
            let keys: Vec<usize> = (0..frames.len()).filter(|i| frames[*i].1).collect();
            assert_eq!(keys, [0].repeat(1 - number), "a key in the first frame there, none back");
            assert!(memchr::memmem::find(wire, b"vvvvvvvvvvvvvvvv").is_none());
        }
    }
}

#[test]
fn the_option_decides_by_the_places_of_both_nodes() {
    let pairs = [("dc1", "r1"), ("dc1", "r2"), ("dc2", "r1")];
    for (option, encrypted) in [
        (SecureOption::None, [false, false, false]),
        (SecureOption::Rack, [false, true, true]),
        (SecureOption::Datacenter, [false, false, true]),
        (SecureOption::All, [true, true, true]),
    ] {
        for (other, wanted) in pairs.into_iter().zip(encrypted) {
            let secure = || Some(security(option, MBUF));
            let mut pair = Pair::new(other, secure(), secure());
            pair.asked.dispatcher.set_origin(pair.link, "10.0.0.0");
            assert_eq!(pair.ask(&[b"SET", b"k", b"v"]), b"+OK\r\n");
            let frames = frames(&pair.wire[0]);
            let all = frames.iter().all(|(header, _)| header.encrypted() == wanted);
            assert!(all, "{option:?} to {other:?}");
        }
    }
}

#[test]
fn plaintext_is_refused_where_the_link_must_be_encrypted() {
    let refused = |other, option, origin: &str| {
        let mut pair = Pair::new(other, None, Some(security(option, MBUF)));
        pair.asked.dispatcher.set_origin(pair.link, origin);
        let reply = pair.ask(&[b"SET", b"k", b"v"]);
        let why = pair.asked.refusal();
        assert_eq!(why.is_some(), !pair.asked.dispatcher.wants_read(pair.link));
        if let Some(why) = &why {
            assert_eq!(*why, LinkRefused::Plain);
            assert!(pair.asked.shelf.0.lock().unwrap().is_empty());
            let told = String::from_utf8_lossy(&pair.wire[1]).into_owned();
            assert!(told.contains("-ERR Peer: this link must be encrypted"), "{told}");
            // The heartbeat was answered; the write behind it is not even read.
            assert_eq!(reply.is_empty(), other == ("dc1", "r1"));
        }
        why.is_some()
    };
    // The frames of a link between datacenters say so themselves.
    for option in [SecureOption::Rack, SecureOption::Datacenter, SecureOption::All] {
        assert!(refused(("dc2", "r1"), option, ""), "{option:?}");
    }
    assert!(refused(("dc1", "r1"), SecureOption::All, "10.0.0.0"));
    // For the rack it takes the address.
    assert!(refused(("dc1", "r2"), SecureOption::Rack, "10.0.0.0"));
    assert!(!refused(("dc1", "r1"), SecureOption::Rack, "10.0.0.0"));
    assert!(!refused(("dc1", "r2"), SecureOption::Rack, "10.9.9.9"));
    assert!(!refused(("dc1", "r2"), SecureOption::Datacenter, "10.0.0.0"));
    assert!(!refused(("dc2", "r1"), SecureOption::None, "10.0.0.0"));
}

#[test]
fn what_cannot_be_deciphered_closes_the_link() {
    let all = |mbuf| Some(security(SecureOption::All, mbuf));
    let other = ("dc1", "r1");
    let mut pair = Pair::new(other, all(MBUF), None);
    pair.ask(&[b"GET", b"k"]);
    assert_eq!(pair.asked.refusal(), Some(LinkRefused::NoKeyFile));

    let mut pair = Pair::new(other, all(8192), all(MBUF));
    pair.ask(&[b"SET", b"k", &[b'v'; 50_000]]);
    assert!(matches!(pair.asked.refusal(), Some(LinkRefused::Cipher(CryptoError::Padding { .. }))));
    assert!(pair.asked.shelf.0.lock().unwrap().is_empty());

    // A key that does not unwrap, although the link had a good one before.
    let mut pair = Pair::new(other, all(MBUF), all(MBUF));
    assert_eq!(pair.ask(&[b"SET", b"k", b"v"]), b"+OK\r\n");
    let mut frame = OutBuf::new();
    let cipher = pair.asking.dispatcher.ups[pair.asking.up.0 as usize].cipher.take().unwrap();
    let head = head(9);
    put_sealed(&mut frame, head, &[0x55; WRAPPED_BYTES], &cipher.cipher, b"*1\r\n$4\r\nPING\r\n");
    let mut buf = BytesMut::from(frame.front());
    pair.asked.dispatcher.on_client_bytes(pair.link, &mut buf, now());
    assert_eq!(pair.asked.refusal(), Some(LinkRefused::Cipher(CryptoError::Unwrap)));
    assert!(pair.asked.take(Conn::Client(pair.link)).is_empty());
}

#[test]
fn keys_without_end_close_the_link() {
    let mut asked = node(1, ("dc1", "r1"), Some(security(SecureOption::All, MBUF)));
    let link = asked.dispatcher.add_client(ClientKind::Peer);
    let mut rng = Bytes(fastrand::Rng::with_seed(3));
    for number in 0..=KEYS_MAX {
        let (cipher, wrapped) = ChunkCipher::for_new_link(&wrap_key(), MBUF, &mut rng).unwrap();
        let mut link_cipher = OutgoingCipher { cipher, wrapped };
        let mut frame = OutBuf::new();
        link_cipher.put(&mut frame, head(number.into()), b"*1\r\n$4\r\nPING\r\n");
        let mut buf = BytesMut::from(frame.front());
        asked.dispatcher.on_client_bytes(link, &mut buf, now());
        if number < KEYS_MAX {
            let mut answer = asked.take(Conn::Client(link));
            let body = frames(&answer)[0].0.len;
            let plain = link_cipher.open(&mut answer[body..]).unwrap();
            assert_eq!(&answer[answer.len() - plain..], b"+PONG\r\n", "with the newest key");
        }
    }
    assert_eq!(asked.refusal(), Some(LinkRefused::Keys));
}

#[test]
fn an_answer_in_plaintext_ends_an_encrypted_link() {
    let mut asking = node(0, ("dc1", "r1"), Some(security(SecureOption::All, MBUF)));
    asking.connect();
    let mut buf = BytesMut::from(&b"   $2014$ 1 5 0 1 1 *1 d *7\r\n+PONG\r\n"[..]);
    let result = asking.dispatcher.on_upstream_bytes(asking.up, &mut buf, now());
    assert_eq!(result, Err(UpstreamError::Plain));
}

#[test]
fn a_link_without_a_key_is_given_up() {
    let dry = Security { rng: Box::new(Dry), ..security(SecureOption::All, MBUF) };
    let mut asking = node(0, ("dc1", "r1"), Some(dry));
    asking.connect();
    assert!(asking.take(Conn::Upstream(asking.up)).is_empty());
    assert!(asking.dispatcher.poll_timeout(now()).is_some());
    assert_eq!(asking.dispatcher.on_deadline(now()), [asking.up]);
}

#[test]
fn a_deciphered_request_waits_for_a_full_store_and_is_served_then() {
    let mut busy = View { settings: Settings::default(), ..*view_parts() };
    busy.settings.upstream_in_flight_max = 1;
    let mut asked = Dispatcher::new(0, Arc::new(busy), None);
    asked.secure_links(security(SecureOption::All, MBUF));
    let store = std::iter::from_fn(|| asked.poll_event()).find_map(|event| match event {
        Event::Connect { up, target: Target::Store, .. } => Some(up),
        _ => None,
    });
    let store = store.unwrap();
    asked.on_upstream_state(store, true, Cause::Closed, now());
    let link = asked.add_client(ClientKind::Peer);
    let mut rng = Bytes(fastrand::Rng::with_seed(3));
    let (cipher, wrapped) = ChunkCipher::for_new_link(&wrap_key(), MBUF, &mut rng).unwrap();
    let mut sender = OutgoingCipher { cipher, wrapped };
    let mut out = OutBuf::new();
    for id in 1..=3 {
        sender.put(&mut out, head(id), format!("*2\r\n$3\r\nGET\r\n$1\r\n{id}\r\n").as_bytes());
    }
    let mut buf = BytesMut::from(out.front());
    asked.on_client_bytes(link, &mut buf, now());
    for id in 1..=3 {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        asked.output(Conn::Upstream(store), &mut slices);
        let sent = slices[0].to_vec();
        assert!(sent.ends_with(format!("{id}\r\n").as_bytes()), "one at a time");
        asked.on_written(Conn::Upstream(store), sent.len());
        let mut reply = BytesMut::from(&b"$-1\r\n"[..]);
        asked.on_upstream_bytes(store, &mut reply, now()).unwrap();
        assert_eq!(asked.next_resumable(), (id < 3).then_some(link));
        asked.on_client_bytes(link, &mut buf, now());
    }
    assert!(buf.is_empty());
}

fn view_parts() -> Box<View> {
    Box::new(Arc::into_inner(view(1, ("dc1", "r1"))).unwrap())
}

/// Types of the request frames that go to two racks of another datacenter, heartbeats left out.
fn types_sent(option: SecureOption, is_torc: bool, value: usize) -> Vec<Vec<MsgType>> {
    let places = [("dc1", "r1"), ("dc2", "r1"), ("dc2", "r2")];
    let peer = |id: u32| Peer {
        id: PeerId(id),
        name: format!("n{id}"),
        host: format!("10.0.0.{id}"),
        port: 8101,
        dc: places[id as usize].0.into(),
        rack: places[id as usize].1.into(),
        tokens: vec![DynToken::from_u32(0)],
        state: PeerState::Normal,
        reachable: true,
        is_local: id == 0,
        is_torc,
    };
    let topology = Topology::build((0..3).map(peer).collect()).unwrap();
    let view = View { topology, ..*view_parts() };
    let mut asking = Dispatcher::new(0, Arc::new(view), Some(Arc::new(Shelf::default())));
    asking.secure_links(security(option, MBUF));
    let ups: Vec<UpId> = std::iter::from_fn(|| asking.poll_event())
        .filter_map(|event| match event {
            Event::Connect { up, .. } => Some(up),
            _ => None,
        })
        .collect();
    ups.iter().for_each(|up| asking.on_upstream_state(*up, true, Cause::Closed, now()));
    let user = asking.add_client(ClientKind::Client);
    let mut request = Vec::new();
    encode::command(&mut request, [&b"SET"[..], b"k", &vec![b'v'; value]]);
    asking.on_client_bytes(user, &mut BytesMut::from(&request[..]), now());
    let sent = |up: &UpId| {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let n = asking.output(Conn::Upstream(*up), &mut slices);
        let wire = slices[..n].iter().flat_map(|s| s.to_vec()).collect::<Vec<u8>>();
        let small = |header: &Header| header.plen < 64 && value > 64;
        let types = frames_by_type(&wire).into_iter().filter(|header| !small(header));
        types.map(|header| header.msg_type()).collect()
    };
    ups.iter().map(sent).collect()
}

fn frames_by_type(wire: &[u8]) -> Vec<Header> {
    frames(wire).into_iter().map(|(header, _)| header).collect()
}

#[test]
fn what_a_c_node_would_lose_on_its_second_hop_is_sent_to_each_rack() {
    let forwarded = vec![vec![MsgType::ReqForward], vec![]];
    let direct = vec![vec![MsgType::Req], vec![MsgType::Req]];
    for option in [SecureOption::Rack, SecureOption::All] {
        assert_eq!(types_sent(option, false, 20_000), direct, "{option:?}");
        assert_eq!(types_sent(option, false, 1_000), forwarded, "{option:?}: one chunk");
        assert_eq!(types_sent(option, true, 20_000), forwarded, "{option:?}: torc");
    }
    // Inside a datacenter the second hop is in plaintext.
    assert_eq!(types_sent(SecureOption::Datacenter, false, 20_000), forwarded);
}
