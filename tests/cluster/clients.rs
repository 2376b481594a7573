//! Stock client libraries with default options: the same script against a ring and against one
//! datastore must print the same lines.
//!
//! `TORC_CLIENTS` names a folder with the libraries: `python/` for `pip install --target`, `js/`
//! for `npm install --prefix`. Without it these tests say *skipped*.

use std::path::{Path, PathBuf};
use std::process::Command;

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
    assert!(ring.lines().count() > 20, "{library} did its calls");
}

fn on_redis(program: &str, script: &str, library: &str) {
    let (Some(bin), Some(folder)) = (redis_bin(library), libraries(library)) else { return };
    let ring = Ring::start(Layout {
        dcs: vec![vec![2, 2, 2]],
        store: Store::Redis(bin.clone()),
        extra: "  hash_tag: '{}'\n".into(),
    });
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
        let extra = "  data_store: 1\n".into();
        let ring = Ring::start(Layout { dcs: vec![vec![3]], store, extra });
        let client = ring.nodes[0].client;
        let ours = everyday("python3", "everyday_memcache.py", library, client, &folder);
        same_lines(library, &ours, &right);
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
