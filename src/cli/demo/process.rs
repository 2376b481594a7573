//! The demo's child processes.

use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::{Child, Command};

use super::super::Failure;
use super::layout::{DemoNode, configuration};

/// How long a child may take to end by itself.
const STOP_MAX: Duration = Duration::from_secs(6);

/// Runs redis-server until its standard input closes, as torc nodes do themselves.
const REDIS_SCRIPT: &str = r#"redis-server --port "$0" --bind 127.0.0.1 --save '' \
  --appendonly no --dir "$1" </dev/null & cat >/dev/null; kill $!; wait"#;

/// Every process of the demo.
pub(super) struct Children {
    running: Vec<(String, Child)>,
}

impl Children {
    /// Writes the configurations and starts everything.
    pub(super) async fn start(
        nodes: &[DemoNode],
        folder: &Path,
        redis: bool,
    ) -> Result<Children, Failure> {
        let mut children = Children { running: Vec::new() };
        for node in nodes.iter().filter(|_| redis) {
            let port = node.redis.unwrap_or_default().to_string();
            let mut command = Command::new("sh");
            command.args(["-c", REDIS_SCRIPT, &port]).arg(folder);
            children.spawn(&format!("{}-redis", node.name), command, folder)?;
        }
        let failed = |error: std::io::Error| Failure::Failed(error.to_string());
        let torc = std::env::current_exe().map_err(failed)?;
        for node in nodes {
            let file = folder.join(format!("{}.yml", node.name));
            std::fs::write(&file, configuration(node, nodes)).map_err(failed)?;
            let mut command = Command::new(&torc);
            command.args(["run", "--until-eof", "-c"]).arg(&file);
            children.spawn(&node.name, command, folder)?;
        }
        Ok(children)
    }

    fn spawn(&mut self, name: &str, mut command: Command, folder: &Path) -> Result<(), Failure> {
        let failed = |e: std::io::Error| Failure::Failed(format!("cannot start {name}: {e}"));
        let log = File::create(folder.join(format!("{name}.log"))).map_err(failed)?;
        let child = command
            .stdin(Stdio::piped())
            .stdout(log.try_clone().map_err(failed)?)
            .stderr(log)
            // A Ctrl-C at the terminal is for the demo; its children are stopped in order.
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        self.running.push((name.to_owned(), child));
        Ok(())
    }

    /// Waits until any child ends, which none should.
    pub(super) async fn first_death(&mut self) -> Failure {
        loop {
            for (name, child) in &mut self.running {
                if let Ok(Some(status)) = child.try_wait() {
                    return Failure::Failed(format!(
                        "{name} ended ({status}); is one of its ports in use? \
                         Its log is kept with --dir DIR"
                    ));
                }
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Ends all of them: nodes first, then their datastores.
    pub(super) async fn stop(mut self) {
        for (_, child) in self.running.iter_mut().rev() {
            drop(child.stdin.take());
        }
        for (name, mut child) in self.running.drain(..).rev() {
            if tokio::time::timeout(STOP_MAX, child.wait()).await.is_err() {
                eprintln!("torc: {name} does not end; killing it");
                let _ = child.kill().await;
            }
        }
    }
}
