//! Which of two writes stays, and what a reader is told of it.

use super::*;

/// Runs a command with a stamp; its reply and what it found.
fn stamped(store: &MemoryStore, stamp: u64, line: &str) -> (String, Stamping) {
    let mut stamping = Stamping::with(Some(Stamp::new(stamp)));
    let mut out = OutBuf::new();
    store.execute_stamped(&Request::words(line).args(), NOW, &mut stamping, &mut out);
    (drain(out), stamping)
}

/// The reply to a command, which must not have been outrun.
fn write(store: &MemoryStore, stamp: u64, line: &str) -> String {
    let (reply, stamping) = stamped(store, stamp, line);
    assert!(!stamping.outrun, "{line}");
    reply
}

/// The reply to a command that must have been outrun.
fn late(store: &MemoryStore, stamp: u64, line: &str) -> String {
    let (reply, stamping) = stamped(store, stamp, line);
    assert!(stamping.outrun && stamping.found.get() >= stamp, "{line}: {stamping:?}");
    reply
}

/// What a reader sees, and the newest stamp of the keys it asked for.
fn read(store: &MemoryStore, line: &str) -> (String, u64) {
    let (reply, stamping) = stamped(store, 0, line);
    (reply, stamping.found.get())
}

fn seen(text: &str, stamp: u64) -> (String, u64) {
    (text.to_owned(), stamp)
}

#[test]
fn the_later_of_two_values_stays_in_whatever_order_they_come() {
    let s = store(|_| {});
    assert_eq!(read(&s, "GET k"), seen("$-1", 0));
    assert_eq!(write(&s, 20, "SET k new"), "+OK");
    assert_eq!(late(&s, 10, "SET k old"), "+OK");
    assert_eq!(read(&s, "GET k"), seen("$3 new", 20));
    assert_eq!(late(&s, 19, "DEL k"), ":0");
    assert_eq!(late(&s, 19, "MSET k old other x"), "+OK");
    assert_eq!(read(&s, "MGET k other"), seen("*2 $3 new $1 x", 20));
    assert_eq!(write(&s, 30, "SETEX k 100 newer"), "+OK");
    assert_eq!(late(&s, 29, "RENAME other k"), "+OK");
    assert_eq!(read(&s, "GET k"), seen("$5 newer", 30));
    assert_eq!(late(&s, 29, "SUNIONSTORE k nobody"), ":0");
    assert_eq!(late(&s, 29, "GETDEL k"), "$5 newer");
    assert_eq!(read(&s, "GET k"), seen("$5 newer", 30));
}

#[test]
fn a_removed_key_is_newer_than_what_it_held() {
    let s = store(|_| {});
    write(&s, 10, "SET k v");
    assert_eq!(stamped(&s, 20, "DEL k").0, ":1");
    assert_eq!(read(&s, "GET k"), seen("$-1", 20));
    assert_eq!(late(&s, 15, "SET k late"), "+OK");
    assert_eq!(read(&s, "EXISTS k"), seen(":0", 20));
    // A key this store never had was removed all the same.
    assert_eq!(write(&s, 25, "DEL never"), ":0");
    assert_eq!(late(&s, 24, "SET never x"), "+OK");
    assert_eq!(read(&s, "GET never"), seen("$-1", 25));
    assert_eq!(s.counters().tombstones, 2);
    assert_eq!(write(&s, 30, "SET k v"), "+OK");
    assert_eq!(read(&s, "GET k"), seen("$1 v", 30));
    assert_eq!(s.counters().tombstones, 1);
    // A set that was emptied, and a list that was moved away.
    write(&s, 40, "SADD set a");
    assert_eq!(write(&s, 41, "SREM set a"), ":1");
    assert_eq!(read(&s, "SMEMBERS set"), seen("*0", 41));
    write(&s, 42, "RPUSH from a");
    assert_eq!(write(&s, 43, "RENAME from to"), "+OK");
    assert_eq!(read(&s, "EXISTS from"), seen(":0", 43));
    assert_eq!(read(&s, "EXISTS to"), seen(":1", 43));
}

#[test]
fn what_changes_a_value_is_done_as_it_comes_and_leaves_the_later_stamp() {
    let s = store(|_| {});
    write(&s, 20, "SET n 5");
    assert_eq!(write(&s, 10, "INCR n"), ":6");
    assert_eq!(read(&s, "GET n"), seen("$1 6", 20));
    assert_eq!(stamped(&s, 30, "INCRBY n 4"), (":10".to_owned(), told(30, 20)));
    assert_eq!(read(&s, "GET n"), seen("$2 10", 30));
    // A value that begins after its key was removed by a later command is older than that.
    write(&s, 40, "DEL n");
    assert_eq!(write(&s, 35, "INCR n"), ":1");
    assert_eq!(read(&s, "GET n"), seen("$1 1", 35));
    assert_eq!(write(&s, 50, "HSET h f v"), ":1");
    assert_eq!(write(&s, 45, "HSET h g w"), ":1");
    assert_eq!(read(&s, "HLEN h"), seen(":2", 50));
    // What depends on what is there follows it, whatever its coordinator's clock says.
    write(&s, 60, "SET c v");
    assert_eq!(stamped(&s, 55, "SET c w XX"), ("+OK".to_owned(), told(55, 60)));
    assert_eq!(read(&s, "GET c"), seen("$1 w", 61));
    write(&s, 70, "DEL c");
    assert_eq!(write(&s, 65, "SETNX c x"), ":1");
    assert_eq!(read(&s, "GET c"), seen("$1 x", 71));
}

