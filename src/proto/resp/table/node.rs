//! Commands about connections, nodes, scripts and transactions.

use super::super::key_use::{ASKS, CHANGES_AND_TELLS};
use super::super::shape::Shape;
use super::super::spec::{ANY, CommandSpec, admin, container, read, refused, write};
use crate::proto::command::Class::Write;
use crate::proto::command::KeySpec::{self, None as NoKey, NumKeys, Range};
use crate::proto::command::Routing::{AllNodes, Hangup, LocalStore, Node, Transaction};
use crate::proto::command::TowardC::{Refuse, Rewrite};

const SCRIPT_KEYS: KeySpec = NumKeys { at: 2, step: 1 };
const ALL: KeySpec = Range { first: 1, last: -1, step: 1 };
const SECOND: KeySpec = Range { first: 2, last: 2, step: 1 };

const PUBSUB: &str = "publish/subscribe is not offered by this node";
const REPLICATION: &str = "replication is done by the ring";
const OPERATOR: &str = "this command is for the operator of the datastore, not for its clients";
const TRACKING: &str = "client side caching is not offered by this node";
const MONITOR: &str = "MONITOR is not offered by this node";
const ACL: &str = "access control lists are not offered by this node";
const CLUSTER: &str = "This instance has cluster support disabled";

pub(super) const CONNECTION: &[CommandSpec] = &[
    admin("auth", -2, Node),
    container("client"),
    refused("client|caching", 3, TRACKING),
    admin("client|getname", 2, Node),
    admin("client|getredir", 2, Node),
    admin("client|id", 2, Node),
    admin("client|info", 2, Node).lift(Shape::Verbatim),
    admin("client|kill", -3, Node),
    admin("client|list", -2, Node).lift(Shape::Verbatim),
    admin("client|maint_notifications", -3, Node),
    admin("client|no-evict", 3, Node),
    admin("client|no-touch", 3, Node),
    refused("client|pause", -3, OPERATOR),
    admin("client|reply", 3, Node),
    admin("client|setinfo", 4, Node),
    admin("client|setname", 3, Node),
    admin("client|tracking", -3, Node),
    admin("client|trackinginfo", 2, Node).lift(Shape::FlagMap),
    admin("client|unblock", -3, Node),
    refused("client|unpause", 2, OPERATOR),
    admin("echo", 2, Node),
    admin("hello", -1, Node).lift(Shape::Map),
    admin("ping", -1, Node).c(0, 0),
    admin("quit", -1, Node),
    admin("reset", 1, Node),
];

pub(super) const SERVER: &[CommandSpec] = &[
    container("acl"),
    admin("acl|whoami", 2, Node),
    refused("acl|cat", -2, ACL),
    refused("acl|deluser", -3, ACL),
    refused("acl|dryrun", -4, ACL),
    refused("acl|genpass", -2, ACL),
    refused("acl|getuser", 3, ACL),
    refused("acl|list", 2, ACL),
    refused("acl|load", 2, ACL),
    refused("acl|log", -2, ACL),
    refused("acl|save", 2, ACL),
    refused("acl|setuser", -3, ACL),
    refused("acl|users", 2, ACL),
    admin("bgrewriteaof", 1, LocalStore),
    admin("bgsave", -1, LocalStore),
    CommandSpec { arity: -1, ..container("command") }.lift(Shape::Commands),
    admin("command|count", 2, Node),
    admin("command|docs", -2, Node).lift(Shape::CommandDocs),
    admin("command|getkeys", -4, Node),
    admin("command|getkeysandflags", -4, Node).lift(Shape::KeysAndFlags),
    admin("command|info", -2, Node).lift(Shape::Commands),
    admin("command|list", -2, Node),
    container("config"),
    admin("config|get", -3, Node).lift(Shape::Map).c(2, 2),
    refused("config|resetstat", 2, OPERATOR),
    refused("config|rewrite", 2, OPERATOR),
    refused("config|set", -4, OPERATOR),
    refused("debug", -2, OPERATOR),
    refused("failover", -1, REPLICATION),
    admin("info", -1, Node).lift(Shape::Verbatim).c(0, 1),
    admin("lastsave", 1, LocalStore),
    container("latency"),
    admin("latency|doctor", 2, LocalStore).lift(Shape::Verbatim),
    admin("latency|graph", 3, LocalStore).lift(Shape::Verbatim),
    admin("latency|histogram", -2, LocalStore).lift(Shape::Histograms),
    admin("latency|history", 3, LocalStore),
    admin("latency|latest", 2, LocalStore),
    admin("latency|reset", -2, LocalStore),
    admin("lolwut", -1, LocalStore).lift(Shape::Verbatim),
    container("memory"),
    admin("memory|doctor", 2, LocalStore).lift(Shape::Verbatim),
    admin("memory|malloc-stats", 2, LocalStore).lift(Shape::Verbatim),
    admin("memory|purge", 2, LocalStore),
    admin("memory|stats", 2, LocalStore).lift(Shape::Stats),
    read("memory|usage", -3, SECOND).uses(ASKS).cmp(super::Any),
    container("module"),
    admin("module|list", 2, LocalStore).lift(Shape::Maps),
    refused("module|load", -3, OPERATOR),
    refused("module|loadex", -3, OPERATOR),
    refused("module|unload", 3, OPERATOR),
    refused("monitor", 1, MONITOR),
    refused("pfdebug", 3, OPERATOR),
    refused("pfselftest", 1, OPERATOR),
    refused("psync", -3, REPLICATION),
    refused("replconf", -1, REPLICATION),
    refused("replicaof", 3, REPLICATION),
    refused("restore-asking", -4, CLUSTER),
    admin("role", 1, Node),
    refused("save", 1, OPERATOR),
    refused("shutdown", -1, OPERATOR),
    refused("slaveof", 3, REPLICATION),
    container("slowlog"),
    admin("slowlog|get", -2, LocalStore),
    admin("slowlog|len", 2, LocalStore),
    admin("slowlog|reset", 2, LocalStore),
    refused("sync", 1, REPLICATION),
    admin("time", 1, Node),
    admin("wait", 3, Node),
    admin("waitaof", 4, Node),
    // What an HTTP client sends when a web page led it here.
    admin("host:", -1, Hangup),
    admin("post", -1, Hangup),
];

