//! A redis-server of our own, on a Unix socket in a temporary folder, without persistence.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command as Process, Stdio};
use std::time::Duration;

use super::Command;
use super::reply::Reply;

/// A running server and a connection to it. Both end when this is dropped.
pub struct Redis {
    server: Child,
    folder: PathBuf,
    stream: UnixStream,
    received: Vec<u8>,
    /// Major and minor version.
    pub version: (u32, u32),
}

impl Redis {
    /// Starts a server; `None` when there is no binary.
    pub fn start() -> Option<Redis> {
        let binary = std::env::var("REDIS_BIN").unwrap_or_else(|_| "redis-server".into());
        let name = format!("torc-store-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("a temporary folder");
        let socket = folder.join("redis.sock");
        let server = Process::new(binary)
            .env("LC_ALL", "C")
            .args(["--port", "0", "--save", "", "--appendonly", "no"])
            .arg("--unixsocket")
            .arg(&socket)
            .arg("--dir")
            .arg(&folder)
            .stdout(Stdio::null())
            .spawn();
        let Ok(server) = server else {
            let _ = std::fs::remove_dir_all(&folder);
            return None;
        };
        let stream = (0..1_000).find_map(|_| {
            std::thread::sleep(Duration::from_millis(10));
            UnixStream::connect(&socket).ok()
        });
        let mut redis = Redis {
            server,
            folder,
            stream: stream.expect("redis-server listens on its socket"),
            received: Vec::new(),
            version: (0, 0),
        };
        let info = redis.call(&super::words("INFO server")).text();
        let version = info.split("redis_version:").nth(1).expect("a version");
        let mut numbers = version.split('.').map(|n| n.parse().expect("a number"));
        redis.version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        Some(redis)
    }

    /// Runs one command.
    pub fn call(&mut self, command: &Command) -> Reply {
        self.call_all(std::iter::once(command)).remove(0)
    }

    /// Runs commands in one write.
    pub fn call_all<'a>(&mut self, commands: impl Iterator<Item = &'a Command>) -> Vec<Reply> {
        let (mut request, mut count) = (Vec::new(), 0);
        for command in commands {
            request.extend_from_slice(format!("*{}\r\n", command.len()).as_bytes());
            for word in command {
                request.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
                request.extend_from_slice(word);
                request.extend_from_slice(b"\r\n");
            }
            count += 1;
        }
        self.stream.write_all(&request).expect("the server reads");
        (0..count).map(|_| self.read_reply()).collect()
    }

    fn read_reply(&mut self) -> Reply {
        loop {
            if let Some((reply, used)) = Reply::parse(&self.received) {
                self.received.drain(..used);
                return reply;
            }
            let mut chunk = [0; 64 * 1024];
            let n = self.stream.read(&mut chunk).expect("the server answers");
            assert!(n > 0, "the server closed the connection");
            self.received.extend_from_slice(&chunk[..n]);
        }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