fn told(own: u64, found: u64) -> Stamping {
    Stamping { found: Stamp::new(found), ..Stamping::with(Some(Stamp::new(own))) }
}

#[test]
fn a_value_without_a_stamp_is_older_than_all_that_have_one() {
    let s = store(|_| {});
    run(&s, "SET k plain");
    assert_eq!(read(&s, "GET k"), seen("$5 plain", 1));
    assert_eq!(write(&s, 2, "SET k v"), "+OK");
    assert_eq!(run(&s, "SET k plain"), "+OK");
    assert_eq!(read(&s, "GET k"), seen("$5 plain", 2));
    // Where stamps are not spoken of, nothing is remembered.
    let s = store(|_| {});
    run(&s, "SET k v");
    run(&s, "DEL k never");
    assert_eq!(s.counters().tombstones, 0);
}

#[test]
fn an_expired_key_leaves_its_stamp_and_an_evicted_one_does_not() {
    let s = store(|_| {});
    let soon = NOW + 10;
    write(&s, 20, &format!("SET k v PXAT {soon}"));
    write(&s, 20, &format!("SET swept v PXAT {soon}"));
    let later = |line: &str| {
        let mut stamping = Stamping::with(Some(Stamp::NONE));
        let mut out = OutBuf::new();
        s.execute_stamped(&Request::words(line).args(), NOW + 11, &mut stamping, &mut out);
        (drain(out), stamping.found.get())
    };
    assert_eq!(later("GET k"), seen("$-1", 20));
    assert_eq!(s.sweep(NOW + 11, 100), 2);
    assert_eq!(later("GET swept"), seen("$-1", 20));
    assert_eq!(s.counters().tombstones, 2);
    // Three hours later nobody remembers.
    s.sweep(NOW + 4 * 60 * 60 * 1000, 100);

    assert_eq!(s.counters().tombstones, 0);

    let s = store(|settings| settings.keys_max = 20);
    (0..200).for_each(|n| drop(write(&s, 20, &format!("SET k{n} v"))));
    assert!(s.counters().evicted > 100);
    assert_eq!(s.counters().tombstones, 0);
}

#[test]
fn one_command_overwrites_what_it_wrote_itself() {
    let s = store(|_| {});
    write(&s, 20, "MSET k zzz k aaa");
    assert_eq!(read(&s, "GET k"), seen("$3 aaa", 20));
    assert_eq!(write(&s, 30, "DEL k k"), ":1");
    let block = ["SET k zzz", "DEL k", "SET k mmm", "SET k aaa"].map(Request::words);
    let block: Vec<_> = block.iter().map(Request::args).collect();
    let mut stamping = Stamping::with(Some(Stamp::new(40)));
    assert!(s.execute_block(&block, &[], NOW, &mut stamping, &mut OutBuf::new()));
    assert_eq!((stamping.found.get(), stamping.outrun), (30, false));
    assert_eq!(read(&s, "GET k"), seen("$3 aaa", 40));
}

#[test]
fn a_flush_is_newer_than_all_that_was_there() {
    let s = store(|_| {});
    write(&s, 20, "SET k v");
    assert_eq!(write(&s, 30, "FLUSHALL"), "+OK");
    assert_eq!(read(&s, "GET k"), seen("$-1", 30));
    assert_eq!(read(&s, "GET never"), seen("$-1", 30));
    assert_eq!(late(&s, 25, "SET never v"), "+OK");
    write(&s, 31, "SET k w");
    assert_eq!(read(&s, "GET k"), seen("$1 w", 31));
}

#[test]
fn replicas_that_get_the_same_writes_in_any_order_end_alike() {
    let mut rng = fastrand::Rng::with_seed(11);
    for round in 0..300 {
        // Stamps of several coordinators collide now and then.
        let mut writes: Vec<(u64, String)> = (0..rng.usize(2..12))
            .map(|n| {
                let stamp = rng.u64(2..8);
                let key = rng.u8(b'a'..b'd') as char;
                let line = match rng.u8(..5) {
                    0 => format!("DEL {key}"),
                    1 => format!("SET {key} v{n} PXAT {}", NOW + 1000),
                    2 => format!("GETSET {key} v{n}"),
                    _ => format!("SET {key} v{n}"),
                };
                (stamp, line)
            })
            .collect();
        let replicas = [store(|_| {}), store(|_| {}), store(|_| {})];
        let states = replicas.map(|replica| {
            rng.shuffle(&mut writes);
            writes.iter().for_each(|(stamp, line)| drop(stamped(&replica, *stamp, line)));
            ["a", "b", "c"].map(|key| (read(&replica, &format!("GET {key}")), key))
        });
        assert!(states.iter().all(|s| *s == states[0]), "round {round}: {writes:?}: {states:?}");
    }
}
