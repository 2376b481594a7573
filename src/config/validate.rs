//! Checks of keys against each other, and of what a single key cannot tell by its type.

use std::path::Path;

use super::addr::Endpoint;
use super::bucket::BucketType;
use super::error::{ConfigError, ConfigErrors, Fault, Faults};
use super::model::{Config, PEER_PORT};
use super::node::{Mark, Node};
use super::pool::Pool;
use super::suggest;
use super::words::{Protocol, SecureServer};

/// Buffer sizes the reference accepts, and what they must be a multiple of.
const MBUF_SIZE: std::ops::RangeInclusive<u32> = 512..=512_000;
const MBUF_STEP: u32 = 16;

/// Most workers: ids of client connections carry the worker's number.
const WORKERS_MAX: usize = 1_024;

/// Times between two rounds of something: at most an hour.
const INTERVAL_MS: std::ops::RangeInclusive<u64> = 1..=3_600_000;

/// Above it no silence would ever be long enough.
const PHI_MAX: f64 = 300.0;

/// Largest single argument: requests are addressed with 32 bits.
const BULK_BYTES_MAX: u64 = 4 << 30;

/// Checks a pool; `root` is the map it was read from.
pub(super) fn pool(pool: &Pool, root: &Node, faults: &mut Faults) {
    let mut check = Check { pool, root, faults };
    check.required();
    check.store();
    check.listeners();
    check.names();
    check.numbers();
    check.limits();
    check.secrets();
    super::validate_ring::check(pool, root, check.faults);
    super::validate_documents::check(pool, root, faults);
    super::validate_relay::check(pool, root, faults);
}

struct Check<'a> {
    pool: &'a Pool,
    root: &'a Node,
    faults: &'a mut Faults,
}

