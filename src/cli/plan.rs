//! `torc plan CMD ARGS`: where a request goes, and why.

use clap::Args as ClapArgs;

use super::{ConfigArgs, Failure, client};
use crate::config::{AffinityMode, Config, HostPort};
use crate::dispatch::explain::explain;
use crate::dispatch::plan::Standing;
use crate::node::build::{self, Knobs};
use crate::proto::args::{Args, Span};
use crate::proto::resp::table;
use crate::ring::Topology;

/// The node to ask and the command.
#[derive(Debug, ClapArgs)]
pub(super) struct PlanArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// The running node to ask, by its client address
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "config")]
    node: Option<String>,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

/// Prints the plan a running node makes; without one, the plan its configuration gives when all
/// nodes are up.
pub(super) fn plan(args: &PlanArgs) -> Result<(), Failure> {
    if let Some(node) = &args.node {
        let lines =
            ask(node, &args.command).map_err(|e| Failure::Failed(format!("{node}: {e}")))?;
        lines.iter().for_each(|line| println!("{line}"));
        return Ok(());
    }
    if !args.config.is_given() {
        return Err(Failure::Usage("which ring? -c FILE, or --node HOST:PORT".into()));
    }
    let config = args.config.load()?;
    let listen = config.listen.to_string();
    match ask(&listen, &args.command) {
        Ok(lines) => lines.iter().for_each(|line| println!("{line}")),
        Err(error) => {
            println!("(no node answers at {listen}: {error}; planned as if all nodes were up)");
            offline(&config, &args.command)?.iter().for_each(|line| println!("{line}"));
        }
    }
    Ok(())
}

fn ask(node: &str, command: &[String]) -> Result<Vec<String>, client::Error> {
    let mut words = vec!["TORC.PLAN"];
    words.extend(command.iter().map(String::as_str));
    client::Connection::open(node)?.lines(&words)
}

fn offline(config: &Config, command: &[String]) -> Result<Vec<String>, Failure> {
    let own = match config.dyn_listen.host_port() {
        Some(address) => address.clone(),
        None => HostPort::new("localhost", 0),
    };
    let failed = |error: &dyn std::fmt::Display| Failure::Failed(error.to_string());
    let topology = Topology::build(config.peer_table(&own)).map_err(|e| failed(&e))?;
    let view = build::view(config, &Knobs::new(config), topology, None);
    let mut buf = Vec::new();
    let spans: Vec<Span> = command
        .iter()
        .map(|word| {
            let start = buf.len();
            buf.extend_from_slice(word.as_bytes());
            Span::new(start, buf.len())
        })
        .collect();
    let words = Args::new(&buf, &spans);
    let spec = table::find(&words, &view.settings.modules).map_err(|rejection| {
        let mut reply = Vec::new();
        rejection.write(&words, &mut reply);
        failed(&String::from_utf8_lossy(&reply).trim_start_matches('-').trim())
    })?;
    let standings = vec![Standing::Usable; view.topology.peers().len()];
    let mut lines = explain(&view, &standings, spec, &words, None, 0);
    if config.affinity.mode != AffinityMode::Off {
        // Filters live in running nodes.
        lines.push("affinity: a running node knows (TORC.PLAN); none is asked here".to_owned());
    }
    Ok(lines)
}
