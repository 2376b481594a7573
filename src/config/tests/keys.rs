//! Dynomite's names, and how values arrive.

use super::*;
use crate::hash::HashType;

/// Dynomite's 42 names with a value each.
const REFERENCE_FILE: &str = "\
dyn_o_mite:
  listen: 0.0.0.0:8102
  dyn_listen: 0.0.0.0:8101
  stats_listen: 0.0.0.0:22222
  servers: 127.0.0.1:11211:1
  data_store: 1
  hash: crc32a
  hash_tag: '{}'
  distribution: ketama
  server_connections: 3
  timeout: 400
  backlog: 1024
  client_connections: 10
  preconnect: false
  auto_eject_hosts: false
  server_retry_timeout: 2000
  server_failure_limit: 5
  datastore_connections: 2
  local_peer_connections: 3
  remote_peer_connections: 4
  dyn_seed_provider: florida_provider
  dyn_seeds:
  - 10.0.0.2:8101:r2:dc1:100
  dyn_port: 8101
  dyn_connections: 100
  dyn_read_timeout: 200
  dyn_write_timeout: 200
  rack: r1
  datacenter: dc1
  tokens: 100
  gos_interval: 10000
  enable_gossip: true
  secure_server_option: none
  pem_key_file: conf/a.pem
  recon_key_file: conf/b.pem
  recon_iv_file: conf/c.pem
  env: network
  conn_msg_rate: 1000
  read_consistency: dc_quorum
  write_consistency: DC_SAFE_QUORUM
  read_repairs_enabled: true
  stats_interval: 10000
  mbuf_size: 1024
  max_msgs: 200000
";

#[test]
fn all_names_of_the_reference_are_accepted_and_those_without_effect_named_once() {
    assert_eq!(REFERENCE_FILE.lines().filter(|l| l.contains(": ")).count() + 1, 42);
    let Loaded { config, warnings } = load(REFERENCE_FILE).unwrap();
    assert_eq!(
        warnings,
        [
            "without effect: `client_connections` (see `limits.client_connections`), \
             `distribution`, `dyn_connections`, `dyn_port` (see `dyn_listen`), \
             `dyn_read_timeout` (see `timeout`), `dyn_write_timeout` (see `timeout`), \
             `max_msgs` (see `limits`), `recon_iv_file`, `recon_key_file`, \
             `server_connections` (see `datastore_connections`), `stats_interval`",
            "without effect in this version: `read_repairs_enabled`",
            "other than in Dynomite: `env` is obeyed: the EC2_ variables are not read",
        ]
    );
    assert_eq!(config.data_store, Protocol::Memcache);
    assert_eq!(config.store_name(), "127.0.0.1");
    assert_eq!(config.hasher.hash, HashType::Crc32a);
    assert_eq!(config.hasher.tag.unwrap().to_string(), "{}");
    assert_eq!((config.timeout_ms, config.backlog), (400, 1024));
    let link = StoreLink {
        connections: 2,
        preconnect: false,
        auto_eject: false,
        retry_max_ms: 2_000,
        failure_limit: 5,
    };
    assert_eq!(config.store_link, link);
    let peers = &config.peers;
    assert_eq!((peers.local_connections, peers.remote_connections), (3, 4));
    assert_eq!((peers.msg_rate, peers.mbuf_size), (1_000, 1_024));
    assert_eq!(peers.pem_key_file, Path::new("conf/a.pem"));
    assert_eq!(config.seed_provider, SeedProvider::Florida);
    assert!(config.reference_gossip.enabled && config.reference_gossip.interval_ms == 10_000);
    assert_eq!(config.read_consistency, Consistency::DcQuorum);
    assert_eq!(config.write_consistency, Consistency::DcSafeQuorum);
    assert!(config.read_repairs && !config.env_is_aws);
}

#[test]
fn scalars_arrive_as_they_are_written() {
    for text in ["007", "0x10", "no", "1.50", "2026-01-01", "'null'", "1e3", "+5", "0o17"] {
        let config = with(&[&format!("rack: {text}")]).config;
        assert_eq!(config.rack, text.trim_matches('\''));
    }
    let token = "10000000000000000000000007";
    let text = SMALLEST.replace("tokens: 1", &format!("tokens: {token}"));
    let loaded = load(&text).unwrap();
    assert_eq!(loaded.config.tokens, DynToken::parse_config_list(token).unwrap());
    let warning = "token 10000000000000000000000007 is above 4294967295 and does not mean its \
        decimal value: all nodes, C ones too, agree on another place (`torc token -c FILE KEY` \
        shows owners)";
    assert_eq!(loaded.warnings, [warning]);
}

