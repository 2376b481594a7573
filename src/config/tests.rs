use std::path::Path;

use super::*;
use crate::ring::Consistency;
use crate::token::DynToken;

mod addresses;
mod affinity;
mod documents;
mod errors;
mod gateway;
mod keys;
mod relay;
mod rules;

/// The smallest configuration; tests add keys to it.
const SMALLEST: &str = "pool:\n  listen: 127.0.0.1:8102\n  tokens: 1\n  datastore: embedded\n";

fn load(text: &str) -> Result<Loaded, ConfigErrors> {
    let file = (Path::new("f.yml"), text.to_owned());
    Config::from_texts(Texts { file, overlay: None, fallback: None })
}

/// A configuration with these lines added, each indented by two.
fn with(lines: &[&str]) -> Loaded {
    let mut text = SMALLEST.to_owned();
    for line in lines {
        text += &format!("  {line}\n");
    }
    load(&text).unwrap_or_else(|errors| panic!("{errors}"))
}

#[test]
fn absent_keys_have_the_references_defaults() {
    let Loaded { config, warnings } = with(&[]);
    assert_eq!(warnings, Vec::<String>::new());
    assert_eq!(config.pool, "pool");
    assert_eq!(config.dyn_listen, Endpoint::tcp("127.0.0.1", 8101));
    assert_eq!(config.stats_listen.to_string(), "127.0.0.1:22222");
    assert_eq!(config.timeout_ms, 5_000);
    assert_eq!(config.read_consistency, Consistency::DcOne);
    assert_eq!((config.rack.as_str(), config.datacenter.as_str()), ("localrack", "localdc"));
    assert_eq!(config.store, Store::Embedded);
    assert_eq!(config.peers.mbuf_size, 16_384);
    assert!(config.store_link.preconnect && config.read_fallback && config.cluster.gossips());
    assert_eq!(config.limits, Limits::default());
}

#[test]
fn a_file_of_the_test_lab_loads() {
    let text = "---\ndyn_o_mite:\n  datacenter: dc1\n  rack: r1\n  env: network\n  \
        dyn_listen: 127.0.0.1:8101\n  listen: 127.0.0.1:8102\n  stats_listen: 127.0.0.1:22222\n  \
        dyn_seed_provider: simple_provider\n  tokens: '437425602'\n  data_store: 0\n  \
        timeout: 5000\n  secure_server_option: none\n  servers:\n  - 127.0.0.1:6379:1\n";
    let config = load(text).unwrap().config;
    let Store::Server(server) = &config.store else { panic!("{:?}", config.store) };
    assert_eq!(server.endpoint, Endpoint::tcp("127.0.0.1", 6379));
    assert_eq!(config.store_name(), "127.0.0.1:6379");
    assert_eq!(config.tokens[0].to_string(), "437425602");
}
