//! Replies lifted to RESP3 against what redis-server itself sends on a RESP3 connection.

use crate::server::{Connection, Server, request};
use std::collections::BTreeSet;
use torc::proto::command::Routing;
use torc::proto::resp::lift;
use torc::proto::resp::shape::Shape;
use torc::proto::resp::table::{self, ModuleCommands};

/// A script that uses every command of the table that redis-server 7.0 has, with the options that
/// change its reply, on keys that are there, missing, and of another type. Lines that begin with
/// `?` have a reply that differs from call to call: only its types are compared.
const SCRIPT: &str = include_str!("lift.txt");

fn lines() -> impl Iterator<Item = &'static str> {
    SCRIPT.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

fn run(redis: &mut Connection) -> Vec<Vec<u8>> {
    for line in ["FLUSHALL", "FUNCTION FLUSH", "SCRIPT FLUSH", "CONFIG RESETSTAT"] {
        redis.call(line);
    }
    lines().map(|line| redis.call(line.trim_start_matches('?'))).collect()
}

fn shape_of(line: &str) -> Shape {
    request(line.trim_start_matches('?'), |_, args| {
        match table::find(args, &ModuleCommands::default()) {
            Ok(spec) => spec.shape_of(args),
            Err(_) => Shape::Same,
        }
    })
}

#[test]
fn every_reply_is_lifted_as_redis_sends_it() {
    let Some(server) = Server::redis("every_reply_is_lifted_as_redis_sends_it") else { return };
    let in_resp2 = run(&mut server.connect());
    let mut redis = server.connect();
    redis.call("HELLO 3");
    let in_resp3 = run(&mut redis);
    let mut wrong = Vec::new();
    for ((line, reply), theirs) in lines().zip(&in_resp2).zip(&in_resp3) {
        let mut ours = Vec::new();
        lift::lift(shape_of(line), reply, &mut ours);
        let equal = match line.starts_with('?') {
            false => &ours == theirs,
            true => types(&ours) == types(theirs),
        };
        if !equal {
            wrong.push(format!(
                "{line}\n   ours {}\n theirs {}",
                ours.escape_ascii(),
                theirs.escape_ascii()
            ));
        }
        if lift::is_unchanged(shape_of(line), reply) {
            assert_eq!(&ours, reply, "{line}");
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The types of a reply's elements and the lengths of its containers.
fn types(reply: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < reply.len() {
        let end = at + reply[at..].windows(2).position(|w| w == b"\r\n").unwrap() + 2;
        let head = String::from_utf8_lossy(&reply[at..end - 2]).into_owned();
        let kind = char::from(reply[at]);
        at = end;
        match kind {
            '*' | '~' | '%' => found.push(head),
            '$' | '=' => {
                at += head[1..].parse::<usize>().unwrap() + 2;
                found.push(kind.to_string());
            }
            _ => found.push(kind.to_string()),
        }
    }
    found
}

#[test]
fn exec_is_lifted_by_its_commands() {
    let Some(server) = Server::redis("exec_is_lifted_by_its_commands") else { return };
    let block = [
        "HSET h f v",
        "HGETALL h",
        "ZADD z 1.5 a",
        "ZSCORE z a",
        "ZRANGE z 0 -1 WITHSCORES",
        "GET none",
        "SMEMBERS h",
        "SMEMBERS none",
    ];
    let transact = |redis: &mut Connection| {
        redis.call("FLUSHALL");
        redis.call("MULTI");
        block.iter().for_each(|line| assert_eq!(redis.call(line), b"+QUEUED\r\n"));
        redis.call("EXEC")
    };
    let in_resp2 = transact(&mut server.connect());
    let mut redis = server.connect();
    redis.call("HELLO 3");
    let theirs = transact(&mut redis);
    let shapes: Vec<Shape> = block.iter().map(|line| shape_of(line)).collect();
    let mut ours = Vec::new();
    lift::lift_exec(&shapes, &in_resp2, &mut ours);
    assert_eq!(ours.escape_ascii().to_string(), theirs.escape_ascii().to_string());
}

/// Rows that the script need not use: answered by the node, refused, or newer than 7.0.
fn is_exempt(row: &torc::proto::resp::spec::CommandSpec) -> bool {
    let offered = matches!(row.routing, Routing::Keyed | Routing::Ring | Routing::LocalStore)
        || matches!(row.routing, Routing::AllNodes | Routing::Blocking);
    let newer = [
        "delex",
        "digest",
        "msetex",
        "hexpire",
        "hexpireat",
        "hexpiretime",
        "hgetdel",
        "hgetex",
        "hpersist",
        "hpexpire",
        "hpexpireat",
        "hpexpiretime",
        "hpttl",
        "hsetex",
        "httl",
        "xackdel",
        "xdelex",
    ];
    let module = row.name.contains('.') || row.name.starts_with('v');
    // These stop or disturb the server.
    let harmful = ["bgrewriteaof", "bgsave", "function|kill", "script|kill"];
    !offered || newer.contains(&row.name) || module || harmful.contains(&row.name)
}

#[test]
fn the_script_uses_every_command() {
    let used: BTreeSet<&str> = lines()
        .filter_map(|line| {
            request(line.trim_start_matches('?'), |_, args| {
                table::find(args, &ModuleCommands::default()).ok().map(|spec| spec.name)
            })
        })
        .collect();
    let missing: Vec<&str> = table::rows()
        .filter(|row| !row.container && !is_exempt(row) && !used.contains(row.name))
        .map(|row| row.name)
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}
