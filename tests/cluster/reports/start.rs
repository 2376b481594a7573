//! What clients and their libraries send before anything else, and where nodes listen.

use std::fs;
use std::process::{Command, Stdio};

use super::{call, pong, single, still_answers};
use crate::client::{Client, Reply, bulk, ok};
use crate::ring::{Folder, Process, free_port, wait_until};

/// envoyproxy/envoy#17571, redis/go-redis#2616: libraries begin with HELLO, and some give up on
/// anything but the true answer.
#[test]
fn hello_is_answered() {
    let Some(ring) = single("hello_is_answered") else { return };
    for (hello, protocol) in [("HELLO 3", 3), ("HELLO 2", 2), ("HELLO", 2)] {
        let mut client = ring.nodes[0].connect();
        let Reply::Array(fields) = call(&mut client, hello) else { panic!("{hello}: no fields") };
        let field = fields.chunks(2).find(|pair| pair[0] == bulk("proto"));
        assert_eq!(field.map(|pair| &pair[1]), Some(&Reply::Int(protocol)), "{hello}");
        still_answers(&mut client, hello);
    }
}

/// Netflix/dynomite#696: redis-cli asks for the command table, then the user types.
#[test]
fn redis_cli_may_ask_for_the_command_table() {
    let Some(ring) = single("redis_cli_may_ask_for_the_command_table") else { return };
    for first in ["COMMAND", "COMMAND DOCS", "COMMAND COUNT"] {
        let mut client = ring.nodes[0].connect();
        assert!(!call(&mut client, first).is_error(), "{first}");
        assert_eq!(call(&mut client, "SET a a"), ok(), "{first}");
        assert_eq!(call(&mut client, "GET a"), bulk("a"), "{first}");
    }
}

/// Netflix/dynomite#670, #779: libraries select database 0 unasked; there is no other.
#[test]
fn database_0_can_be_selected_and_no_other() {
    let Some(ring) = single("database_0_can_be_selected_and_no_other") else { return };
    let mut client = ring.nodes[0].connect();
    assert_eq!(call(&mut client, "SELECT 0"), ok());
    for wrong in ["SELECT 7", "SELECT 99999", "SELECT x"] {
        assert!(call(&mut client, wrong).text().starts_with("ERR "), "{wrong}");
    }
    still_answers(&mut client, "SELECT");
}

/// redis/redis-py#2384, redis/ioredis#780, StackExchange/StackExchange.Redis#731 and others: the
/// first commands of five families of clients.
#[test]
fn the_handshakes_of_five_families_of_clients_go_through() {
    let name = "the_handshakes_of_five_families_of_clients_go_through";
    let Some(ring) = single(name) else { return };
    let families: [&[&str]; 5] = [
        &["CLIENT SETINFO LIB-NAME redis-py", "CLIENT SETINFO LIB-VER 5.0.1", "SELECT 0"],
        &["HELLO 3", "CLIENT SETINFO LIB-NAME go-redis", "CLIENT SETINFO LIB-VER 9.5.0"],
        &["HELLO 3", "CLIENT SETINFO lib-name Lettuce", "CLIENT SETNAME app", "PING"],
        &["INFO", "CLIENT SETNAME app"],
        &[
            "HELLO 2",
            "CLIENT SETNAME host(app)",
            "CLIENT ID",
            "CONFIG GET timeout",
            "INFO replication",
            "INFO server",
            "CLUSTER NODES",
            "ECHO there",
        ],
    ];
    for family in families {
        let mut client = ring.nodes[0].connect();
        for words in family {
            call(&mut client, words);
        }
        assert_eq!(call(&mut client, "SET key v"), ok(), "{family:?}");
    }
}

/// Netflix/dynomite#814, redis/redis#132.
#[test]
fn a_password_nobody_asked_for_is_refused_in_words() {
    let Some(ring) = single("a_password_nobody_asked_for_is_refused_in_words") else { return };
    let mut client = ring.nodes[0].connect();
    for auth in ["AUTH secret", "AUTH somebody secret"] {
        let reply = call(&mut client, auth);
        assert!(reply.is_error(), "{auth}: {reply:?}");
        still_answers(&mut client, auth);
    }
}

/// Netflix/dynomite#526, twitter/twemproxy#605.
#[test]
fn info_takes_sections() {
    let Some(ring) = single("info_takes_sections") else { return };
    let mut client = ring.nodes[0].connect();
    for info in ["INFO", "INFO server", "info everything", "INFO replication memory"] {
        let Reply::Bulk(text) = call(&mut client, info) else { panic!("{info}: no text") };
        let text = String::from_utf8(text).expect("text");
        let fields = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        assert!(fields.clone().count() > 0, "{info}: {text}");
        assert!(fields.clone().all(|line| line.contains(':')), "{info}: {text}");
        still_answers(&mut client, info);
    }
}

/// A node in front of nothing but its own memory, with these lines in its pool.
fn lone_node(lines: &str) -> (Process, Folder) {
    let folder = Folder::new();
    let conf = folder.0.join("node.yml");
    let common = "dyn_o_mite:\n  datacenter: dc1\n  rack: r1\n  tokens: '437425602'\n  \
                  datastore: embedded\n";
    fs::write(&conf, format!("{common}{lines}")).expect("configuration written");
    let child = Command::new(env!("CARGO_BIN_EXE_torc"))
        .arg("-c")
        .arg(&conf)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("torc starts");
    (Process::new(child), folder)
}

/// Netflix/dynomite#828. Skipped where the machine has no IPv6.
#[test]
fn all_three_ports_can_be_ipv6() {
    if std::net::TcpListener::bind(("::1", 0)).is_err() {
        println!("skipped: all_three_ports_can_be_ipv6: no IPv6");
        return;
    }
    let (client, peer, admin) = (free_port(), free_port(), free_port());
    let lines = format!(
        "  listen: '[::1]:{client}'\n  dyn_listen: '[::1]:{peer}'\n  \
         stats_listen: '[::1]:{admin}'\n"
    );
    let _node = lone_node(&lines);
    wait_until("a listener on ::1", || Client::try_connect_to("::1", client).is_ok());
    let mut connection = Client::try_connect_to("::1", client).expect("connected");
    assert_eq!(call(&mut connection, "SET v6 1"), ok());
    assert_eq!(call(&mut connection, "GET v6"), bulk("1"));
    for port in [peer, admin] {
        assert!(Client::try_connect_to("::1", port).is_ok(), "port {port}");
    }
}

/// Netflix/dynomite#462: two nodes that name each other could never start.
#[test]
fn a_seed_whose_name_is_not_known_does_not_stop_the_start() {
    let (client, peer, admin) = (free_port(), free_port(), free_port());
    let lines = format!(
        "  listen: 127.0.0.1:{client}\n  dyn_listen: 127.0.0.1:{peer}\n  \
         stats_listen: 127.0.0.1:{admin}\n  dyn_seeds:\n  \
         - not-there-yet.invalid:8101:r2:dc1:437425602\n"
    );
    let (mut process, _folder) = lone_node(&lines);
    wait_until("the node listens", || Client::try_connect(client).is_ok());
    let mut connection = Client::connect(client);
    assert_eq!(call(&mut connection, "PING"), pong());
    assert_eq!(call(&mut connection, "SET here 1"), ok());
    assert_eq!(call(&mut connection, "GET here"), bulk("1"));
    assert!(!process.has_ended());
}
