//! Commands that are not offered, lines that are no requests, and stores that stop.

use std::io::Write;
use std::net::TcpStream;
use std::process::Command;

use super::{call, memcached, pong, redis_ring, single, still_answers};
use crate::client::{Client, Reply, bulk, encode, ok};
use crate::ring::wait_until;

/// Netflix/dynomite#551, #417, #803: a wrong call is answered, and the connection stays.
#[test]
fn a_command_that_is_not_offered_is_refused_in_words() {
    let Some(ring) = single("a_command_that_is_not_offered_is_refused_in_words") else { return };
    let lines = [
        "FOOBAR x",
        "SUBSCRIBE channel",
        "PUBLISH channel m",
        "BRPOP q-1 q-2 1",
        "ECHO hi",
        "DBSIZE",
        "TIME",
        "CONFIG GET maxmemory",
        "CLUSTER INFO",
        "WAIT 0 10",
    ];
    for line in lines {
        let mut client = ring.nodes[0].connect();
        let words: Vec<&str> = line.split(' ').collect();
        client.send(&[encode(&words), encode(&["SET", "key", "v"])].concat()).expect("sent");
        client.reply().unwrap_or_else(|e| panic!("{line}: {e}"));
        assert_eq!(client.reply().expect("reply"), ok(), "after {line}");
    }
}

/// Netflix/dynomite#611, #712, #424: what load balancers and scanners send.
#[test]
fn lines_of_text_are_answered_and_http_harms_nobody() {
    let Some(ring) = single("lines_of_text_are_answered_and_http_harms_nobody") else { return };
    let node = &ring.nodes[0];
    let mut other = node.connect();
    let lines = [
        ("ping\r\n", pong()),
        ("PING\r\n", pong()),
        ("ping\n", pong()),
        ("SET line 1\r\n", ok()),
        ("GET line\r\n", bulk("1")),
    ];
    for (line, right) in lines {
        let mut client = node.connect();
        client.send(line.as_bytes()).expect("sent");
        assert_eq!(client.reply().expect("reply"), right, "{line:?}");
        assert_eq!(call(&mut other, "SET other 1"), ok(), "after {line:?}");
    }
    let mut client = node.connect();
    client.send(b"info\r\n").expect("sent");
    assert!(matches!(client.reply().expect("reply"), Reply::Bulk(_)));
    assert_eq!(call(&mut client, "PING hello"), bulk("hello"));
    assert_eq!(call(&mut other, "SET other 2"), ok(), "after PING with an argument");
    for i in 0..50 {
        let mut probe = TcpStream::connect(("127.0.0.1", node.client)).expect("connected");
        let _ = write!(probe, "GET /cgi-bin/x?id={i} HTTP/1.1\r\nHost: h\r\nPOST: 1\r\n\r\n");
    }
    assert_eq!(call(&mut other, "SET other 3"), ok(), "after HTTP");
    still_answers(&mut node.connect(), "HTTP");
}

/// Netflix/dynomite#372, #551, envoyproxy/envoy#23651: nothing of a transaction is done early.
#[test]
fn a_transaction_is_not_seen_before_its_end() {
    let Some(ring) = single("a_transaction_is_not_seen_before_its_end") else { return };
    let (mut client, mut other) = (ring.nodes[0].connect(), ring.nodes[0].connect());
    let queued = Reply::Simple("QUEUED".into());
    assert_eq!(call(&mut client, "SET {t}a old"), ok());
    assert_eq!(call(&mut client, "MULTI"), ok());
    assert_eq!(call(&mut client, "SET {t}a new"), queued);
    assert_eq!(call(&mut other, "GET {t}a"), bulk("old"));
    assert_eq!(call(&mut client, "GET {t}a"), queued);
    assert_eq!(call(&mut client, "EXEC"), Reply::Array(vec![ok(), bulk("new")]));
    assert_eq!(call(&mut other, "GET {t}a"), bulk("new"));
}

