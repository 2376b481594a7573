//! `torc ring`, `torc leave`, `torc join`: the ring as a running node sees it, and orders to it.

use std::fmt::Write;
use std::time::{Duration, UNIX_EPOCH};

use clap::{Args, Subcommand};

use super::Failure;
use super::admin::NodeArgs;
use crate::admin::{Peer, Rack, Ring};

/// Arguments of `torc ring`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct RingArgs {
    #[command(subcommand)]
    command: Option<RingCommand>,
    #[command(flatten)]
    node: NodeArgs,
    /// How many of the last changes to show
    #[arg(long, value_name = "N", default_value_t = 10)]
    events: usize,
}

#[derive(Debug, Subcommand)]
enum RingCommand {
    /// Remove a dead node from the ring for good, on all nodes
    Forget {
        /// Its slot as `torc ring` shows it: DATACENTER/RACK/FIRST-TOKEN
        slot: String,
        #[command(flatten)]
        node: NodeArgs,
    },
}

/// Arguments of `torc leave`.
#[derive(Debug, Args)]
pub(super) struct LeaveArgs {
    #[command(flatten)]
    node: NodeArgs,
}

/// Arguments of `torc join`.
#[derive(Debug, Args)]
pub(super) struct JoinArgs {
    /// The peer port of a node of the ring
    #[arg(value_name = "HOST:PORT")]
    address: String,
    #[command(flatten)]
    node: NodeArgs,
}

/// Prints the ring, or removes a node from it.
pub(super) fn ring(args: &RingArgs) -> Result<(), Failure> {
    if let Some(RingCommand::Forget { slot, node }) = &args.command {
        node.post(&format!("/ring/forget/{slot}"))?;
        println!("{slot} is forgotten; its arc belongs to the others of its rack");
        return Ok(());
    }
    let body = args.node.get("/ring")?;
    let ring: Ring = serde_json::from_slice(&body)
        .map_err(|error| Failure::Failed(format!("the node's answer cannot be read: {error}")))?;
    print!("{}", table(&ring, args.events));
    Ok(())
}

/// Makes a node give up its arc.
pub(super) fn leave(args: &LeaveArgs) -> Result<(), Failure> {
    args.node.post("/ring/leave")?;
    println!("the node has left the ring; until it is stopped it passes requests on");
    Ok(())
}

/// Makes a node ask another one for its ring.
pub(super) fn join(args: &JoinArgs) -> Result<(), Failure> {
    args.node.post(&format!("/ring/join/{}", args.address))?;
    println!("{} is asked in each round until it answers; see `torc ring`", args.address);
    Ok(())
}

const HEAD: [&str; 9] =
    ["datacenter", "rack", "node", "address", "tokens", "share", "state", "reach", "kind"];

/// The columns that are numbers stand to the right.
const NUMBERS: [bool; 9] = [false, false, false, false, true, true, false, false, false];

/// The ring as a table, its digest, and the last changes.
fn table(ring: &Ring, events: usize) -> String {
    let mut rows = vec![HEAD.map(str::to_owned)];
    for rack in &ring.racks {
        rows.extend(rack.peers.iter().map(|peer| row(ring, rack, peer)));
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..HEAD.len()).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = widths[column];
            match NUMBERS[column] {
                true => line += &format!("{cell:>width$}  "),
                false => line += &format!("{cell:<width$}  "),
            }
        }
        text += line.trim_end();
        text.push('\n');
    }
    // Writing to a String cannot fail.
    let _ = writeln!(text, "\ndigest {} ({}), seen by {}", ring.digest, ring.hash, ring.local);
    let first = ring.events.len().saturating_sub(events);
    for event in &ring.events[first..] {
        let (at, slot) = (utc(event.at_ms), &event.slot);
        let _ = writeln!(text, "{at}  {slot} {} ({})", event.what, event.cause);
    }
    text
}

fn row(ring: &Ring, rack: &Rack, peer: &Peer) -> [String; 9] {
    let first = peer.tokens.first().cloned().unwrap_or_default();
    let tokens = match peer.tokens.len() {
        0 | 1 => first,
        more => format!("{first} +{}", more - 1),
    };
    let reach = match peer.heard_ms {
        Some(ms) if ms >= 1_000 => format!("{} (heard {} s ago)", peer.reach, ms / 1_000),
        Some(_) | None => peer.reach.clone(),
    };
    [
        rack.datacenter.clone(),
        format!("{}{}", rack.rack, if rack.preselected { " *" } else { "" }),
        format!("{}{}", peer.name, if peer.name == ring.local { " (this)" } else { "" }),
        format!("{}:{}", peer.host, peer.port),
        tokens,
        format!("{:.2}%", peer.share),
        peer.state.clone(),
        reach,
        peer.kind.clone(),
    ]
}

/// A time as text, for people.
fn utc(ms: u64) -> String {
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_millis(ms)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::Event;

    fn peer(name: &str, token: &str, reach: &str, heard_ms: Option<u64>) -> Peer {
        Peer {
            name: name.into(),
            slot: format!("dc1/r1/{token}"),
            host: "10.0.0.1".into(),
            port: 8101,
            state: "NORMAL".into(),
            reachable: reach == "up",
            reach: reach.into(),
            since_ms: 0,
            heard_ms,
            phi: 0.0,
            kind: "torc".into(),
            generation: 1,
            share: 50.0,
            tokens: vec![token.into(), "9".into()],
        }
    }

    #[test]
    fn the_ring_is_a_table() {
        let rack = |datacenter: &str, preselected, peers| Rack {
            datacenter: datacenter.into(),
            rack: "r1".into(),
            preselected,
            peers,
        };
        let event = |at_ms| Event {
            at_ms,
            slot: "dc1/r1/2147483648".into(),
            what: "down".into(),
            cause: "no sign of life".into(),
        };
        let ring = Ring {
            digest: "0123456789abcdef".into(),
            hash: "murmur".into(),
            local: "n1".into(),
            racks: vec![
                rack("dc1", false, vec![peer("n1", "0", "up", None)]),
                rack("dc2", true, vec![peer("n2", "2147483648", "down: it left", Some(4_100))]),
            ],
            events: vec![event(0), event(1_795_982_732_000)],
        };
        let text = table(&ring, 1);
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(
            text.lines().map(words).collect::<Vec<_>>(),
            [
                "datacenter rack node address tokens share state reach kind",
                "dc1 r1 n1 (this) 10.0.0.1:8101 0 +1 50.00% NORMAL up torc",
                "dc2 r1 * n2 10.0.0.1:8101 2147483648 +1 50.00% NORMAL \
                 down: it left (heard 4 s ago) torc",
                "",
                "digest 0123456789abcdef (murmur), seen by n1",
                "2026-11-29T20:05:32Z dc1/r1/2147483648 down (no sign of life)",
            ]
        );
        let columns: Vec<Option<usize>> =
            text.lines().take(3).map(|line| line.find("NORMAL").or(line.find("state"))).collect();
        assert!(columns.iter().all(|column| *column == columns[0]), "{text}");
    }
}
