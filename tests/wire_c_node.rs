//! Frames, encrypted bodies and gossip against a living node of the reference.
//!
//! `DYNOMITE_BIN` names the binary and `REDIS_BIN` its datastore (default `redis-server`); without
//! the first the tests say that they were skipped. Each test has a loopback address of its own, as
//! the reference's gossip knows the peer port 8101 only.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rsa::pkcs1::{DecodeRsaPrivateKey, EncodeRsaPrivateKey};
use torc::gossip::c_format::put_c_gossip_frame;
use torc::gossip::{Addr, Claim, LocalNode, Membership, Millis, Seed, Settings};
use torc::proto::dnode::control::ControlSeal;
use torc::proto::dnode::crypto::{BodyCipher, ChunkCipher, LinkKey, WRAPPED_BYTES, WrapKey};
use torc::proto::dnode::{
    DATA_PLAIN, Ext, FLAG_ENCRYPTED, Header, HeaderDecoder, HeaderLimits, MsgType, Role, VERSION_C,
    VERSION_TORC, put_header,
};
use torc::stamp::Stamp;
use torc::token::DynToken;

const PEER_PORT: u16 = 8101;
const ADMIN_PORT: u16 = 22222;
const STORE_PORT: u16 = 22122;
const MBUF_SIZE: usize = 16 * 1024;

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A C node and its datastore; both end with it.
struct CNode {
    ip: Ipv4Addr,
    node: Child,
    store: Child,
    folder: PathBuf,
}

impl CNode {
    /// Starts a node on the loopback address number `number`, or says why it does not.
    fn start(number: u8, more: &str) -> Option<CNode> {
        let Some(binary) = std::env::var_os("DYNOMITE_BIN") else {
            eprintln!("skipped: DYNOMITE_BIN names no C node");
            return None;
        };
        let redis = std::env::var_os("REDIS_BIN").unwrap_or("redis-server".into());
        let [high, low] = (std::process::id() as u16).to_be_bytes();
        let ip = Ipv4Addr::new(127, 100 + number, high, low.max(1));
        let folder = std::env::temp_dir().join(format!("torc-c-node-{ip}"));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("key.pem"), pem()).unwrap();
        let pem = folder.join("key.pem");
        let config = format!(
            "dyn_o_mite:\n  datacenter: dc1\n  rack: r1\n  dyn_listen: {ip}:{PEER_PORT}\n  \
             dyn_seed_provider: simple_provider\n  listen: {ip}:8102\n  \
             stats_listen: {ip}:{ADMIN_PORT}\n  stats_interval: 200\n  gos_interval: 1000\n  \
             servers:\n  - {ip}:{STORE_PORT}:1\n  tokens: '0'\n  data_store: 0\n  \
             pem_key_file: {}\n{more}",
            pem.display()
        );
        std::fs::write(folder.join("node.yml"), config).unwrap();
        let quiet = |command: &mut Command| {
            let command = command.stdin(Stdio::null()).stdout(Stdio::null());
            command.stderr(Stdio::null()).spawn()
        };
        let port = STORE_PORT.to_string();
        let mut redis = Command::new(redis);
        redis.args(["--bind", &ip.to_string(), "--port", &port, "--save", ""]);
        let store = quiet(redis.current_dir(&folder)).expect("a redis-server");
        patiently(|| TcpStream::connect((ip, STORE_PORT)).ok());
        let mut node = Command::new(binary);
        node.args(["-c", "node.yml", "-o", "node.log"]).current_dir(&folder);
        let node = quiet(&mut node).expect("a C node");
        patiently(|| TcpStream::connect((ip, PEER_PORT)).ok());
        let node = CNode { ip, node, store, folder };
        // Its connection to the datastore may be younger than its listener.
        patiently(|| {
            let mut link = Peer::connect(&node);
            link.send(1, MsgType::Req, VERSION_C, b"d", &resp(&[b"PING"]));
            (link.receive().1 == b"+PONG\r\n").then_some(())
        });
        Some(node)
    }

    fn describe(&self) -> String {
        let mut stream = TcpStream::connect((self.ip, ADMIN_PORT)).unwrap();
        let request = "GET /cluster_describe HTTP/1.0\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        match stream.read_to_string(&mut text) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            Err(error) => panic!("{error}"),
        }
        text
    }
}

