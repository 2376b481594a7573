//! One connection to a store that is followed, from its beginning to its end.
//!
//! Nothing waits for an answer: questions are put when they are due, and what comes is taken in
//! the order in which it comes, events and answers. So a listing goes on for as long as it takes,
//! while events are told and the number of keys is compared.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::events::{Said, missing, said};
use super::link::{Item, Link};
use super::reply::Value;
use super::{RedisStore, StoreNews, Trouble, hash, load_of};
use crate::affinity::following::Way;
use crate::affinity::member::Change;
use crate::affinity::observed::ObservedWrites;
use crate::ckf::hashing::SequenceHash;
use crate::node::affinity::Told;

/// Keys of one page of SCAN, about.
const PAGE_KEYS: &[u8] = b"512";
/// The pause between two pages, while it is not known what the store holds.
pub(super) const PAGE_PAUSE: Duration = Duration::from_millis(5);
/// The same while it is: the store is in no hurry.
const RESCAN_PAUSE: Duration = Duration::from_millis(20);
/// How often the number of keys is compared.
const COMPARE_EVERY: Duration = Duration::from_secs(1);
/// Comparisons that come due without an answer, after which the store is silent.
const UNANSWERED_MAX: u32 = 10;
/// Questions about single keys that have no answer yet; more wait.
const LOOKS_AT_ONCE: usize = 128;
/// Keys that wait to be asked about; with more the store must be listed.
const LOOKS_MAX: usize = 65_536;
/// Why it is listed then.
const TOO_MANY: &str = "more keys were changed than could be asked about";
/// How often the node's own writes are taken, where the store tells of nothing.
pub(super) const OBSERVE_EVERY: Duration = Duration::from_millis(100);

/// A question that has no answer yet.
enum Question {
    /// A page of the listing that has this number.
    Page(u64),
    Size,
    Load,
    /// Whether this key is there.
    Look(SequenceHash),
}

/// The listing that is under way.
struct Listing {
    number: u64,
    /// Whether it is known what the store holds.
    rescan: bool,
}

/// One connection.
pub(super) struct Follower {
    link: Link,
    told: mpsc::Sender<Told>,
    way: Way,
    /// The pause after a listing, for a store that is listed again and again.
    rescan_after: Duration,
    /// Whether it may be asked how full it is.
    tells_load: bool,
    observed: Arc<ObservedWrites>,
    /// Keys the node wrote a moment ago: the store may not have done it yet.
    written: Vec<Box<[u8]>>,
    asked: VecDeque<Question>,
    /// Of `asked`, those about single keys.
    looks: usize,
    /// Keys to be asked about.
    doubtful: VecDeque<Box<[u8]>>,
    changes: Vec<Change>,
    listing: Option<Listing>,
    /// Where it goes on: the cursor of the page to ask for when it is due.
    cursor: Option<Vec<u8>>,
    listings: u64,
    was_listed: bool,
    /// Comparisons that came due since the last answer.
    unanswered: u32,
}

impl Follower {
    /// Gets in, and agrees on the events the store sends.
    pub(super) async fn enter(
        mut link: Link,
        store: &RedisStore,
        told: mpsc::Sender<Told>,
    ) -> Result<Follower, Trouble> {
        let way = agree(&mut link).await?;
        let tells_load = match link.ask(&["INFO", "memory"], "INFO memory").await {
            Ok(_) => true,
            Err(Trouble::Refused(..)) => false,
            Err(trouble) => return Err(trouble),
        };
        link.subscribe().await?;
        store.observed.want(way == Way::Observed);
        let observed = Arc::clone(&store.observed);
        Ok(Follower { tells_load, ..Follower::new(link, way, store.rescan_after, observed, told) })
    }

    pub(super) fn new(
        link: Link,
        way: Way,
        rescan_after: Duration,
        observed: Arc<ObservedWrites>,
        told: mpsc::Sender<Told>,
    ) -> Follower {
        Follower {
            link,
            told,
            way,
            rescan_after,
            tells_load: true,
            observed,
            written: Vec::new(),
            asked: VecDeque::new(),
            looks: 0,
            doubtful: VecDeque::new(),
            changes: Vec::new(),
            listing: None,
            cursor: None,
            listings: 0,
            was_listed: false,
            unanswered: 0,
        }
    }

    /// Whether the store was ever listed to its end.
    pub(super) fn was_listed(&self) -> bool {
        self.was_listed
    }

