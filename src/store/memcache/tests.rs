//! The memcache side of the store: scripts with their replies, and random requests against a real
//! memcached (`MEMCACHED_BIN` or the path; *skipped* without one).

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::proto::outbuf::OutBuf;
use crate::stamp::Stamping;
use crate::store::tests::{Request, drain};
use crate::store::{MemoryStore, StoreSettings};

/// Milliseconds since the epoch at which every test begins.
const NOW: u64 = 1_700_000_000_000;

fn run_at(store: &MemoryStore, now_ms: u64, line: &str, data: Option<&[u8]>) -> String {
    let mut out = OutBuf::new();
    store.execute_memcache(
        &Request::words(line).args(),
        data,
        now_ms,
        &mut Stamping::default(),
        &mut out,
    );
    drain(out)
}

#[test]
fn items_live_up_to_their_time() {
    let store = MemoryStore::new(StoreSettings::default());
    let at = |ms, line: &str| run_at(&store, NOW + ms, line, None);
    assert_eq!(run_at(&store, NOW, "set k 7 10 1", Some(b"v")), "STORED");
    assert_eq!(at(9_999, "get k"), "VALUE k 7 1 v END");
    assert_eq!(at(10_000, "get k"), "END");
    assert_eq!(run_at(&store, NOW, "set k 0 1700000020 1", Some(b"v")), "STORED");
    assert_eq!(at(19_999, "touch k 5"), "TOUCHED");
    assert_eq!(at(24_998, "gat 0 k"), "VALUE k 0 1 v END");
    assert_eq!(at(99_999, "get k"), "VALUE k 0 1 v END");
    assert_eq!(at(99_999, "touch k -1"), "TOUCHED");
    assert_eq!(at(99_999, "get k"), "END");
    assert_eq!(run_at(&store, NOW, "set k 0 -1 1", Some(b"v")), "STORED");
    assert_eq!(at(0, "get k"), "END");
}

#[test]
fn a_cas_id_changes_with_the_value_and_not_with_its_time() {
    let store = MemoryStore::new(StoreSettings::default());
    let id = || run_at(&store, NOW, "gets k", None).split(' ').nth(4).unwrap().to_string();
    run_at(&store, NOW, "set k 0 0 1", Some(b"v"));
    let first = id();
    run_at(&store, NOW, "touch k 100", None);
    assert_eq!(id(), first);
    let cas = format!("cas k 1 0 1 {first}");
    assert_eq!(run_at(&store, NOW, &cas, Some(b"w")), "STORED");
    assert_eq!(run_at(&store, NOW, &cas, Some(b"x")), "EXISTS");
    assert_eq!(run_at(&store, NOW, "cas none 1 0 1 5", Some(b"x")), "NOT_FOUND");
    assert_ne!(id(), first);
}

/// A memcached on a Unix socket.
struct Memcached {
    server: Child,
    folder: std::path::PathBuf,
    stream: UnixStream,
}

