//! The command line: what was asked for, and the exit code it ends with.
//!
//! One file per subcommand; each has an `Args` struct for clap and a function that returns
//! `Result<(), Failure>`. A new one is a file, a variant of [`Command`] and an arm in
//! [`dispatch`]. Without a subcommand the arguments are those of `torc run`, so that start
//! scripts written for Dynomite keep working.

#[cfg(feature = "admin")]
mod admin;
mod check;
mod client;
mod demo;
#[cfg(feature = "documents")]
mod documents;
mod pid_file;
mod plan;
#[cfg(feature = "relay")]
mod relay;
#[cfg(feature = "admin")]
mod ring;
mod run;
mod schema;
mod token;
mod tokens;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::config::{Config, ConfigErrors, Loaded};

/// Bad usage or configuration (`EX_USAGE`).
const EXIT_USAGE: u8 = 64;
/// The configuration is right, but the work could not be started or done.
const EXIT_FAILED: u8 = 1;

/// Why a command ends with an exit code other than 0.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The arguments make no sense together.
    #[error("{0}")]
    Usage(String),
    /// The configuration is wrong.
    #[error("{0}")]
    Config(#[from] ConfigErrors),
    /// Something else went wrong.
    #[error("{0}")]
    Failed(String),
}

impl Failure {
    fn exit_code(&self) -> u8 {
        match self {
            Failure::Usage(_) | Failure::Config(_) => EXIT_USAGE,
            Failure::Failed(_) => EXIT_FAILED,
        }
    }
}

/// A node of a Dynomite ring.
#[derive(Debug, Parser)]
#[command(name = "torc", version, disable_help_subcommand = true)]
#[command(args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: run::RunArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a node (the same as no subcommand)
    Run(run::RunArgs),
    /// Check a configuration and show what it means
    Check(check::CheckArgs),
    /// Show the token of keys, and who owns them
    Token(token::TokenArgs),
    /// Show where a command goes, and why
    Plan(plan::PlanArgs),
    /// Show the ring as a running node sees it
    #[cfg(feature = "admin")]
    Ring(ring::RingArgs),
    /// Make a running node give up its arc for good
    #[cfg(feature = "admin")]
    Leave(ring::LeaveArgs),
    /// Make a running node ask another one for its ring
    #[cfg(feature = "admin")]
    Join(ring::JoinArgs),
    /// Start a ring of eight nodes on this machine and show how to use it
    Demo(demo::DemoArgs),
    /// Find documents and move shards, through a running gateway
    #[cfg(feature = "documents")]
    #[command(subcommand)]
    Documents(documents::DocumentsCommand),
    /// Look at relays, torc's or Dynamo's
    #[cfg(feature = "relay")]
    #[command(subcommand)]
    Relay(relay::RelayCommand),
    /// Work with ring tokens
    #[command(subcommand)]
    Tokens(tokens::TokensCommand),
    /// Print the JSON schema of configuration files
    Schema,
}

/// The files a configuration is read from.
#[derive(Debug, Args)]
struct ConfigArgs {
    /// The configuration file
    #[arg(short = 'c', long = "conf-file", alias = "config", value_name = "FILE")]
    config: Option<PathBuf>,
    /// A file whose settings are laid over it
    #[arg(long, value_name = "FILE", requires = "config")]
    overlay: Option<PathBuf>,
}

impl ConfigArgs {
    /// Loads the configuration and prints its warnings.
    fn load(&self) -> Result<Config, Failure> {
        self.load_with(None)
    }

    /// True when a file was named.
    fn is_given(&self) -> bool {
        self.config.is_some()
    }

    /// The same with settings used where the files have none.
    fn load_with(&self, fallback: Option<String>) -> Result<Config, Failure> {
        let Loaded { config, warnings } = self.read(fallback)?;
        for warning in warnings {
            eprintln!("torc: warning: {warning}");
        }
        Ok(config)
    }

    /// Loads the configuration; its warnings are the caller's to tell.
    fn read(&self, fallback: Option<String>) -> Result<Loaded, Failure> {
        let Some(path) = &self.config else {
            let how = "a configuration is needed: -c FILE (`--help` tells more)";
            return Err(Failure::Usage(how.into()));
        };
        Ok(Config::load_with(path, self.overlay.as_deref(), fallback)?)
    }
}

/// Runs the command line and returns the exit code: 0 when done, 64 for bad usage or
/// configuration, 1 when the work could not be started or done.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version come this way too; printing fails only when nobody listens.
            let _ = error.print();
            let code = if error.use_stderr() { EXIT_USAGE } else { 0 };
            return ExitCode::from(code);
        }
    };
    match dispatch(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("torc: {failure}");
            ExitCode::from(failure.exit_code())
        }
    }
}

fn dispatch(cli: Cli) -> Result<(), Failure> {
    match cli.command.unwrap_or(Command::Run(cli.run)) {
        Command::Run(args) => run::run(&args),
        Command::Check(args) => check::check(&args),
        Command::Token(args) => token::token(&args),
        Command::Plan(args) => plan::plan(&args),
        #[cfg(feature = "admin")]
        Command::Ring(args) => ring::ring(&args),
        #[cfg(feature = "admin")]
        Command::Leave(args) => ring::leave(&args),
        #[cfg(feature = "admin")]
        Command::Join(args) => ring::join(&args),
        Command::Demo(args) => demo::demo(&args),
        #[cfg(feature = "documents")]
        Command::Documents(command) => documents::documents(&command),
        #[cfg(feature = "relay")]
        Command::Relay(command) => relay::relay(&command),
        Command::Tokens(command) => tokens::tokens(&command),
        Command::Schema => schema::schema(),
    }
}

/// Ready at the first SIGINT or SIGTERM after the call.
fn stop_signal() -> std::io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}
