//! Who holds what, as clients ask for it.

use std::net::TcpStream;

use crate::admin::page;
use crate::client::{Client, Reply, bulk};
use crate::ring::{Layout, Ring, Store, wait_until};

const EXTRA: &str = "  affinity:\n    mode: advise\n    expected_keys: 20000\n    domains:\n    \
                     - {name: llama, block_size: 4, semantics: {model: meta/llama}}\n";

fn words(client: &mut Client, line: &str) -> Reply {
    let args: Vec<&str> = line.split(' ').collect();
    client.call(&args)
}

/// What TORC.WHERE says of one key in each datacenter.
fn holding(client: &mut Client, key: &str) -> Vec<String> {
    let Reply::Array(keys) = client.call(&["TORC.WHERE", key]) else { panic!("an array") };
    let Reply::Array(dcs) = &keys[0] else { panic!("an array of datacenters") };
    dcs.iter().map(|dc| dc.text().replace('\n', " ")).collect()
}

#[test]
fn a_node_knows_its_keys_however_they_come_and_go() {
    let layout = Layout { dcs: vec![vec![1]], store: Store::Embedded, extra: EXTRA.to_owned() };
    let ring = Ring::start(layout);
    let mut client = ring.nodes[0].connect();
    assert_eq!(words(&mut client, "SET a 1"), Reply::Simple("OK".into()));
    words(&mut client, "SET short 1 PX 50");
    words(&mut client, "RPUSH list x");
    assert_eq!(holding(&mut client, "a"), ["dc1 yes"]);
    wait_until("an absent key is known to be absent", || holding(&mut client, "b") == ["dc1 no"]);
    wait_until("an expired key goes", || holding(&mut client, "short") == ["dc1 no"]);
    words(&mut client, "LPOP list");
    wait_until("an emptied key goes", || holding(&mut client, "list") == ["dc1 no"]);

    // A chain of keys is as deep as it is held from the start.
    for n in 0..300 {
        client.call(&["SET", &format!("chain:{n}"), "v"]);
    }
    let chain: Vec<String> = (0..310).map(|n| format!("chain:{n}")).collect();
    let ask = |client: &mut Client| {
        let args: Vec<&str> =
            std::iter::once("TORC.PREFIXKEYS").chain(chain.iter().map(String::as_str)).collect();
        let Reply::Array(dcs) = client.call(&args) else { panic!("an array") };
        let Reply::Array(row) = &dcs[0] else { panic!("a row") };
        row[1].clone()
    };
    wait_until("the whole chain is told", || ask(&mut client) == Reply::Int(300));
    client.call(&["DEL", "chain:100"]);
    wait_until("a hole ends it", || ask(&mut client) == Reply::Int(100));
}

#[test]
fn engines_tell_their_blocks_and_routers_ask_for_prompts() {
    let layout = Layout { dcs: vec![vec![1]], store: Store::Embedded, extra: EXTRA.to_owned() };
    let ring = Ring::start(layout);
    let mut client = ring.nodes[0].connect();
    let Reply::Array(blocks) = words(&mut client, "TORC.TOKENS 1 2 3 4 5 6 7 8 9 10 11 12") else {
        panic!("an array");
    };
    let hashes: Vec<(String, String)> = blocks
        .iter()
        .map(|block| {
            let text = block.text();
            let (block, chain) = text.split_once('\n').unwrap();
            (block.to_owned(), chain.to_owned())
        })
        .collect();
    assert_eq!(hashes.len(), 3);
    let unknown = |client: &mut Client| words(client, "TORC.PREFIX 1").text().contains("(nil)");
    wait_until("the node publishes", || !unknown(&mut client));
    let stored = |worker: usize, ids: std::ops::Range<usize>| {
        let pairs: Vec<String> =
            ids.map(|i| format!("{} {}", worker * 100 + i, hashes[i].0)).collect();
        format!("TORC.KV STORED {worker} 0 - {}", pairs.join(" "))
    };
    assert_eq!(words(&mut client, &stored(1, 0..3)), Reply::Int(3));
    assert_eq!(words(&mut client, &stored(2, 0..2)), Reply::Int(2));
    assert_eq!(words(&mut client, &stored(3, 0..1)), Reply::Int(1));
    let prompt = format!("TORC.PREFIX {} {} {}", hashes[0].1, hashes[1].1, hashes[2].1);
    let depth = |client: &mut Client| {
        let Reply::Array(dcs) = words(client, &prompt) else { panic!("an array") };
        let Reply::Array(row) = &dcs[0] else { panic!("a row") };
        assert_eq!(row[0], bulk("dc1"));
        row[1].clone()
    };
    assert_eq!(depth(&mut client), Reply::Int(3));
    words(&mut client, "TORC.KV CLEARED 1 0");
    assert_eq!(depth(&mut client), Reply::Int(2));
    words(&mut client, "TORC.KV REMOVED 2 0 201");
    assert_eq!(depth(&mut client), Reply::Int(1));
    let orphan = words(&mut client, "TORC.KV STORED 2 0 999 5 6");
    assert_eq!(orphan.text(), "ERR the parent block is not known to this source");
}

