//! `torc check`: is this configuration right, and what does it mean?

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Args;

use super::Failure;
use crate::config::{Config, Loaded, Protocol, Store};

/// Arguments of `torc check`.
#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    /// The configuration file
    #[arg(short, long = "conf-file", alias = "config", value_name = "FILE")]
    config: PathBuf,
    /// A file whose settings are laid over it
    #[arg(long, value_name = "FILE")]
    overlay: Option<PathBuf>,
}

/// Checks the file and prints a summary.
pub(super) fn check(args: &CheckArgs) -> Result<(), Failure> {
    check_file(&args.config, args.overlay.as_deref())
}

/// The same for `torc -t -c FILE`.
pub(super) fn check_file(path: &Path, overlay: Option<&Path>) -> Result<(), Failure> {
    let Loaded { config, warnings } = Config::load(path, overlay)?;
    for warning in warnings {
        eprintln!("torc: warning: {warning}");
    }
    println!("{}: configuration is valid", path.display());
    print!("{}", summary(&config));
    Ok(())
}

/// What the configuration means, a few lines of text.
fn summary(config: &Config) -> String {
    let tokens: Vec<String> = config.tokens.iter().map(ToString::to_string).collect();
    let mut datacenters = BTreeSet::from([config.datacenter.as_str()]);
    datacenters.extend(config.seeds.iter().map(|s| s.datacenter.as_str()));
    let store = match &config.store {
        Store::Embedded => "embedded".to_owned(),
        Store::Server(server) => server.endpoint.to_string(),
    };
    let protocol = match config.data_store {
        Protocol::Redis => "Redis",
        Protocol::Memcache => "memcache",
    };
    format!(
        "  node     {}/{}, tokens {} ({})\n  \
           clients  {} ({protocol}), read {}, write {}\n  \
           peers    {}, {} listed, {} datacenter(s)\n  \
           store    {store}\n  \
           admin    {}\n",
        config.datacenter,
        config.rack,
        tokens.join(","),
        config.hasher.hash,
        config.listen,
        config.read_consistency,
        config.write_consistency,
        config.dyn_listen,
        config.seeds.len(),
        datacenters.len(),
        config.stats_listen,
    )
}