#[test]
fn false_is_a_value_and_zero_the_references_default() {
    let config = with(&["preconnect: false", "timeout: 0", "mbuf_size: 0", "backlog: 0"]).config;
    assert!(!config.store_link.preconnect);
    assert_eq!((config.timeout_ms, config.peers.mbuf_size, config.backlog), (5_000, 16_384, 512));
    let zero = ["local_peer_connections: 0", "remote_peer_connections: 0", "conn_msg_rate: 0"];
    let peers = with(&zero).config.peers;
    let counts = (peers.local_connections, peers.remote_connections, peers.msg_rate);
    assert_eq!(counts, (1, 1, 50_000));
}

#[test]
fn block_and_flow_style_read_alike() {
    let flow = "---\npool: {listen: '127.0.0.1:8102', tokens: [1, 2], \"datastore\": embedded, \
        limits: {client_in_flight: 7}} # comment\n";
    let block = "pool:\n  listen: 127.0.0.1:8102\n  tokens:\n  - 1\n  - 2\n  \
        datastore: embedded\n  limits:\n    client_in_flight: 7\n";
    let config = load(flow).unwrap().config;
    assert_eq!(config, load(block).unwrap().config);
    assert_eq!(
        config,
        load(&block.replace("  tokens:\n  - 1\n  - 2\n", "  tokens: 1,2\n")).unwrap().config
    );
    assert_eq!((config.tokens.len(), config.limits.client_in_flight), (2, 7));
}

#[test]
fn own_settings_are_read() {
    let config = with(&[
        "workers: 3",
        "read_fallback: false",
        "allow_flush: true",
        "keyspace_scope: node",
        "leave_on_stop: true",
        "reference_classes: true",
        "module_commands: {reads: [graph.ro_, my.get], writes: [graph.]}",
        "data_dir: /var/lib/torc",
        "auth: {requirepass: secret1}",
        "cluster: {name: blue, gossip: off, phi_threshold: 9.5, secret: key}",
        "embedded: {memory_bytes_max: 2gb, keys_max: 10, tombstones_max: 5}",
        "limits: {idle_timeout_ms: 60000, inline_bytes_max: 32kb}",
    ])
    .config;
    assert_eq!(config.worker_count(), 3);
    assert!(!config.read_fallback && config.allow_flush && config.leave_on_stop);
    assert!(config.reference_classes && config.keyspace_scope == KeyspaceScope::Node);
    assert_eq!(config.module_commands.reads, ["graph.ro_", "my.get"]);
    assert_eq!(config.module_commands.writes, ["graph."]);
    assert_eq!(config.cluster_name(), "blue");
    assert!(!config.cluster.gossips() && config.cluster.phi_threshold == 9.5);
    assert_eq!(config.embedded.memory_bytes_max, ByteSize(2 << 30));
    assert_eq!(config.embedded.tombstones_max, 5);
    assert_eq!(config.limits.inline_bytes_max.as_usize(), 32_768);
    assert_eq!(config.auth.requirepass.as_ref().unwrap().expose(), "secret1");
    assert!(!format!("{config:?}").contains("secret1"), "passwords are not shown");
}

#[test]
fn sizes_take_units() {
    for (text, bytes) in
        [("0", 0), ("17", 17), ("17b", 17), ("1k", 1_000), ("1KB", 1_024), ("64mb", 64 << 20)]
    {
        let config = with(&[&format!("embedded: {{memory_bytes_max: {text}}}")]).config;
        assert_eq!(config.embedded.memory_bytes_max, ByteSize(bytes), "{text}");
    }
}

#[test]
fn bucket_types_take_a_prefix_from_their_name() {
    let config = with(&[
        "default_bucket_type: plain",
        "bucket_types:",
        "- {name: kv, n_val: 2, write_consistency: DC_SAFE_QUORUM}",
        "- name: plain",
        "  prefix: 'p:'",
    ])
    .config;
    let kv = BucketType {
        name: "kv".into(),
        prefix: "kv/".into(),
        read_consistency: None,
        write_consistency: Some(Consistency::DcSafeQuorum),
        n_val: Some(2),
        immutable: false,
    };
    assert_eq!(config.bucket_types[0], kv);
    assert_eq!(config.default_bucket_type, Some(1));
}