impl Memcached {
    fn start() -> Option<Memcached> {
        let binary = std::env::var("MEMCACHED_BIN").unwrap_or_else(|_| "memcached".into());
        let folder = std::env::temp_dir().join(format!("torc-memcached-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a temporary folder");
        let socket = folder.join("memcached.sock");
        let mut command = Command::new(binary);
        // Its modern LRU holds on to items for a while, and a number that gets shorter then loses
        // its blanks: a matter of chance that cannot be compared.
        let options = ["-u", "root", "-o", "no_modern"];
        command.arg("-s").arg(&socket).args(options).stderr(Stdio::null());
        let Ok(server) = command.spawn() else {
            let _ = std::fs::remove_dir_all(&folder);
            return None;
        };
        let stream = (0..1_000).find_map(|_| {
            std::thread::sleep(Duration::from_millis(10));
            UnixStream::connect(&socket).ok()
        });
        let stream = stream.expect("memcached listens on its socket");
        Some(Memcached { server, folder, stream })
    }

    /// Runs one request; its end is found by an answered `mn` behind it.
    fn run(&mut self, line: &str, data: Option<&[u8]>) -> String {
        let mut request = format!("{line}\r\n").into_bytes();
        if let Some(data) = data {
            request.extend_from_slice(data);
            request.extend_from_slice(b"\r\n");
        }
        request.extend_from_slice(b"mn\r\n");
        self.stream.write_all(&request).expect("memcached reads");
        let (mut reply, mut chunk) = (Vec::new(), [0; 16 * 1024]);
        while !reply.ends_with(b"MN\r\n") {
            let n = self.stream.read(&mut chunk).expect("memcached answers");
            assert!(n > 0, "memcached closed the connection");
            reply.extend_from_slice(&chunk[..n]);
        }
        reply.truncate(reply.len() - 4);
        String::from_utf8_lossy(&reply).replace("\r\n", " ").trim_end().to_string()
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn draw_value(rng: &mut fastrand::Rng) -> String {
    match rng.u8(..5) {
        0 => rng.u32(..).to_string(),
        // None above 2^63: memcached looks for a minus sign behind such a number, beyond its
        // end, so what it answers depends on what lies there in memory.
        1 => ["4611686018427387904", "0", "9", "10 ", "-1", "", "1a"][rng.usize(..7)].into(),
        2 => ["+5", "-0", "-5", " 5 ", "\t7", "\x0b8", "007", "5 a", "6\0b", "+-5"]
            [rng.usize(..10)]
        .into(),
        _ => "v".repeat(rng.usize(..40)),
    }
}

/// A random meta command; `ID` stands where an id is asked with.
fn draw_meta(rng: &mut fastrand::Rng) -> (String, Option<Vec<u8>>) {
    let (verb, options): (_, &[&str]) = match rng.u8(..8) {
        0..=2 => ("mg", &["s", "v", "f", "h", "k", "O7", "u", "N100000", "T500000", "T-1", "c"]),
        3..=4 => ("ms", &["F5", "F9", "I", "T0", "T100000", "CID", "k", "O8", "c", "T-1"]),
        5 => ("md", &["CID", "I", "T300000", "k", "O9", "x", "Fx"]),
        _ => ("ma", &["D3", "D18446744073709551615", "J7", "N0", "T0", "v", "CID", "k", "c"]),
    };
    let key = ["k0", "k1", "k2", "azA=", "azM=", "a=="][rng.usize(..6)];
    let value = draw_value(rng);
    let mut line = format!("{verb} {key}");
    if verb == "ms" {
        line += &format!(" {}", value.len());
    }
    if key.ends_with('=') {
        line += " b";
    }
    let modes: &[&str] = match verb {
        "ms" => &["ME", "MA", "MP", "MR", "MS", "MX", "M"],
        "ma" => &["MI", "MD", "M+", "M-", "MX"],
        _ => &["R1", "R1000000", "R0"],
    };
    if verb != "md" && rng.bool() {
        line += &format!(" {}", modes[rng.usize(..modes.len())]);
    }
    for option in options {
        if rng.u8(..4) == 0 {
            line += &format!(" {option}");
        }
    }
    (line, (verb == "ms").then(|| value.into_bytes()))
}

/// A random request; `ID` stands where an id is asked with.
fn draw(rng: &mut fastrand::Rng) -> (String, Option<Vec<u8>>) {
    if rng.bool() {
        return draw_meta(rng);
    }
    let key = format!("k{}", rng.u8(..6));
    let value = draw_value(rng);
    let verbs = ["set", "set", "set", "add", "replace", "append", "prepend", "cas"];
    let item = |verb: &str, rng: &mut fastrand::Rng| {
        let flags = [0, 1, 65_535, u32::MAX][rng.usize(..4)];
        let exptime = [0, 0, 0, 100_000, -1][rng.usize(..5)];
        let id = if verb == "cas" { " ID" } else { "" };
        format!("{verb} {key} {flags} {exptime} {}{id}", value.len())
    };
    match rng.u8(..12) {
        0..=4 => {
            let verb = verbs[rng.usize(..verbs.len())];
            (item(verb, rng), Some(value.clone().into_bytes()))
        }
        5 => (format!("get {key} k0 k1"), None),
        6 => (format!("gat 1000000 {key} k2"), None),
        7 => (format!("incr {key} {}", rng.u16(..)), None),
        8 => (format!("decr {key} {}", [5, 1_000, u64::MAX][rng.usize(..3)]), None),
        9 => (format!("delete {key}"), None),
        10 => (format!("touch {key} {}", [0, 500_000, -1][rng.usize(..3)]), None),
        _ => (["incr k0 x", "incr k0 -1", "nosuch k0", "touch k0 x"][rng.usize(..4)].into(), None),
    }
}

#[test]
fn every_reply_equals_that_of_memcached() {
    let Some(mut memcached) = Memcached::start() else {
        eprintln!("skipped: no memcached (set MEMCACHED_BIN)");
        return;
    };
    let store = MemoryStore::new(StoreSettings::default());
    let mut rng = fastrand::Rng::with_seed(11);
    for _ in 0..8_000 {
        let (line, data) = draw(&mut rng);
        let (mut ours, mut theirs) = (line.clone(), line.clone());
        if line.contains("ID") {
            let right = rng.u8(..4);
            // Each side is asked with its own id, or both with a wrong one.
            let with_id = |gets: String| match (gets.split(' ').nth(4), right) {
                (Some(id), 0..=1) => line.replace("ID", id),
                (_, 2) => line.replace("ID", "1"),
                _ => line.replace("ID", "999999999"),
            };
            let key = match line.split(' ').nth(1).expect("a key") {
                "azA=" => "k0",
                "azM=" => "k3",
                key => key,
            };
            ours = with_id(run_at(&store, NOW, &format!("gets {key}"), None));
            theirs = with_id(memcached.run(&format!("gets {key}"), None));
        }
        let want = without_id(&memcached.run(&theirs, data.as_deref()));
        let got = without_id(&run_at(&store, NOW, &ours, data.as_deref()));
        assert_eq!(got, want, "{line} {:?}", data.map(|d| d.escape_ascii().to_string()));
    }
}

/// A meta reply without its id, which is each side's own; 0 stays, for it is none.
fn without_id(reply: &str) -> String {
    let is_meta = ["HD ", "VA ", "EX ", "NS ", "NF "].iter().any(|code| reply.starts_with(code));
    let word = |word: &str| match word.strip_prefix('c') {
        Some(id) if is_meta && id.parse::<u64>().is_ok_and(|id| id > 0) => "cID".to_owned(),
        _ => word.to_owned(),
    };
    reply.split(' ').map(word).collect::<Vec<_>>().join(" ")
}
