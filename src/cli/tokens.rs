//! `torc tokens plan`: even token layouts.

use clap::{Args, Subcommand};

use super::Failure;
use crate::hash::HashType;
use crate::ring::even_layout;
use crate::token::DynToken;

/// Most tokens one layout has.
const TOKENS_MAX: usize = 1 << 20;

/// Subcommands of `torc tokens`.
#[derive(Debug, Subcommand)]
pub(super) enum TokensCommand {
    /// Print tokens that give every node of a rack the same share
    Plan(PlanArgs),
}

/// Arguments of `torc tokens plan`.
#[derive(Debug, Args)]
pub(super) struct PlanArgs {
    /// Nodes in each rack
    #[arg(long, value_name = "N")]
    nodes: usize,
    /// Names of the racks; all of them get the same tokens, as each holds all keys
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_value = "rack1")]
    racks: Vec<String>,
    /// Tokens of one node; C nodes can have one only
    #[arg(long, value_name = "N", default_value_t = 1)]
    tokens_per_node: usize,
    /// The hash of the ring
    #[arg(long, default_value_t)]
    hash: HashType,
}

/// Runs a subcommand.
pub(super) fn tokens(command: &TokensCommand) -> Result<(), Failure> {
    match command {
        TokensCommand::Plan(args) => {
            print!("{}", plan(args)?);
            Ok(())
        }
    }
}

/// The lines to put into each node's configuration.
fn plan(args: &PlanArgs) -> Result<String, Failure> {
    let count = args.nodes.checked_mul(args.tokens_per_node);
    let count = count
        .filter(|n| (1..=TOKENS_MAX).contains(n))
        .ok_or_else(|| Failure::Usage(format!("nodes times tokens must be 1 to {TOKENS_MAX}")))?;
    let layout = even_layout(args.hash, count).ok_or_else(|| {
        let bits = args.hash.token_bits();
        Failure::Usage(format!("{} has only 2^{bits} different tokens", args.hash))
    })?;
    let share = 100.0 / args.nodes as f64;
    let mut text = format!("# {}, each node owns {share:.2} % of its rack\n", args.hash);
    for rack in &args.racks {
        for node in 0..args.nodes {
            let own = layout.iter().skip(node).step_by(args.nodes);
            let own: Vec<String> = own.map(DynToken::to_string).collect();
            text += &format!("rack: {rack:<12} # node {}\ntokens: '{}'\n", node + 1, own.join(","));
        }
    }
    Ok(text)
}
