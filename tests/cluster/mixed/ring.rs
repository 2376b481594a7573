//! Two datacenters of two racks of two nodes, each node of either kind.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use torc::hash::{HashType, map_hash};

use crate::client::Client;
use crate::encrypted::key_file;
use crate::ring::{
    Folder, PATIENCE, Process, dynomite_bin, redis_bin, redis_process_at, wait_until,
};

const CLIENT_PORT: u16 = 8102;
const PEER_PORT: u16 = 8101;
const ADMIN_PORT: u16 = 22_222;
const STORE_PORT: u16 = 22_122;

/// Nodes of a rack, and their tokens.
const TOKENS: [u32; 2] = [0, 1 << 31];

/// Datacenter and rack of each pair of nodes. Rack names are unique in the cluster, because a C
/// node does not look at the datacenter everywhere.
const RACKS: [(&str, &str); 4] =
    [("dc1", "dc1r1"), ("dc1", "dc1r2"), ("dc2", "dc2r1"), ("dc2", "dc2r2")];

/// Who made a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    C,
    Torc,
}

/// The binaries a test needs.
#[derive(Clone)]
pub struct Bins {
    pub dynomite: PathBuf,
    pub redis: PathBuf,
}

impl Bins {
    /// Both, or `None` with a line that says what is missing.
    pub fn find(test: &str) -> Option<Bins> {
        Some(Bins { dynomite: dynomite_bin(test)?, redis: redis_bin(test)? })
    }
}

/// One node, its place, and its datastore.
pub struct Node {
    pub kind: Kind,
    pub host: String,
    pub dc: &'static str,
    pub rack: &'static str,
    pub token: u32,
    pub process: Option<Process>,
    name: String,
    _store: Process,
}

impl Node {
    pub fn connect(&self) -> Client {
        let client = Client::try_connect_to(&self.host, CLIENT_PORT);
        client.unwrap_or_else(|e| panic!("{}: {e}", self.name))
    }

    pub fn try_connect(&self) -> std::io::Result<Client> {
        Client::try_connect_to(&self.host, CLIENT_PORT)
    }

    /// Connects to it, now or after it was started again.
    pub fn connector(&self) -> impl Fn() -> std::io::Result<Client> + Send + 'static {
        let host = self.host.clone();
        move || Client::try_connect_to(&host, CLIENT_PORT)
    }

    pub fn connect_store(&self) -> Client {
        Client::try_connect_to(&self.host, STORE_PORT).expect("its datastore")
    }

    /// A page of its admin port; the same paths on both kinds.
    pub fn admin(&self, path: &str) -> String {
        let mut stream = TcpStream::connect((&*self.host, ADMIN_PORT)).expect("admin port");
        // A bound against hangs; no test's outcome depends on it.
        stream.set_read_timeout(Some(PATIENCE)).expect("timeout set");
        // The reference looks at what its first read brings, and at nothing else.
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("asked");
        let mut reply = Vec::new();
        // The reference may reset the connection after its answer.
        let _ = stream.read_to_end(&mut reply);
        String::from_utf8_lossy(&reply).into_owned()
    }

    pub fn kill(&mut self) {
        drop(self.process.take());
    }
}

/// How a ring of eight is set up.
pub struct Setup<'a> {
    /// Who is who: eight letters, `c` or `t`, in the order of the racks.
    pub who: &'a str,
    /// Whether links between datacenters are encrypted.
    pub secure: bool,
    /// The levels the nodes start with: that of the first and of the second node of each rack.
    pub levels: [&'static str; 2],
    /// More lines of every node's pool, indented by two blanks.
    pub extra: &'static str,
}

pub struct Ring {
    pub nodes: Vec<Node>,
    pub folder: Folder,
    net: String,
    bins: Bins,
}

impl Ring {
    /// Starts all nodes and waits until each one reaches every other.
    pub fn start(bins: &Bins, setup: &Setup<'_>) -> Ring {
        let mut ring = Ring::empty(bins);
        let places = RACKS.iter().flat_map(|rack| TOKENS.map(|token| (*rack, token)));
        for (((dc, rack), token), who) in places.zip(setup.who.chars()) {
            ring.place(if who == 'c' { Kind::C } else { Kind::Torc }, dc, rack, token);
        }
        let secure = match setup.secure {
            true => {
                let key = key_file(&ring.folder);
                format!("  secure_server_option: datacenter\n  pem_key_file: {key}\n")
            }
            false => "  secure_server_option: none\n".to_owned(),
        };
        let numbers: Vec<usize> = (0..ring.nodes.len()).collect();
        for number in &numbers {
            let (level, extra) = (setup.levels[number % TOKENS.len()], setup.extra);
            let levels = format!("  read_consistency: {level}\n  write_consistency: {level}\n");
            ring.configure(*number, &numbers, &format!("{secure}{levels}{extra}"));
        }
        numbers.iter().for_each(|number| ring.launch(*number));
        ring.wait_joined();
        ring.flush();
        ring
    }

    /// A ring without nodes.
    pub fn empty(bins: &Bins) -> Ring {
        let (nodes, folder) = (Vec::new(), Folder::new());
        Ring { nodes, folder, net: free_net(), bins: bins.clone() }
    }

