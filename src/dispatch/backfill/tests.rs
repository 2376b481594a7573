use super::super::route::tests::{Filters, node_with};
use super::super::scripted::Scripted;
use super::super::view::Settings;
use super::*;
use crate::affinity::recent::REMEMBERED_MS;

const VALUE: &str = "$1\r\nv\r\n";

fn node(filters: &Filters) -> Scripted {
    let settings = Settings { route_reads: true, backfill: true, ..Settings::default() };
    node_with(filters, settings)
}

/// Reads a key of the other datacenter, up to the question when it ends.
fn read(node: &mut Scripted, key: &str) {
    node.send(&format!("GET {key}"));
    assert_eq!(node.sent("far"), [format!("3 GET {key}")]);
    node.answer("far", VALUE);
    assert_eq!(node.replies(), VALUE);
}

#[test]
fn a_value_read_elsewhere_is_stored_here_until_it_ends_there() {
    let filters = Filters::new();
    filters.tell(&[], &["kv/a", "kv/b", "kv/c", "other"]);
    let mut node = node(&filters);
    let end = node.now.wall_ms() + 60_000;
    for (key, answer, stored) in [
        ("kv/a", format!(":{end}\r\n"), Some(format!("SET kv/a v NX PXAT {end}"))),
        ("kv/b", ":-1\r\n".into(), Some("SET kv/b v NX".into())),
        // It went meanwhile; or its datastore does not know the command.
        ("kv/c", ":-2\r\n".into(), None),
        ("kv/c", "-ERR unknown command\r\n".into(), None),
    ] {
        read(&mut node, key);
        assert_eq!(node.sent("far"), [format!("3 PEXPIRETIME {key}")]);
        node.answer("far", &answer);
        assert_eq!(node.sent("store"), stored.iter().cloned().collect::<Vec<_>>(), "{key}");
        if stored.is_some() {
            node.answer("store", "+OK\r\n");
        }
        assert_eq!((node.replies().as_str(), node.node.in_flight()), ("", 0));
    }
    assert_eq!(
        (node.node.counters().affinity_backfills, node.node.backfills),
        (2, UnderWay::default())
    );
    // Other keys may have another value tomorrow.
    read(&mut node, "other");
    assert!(node.sent("far").is_empty());
}

#[test]
fn each_of_many_values_read_elsewhere_is_stored_here() {
    let filters = Filters::new();
    filters.tell(&[], &["kv/a", "kv/b", "kv/c"]);
    let mut node = node(&filters);
    node.send("MGET kv/a kv/b kv/c");
    assert_eq!(node.sent("far"), ["3 MGET kv/a kv/b kv/c"]);
    let reply = "*3\r\n$1\r\nv\r\n$-1\r\n$2\r\nww\r\n";
    node.answer("far", reply);
    assert_eq!(node.sent("far"), ["3 PEXPIRETIME kv/a", "3 PEXPIRETIME kv/c"]);
    // The own datacenter is asked for the one that was not there.
    assert_eq!(node.sent("store"), ["MGET kv/a kv/b kv/c"]);
    node.answer("store", "*3\r\n$-1\r\n$-1\r\n$-1\r\n");
    assert_eq!(node.replies(), reply);
    node.answer("far", ":-1\r\n");
    node.answer("far", ":-1\r\n");
    assert_eq!(node.sent("store"), ["SET kv/a v NX", "SET kv/c ww NX"]);
    node.answer("store", "+OK\r\n");
    node.answer("store", "$-1\r\n");
    assert_eq!((node.node.backfills, node.node.in_flight()), (UnderWay::default(), 0));
}

#[test]
fn values_on_their_way_are_bounded_in_number_and_bytes() {
    let mut under_way = UnderWay::default();
    assert!(under_way.has_room(VALUE_BYTES_MAX) && !under_way.has_room(VALUE_BYTES_MAX + 1));
    (0..BYTES_MAX / VALUE_BYTES_MAX).for_each(|_| under_way.begins(VALUE_BYTES_MAX));
    assert!(under_way.has_room(0) && !under_way.has_room(1));
}

#[test]
fn what_is_lost_on_its_way_is_not_stored_and_not_counted_for_ever() {
    let filters = Filters::new();
    let keys: Vec<String> = (0..IN_FLIGHT_MAX + 3).map(|n| format!("kv/{n}")).collect();
    filters.tell(&[], &keys.iter().map(String::as_str).collect::<Vec<_>>());
    let mut node = node(&filters);
    node.send(&format!("MGET {}", keys.join(" ")));
    assert_eq!(node.sent("far").len(), 1);
    let reply = format!("*{}\r\n{}", keys.len(), VALUE.repeat(keys.len()));
    node.answer("far", &reply);
    assert_eq!(node.replies(), reply);
    assert_eq!(node.sent("far").len(), IN_FLIGHT_MAX as usize);
    assert_eq!(node.node.backfills.count, IN_FLIGHT_MAX);
    node.lose("far");
    assert_eq!((node.node.backfills, node.node.in_flight()), (UnderWay::default(), 0));
    assert!(node.sent("store").is_empty());
}

