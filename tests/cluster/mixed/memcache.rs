//! A memcache ring of a torc node and one of the reference. Reads are not tried there: a get ends
//! the reference's process.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use super::ring::free_net;
use crate::client::Client;
use crate::ring::wait_until;
use crate::ring::{Folder, Process, dynomite_bin, free_port, memcached_bin, memcached_process};

/// Starts a node of one rack whose peer is the one node of the other rack.
fn node(bin: &Path, folder: &Folder, net: &str, (own, other): (u8, u8), store: u16) -> Process {
    let host = format!("{net}.{own}");
    let conf = folder.0.join(format!("r{own}.yml"));
    let text = format!(
        "dyn_o_mite:\n  datacenter: dc1\n  rack: r{own}\n  tokens: '0'\n  env: network\n  \
         listen: {host}:8102\n  dyn_listen: {host}:8101\n  stats_listen: {host}:22222\n  \
         data_store: 1\n  timeout: 3000\n  secure_server_option: none\n  \
         dyn_seed_provider: simple_provider\n  servers:\n  - 127.0.0.1:{store}:1\n  \
         dyn_seeds:\n  - {net}.{other}:8101:r{other}:dc1:0\n"
    );
    fs::write(&conf, text).expect("configuration written");
    let child = Command::new(bin)
        .arg("-c")
        .arg(&conf)
        .arg("-o")
        .arg(folder.0.join(format!("r{own}.log")))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("a node starts");
    Process::new(child)
}

fn ask(client: &mut Client, request: &str) -> String {
    client.send(request.as_bytes()).expect("sent");
    String::from_utf8_lossy(&client.line().expect("a line")).into_owned()
}

/// What a store has at a key.
fn held(store: &mut Client, key: &str) -> String {
    store.send(format!("get {key}\r\n").as_bytes()).expect("sent");
    String::from_utf8_lossy(&store.until(b"END\r\n").expect("an answer")).into_owned()
}

#[test]
fn a_memcache_node_of_the_reference_gets_every_write() {
    let name = "a_memcache_node_of_the_reference_gets_every_write";
    let (Some(dynomite), Some(memcached)) = (dynomite_bin(name), memcached_bin(name)) else {
        return;
    };
    let (net, folder) = (free_net(), Folder::new());
    let stores = [free_port(), free_port()];
    let _stores = stores.map(|port| memcached_process(&memcached, port));
    let _reference = node(&dynomite, &folder, &net, (2, 1), stores[1]);
    let torc = Path::new(env!("CARGO_BIN_EXE_torc"));
    let _torc = node(torc, &folder, &net, (1, 2), stores[0]);
    let host = format!("{net}.1");
    wait_until("the node listens", || Client::try_connect_to(&host, 8102).is_ok());
    let mut client = Client::try_connect_to(&host, 8102).expect("connected");
    let mut there = Client::connect(stores[1]);
    wait_until("they have joined", || {
        ask(&mut client, "set joined 0 0 1\r\nx\r\n");
        held(&mut there, "joined") != "END\r\n"
    });
    let mut written = |request: &str, answer: &str, key: &str, right: &str| {
        assert_eq!(ask(&mut client, request), answer, "{request:?}");
        wait_until(&format!("{request:?} arrives"), || held(&mut there, key) == right);
    };
    let value =
        |key: &str, value: &str| format!("VALUE {key} 0 {}\r\n{value}\r\nEND\r\n", value.len());
    // The link is asked who is there all the while; what it is asked must not end it.
    for i in 0..25 {
        let (key, number) = (format!("k{i}"), (i + 10).to_string());
        written(&format!("set {key} 0 0 2\r\n{number}\r\n"), "STORED", &key, &value(&key, &number));
        std::thread::sleep(std::time::Duration::from_millis(60));
    }
    written("add k0 0 0 1\r\nx\r\n", "NOT_STORED", "k0", &value("k0", "10"));
    written("add new 0 60 3\r\nnew\r\n", "STORED", "new", &value("new", "new"));
    written("incr k0 5\r\n", "15", "k0", &value("k0", "15"));
    written("append k1 0 0 1\r\n!\r\n", "STORED", "k1", &value("k1", "11!"));
    written("delete k2 0\r\n", "DELETED", "k2", "END\r\n");
    written("set k3 0 -1 1\r\nx\r\n", "STORED", "k3", "END\r\n");
    for refused in ["ms k4 1\r\nx\r\n", "md k4\r\n", "gat 10 k4\r\n", "ma k0\r\n"] {
        let answer = ask(&mut client, refused);
        let right = "SERVER_ERROR Peer: Peer Node does not know this command (";
        assert!(answer.starts_with(right), "{refused:?}: {answer}");
    }
}
