//! `torc demo --documents`: the first request of the README works without a Meilisearch.

use crate::cluster::eventually;
use crate::http::Http;
use serde_json::json;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// The demo, ended with all its nodes when dropped.
struct Demo(Child);

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts it on ports from `port` on; what it said until it stood, else nothing.
fn start(port: u16) -> Option<(Demo, String)> {
    let child = Command::new(env!("CARGO_BIN_EXE_torc"))
        .args(["demo", "--documents", "--port", &port.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut demo = Demo(child);
    let lines = BufReader::new(demo.0.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut said = String::new();
    for line in lines {
        said += &line;
        said.push('\n');
        if line.starts_with("Ctrl-C") {
            return Some((demo, said));
        }
    }
    None
}

/// What is quoted of a command the demo shows: addresses as `localhost:port/path`.
fn addresses(said: &str) -> Vec<(String, String)> {
    let commands = said.split("localhost:").skip(1);
    let address = |text: &str| {
        let end = text.find(char::is_whitespace).unwrap_or(text.len());
        let (port, path) = text[..end].split_once('/').unwrap();
        (format!("http://127.0.0.1:{port}"), format!("/{path}"))
    };
    commands.map(address).collect()
}

#[tokio::test]
async fn the_demo_stores_and_fetches_and_says_what_it_does_not() {
    // Ports that somebody took meanwhile are tried elsewhere.
    let started = (0..5).find_map(|_| {
        // Below those given out one by one.
        let port = crate::ports::free_port() / 4 + 1_900;
        start(port)
    });
    let (_demo, said) = started.expect("a demo stands");
    assert!(said.contains("built-in servers that store and"), "{said}");
    assert!(said.contains("do not search text: name Meilisearch servers"), "{said}");
    let [(first, post), (second, get), (third, tasks)] = &addresses(&said)[..] else {
        panic!("{said}")
    };
    let (first, second) = (Http::new(first), Http::new(second));
    let books = json!([{"id": 1, "title": "Dune"}, {"id": 2, "title": "Emma"}]);
    eventually("the first request is taken", async || {
        first.json("POST", post, &books).await.status == 202
    })
    .await;
    eventually("another node has it", async || {
        second.get(get).await.json() == json!({"id": 1, "title": "Dune"})
    })
    .await;
    let listed = Http::new(third).get(tasks).await.json();
    assert_eq!(listed["results"][0]["type"], "documentAdditionOrUpdate", "{listed}");
    let search = first.json("POST", "/indexes/books/search", &json!({"q": "dune"})).await;
    assert_eq!((search.status, search.code()), (400, "bad_request".into()));
    let message = search.json()["message"].as_str().unwrap().to_owned();
    assert!(message.contains("does not search text"), "{message}");
    let all = first.json("POST", "/indexes/books/search", &json!({})).await;
    assert_eq!(all.json()["estimatedTotalHits"], 2);
}
