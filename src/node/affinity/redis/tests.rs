use tokio::io::DuplexStream;

use super::*;

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

/// A store that answers one question after the other with what it is told to.
async fn play(mut store: DuplexStream, answers: Vec<String>) -> Vec<String> {
    let mut asked = Vec::new();
    for answer in answers {
        let mut bytes = [0; 512];
        let read = store.read(&mut bytes).await.unwrap();
        asked.push(String::from_utf8_lossy(&bytes[..read]).into_owned());
        store.write_all(answer.as_bytes()).await.unwrap();
    }
    asked
}

fn follower(link: DuplexStream) -> (Follower, mpsc::Receiver<Told>) {
    let (told, news) = mpsc::channel(16);
    let (buf, listed, changes) = (BytesMut::new(), None, Vec::new());
    (Follower { link: Box::new(link), buf, told, listed, changes }, news)
}

fn next(news: &mut mpsc::Receiver<Told>) -> StoreNews {
    match news.try_recv() {
        Ok(Told::Store(news)) => news,
        _ => panic!("nothing was told of the store"),
    }
}

#[tokio::test]
async fn what_comes_and_goes_while_the_store_is_listed_is_heard() {
    let (link, store) = tokio::io::duplex(4096);
    let (mut follower, mut news) = follower(link);
    // Keys go that were in a page already, and one comes that is in none.
    let first = page("5", &["stays", "deleted", "evicted"]) + &event("del", "deleted");
    let second = event("new", "came")
        + &event("evicted", "evicted")
        + &page("0", &["last", "came too late"])
        + &event("expired", "came too late");
    let played = tokio::spawn(play(store, vec![first, second]));
    follower.list().await.unwrap();
    let asked = played.await.unwrap();
    assert!(asked[0].contains("SCAN\r\n$1\r\n0\r\n") && asked[1].contains("$1\r\n5\r\n"));
    assert!(matches!(next(&mut news), StoreNews::Unsure(why) if why.contains("being listed")));
    let StoreNews::Holds(mut held) = next(&mut news) else { panic!("a listing") };
    held.sort_unstable();
    let mut expected = ["stays", "came", "last", "came too late"].map(hash);
    expected.sort_unstable();
    assert_eq!(held, expected);
    // An event that came with the last page is newer than the listing.
    let value = follower.parsed().unwrap().expect("it is in the buffer");
    follower.take_event(&value);
    assert_eq!(follower.changes, [Change::Removed(hash("came too late"))]);
}

#[tokio::test]
#[allow(clippy::disallowed_methods)]
async fn the_store_is_listed_slowly() {
    let (link, store) = tokio::io::duplex(4096);
    let (mut follower, _news) = follower(link);
    let pages = (1..=20).map(|n| page(if n == 20 { "0" } else { "1" }, &[])).collect();
    tokio::spawn(play(store, pages));
    let start = tokio::time::Instant::now();
    follower.list().await.unwrap();
    assert!(start.elapsed() >= PAGE_PAUSE * 19, "a pause between pages");
}

#[tokio::test]
async fn a_store_that_may_not_be_told_to_tell_is_named() {
    let cases = [
        (vec!["-ERR unknown command 'CONFIG'\r\n"], "allow this command (ACL: +config|get)"),
        (
            vec!["*2\r\n$22\r\nnotify-keyspace-events\r\n$1\r\nK\r\n", "-NOPERM no\r\n"],
            "set them in its configuration, or allow this command (ACL: +config|set)",
        ),
    ];
    for (answers, said) in cases {
        let (link, store) = tokio::io::duplex(4096);
        let (mut follower, _news) = follower(link);
        tokio::spawn(play(store, answers.iter().map(|answer| answer.to_string()).collect()));
        let trouble = follower.turn_on_events().await.unwrap_err().to_string();
        assert!(trouble.contains("flags Engxe there") && trouble.ends_with(said), "{trouble}");
    }
}

#[tokio::test]
async fn flags_of_the_operator_stay() {
    let (link, store) = tokio::io::duplex(4096);
    let (mut follower, _news) = follower(link);
    let set = "*2\r\n$22\r\nnotify-keyspace-events\r\n$3\r\nKEA\r\n".to_owned();
    let played = tokio::spawn(play(store, vec![set, "+OK\r\n".to_owned()]));
    follower.turn_on_events().await.unwrap();
    let asked = played.await.unwrap();
    assert!(asked[1].ends_with("$4\r\nKEAn\r\n"), "A stands for all but n: {}", asked[1]);
}
