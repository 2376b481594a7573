//! Nodes and datastores as processes, ended with the test.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::client::Client;
use crate::old_store::{Lacks, relay};
pub(crate) use crate::ports::free_port;

/// How long anything may take, on a slow machine too; a bound, not a measurement.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// The least and the longest pause between two looks at what is waited for.
const LOOK_PAUSES: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(2)];
/// Pauses are at least so many times as long as a look took.
const LOOK_SHARE: u32 = 4;

/// Polls until `done`; panics with `what` when it never is. Every look costs those who are looked
/// at: on a machine without time to spare they would do nothing but answer.
#[allow(clippy::disallowed_methods)]
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    let [least, most] = LOOK_PAUSES;
    loop {
        let look = Instant::now();
        if done() {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep((look.elapsed() * LOOK_SHARE).clamp(least, most));
    }
}

/// The redis-server to use, or `None` with a line that says so.
pub fn redis_bin(test: &str) -> Option<PathBuf> {
    program(test, "redis-server", "REDIS_BIN")
}

/// The memcached to use, or `None` with a line that says so.
pub fn memcached_bin(test: &str) -> Option<PathBuf> {
    program(test, "memcached", "MEMCACHED_BIN")
}

fn program(test: &str, name: &str, variable: &str) -> Option<PathBuf> {
    let named = std::env::var_os(variable).map(PathBuf::from);
    let found = named.or_else(|| {
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path).map(|d| d.join(name)).find(|p| p.is_file())
    });
    if found.is_none() {
        println!("skipped: {test}: no {name} (set {variable})");
    }
    found
}

/// The binary of the reference to use, or `None` with a line that says so. It is in no package, so
/// it is never looked for.
pub fn dynomite_bin(test: &str) -> Option<PathBuf> {
    let named = std::env::var_os("DYNOMITE_BIN").map(PathBuf::from);
    if named.is_none() {
        println!("skipped: {test}: DYNOMITE_BIN does not name a C Dynomite");
    }
    named
}

/// A process that is killed when dropped.
pub struct Process(Child);

impl Process {
    pub fn new(child: Child) -> Process {
        Process(child)
    }

    pub fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    pub fn id(&self) -> u32 {
        self.0.id()
    }

