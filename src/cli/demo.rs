//! `torc demo`: a ring of eight real nodes on this machine, for trying things out.
//!
//! Two datacenters of two racks of two nodes each. Every node is a process of its own, run from
//! a file in a temporary folder. A child ends when its standard input closes, so none survives
//! this process, however it ends (decision C8).

#[cfg(feature = "documents")]
mod documents;
mod layout;
mod process;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::{Failure, client};
use crate::ring::arc_shares;
use layout::{DemoNode, layout};
use process::Children;

/// How long the ring may take to stand.
const READY_TRIES: u32 = 200;
const READY_PAUSE: Duration = Duration::from_millis(50);

/// What the demo runs on.
#[derive(Debug, Args)]
pub(super) struct DemoArgs {
    /// Front real redis-server processes instead of the embedded store
    #[arg(long)]
    redis: bool,
    /// Serve documents too, on document servers built into the demo
    #[cfg(feature = "documents")]
    #[arg(long)]
    documents: bool,
    /// Client port of the first node; the others follow, 10 apart
    #[arg(long, default_value_t = 8102, value_name = "PORT")]
    port: u16,
    /// Keep configurations and logs in this folder, instead of a temporary one
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl DemoArgs {
    fn documents(&self) -> bool {
        #[cfg(feature = "documents")]
        return self.documents;
        #[cfg(not(feature = "documents"))]
        return false;
    }
}

/// Starts the ring, shows it, and stops it at Ctrl-C.
pub(super) fn demo(args: &DemoArgs) -> Result<(), Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::Failed(error.to_string());
    let folder = Folder::new(args.dir.clone()).map_err(|e| failed(&e))?;
    let nodes = layout(args.port, args.redis, args.documents())?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| failed(&e))?;
    runtime.block_on(async {
        // Before the first child, so that an early Ctrl-C ends all of them too.
        let stop = super::stop_signal().map_err(|e| failed(&e))?;
        #[cfg(feature = "documents")]
        let _servers = documents::start(&nodes).await?;
        let mut children = Children::start(&nodes, &folder.path, args.redis).await?;
        let outcome = tokio::select! {
            ready = ready(&nodes) => ready,
            died = children.first_death() => Err(died),
        };
        match outcome {
            Ok(digest) => show(&nodes, &folder, args.redis, &digest)?,
            Err(error) => {
                children.stop().await;
                return Err(error);
            }
        }
        let outcome = tokio::select! {
            () = stop => Ok(()),
            died = children.first_death() => Err(died),
        };
        println!("stopping");
        children.stop().await;
        outcome
    })
}

/// Waits until every node knows every other and can serve; returns the digest they agree on.
async fn ready(nodes: &[DemoNode]) -> Result<String, Failure> {
    for _ in 0..READY_TRIES {
        let addresses: Vec<String> = nodes.iter().map(|n| n.client.to_string()).collect();
        let count = nodes.len();
        let digest = tokio::task::spawn_blocking(move || agreed(&addresses, count)).await;
        if let Ok(Some(digest)) = digest {
            return Ok(digest);
        }
        tokio::time::sleep(READY_PAUSE).await;
    }
    Err(Failure::Failed("the ring did not come up; see the logs with --dir DIR".into()))
}

/// The ring digest, when all nodes name the same one and a write through each succeeds.
fn agreed(addresses: &[String], count: usize) -> Option<String> {
    let mut digest = None;
    for address in addresses {
        let mut node = client::Connection::open(address).ok()?;
        let info = node.lines(&["INFO", "torc"]).ok()?;
        let field = |name: &str| info.iter().find_map(|l| l.strip_prefix(name)).map(str::to_owned);
        if field("peers:")? != count.to_string() {
            return None;
        }
        let theirs = field("ring_digest:")?;
        if digest.get_or_insert_with(|| theirs.clone()) != &theirs {
            return None;
        }
        let plan = node.lines(&["TORC.PLAN", "SET", "demo", "1"]).ok()?;
        if plan.iter().any(|line| line.contains("not connected") || line.contains("missed")) {
            return None;
        }
    }
    digest
}

fn show(nodes: &[DemoNode], folder: &Folder, redis: bool, digest: &str) -> Result<(), Failure> {
    let topology = layout::topology(nodes)
        .map_err(|e| Failure::Failed(format!("the ring cannot be built: {e}")))?;
    let shares = arc_shares(&topology, crate::hash::HashType::default());
    let store = if redis { "redis-server" } else { "embedded store" };
    println!("torc demo: 2 datacenters x 2 racks x 2 nodes on the {store}\n");
    println!(
        "  {:<4}  {:<4} {:<4}  {:<15}  {:<15}  {:>10}  {:>5}",
        "node", "dc", "rack", "clients", "admin", "token", "share"
    );
    for node in nodes {
        let share = topology.idx_of(node.id).map_or(0.0, |idx| shares[idx.0 as usize]);
        println!(
            "  {:<4}  {:<4} {:<4}  {:<15}  {:<15}  {:>10}  {share:>4.0}%",
            node.name,
            node.dc,
            node.rack,
            node.client.to_string(),
            node.admin.to_string(),
            node.token.to_string()
        );
    }
    let (first, last) = (&nodes[0], &nodes[nodes.len() - 1]);
    println!("\nevery rack holds every key once; ring digest {digest}\n");
    println!("try:");
    println!("  redis-cli -p {} SET user:1042 ada", first.client.port);
    println!("  redis-cli -p {} GET user:1042            # any node finds it", last.client.port);
    println!(
        "  redis-cli -p {} TORC.PLAN GET user:1042  # where it lives, and why",
        last.client.port
    );
    println!("  redis-cli -p {} MSET a 1 b 2 c 3", first.client.port);
    println!("  redis-cli -p {} MGET a b c", nodes[3].client.port);
    println!("  redis-benchmark -p {} -t set,get -n 100000 -P 16 -q", first.client.port);
    #[cfg(feature = "documents")]
    documents::show(nodes);
    println!("\nconfigurations and logs: {}", folder.path.display());
    println!("Ctrl-C stops the ring");
    Ok(())
}

/// A folder that is removed at the end, unless it was named by the user.
struct Folder {
    path: PathBuf,
    temporary: bool,
}

impl Folder {
    fn new(named: Option<PathBuf>) -> std::io::Result<Folder> {
        let temporary = named.is_none();
        let path = named.unwrap_or_else(|| {
            std::env::temp_dir().join(format!("torc-demo-{}", std::process::id()))
        });
        std::fs::create_dir_all(&path)?;
        Ok(Folder { path, temporary })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.temporary {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}
