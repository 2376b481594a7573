//! Stores that tell of nothing: what the node itself writes is asked about.

use super::*;

/// Follows a store that is played and tells of nothing, until `enough` is told; `written` are the
/// keys the node wrote before. Gives what was told, and what the store was asked.
async fn followed_until(
    written: impl Iterator<Item = String>,
    answers: Vec<(&'static str, String)>,
    enough: impl FnMut(&StoreNews) -> bool,
) -> (Vec<StoreNews>, String) {
    let (link, store) = tokio::io::duplex(1 << 20);
    let (told, mut news) = mpsc::channel(64);
    let observed = Arc::new(ObservedWrites::default());
    written.for_each(|key| observed.note(key.as_bytes()));
    let mut follower = followed(Link::new(Box::new(link)), Way::Observed, observed, told);
    let playing = tokio::spawn(play(store, answers));
    let (_rescan, mut rescans) = mpsc::channel(1);
    let running = tokio::spawn(async move { follower.run(&mut rescans).await });
    let told = told_until(&mut news, enough).await;
    running.abort();
    (told, playing.await.unwrap())
}

fn numbers(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|n| n.to_string())
}

#[tokio::test]
#[allow(clippy::disallowed_methods)]
async fn what_the_node_writes_is_asked_about_when_the_store_had_time_for_it() {
    let answers = vec![
        ("SCAN", page("0", &[])),
        ("written", ":1\r\n".to_owned()),
        ("deleted", ":0\r\n".to_owned()),
    ];
    let start = tokio::time::Instant::now();
    let gone = Change::Removed(hash("deleted"));
    let written = ["written", "deleted"].map(str::to_owned).into_iter();
    let (told, asked) = followed_until(written, answers, ends_with(gone)).await;
    assert!(start.elapsed() >= follower::OBSERVE_EVERY, "it may not have done it yet");
    assert_eq!(changes_of(&told), [Change::Stored(hash("written")), gone]);
    assert!(asked.find("SCAN") < asked.find("EXISTS"), "{asked}");
}

#[tokio::test]
async fn a_store_is_asked_about_so_many_keys_at_a_time() {
    const ANSWERED: usize = 50;
    let answers = (0..ANSWERED).map(|_| ("EXISTS", ":1\r\n".to_owned())).collect();
    let mut seen = 0;
    let all = |news: &StoreNews| {
        seen += changes_of(std::slice::from_ref(news)).len();
        seen == ANSWERED
    };
    let (_, asked) = followed_until(numbers(1000), answers, all).await;
    assert_eq!(asked.matches("EXISTS").count(), 128 + ANSWERED);
}

#[tokio::test]
async fn a_store_is_listed_when_too_much_was_written() {
    let too_much = StoreNews::Unsure("more keys were changed than could be asked about".to_owned());
    let answers = || vec![("EXISTS", ":1\r\n".to_owned())];
    let (told, _) = followed_until(numbers(65_537), answers(), |news| *news == too_much).await;
    assert!(changes_of(&told).is_empty());
    let is_change = |news: &StoreNews| matches!(news, StoreNews::Changed(_));
    let (told, _) = followed_until(numbers(65_536), answers(), is_change).await;
    assert!(!told.contains(&too_much));
}
