//! `torc -c FILE` with Dynomite's flags, so that start scripts keep working.

use std::path::PathBuf;

use clap::Args;

use super::{Failure, check};

/// Dynomite's flags. `-h` and `-V` are clap's own.
#[derive(Debug, Args)]
pub(super) struct RunArgs {
    /// The configuration file
    #[arg(short = 'c', long = "conf-file", alias = "config", value_name = "FILE")]
    config: Option<PathBuf>,
    /// A file whose settings are laid over it
    #[arg(long, value_name = "FILE")]
    overlay: Option<PathBuf>,
    /// Check the configuration and exit
    #[arg(short = 't', long)]
    test_conf: bool,
}

/// Runs the node, or checks its configuration with `-t`.
pub(super) fn run(args: &RunArgs) -> Result<(), Failure> {
    let Some(config) = &args.config else {
        return Err(Failure::Usage("no configuration: torc -c FILE (see torc --help)".into()));
    };
    if args.test_conf {
        return check::check_file(config, args.overlay.as_deref());
    }
    Err(Failure::Usage("only -t is offered yet".into()))
}