    /// Follows; `rescan` says that the store must be listed again. Ends well only when nobody
    /// listens any more.
    pub(super) async fn run(&mut self, rescan: &mut mpsc::Receiver<()>) -> Result<(), Trouble> {
        self.tell(StoreNews::Followed(self.way)).await;
        self.list("the store is being listed").await?;
        let mut compare = interval(COMPARE_EVERY);
        compare.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut observe = interval(OBSERVE_EVERY);
        observe.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let due = sleep(PAGE_PAUSE);
        tokio::pin!(due);
        loop {
            tokio::select! {
                item = self.link.next() => {
                    let mut pause = self.take(item?).await?;
                    while let Some(item) = self.link.ready()? {
                        pause = self.take(item).await?.or(pause);
                    }
                    if let Some(pause) = pause {
                        due.set(sleep(pause));
                    }
                }
                _ = compare.tick() => self.compare().await?,
                _ = observe.tick(), if self.way == Way::Observed => self.observe().await?,
                () = &mut due, if self.is_due() => self.go_on().await?,
                wanted = rescan.recv() => match wanted {
                    Some(()) => self.list("the store changed without events").await?,
                    None => return Ok(()),
                },
            }
            self.look().await?;
            self.tell_changes().await;
        }
    }

    /// Whether something is to be done when the pause is over.
    fn is_due(&self) -> bool {
        self.cursor.is_some() || (self.listing.is_none() && self.way.rescans())
    }

    /// Lists the store from its beginning, because it is not known what it holds.
    async fn list(&mut self, why: &str) -> Result<(), Trouble> {
        // The listing finds them.
        self.doubtful.clear();
        self.tell(StoreNews::Unsure(why.to_owned())).await;
        self.begin_listing(false).await;
        self.ask_page().await
    }

    async fn begin_listing(&mut self, rescan: bool) {
        self.tell(StoreNews::Listing).await;
        self.listings += 1;
        self.listing = Some(Listing { number: self.listings, rescan });
        self.cursor = Some(b"0".to_vec());
    }

    /// The pause is over: the listing goes on, or a rescan begins.
    async fn go_on(&mut self) -> Result<(), Trouble> {
        if self.listing.is_none() {
            self.begin_listing(true).await;
        }
        self.ask_page().await
    }

    async fn ask_page(&mut self) -> Result<(), Trouble> {
        let (Some(listing), Some(cursor)) = (&self.listing, self.cursor.take()) else {
            return Ok(());
        };
        self.asked.push_back(Question::Page(listing.number));
        Ok(self.link.put(&[b"SCAN", &cursor, b"COUNT", PAGE_KEYS]).await?)
    }

    async fn compare(&mut self) -> Result<(), Trouble> {
        self.unanswered += 1;
        if self.unanswered > UNANSWERED_MAX {
            return Err(Trouble::Silent);
        }
        // One comparison at a time.
        if self.unanswered == 1 {
            self.asked.push_back(Question::Size);
            self.link.put(&[b"DBSIZE"]).await?;
            if self.tells_load {
                self.asked.push_back(Question::Load);
                self.link.put(&[b"INFO", b"memory"]).await?;
            }
        }
        Ok(())
    }

    /// What the node wrote is to be asked about: what it wrote before the last time now, which is
    /// long enough for the store to have done it.
    async fn observe(&mut self) -> Result<(), Trouble> {
        let changed = self.observed.take();
        let written = std::mem::replace(&mut self.written, changed.keys);
        self.doubtful.extend(written);
        if changed.others || self.doubtful.len() > LOOKS_MAX {
            self.list(TOO_MANY).await?;
        }
        Ok(())
    }

    /// Asks about keys of which it is not known whether they are there.
    async fn look(&mut self) -> Result<(), Trouble> {
        while self.looks < LOOKS_AT_ONCE
            && let Some(key) = self.doubtful.pop_front()
        {
            self.looks += 1;
            self.asked.push_back(Question::Look(hash(&key)));
            self.link.put(&[b"EXISTS", &key]).await?;
        }
        Ok(())
    }

    /// Takes what came; gives the pause before the next page, after one that came.
    async fn take(&mut self, item: Item) -> Result<Option<Duration>, Trouble> {
        match item {
            Item::Event { what, key } => {
                self.take_event(&what, key).await?;
                Ok(None)
            }
            Item::Answer(value) => self.take_answer(value).await,
        }
    }

    async fn take_event(&mut self, what: &[u8], key: Vec<u8>) -> Result<(), Trouble> {
        match said(self.way, what) {
            Said::There => self.changes.push(Change::Stored(hash(&key))),
            Said::Gone => self.changes.push(Change::Removed(hash(&key))),
            Said::Perhaps if self.doubtful.len() < LOOKS_MAX => {
                self.doubtful.push_back(key.into());
            }
            Said::Perhaps => self.list(TOO_MANY).await?,
            Said::Nothing => {}
        }
        Ok(())
    }