    /// Adds a node that does not run yet, and starts its datastore.
    pub fn place(&mut self, kind: Kind, dc: &'static str, rack: &'static str, token: u32) -> usize {
        let number = self.nodes.len();
        let (name, host) = (format!("n{}", number + 1), format!("{}.{}", self.net, number + 1));
        let store = redis_process_at(&self.bins.redis, &host, STORE_PORT);
        self.nodes.push(Node { kind, host, dc, rack, token, process: None, name, _store: store });
        number
    }

    /// Writes the file both kinds of node start from. `seeds` are the nodes it knows, itself left
    /// out; `extra` more lines of its pool, indented by two blanks.
    pub fn configure(&self, number: usize, seeds: &[usize], extra: &str) {
        let node = &self.nodes[number];
        let (host, dc, rack, token) = (&node.host, node.dc, node.rack, node.token);
        let others = seeds.iter().map(|seed| &self.nodes[*seed]).filter(|n| n.host != *host);
        let seed =
            |n: &Node| format!("  - {}:{PEER_PORT}:{}:{}:{}\n", n.host, n.rack, n.dc, n.token);
        let mut seeds: String = others.map(seed).collect();
        if !seeds.is_empty() {
            seeds.insert_str(0, "  dyn_seeds:\n");
        }
        let text = format!(
            "dyn_o_mite:\n  datacenter: {dc}\n  rack: {rack}\n  tokens: '{token}'\n  \
             listen: {host}:{CLIENT_PORT}\n  dyn_listen: {host}:{PEER_PORT}\n  \
             stats_listen: {host}:{ADMIN_PORT}\n  servers:\n  - {host}:{STORE_PORT}:1\n  \
             data_store: 0\n  dyn_seed_provider: simple_provider\n{seeds}{extra}"
        );
        fs::write(self.conf(number), text).expect("configuration written");
    }

    fn conf(&self, number: usize) -> PathBuf {
        self.folder.0.join(format!("{}.yml", self.nodes[number].name))
    }

    /// Starts a node that does not run, as the kind it now is.
    pub fn launch(&mut self, number: usize) {
        let log = self.folder.0.join(format!("{}.log", self.nodes[number].name));
        let binary = match self.nodes[number].kind {
            Kind::C => self.bins.dynomite.clone(),
            Kind::Torc => PathBuf::from(env!("CARGO_BIN_EXE_torc")),
        };
        let child = Command::new(binary)
            .arg("-c")
            .arg(self.conf(number))
            .arg("-o")
            .arg(log)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a node starts");
        self.nodes[number].process = Some(Process::new(child));
    }

    /// The places of the nodes that hold a key, one in each rack.
    pub fn owners(&self, key: &str) -> impl Iterator<Item = &Node> {
        let own = owner_token(key);
        self.nodes.iter().filter(move |node| node.token == own)
    }

    /// Waits until a write through any node reaches every rack, whoever owns the key. Keys that
    /// begin with `joined` are left behind.
    pub fn wait_joined(&self) {
        for node in &self.nodes {
            wait_until(&format!("{} listens", node.name), || node.try_connect().is_ok());
            for token in TOKENS {
                let key = key_of("joined", token);
                let mut round = 0;
                wait_until(&format!("{} reaches all owners of {token}", node.name), || {
                    round += 1;
                    let value = format!("{}:{round}", node.name);
                    let mut client = node.connect();
                    // A C node that lacks a connection never answers at the level that covers
                    // all datacenters.
                    client.give_up_after(Duration::from_millis(500) * round);
                    let _ = client.try_call(&["SET", &key, &value]);
                    self.everywhere(&key, value.as_bytes(), 10 * round)
                });
            }
        }
    }

    /// True once all owners hold a value; looks so often for copies nobody waits for.
    fn everywhere(&self, key: &str, value: &[u8], looks: u32) -> bool {
        let holds = |node: &Node| {
            let reply = node.connect_store().call(&["GET", key]);
            reply == crate::client::bulk(value)
        };
        (0..looks).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            self.owners(key).all(holds)
        })
    }

    /// Empties every datastore.
    pub fn flush(&self) {
        for node in &self.nodes {
            assert_eq!(node.connect_store().call(&["FLUSHALL"]).text(), "OK");
        }
    }

    /// The level of clients that connect from now on. The admin port of a C node does not take
    /// the level that covers all datacenters; it has to be started with it.
    pub fn set_level(&self, level: &str) {
        for node in &self.nodes {
            for what in ["read", "write"] {
                node.admin(&format!("/set_consistency/{what}/{}", level.to_lowercase()));
            }
            let shown = node.admin("/get_consistency");
            assert_eq!(shown.matches(&format!(": {level}\r\n")).count(), 2, "{shown}");
        }
    }
}

/// The token of the owner of a key in each rack.
pub fn owner_token(key: &str) -> u32 {
    let token = map_hash(HashType::Murmur, key.as_bytes()).low_word();
    TOKENS.into_iter().find(|own| *own >= token).unwrap_or(TOKENS[0])
}

/// A key that begins with `name` and is owned by `token`.
pub fn key_of(name: &str, token: u32) -> String {
    let keys = (0..).map(|i| format!("{name}:{i}"));
    keys.into_iter().find(|key| owner_token(key) == token).expect("both tokens have arcs")
}

/// Three bytes of an address on loopback where nobody listens, given out once.
pub fn free_net() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let process = std::process::id() % 200;
    loop {
        let net = format!("127.{}.{}", 16 + process, NEXT.fetch_add(1, Ordering::Relaxed) % 256);
        if TcpListener::bind((format!("{net}.1"), PEER_PORT)).is_ok() {
            return net;
        }
    }
}
