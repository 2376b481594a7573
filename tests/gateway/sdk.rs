//! The Meilisearch SDKs, unmodified, against a gateway. `scripts/test` puts them into
//! `target/clients` (`TORC_CLIENTS`); a test says that it was skipped when they are not there.

use crate::cluster::{Cluster, Shape};
use std::path::{Path, PathBuf};
use torc::gateway::Key;

/// What a script exits with when its SDK is missing.
const SKIPPED: i32 = 77;

fn clients() -> PathBuf {
    let folder = std::env::var_os("TORC_CLIENTS").map(PathBuf::from);
    folder.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("target/clients"))
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(name)
}

/// Runs a script to its end; false when it was skipped.
pub(crate) async fn run(program: &str, arguments: &[&str]) -> bool {
    let ran = tokio::process::Command::new(program)
        .args(arguments)
        .env("PYTHONPATH", clients().join("python"))
        .output()
        .await;
    let output = match ran {
        Ok(output) => output,
        Err(error) => {
            println!("skipped: {program} cannot be run: {error}");
            return false;
        }
    };
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    if output.status.code() == Some(SKIPPED) {
        println!("{text}");
        return false;
    }
    assert!(output.status.success(), "{text}");
    true
}

/// The programs and scripts of the SDKs. A module of node finds its packages beside itself.
pub(crate) fn scripts() -> [(&'static str, String); 2] {
    let copy = clients().join("js/documents.mjs");
    // Without the folder the script is not there and says itself that it is skipped.
    let beside = match std::fs::copy(script("documents.mjs"), &copy) {
        Ok(_) => copy,
        Err(_) => script("documents.mjs"),
    };
    let text = |path: PathBuf| path.to_str().unwrap().to_owned();
    [("python3", text(script("documents.py"))), ("node", text(beside))]
}

/// All calls; the same with a group stopped; a write with everything stopped.
async fn check(program: &str, script: &str) {
    let shape = Shape { groups: 2, members: 2, copies: 1, shards: 64 };
    let mut cluster =
        Cluster::with(shape, |settings| settings.master_key = Key::new("master")).await;
    let url = cluster.http.base().to_owned();
    if !run(program, &[script, &url]).await {
        return;
    }
    cluster.stop(&[2, 3]).await;
    assert!(run(program, &[script, &url]).await);
    cluster.stop(&[0, 1]).await;
    assert!(run(program, &[script, &url, "down"]).await);
}

#[tokio::test]
async fn the_python_sdk_works_unmodified() {
    let [(program, script), _] = scripts();
    check(program, &script).await;
}

#[tokio::test]
async fn the_javascript_sdk_works_unmodified() {
    let [_, (program, script)] = scripts();
    check(program, &script).await;
}
