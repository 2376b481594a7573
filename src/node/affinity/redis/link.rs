//! What a store tells and answers, in the order in which it did things.
//!
//! With RESP3 one connection carries both: a page of SCAN, or DBSIZE, says what was true between
//! two events, and nothing has to be guessed. An event after a page is newer than the page, and a
//! key that went is in no later page. That is what a set of tombstones would be for, where pages
//! and events came by different ways.
//!
//! Stores before Redis 6.0 speak RESP2, in which a connection that is told of events cannot ask
//! anything. They are asked on another one, and every question goes with a message to the first:
//!
//! ```text
//! MULTI, PUBLISH mark, question, EXEC  ──▶ store ──▶ event, event, mark, event, ..
//!                                               └──▶ answer: it belongs where the mark is
//! ```

use std::collections::VecDeque;
use std::io;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::reply::{Value, parse};
use super::{RedisStore, Trouble};
use crate::net::clock::wall_us;
use crate::proto::resp::encode;

/// Every event of the first database: the only one nodes use.
const EVENTS: &str = "__keyevent@0__:*";

/// What comes next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// This happened to a key.
    Event {
        /// The name of the event.
        what: Vec<u8>,
        /// The key.
        key: Vec<u8>,
    },
    /// What was asked for first, of what has no answer yet, has this one.
    Answer(Value),
}

pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Sync + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> Stream for T {}

/// A store that is asked and listened to.
pub(super) struct Link {
    /// Takes questions; with RESP3 it tells of events too.
    asked: Wire,
    /// Tells of events with RESP2.
    marked: Option<Marked>,
}

/// A connection that tells of events, and where between them the answers of another belong.
struct Marked {
    told: Wire,
    /// The channel of the marks.
    channel: String,
    subscribed: bool,
    /// Answers whose mark did not come yet.
    answers: VecDeque<Value>,
    /// A mark came, and its answer did not yet.
    owed: bool,
}

impl Link {
    /// Connects, and says who this is. With RESP3 if the store knows it.
    pub(super) async fn open(store: &RedisStore) -> Result<Link, Trouble> {
        let mut link = Link::new(store.connect().await?);
        let mut words = vec!["HELLO", "3"];
        if let Some(password) = &store.password {
            words.extend(["AUTH", store.user.as_deref().unwrap_or("default"), password]);
        }
        match link.ask(&words, "HELLO 3").await {
            Err(Trouble::Refused(text, _)) if knows_no_resp3(&text) => {
                let told = store.connect().await?;
                let channel = format!("torc:{:x}:{:x}", std::process::id(), wall_us());
                link.listen_on(told, channel);
                link.authenticate(store).await?;
            }
            other => drop(other?),
        }
        Ok(link)
    }

    pub(super) fn new(stream: Box<dyn Stream>) -> Link {
        Link { asked: Wire::new(stream), marked: None }
    }

    /// Events come on this connection, and answers where messages on `channel` mark it.
    pub(super) fn listen_on(&mut self, stream: Box<dyn Stream>, channel: String) {
        self.marked = Some(Marked {
            told: Wire::new(stream),
            channel,
            subscribed: false,
            answers: VecDeque::new(),
            owed: false,
        });
    }

    async fn authenticate(&mut self, store: &RedisStore) -> Result<(), Trouble> {
        let Some(password) = &store.password else { return Ok(()) };
        let words: Vec<&str> =
            ["AUTH"].into_iter().chain(store.user.as_deref()).chain([&**password]).collect();
        self.asked.ask(&words, "AUTH").await?;
        if let Some(marked) = &mut self.marked {
            marked.told.ask(&words, "AUTH").await?;
        }
        Ok(())
    }

    /// Events come from here on.
    pub(super) async fn subscribe(&mut self) -> Result<(), Trouble> {
        let Some(marked) = &mut self.marked else {
            return self.asked.ask(&["PSUBSCRIBE", EVENTS], "PSUBSCRIBE").await.map(drop);
        };
        // Nobody would hear of it any more when it was refused later.
        self.asked.ask(&["PUBLISH", &marked.channel, ""], "PUBLISH").await?;
        marked.told.ask(&["SUBSCRIBE", &marked.channel], "SUBSCRIBE").await?;
        marked.told.ask(&["PSUBSCRIBE", EVENTS], "PSUBSCRIBE").await?;
        marked.subscribed = true;
        Ok(())
    }

    /// Puts one question and awaits its answer, before there are events and other questions.
    pub(super) async fn ask(
        &mut self,
        words: &[&str],
        what: &'static str,
    ) -> Result<Value, Trouble> {
        self.asked.ask(words, what).await
    }

