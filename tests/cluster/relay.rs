//! Two datacenters that are no ring together: relays alone join them.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::admin::{get, page};
use crate::client::{Client, Reply, encode};
use crate::ring::{Layout, Ring, Store, free_port, wait_until};

/// A ring of one node in datacenter `dc1` or `dc2`, that serves on `listen` and follows `upstream`.
fn ring(number: usize, listen: u16, upstream: u16) -> Ring {
    let extra = format!(
        "  affinity:\n    mode: advise\n    expected_keys: 20000\n    domains:\n    \
         - {{name: llama, block_size: 4, semantics: {{model: meta/llama}}}}\n  \
         embedded: {{memory_bytes_max: 64mb}}\n  relay:\n    listen: 127.0.0.1:{listen}\n    \
         upstreams: 127.0.0.1:{upstream}\n    load_window_ms: 50\n    \
         keepalive_interval_ms: 1000\n    keepalive_timeout_ms: 10000\n"
    );
    alone(number, extra)
}

/// A ring of one node in datacenter `dc1` or `dc2`.
fn alone(number: usize, extra: String) -> Ring {
    let mut dcs = vec![Vec::new(); number];
    dcs[number - 1] = vec![1];
    Ring::start(Layout { dcs, store: Store::Embedded, extra })
}

/// What TORC.WHERE says of a key in one datacenter.
fn holding(client: &mut Client, key: &str, dc: &str) -> String {
    let Ok(Reply::Array(keys)) = client.try_call(&["TORC.WHERE", key]) else {
        return "nothing".into();
    };
    let Reply::Array(dcs) = &keys[0] else { panic!("an array of datacenters") };
    let found = dcs.iter().map(Reply::text).find(|text| text.starts_with(dc));
    found.map_or_else(|| "no lane".into(), |text| text.replace('\n', " "))
}

/// The depth TORC.PREFIX gives for one datacenter; none while it is not known.
fn depth(client: &mut Client, words: &[&str], dc: &str) -> Option<i64> {
    let Reply::Array(rows) = client.call(words) else { panic!("an array") };
    rows.iter().find_map(|row| match row {
        Reply::Array(row) if row[0].text() == dc => match row[1] {
            Reply::Int(depth) => Some(depth),
            _ => None,
        },
        _ => None,
    })
}

#[test]
fn datacenters_joined_by_relays_alone_know_what_the_other_holds() {
    let (one, two) = (free_port(), free_port());
    let mut first = ring(1, one, two);
    let second = ring(2, two, one);
    let mut here = second.nodes[0].connect();
    let mut there = first.nodes[0].connect();
    there.call(&["SET", "old", "1"]);
    wait_until("what the other holds is known", || holding(&mut here, "old", "dc1") == "dc1 maybe");
    assert_eq!(holding(&mut here, "never", "dc1"), "dc1 no");
    assert_eq!(holding(&mut here, "old", "dc2"), "dc2 no");
    there.call(&["SET", "new", "1"]);
    there.call(&["DEL", "old"]);
    wait_until("a change arrives", || holding(&mut here, "new", "dc1") == "dc1 maybe");
    wait_until("a removal arrives", || holding(&mut here, "old", "dc1") == "dc1 no");
    here.call(&["SET", "here", "1"]);
    wait_until("and the other way", || holding(&mut there, "here", "dc2") == "dc2 maybe");

    // Prompts are looked up in both: blocks of engines travel like keys.
    for (client, ids) in [(&mut there, "3"), (&mut here, "1")] {
        let stored = format!("TORC.KV STORED {ids} 0 - 1 11 2 12 3 13");
        let words: Vec<&str> = stored.split(' ').collect();
        let words = if ids == "1" { &words[..7] } else { &words[..] };
        client.call(words);
    }
    let prompt = ["TORC.PREFIX", "BLOCKS", "11", "12", "13"];
    wait_until("depths of both", || {
        depth(&mut here, &prompt, "dc1") == Some(3) && depth(&mut here, &prompt, "dc2") == Some(1)
    });

    // Killed, nothing is believed of it; back again and empty, what it holds then is known.
    first.nodes[0].kill();
    wait_until("a dead datacenter is not known", || {
        holding(&mut here, "new", "dc1") == "dc1 unknown"
    });
    first.nodes[0].start();
    wait_until("it is back and empty", || holding(&mut here, "new", "dc1") == "dc1 no");
    wait_until("it takes clients", || Client::try_connect(first.nodes[0].client).is_ok());
    first.nodes[0].connect().call(&["SET", "again", "1"]);
    wait_until("and is followed", || holding(&mut here, "again", "dc1") == "dc1 maybe");
}

