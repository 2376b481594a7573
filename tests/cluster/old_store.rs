//! A datastore that knows less than the redis-server at hand: a relay before it, which refuses
//! what an older one does. Real old ones take their place where `REDIS_OLD_BIN` names one.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;

use crate::ring::free_port;

/// What a store does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lacks {
    /// The keyspace event of keys that appear, as before Redis 7.0.
    New,
    /// RESP3 besides, as before Redis 6.0.
    Resp3,
    /// All flags of keyspace events but Ex.
    Events,
}

impl Lacks {
    /// How it refuses a request; none when it takes it.
    fn refuses(self, words: &[Vec<u8>]) -> Option<&'static str> {
        let word = |at: usize| words.get(at).map_or(String::new(), |word| lower(word));
        let sets = word(0) == "config" && word(1) == "set" && word(2) == "notify-keyspace-events";
        let knows = match self {
            Lacks::New | Lacks::Resp3 => !word(3).contains('n'),
            Lacks::Events => ["", "ex"].contains(&&*word(3)),
        };
        match self {
            Lacks::Resp3 if word(0) == "hello" => Some("-ERR unknown command `HELLO`\r\n"),
            _ if sets && !knows => {
                Some("-ERR Invalid argument for CONFIG SET 'notify-keyspace-events'\r\n")
            }
            _ => None,
        }
    }
}

fn lower(word: &[u8]) -> String {
    String::from_utf8_lossy(word).to_lowercase()
}

/// The binary of an older store, or `None` with a line that says so. It is never looked for.
pub fn redis_old_bin(test: &str) -> Option<PathBuf> {
    let named = std::env::var_os("REDIS_OLD_BIN").map(PathBuf::from);
    if named.is_none() {
        println!("skipped: {test}: REDIS_OLD_BIN does not name a redis-server before 7.0");
    }
    named
}

/// Starts a relay to a store's port; gives its own. Its threads end with their connections, and
/// with the test's process.
#[allow(clippy::disallowed_methods)] // real processes live in real time
pub fn relay(store: u16, lacks: Lacks) -> u16 {
    let port = free_port();
    let listener = TcpListener::bind(("127.0.0.1", port)).expect("a port");
    std::thread::spawn(move || {
        for near in listener.incoming().map_while(Result::ok) {
            let Ok(far) = TcpStream::connect(("127.0.0.1", store)) else { continue };
            std::thread::spawn(move || {
                let _ = pass_both_ways(&near, &far, lacks);
                let _ = (near.shutdown(Shutdown::Both), far.shutdown(Shutdown::Both));
            });
        }
    });
    port
}

fn pass_both_ways(near: &TcpStream, far: &TcpStream, lacks: Lacks) -> io::Result<()> {
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let (mut answers, mut back) = (far.try_clone()?, near.try_clone()?);
    std::thread::spawn(move || {
        let _ = io::copy(&mut answers, &mut back);
        let _ = back.shutdown(Shutdown::Both);
    });
    let (mut near, mut far) = (near, far);
    let (mut bytes, mut piece) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        let read = near.read(&mut piece)?;
        if read == 0 {
            return Ok(());
        }
        bytes.extend_from_slice(&piece[..read]);
        let mut at = 0;
        while let Some((words, len)) = request(&bytes[at..]) {
            // Who is refused something has no other question open.
            match lacks.refuses(&words) {
                Some(error) => near.write_all(error.as_bytes())?,
                None => far.write_all(&bytes[at..at + len])?,
            }
            at += len;
        }
        bytes.drain(..at);
    }
}

/// The words of the request at the beginning and its length, once it is whole.
fn request(bytes: &[u8]) -> Option<(Vec<Vec<u8>>, usize)> {
    let mut at = 0;
    let number = |at: &mut usize| -> Option<usize> {
        let end = *at + bytes[*at..].windows(2).position(|two| two == b"\r\n")?;
        let text = std::str::from_utf8(&bytes[*at + 1..end]).expect("a number");
        *at = end + 2;
        Some(text.parse().expect("a number"))
    };
    let count = number(&mut at)?;
    let mut words = Vec::new();
    for _ in 0..count {
        let len = number(&mut at)?;
        words.push(bytes.get(at..at + len)?.to_vec());
        at += len + 2;
    }
    (at <= bytes.len()).then_some((words, at))
}
