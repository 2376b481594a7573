//! The memcache codec against memcached.
//!
//! The same bytes go to one memcached directly, and to another one through decoder, canonical
//! form, reply scanner and the rule of who is told what: a node in miniature. What the client
//! gets must be the same bytes.

use crate::server::{Connection, Server};
use crate::steps::steps;
use torc::proto::args::Args;
use torc::proto::command::{Class, Routing};
use torc::proto::memcache::decode::{McDecoded, McDecoder, McLimits};
use torc::proto::memcache::reply::{McReplyLimits, McReplyScanner, is_wanted};
use torc::proto::memcache::{forward, values};

/// The bytes that come back through our codec.
fn through(store: &mut Connection, stream: &[u8], absolute: bool) -> Vec<u8> {
    let mut decoder = McDecoder::default();
    let limits = McLimits::default();
    let (mut spans, mut told, mut at) = (Vec::new(), Vec::new(), 0);
    loop {
        let buf = &stream[at..];
        match decoder.decode(buf, &limits, &mut spans).expect("the stream goes on") {
            None => return told,
            Some(McDecoded::Skipped { len }) => at += len,
            Some(McDecoded::Rejected { len, reply }) => {
                told.extend_from_slice(reply);
                at += len;
            }
            Some(McDecoded::Request(request)) => {
                let args = Args::new(buf, &spans);
                at += request.len;
                if request.command.name == "mn" {
                    told.extend_from_slice(b"MN\r\n");
                    continue;
                }
                assert!(!matches!(request.command.routing, Routing::Refused(_)));
                let now_s = absolute.then(unix_s);
                let mut frame = Vec::new();
                forward::write(&request, &args, now_s, &mut frame);
                if request.plain && !absolute {
                    assert_eq!(frame, buf[..request.len], "the plain form is the canonical one");
                }
                let mut scanner = McReplyScanner::default();
                store.send(&frame);
                let reply =
                    store.reply_by(|buf| scanner.scan(buf, &McReplyLimits::default()).unwrap());
                if is_wanted(&request, &reply) {
                    told.extend_from_slice(&reply);
                }
            }
        }
    }
}

fn unix_s() -> u64 {
    let since = std::time::UNIX_EPOCH.elapsed();
    since.expect("the clock is after 1970").as_secs()
}

/// The bytes that come back directly; a miss with its key marks their end.
fn directly(store: &mut Connection, stream: &[u8]) -> Vec<u8> {
    const END: &[u8] = b"EN kthe-end\r\n";
    store.send(stream);
    store.send(b"mg the-end k\r\n");
    let mut told = store.read_until(END);
    told.truncate(told.len() - END.len());
    told
}

#[test]
fn clients_get_what_memcached_sends() {
    let test = "clients_get_what_memcached_sends";
    let (Some(a), Some(b)) = (Server::memcached(test), Server::memcached(test)) else { return };
    let (mut direct, mut store) = (a.connect(), b.connect());
    for absolute in [false, true] {
        for step in steps() {
            let theirs = directly(&mut direct, &step).escape_ascii().to_string();
            let ours = through(&mut store, &step, absolute).escape_ascii().to_string();
            assert_eq!(ours, theirs, "{}", step.escape_ascii());
        }
        for store in [&mut direct, &mut store] {
            store.send(b"flush_all\r\n");
            store.read_until(b"OK\r\n");
        }
    }
}

#[test]
fn outcomes_leave_replicas_equal() {
    let test = "outcomes_leave_replicas_equal";
    let (Some(a), Some(b)) = (Server::memcached(test), Server::memcached(test)) else { return };
    let (mut first, mut other) = (a.connect(), b.connect());
    for line in [
        "add a 7 0 2\r\nxy\r\n",
        "add a 7 0 2\r\nzz\r\n",
        "replace a 8 100 1\r\nr\r\n",
        "replace none 8 100 1\r\nr\r\n",
        "ms b 2 ME F3 T100\r\nhi\r\n",
        "ms b 2 ME\r\nho\r\n",
        "ms b 2 MR c\r\nhe\r\n",
        "ms Zm9v 3 b c\r\nbin\r\n",
        "gats 50 a b\r\n",
        "mg b c T20\r\n",
        "md none C5\r\n",
    ] {
        let mut spans = Vec::new();
        let decoded =
            McDecoder::default().decode(line.as_bytes(), &McLimits::default(), &mut spans);
        let Ok(Some(McDecoded::Request(request))) = decoded else { panic!("{line}") };
        let args = Args::new(line.as_bytes(), &spans);
        assert_eq!(request.command.class_of(&args), Class::Write, "{line}");
        let mut scanner = McReplyScanner::default();
        let mut scan = |buf: &[u8]| scanner.scan(buf, &McReplyLimits::default()).unwrap();
        first.send(line.as_bytes());
        let reply = first.reply_by(&mut scan);
        let mut effect = Vec::new();
        if forward::outcome(&request, &args, &reply, unix_s(), &mut effect) {
            other.send(&effect);
            other.reply_by(&mut scan);
        }
        for store in [&mut first, &mut other] {
            store.send(b"get a b none foo\r\nmg Zm9v b s v\r\nmn\r\n");
        }
        let theirs = first.read_until(b"MN\r\n");
        assert_eq!(other.read_until(b"MN\r\n"), theirs, "{line}");
    }
}

#[test]
fn parts_of_a_get_join_to_the_whole() {
    let Some(server) = Server::memcached("parts_of_a_get_join_to_the_whole") else { return };
    let mut store = server.connect();
    let mut ask = |bytes: &[u8]| {
        let mut scanner = McReplyScanner::default();
        store.send(bytes);
        store.reply_by(|buf| scanner.scan(buf, &McReplyLimits::default()).unwrap())
    };
    for i in 0..50 {
        ask(format!("set k{i} {i} 0 {i}\r\n{}\r\n", "v".repeat(i)).as_bytes());
    }
    let keys: Vec<String> = (0..100).map(|i| format!("k{}", i * 7 % 70)).collect();
    let line = format!("get {}\r\n", keys.join(" "));
    let mut spans = Vec::new();
    let decoded = McDecoder::default().decode(line.as_bytes(), &McLimits::default(), &mut spans);
    let Ok(Some(McDecoded::Request(request))) = decoded else { panic!("{line}") };
    let args = Args::new(line.as_bytes(), &spans);
    // Three owners.
    let owner = |key: usize| key % 3;
    let parts: Vec<Vec<u8>> = (0..3)
        .map(|part| {
            let mut frame = Vec::new();
            let keys = request.command.keys.keys(&args).filter(|key| owner(*key) == part);
            values::write_part(&args, 1, keys, &mut frame);
            ask(&frame)
        })
        .collect();
    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    let mut joined = Vec::new();
    let asked = request.command.keys.keys(&args).map(|key| (&args[key], owner(key)));
    values::join(asked, &parts, &mut joined).unwrap();
    assert_eq!(joined, ask(line.as_bytes()));
}
