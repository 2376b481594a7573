//! A small blocking RESP client, for the subcommands that ask a running node.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::proto::resp::encode;
use crate::proto::resp::reply::{ReplyLimits, ReplyScanner, elements, text};

/// How long a node may take to answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Why a node could not be asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// No connection, or it broke.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It answered with an error, or with something that is no list of texts.
    #[error("{0}")]
    Answer(String),
}

/// A connection to a node's client port.
pub(super) struct Connection {
    stream: TcpStream,
}

impl Connection {
    /// Connects to `host:port`.
    pub(super) fn open(address: &str) -> Result<Connection, Error> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream })
    }

    /// Sends one command and returns its raw reply.
    pub(super) fn call(&mut self, words: &[&str]) -> Result<Vec<u8>, Error> {
        let mut request = Vec::new();
        encode::command(&mut request, words.iter().map(|w| w.as_bytes()));
        self.stream.write_all(&request)?;
        let mut reply = Vec::new();
        let mut scanner = ReplyScanner::default();
        let mut chunk = [0u8; 16 * 1024];
        loop {
            let found = scanner.scan(&reply, &ReplyLimits::default());
            if found.map_err(|e| Error::Answer(e.to_string()))?.is_some() {
                break;
            }
            match self.stream.read(&mut chunk)? {
                0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                n => reply.extend_from_slice(&chunk[..n]),
            }
        }
        if reply.first() == Some(&b'-') {
            let line = String::from_utf8_lossy(&reply[1..]).trim().to_owned();
            return Err(Error::Answer(line));
        }
        Ok(reply)
    }

    /// Sends one command whose reply is a text or a list of texts.
    pub(super) fn lines(&mut self, words: &[&str]) -> Result<Vec<String>, Error> {
        let reply = self.call(words)?;
        let owned = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(match text(&reply) {
            Some(one) => one.split(|b| *b == b'\n').map(|l| owned(l).trim_end().into()).collect(),
            None => elements(&reply).filter_map(text).map(owned).collect(),
        })
    }
}
