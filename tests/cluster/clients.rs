//! Stock clients with default options: the same hundred calls against a ring of three racks and
//! against one datastore must print the same lines.
//!
//! `TORC_CLIENTS` names a folder with the libraries: `python/` for `pip install --target`, `js/`
//! for `npm install --prefix`. Without it these tests say *skipped*.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::client::Client;
use crate::ring::redis_process;
use crate::ring::{Layout, Ring, Store, free_port, memcached_bin, memcached_process, redis_bin};

/// The folder of client libraries, or `None` with a line that says so.
pub fn libraries(test: &str) -> Option<PathBuf> {
    let found = std::env::var_os("TORC_CLIENTS").map(PathBuf::from);
    if found.is_none() {
        println!("skipped: {test}: TORC_CLIENTS names no folder of client libraries");
    }
    found
}

/// What a script prints.
pub fn run(program: &str, script: &str, args: &[String], libraries: &Path) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(script);
    let output = Command::new(program)
        .arg(&script)
        .args(args)
        .env("PYTHONPATH", libraries.join("python"))
        .env("NODE_PATH", libraries.join("js/node_modules"))
        .output()
        .unwrap_or_else(|e| panic!("{program}: {e}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{} {args:?}:\n{text}\n{errors}", script.display());
    text
}

fn everyday(program: &str, script: &str, library: &str, port: u16, libraries: &Path) -> String {
    run(program, script, &[library.to_owned(), port.to_string()], libraries)
}

fn same_lines(library: &str, ring: &str, alone: &str) {
    let mut different = Vec::new();
    for (ours, right) in ring.lines().zip(alone.lines()) {
        if ours != right {
            different.push(format!("  ring:  {ours}\n  alone: {right}"));
        }
    }
    assert!(different.is_empty(), "{library}:\n{}", different.join("\n"));
    assert_eq!(ring.lines().count(), alone.lines().count(), "{library}");
    assert!(ring.lines().count() >= 90, "{library} did its calls");
}

/// Three racks, each with two nodes in front of redis-server.
fn redis_ring(bin: &Path) -> Ring {
    Ring::start(Layout {
        dcs: vec![vec![2, 2, 2]],
        store: Store::Redis(bin.to_owned()),
        extra: "  hash_tag: '{}'\n".into(),
    })
}

fn on_redis(program: &str, script: &str, library: &str) {
    let (Some(bin), Some(folder)) = (redis_bin(library), libraries(library)) else { return };
    let ring = redis_ring(&bin);
    let port = free_port();
    let _alone = redis_process(&bin, port);
    let right = everyday(program, script, library, port, &folder);
    let ours = everyday(program, script, library, ring.nodes[0].client, &folder);
    same_lines(library, &ours, &right);
}

fn on_memcached(library: &str) {
    let (Some(bin), Some(folder)) = (memcached_bin(library), libraries(library)) else { return };
    let port = free_port();
    let _alone = memcached_process(&bin, port);
    let right = everyday("python3", "everyday_memcache.py", library, port, &folder);
    for store in [Store::Memcached(bin), Store::EmbeddedMemcache] {
        let extra = "  data_store: 1\n  allow_flush: true\n".into();
        let ring = Ring::start(Layout { dcs: vec![vec![2, 2, 2]], store, extra });
        let client = ring.nodes[0].client;
        let ours = everyday("python3", "everyday_memcache.py", library, client, &folder);
        same_lines(library, &ours, &right);
    }
}

/// A program that comes with redis-server, `None` with a line that says so.
fn beside_redis(test: &str, name: &str, bin: &Path) -> Option<PathBuf> {
    let program = bin.with_file_name(name);
    if !program.is_file() {
        println!("skipped: {test}: no {name} beside {}", bin.display());
        return None;
    }
    Some(program)
}

fn output(program: &Path, port: u16, options: &[&str], input: Stdio) -> String {
    let output = Command::new(program)
        .args(["-p", &port.to_string()])
        .args(options)
        .stdin(input)
        .output()
        .unwrap_or_else(|e| panic!("{}: {e}", program.display()));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{options:?} on port {port}:\n{text}\n{errors}");
    text
}

#[test]
fn redis_cli() {
    let Some(bin) = redis_bin("redis_cli") else { return };
    let Some(cli) = beside_redis("redis_cli", "redis-cli", &bin) else { return };
    let calls = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/calls.txt");
    let ring = redis_ring(&bin);
    let port = free_port();
    let _alone = redis_process(&bin, port);
    // The second run, in RESP3, finds what the first one left.
    for protocol in ["-2", "-3"] {
        let run = |port| {
            let input = Stdio::from(File::open(&calls).expect("the list of calls"));
            output(&cli, port, &[protocol], input)
        };
        let (right, ours) = (run(port), run(ring.nodes[0].client));
        same_lines("redis-cli", &ours, &right);
    }
}

/// Its default list of tests, each short: it gives up at the first error.
#[test]
fn redis_benchmark() {
    let Some(bin) = redis_bin("redis_benchmark") else { return };
    let Some(benchmark) = beside_redis("redis_benchmark", "redis-benchmark", &bin) else { return };
    let ring = redis_ring(&bin);
    let port = free_port();
    let _alone = redis_process(&bin, port);
    let tests = |port| {
        let options = ["-n", "300", "-c", "10", "--csv"];
        let text = output(&benchmark, port, &options, Stdio::null());
        let name = |line: &str| line.split(',').next().map(str::to_owned);
        text.lines().filter_map(name).collect::<Vec<_>>()
    };
    let right = tests(port);
    assert!(right.len() > 15, "{right:?}");
    assert_eq!(tests(ring.nodes[0].client), right);
    // What it left behind is what one server has.
    let (mut alone, mut client) = (Client::connect(port), ring.nodes[0].connect());
    let left = [
        "GET key:__rand_int__",
        "GET counter:__rand_int__",
        "LLEN mylist",
        "SCARD myset",
        "HLEN myhash",
        "ZCARD myzset",
        "DBSIZE",
    ];
    for call in left {
        let words: Vec<&str> = call.split(' ').collect();
        assert_eq!(client.call(&words), alone.call(&words), "{call}");
    }
}

#[test]
fn redis_py() {
    on_redis("python3", "everyday.py", "redis");
}

#[test]
fn valkey_py() {
    on_redis("python3", "everyday.py", "valkey");
}

#[test]
fn node_redis() {
    on_redis("node", "everyday.js", "redis");
}

#[test]
fn ioredis() {
    on_redis("node", "everyday.js", "ioredis");
}

#[test]
fn pymemcache() {
    on_memcached("pymemcache");
}

#[test]
fn aiomcache() {
    on_memcached("aiomcache");
}