    pub fn has_ended(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(Some(_)))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A redis-server without persistence, up when this returns.
pub fn redis_process(bin: &Path, port: u16) -> Process {
    redis_process_at(bin, "127.0.0.1", port)
}

/// The same on another address of this machine.
pub fn redis_process_at(bin: &Path, host: &str, port: u16) -> Process {
    let child = Command::new(bin)
        .args(["--port", &port.to_string(), "--bind", host])
        .args(["--save", "", "--appendonly", "no"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("redis-server starts");
    wait_until("redis-server", || Client::try_connect_to(host, port).is_ok());
    Process(child)
}

/// A memcached, up when this returns.
pub fn memcached_process(bin: &Path, port: u16) -> Process {
    let child = Command::new(bin)
        .args(["-l", "127.0.0.1", "-p", &port.to_string(), "-u", "nobody"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("memcached starts");
    wait_until("memcached", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    Process(child)
}

/// A folder that is removed with the test.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("torc-test-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).expect("a temporary folder");
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.0);
        } else {
            println!("logs are kept in {}", self.0.display());
        }
    }
}

/// Where a node's data is.
#[derive(Clone, Debug)]
pub enum Store {
    Embedded,
    Redis(PathBuf),
    /// A redis-server that does not know something.
    OldRedis(PathBuf, Lacks),
    Memcached(PathBuf),
    EmbeddedMemcache,
}

/// One node and its datastore.
pub struct Node {
    pub dc: String,
    pub rack: String,
    pub token: u32,
    pub client: u16,
    pub peer: u16,
    pub admin: u16,
    pub redis_port: u16,
    memcache: bool,
    pub process: Option<Process>,
    pub redis: Option<Process>,
    env: Vec<(String, String)>,
    conf: PathBuf,
    log: PathBuf,
}

impl Node {
    pub fn connect(&self) -> Client {
        Client::connect(self.client)
    }

    pub fn connect_store(&self) -> Client {
        Client::connect(self.redis_port)
    }

    pub fn start(&mut self) {
        let log = fs::OpenOptions::new().create(true).append(true).open(&self.log).expect("log");
        let child = Command::new(env!("CARGO_BIN_EXE_torc"))
            .arg("-c")
            .arg(&self.conf)
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("torc starts");
        self.process = Some(Process(child));
    }

    pub fn kill(&mut self) {
        drop(self.process.take());
    }

    pub fn start_redis(&mut self, bin: &Path) {
        self.redis = Some(redis_process(bin, self.redis_port));
    }

    /// Sends its process a signal, by name.
    pub fn signal(&self, signal: &str) {
        let pid = self.process.as_ref().expect("it runs").id().to_string();
        let sent = Command::new("kill").args([signal, &pid]).status();
        assert!(sent.is_ok_and(|status| status.success()), "kill {signal} {pid}");
    }

    /// Changes its configuration, which it reads when it starts or is told to.
    pub fn edit(&self, change: impl FnOnce(String) -> String) {
        let text = fs::read_to_string(&self.conf).expect("its configuration");
        fs::write(&self.conf, change(text)).expect("configuration written");
    }

    /// What it logged so far.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Fields of `INFO torc`, or of memcache's `stats`.
    pub fn info(&self, field: &str) -> Option<String> {
        let mut client = Client::try_connect(self.client).ok()?;
        let (text, prefix) = match self.memcache {
            false => (client.try_call(&["INFO", "torc"]).ok()?.text(), format!("{field}:")),
            true => (client.memcache_stats().ok()?, format!("STAT {field} ")),
        };
        text.lines().find_map(|l| l.strip_prefix(&prefix).map(|v| v.trim().to_owned()))
    }
}

/// How a ring is laid out.
pub struct Layout {
    /// Nodes of each rack, by datacenter.
    pub dcs: Vec<Vec<usize>>,
    pub store: Store,
    /// More lines of every node's pool, indented by two blanks.
    pub extra: String,
}

pub struct Ring {
    pub nodes: Vec<Node>,
    /// More variables of nodes added from now on.
    pub env: Vec<(String, String)>,
    /// Whether nodes added from now on have the first one that runs in their seed list.
    pub seeded: bool,
    /// Where nodes added from now on take connections of peers: a host, and a port unless it is
    /// drawn.
    pub peer_at: (String, Option<u16>),
    /// Workers of nodes added from now on.
    pub workers: usize,
    folder: Folder,
    layout: Layout,
}

impl Ring {
    /// Starts a ring in which every node knows one seed, and waits until all agree and nobody is
    /// JOINING: of nodes that are, clients are answered by other racks, whose copies of what was
    /// just written may be on their way.
    pub fn start(layout: Layout) -> Ring {
        let mut ring = Ring::empty(layout);
        for dc in 0..ring.layout.dcs.len() {
            for rack in 0..ring.layout.dcs[dc].len() {
                let count = ring.layout.dcs[dc][rack];
                for i in 0..count {
                    let token = ((i as u64 * (1 << 32)) / count as u64) as u32;
                    ring.add(&format!("dc{}", dc + 1), &format!("r{}", rack + 1), token);
                }
            }
        }
        ring.wait_settled();
        wait_until("nobody joins", || {
            ring.nodes.iter().all(|node| node.info("peers_joining").as_deref() == Some("0"))
        });
        ring
    }

    /// A ring without nodes; the layout tells how those are that are added.
    pub fn empty(layout: Layout) -> Ring {
        let peer_at = ("127.0.0.1".to_owned(), None);
        let (nodes, env, folder) = (Vec::new(), Vec::new(), Folder::new());
        Ring { nodes, env, seeded: true, peer_at, workers: 1, folder, layout }
    }

    /// More lines of the pool of nodes added from now on.
    pub fn set_extra(&mut self, extra: &str) {
        self.layout.extra = extra.to_owned();
    }

    /// Starts one more node; it knows the first one that runs.
    pub fn add(&mut self, dc: &str, rack: &str, token: u32) -> usize {
        let number = self.nodes.len();
        let mut node = Node {
            dc: dc.into(),
            rack: rack.into(),
            token,
            client: free_port(),
            peer: self.peer_at.1.unwrap_or_else(free_port),
            admin: free_port(),
            redis_port: free_port(),
            memcache: matches!(self.layout.store, Store::Memcached(_) | Store::EmbeddedMemcache),
            process: None,
            redis: None,
            env: self.env.clone(),
            conf: self.folder.0.join(format!("n{number}.yml")),
            log: self.folder.0.join(format!("n{number}.log")),
        };
        let store = match &self.layout.store {
            Store::Embedded | Store::EmbeddedMemcache => "  datastore: embedded\n".to_owned(),
            Store::Redis(bin) => {
                node.start_redis(bin);
                format!("  servers:\n  - 127.0.0.1:{}:1\n", node.redis_port)
            }
            Store::OldRedis(bin, lacks) => {
                node.start_redis(bin);
                format!("  servers:\n  - 127.0.0.1:{}:1\n", relay(node.redis_port, *lacks))
            }
            Store::Memcached(bin) => {
                node.redis = Some(memcached_process(bin, node.redis_port));
                format!("  servers:\n  - 127.0.0.1:{}:1\n", node.redis_port)
            }
        };
        let seeds = self.running().first().filter(|_| self.seeded).map_or(String::new(), |first| {
            let address = format!("127.0.0.1:{}", first.peer);
            let place = format!("{}:{}:{}", first.rack, first.dc, first.token);
            format!("  dyn_seeds:\n  - {address}:{place}\n")
        });
        let text = format!(
            "pool:\n  name: n{number}\n  datacenter: {dc}\n  rack: {rack}\n  tokens: '{token}'\n  \
             listen: 127.0.0.1:{}\n  dyn_listen: '{}:{}'\n  stats_listen: 127.0.0.1:{}\n  \
             workers: {}\n{store}{}{seeds}",
            node.client, self.peer_at.0, node.peer, node.admin, self.workers, self.layout.extra
        );
        fs::write(&node.conf, text).expect("configuration written");
        node.start();
        self.nodes.push(node);
        number
    }

    /// Lets a node leave for good, as an operator does, and ends it.
    pub fn leave(&mut self, number: usize) {
        let node = &mut self.nodes[number];
        let status = Command::new(env!("CARGO_BIN_EXE_torc"))
            .args(["leave", "--admin", &format!("127.0.0.1:{}", node.admin)])
            .stdout(Stdio::null())
            .status();
        assert!(status.is_ok_and(|s| s.success()), "torc leave");
        node.kill();
    }

    /// Waits until all running nodes name the same ring and can use every running node.
    pub fn wait_settled(&self) {
        Ring::wait_settled_among(&self.running());
    }

    fn running(&self) -> Vec<&Node> {
        self.nodes.iter().filter(|n| n.process.is_some()).collect()
    }

    /// The same when these are all nodes that can be used.
    pub fn wait_settled_among(running: &[&Node]) {
        wait_until("the ring settles", || {
            let digests: Vec<_> = running.iter().map(|n| n.info("ring_digest")).collect();
            digests[0].is_some()
                && digests.iter().all(|d| *d == digests[0])
                && running.iter().all(|n| n.info("peers_usable") == Some(running.len().to_string()))
        });
    }
}
