//! Keys of encrypted links are in no log, however much is logged.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;

use base64ct::{Base64Unpadded, Encoding};
use torc::proto::dnode::MsgType;
use torc::proto::dnode::crypto::{ChunkCipher, LINK_KEY_BYTES, LinkKey, WrapKey};

use crate::client::{encode, ok};
use crate::encrypted::key_file;
use crate::fake_peer::{FakePeer, LinkKeyBytes, MBUF_SIZE, SystemRandom, put_frame};
use crate::ring::{Folder, Layout, Node, PATIENCE, Ring, Store, free_port, wait_until};

/// Bytes of a key that are looked for: those the cipher takes.
const USED_BYTES: usize = 16;

/// How somebody who logs a key may write it.
fn spellings(key: &[u8]) -> Vec<Vec<u8>> {
    let each = |form: fn(&u8) -> String, between: &str| {
        key.iter().map(form).collect::<Vec<_>>().join(between)
    };
    let mut texts = vec![
        each(|b| b.to_string(), ", "),
        each(|b| b.to_string(), ","),
        key.escape_ascii().to_string(),
        String::from_utf8_lossy(key).into_owned(),
    ];
    for between in ["", " ", ", ", ":", ", 0x"] {
        texts.push(each(|b| format!("{b:02x}"), between));
        texts.push(each(|b| format!("{b:02X}"), between));
        texts.push(each(|b| format!("{b:x}"), between));
    }
    // The letters that stand for whole groups of three bytes, whatever follows.
    let text = Base64Unpadded::encode_string(&key[..key.len() / 3 * 3]);
    texts.push(text.replace('+', "-").replace('/', "_"));
    texts.push(text);
    let texts = texts.into_iter().map(String::into_bytes);
    texts.chain([key.to_vec()]).collect()
}

fn holds(log: &[u8], part: &[u8]) -> bool {
    memchr::memmem::find(log, part).is_some()
}

/// Opens a link to a node with a key of one's own, and asks it who it is.
fn open_link(node: &Node, wrapped: &[u8], cipher: &ChunkCipher) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", node.peer)).expect("its peer port");
    // A bound against hangs; no test's outcome depends on it.
    stream.set_read_timeout(Some(PATIENCE)).expect("timeout set");
    let ping = put_frame(1, MsgType::Req, wrapped, &encode(&["PING"]), Some(cipher));
    stream.write_all(&ping).expect("sent");
    stream
}

#[test]
fn spellings_of_a_key_are_found() {
    let key: Vec<u8> = (0..USED_BYTES as u8).map(|i| i * 15 + 7).collect();
    for text in [
        format!("key={key:?}"),
        format!("{key:02x?}"),
        Base64Unpadded::encode_string(&[&key[..], &[1; 16]].concat()),
    ] {
        assert!(spellings(&key).iter().any(|s| holds(text.as_bytes(), s)), "{text}");
    }
}

#[test]
fn keys_of_links_are_never_logged() {
    let folder = Folder::new();
    let pem = key_file(&folder);
    let peer = FakePeer::start_encrypted(free_port(), &pem);
    let secure = format!("  secure_server_option: all\n  pem_key_file: {pem}\n");
    let extra = secure + &peer.seed("r1", "dc2");
    let mut ring = Ring::empty(Layout { dcs: Vec::new(), store: Store::Embedded, extra });
    ring.seeded = false;
    ring.env = vec![("RUST_LOG".into(), "trace".into())];
    ring.add("dc1", "r1", 0);
    let node = &ring.nodes[0];
    // The node opens links for requests and for gossip; requests of clients cross the first.
    wait_until("two links", || peer.keys().len() >= 2);
    wait_until("it serves", || node.info("state").is_some());
    assert_eq!(node.connect().call(&["SET", "k", "v"]), ok());
    assert_eq!(peer.wait_requests(1)[0].body, encode(&["SET", "k", "v"]));
    // Others open links to it.
    let wrap_key = WrapKey::from_pem(&fs::read_to_string(&pem).expect("a file")).expect("a key");
    let mut own: LinkKeyBytes = [0; LINK_KEY_BYTES];
    getrandom::fill(&mut own).expect("random bytes");
    let key = LinkKey::from_bytes(own);
    let wrapped = wrap_key.wrap(&key, &mut SystemRandom).expect("wrapped");
    let cipher = ChunkCipher::new(&key, MBUF_SIZE);
    let mut link = open_link(node, &wrapped, &cipher);
    assert!(link.read(&mut [0; 256]).expect("an answer") > 0);
    // A key that does not unwrap ends its link, and so does one under another key.
    for (wrapped, cipher) in [
        (vec![7; wrapped.len()], cipher.clone()),
        (wrapped.clone(), ChunkCipher::new(&LinkKey::from_bytes([9; LINK_KEY_BYTES]), MBUF_SIZE)),
    ] {
        let mut link = open_link(node, &wrapped, &cipher);
        assert_eq!(link.read(&mut [0; 256]).unwrap_or(0), 0, "the link is closed");
    }
    // The second time from one address it is told to those alone who want to know all.
    wait_until("both are told", || {
        let log = node.log();
        let told = |level: &str| log.lines().any(|l| l.contains(level) && l.contains("refused: "));
        told(" WARN ") && told("DEBUG ")
    });
    let log = node.log().into_bytes();
    for key in peer.keys().into_iter().chain([own]) {
        for spelling in spellings(&key[..USED_BYTES]) {
            assert!(!holds(&log, &spelling), "{}", String::from_utf8_lossy(&spelling));
        }
    }
    let pem = fs::read_to_string(&pem).expect("a file");
    let lines = pem.lines().filter(|line| !line.starts_with('-'));
    assert!(lines.filter(|line| line.len() > 20).all(|line| !holds(&log, line.as_bytes())));
}
