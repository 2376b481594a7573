//! A torc node as a process, and its clients.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::{BLOCK_SIZE, DOMAIN, EXPECTED, engine_id};

/// A bound against hangs; no outcome depends on it.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A node, ended with this value.
pub struct Node {
    child: Child,
    folder: PathBuf,
    client: u16,
    /// Where its relay listens.
    pub relay: String,
}

/// The binary that `TORC_BIN` names, or none after a line that says so.
pub fn binary() -> Option<PathBuf> {
    let named = std::env::var_os("TORC_BIN").map(PathBuf::from);
    if named.is_none() {
        println!("skipped: TORC_BIN does not name a torc");
    }
    named
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("bound").port()
}

impl Node {
    /// Starts one that publishes the domain and follows `upstream`.
    pub fn start(binary: &PathBuf, upstream: Option<&str>) -> Node {
        let [client, peer, admin, relay] = [(); 4].map(|()| free_port());
        let upstreams = upstream.map(|at| format!("    upstreams: {at}\n")).unwrap_or_default();
        let text = format!(
            "pool:\n  datacenter: dc1\n  rack: r1\n  tokens: '1'\n  listen: 127.0.0.1:{client}\n  \
             dyn_listen: 127.0.0.1:{peer}\n  stats_listen: 127.0.0.1:{admin}\n  workers: 1\n  \
             datastore: embedded\n  embedded: {{memory_bytes_max: 64mb}}\n  affinity:\n    \
             mode: advise\n    expected_keys: 1000\n    domains:\n    - {{name: {DOMAIN}, \
             block_size: {BLOCK_SIZE}, expected_blocks: {EXPECTED}, semantics: \
             {{model: meta/llama}}}}\n  relay:\n    listen: 127.0.0.1:{relay}\n{upstreams}"
        );
        let folder = std::env::temp_dir().join(format!("torc-peer-{}-{client}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let conf = folder.join("node.yml");
        std::fs::write(&conf, text).expect("written");
        let log = std::fs::File::create(folder.join("node.log")).expect("created");
        let child = Command::new(binary)
            .arg("-c")
            .arg(&conf)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("torc starts");
        Node { child, folder, client, relay: format!("127.0.0.1:{relay}") }
    }

    /// A client, once the node takes any.
    pub async fn connect(&self) -> Client {
        loop_until("the node takes clients", async || {
            let stream = TcpStream::connect(("127.0.0.1", self.client)).ok()?;
            stream.set_read_timeout(Some(PATIENCE)).ok()?;
            Some(Client { stream, buffer: Vec::new() })
        })
        .await
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

/// Asks again and again until there is an answer.
pub async fn loop_until<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let asked = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, asked).await.unwrap_or_else(|_| panic!("{what}: not in time"))
}

/// A client of a node.
pub struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
}

/// A reply, as far as it is needed here.
#[derive(Debug, PartialEq, Eq)]
pub enum Reply {
    Text(String),
    Number(i64),
    Nil,
    Array(Vec<Reply>),
}

impl Client {
    fn call(&mut self, words: &[String]) -> Reply {
        let mut bytes = format!("*{}\r\n", words.len());
        words.iter().for_each(|word| bytes += &format!("${}\r\n{word}\r\n", word.len()));
        self.stream.write_all(bytes.as_bytes()).expect("sent");
        self.reply()
    }

    fn line(&mut self) -> String {
        let end = loop {
            match self.buffer.windows(2).position(|pair| pair == b"\r\n") {
                Some(end) => break end,
                None => self.read_more(),
            }
        };
        let line: Vec<u8> = self.buffer.drain(..end + 2).take(end).collect();
        String::from_utf8(line).expect("text")
    }

    fn read_more(&mut self) {
        let mut some = [0; 4096];
        let count = self.stream.read(&mut some).expect("read");
        assert_ne!(count, 0, "the node closed the connection");
        self.buffer.extend(&some[..count]);
    }

    fn reply(&mut self) -> Reply {
        let line = self.line();
        let (kind, rest) = line.split_at(1);
        match (kind, rest) {
            ("$" | "*", "-1") => Reply::Nil,
            ("+", text) => Reply::Text(text.to_owned()),
            (":", number) => Reply::Number(number.parse().expect("a number")),
            ("$", _) => Reply::Text(self.line()),
            ("*", count) => {
                let count: usize = count.parse().expect("a count");
                Reply::Array((0..count).map(|_| self.reply()).collect())
            }
            _ => panic!("{line}"),
        }
    }

    /// An engine stores the beginning of a chain.
    pub fn store(&mut self, worker: u64, blocks: &[u64]) {
        let mut words = format!("TORC.KV STORED DOMAIN {DOMAIN} {worker} 0 -");
        blocks.iter().for_each(|hash| words += &format!(" {} {hash}", engine_id(*hash)));
        self.expect_all(&words, blocks.len());
    }

    /// An engine removes blocks.
    pub fn remove(&mut self, worker: u64, blocks: &[u64]) {
        let mut words = format!("TORC.KV REMOVED DOMAIN {DOMAIN} {worker} 0");
        blocks.iter().for_each(|hash| words += &format!(" {}", engine_id(*hash)));
        self.expect_all(&words, blocks.len());
    }

    fn expect_all(&mut self, words: &str, count: usize) {
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        assert_eq!(self.call(&words), Reply::Number(count as i64));
    }

    /// How deep a datacenter holds a chain; none while that is not known.
    pub fn depth(&mut self, dc: &str, blocks: &[u64]) -> Option<usize> {
        let mut words = format!("TORC.PREFIX DOMAIN {DOMAIN} BLOCKS");
        blocks.iter().for_each(|hash| words += &format!(" {hash}"));
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        let Reply::Array(rows) = self.call(&words) else { panic!("an array") };
        rows.into_iter().find_map(|row| match row {
            Reply::Array(row) => match &row[..2] {
                [Reply::Text(name), Reply::Number(depth)] if name == dc => Some(*depth as usize),
                _ => None,
            },
            _ => None,
        })
    }
}
