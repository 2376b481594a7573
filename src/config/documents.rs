//! `documents:`: the Meilisearch-compatible gateway over replica groups of Meilisearch servers.

use std::path::PathBuf;

use serde_json::{Value as Json, json};

use super::addr::Endpoint;
use super::error::{Fault, Faults};
use super::node::{Entry, Node, Value};
use super::numbers::ByteSize;
use super::section::section;
use super::setting::{Setting, read_text};
use super::texts::{Secret, words};

words! {
    /// What a pinned session does before it reads: `documents.session_strategy`.
    pub enum SessionWait ("is not a strategy") {
        /// Waits until its write is done in the pinned group.
        Block = "block",
        /// Reads the pinned group at once.
        RoutePin = "route_pin",
    }
}

words! {
    /// What a read does when shards are out of reach: `documents.partial_reads`.
    pub enum PartialAnswer ("is not a policy") {
        /// Answers from what can be reached and names what is missing.
        Partial = "partial",
        /// Answers 503.
        Error = "error",
    }
}

section! {
    /// `documents:`: the document gateway. It runs when `backends` are given.
    pub struct Documents {
        /// Where document clients connect. Default: 127.0.0.1:7701.
        pub listen: Endpoint = Endpoint::tcp("127.0.0.1", 7701),
        /// The Meilisearch servers: `name: http://host:port` by the name of the node in front of
        /// each, whose rack is the group; or `id: {url: ..., group: N}` without a ring's racks.
        /// Default: none, the gateway is off.
        pub backends: Backends = Backends::default(),
        /// Shards of every index; fixed once there are documents. Default: 64.
        pub shards: u32 = 64,
        /// Copies of a document inside one group. Default: 1.
        pub replication_factor: usize = 1,
        /// What clients present as bearer token. Default: TORC_DOCUMENTS_MASTER_KEY, else none
        /// and the gateway is open.
        pub master_key: Option<Secret> = None,
        /// What `/_miroir/` asks for. Default: TORC_DOCUMENTS_ADMIN_KEY, else the master key.
        pub admin_key: Option<Secret> = None,
        /// What the Meilisearch servers ask for. Default: TORC_DOCUMENTS_NODE_MASTER_KEY, else
        /// none.
        pub node_master_key: Option<Secret> = None,
        /// PEM certificates of who vouches for servers behind https, in place of the public
        /// authorities. Default: none.
        pub ca_file: Option<PathBuf> = None,
        /// Number of this gateway for its tasks, different on each. Default: a free one.
        pub slot: Option<u32> = None,
        /// Gateways the ring may ever have; the same on all. Default: 16.
        pub max_gateways: u32 = 16,
        /// Time a Meilisearch server has for one request, milliseconds. Default: 5000.
        pub node_timeout_ms: u64 = 5_000,
        /// Time a client's request takes at most, milliseconds. Default: 60000.
        pub request_timeout_ms: u64 = 60_000,
        /// Time after which an unreachable server's task counts as lost, milliseconds.
        /// Default: 60000.
        pub task_lost_after_ms: u64 = 60_000,
        /// What a session does before it reads its own write: `block` until the write is done, or
        /// `route_pin` to the group that has it. Default: block.
        pub session_strategy: SessionWait = SessionWait::Block,
        /// Longest wait of a blocking session, milliseconds. Default: 5000.
        pub session_wait_ms: u64 = 5_000,
        /// What a search or listing does when shards are out of reach: `partial` or `error`.
        /// Default: partial.
        pub partial_reads: PartialAnswer = PartialAnswer::Partial,
        /// Each document carries `_miroir_updated_at`, the time of its last write in milliseconds
        /// since 1970; clients neither set nor see it. Default: false.
        pub anti_entropy: bool = false,
        /// `_miroir_expires_at` is filterable, and kept from clients, for a tool that sets it on
        /// the servers and removes what has expired. Default: false.
        pub ttl: bool = false,
        /// Largest request body. Default: 100mb.
        pub body_bytes_max: ByteSize = ByteSize::mib(100),
        /// Bodies of all requests at one time, and as much of servers' answers. Default: 512mb.
        pub in_flight_bytes_max: ByteSize = ByteSize::mib(512),
        /// Client connections. Default: 1024.
        pub connections_max: usize = 1_024,
        /// Requests that wait for one server on one index. Default: 1024.
        pub lane_requests_max: usize = 1_024,
        /// Time between looks at the ring for aliases and migrations, milliseconds.
        /// Default: 1000.
        pub refresh_interval_ms: u64 = 1_000,
    }
}

