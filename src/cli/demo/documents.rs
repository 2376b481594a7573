//! The demo's document servers: the built-in ones, inside the demo's own process. They store and
//! fetch documents and do not search text; a Meilisearch is one configuration line away.

use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::super::Failure;
use super::layout::DemoNode;
use crate::gateway::{WallClock, builtin};
use crate::net::clock::wall_us;

/// Starts a document server for every node that has one. They end when the set is dropped.
pub(super) async fn start(nodes: &[DemoNode]) -> Result<JoinSet<()>, Failure> {
    let mut servers = JoinSet::new();
    for ports in nodes.iter().filter_map(|node| node.documents) {
        let address = format!("127.0.0.1:{}", ports.server);
        let listener = TcpListener::bind(&address).await;
        let listener = listener.map_err(|e| Failure::Failed(format!("{address}: {e}")))?;
        let clock = WallClock::new(wall_us);
        servers.spawn(builtin::run(listener, clock, std::future::pending()));
    }
    Ok(servers)
}

/// What to try with documents.
pub(super) fn show(nodes: &[DemoNode]) {
    let Some(first) = nodes.first().and_then(|node| node.documents) else { return };
    let second = nodes.get(1).and_then(|node| node.documents).unwrap_or(first);
    let json = "-H 'Content-Type: application/json'";
    println!("\ndocuments (two groups a datacenter, one a rack; built-in servers that store and");
    println!("fetch but do not search text: name Meilisearch servers in documents.backends):");
    println!(
        "  curl -X POST localhost:{}/indexes/books/documents {json} \\\n       \
         -d '[{{\"id\":1,\"title\":\"Dune\"}},{{\"id\":2,\"title\":\"Emma\"}}]'",
        first.gateway
    );
    println!("  curl localhost:{}/indexes/books/documents/1", second.gateway);
    println!("  curl localhost:{}/tasks", second.gateway);
}