    /// Puts a question; its answer comes in its turn.
    pub(super) async fn put(&mut self, words: &[&[u8]]) -> io::Result<()> {
        let Some(marked) = self.marked.as_ref().filter(|marked| marked.subscribed) else {
            return self.asked.put(&[words]).await;
        };
        let mark: &[&[u8]] = &[b"PUBLISH", marked.channel.as_bytes(), b""];
        self.asked.put(&[&[b"MULTI"], mark, words, &[b"EXEC"]]).await
    }

    /// What comes next. Nothing is lost when it is not awaited to the end.
    pub(super) async fn next(&mut self) -> Result<Item, Trouble> {
        loop {
            if let Some(item) = self.ready()? {
                return Ok(item);
            }
            match &mut self.marked {
                None => self.asked.read().await?,
                Some(marked) => tokio::select! {
                    read = self.asked.read() => read?,
                    read = marked.told.read() => read?,
                },
            }
        }
    }

    /// What comes next, if it is here already.
    pub(super) fn ready(&mut self) -> Result<Option<Item>, Trouble> {
        if let Some(marked) = &mut self.marked {
            return marked.ready(&mut self.asked);
        }
        while let Some(value) = self.asked.ready()? {
            match value {
                Value::Push(items) => {
                    if let Some(event) = event(items) {
                        return Ok(Some(event));
                    }
                }
                answer => return Ok(Some(Item::Answer(answer))),
            }
        }
        Ok(None)
    }
}

impl Marked {
    fn ready(&mut self, asked: &mut Wire) -> Result<Option<Item>, Trouble> {
        while let Some(value) = asked.ready()? {
            match value {
                // Of EXEC: what PUBLISH answers, and what the question does.
                Value::Array(mut both) if both.len() == 2 => self.answers.extend(both.pop()),
                Value::Line(_) => {}
                Value::Error(text) => return Err(Trouble::Refused(text, "MULTI and EXEC")),
                _ => return Err(Trouble::Unreadable),
            }
        }
        loop {
            if self.owed {
                let answer = self.answers.pop_front();
                self.owed = answer.is_none();
                return Ok(answer.map(Item::Answer));
            }
            let Some(value) = self.told.ready()? else { return Ok(None) };
            let Value::Array(items) = value else { return Err(Trouble::Unreadable) };
            if let [Value::Bulk(kind), Value::Bulk(channel), _] = &items[..] {
                self.owed = kind == b"message" && channel == self.channel.as_bytes();
            } else if let Some(event) = event(items) {
                return Ok(Some(event));
            }
        }
    }
}

/// A store before Redis 6.0, or one that has no RESP3 at all.
fn knows_no_resp3(error: &str) -> bool {
    let error = error.to_ascii_lowercase();
    error.contains("unknown command") || error.starts_with("noproto")
}

/// `pmessage`, the pattern, `__keyevent@0__:what`, the key; none for anything else.
fn event(items: Vec<Value>) -> Option<Item> {
    let [Value::Bulk(kind), _, Value::Bulk(mut channel), Value::Bulk(key)] =
        <[Value; 4]>::try_from(items).ok()?
    else {
        return None;
    };
    if kind != b"pmessage" {
        return None;
    }
    let colon = channel.iter().position(|byte| *byte == b':')?;
    Some(Item::Event { what: channel.split_off(colon + 1), key })
}

/// One connection.
struct Wire {
    stream: Box<dyn Stream>,
    buf: BytesMut,
}

impl Wire {
    fn new(stream: Box<dyn Stream>) -> Wire {
        Wire { stream, buf: BytesMut::new() }
    }

    async fn ask(&mut self, words: &[&str], what: &'static str) -> Result<Value, Trouble> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        self.put(&[&words]).await?;
        loop {
            match self.ready()? {
                None => self.read().await?,
                Some(Value::Error(text)) => return Err(Trouble::Refused(text, what)),
                Some(value) => return Ok(value),
            }
        }
    }

    /// Sends requests, at once.
    async fn put(&mut self, requests: &[&[&[u8]]]) -> io::Result<()> {
        let mut bytes = Vec::new();
        for words in requests {
            encode::command(&mut bytes, words.iter().copied());
        }
        self.stream.write_all(&bytes).await
    }

    fn ready(&mut self) -> Result<Option<Value>, Trouble> {
        let Some((value, len)) = parse(&self.buf).map_err(|_| Trouble::Unreadable)? else {
            return Ok(None);
        };
        self.buf.advance(len);
        Ok(Some(value))
    }

    async fn read(&mut self) -> Result<(), Trouble> {
        match self.stream.read_buf(&mut self.buf).await? {
            0 => Err(Trouble::Closed),
            _ => Ok(()),
        }
    }
}
