//! The same over real Meilisearch servers, when `MEILISEARCH_BIN` names one.

use crate::cluster::{documents, eventually, finished, serve};
use crate::fake::clock;
use crate::http::Http;
use crate::node::{Folder, free_ports};
use crate::{sdk, transcript};
use serde_json::json;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use torc::gateway::{BackendSettings, Key, MemoryKv, Settings};

const KEY: &str = "a key of more than sixteen bytes";

/// One server process with an empty database.
struct Server {
    child: Child,
    url: String,
    _home: Folder,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Servers that answer; `None`, and a line that says so, without a binary.
async fn servers(name: &str, count: usize) -> Option<Vec<Server>> {
    let named = std::env::var_os("MEILISEARCH_BIN").filter(|binary| !binary.is_empty());
    let Some(binary) = named else {
        println!("skipped: MEILISEARCH_BIN names no Meilisearch");
        return None;
    };
    let start = |(i, port): (usize, u16)| {
        let home = Folder::new(&format!("meilisearch-{name}-{i}"));
        let address = format!("127.0.0.1:{port}");
        let child = Command::new(&binary)
            .args(["--http-addr", &address, "--master-key", KEY, "--no-analytics"])
            .arg("--db-path")
            .arg(home.0.join("data"))
            .current_dir(&home.0)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("MEILISEARCH_BIN can be run");
        Server { child, url: format!("http://{address}"), _home: home }
    };
    let servers: Vec<Server> = free_ports(count).into_iter().enumerate().map(start).collect();
    for server in &servers {
        let http = Http::new(&server.url);
        eventually("the server answers", async || {
            http.try_get("/health").await.is_some_and(|answer| answer.status == 200)
        })
        .await;
    }
    Some(servers)
}

/// A gateway over groups of as many servers each.
async fn gateway(servers: &[Server], members: usize) -> Http {
    let backend = |(i, server): (usize, &Server)| BackendSettings {
        id: format!("node-{i}"),
        url: server.url.clone(),
    };
    let backends: Vec<BackendSettings> = servers.iter().enumerate().map(backend).collect();
    let settings = Settings {
        groups: backends.chunks(members).map(<[BackendSettings]>::to_vec).collect(),
        node_master_key: Key::new(KEY),
        master_key: Key::new("master"),
        slot: Some(0),
        ..Settings::default()
    };
    let (_, http, _) = serve(settings, Arc::new(MemoryKv::new(clock()))).await;
    http
}

#[tokio::test]
async fn a_real_server_answers_as_recorded() {
    let Some(servers) = servers("recorded", 1).await else { return };
    let differences = transcript::replay(&servers[0].url, KEY).await;
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[tokio::test]
async fn a_thousand_documents_on_three_real_servers() {
    let Some(servers) = servers("thousand", 3).await else { return };
    let http = gateway(&servers, 3).await.with("authorization", "Bearer master");
    for batch in 0..4 {
        let all = documents(batch * 250..(batch + 1) * 250);
        let answer = http.json("POST", "/indexes/movies/documents", &all).await;
        assert_eq!(finished(&http, &answer).await["status"], "succeeded");
    }
    for i in 0..1000 {
        let found = http.get(&format!("/indexes/movies/documents/doc-{i}")).await;
        assert_eq!(found.json(), documents(i..i + 1)[0], "doc-{i}");
    }
    let mut counts = Vec::new();
    for server in &servers {
        let direct = Http::new(&server.url).with("authorization", &format!("Bearer {KEY}"));
        let stats = direct.get("/indexes/movies/stats").await.json();
        counts.push(stats["numberOfDocuments"].clone());
    }
    assert_eq!(counts, [json!(332), json!(349), json!(319)]);
    let found = http.json("POST", "/indexes/movies/search", &json!({"q": "title 7"})).await;
    assert_eq!(found.json()["hits"][0]["id"], "doc-7", "{}", found.json());
}

#[tokio::test]
async fn the_sdks_work_over_real_servers_and_when_groups_are_killed() {
    for (program, script) in sdk::scripts() {
        let Some(mut servers) = servers(program, 4).await else { return };
        let http = gateway(&servers, 2).await;
        if !sdk::run(program, &[&script, http.base()]).await {
            continue;
        }
        servers.truncate(2);
        assert!(sdk::run(program, &[&script, http.base()]).await);
        servers.clear();
        assert!(sdk::run(program, &[&script, http.base(), "down"]).await);
    }
}
