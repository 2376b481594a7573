//! A small blocking RESP client, written for tests alone: it shares no code with the product.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::ring::PATIENCE;

/// One reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Simple(String),
    Error(String),
    Int(i64),
    Bulk(Vec<u8>),
    Nil,
    Array(Vec<Reply>),
}

impl Reply {
    pub fn text(&self) -> String {
        match self {
            Reply::Simple(s) | Reply::Error(s) => s.clone(),
            Reply::Int(n) => n.to_string(),
            Reply::Bulk(b) => String::from_utf8_lossy(b).into_owned(),
            Reply::Nil => "(nil)".into(),
            Reply::Array(a) => a.iter().map(Reply::text).collect::<Vec<_>>().join("\n"),
        }
    }

    pub fn is_error(&self) -> bool {
        matches!(self, Reply::Error(_))
    }
}

pub fn bulk(text: impl AsRef<[u8]>) -> Reply {
    Reply::Bulk(text.as_ref().to_vec())
}

pub fn ok() -> Reply {
    Reply::Simple("OK".into())
}

/// The bytes of one request.
pub fn encode<A: AsRef<[u8]>>(args: &[A]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        let arg = arg.as_ref();
        out.extend(format!("${}\r\n", arg.len()).bytes());
        out.extend(arg);
        out.extend(b"\r\n");
    }
    out
}

pub struct Client {
    stream: TcpStream,
    buf: Vec<u8>,
    at: usize,
}

impl Client {
    pub fn connect(port: u16) -> Client {
        Client::try_connect(port).unwrap_or_else(|e| panic!("connect to port {port}: {e}"))
    }

    pub fn try_connect(port: u16) -> io::Result<Client> {
        Client::try_connect_to("127.0.0.1", port)
    }

    pub fn try_connect_to(host: &str, port: u16) -> io::Result<Client> {
        let stream = TcpStream::connect((host, port))?;
        stream.set_nodelay(true)?;
        // A bound against hangs; no test's outcome depends on it.
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Client { stream, buf: Vec::new(), at: 0 })
    }

    /// Gives up on a reply after this time.
    pub fn give_up_after(&self, time: Duration) {
        self.stream.set_read_timeout(Some(time)).expect("timeout set");
    }

    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    pub fn stream(&self) -> TcpStream {
        self.stream.try_clone().expect("a second handle")
    }

    pub fn call<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Reply {
        self.try_call(args).unwrap_or_else(|e| panic!("{}: {e}", show(args)))
    }

    pub fn try_call<A: AsRef<[u8]>>(&mut self, args: &[A]) -> io::Result<Reply> {
        self.send(&encode(args))?;
        self.reply()
    }

    /// All lines of memcache's `stats`.
    pub fn memcache_stats(&mut self) -> io::Result<String> {
        self.send(b"stats\r\n")?;
        let mut text = String::new();
        loop {
            let line = String::from_utf8_lossy(&self.line()?).into_owned();
            if line == "END" {
                return Ok(text);
            }
            text.push_str(&line);
            text.push('\n');
        }
    }

    pub fn reply(&mut self) -> io::Result<Reply> {
        let line = self.line()?;
        let text = String::from_utf8_lossy(&line[1..]).into_owned();
        let number = || text.parse::<i64>().map_err(|_| bad(&text));
        Ok(match line[0] {
            b'+' => Reply::Simple(text),
            b'-' => Reply::Error(text),
            b':' => Reply::Int(number()?),
            b'$' => match usize::try_from(number()?) {
                Err(_) => Reply::Nil,
                Ok(len) => {
                    self.fill(len + 2)?;
                    let bytes = self.buf[self.at..self.at + len].to_vec();
                    self.at += len + 2;
                    Reply::Bulk(bytes)
                }
            },
            b'*' => match usize::try_from(number()?) {
                Err(_) => Reply::Nil,
                Ok(len) => self.array(len)?,
            },
            // A map of RESP3, as its keys and values.
            b'%' => self.array(2 * usize::try_from(number()?).map_err(|_| bad(&text))?)?,
            b'_' => Reply::Nil,
            other => return Err(bad(&format!("type byte {other:#x}"))),
        })
    }

    fn array(&mut self, len: usize) -> io::Result<Reply> {
        Ok(Reply::Array((0..len).map(|_| self.reply()).collect::<Result<_, _>>()?))
    }

    /// Everything up to and with `end`.
    pub fn until(&mut self, end: &[u8]) -> io::Result<Vec<u8>> {
        loop {
            let rest = &self.buf[self.at..];
            if let Some(at) = rest.windows(end.len()).position(|w| w == end) {
                let bytes = rest[..at + end.len()].to_vec();
                self.at += bytes.len();
                return Ok(bytes);
            }
            self.read_more()?;
        }
    }

    /// One line, without its end.
    pub fn line(&mut self) -> io::Result<Vec<u8>> {
        loop {
            let rest = &self.buf[self.at..];
            if let Some(end) = rest.windows(2).position(|w| w == b"\r\n") {
                let line = rest[..end].to_vec();
                self.at += end + 2;
                return Ok(line);
            }
            self.read_more()?;
        }
    }

    fn fill(&mut self, len: usize) -> io::Result<()> {
        while self.buf.len() - self.at < len {
            self.read_more()?;
        }
        Ok(())
    }

    fn read_more(&mut self) -> io::Result<()> {
        if self.at > 1 << 20 || self.at == self.buf.len() {
            self.buf.drain(..self.at);
            self.at = 0;
        }
        let old = self.buf.len();
        self.buf.resize(old + (256 << 10), 0);
        let read = self.stream.read(&mut self.buf[old..]);
        self.buf.truncate(old + *read.as_ref().unwrap_or(&0));
        match read? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

fn show<A: AsRef<[u8]>>(args: &[A]) -> String {
    let words = args.iter().map(|a| String::from_utf8_lossy(a.as_ref()).into_owned());
    words.collect::<Vec<_>>().join(" ")
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not RESP: {what}"))
}