impl Check<'_> {
    fn at(&self, key: &str) -> Option<Mark> {
        self.root.find(&[key])
    }

    /// Reports what is wrong with the value of a key.
    fn fault(&mut self, path: &[&str], what: impl Into<String>, accepted: impl Into<String>) {
        let mark = self.root.find(path).or(Some(self.root.mark));
        self.faults.push(Fault::new(what).at(mark).accepted(accepted));
    }

    fn required(&mut self) {
        if self.pool.listen.is_none() {
            self.fault(&[], "`listen` is missing", "listen: 0.0.0.0:8102");
        }
        if self.pool.tokens.as_ref().is_none_or(|lists| lists.is_empty()) {
            self.fault(
                &["tokens"],
                "`tokens` is missing",
                "tokens: '437425602'; `torc tokens plan --nodes N` computes even ones",
            );
        }
    }

    fn store(&mut self) {
        let forms = "servers: ['127.0.0.1:6379:1'], or datastore: embedded";
        match (&self.pool.servers, self.pool.datastore) {
            (Some(servers), _) if servers.len() > 1 => {
                let what = format!("{} servers, but a node has one store", servers.len());
                self.fault(&["servers"], what, "one host:port:weight [name]");
            }
            (Some(servers), _) if servers.is_empty() => {
                self.fault(&["servers"], "`servers` is empty", forms);
            }
            (Some(_), Some(_)) => {
                self.fault(&["datastore"], "`servers` and `datastore` are both given", forms);
            }
            (None, None) => self.fault(&[], "no store is given", forms),
            (Some(_), None) | (None, Some(_)) => {}
        }
    }

    fn listeners(&mut self) {
        if let Some(Endpoint::Unix(_)) = self.pool.stats_listen {
            self.fault(&["stats_listen"], "the admin port cannot be a Unix socket", "host:port");
        }
        let pool = self.pool;
        let own = [
            ("listen", &pool.listen),
            ("dyn_listen", &pool.dyn_listen),
            ("stats_listen", &pool.stats_listen),
        ];
        for (i, (key, endpoint)) in own.iter().enumerate() {
            let Some(endpoint) = endpoint else { continue };
            let clash = own[..i]
                .iter()
                .find(|(_, other)| other.as_ref().is_some_and(|other| collide(other, endpoint)));
            if let Some((other, _)) = clash {
                self.faults.push(
                    Fault::new(format!("`{key}` and `{other}` are the same address"))
                        .at(self.root.find(&[key]))
                        .earlier(self.root.find(&[other]), "the other is"),
                );
            }
        }
    }

    /// Rack and datacenter travel in texts that are cut at `:` and `|`.
    fn names(&mut self) {
        let pool = self.pool;
        for (key, name) in [("rack", &pool.rack), ("datacenter", &pool.datacenter)] {
            let bad = name
                .as_deref()
                .and_then(|n| n.find(|c: char| c == ':' || c == '|' || c.is_whitespace()));
            if let Some(i) = bad {
                self.faults.push(
                    Fault::new(format!("`{key}` has a `:`, a `|` or a blank"))
                        .at(self.at(key))
                        .within(Some(i..i + 1))
                        .accepted("text without them; seed lists separate fields with these"),
                );
            }
        }
    }

    fn numbers(&mut self) {
        if let Some(size) = self.pool.mbuf_size.filter(|&size| size > 0) {
            let accepted = "512 to 512000, a multiple of 16; 0 for 16384";
            if !MBUF_SIZE.contains(&size) {
                self.fault(&["mbuf_size"], format!("{size} is out of range"), accepted);
            } else if size % MBUF_STEP != 0 {
                self.fault(&["mbuf_size"], format!("{size} is no multiple of 16"), accepted);
            }
        }
        if self.pool.workers.is_some_and(|n| n > WORKERS_MAX) {
            self.fault(&["workers"], "too many workers", format!("0 to {WORKERS_MAX}"));
        }
        if !INTERVAL_MS.contains(&self.pool.cluster.gossip_interval_ms) {
            let path = ["cluster", "gossip_interval_ms"];
            self.fault(&path, "no time between two rounds of gossip", accepted_interval());
        }
        if self.pool.cluster.phi_threshold > PHI_MAX {
            let what = "nobody can be so sure that a node is gone";
            self.fault(&["cluster", "phi_threshold"], what, format!("above 0, at most {PHI_MAX}"));
        }
        if !INTERVAL_MS.contains(&self.pool.cluster.seeds_interval_ms) {
            let path = ["cluster", "seeds_interval_ms"];
            self.fault(&path, "no time between two questions to a provider", accepted_interval());
        }
    }

    /// All bounds but the idle time are at least 1.
    fn limits(&mut self) {
        let l = &self.pool.limits;
        let bounds = [
            ("client_connections", l.client_connections as u64),
            ("client_in_flight", l.client_in_flight as u64),
            ("request_bulk_bytes_max", l.request_bulk_bytes_max.0),
            ("request_elements_max", l.request_elements_max as u64),
            ("request_depth_max", l.request_depth_max as u64),
            ("inline_bytes_max", l.inline_bytes_max.0),
            ("client_output_bytes_max", l.client_output_bytes_max.0),
            ("upstream_output_bytes_max", l.upstream_output_bytes_max.0),
            ("upstream_in_flight", l.upstream_in_flight as u64),
            ("buffers_bytes_max", l.buffers_bytes_max.0),
        ];
        for (key, _) in bounds.iter().filter(|(_, value)| *value == 0) {
            self.fault(&["limits", key], format!("`{key}` 0 would stop the node"), "1 or more");
        }
        if l.request_bulk_bytes_max.0 > BULK_BYTES_MAX {
            let path = ["limits", "request_bulk_bytes_max"];
            self.fault(&path, "too large for one argument", "up to 4gb");
        } else if l.buffers_bytes_max < l.request_bulk_bytes_max && l.buffers_bytes_max.0 > 0 {
            let (all, one) = (l.buffers_bytes_max.0, l.request_bulk_bytes_max.0);
            let what = format!("all buffers ({all} bytes) could not hold one argument of {one}");
            let path = ["limits", "buffers_bytes_max"];
            self.fault(&path, what, "at least request_bulk_bytes_max");
        }
    }

    fn secrets(&mut self) {
        let auth = &self.pool.auth;
        let memcache = self.pool.data_store == Some(Protocol::Memcache);
        let embedded = self.pool.datastore.is_some();
        if memcache && auth.requirepass.is_some() {
            let what = "memcache clients have no AUTH";
            self.fault(&["auth", "requirepass"], what, "requirepass with data_store: 0");
        }
        if auth.store_password.is_some() && (memcache || embedded) {
            let what = "this store has no AUTH";
            let accepted = "store_password with `servers` and data_store: 0";
            self.fault(&["auth", "store_password"], what, accepted);
        }
        if auth.store_user.is_some() && auth.store_password.is_none() {
            let what = "`store_user` without a password";
            self.fault(&["auth", "store_user"], what, "store_user and store_password together");
        }
    }
}