    async fn take_answer(&mut self, value: Value) -> Result<Option<Duration>, Trouble> {
        let question = self.asked.pop_front().ok_or(Trouble::Unreadable)?;
        match (question, value) {
            (Question::Page(number), Value::Array(page)) => self.take_page(number, &page).await,
            (Question::Size, Value::Int(size)) => {
                self.unanswered = 0;
                // Keys that are being asked about may or may not be among those that were counted.
                if size == 0 || (self.looks == 0 && self.doubtful.is_empty()) {
                    self.tell(StoreNews::Size(size.max(0) as u64)).await;
                }
                Ok(None)
            }
            (Question::Look(key), Value::Int(found)) => {
                self.looks -= 1;
                self.changes.push(match found {
                    0 => Change::Removed(key),
                    _ => Change::Stored(key),
                });
                Ok(None)
            }
            // A store that may not be asked this is followed all the same.
            (Question::Load, info) => {
                self.tell(StoreNews::Load(info.text().and_then(load_of))).await;
                Ok(None)
            }
            (Question::Page(_), Value::Error(text)) => Err(Trouble::Refused(text, "SCAN")),
            (Question::Size, Value::Error(text)) => Err(Trouble::Refused(text, "DBSIZE")),
            (Question::Look(_), Value::Error(text)) => Err(Trouble::Refused(text, "EXISTS")),
            _ => Err(Trouble::Unreadable),
        }
    }

    async fn take_page(
        &mut self,
        number: u64,
        page: &[Value],
    ) -> Result<Option<Duration>, Trouble> {
        let listing = self.listing.as_ref().filter(|listing| listing.number == number);
        // One that was begun anew has other pages.
        let Some(rescan) = listing.map(|listing| listing.rescan) else { return Ok(None) };
        let pause = if rescan { RESCAN_PAUSE } else { PAGE_PAUSE };
        let [Value::Bulk(next), keys] = page else { return Err(Trouble::Unreadable) };
        let keys = keys.items().iter().filter_map(Value::bytes).map(hash).collect();
        self.tell(StoreNews::Page(keys)).await;
        if next == b"0" {
            if !rescan {
                tracing::info!("affinity follows the store: {}", self.way.words());
            }
            (self.listing, self.was_listed) = (None, true);
            self.tell(StoreNews::Listed).await;
            return Ok(Some(self.rescan_after));
        }
        self.cursor = Some(next.clone());
        Ok(Some(pause))
    }

    /// Tells something, after the changes that were before it.
    async fn tell(&mut self, news: StoreNews) {
        self.tell_changes().await;
        // It fails only while the node stops.
        let _ = self.told.send(Told::Store(news)).await;
    }

    async fn tell_changes(&mut self) {
        if !self.changes.is_empty() {
            let changes = StoreNews::Changed(std::mem::take(&mut self.changes));
            let _ = self.told.send(Told::Store(changes)).await;
        }
    }
}

/// Has the store send the best events it knows. Flags the operator set stay.
pub(super) async fn agree(link: &mut Link) -> Result<Way, Trouble> {
    let name = "notify-keyspace-events";
    let what = "CONFIG GET notify-keyspace-events; affinity has to see the flags Engxe there, or \
                EA before Redis 7.0: allow this command (ACL: +config|get)";
    let reply = link.ask(&["CONFIG", "GET", name], what).await?;
    let set = reply.items().get(1).and_then(Value::text).unwrap_or_default().to_owned();
    let what = "CONFIG SET notify-keyspace-events; affinity needs the flags Engxe there, or EA \
                before Redis 7.0: set them in the store's configuration, or allow this command \
                (ACL: +config|set)";
    for way in [Way::Events, Way::OlderEvents, Way::Observed] {
        let missing = missing(way, &set);
        if missing.is_empty() {
            return Ok(way);
        }
        let wanted = format!("{set}{missing}");
        match link.ask(&["CONFIG", "SET", name, &wanted], what).await {
            Ok(_) => {
                tracing::info!("the store's notify-keyspace-events is \"{wanted}\" now");
                return Ok(way);
            }
            Err(Trouble::Refused(..)) => {}
            Err(trouble) => return Err(trouble),
        }
    }
    // It knows none of them, unless it takes no flags at all from this node.
    link.ask(&["CONFIG", "SET", name, &set], what).await.map(|_| Way::Observed)
}
