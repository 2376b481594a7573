//! Datacenters that come, and whose filters change their size, while they are asked about and read
//! from without a pause.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::admin::page;
use crate::client::{Client, Reply, bulk, encode};
use crate::ring::{Layout, Node, Ring, Store, redis_bin, wait_until};
use crate::routed::{EXTRA, assert_right, keys, place, wait_known, write};

/// Keys asked for together.
const TOGETHER: usize = 25;
/// The pause between two questions of one who asks.
const PAUSE: Duration = Duration::from_millis(1);
/// Filters of this size are long on their way, and long in being installed.
const LARGE: &str = "expected_keys: 200000";
const LARGER: &str = "expected_keys: 800000";

/// What `/affinity` says of a datacenter's filter of the ring's keys.
fn lane(node: &Node, dc: &str) -> Value {
    let text = page(node, "GET", "/affinity").1;
    let page: Value = serde_json::from_str(&text).expect("JSON");
    let lanes = page["domains"][0]["lanes"].as_array().expect("lanes");
    lanes.iter().find(|lane| lane["datacenter"] == dc).expect(dc).clone()
}

/// What somebody asks for all the while, and what is true of it.
struct Question<'a> {
    /// The datacenter that holds them all.
    home: &'a str,
    keys: &'a [String],
    /// Datacenters of which it is known all the while what they hold.
    known: &'a [&'a str],
}

impl Question<'_> {
    /// Asks once for some of the keys, by all commands that answer from filters.
    fn ask(&self, client: &mut Client, keys: &[String]) {
        let command = |name: &str| encode(&[&[name.to_owned()], keys].concat());
        let gets = keys.iter().flat_map(|key| encode(&["GET", key]));
        let many = ["MGET", "TORC.WHERE", "TORC.PREFIXKEYS"].map(command).concat();
        client.send(&gets.chain(many).collect::<Vec<u8>>()).expect("sent");
        let value = |key: &String| bulk(format!("value of {key}"));
        for key in keys {
            assert_eq!(client.reply().expect("a reply"), value(key), "GET {key}");
        }
        let Reply::Array(values) = client.reply().expect("a reply") else { panic!("an array") };
        assert_eq!(values, keys.iter().map(value).collect::<Vec<_>>(), "MGET");
        let Reply::Array(places) = client.reply().expect("a reply") else { panic!("an array") };
        for place in places {
            for (dc, word) in rows(&place) {
                assert!(word != "unknown" || !self.known.contains(&&dc[..]), "{dc}: {word}");
                assert!(word != "no" || dc != self.home, "{dc}: {word}");
            }
        }
        let depths = client.reply().expect("a reply");
        for (dc, depth) in rows(&depths) {
            assert!(depth != "(nil)" || !self.known.contains(&&dc[..]), "{dc}: {depth}");
            let whole = depth == keys.len().to_string() || depth == "(nil)";
            assert!(whole || dc != self.home, "{dc}: {depth}");
        }
    }

    /// Asks until it is over; gives how often.
    fn ask_on(&self, port: u16, over: &AtomicBool) -> usize {
        let mut client = Client::connect(port);
        let mut times = 0;
        while !over.load(Ordering::Relaxed) {
            for some in self.keys.chunks(TOGETHER) {
                self.ask(&mut client, some);
                // The nodes need the processor too.
                std::thread::sleep(PAUSE);
            }
            times += 1;
        }
        times
    }
}

/// The first two words of each row of a reply.
fn rows(reply: &Reply) -> impl Iterator<Item = (String, String)> + '_ {
    let Reply::Array(rows) = reply else { panic!("an array: {reply:?}") };
    rows.iter().map(|row| match row {
        Reply::Array(words) => (words[0].text(), words[1].text()),
        other => panic!("a row: {other:?}"),
    })
}

/// Asks each of `nodes` the questions while `act` runs.
fn asked_all_the_while(ports: &[u16], questions: &[Question<'_>], act: impl FnOnce(&AtomicBool)) {
    let (over, failed) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let askers: Vec<_> = ports
            .iter()
            .flat_map(|port| questions.iter().map(move |question| (*port, question)))
            .map(|(port, question)| {
                let (over, failed) = (&over, &failed);
                scope.spawn(move || {
                    let _failed = FailsWith(failed);
                    question.ask_on(port, over)
                })
            })
            .collect();
        act(&failed);
        over.store(true, Ordering::Relaxed);
        for asker in askers {
            assert!(asker.join().expect("all was right") > 0, "nobody asked");
        }
    });
}