fn lines(client: &mut Client, count: usize) -> Vec<String> {
    let line = |_| String::from_utf8(client.line().expect("a line")).expect("text");
    (0..count).map(line).collect()
}

/// Netflix/dynomite#550, #504, twitter/twemproxy#357: a memcache get used to end the process.
#[test]
fn a_memcache_get_is_answered() {
    let Some(ring) = memcached("a_memcache_get_is_answered") else { return };
    let mut client = ring.nodes[0].connect();
    let cases: [(&str, &[&str]); 6] = [
        ("get none\r\n", &["END"]),
        ("set a 5 0 3\r\nabc\r\n", &["STORED"]),
        ("get a\r\n", &["VALUE a 5 3", "abc", "END"]),
        ("set b 0 0 0\r\n\r\n", &["STORED"]),
        ("get a none b\r\n", &["VALUE a 5 3", "abc", "VALUE b 0 0", "", "END"]),
        ("get \r\n", &["ERROR"]),
    ];
    for (request, right) in cases {
        client.send(request.as_bytes()).expect("sent");
        assert_eq!(lines(&mut client, right.len()), right, "{request:?}");
    }
    client.send(b"gets a\r\n").expect("sent");
    let value = &lines(&mut client, 3)[0];
    assert!(value.starts_with("VALUE a 5 3 ") && value.split(' ').count() == 5, "{value}");
    client.send(b"version\r\n").expect("sent");
    assert!(lines(&mut client, 1)[0].starts_with("VERSION "));
}

/// Netflix/dynomite#67: what asks for no reply gets none, and takes nobody else's.
#[test]
fn noreply_takes_no_other_requests_reply() {
    let Some(ring) = memcached("noreply_takes_no_other_requests_reply") else { return };
    for round in 10..30 {
        let mut client = ring.nodes[0].connect();
        let request =
            format!("delete foo noreply\r\nset foo 0 0 2 noreply\r\n{round}\r\nget foo\r\n");
        client.send(request.as_bytes()).expect("sent");
        let right = ["VALUE foo 0 2".to_owned(), round.to_string(), "END".to_owned()];
        assert_eq!(lines(&mut client, 3), right);
    }
}

/// twitter/twemproxy#404, Netflix/dynomite#540, #709: a store that stops is an error in time, and
/// what it answers late goes to nobody.
#[test]
fn late_replies_of_a_stalled_store_go_to_nobody() {
    let name = "late_replies_of_a_stalled_store_go_to_nobody";
    let Some(ring) = redis_ring(name, 1, "  timeout: 3000\n") else { return };
    let store = ring.nodes[0].redis.as_ref().expect("a redis-server").id().to_string();
    let signal = |signal: &str| {
        let sent = Command::new("kill").args([signal, &store]).status();
        assert!(sent.is_ok_and(|status| status.success()), "kill {signal}");
    };
    let (mut first, mut second) = (ring.nodes[0].connect(), ring.nodes[0].connect());
    for i in 0..10 {
        assert_eq!(call(&mut first, &format!("SET stall-{i} v{i}")), ok());
    }
    signal("-STOP");
    assert!(call(&mut first, "GET stall-0").is_error(), "an answer of a stopped store");
    let pipeline: Vec<u8> = (0..5).flat_map(|i| encode(&["GET", &format!("stall-{i}")])).collect();
    second.send(&pipeline).expect("sent");
    for i in 0..5 {
        assert!(second.reply().expect("reply").is_error(), "GET {i}");
    }
    signal("-CONT");
    wait_until("the node serves again", || {
        call(&mut ring.nodes[0].connect(), "GET stall-3") == bulk("v3")
    });
    for mut client in [ring.nodes[0].connect(), first, second] {
        for i in [7, 2, 9, 4] {
            assert_eq!(call(&mut client, &format!("GET stall-{i}")), bulk(format!("v{i}")));
        }
    }
}