#[test]
#[allow(clippy::disallowed_methods)]
fn at_defaults_a_write_is_known_in_the_other_datacenter_within_two_seconds() {
    let (one, two) = (free_port(), free_port());
    let defaults = |listen: u16, upstream: u16| {
        format!(
            "  affinity: {{mode: advise}}\n  relay:\n    listen: 127.0.0.1:{listen}\n    \
             upstreams: 127.0.0.1:{upstream}\n"
        )
    };
    let first = alone(1, defaults(one, two));
    let second = alone(2, defaults(two, one));
    let mut here = second.nodes[0].connect();
    let mut there = first.nodes[0].connect();
    there.call(&["SET", "first", "1"]);
    wait_until("the filter is there", || holding(&mut here, "first", "dc1") == "dc1 maybe");
    // A machine that is busy with other things may be late once, not each time.
    let mut times = Vec::new();
    for n in 0..5 {
        let key = format!("key-{n}");
        let key = key.as_str();
        let commands = [vec!["SET", key, "1"], vec!["DEL", key]];
        for (command, word) in commands.iter().zip(["dc1 maybe", "dc1 no"]) {
            let begun = Instant::now();
            there.call(command);
            wait_until("it is known", || holding(&mut here, key, "dc1") == word);
            times.push(begun.elapsed());
        }
    }
    println!("a write is known after {times:?}");
    let best = times.iter().min().expect("times");
    assert!(*best < Duration::from_secs(2), "{times:?}");
}

/// The pool of keys, as the upstream's part of a node's `/relay` shows it.
fn followed(ring: &Ring) -> serde_json::Value {
    let page = relay_page(ring);
    let pools = page["upstreams"][0]["pools"].as_array().cloned().unwrap_or_default();
    let is_keys = |pool: &serde_json::Value| {
        pool["endpoint"].as_str().is_some_and(|endpoint| endpoint.ends_with("dnode"))
    };
    pools.into_iter().find(is_keys).unwrap_or_default()
}

fn relay_page(ring: &Ring) -> serde_json::Value {
    let (status, body) = get(&ring.nodes[0], "/relay");
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).expect("JSON")
}

/// Stops a process as a debugger does, or lets it go on.
fn signal(ring: &Ring, name: &str) {
    let id = ring.nodes[0].process.as_ref().expect("it runs").id().to_string();
    let status = Command::new("kill").args([name, &id]).status();
    assert!(status.is_ok_and(|status| status.success()), "kill {name}");
}