/// One Meilisearch server of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentBackend {
    /// Its id, or the name of the node in front of it.
    pub id: String,
    /// Its address.
    pub url: String,
    /// Its group, where the file gives it.
    pub group: Option<u16>,
}

/// The Meilisearch servers, in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Backends(pub Vec<DocumentBackend>);

const FORMS: &str = "name: http://host:port, or id: {url: http://host:port, group: 0}";

impl Setting for Backends {
    fn read(node: &Node, faults: &mut Faults) -> Option<Backends> {
        let Value::Map(entries) = &node.value else {
            let what = format!("expected a map of servers, found {}", node.describe());
            faults.push(Fault::new(what).at(Some(node.mark)).accepted(FORMS));
            return None;
        };
        let read: Vec<_> = entries.iter().map(|entry| read_backend(entry, faults)).collect();
        for (i, entry) in entries.iter().enumerate() {
            if let Some(first) = entries[..i].iter().find(|e| e.key == entry.key) {
                let fault = Fault::new(format!("`{}` is given twice", entry.key));
                let fault = fault.at(Some(entry.key_mark)).width(&entry.key);
                faults.push(fault.earlier(Some(first.key_mark), "first given"));
            }
        }
        read.into_iter().collect::<Option<Vec<_>>>().map(Backends)
    }

    fn schema() -> Json {
        let url = json!({"type": "string", "pattern": "^https?://"});
        let group = json!({"type": ["integer", "string"]});
        let full = json!({"type": "object", "additionalProperties": false,
            "required": ["url", "group"], "properties": {"url": url, "group": group}});
        json!({"type": "object", "additionalProperties": {"anyOf": [url, full]}})
    }
}

fn read_backend(entry: &Entry, faults: &mut Faults) -> Option<DocumentBackend> {
    let id = entry.key.clone();
    let Value::Map(_) = entry.node.value else {
        return Some(DocumentBackend { id, url: read_url(&entry.node, faults)?, group: None });
    };
    let Value::Map(fields) = &entry.node.value else { return None };
    let unknown = fields.iter().find(|f| f.key != "url" && f.key != "group");
    if let Some(unknown) = unknown {
        let fault = Fault::new(format!("unknown key `{}`", unknown.key));
        let fault = fault.at(Some(unknown.key_mark)).width(&unknown.key);
        faults.push(fault.accepted("url, group"));
        return None;
    }
    let (Some(url), Some(group)) = (entry.node.get("url"), entry.node.get("group")) else {
        let what = format!("`{id}` needs both `url` and `group`");
        faults.push(Fault::new(what).at(Some(entry.node.mark)).accepted(FORMS));
        return None;
    };
    let (url, group) = (read_url(url, faults), read_text::<u16>(group, faults));
    Some(DocumentBackend { id, url: url?, group: Some(group?) })
}

fn read_url(node: &Node, faults: &mut Faults) -> Option<String> {
    let url = read_text::<String>(node, faults)?;
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    let rest = rest.unwrap_or_default();
    if !rest.is_empty() && !rest.starts_with('/') && !rest.contains([' ', '?', '#']) {
        return Some(url);
    }
    let fault = Fault::new(format!("`{url}` is no address of a Meilisearch server"));
    let fault = fault.at(Some(node.mark)).width(&url).accepted("http://host:port or https://host");
    faults.push(fault);
    None
}
