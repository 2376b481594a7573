//! A store of the test's own, and a blocking connection to it.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use torc::proto::args::Args;
use torc::proto::resp::inline;

/// A running store; it ends with the value.
pub(crate) struct Server {
    child: Child,
    port: u16,
}

impl Server {
    /// A redis-server without persistence, or `None` with a line that says *skipped*.
    pub(crate) fn redis(test: &str) -> Option<Server> {
        let program = std::env::var("REDIS_BIN").unwrap_or_else(|_| "redis-server".into());
        Server::start(test, &program, |port| {
            let args = [
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--loglevel",
                "warning",
                "--enable-debug-command",
                "yes",
                "--port",
            ];
            args.iter().map(ToString::to_string).chain([port.to_string()]).collect()
        })
    }

    /// A memcached, or `None` with a line that says *skipped*.
    pub(crate) fn memcached(test: &str) -> Option<Server> {
        let program = std::env::var("MEMCACHED_BIN").unwrap_or_else(|_| "memcached".into());
        // It does not run as root without being told a user; others ignore the option.
        Server::start(test, &program, |port| {
            let args = ["-l", "127.0.0.1", "-U", "0", "-u", "root", "-p"];
            args.iter().map(ToString::to_string).chain([port.to_string()]).collect()
        })
    }

    fn start(test: &str, program: &str, args: impl Fn(u16) -> Vec<String>) -> Option<Server> {
        // The port may be taken between here and the store's own bind: then try another one.
        for _ in 0..5 {
            let port = TcpListener::bind("127.0.0.1:0").ok()?.local_addr().ok()?.port();
            let spawned = Command::new(program)
                .args(args(port))
                .current_dir(std::env::temp_dir())
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn();
            let Ok(child) = spawned else {
                eprintln!("{test}: skipped, {program} cannot be started");
                return None;
            };
            let mut server = Server { child, port };
            if server.is_up() {
                return Some(server);
            }
        }
        panic!("{program} does not come up");
    }

    fn is_up(&mut self) -> bool {
        while matches!(self.child.try_wait(), Ok(None)) {
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    }

    pub(crate) fn connect(&self) -> Connection {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).expect("the store accepts");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout can be set");
        stream.set_nodelay(true).expect("nodelay can be set");
        Connection { stream, buf: Vec::new() }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Nothing to do when it has already gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A request from a line of text, split as inline requests are.
pub(crate) fn request<T>(line: &str, with: impl FnOnce(&[u8], &Args<'_>) -> T) -> T {
    let (mut frame, mut spans) = (Vec::new(), Vec::new());
    inline::rewrite(line.as_bytes(), &mut frame, &mut spans).expect(line);
    with(&frame, &Args::new(&frame, &spans))
}

pub(crate) struct Connection {
    stream: TcpStream,
    buf: Vec<u8>,
}

impl Connection {
    /// Sends a line as a request and gives the whole reply, RESP2 or RESP3.
    pub(crate) fn call(&mut self, line: &str) -> Vec<u8> {
        request(line, |frame, _| self.send(frame));
        self.reply()
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the store reads");
    }

    /// One reply of either protocol version.
    pub(crate) fn reply(&mut self) -> Vec<u8> {
        let mut left = 1usize;
        let mut at = 0;
        while left > 0 {
            let end = self.line_end(at);
            let head = String::from_utf8_lossy(&self.buf[at + 1..end - 2]).into_owned();
            let count = || head.parse::<i64>().unwrap_or(0).max(0) as usize;
            left -= 1;
            match self.buf[at] {
                b'$' | b'=' if !head.starts_with('-') => {
                    at = end + count() + 2;
                    self.fill(at);
                }
                b'*' | b'~' | b'>' => (left, at) = (left + count(), end),
                b'%' => (left, at) = (left + 2 * count(), end),
                _ => at = end,
            }
        }
        self.buf.drain(..at).collect()
    }

    /// Reads until what is there ends with `end`, and gives all of it.
    pub(crate) fn read_until(&mut self, end: &[u8]) -> Vec<u8> {
        while !self.buf.ends_with(end) {
            self.fill(self.buf.len() + 1);
        }
        std::mem::take(&mut self.buf)
    }

    /// One reply, by the scanner that is given what is there.
    pub(crate) fn reply_by(&mut self, mut scan: impl FnMut(&[u8]) -> Option<usize>) -> Vec<u8> {
        loop {
            if let Some(len) = scan(&self.buf) {
                return self.buf.drain(..len).collect();
            }
            self.fill(self.buf.len() + 1);
        }
    }

    fn line_end(&mut self, at: usize) -> usize {
        let mut from = at;
        loop {
            if let Some(i) = self.buf[from..].windows(2).position(|w| w == b"\r\n") {
                return from + i + 2;
            }
            from = self.buf.len().saturating_sub(1).max(at);
            self.fill(self.buf.len() + 1);
        }
    }

    /// Reads until `len` bytes are there.
    fn fill(&mut self, len: usize) {
        let mut chunk = [0; 16 << 10];
        while self.buf.len() < len {
            let read = self.stream.read(&mut chunk).expect("the store answers");
            assert!(read > 0, "the store closed the connection");
            self.buf.extend_from_slice(&chunk[..read]);
        }
    }
}
