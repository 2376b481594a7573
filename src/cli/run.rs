//! `torc run`, and `torc` with Dynomite's flags.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;

use super::pid_file::PidFile;
use super::{ConfigArgs, Failure, check};
use crate::config::Loaded;
use crate::telemetry::log::{Log, VERBOSITY_DEFAULT};

/// Dynomite's flags; `-h` and `-V` are clap's own.
#[derive(Debug, Args)]
pub(super) struct RunArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Check the configuration and exit
    #[arg(short = 't', long)]
    test_conf: bool,
    /// Level of the log, 0 to 11: up to 3 errors, 4 warnings, 6 information, 7 debugging, 8 all
    #[arg(short = 'v', long, value_name = "N", default_value_t = VERBOSITY_DEFAULT)]
    verbosity: u32,
    /// Append the log to a file instead of standard error
    #[arg(short = 'o', long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write the process id to a file while running
    #[arg(short = 'p', long, value_name = "FILE")]
    pid_file: Option<PathBuf>,
    /// Stop when standard input ends, as the demo's nodes do
    #[arg(long, hide = true)]
    until_eof: bool,
    /// Refused: torc stays in the foreground
    #[arg(short = 'd', long, hide = true)]
    daemonize: bool,
    /// Refused: see /metrics on the admin port
    #[arg(short = 'D', long, hide = true)]
    describe_stats: bool,
    /// The value of mbuf_size when the configuration has none
    #[arg(short = 'm', long, value_name = "N", hide = true)]
    mbuf_size: Option<u32>,
    /// Without effect
    #[arg(short = 'M', long, value_name = "N", hide = true)]
    max_msgs: Option<u64>,
    /// Refused: TORC.LOCAL DEL does this for one command
    #[arg(short = 'x', long, value_name = "N", hide = true)]
    admin_operation: Option<u64>,
}

impl RunArgs {
    /// Flags of Dynomite that a torc node cannot honour.
    fn refuse_foreign(&self) -> Result<(), Failure> {
        let advice = if self.daemonize {
            "-d: torc stays in the foreground; run it under a service manager, or with \
             `nohup torc -c FILE -o LOG &`"
        } else if self.describe_stats {
            "-D: the counters are described where they are, at /metrics on the admin port"
        } else if self.admin_operation.is_some_and(|n| n != 0) {
            "-x: there is no admin mode; `TORC.LOCAL DEL key` deletes on the node it is sent to"
        } else {
            return Ok(());
        };
        Err(Failure::Usage(advice.into()))
    }

    /// Settings that the flags give where the file has none.
    fn fallback(&self) -> Option<String> {
        self.mbuf_size.map(|size| format!("mbuf_size: {size}"))
    }
}

/// Runs the node, or checks its configuration with `-t`.
pub(super) fn run(args: &RunArgs) -> Result<(), Failure> {
    args.refuse_foreign()?;
    if args.test_conf {
        return check::check_config(&args.config, args.fallback());
    }
    let failed = |error: &dyn std::fmt::Display| Failure::Failed(error.to_string());
    let log = Log::start(args.verbosity, args.output.as_deref()).map_err(|e| failed(&e))?;
    if let Ok(filter) = std::env::var("RUST_LOG") {
        log.set_filter(&filter).map_err(|e| failed(&e))?;
    }
    let Loaded { config, warnings } = args.config.read(args.fallback())?;
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    let log = Arc::new(log);
    let _pid_file = args.pid_file.as_deref().map(PidFile::create).transpose()?;
    let reread = || args.config.read(args.fallback()).map_err(|failure| failure.to_string());
    let served = match args.until_eof {
        true => crate::node::serve::run(config, log, reread, stdin_end()),
        false => crate::node::serve::run(config, log, reread, std::future::pending()),
    };
    served.map_err(|e| failed(&e))
}

/// Ready when standard input ends. A thread of its own reads it: no runtime waits for that.
async fn stdin_end() {
    let (ended, end) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        let _ = ended.send(());
    });
    let _ = end.await;
}