/// True when two listeners could not both be bound.
pub(super) fn collide(one: &Endpoint, other: &Endpoint) -> bool {
    match (one, other) {
        (Endpoint::Tcp(a), Endpoint::Tcp(b)) => {
            let same_host = a.host == b.host || a.is_wildcard() || b.is_wildcard();
            a.port != 0 && a.port == b.port && same_host
        }
        (Endpoint::Unix(a), Endpoint::Unix(b)) => a == b,
        (Endpoint::Tcp(_), Endpoint::Unix(_)) | (Endpoint::Unix(_), Endpoint::Tcp(_)) => false,
    }
}

/// The keys of the pool's own listeners that could not be bound beside `listener`.
pub(super) fn own_listeners_at(pool: &Pool, listener: &Endpoint) -> Vec<&'static str> {
    let own = [
        ("listen", &pool.listen),
        ("dyn_listen", &pool.dyn_listen),
        ("stats_listen", &pool.stats_listen),
    ];
    let clashes = own.iter().filter(|(_, own)| own.as_ref().is_some_and(|o| collide(o, listener)));
    clashes.map(|(key, _)| *key).collect()
}

/// `default_bucket_type` names one of the list.
pub(super) fn default_bucket_type(
    pool: &Pool,
    types: &[BucketType],
    root: &Node,
    faults: &mut Faults,
) {
    let Some(wanted) = &pool.default_bucket_type else {
        return;
    };
    if types.iter().any(|t| t.name == *wanted) {
        return;
    }
    let names = || types.iter().map(|t| t.name.as_str());
    let accepted = match types.is_empty() {
        true => "the name of one of `bucket_types`".into(),
        false => names().collect::<Vec<_>>().join(", "),
    };
    faults.push(
        Fault::new(format!("`{wanted}` is no bucket type"))
            .at(root.find(&["default_bucket_type"]))
            .width(wanted)
            .accepted(accepted)
            .hint(suggest::nearest(wanted, names())),
    );
}

/// Takes this node itself off the seed list: operators like to give all nodes the same list.
/// Returns the entries taken off.
pub(super) fn drop_own_seed(pool: &mut Pool) -> Vec<String> {
    let mut hosts = Vec::new();
    let listen = pool.dyn_listen.as_ref().and_then(Endpoint::host_port);
    let port = listen.map_or(PEER_PORT, |a| a.port);
    hosts.extend(listen.map(|a| (a.host.clone(), a.port)));
    hosts.extend(pool.advertise.as_ref().map(|a| (a.host.clone(), a.port.unwrap_or(port))));
    let own: Vec<_> = pool.tokens.iter().flatten().flat_map(|l| l.tokens.clone()).collect();
    let (rack, dc) = (pool.rack.clone(), pool.datacenter.clone());
    let mut dropped = Vec::new();
    for seeds in pool.dyn_seeds.iter_mut() {
        seeds.retain(|seed| {
            let address = (seed.address.host.clone(), seed.address.port);
            let same_place = Some(&seed.rack) == rack.as_ref()
                && Some(&seed.datacenter) == dc.as_ref()
                && seed.tokens == own;
            let is_self = same_place && hosts.contains(&address);
            if is_self {
                dropped.push(seed.address.to_string());
            }
            !is_self
        });
    }
    dropped
}

/// What an interval may be, in milliseconds.
fn accepted_interval() -> String {
    format!("{} to {}", INTERVAL_MS.start(), INTERVAL_MS.end())
}

/// Files the configuration names and the start would need.
pub(super) fn files(config: &Config, path: &Path) -> Result<(), ConfigErrors> {
    let option = config.peers.secure;
    if option == SecureServer::Nowhere {
        return Ok(());
    }
    let Err(error) = config.read_pem_key() else { return Ok(()) };
    Err(ConfigErrors {
        more: 0,
        errors: vec![ConfigError {
            file: path.to_owned(),
            place: None,
            what: format!("`secure_server_option: {option}` needs a key, but {error}"),
            accepted: Some("pem_key_file: the path of an RSA private key of 1024 bits".into()),
            hint: None,
        }],
    })
}