impl Drop for CNode {
    fn drop(&mut self) {
        for child in [&mut self.node, &mut self.store] {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// One peer connection.
struct Peer {
    stream: TcpStream,
    buf: Vec<u8>,
}

impl Peer {
    fn connect(node: &CNode) -> Peer {
        let stream = TcpStream::connect((node.ip, PEER_PORT)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Peer { stream, buf: Vec::new() }
    }

    fn send(&mut self, id: u64, kind: MsgType, version: u8, data: &[u8], body: &[u8]) {
        self.send_flagged(id, kind, 0, version, data, body);
    }

    fn send_flagged(
        &mut self,
        id: u64,
        kind: MsgType,
        flags: u8,
        version: u8,
        data: &[u8],
        body: &[u8],
    ) {
        let mut frame = Vec::new();
        let plen = body.len() as u64;
        put_header(&mut frame, id, kind.code(), flags, version, true, data, plen);
        frame.extend_from_slice(body);
        self.stream.write_all(&frame).unwrap();
    }

    /// The next frame. The lengths a single C node writes are true.
    fn receive(&mut self) -> (Header, Vec<u8>) {
        let mut decoder = HeaderDecoder::default();
        loop {
            let found = decoder.decode(&self.buf, &HeaderLimits::default()).unwrap();
            if let Some(header) = found {
                let end = header.len + header.plen as usize;
                while self.buf.len() < end {
                    self.fill();
                }
                let frame: Vec<u8> = self.buf.drain(..end).collect();
                return (header, frame[header.len..].to_vec());
            }
            self.fill();
        }
    }

    fn fill(&mut self) {
        let mut piece = [0; 64 * 1024];
        let n = self.stream.read(&mut piece).expect("an answer in time");
        assert!(n > 0, "the C node closed the connection");
        self.buf.extend_from_slice(&piece[..n]);
    }
}

fn patiently<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    let start = now();
    loop {
        if let Some(done) = attempt() {
            return done;
        }
        assert!(now() - start < PATIENCE, "not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[allow(clippy::disallowed_methods)] // real processes live in real time
fn now() -> Instant {
    Instant::now()
}

fn resp(args: &[&[u8]]) -> Vec<u8> {
    let mut request = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        request.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        request.extend_from_slice(arg);
        request.extend_from_slice(b"\r\n");
    }
    request
}

/// The key of the recorded vectors.
fn pem() -> String {
    let text = include_str!("vectors/dnode-frames.json");
    let vectors: serde_json::Value = serde_json::from_str(text).unwrap();
    let hex = vectors["rsa_key_pkcs1_der_hex"].as_str().unwrap();
    let bytes = (0..hex.len()).step_by(2);
    let der: Vec<u8> = bytes.map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect();
    let key = rsa::PrivateKey::from_pkcs1_der(&der).unwrap();
    key.to_pkcs1_pem(Default::default()).unwrap().to_string()
}

#[test]
fn a_c_node_answers_version_one_and_skips_what_it_does_not_know() {
    let Some(node) = CNode::start(1, "  secure_server_option: none\n") else {
        return;
    };
    let mut peer = Peer::connect(&node);
    let ping = resp(&[b"PING"]);
    peer.send(7, MsgType::Req, VERSION_TORC, DATA_PLAIN, &ping);
    let (header, body) = peer.receive();
    assert_eq!((header.id, header.msg_type()), (7, MsgType::Res));
    assert_eq!((header.version, header.same_dc), (VERSION_C, true));
    assert_eq!(body, b"+PONG\r\n");

    let stamp = Some(Stamp::new(u64::MAX));
    let ext = Ext { stamp, role: Some(Role::Control), wire: Some(1), outrun: true };
    peer.send(8, MsgType::Req, VERSION_TORC, ext.encode().as_slice(), &ping);
    assert_eq!(peer.receive().0.id, 8, "a long data field is skipped");

    for (i, kind) in [MsgType::Req, MsgType::ReqForward].into_iter().enumerate() {
        let value = vec![b'v'; 100_000];
        let id = 20 + 2 * i as u64;
        let set = resp(&[b"SET", b"k", &value]);
        peer.send(id, kind, VERSION_C, DATA_PLAIN, &set);
        peer.send(id + 1, kind, VERSION_C, DATA_PLAIN, &resp(&[b"GET", b"k"]));
        assert_eq!(peer.receive().1, b"+OK\r\n");
        let (header, body) = peer.receive();
        assert_eq!((header.id, body.len()), (id + 1, 9 + 100_000 + 2));
    }
}

#[test]
fn encrypted_bodies_pass_both_ways() {
    let option = "  secure_server_option: datacenter\n";
    let Some(node) = CNode::start(2, option) else {
        return;
    };
    let mut rng = rsa::rand_core::UnwrapErr(SystemRandom);
    let wrap_key = WrapKey::from_pem(&pem()).unwrap();
    let key = LinkKey::random(&mut rng).unwrap();
    let cipher = ChunkCipher::new(&key, MBUF_SIZE);
    let wrapped = wrap_key.wrap(&key, &mut rng).unwrap();
    assert_eq!(wrapped.len(), WRAPPED_BYTES);

    let mut peer = Peer::connect(&node);
    let mut id = 1;
    let mut ask = |request: &[u8]| {
        let data = if id == 1 { &wrapped[..] } else { DATA_PLAIN };
        let mut sealed = Vec::new();
        cipher.seal(request, &mut sealed);
        let (kind, flags) = (MsgType::Req, FLAG_ENCRYPTED);
        peer.send_flagged(id, kind, flags, VERSION_C, data, &sealed);
        let (header, body) = peer.receive();
        assert_eq!((header.id, header.encrypted()), (id, true));
        id += 1;
        let mut plain = Vec::new();
        cipher.open(&body, &mut plain).unwrap();
        plain
    };
    let full = MBUF_SIZE - 64;
    for len in [1, 15, 16, full - 60, full - 16, full, full + 16, 50_000, 1 << 20] {
        let value: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
        assert_eq!(ask(&resp(&[b"SET", b"k", &value])), b"+OK\r\n", "{len}");
        let mut want = format!("${len}\r\n").into_bytes();
        want.extend_from_slice(&value);
        want.extend_from_slice(b"\r\n");
        assert!(ask(&resp(&[b"GET", b"k"])) == want, "{len} bytes came back");
    }
}

#[test]
fn gossip_teaches_a_c_node_a_member_and_moves_it() {
    let Some(node) = CNode::start(3, "  secure_server_option: none\n") else {
        return;
    };
    let ip = node.ip.to_string();
    let mut sender = Gossiper::new(&ip);
    let mut link = Peer::connect(&node);
    let first = "127.0.0.71";
    sender.tell(&mut link, first);
    let named = |ip: &str| format!("\"host\":\"{ip}\"");
    patiently(|| node.describe().contains(&named(first)).then_some(()));

    // The same slot at another address.
    let second = "127.0.0.72";
    sender.tell(&mut link, second);
    patiently(|| {
        let text = node.describe();
        (text.contains(&named(second)) && !text.contains(&named(first))).then_some(())
    });
    // The connection still serves.
    link.send(9, MsgType::Req, VERSION_C, DATA_PLAIN, &resp(&[b"PING"]));
    assert_eq!(link.receive().0.id, 9);
}

/// A torc node whose only peer is the C node.
struct Gossiper {
    c_node: Seed,
    now: Millis,
    frames: u64,
}

impl Gossiper {
    fn new(c_ip: &str) -> Gossiper {
        let addr = Addr::new(c_ip, PEER_PORT);
        Gossiper {
            c_node: Seed {
                dc: "dc1".into(),
                rack: "r1".into(),
                tokens: vec![DynToken::ZERO],
                name: addr.to_string(),
                addr,
            },
            now: Millis(0),
            frames: 0,
        }
    }

    /// Starts as a process at `own_ip` and sends what it has for the C node.
    fn tell(&mut self, link: &mut Peer, own_ip: &str) {
        let addr = Addr::new(own_ip, PEER_PORT);
        let unix_ms = 1_800_000_000_000 + self.now.0;
        let local = LocalNode {
            dc: "dc1".into(),
            rack: "r2".into(),
            tokens: vec![DynToken::from_u32(1000)],
            name: addr.to_string(),
            addr,
            generation: unix_ms,
            claim: Claim::Normal,
            unix_ms,
        };
        let mut settings = Settings::new(ControlSeal::new("dyn_o_mite", None));
        settings.c.send = true;
        let seeds = vec![self.c_node.clone()];
        let mut membership = Membership::new(settings, local, seeds, 1, self.now);
        membership.proven(&self.c_node.addr, false, self.now);
        let peers = membership.peers();
        let id = peers.iter().find(|p| !p.is_local).unwrap().id;
        let mut sent = 0;
        while sent == 0 {
            membership.observe(id, self.now, self.now);
            self.now = self.now.plus(100);
            membership.handle_timeout(self.now);
            while let Some(transmit) = membership.poll_transmit() {
                assert_eq!(transmit.to, self.c_node.addr);
                assert_eq!(transmit.kind, MsgType::GossipSyn, "nothing else for a C node");
                let mut frame = Vec::new();
                let (id, same_dc) = (self.frames, transmit.same_dc);
                put_c_gossip_frame(&mut frame, id, same_dc, &transmit.payload);
                link.stream.write_all(&frame).unwrap();
                self.frames += 1;
                sent += 1;
            }
        }
    }
}

/// Random bytes of the system.
struct SystemRandom;

impl rsa::rand_core::TryRng for SystemRandom {
    type Error = std::io::Error;

    fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
        let mut bytes = [0; 4];
        self.try_fill_bytes(&mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
        let mut bytes = [0; 8];
        self.try_fill_bytes(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn try_fill_bytes(&mut self, dst: &mut [u8]) -> Result<(), Self::Error> {
        std::fs::File::open("/dev/urandom")?.read_exact(dst)
    }
}

impl rsa::rand_core::TryCryptoRng for SystemRandom {}
