use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use super::link::Item;
use super::reply::Value;
use super::*;

mod observed;

const REFUSED: &str = "-ERR Invalid argument 'Engxe' for CONFIG SET 'notify-keyspace-events'\r\n";

#[test]
fn a_stores_load_is_read_from_what_it_says_of_itself() {
    let info = |most: u64| {
        format!(
            "txt:# Memory\r\nused_memory:1024\r\nused_memory_human:1K\r\n\
             total_system_memory:5\r\nmaxmemory:{most}\r\nmaxmemory_policy:noeviction\r\n"
        )
    };
    let load = |total| Some(StoreLoad { used: 1024, total });
    assert_eq!(load_of(&info(4096)), load(Some(4096)));
    assert_eq!(load_of(&info(0)), load(None));
    assert_eq!(load_of("# Memory\r\n"), None);
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

fn event(what: &str, key: &str) -> String {
    let channel = format!("__keyevent@0__:{what}");
    [">4\r\n", &bulk("pmessage"), &bulk("__keyevent@0__:*"), &bulk(&channel), &bulk(key)].concat()
}

fn page(cursor: &str, keys: &[&str]) -> String {
    let keys: String = keys.iter().map(|key| bulk(key)).collect();
    format!("*2\r\n{}*{}\r\n{keys}", bulk(cursor), keys.matches('$').count())
}

/// A store that is played: it answers a question that contains a word, once, with what it is told
/// to, and all others as an empty store does. Ends with the connection, with all it was asked.
async fn play(mut store: DuplexStream, answers: Vec<(&'static str, String)>) -> String {
    let (mut asked, mut read) = (String::new(), 0);
    let mut answers = std::collections::VecDeque::from(answers);
    let mut bytes = [0; 4096];
    loop {
        while let Some(end) = question(&asked[read..]) {
            let words = asked[read..read + end].to_owned();
            read += end;
            let mut answer = match words.split("\r\n").nth(2) {
                Some("DBSIZE") => ":0\r\n".to_owned(),
                Some("SCAN") => page("0", &[]),
                Some("INFO") => "-NOPERM no\r\n".to_owned(),
                _ => String::new(),
            };
            if answers.front().is_some_and(|(word, _)| words.contains(word)) {
                answer = answers.pop_front().unwrap().1;
            }
            if store.write_all(answer.as_bytes()).await.is_err() {
                return asked;
            }
        }
        match store.read(&mut bytes).await {
            Ok(0) | Err(_) => return asked,
            Ok(count) => asked.push_str(std::str::from_utf8(&bytes[..count]).unwrap()),
        }
    }
}

/// The length of the question at the beginning, once it is whole.
fn question(text: &str) -> Option<usize> {
    reply::parse(text.as_bytes()).unwrap().map(|(_, len)| len)
}

fn follower(way: Way) -> (Follower, DuplexStream, mpsc::Receiver<Told>) {
    let (link, store) = tokio::io::duplex(4096);
    let (told, news) = mpsc::channel(64);
    let link = Link::new(Box::new(link));
    (followed(link, way, Arc::default(), told), store, news)
}

fn followed(
    link: Link,
    way: Way,
    observed: Arc<ObservedWrites>,
    told: mpsc::Sender<Told>,
) -> Follower {
    Follower::new(link, way, Duration::from_millis(1), observed, told)
}

/// What is told until `enough` is.
async fn told_until(
    news: &mut mpsc::Receiver<Told>,
    mut enough: impl FnMut(&StoreNews) -> bool,
) -> Vec<StoreNews> {
    let mut all = Vec::new();
    loop {
        let Some(Told::Store(news)) = news.recv().await else { panic!("news of the store") };
        match news {
            StoreNews::Size(_) | StoreNews::Load(_) => {}
            news => all.push(news),
        }
        if enough(all.last().unwrap_or(&StoreNews::Size(0))) {
            return all;
        }
    }
}

/// The changes that are told, up to this one.
async fn changes_until(news: &mut mpsc::Receiver<Told>, last: Change) -> Vec<Change> {
    changes_of(&told_until(news, ends_with(last)).await)
}

/// Whether a change is the last of those that are told together.
fn ends_with(last: Change) -> impl Fn(&StoreNews) -> bool {
    move |news| changes_of(std::slice::from_ref(news)).last() == Some(&last)
}

fn changes_of(told: &[StoreNews]) -> Vec<Change> {
    let changes = told.iter().filter_map(|news| match news {
        StoreNews::Changed(changes) => Some(changes),
        _ => None,
    });
    changes.flatten().copied().collect()
}

/// Follows a played store until it is listed `times` times; gives what was told, change by change:
/// which of them are told together depends on how they are read.
async fn listed(way: Way, answers: Vec<(&'static str, String)>, times: usize) -> Vec<StoreNews> {
    let (mut follower, store, mut news) = follower(way);
    tokio::spawn(play(store, answers));
    let (_rescan, mut rescans) = mpsc::channel(1);
    let running = tokio::spawn(async move { follower.run(&mut rescans).await });
    let mut all = Vec::new();
    for _ in 0..times {
        all.extend(told_until(&mut news, |news| *news == StoreNews::Listed).await);
    }
    running.abort();
    let single = |news| match news {
        StoreNews::Changed(changes) => {
            changes.into_iter().map(|change| StoreNews::Changed(vec![change])).collect()
        }
        news => vec![news],
    };
    all.into_iter().flat_map(single).collect()
}

fn unsure() -> StoreNews {
    StoreNews::Unsure("the store is being listed".to_owned())
}

fn stored(key: &str) -> StoreNews {
    StoreNews::Changed(vec![Change::Stored(hash(key))])
}

fn removed(key: &str) -> StoreNews {
    StoreNews::Changed(vec![Change::Removed(hash(key))])
}

fn of_page(keys: &[&str]) -> StoreNews {
    StoreNews::Page(keys.iter().map(hash).collect())
}

#[tokio::test]
async fn what_comes_and_goes_while_the_store_is_listed_is_told_in_its_place() {
    // Keys go that were in a page already, and one comes that is in none.
    let first = page("5", &["stays", "deleted"]) + &event("del", "deleted");
    let second = event("new", "came") + &page("0", &["last"]) + &event("expired", "last");
    let answers = vec![("\r\n0\r\n", first), ("\r\n5\r\n", second)];
    let told = listed(Way::Events, answers, 1).await;
    let expected = [
        StoreNews::Followed(Way::Events),
        unsure(),
        StoreNews::Listing,
        of_page(&["stays", "deleted"]),
        removed("deleted"),
        stored("came"),
        of_page(&["last"]),
        StoreNews::Listed,
    ];
    assert_eq!(told, expected);
}

#[tokio::test]
async fn an_older_store_is_listed_again_and_again_and_stays_known() {
    let answers = vec![
        ("SCAN", page("0", &["a"])),
        ("SCAN", page("7", &["a"]) + &event("set", "b") + &event("lpop", "a")),
        ("\r\n7\r\n", event("del", "a") + &page("0", &[])),
        ("SCAN", page("0", &["b"])),
    ];
    let told = listed(Way::OlderEvents, answers, 3).await;
    let expected = [
        StoreNews::Followed(Way::OlderEvents),
        unsure(),
        StoreNews::Listing,
        of_page(&["a"]),
        StoreNews::Listed,
        StoreNews::Listing,
        of_page(&["a"]),
        stored("b"),
        stored("a"),
        removed("a"),
        of_page(&[]),
        StoreNews::Listed,
        StoreNews::Listing,
        of_page(&["b"]),
        StoreNews::Listed,
    ];
    assert_eq!(told, expected);
}

#[tokio::test]
async fn a_page_of_a_listing_that_was_begun_anew_is_passed_over() {
    let answers = vec![("SCAN", page("0", &["old"])), ("SCAN", page("0", &["new"]))];
    let (mut follower, store, mut news) = follower(Way::Events);
    let (rescan, mut rescans) = mpsc::channel(1);
    // It is wanted before the first page is answered.
    rescan.send(()).await.unwrap();
    tokio::spawn(play(store, answers));
    let running = tokio::spawn(async move { follower.run(&mut rescans).await });
    let told = told_until(&mut news, |news| *news == StoreNews::Listed).await;
    let expected = [
        StoreNews::Followed(Way::Events),
        unsure(),
        StoreNews::Listing,
        StoreNews::Unsure("the store changed without events".to_owned()),
        StoreNews::Listing,
        of_page(&["new"]),
        StoreNews::Listed,
    ];
    assert_eq!(told, expected);
    running.abort();
}

#[tokio::test]
async fn keys_are_not_counted_while_some_are_asked_about() {
    let answers = vec![
        ("DBSIZE", event("json.set", "doubtful") + ":1\r\n"),
        ("EXISTS", ":1\r\n".to_owned()),
        ("DBSIZE", ":2\r\n".to_owned()),
    ];
    let (mut follower, store, mut news) = follower(Way::OlderEvents);
    tokio::spawn(play(store, answers));
    let (_rescan, mut rescans) = mpsc::channel(1);
    let running = tokio::spawn(async move { follower.run(&mut rescans).await });
    loop {
        match news.recv().await {
            Some(Told::Store(StoreNews::Size(size))) => break assert_eq!(size, 2),
            Some(_) => {}
            None => panic!("a size"),
        }
    }
    running.abort();
}

#[tokio::test]
async fn a_store_that_tells_of_every_key_is_listed_once() {
    let (mut follower, store, mut news) = follower(Way::Events);
    let playing = tokio::spawn(play(store, vec![("SCAN", page("0", &[]))]));
    let (rescan, mut rescans) = mpsc::channel(1);
    let running = tokio::spawn(async move { follower.run(&mut rescans).await });
    told_until(&mut news, |news| *news == StoreNews::Listed).await;
    // Two comparisons later: the pause of this follower is long over.
    for _ in 0..2 {
        while !matches!(news.recv().await, Some(Told::Store(StoreNews::Size(0)))) {}
    }
    drop(rescan);
    assert!(running.await.unwrap().is_ok(), "nobody listens any more");
    assert_eq!(playing.await.unwrap().matches("SCAN").count(), 1);
}

#[tokio::test]
async fn what_an_unknown_event_means_is_asked() {
    let events = ["json.set", "json.del", "set"].map(|what| event(what, what)).concat();
    let answers = vec![
        ("SCAN", page("0", &[]) + &events),
        ("json.set", ":1\r\n".to_owned()),
        ("json.del", event("new", "json.del") + ":0\r\n" + &event("evicted", "json.set")),
    ];
    let (mut follower, store, mut news) = follower(Way::OlderEvents);
    tokio::spawn(play(store, answers));
    let (_rescan, mut rescans) = mpsc::channel(1);
    let running = tokio::spawn(async move { follower.run(&mut rescans).await });
    let gone = Change::Removed(hash("json.set"));
    let changes = changes_until(&mut news, gone).await;
    let expected = [
        Change::Stored(hash("set")),
        Change::Stored(hash("json.set")),
        Change::Stored(hash("json.del")),
        Change::Removed(hash("json.del")),
        gone,
    ];
    assert_eq!(changes, expected);
    running.abort();
}

#[tokio::test]
#[allow(clippy::disallowed_methods)]
async fn the_store_is_listed_slowly() {
    let answers = (1..=20).map(|n| ("SCAN", page(if n == 20 { "0" } else { "1" }, &[]))).collect();
    let start = tokio::time::Instant::now();
    listed(Way::Events, answers, 1).await;
    assert!(start.elapsed() >= follower::PAGE_PAUSE * 19, "a pause between pages");
}

fn set(flags: &str) -> (&'static str, String) {
    let name = bulk("notify-keyspace-events");
    ("GET", format!("*2\r\n{name}{}", bulk(flags)))
}

async fn agreed(answers: Vec<(&'static str, String)>) -> (Result<Way, String>, String) {
    let (link, store) = tokio::io::duplex(4096);
    let playing = tokio::spawn(play(store, answers));
    let mut link = Link::new(Box::new(link));
    let way = follower::agree(&mut link).await.map_err(|trouble| trouble.to_string());
    drop(link);
    (way, playing.await.unwrap())
}

#[tokio::test]
async fn a_store_that_may_not_be_told_to_tell_is_named() {
    let may_not = |word| (word, "-NOPERM no\r\n".to_owned());
    let cases = [
        (vec![may_not("GET")], "allow this command (ACL: +config|get)"),
        (
            vec![set("K"), may_not("SET"), may_not("SET"), may_not("SET"), may_not("SET")],
            "set them in the store's configuration, or allow this command (ACL: +config|set)",
        ),
    ];
    for (answers, said) in cases {
        let trouble = agreed(answers).await.0.unwrap_err();
        assert!(trouble.contains("flags Engxe there") && trouble.ends_with(said), "{trouble}");
        assert!(trouble.contains("NOPERM no"), "{trouble}");
    }
}

#[tokio::test]
async fn the_best_events_a_store_knows_are_had_and_flags_of_the_operator_stay() {
    let done = || ("SET", "+OK\r\n".to_owned());
    let refused = || ("SET", REFUSED.to_owned());
    let cases = [
        ("KEA", vec![done()], Way::Events, "KEAn"),
        ("Engxe", vec![], Way::Events, "-"),
        ("AnE", vec![], Way::Events, "-"),
        ("", vec![refused(), done()], Way::OlderEvents, "EA"),
        ("Kx", vec![refused(), done()], Way::OlderEvents, "KxEA"),
        ("", vec![refused(), refused(), done()], Way::Observed, "Ex"),
        // It knows no flags, and may be told so.
        ("", vec![refused(), refused(), refused(), done()], Way::Observed, "$0"),
        // Keys that expire are told of, and nobody may change that.
        ("Ex", vec![refused(), refused()], Way::Observed, "ExA"),
        // What the operator set is enough, whatever the node may do.
        ("KEA", vec![("SET", "-NOPERM no\r\n".to_owned())], Way::OlderEvents, "KEAn"),
    ];
    for (flags, answers, way, wanted) in cases {
        let (agreed, asked) = agreed([set(flags)].into_iter().chain(answers).collect()).await;
        assert_eq!(agreed, Ok(way), "{flags}");
        let last = asked.trim_end().rsplit("\r\n").next().unwrap();
        assert!(last == wanted || wanted == "-" && asked.matches("SET").count() == 0, "{asked}");
    }
}

/// A store that speaks RESP2, on two connections: what the first is asked in a transaction, with
/// its mark, has `answers`; `events` come on the second before each mark.
async fn play_resp2(
    mut asked: DuplexStream,
    mut told: DuplexStream,
    mut rounds: Vec<(String, String)>,
) -> (DuplexStream, DuplexStream) {
    let mut bytes = [0; 4096];
    let mark = ["*3\r\n", &bulk("message"), &bulk("mark"), &bulk("")].concat();
    rounds.reverse();
    while let Some((events, answer)) = rounds.pop() {
        let count = asked.read(&mut bytes).await.unwrap();
        let text = String::from_utf8_lossy(&bytes[..count]).into_owned();
        assert!(text.contains("MULTI") && text.contains("PUBLISH\r\n$4\r\nmark"), "{text}");
        assert_eq!(text.matches("EXEC").count(), 1, "{text}");
        let said = format!("+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n:1\r\n{answer}");
        // Now the answer is there first, now the mark.
        let events = format!("{events}{mark}").replace(">4", "*4");
        if rounds.len().is_multiple_of(2) {
            asked.write_all(said.as_bytes()).await.unwrap();
            tokio::task::yield_now().await;
            told.write_all(events.as_bytes()).await.unwrap();
        } else {
            told.write_all(events.as_bytes()).await.unwrap();
            tokio::task::yield_now().await;
            asked.write_all(said.as_bytes()).await.unwrap();
        }
    }
    (asked, told)
}

#[tokio::test]
async fn answers_of_a_store_without_resp3_belong_where_their_marks_are() {
    let (near, asked) = tokio::io::duplex(4096);
    let (second, mut told) = tokio::io::duplex(4096);
    let mut link = Link::new(Box::new(near));
    link.listen_on(Box::new(second), "mark".to_owned());
    let playing = tokio::spawn(async move {
        let mut asked = asked;
        let mut bytes = [0; 512];
        let count = asked.read(&mut bytes).await.unwrap();
        assert!(bytes[..count].starts_with(b"*3\r\n$7\r\nPUBLISH\r\n"));
        asked.write_all(b":0\r\n").await.unwrap();
        for _ in 0..2 {
            let _ = told.read(&mut bytes).await.unwrap();
            told.write_all(b"*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n").await.unwrap();
        }
        let rounds = vec![
            (event("set", "a") + &event("set", "b"), ":2\r\n".to_owned()),
            (event("del", "a"), ":1\r\n".to_owned()),
            (String::new(), "-ERR no\r\n".to_owned()),
        ];
        play_resp2(asked, told, rounds).await
    });
    link.subscribe().await.unwrap();
    let event = |what: &str, key: &str| Item::Event { what: what.into(), key: key.into() };
    let expected = [
        vec![event("set", "a"), event("set", "b"), Item::Answer(Value::Int(2))],
        vec![event("del", "a"), Item::Answer(Value::Int(1))],
        vec![Item::Answer(Value::Error("ERR no".into()))],
    ];
    for round in expected {
        link.put(&[b"DBSIZE"]).await.unwrap();
        for item in round {
            assert_eq!(link.next().await.unwrap(), item);
        }
    }
    drop(playing.await.unwrap());
    assert!(matches!(link.next().await, Err(Trouble::Closed)));
}