/// What redis-cli shows of a reply.
fn shown(reply: &Reply) -> Vec<String> {
    match reply {
        Reply::Simple(text) => vec![text.clone()],
        Reply::Int(number) => vec![format!("(integer) {number}")],
        Reply::Array(items) => {
            let item = |(number, item): (usize, &Reply)| {
                let head = format!("{}) ", number + 1);
                let blank = " ".repeat(head.len());
                let lines = shown(item).into_iter().enumerate();
                lines
                    .map(|(n, line)| format!("{}{line}", if n == 0 { &head } else { &blank }))
                    .collect::<Vec<_>>()
            };
            items.iter().enumerate().flat_map(item).collect()
        }
        other => vec![format!("{:?}", other.text())],
    }
}

/// The example of the README, typed as it stands there.
#[test]
fn the_chain_of_the_readme_is_answered_as_it_says() {
    let readme = include_str!("../../README.md");
    let section = readme.split_once("### Chains of KV blocks").expect("the section").1;
    let section = section.split_once("\n## ").expect("the next one").0;
    let typed = section.lines().filter_map(|line| line.strip_prefix("    "));
    let (config, session) = section.split_once("$ torc -c llama.yml").expect("it is started");
    let config: Vec<&str> = config.lines().filter_map(|line| line.strip_prefix("    ")).collect();
    let affinity = config.iter().position(|line| *line == "  affinity:").expect("a section");
    assert!(config.contains(&"  datacenter: dc1") && config.contains(&"  datastore: embedded"));
    let extra: String = config[affinity..].iter().map(|line| format!("{line}\n")).collect();
    let typed = typed.skip_while(|line| !line.starts_with("$ redis-cli"));
    assert!(session.contains("$ redis-cli"));
    let mut asked: Vec<(Vec<&str>, Vec<String>)> = Vec::new();
    for line in typed {
        match line.strip_prefix("$ redis-cli -p 8102 ") {
            Some(command) => asked.push((command.split(' ').collect(), Vec::new())),
            None => asked.last_mut().expect("a command").1.push(line.to_owned()),
        }
    }
    assert!(asked.len() > 8, "{asked:?}");
    let ring = Ring::start(Layout { dcs: vec![vec![1]], store: Store::Embedded, extra });
    let mut client = ring.nodes[0].connect();
    wait_until("the node publishes", || {
        !words(&mut client, "TORC.PREFIX 1").text().contains("nil")
    });
    for (command, printed) in asked {
        let mut lines = shown(&client.call(&command));
        let mut printed = printed;
        if command[0] == "TORC.PREFIX" {
            // How long ago the publisher was heard is another number each time.
            for lines in [&mut lines, &mut printed] {
                let age = lines.pop().expect("an age");
                let age = age.trim_start().strip_prefix("3) (integer) ").expect("the third");
                assert!(age.parse::<u64>().is_ok(), "{command:?}: {age}");
            }
        }
        assert_eq!(lines, printed, "{command:?}");
    }
}