/// Offers a value to the node that owns its key.
fn offer(node: &mut Scripted, key: &str, end: i64, begun_ms: u64) -> Result<String, &'static str> {
    let (end, begun) = (end.to_string(), begun_ms.to_string());
    let words = ["TORC.BACKFILL", key, &end, "v", &begun];
    let offer = Written::command(words.iter().map(|word| word.as_bytes()));
    let view = Arc::clone(node.node.view());
    let (args, now) = (offer.args(), node.now);
    node.node
        .admit_backfill(&view, &args, now)
        .map(|set| set.args().iter().map(String::from_utf8_lossy).collect::<Vec<_>>().join(" "))
}

#[test]
fn a_key_that_was_deleted_a_moment_ago_does_not_come_back() {
    let filters = Filters::new();
    let mut node = node(&filters);
    let begun = |node: &Scripted| node.now.wall_ms();
    let at = begun(&node);
    assert_eq!(offer(&mut node, "kv/a", -1, at), Ok("SET kv/a v NX".into()));
    let refused = |outcome: Result<String, &'static str>, word: &str| {
        let text = outcome.expect_err("refused");
        assert!(text.contains(word), "{text}");
    };
    // Whoever asked before or after: the other datacenter may not have seen it yet.
    for line in ["DEL kv/a", "UNLINK kv/a kv/z", "EXPIRE kv/a 1", "FLUSHALL"] {
        node.now.mono_us += 2 * REMEMBERED_MS * 1000;
        node.now.wall_us += 2 * REMEMBERED_MS * 1000;
        let at = begun(&node);
        assert!(offer(&mut node, "kv/a", -1, at).is_ok(), "{line}");
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let request = Written::command(words.into_iter());
        node.node.note_changes(&request.args(), node.now);
        refused(offer(&mut node, "kv/a", -1, at), "a moment ago");
        node.now.mono_us += (REMEMBERED_MS - 1000) * 1000;
        node.now.wall_us += (REMEMBERED_MS - 1000) * 1000;
        let at = begun(&node);
        refused(offer(&mut node, "kv/a", -1, at), "a moment ago");
    }
    node.now.mono_us += 2 * REMEMBERED_MS * 1000;
    // Reads take nothing away, nor do values that are stored.
    for line in ["GET kv/a", "SET kv/a v", "MSET kv/a v kv/z v"] {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        node.node.note_changes(&Written::command(words.into_iter()).args(), node.now);
    }
    let at = begun(&node);
    assert!(offer(&mut node, "kv/a", at as i64 + 1, at).is_ok());
    refused(offer(&mut node, "kv/a", at as i64, at), "has ended");
    refused(offer(&mut node, "other", -1, at), "may change");
    refused(offer(&mut node, "kv/a", -1, at - AGE_MAX_MS - 1), "too long ago");
    refused(offer(&mut node, "kv/a", -2, at), "expected");
    let counters = node.node.counters();
    assert_eq!((counters.affinity_backfills, counters.affinity_backfills_refused), (6, 12));
}

#[test]
fn keys_the_store_is_told_to_change_are_noted_when_somebody_wants_to_know() {
    let filters = Filters::new();
    let mut node = node(&filters);
    let observed = Arc::clone(node.node.view().affinity.as_ref().unwrap().keys().observed_writes());
    let noted = |observed: &ObservedWrites| {
        let keys = observed.take().keys;
        keys.iter().map(|key| String::from_utf8_lossy(key).into_owned()).collect::<Vec<_>>()
    };
    node.send("SET a v");
    assert!(noted(&observed).is_empty());
    observed.want(true);
    for line in ["GET a", "SET a v", "DEL b c", "EVAL return 1 d", "PING", "RESTORE e 0 x"] {
        node.send(line);
    }
    assert_eq!(noted(&observed), ["a", "b", "c", "d", "e"]);
}

#[test]
fn deletes_of_clients_and_other_nodes_are_among_what_is_remembered() {
    let filters = Filters::new();
    let mut node = node(&filters);
    node.send("DEL kv/a");
    assert_eq!(node.sent("store"), ["DEL kv/a"]);
    let at = node.now.wall_ms();
    assert!(offer(&mut node, "kv/a", -1, at).is_err());
    assert!(offer(&mut node, "kv/b", -1, at).is_ok());
}
