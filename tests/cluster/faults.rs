//! Kill and restart under load: what was acknowledged stays, and errors come only where the
//! level must fail.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::client::{Client, Reply, bulk};
use crate::ring::{Layout, Ring, Store, redis_bin, wait_until};

/// Last acknowledged value of each key, and the one after it whose outcome is unknown.
type Acknowledged = BTreeMap<String, (u64, Option<u64>)>;

struct Writer {
    stop: Arc<AtomicBool>,
    acknowledged: Arc<Mutex<Acknowledged>>,
    errors: Arc<Mutex<Vec<String>>>,
    thread: std::thread::JoinHandle<u64>,
}

/// One writer a key space: writes growing numbers and reads them back at DC_SAFE_QUORUM.
fn writer(port: u16, name: usize) -> Writer {
    let stop = Arc::new(AtomicBool::new(false));
    let acknowledged = Arc::new(Mutex::new(Acknowledged::new()));
    let errors = Arc::new(Mutex::new(Vec::new()));
    let thread = {
        let (stop, acknowledged, errors) =
            (Arc::clone(&stop), Arc::clone(&acknowledged), Arc::clone(&errors));
        std::thread::spawn(move || {
            let mut client = Client::connect(port);
            assert_eq!(client.call(&["TORC.CONSISTENCY", "DC_SAFE_QUORUM"]).text(), "OK");
            let mut value = 0;
            while !stop.load(Ordering::Relaxed) {
                value += 1;
                let key = format!("w{name}:{}", value % 40);
                let set = client.call(&["SET", &key, &value.to_string()]);
                let mut table = acknowledged.lock().unwrap();
                let entry = table.entry(key.clone()).or_insert((0, None));
                if set.is_error() {
                    entry.1 = Some(value);
                    errors.lock().unwrap().push(format!("SET {}", set.text()));
                    continue;
                }
                *entry = (value, None);
                drop(table);
                let got = client.call(&["GET", &key]);
                if got.is_error() {
                    errors.lock().unwrap().push(format!("GET {}", got.text()));
                } else {
                    assert_eq!(got, bulk(value.to_string()), "{key}: an acknowledged write");
                }
            }
            value
        })
    };
    Writer { stop, acknowledged, errors, thread }
}

#[test]
fn acknowledged_quorum_writes_survive_kills_and_restarts() {
    let Some(bin) = redis_bin("faults") else { return };
    let mut ring = Ring::start(Layout {
        dcs: vec![vec![1, 1, 1]],
        store: Store::Redis(bin),
        extra: "  timeout: 60000\n".into(),
    });
    let survivor = ring.nodes[0].client;
    let writers: Vec<Writer> = (0..4).map(|name| writer(survivor, name)).collect();
    for round in 0..4 {
        let victim = 1 + round % 2;
        progress(&writers, 200);
        ring.nodes[victim].kill();
        progress(&writers, 200);
        ring.nodes[victim].start();
        ring.wait_settled();
    }
    progress(&writers, 200);
    let mut table = Acknowledged::new();
    let mut errors = Vec::new();
    for writer in writers {
        writer.stop.store(true, Ordering::Relaxed);
        writer.thread.join().expect("no wrong value");
        table.append(&mut writer.acknowledged.lock().unwrap());
        errors.append(&mut writer.errors.lock().unwrap());
    }
    // One of three replicas away leaves a quorum: no level had to fail.
    assert_eq!(errors, Vec::<String>::new());
    for node in &ring.nodes {
        let mut client = node.connect();
        assert_eq!(client.call(&["TORC.CONSISTENCY", "DC_SAFE_QUORUM"]).text(), "OK");
        for (key, (value, _)) in &table {
            assert_eq!(client.call(&["GET", key]), bulk(value.to_string()), "{key}");
        }
    }
}

/// A rack joins and leaves again while others write at a safe quorum: quorums are counted over the
/// racks there are, so two of two racks must have a write before the third comes.
#[test]
fn a_rack_joins_and_leaves_under_load() {
    let Some(bin) = redis_bin("join_leave") else { return };
    let mut ring = Ring::start(Layout {
        dcs: vec![vec![1, 1]],
        store: Store::Redis(bin),
        extra: String::new(),
    });
    let writers: Vec<Writer> = (0..3).map(|name| writer(ring.nodes[0].client, name)).collect();
    for round in 0..2 {
        progress(&writers, 200);
        let joined = ring.add("dc1", &format!("x{round}"), 0);
        ring.wait_settled();
        progress(&writers, 200);
        ring.leave(joined);
        ring.wait_settled();
    }
    progress(&writers, 200);
    let mut errors = Vec::new();
    for writer in writers {
        writer.stop.store(true, Ordering::Relaxed);
        writer.thread.join().expect("no wrong value");
        errors.append(&mut writer.errors.lock().unwrap());
    }
    // The racks that stay answer every vote: no level had to fail.
    assert_eq!(errors, Vec::<String>::new());
}

/// Waits until every writer acknowledged `count` more values.
fn progress(writers: &[Writer], count: u64) {
    let done = |w: &Writer| w.acknowledged.lock().unwrap().values().map(|(v, _)| *v).max();
    let targets: Vec<u64> = writers.iter().map(|w| done(w).unwrap_or(0) + count).collect();
    wait_until("the writers go on", || {
        writers.iter().zip(&targets).all(|(w, target)| done(w).unwrap_or(0) >= *target)
    });
}

#[test]
fn a_level_that_must_fail_says_which_peer_and_why() {
    let mut ring = Ring::start(Layout {
        dcs: vec![vec![1, 1, 1]],
        store: Store::Embedded,
        extra: String::new(),
    });
    ring.nodes[1].kill();
    ring.nodes[2].kill();
    let mut client = ring.nodes[0].connect();
    assert_eq!(client.call(&["TORC.CONSISTENCY", "DC_SAFE_QUORUM"]).text(), "OK");
    let refused = |reply: &Reply| {
        let text = reply.text();
        reply.is_error()
            && text.starts_with("ERR Peer: Peer Node is not connected (n")
            && (text.contains(", r2, ") || text.contains(", r3, "))
    };
    wait_until("both are known to be gone", || refused(&client.call(&["SET", "a", "1"])));
    assert!(refused(&client.call(&["GET", "a"])));
    assert_eq!(client.call(&["TORC.CONSISTENCY", "DC_ONE"]).text(), "OK");
    assert_eq!(client.call(&["SET", "a", "1"]).text(), "OK");
    assert_eq!(client.call(&["GET", "a"]), bulk("1"));
}
