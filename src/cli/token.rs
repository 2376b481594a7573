//! `torc token`: where keys live.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use clap::Args;

use super::{ConfigArgs, Failure};
use crate::config::{Config, HostPort, PEER_PORT};
use crate::hash::{HashTag, HashType, KeyHasher};
use crate::ring::{PeerRef, Topology};

/// Arguments of `torc token`.
#[derive(Debug, Args)]
pub(super) struct TokenArgs {
    /// The keys
    #[arg(required = true, value_name = "KEY")]
    keys: Vec<OsString>,
    /// Use the hash of this configuration, and show owners in the ring it lists
    #[command(flatten)]
    config: ConfigArgs,
    /// The hash, when there is no configuration
    #[arg(long, conflicts_with = "config", default_value_t)]
    hash: HashType,
    /// The hash tag, when there is no configuration
    #[arg(long, conflicts_with = "config", value_name = "TAG")]
    hash_tag: Option<HashTag>,
}

/// Prints the token of each key; with a configuration also the owner in each rack.
pub(super) fn token(args: &TokenArgs) -> Result<(), Failure> {
    let (hasher, ring) = match &args.config.config {
        None => (KeyHasher { hash: args.hash, tag: args.hash_tag }, None),
        Some(_) => {
            let config = args.config.load()?;
            (config.hasher, Some(listed_ring(&config)?))
        }
    };
    for key in &args.keys {
        print!("{}", describe(key.as_bytes(), &hasher, ring.as_ref()));
    }
    Ok(())
}

/// The ring of the nodes a configuration lists. Gossip may have found more.
fn listed_ring(config: &Config) -> Result<Topology, Failure> {
    let listen = config.dyn_listen.host_port();
    let port = listen.map_or(PEER_PORT, |address| address.port);
    let own = config.own_address(port, |name| std::env::var(name).ok());
    // A node that cannot tell its address can still tell its arc.
    let own = own.map_or_else(|_| HostPort::new("this-node", port), |own| own.address);
    Topology::build(config.peer_table(&own)).map_err(|error| Failure::Failed(error.to_string()))
}

fn describe(key: &[u8], hasher: &KeyHasher, ring: Option<&Topology>) -> String {
    let token = hasher.token(key);
    let hashed = hasher.tag.map(|tag| tag.tagged(key)).filter(|part| *part != key);
    let mut text = format!("{}  token {token} ({}", key.escape_ascii(), hasher.hash);
    if let Some(part) = hashed {
        text += &format!(" of {}", part.escape_ascii());
    }
    text += ")\n";
    let Some(ring) = ring else { return text };
    for (rack, owner) in ring.racks().iter().zip(ring.owners(&token).iter()) {
        let place = format!("{}/{}", ring.dc_name(rack.dc_index), rack.name);
        let owner = owner.map_or_else(|| "nobody".into(), |idx| owner_text(&ring.peer(idx)));
        text += &format!("  {place:<20} {owner}\n");
    }
    text
}

fn owner_text(peer: &PeerRef<'_>) -> String {
    let tokens: Vec<String> = peer.tokens.iter().map(ToString::to_string).collect();
    let own = if peer.is_local { " (this node)" } else { "" };
    format!("{}{own}, tokens {}", peer.name, tokens.join(","))
}
