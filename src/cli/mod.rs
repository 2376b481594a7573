//! The command line: what was asked for, and the exit code it ends with.
//!
//! One file per subcommand; each has an `Args` struct for clap and a function that returns
//! `Result<(), Failure>`. A new one is a file, a variant of [`Command`] and an arm in
//! [`dispatch`]. Without a subcommand the flags are Dynomite's own (see [`run::RunArgs`]).

mod check;
mod run;
mod schema;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::config::ConfigErrors;

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
    /// Check a configuration file and show what it means
    Check(check::CheckArgs),
    /// Print the JSON schema of a configuration file
    Schema,
}

/// Runs the command line and returns the exit code: 0 when done, 64 for bad usage or
/// configuration, 1 when the work could not be started or done.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version come this way too; printing can only fail when nobody listens.
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(EXIT_USAGE) } else { ExitCode::SUCCESS };
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
    match cli.command {
        Some(Command::Check(args)) => check::check(&args),
        Some(Command::Schema) => schema::schema(),
        None => run::run(&cli.run),
    }
}
