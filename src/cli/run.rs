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
    let loaded = crate::config::Config::load(config, args.overlay.as_deref())?;
    start_logging();
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    crate::node::serve::run(loaded.config, std::future::pending())
        .map_err(|error| Failure::Failed(error.to_string()))
}

/// Log lines go to standard error; `RUST_LOG` chooses more or fewer.
fn start_logging() {
    use tracing_subscriber::EnvFilter;
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
}