#[test]
fn a_new_generation_a_stalled_consumer_and_its_restart_are_all_got_over() {
    let (one, two) = (free_port(), free_port());
    let first = ring(1, one, two);
    let mut second = ring(2, two, one);
    let mut there = first.nodes[0].connect();
    there.call(&["SET", "a", "1"]);
    let knows = |ring: &Ring, key: &str, word: &str| {
        Client::try_connect(ring.nodes[0].client)
            .is_ok_and(|mut client| holding(&mut client, key, "dc1") == word)
    };
    wait_until("the filter is there", || knows(&second, "a", "dc1 maybe"));

    // A new generation is another pool to subscribe to; catalog and load go on as they were.
    let before = followed(&second)["producer_incarnation"].as_u64().expect("a generation");
    let (status, body) = page(&first.nodes[0], "POST", "/affinity/rebuild");
    assert_eq!(status, 200, "{body}");
    there.call(&["SET", "b", "1"]);
    wait_until("the new generation is followed", || {
        followed(&second)["producer_incarnation"].as_u64().is_some_and(|now| now > before)
            && knows(&second, "a", "dc1 maybe")
            && knows(&second, "b", "dc1 maybe")
    });
    let upstream = relay_page(&second)["upstreams"][0].clone();
    for plane in ["catalog", "readiness", "load"] {
        assert!(upstream["planes"][plane]["trouble"].is_null(), "{upstream}");
    }

    // A consumer that stands still is given up, and disturbs nobody; it begins anew.
    let faults = || {
        let page = relay_page(&second);
        let faults = page["upstreams"][0]["faults"].as_object().cloned().unwrap_or_default();
        faults.values().filter_map(serde_json::Value::as_u64).sum::<u64>()
    };
    let before = faults();
    signal(&second, "-STOP");
    let mut count = 0;
    wait_until("its streams are gone", || {
        let bytes: Vec<u8> =
            (0..100).flat_map(|n| encode(&["SET", &format!("k{}", count + n), "v"])).collect();
        there.send(&bytes).expect("sent");
        (0..100).for_each(|_| assert!(!there.reply().expect("a reply").is_error()));
        count = (count + 100) % 10_000;
        let (_, metrics) = get(&first.nodes[0], "/metrics");
        metrics.contains("torc_relay_streams_open{kind=\"pool\"} 0")
    });
    there.call(&["SET", "c", "1"]);
    there.call(&["DEL", "b"]);
    signal(&second, "-CONT");
    wait_until("it catches up", || {
        knows(&second, "c", "dc1 maybe") && knows(&second, "b", "dc1 no")
    });
    assert!(faults() > before);

    // The consumer is killed and comes back: it takes the whole filter first.
    second.nodes[0].kill();
    there.call(&["SET", "d", "1"]);
    second.nodes[0].start();
    wait_until("it is back", || knows(&second, "d", "dc1 maybe"));
    assert!(knows(&second, "a", "dc1 maybe") && knows(&second, "never", "dc1 no"));
    assert_eq!(followed(&second)["snapshots"], 1);
}

/// A ring of one rack whose nodes serve on `listens`, one each, and follow `upstreams`.
fn ring_of(dc: &str, listens: &[u16], upstreams: &[u16]) -> Ring {
    let upstreams: Vec<String> = upstreams.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    let extra = |listen: u16| {
        format!(
            "  affinity: {{mode: advise, expected_keys: 20000}}\n  embedded: \
             {{memory_bytes_max: 64mb}}\n  relay:\n    listen: 127.0.0.1:{listen}\n    \
             upstreams: [{}]\n    load_window_ms: 50\n",
            upstreams.join(", ")
        )
    };
    let (dcs, store) = (Vec::new(), Store::Embedded);
    let mut ring = Ring::empty(Layout { dcs, store, extra: String::new() });
    for (n, listen) in listens.iter().enumerate() {
        ring.set_extra(&extra(*listen));
        ring.add(dc, "r1", (n as u64 * (1 << 32) / listens.len() as u64) as u32);
    }
    ring.wait_settled();
    ring
}

