//! The `relay:` section.

use super::*;

fn relay(lines: &[&str]) -> Result<Loaded, String> {
    let mut text = format!("{SMALLEST}  affinity:\n    mode: advise\n  relay:\n");
    for line in lines {
        text += &format!("    {line}\n");
    }
    load(&text).map_err(|errors| errors.to_string())
}

#[test]
fn it_is_off_and_has_the_references_limits() {
    let relay = with(&[]).config.relay;
    assert!(!relay.is_on());
    assert_eq!((relay.listen(), relay.upstreams().count()), (None, 0));
    assert_eq!(relay.max_message_bytes.0, 8_388_608);
    assert_eq!(relay.publication_queue_bytes.0, 16_777_216);
    assert_eq!((relay.keepalive_interval_ms, relay.keepalive_timeout_ms), (20_000, 10_000));
    assert_eq!((relay.load_window_ms, relay.load_fanout_capacity), (1_000, 16));
    assert_eq!(relay.snapshot_progress_timeout_ms, 60_000);
}

/// Every limit of the contract: its key, the reference's default, the least and the most of it.
const LIMITS: [(&str, u64, u64, u64); 23] = {
    const YEAR_MS: u64 = 31_536_000_000;
    const PERMITS: u64 = (usize::MAX >> 3) as u64;
    const BYTES: u64 = u32::MAX as u64;
    [
        ("max_message_bytes", 8_388_608, 4_259_904, BYTES),
        ("connections_max", 1_024, 1, PERMITS),
        ("keepalive_interval_ms", 20_000, 1, YEAR_MS),
        ("keepalive_timeout_ms", 10_000, 1, YEAR_MS),
        ("pool_heartbeat_interval_ms", 10_000, 1, YEAR_MS),
        ("readiness_heartbeat_interval_ms", 10_000, 1, YEAR_MS),
        ("catalog_heartbeat_interval_ms", 10_000, 1, YEAR_MS),
        ("snapshot_progress_timeout_ms", 60_000, 1, YEAR_MS),
        ("recovery_attempt_timeout_ms", 30_000, 1, YEAR_MS),
        ("load_window_ms", 1_000, 1, YEAR_MS),
        ("load_fanout_capacity", 16, 1, 65_536),
        ("publication_queue_capacity", 16, 1, PERMITS),
        ("publication_queue_bytes", 16_777_216, 4_194_624, BYTES),
        ("publication_encoding_concurrency", 2, 1, PERMITS),
        ("publication_threshold", 16, 1, u32::MAX as u64),
        ("publication_delay_ms", 1, 1, YEAR_MS),
        ("max_catalog_subscribers", 64, 1, PERMITS),
        ("max_readiness_subscribers", 64, 1, PERMITS),
        ("max_load_subscribers", 64, 1, PERMITS),
        ("max_serving_load_subscribers", 64, 1, PERMITS),
        ("max_pool_streams_total", 64, 1, PERMITS),
        ("max_subscribers_per_pool", 64, 1, PERMITS),
        ("max_initialized_pool_hubs", 64, 1, PERMITS),
    ]
};

#[test]
fn every_limit_has_the_references_default_and_range() {
    // The last field is followed by the closing brace.
    let has = |relay: &Relay, key: &str, value: u64| {
        let shown = format!("{relay:?}").replace(" }", ",");
        [format!("{key}: {value},"), format!("{key}: ByteSize({value}),")]
            .iter()
            .any(|field| shown.contains(field))
    };
    for (key, default, least, most) in LIMITS {
        assert!(has(&Relay::default(), key, default), "{key}");
        for value in [default, least, most] {
            let loaded = relay(&[&format!("{key}: {value}")]);
            let loaded = loaded.unwrap_or_else(|e| panic!("{key} {value}: {e}"));
            assert!(has(&loaded.config.relay, key, value), "{key} {value}");
        }
        for value in [least - 1, most + 1] {
            let error = relay(&[&format!("{key}: {value}")]).expect_err(key);
            assert!(error.contains(key), "{key} {value}: {error}");
        }
    }
}

#[test]
fn everything_can_be_said() {
    let loaded = relay(&[
        "listen: 10.0.0.1:9090",
        "upstreams: ['10.1.0.1:9090', 'relay.dc2:9090']",
        "pools:",
        "- domain: keys",
        "  roles: [prefill, decode]",
        "  models:",
        "  - {name: llama, base: meta/llama, aliases: [chat]}",
        "  - {name: tenant, base: meta/llama, adapter: tenant-a}",
    ]);
    let relay = loaded.unwrap().config.relay;
    assert!(relay.is_on());
    assert_eq!(relay.listen().unwrap().to_string(), "10.0.0.1:9090");
    let upstreams: Vec<String> = relay.upstreams().map(ToString::to_string).collect();
    assert_eq!(upstreams, ["10.1.0.1:9090", "relay.dc2:9090"]);
    let pool = &relay.pools.as_ref().unwrap()[0];
    assert_eq!(pool.roles.as_deref(), Some(&[PoolRole::Prefill, PoolRole::Decode][..]));
    assert_eq!(pool.models.as_ref().unwrap()[1].adapter.as_deref(), Some("tenant-a"));
}

#[test]
fn what_is_out_of_range_is_refused_with_its_range() {
    let refused = [
        ("max_message_bytes: 4mb", "`max_message_bytes` 4194304 is out of range"),
        ("publication_queue_bytes: 4194623", "`publication_queue_bytes` 4194623"),
        ("load_fanout_capacity: 65537", "1 to 65536"),
        ("load_window_ms: 0", "1 to 31536000000"),
        ("keepalive_timeout_ms: 31536000001", "`keepalive_timeout_ms` 31536000001"),
        ("max_pool_streams_total: 0", "`max_pool_streams_total` 0 is out of range"),
        ("publication_encoding_concurrency: 0", "`publication_encoding_concurrency` 0"),
        ("max_catalog_subscribers: 18446744073709551615", "out of range"),
        ("listen: /tmp/socket", "served over TCP"),
        ("listen: 8.8.8.8:9090", "`public: true`"),
        ("listen: 0.0.0.0:9090", "no passwords"),
        ("listen: 127.0.0.1:8102", "`relay.listen` and `listen` are the same address"),
        ("upstreams: 0.0.0.0:9090", "no address a relay could be reached at"),
        ("pools: [{domain: other}]", "there is no domain `other`"),
        ("pools: [{roles: decode}]", "a pool needs `domain`"),
        ("pools: [{domain: keys}, {domain: keys}]", "domain `keys` is given twice"),
        ("pools: [{domain: keys, roles: [decode, decode]}]", "role `decode` is given twice"),
        ("pools: [{domain: keys, roles: boss}]", "is not a role"),
        ("pools: [{domain: keys, models: [{name: a, aliases: a}]}]", "are called `a`"),
        ("pools: [{domain: keys, models: [{base: a}]}]", "a model needs `name`"),
    ];
    for (line, reason) in refused {
        let error = relay(&[line]).expect_err(line);
        assert!(error.contains(reason), "{line}: {error}");
    }
    assert!(relay(&["listen: 0.0.0.0:9090", "public: true"]).is_ok());
    let off = load(&format!("{SMALLEST}  relay:\n    listen: 127.0.0.1:9090\n"));
    assert!(off.unwrap_err().to_string().contains("the relay needs filters"));
}