/// Tells of a thread that panics.
struct FailsWith<'a>(&'a AtomicBool);

impl Drop for FailsWith<'_> {
    fn drop(&mut self) {
        self.0.fetch_or(std::thread::panicking(), Ordering::Relaxed);
    }
}

/// Restarts a node with filters of another size, and waits until it is settled.
fn resize(ring: &mut Ring, number: usize, reader: usize, failed: &AtomicBool) {
    ring.nodes[number].kill();
    ring.nodes[number].edit(|text| text.replace(LARGE, LARGER));
    ring.nodes[number].start();
    wait_until("it is settled", || {
        let up = ring.nodes[number].info("state").as_deref() == Some("NORMAL");
        let known = up && place(&ring.nodes[reader], "kv/none") == ["dc1 no", "dc2 no"];
        known || failed.load(Ordering::Relaxed)
    });
    if !failed.load(Ordering::Relaxed) {
        ring.wait_settled();
    }
}

#[test]
fn a_datacenter_that_is_resized_is_read_from_all_the_while() {
    let Some(bin) = redis_bin("a_datacenter_that_is_resized") else { return };
    // Of a datacenter that is read from, one node of two is always there.
    let (dcs, extra) = (vec![vec![1, 1], vec![1, 1]], EXTRA.replace("expected_keys: 20000", LARGE));
    let mut ring = Ring::start(Layout { dcs, store: Store::Redis(bin), extra });
    write(&ring.nodes[0], &keys("dc1"));
    write(&ring.nodes[2], &keys("dc2"));
    wait_known(&ring);
    let (here, there) = (&keys("dc1")[..200], &keys("dc2")[..200]);
    let sizes = |ring: &Ring, node: usize| {
        ["dc1", "dc2"].map(|dc| lane(&ring.nodes[node], dc)["buckets"].as_u64())
    };
    let [Some(small), _] = sizes(&ring, 0) else { panic!("a size") };
    // Of the one that is resized nothing is known while one of its nodes is being listed; what it
    // held before is read there all the same.
    let turns = [("dc2", [2, 3], [0, 1], "dc1"), ("dc1", [0, 1], [2, 3], "dc2")];
    for (turn, (home, resized, readers, other)) in turns.into_iter().enumerate() {
        let (held, known) = ([here, there][1 - turn], [other]);
        let ports = readers.map(|node| ring.nodes[node].client);
        let question = Question { home, keys: held, known: &known };
        asked_all_the_while(&ports, &[question], |failed| {
            for number in resized {
                resize(&mut ring, number, readers[0], failed);
            }
            wait_until("it is larger everywhere", || {
                let larger = |node| sizes(&ring, node)[1 - turn].is_some_and(|size| size > small);
                failed.load(Ordering::Relaxed) || (0..4).all(larger)
            });
        });
        wait_known(&ring);
    }
    assert_right(&ring.nodes[1], there);
    assert_right(&ring.nodes[3], here);
}

#[test]
fn a_datacenter_that_is_added_hides_nothing_of_the_others() {
    let (dcs, extra) = (vec![vec![1], vec![1]], EXTRA.to_owned());
    let mut ring = Ring::start(Layout { dcs, store: Store::Embedded, extra });
    let (here, there) = (keys("dc1"), keys("dc2"));
    write(&ring.nodes[0], &here);
    write(&ring.nodes[1], &there);
    wait_known(&ring);
    let ports = [ring.nodes[0].client, ring.nodes[1].client];
    let known = ["dc1", "dc2"];
    let questions = [("dc1", &here[..50]), ("dc2", &there[..50])].map(|(home, keys)| Question {
        home,
        keys,
        known: &known,
    });
    asked_all_the_while(&ports, &questions, |failed| {
        ring.add("dc3", "r1", 0);
        wait_until("the new one is known", || {
            let known =
                |node| place(&ring.nodes[node], "kv/none") == ["dc1 no", "dc2 no", "dc3 no"];
            failed.load(Ordering::Relaxed) || (0..3).all(known)
        });
    });
    ring.wait_settled();
    wait_known(&ring);
    assert_right(&ring.nodes[2], &there);
    assert_right(&ring.nodes[2], &here);
    assert!(lane(&ring.nodes[0], "dc3")["believed"].as_bool().expect("a word"));
}