#[test]
fn one_node_of_a_datacenter_follows_a_relay_and_all_know() {
    let ports: Vec<u16> = (0..4).map(|_| free_port()).collect();
    let one = ring_of("dc1", &ports[..1], &ports[1..]);
    let mut three = ring_of("dc2", &ports[1..], &ports[..1]);
    let mut there = one.nodes[0].connect();
    there.call(&["SET", "a", "1"]);
    let all_know = |three: &Ring, key: &str, word: &str| {
        let up = three.nodes.iter().filter(|node| node.process.is_some());
        up.clone().all(|node| {
            Client::try_connect(node.client)
                .is_ok_and(|mut client| holding(&mut client, key, "dc1") == word)
        })
    };
    wait_until("all know", || all_know(&three, "a", "dc1 maybe"));
    let streams = || {
        let (_, metrics) = get(&one.nodes[0], "/metrics");
        let open = metrics
            .lines()
            .find_map(|line| line.strip_prefix("torc_relay_streams_open{kind=\"pool\"} "));
        open.and_then(|open| open.parse::<u64>().ok())
    };
    wait_until("one of them follows", || streams() == Some(1));
    there.call(&["DEL", "a"]);
    there.call(&["SET", "b", "1"]);
    wait_until("changes reach all", || {
        all_know(&three, "a", "dc1 no") && all_know(&three, "b", "dc1 maybe")
    });
    let about = relay_page(&three)["domains"][0].clone();
    let named = |post: &str| about[post].as_str().expect("a name").to_owned();
    assert_ne!(named("publisher"), named("importer"));

    // The stores of all three make the pool's load.
    wait_until("the load is known", || {
        let page = relay_page(&one);
        let loads: Vec<serde_json::Value> = page["upstreams"]
            .as_array()
            .into_iter()
            .flatten()
            .flat_map(|upstream| upstream["load"].as_array().cloned().unwrap_or_default())
            .collect();
        matches!(&loads[..], [load] if load["ranks"] == "3/3" && load["authoritative"] == true)
    });

    // The one that follows dies; another one does what it did.
    let importer: usize = named("importer")[1..].parse().expect("its number");
    three.nodes[importer].kill();
    there.call(&["SET", "c", "1"]);
    wait_until("another one follows", || all_know(&three, "c", "dc1 maybe"));
}

#[test]
fn operators_see_what_a_relay_serves_and_follows() {
    let (one, two) = (free_port(), free_port());
    let first = ring(1, one, two);
    let second = ring(2, two, one);
    let mut there = first.nodes[0].connect();
    there.call(&["SET", "a", "1"]);
    let mut here = second.nodes[0].connect();
    wait_until("the filters are there", || holding(&mut here, "a", "dc1") == "dc1 maybe");
    let shown = |wanted: &dyn Fn(&serde_json::Value) -> bool| {
        let (status, body) = get(&second.nodes[0], "/relay");
        assert_eq!(status, 200, "{body}");
        wanted(&serde_json::from_str(&body).expect("JSON"))
    };
    wait_until("everything is shown", || {
        shown(&|page| {
            let upstream = &page["upstreams"][0];
            let ready = upstream["readiness"].as_array().unwrap();
            page["server"]["pools"].as_array().unwrap().len() == 2
                && upstream["pools"].as_array().unwrap().len() == 2
                && upstream["pools"][0]["sequence"].is_u64()
                && ready.len() == 2
                && ready.iter().all(|entry| entry["state"] == "ready")
                && upstream["load"].as_array().unwrap().iter().any(|l| l["authoritative"] == true)
        })
    });
    wait_until("both filters are counted as streams", || {
        let (_, metrics) = get(&first.nodes[0], "/metrics");
        metrics.contains("torc_relay_streams_open{kind=\"pool\"} 2")
    });
    let (_, metrics) = get(&second.nodes[0], "/metrics");
    let connected = format!("torc_relay_upstream_connected{{upstream=\"127.0.0.1:{one}\"}} 1");
    assert!(metrics.contains(&connected), "{metrics}");

    let mut watch = Command::new(env!("CARGO_BIN_EXE_torc"))
        .args(["relay", "watch", &format!("127.0.0.1:{one}")])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("torc relay watch");
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut wait_for = |text: &str| lines.find(|line| line.contains(text)).expect(text);
    wait_for("connected");
    let snapshot = wait_for("snapshot at");
    assert!(snapshot.contains("filter dc1/"), "{snapshot}");
    there.call(&["SET", "b", "1"]);
    wait_for("deltas");
    watch.kill().expect("it ran");
    watch.wait().expect("it ended");
}
