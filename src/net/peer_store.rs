//! Questions to the datastore of another torc node, on a connection of its own: many at a time,
//! answered in their order. What runs there is what was asked, whoever owns the keys.

use std::io;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::control_link::{Head, Opened, open, put_frame};
use super::names::Names;
use super::secure::LinkSecurity;
use crate::gossip::Addr;
use crate::proto::dnode::crypto::{BodyCipher, ChunkCipher};
use crate::proto::dnode::{Ext, HeaderDecoder, HeaderLimits, MsgType};
use crate::proto::resp::encode;
use crate::stamp::Stamp;

/// How long connecting, and each answer, may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a datastore answered.
#[derive(Debug)]
pub struct Answer {
    /// The reply, in RESP2.
    pub reply: Vec<u8>,
    /// When the key it is about was last written; none for a store that does not know.
    pub stamp: Stamp,
}

/// A connection to a node of the own datacenter.
pub struct PeerStore {
    stream: TcpStream,
    cipher: Option<Box<ChunkCipher>>,
    received: BytesMut,
    asked: u64,
}

impl PeerStore {
    /// Connects. `same_rack` decides with the security option whether the link is encrypted;
    /// `probe` is the question a link begins with.
    ///
    /// # Errors
    /// The node is not reached, is no torc node, or answers otherwise than it must.
    pub async fn open(
        to: &Addr,
        same_rack: bool,
        probe: &[u8],
        security: Option<&LinkSecurity>,
        names: &Names,
    ) -> io::Result<PeerStore> {
        let security = security.filter(|s| s.option.encrypts(true, same_rack)).cloned();
        let opening = open(to, true, Some(probe), security, names);
        match tokio::time::timeout(PATIENCE, opening).await?? {
            Opened::Ready(stream, cipher) => {
                Ok(PeerStore { stream, cipher, received: BytesMut::new(), asked: 0 })
            }
            Opened::NotTorc => Err(io::Error::other("it is no torc node")),
        }
    }

    /// Asks some commands, each given by its words; the answers come in the same order.
    ///
    /// # Errors
    /// The connection is lost or makes no sense. It cannot be used any more.
    pub async fn ask<'a, C>(&mut self, commands: C) -> io::Result<Vec<Answer>>
    where
        C: IntoIterator<Item: IntoIterator<Item = &'a [u8], IntoIter: ExactSizeIterator>>,
    {
        let ext = Ext { stamp: Some(Stamp::NONE), ..Ext::default() }.encode();
        let (mut bytes, mut body, mut count) = (Vec::new(), Vec::new(), 0);
        for words in commands {
            body.clear();
            encode::command(&mut body, words);
            count += 1;
            let id = self.asked + count;
            let head = Head { id, kind: MsgType::Req, same_dc: true, data: ext.as_slice() };
            put_frame(&mut bytes, &head, &body, self.cipher.as_deref());
        }
        tokio::time::timeout(PATIENCE, self.stream.write_all(&bytes)).await??;
        let mut answers = Vec::with_capacity(count as usize);
        for _ in 0..count {
            self.asked += 1;
            answers.push(tokio::time::timeout(PATIENCE, self.answer()).await??);
        }
        Ok(answers)
    }

    /// The answer to the request that was asked first of those that are not answered.
    async fn answer(&mut self) -> io::Result<Answer> {
        let mut decoder = HeaderDecoder::default();
        let header = loop {
            match decoder.decode(&self.received, &HeaderLimits::default()) {
                Ok(Some(header)) => break header,
                Ok(None) => self.read_more().await?,
                Err(error) => return Err(io::Error::other(error)),
            }
        };
        let end = header.len + header.plen as usize;
        while self.received.len() < end {
            self.read_more().await?;
        }
        if header.id != self.asked || header.encrypted() != self.cipher.is_some() {
            return Err(io::Error::other("an answer to something else"));
        }
        let ext = Ext::parse(header.data.of(&self.received));
        let body = &self.received[header.len..end];
        let mut reply = Vec::new();
        match &self.cipher {
            None => reply.extend_from_slice(body),
            Some(cipher) => cipher.open(body, &mut reply).map_err(io::Error::other)?,
        }
        self.received.advance(end);
        Ok(Answer { reply, stamp: ext.stamp.unwrap_or_default() })
    }

    async fn read_more(&mut self) -> io::Result<()> {
        match self.stream.read_buf(&mut self.received).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}
