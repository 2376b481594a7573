//! The life of the process: a runtime, a node in it, and the signals that steer and end it.
//!
//! SIGTERM and SIGINT stop the node (SIGTERM gives up its arc with `leave_on_stop`); a second one
//! stops it at once. SIGHUP opens the log file anew, SIGTTIN and SIGTTOU move the log's level, as
//! with the reference; SIGHUP reads the configuration again too. SIGUSR1 and SIGUSR2 are noted and
//! do nothing, as there.

use std::cell::Cell;
use std::io;
use std::sync::Arc;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{Node, Order, StartError};
use crate::config::{Config, Loaded};
use crate::telemetry::log::Log;

/// Threads of the control runtime: gossip, admin and the other services share them.
const CONTROL_THREADS: usize = 2;

/// Starts a node and serves until SIGINT or SIGTERM. `reread` reads its configuration again, or
/// tells why it cannot be used. `until` ends the node too: the demo's children end with their
/// parent.
pub fn run(
    config: Config,
    log: Arc<Log>,
    reread: impl Fn() -> Result<Loaded, String>,
    until: impl Future<Output = ()>,
) -> Result<(), StartError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(CONTROL_THREADS)
        .thread_name("control")
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut signals = Signals::new()?;
        let leave_on_stop = Cell::new(config.leave_on_stop);
        let node = Node::start(config, Arc::clone(&log))?;
        let orders = node.shared().orders.clone();
        let reload = || match reread() {
            Ok(Loaded { config, warnings }) => {
                warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
                leave_on_stop.set(config.leave_on_stop);
                // Sending fails only while the node stops.
                let _ = orders.send(Order::Configure(Box::new(config)));
            }
            Err(why) => tracing::error!("SIGHUP: the configuration stays as it was: {why}"),
        };
        let leave = tokio::select! {
            stop = signals.until_stop(&log, &reload) => {
                tracing::info!("{}: stopping", stop.name());
                stop == Stop::Terminate && leave_on_stop.get()
            }
            () = until => {
                tracing::info!("parent ended: stopping");
                false
            }
        };
        tokio::select! {
            () = node.stop(leave) => tracing::info!("stopped"),
            stop = signals.until_stop(&log, &reload) => {
                tracing::warn!("{} again: ending", stop.name());
            }
        }
        Ok(())
    })
}

/// What ends the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    Interrupt,
    Terminate,
}

impl Stop {
    fn name(self) -> &'static str {
        match self {
            Stop::Interrupt => "SIGINT",
            Stop::Terminate => "SIGTERM",
        }
    }
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
    louder: Signal,
    quieter: Signal,
    user: [Signal; 2],
}

impl Signals {
    fn new() -> io::Result<Signals> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
            louder: signal(SignalKind::from_raw(libc::SIGTTIN))?,
            quieter: signal(SignalKind::from_raw(libc::SIGTTOU))?,
            user: [signal(SignalKind::user_defined1())?, signal(SignalKind::user_defined2())?],
        })
    }

    /// Does what the other signals ask until one comes that ends the process.
    async fn until_stop(&mut self, log: &Log, reload: &dyn Fn()) -> Stop {
        let [one, two] = &mut self.user;
        loop {
            tokio::select! {
                _ = self.interrupt.recv() => return Stop::Interrupt,
                _ = self.terminate.recv() => return Stop::Terminate,
                _ = self.hangup.recv() => {
                    reopen(log);
                    reload();
                }
                _ = self.louder.recv() => log.set_verbosity(log.verbosity() + 1),
                _ = self.quieter.recv() => log.set_verbosity(log.verbosity().saturating_sub(1)),
                _ = one.recv() => tracing::info!("SIGUSR1: nothing to do"),
                _ = two.recv() => tracing::info!("SIGUSR2: nothing to do"),
            }
        }
    }
}

fn reopen(log: &Log) {
    match log.reopen() {
        Ok(()) => tracing::info!("SIGHUP: log file opened anew"),
        Err(error) => tracing::error!(%error, "SIGHUP: the old log file stays in use"),
    }
}