/// The words for one key by datacenter, sorted by its name.
fn where_is(client: &mut Client, key: &str) -> Vec<String> {
    let mut words = holding(client, key);
    words.sort_unstable();
    words
}

#[test]
fn every_node_knows_what_each_datacenter_holds() {
    let dcs = vec![vec![2], vec![1, 1]];
    let layout = Layout { dcs, store: Store::Embedded, extra: EXTRA.to_owned() };
    let mut ring = Ring::start(layout);
    let mut client = ring.nodes[0].connect();
    for n in 0..200 {
        client.call(&["SET", &format!("k{n}"), "v"]);
    }
    let keys: Vec<String> = (0..200).step_by(23).map(|n| format!("k{n}")).collect();
    let all_know = |ring: &Ring, words: &[&str]| {
        let nodes = ring.nodes.iter().filter(|node| node.process.is_some());
        nodes.into_iter().all(|node| {
            let mut client = node.connect();
            keys.iter().all(|key| {
                // A node that holds the key itself is sure.
                let held = where_is(&mut client, key);
                held.iter().map(|word| word.replace("yes", "maybe")).eq(words.iter().copied())
            })
        })
    };
    wait_until("all are told", || all_know(&ring, &["dc1 maybe", "dc2 maybe"]));
    assert_eq!(where_is(&mut client, "nowhere"), ["dc1 no", "dc2 no"]);

    // Whoever publishes: each node of the first datacenter goes once, and comes back empty.
    for number in 0..2 {
        ring.nodes[number].kill();
        let rest = 1 - number;
        let mut other = ring.nodes[rest].connect();
        let mut far = ring.nodes[2].connect();
        wait_until("the others go on knowing", || {
            where_is(&mut far, "nowhere") == ["dc1 no", "dc2 no"]
                && where_is(&mut other, "nowhere") == ["dc1 no", "dc2 no"]
        });
        ring.nodes[number].start();
        ring.wait_settled();
        wait_until("and so does who came back", || {
            Client::try_connect(ring.nodes[number].client)
                .is_ok_and(|mut client| where_is(&mut client, "nowhere") == ["dc1 no", "dc2 no"])
        });
    }
    wait_until("what was lost is known to be lost", || all_know(&ring, &["dc1 no", "dc2 maybe"]));
}

/// Which of the running nodes publish.
fn publishers(ring: &Ring) -> Vec<usize> {
    let publishes = |number: &usize| {
        let node = &ring.nodes[*number];
        let up = node.process.is_some() && TcpStream::connect(("127.0.0.1", node.admin)).is_ok();
        up && page(node, "GET", "/affinity").1.contains("\"publishes\":true")
    };
    (0..ring.nodes.len()).filter(publishes).collect()
}

#[test]
fn a_publisher_that_is_named_publishes_while_it_lives() {
    let layout = Layout { dcs: vec![vec![2]], store: Store::Embedded, extra: EXTRA.to_owned() };
    let mut ring = Ring::start(layout);
    wait_until("somebody publishes", || publishers(&ring).len() == 1);
    // The other one is named.
    let (chosen, named) = (publishers(&ring)[0], 1 - publishers(&ring)[0]);
    for number in [chosen, named] {
        ring.nodes[number].kill();
        let publisher = format!("    mode: advise\n    publisher: n{named}\n");
        ring.nodes[number].edit(|text| text.replace("    mode: advise\n", &publisher));
        ring.nodes[number].start();
        ring.wait_settled();
    }
    wait_until("the one that is named publishes", || publishers(&ring) == [named]);
    ring.nodes[named].kill();
    wait_until("the other one stands in", || publishers(&ring) == [chosen]);
    let told = ring.nodes[chosen].log();
    assert!(told.contains("affinity: keys: this node publishes what dc1 holds"), "{told}");
    ring.nodes[named].start();
    wait_until("it publishes again", || publishers(&ring) == [named]);
}