pub(super) const CLUSTER_MODE: &[CommandSpec] = &[
    refused("asking", 1, CLUSTER),
    admin("cluster", -2, Node),
    admin("readonly", 1, Node),
    admin("readwrite", 1, Node),
];

pub(super) const PUB_SUB: &[CommandSpec] = &[
    refused("psubscribe", -2, PUBSUB),
    refused("publish", 3, PUBSUB),
    refused("pubsub", -2, PUBSUB),
    refused("punsubscribe", -1, PUBSUB),
    refused("spublish", 3, PUBSUB),
    refused("ssubscribe", -2, PUBSUB),
    refused("subscribe", -2, PUBSUB),
    refused("sunsubscribe", -1, PUBSUB),
    refused("unsubscribe", -1, PUBSUB),
];

pub(super) const SCRIPTING: &[CommandSpec] = &[
    write("eval", -3, SCRIPT_KEYS).uses(CHANGES_AND_TELLS).c(3, ANY).c_else(Refuse),
    read("eval_ro", -3, SCRIPT_KEYS).c_else(Rewrite),
    write("evalsha", -3, SCRIPT_KEYS).uses(CHANGES_AND_TELLS).c(3, ANY).c_else(Refuse),
    read("evalsha_ro", -3, SCRIPT_KEYS).c_else(Rewrite),
    write("fcall", -3, SCRIPT_KEYS).uses(CHANGES_AND_TELLS).c_else(Refuse),
    read("fcall_ro", -3, SCRIPT_KEYS).c_else(Refuse),
    container("function"),
    write("function|delete", 3, NoKey).to(AllNodes),
    admin("function|dump", 2, LocalStore),
    write("function|flush", -2, NoKey).to(AllNodes),
    admin("function|kill", 2, AllNodes),
    admin("function|list", -2, LocalStore).lift(Shape::FunctionList),
    write("function|load", -3, NoKey).to(AllNodes),
    write("function|restore", -3, NoKey).to(AllNodes),
    admin("function|stats", 2, LocalStore).lift(Shape::MapOfMaps),
    container("script"),
    refused("script|debug", 3, OPERATOR),
    admin("script|exists", -3, AllNodes).c(2, 2),
    admin("script|flush", -2, AllNodes).reference(Write).c(1, 1),
    admin("script|kill", 2, AllNodes).reference(Write).c(1, 1),
    admin("script|load", 3, AllNodes).reference(Write).c(2, 2),
];

pub(super) const TRANSACTIONS: &[CommandSpec] = &[
    admin("discard", 1, Transaction),
    admin("exec", 1, Transaction),
    admin("multi", 1, Transaction),
    admin("unwatch", 1, Transaction),
    CommandSpec { keys: ALL, ..admin("watch", -2, Transaction).uses(ASKS) },
];

/// Commands of this node alone.
pub(super) const TORC: &[CommandSpec] = &[
    admin("dyno_config:conn_consistency", 2, Node),
    admin("torc.backfill", 5, Node),
    admin("torc.consistency", -1, Node),
    admin("torc.exec", -1, Node),
    admin("torc.kv", -2, Node),
    admin("torc.local", -2, Node),
    admin("torc.plan", -2, Node),
    admin("torc.prefix", -2, Node).lift(Shape::Rows),
    admin("torc.prefixkeys", -2, Node).lift(Shape::Rows),
    admin("torc.replicas", -2, Node),
    admin("torc.script", 2, Node),
    admin("torc.tokens", -2, Node),
    admin("torc.where", -2, Node).lift(Shape::EntryMaps),
];
