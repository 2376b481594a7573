//! A peer played by the test: it takes connections of real nodes, answers every request as a node
//! of the reference does, and remembers every frame that came.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rsa::pkcs1::DecodeRsaPrivateKey;
use rsa::rand_core::{TryCryptoRng, TryRng};
use sha1::Sha1;
use torc::proto::dnode::crypto::{BodyCipher, ChunkCipher, LINK_KEY_BYTES, LinkKey};
use torc::proto::dnode::{
    DATA_PLAIN, FLAG_ENCRYPTED, Header, HeaderDecoder, HeaderLimits, MsgType, VERSION_C, put_header,
};

use crate::ring::wait_until;

/// `mbuf_size` when nobody sets it.
pub const MBUF_SIZE: usize = 16 * 1024;

/// How often one that stopped answering looks whether it is to go on.
const HOLD_STEP: Duration = Duration::from_millis(5);

/// One frame that came.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Which connection brought it, counted from 0.
    pub link: usize,
    pub header: Header,
    /// The data field.
    pub data: Vec<u8>,
    /// The body, deciphered.
    pub body: Vec<u8>,
    /// Whether one read brought all of it.
    pub in_one_piece: bool,
    pub at: Instant,
}

impl Frame {
    /// True for what clients asked for, not for the questions nodes ask of each other.
    pub fn is_request(&self) -> bool {
        matches!(self.header.msg_type(), MsgType::Req | MsgType::ReqForward)
            && !self.body.ends_with(b"PING\r\n")
    }
}

#[derive(Default)]
struct Seen {
    links: usize,
    /// When each connection was taken.
    taken: Vec<Instant>,
    frames: Vec<Frame>,
    keys: Vec<LinkKeyBytes>,
    /// Nothing is answered meanwhile.
    holds: bool,
}

/// A connection's key, as bytes.
pub type LinkKeyBytes = [u8; LINK_KEY_BYTES];

/// What it does with its connections.
#[derive(Clone)]
enum Manner {
    /// Answers `+PONG` to PING and `+OK` to everything else.
    Answers,
    /// The same over encrypted links.
    Deciphers(Arc<rsa::PrivateKey>),
    /// Ends every connection when its first frame is there.
    HangsUp,
}

/// See the module's page. Its threads end with the test's process.
pub struct FakePeer {
    pub port: u16,
    seen: Arc<Mutex<Seen>>,
}

impl FakePeer {
    pub fn start(port: u16) -> FakePeer {
        FakePeer::listen("127.0.0.1", port, Manner::Answers)
    }

    /// One at an address of its own.
    pub fn start_at(host: &str, port: u16) -> FakePeer {
        FakePeer::listen(host, port, Manner::Answers)
    }

    /// One whose links are encrypted, with the RSA key of a file.
    pub fn start_encrypted(port: u16, pem_file: &str) -> FakePeer {
        let text = fs::read_to_string(pem_file).expect("a key file");
        let key = rsa::PrivateKey::from_pkcs1_pem(&text).expect("a key");
        FakePeer::listen("127.0.0.1", port, Manner::Deciphers(Arc::new(key)))
    }

    /// One that lets nobody stay.
    pub fn start_unfriendly(port: u16) -> FakePeer {
        FakePeer::listen("127.0.0.1", port, Manner::HangsUp)
    }

    #[allow(clippy::disallowed_methods)] // real processes live in real time
    fn listen(host: &str, port: u16, manner: Manner) -> FakePeer {
        let listener = TcpListener::bind((host, port)).expect("a port");
        let seen = Arc::new(Mutex::new(Seen::default()));
        let shared = Arc::clone(&seen);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (seen, manner) = (Arc::clone(&shared), manner.clone());
                let link = {
                    let mut seen = seen.lock().unwrap();
                    seen.links += 1;
                    seen.taken.push(Instant::now());
                    seen.links - 1
                };
                // It ends with its connection.
                std::thread::spawn(move || {
                    let _ = serve(stream, link, &manner, &seen);
                });
            }
        });
        FakePeer { port, seen }
    }

    /// Its place in a seed list.
    pub fn seed(&self, rack: &str, dc: &str) -> String {
        format!("  dyn_seeds:\n  - 127.0.0.1:{}:{rack}:{dc}:0\n", self.port)
    }

    /// How many connections came so far.
    pub fn links(&self) -> usize {
        self.seen.lock().unwrap().links
    }

    /// When they came.
    pub fn taken(&self) -> Vec<Instant> {
        self.seen.lock().unwrap().taken.clone()
    }

    /// What came so far.
    pub fn frames(&self) -> Vec<Frame> {
        self.seen.lock().unwrap().frames.clone()
    }

    /// What came so far of clients' requests.
    pub fn requests(&self) -> Vec<Frame> {
        self.frames().into_iter().filter(Frame::is_request).collect()
    }

    /// Waits for so many requests of clients, and gives them.
    pub fn wait_requests(&self, count: usize) -> Vec<Frame> {
        wait_until(&format!("{count} requests"), || self.requests().len() >= count);
        self.requests()
    }

    /// Stops answering, or answers what has come meanwhile and goes on.
    pub fn hold(&self, holds: bool) {
        self.seen.lock().unwrap().holds = holds;
    }

    /// The keys that connections brought.
    pub fn keys(&self) -> Vec<LinkKeyBytes> {
        self.seen.lock().unwrap().keys.clone()
    }
}

#[allow(clippy::disallowed_methods)] // real processes live in real time
fn serve(
    mut stream: TcpStream,
    link: usize,
    manner: &Manner,
    seen: &Mutex<Seen>,
) -> io::Result<()> {
    let mut bytes = Vec::new();
    let mut cipher: Option<ChunkCipher> = None;
    let mut piece = vec![0; 256 << 10];
    loop {
        let read = stream.read(&mut piece)?;
        if read == 0 {
            return Ok(());
        }
        let mut in_one_piece = bytes.is_empty();
        bytes.extend_from_slice(&piece[..read]);
        while let Some((header, data, body)) = take_frame(&mut bytes) {
            if let Manner::Deciphers(rsa_key) = manner
                && data.len() > 1
            {
                let key = unwrapped(rsa_key, &data)?;
                cipher = Some(ChunkCipher::new(&LinkKey::from_bytes(key), MBUF_SIZE));
                seen.lock().unwrap().keys.push(key);
            }
            let body = match &cipher {
                Some(cipher) => opened(cipher, &body)?,
                None => body,
            };
            let frame = Frame { link, header, data, body, in_one_piece, at: Instant::now() };
            // Whatever follows in this read began in it.
            in_one_piece = true;
            let answer = answer(&frame, cipher.as_ref());
            seen.lock().unwrap().frames.push(frame);
            match manner {
                Manner::HangsUp => return Ok(()),
                Manner::Answers | Manner::Deciphers(_) => {
                    while seen.lock().unwrap().holds {
                        std::thread::sleep(HOLD_STEP);
                    }
                    stream.write_all(&answer)?;
                }
            }
        }
    }
}

/// Takes one whole frame; nodes write their true lengths.
fn take_frame(bytes: &mut Vec<u8>) -> Option<(Header, Vec<u8>, Vec<u8>)> {
    let found = HeaderDecoder::default().decode(bytes, &HeaderLimits::default());
    let header = found.expect("a frame").filter(|h| bytes.len() >= h.len + h.plen as usize)?;
    let data = header.data.of(bytes).to_vec();
    let body = bytes[header.len..header.len + header.plen as usize].to_vec();
    bytes.drain(..header.len + header.plen as usize);
    Some((header, data, body))
}

fn unwrapped(rsa_key: &rsa::PrivateKey, wrapped: &[u8]) -> io::Result<LinkKeyBytes> {
    let plain = rsa_key.oaep_decrypt_with_rng::<Sha1, _>(&mut SystemRandom, wrapped);
    let plain = plain.map_err(|_| io::ErrorKind::InvalidData)?;
    plain.try_into().map_err(|_| io::ErrorKind::InvalidData.into())
}

fn opened(cipher: &ChunkCipher, sealed: &[u8]) -> io::Result<Vec<u8>> {
    let mut plain = Vec::new();
    cipher.open(sealed, &mut plain).map_err(io::Error::other)?;
    Ok(plain)
}

/// What a node of the reference answers; nothing to gossip.
fn answer(frame: &Frame, cipher: Option<&ChunkCipher>) -> Vec<u8> {
    if !matches!(frame.header.msg_type(), MsgType::Req | MsgType::ReqForward) {
        return Vec::new();
    }
    let reply: &[u8] = if frame.is_request() { b"+OK\r\n" } else { b"+PONG\r\n" };
    put_frame(frame.header.id, MsgType::Res, DATA_PLAIN, reply, cipher)
}

/// A frame as a node of the reference writes it.
pub fn put_frame(
    id: u64,
    kind: MsgType,
    data: &[u8],
    body: &[u8],
    cipher: Option<&ChunkCipher>,
) -> Vec<u8> {
    let mut sealed = Vec::new();
    let (flags, body) = match cipher {
        Some(cipher) => {
            cipher.seal(body, &mut sealed);
            (FLAG_ENCRYPTED, sealed.as_slice())
        }
        None => (0, body),
    };
    let mut out = Vec::new();
    put_header(&mut out, id, kind.code(), flags, VERSION_C, true, data, body.len() as u64);
    out.extend_from_slice(body);
    out
}

/// The random bytes of the system.
pub struct SystemRandom;

impl TryRng for SystemRandom {
    type Error = io::Error;

    fn try_next_u32(&mut self) -> io::Result<u32> {
        getrandom::u32().map_err(|_| io::ErrorKind::Other.into())
    }

    fn try_next_u64(&mut self) -> io::Result<u64> {
        getrandom::u64().map_err(|_| io::ErrorKind::Other.into())
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        getrandom::fill(bytes).map_err(|_| io::ErrorKind::Other.into())
    }
}

impl TryCryptoRng for SystemRandom {}
