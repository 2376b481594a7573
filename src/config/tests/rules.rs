//! Checks across keys, warnings about them, and the overlay.

use super::*;
use proptest::prelude::*;

/// First lines of the errors, without their place.
fn faults(lines: &[&str]) -> Vec<String> {
    let mut text = SMALLEST.to_owned();
    for line in lines {
        let key = line.split(':').next().unwrap();
        text = text
            .lines()
            .filter(|l| !l.starts_with(&format!("  {key}:")))
            .fold(String::new(), |all, l| all + l + "\n");
        text += &format!("  {line}\n");
    }
    match load(&text) {
        Ok(_) => Vec::new(),
        Err(errors) => errors.errors.into_iter().map(|e| e.what).collect(),
    }
}

#[test]
fn what_is_required_is_named() {
    let errors = load("pool:\n  rack: r\n").unwrap_err();
    let what: Vec<&str> = errors.errors.iter().map(|e| e.what.as_str()).collect();
    assert_eq!(what, ["`listen` is missing", "`tokens` is missing", "no store is given"]);
    assert_eq!(errors.errors[2].place.as_ref().map(|p| p.line), Some(2));
}

#[test]
fn a_node_has_one_store() {
    assert_eq!(faults(&["servers: 1.1.1.1:1:1"]), ["`servers` and `datastore` are both given"]);
    let two =
        "pool:\n  listen: 1.1.1.1:1\n  tokens: 1\n  servers:\n  - 1.1.1.1:1:1\n  - 1.1.1.2:1:1\n";
    assert_eq!(load(two).unwrap_err().errors[0].what, "2 servers, but a node has one store");
    assert_eq!(faults(&["datastore: redis"]).len(), 1);
}

#[test]
fn values_out_of_range_are_refused() {
    for (line, what) in [
        ("mbuf_size: 100", "100 is out of range"),
        ("mbuf_size: 1000", "1000 is no multiple of 16"),
        ("rack: a:b", "`rack` has a `:`, a `|` or a blank"),
        ("stats_listen: /tmp/x", "the admin port cannot be a Unix socket"),
        ("stats_listen: 0.0.0.0:8102", "`stats_listen` and `listen` are the same address"),
        ("workers: 5000", "too many workers"),
        ("timeout: -5", "`-5` is not a number"),
        ("timeout: 99999999999", "`99999999999` is more than 4294967295"),
        ("data_store: 2", "`2` is not a data store"),
        ("hash: MURMUR", "`MURMUR` is not a hash"),
        ("hash_tag: '{'", "`{` has 1 bytes"),
        ("secure_server_option: al", "`al` is not a choice of links to encrypt"),
        ("dyn_seed_provider: dns", "`dns` is not a seed provider"),
        ("read_consistency: DC_ONEX", "`DC_ONEX` is not a consistency level"),
        ("hash_tag: {}", "expected one value, found a map"),
        ("rack:", "a value is missing"),
        ("rack: ~", "a value is missing"),
        ("rack: ''", "a value is missing"),
        ("module_commands: {reads: ['']}", "a value is missing"),
        ("limits: {client_in_flight: 0}", "`client_in_flight` 0 would stop the node"),
        ("limits: {request_bulk_bytes_max: 5gb}", "too large for one argument"),
        ("cluster: {gossip_interval_ms: 0}", "no time between two rounds of gossip"),
        ("cluster: {gossip_interval_ms: 3600001}", "no time between two rounds of gossip"),
        ("cluster: {seeds_interval_ms: 0}", "no time between two questions to a provider"),
        ("cluster: {seeds_interval_ms: 3600001}", "no time between two questions to a provider"),
        ("cluster: {dns_server: resolver}", "`resolver` is no address of a DNS server"),
        ("cluster: {phi_threshold: -1}", "`-1` is not a positive number"),
        ("cluster: {phi_threshold: 301}", "nobody can be so sure that a node is gone"),
        ("cluster: 5", "expected a map of settings, found text"),
        ("auth: {store_password: x}", "this store has no AUTH"),
        ("default_bucket_type: x", "`x` is no bucket type"),
        ("bucket_types: [{prefix: a}]", "a bucket type has no `name`"),
        ("bucket_types: [{name: a}, {name: a}]", "bucket type `a` is listed twice"),
        ("bucket_types: [{name: a, n_val: 0}]", "`n_val` 0 would keep a key nowhere"),
    ] {
        assert_eq!(faults(&[line]), [what], "{line}");
    }
}

#[test]
fn tokens_must_suit_the_hash() {
    let wide = "0x000000000000000000000000000000ff";
    assert_eq!(
        faults(&[&format!("tokens: {wide}")]),
        [format!("token {wide} of this node lies above every murmur key")]
    );
    assert_eq!(
        faults(&["hash: murmur3"]),
        ["token 1 of this node has one word; every murmur3 key lies above it"]
    );
    assert_eq!(faults(&["hash: murmur3", &format!("tokens: {wide}")]), Vec::<String>::new());
    assert_eq!(
        faults(&["hash: murmur3", &format!("tokens: {wide}"), "enable_gossip: true"]),
        ["gossip with C nodes cannot carry the four-word tokens of murmur3"]
    );
    assert_eq!(
        faults(&["tokens: -5"]),
        ["token -5 of this node is negative, which C nodes order otherwise"]
    );
    assert_eq!(faults(&["tokens: -5", "cluster: {torc_only: true}"]), Vec::<String>::new());
}

#[test]
fn a_token_is_owned_once_in_a_rack() {
    let expected = ["token 1 in rack localrack is both this node's and 10.0.0.2:8101's"];
    assert_eq!(faults(&["dyn_seeds: ['10.0.0.2:8101:localrack:localdc:1']"]), expected);
    assert_eq!(faults(&["tokens: 4,4"]), ["token 4 is given twice for this node"]);
    let twice = "dyn_seeds: ['10.0.0.2:8101:r:d:1', '10.0.0.2:8101:r:d:2']";
    assert_eq!(faults(&[twice]), ["10.0.0.2:8101 is listed twice"]);
    let other_rack = "dyn_seeds: ['10.0.0.2:8101:r2:localdc:1']";
    assert_eq!(faults(&["dyn_listen: 10.0.0.1:8101", other_rack]), Vec::<String>::new());
}

#[test]
fn the_node_itself_may_be_listed() {
    let loaded = with(&[
        "dyn_listen: 10.0.0.1:8101",
        "rack: r",
        "datacenter: d",
        "dyn_seeds: ['10.0.0.1:8101:r:d:1', '10.0.0.2:8101:r:d:2']",
    ]);
    assert_eq!(loaded.config.seeds.len(), 1);
    assert_eq!(loaded.warnings, ["dyn_seeds: 10.0.0.1:8101 is this node itself and is left out"]);
}

#[test]
fn what_works_but_surprises_is_a_warning() {
    for (lines, start) in [
        (vec!["enable_gossip: true", "dyn_listen: 10.0.0.1:9000"], "gossip of C nodes carries no"),
        (vec!["dyn_seeds: 10.0.0.2:8101:r:d:2"], "peers on other hosts cannot reach"),
        (vec!["read_repairs_enabled: true"], "`read_repairs_enabled` has no effect while"),
        (vec!["enable_gossip: true", "bucket_types: [{name: a, n_val: 1}]"], "`n_val` has no"),
        (vec!["enable_gossip: false"], "other than in Dynomite: `enable_gossip: false` is about"),
        (vec!["datastore_connections: 256"], "other than in Dynomite: `datastore_connections`"),
    ] {
        let warnings = with(&lines).warnings;
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].starts_with(start), "{warnings:?}");
    }
    assert_eq!(with(&["distribution: vnode"]).warnings, Vec::<String>::new());
    let text = SMALLEST.replace("datastore: embedded", "servers: 1.1.1.1:1:1\n  embedded: {}");
    let expected = "f.yml:5: `embedded` has no effect without `datastore: embedded`";
    assert_eq!(load(&text).unwrap().warnings, [expected]);
}

fn overlaid(over: &str) -> Result<Loaded, ConfigErrors> {
    let text = SMALLEST.to_owned() + "  limits: {client_in_flight: 5}\n";
    Config::from_texts(Texts {
        file: (Path::new("f.yml"), text),
        overlay: Some((Path::new("over.yml"), over.to_owned())),
        fallback: None,
    })
}

#[test]
fn settings_of_the_command_line_fill_gaps_only() {
    let mbuf_size = |text: String, fallback: &str| {
        let fallback = Some(fallback.to_owned());
        let file = (Path::new("f.yml"), text);
        let loaded = Config::from_texts(Texts { file, overlay: None, fallback });
        loaded.map(|l| l.config.peers.mbuf_size).map_err(|errors| errors.to_string())
    };
    assert_eq!(mbuf_size(SMALLEST.into(), "mbuf_size: 512"), Ok(512));
    assert_eq!(mbuf_size(SMALLEST.to_owned() + "  mbuf_size: 1024", "mbuf_size: 512"), Ok(1024));
    let refused = mbuf_size(SMALLEST.into(), "mbuf_size: 7").unwrap_err();
    assert!(refused.starts_with("command line:1:12: 7 is out of range"), "{refused}");
}

#[test]
fn an_overlay_is_laid_over_the_pool() {
    for over in [
        "limits: {idle_timeout_ms: 9}\ncluster:\n  name: x\n",
        "pool:\n  limits: {idle_timeout_ms: 9}\n  cluster: {name: x}\n",
    ] {
        let config = overlaid(over).unwrap().config;
        assert_eq!((config.limits.client_in_flight, config.limits.idle_timeout_ms), (5, 9));
        assert_eq!(config.cluster_name(), "x");
    }
    assert_eq!(
        overlaid("limits: {client_in_flight: 6}").unwrap().config.limits.client_in_flight,
        6
    );
}

#[test]
fn mistakes_in_an_overlay_point_into_it() {
    let errors = overlaid("cluster: {nam: x}\nrack: a\nrack: b\n").unwrap_err();
    assert_eq!(
        errors.to_string(),
        "\
over.yml:1:11: unknown key `nam`
 1 | cluster: {nam: x}
   |           ^^^
   = did you mean `name`?

over.yml:3:1: key `rack` is given twice
 3 | rack: b
   | ^^^^
   = first given on line 2"
    );
    let errors = overlaid("- 5\n").unwrap_err();
    assert_eq!(errors.errors[0].what, "expected settings, found a list");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Whatever a file holds, the answer is a configuration or errors with sane places.
    #[test]
    fn any_text_is_answered(text in "[ -~\\n\\t\u{e4}]{0,120}") {
        if let Err(errors) = load(&text) {
            prop_assert!(!errors.errors.is_empty());
            let _ = errors.to_string();
        }
    }

    /// The same with a file that is nearly right.
    #[test]
    fn any_value_is_answered(at in 0..4usize, value in "[ -~\u{e4}]{0,40}") {
        let mut lines: Vec<String> = SMALLEST.lines().map(str::to_owned).collect();
        let key = lines[at].split(':').next().unwrap().to_owned();
        lines[at] = format!("{key}: {value}");
        if let Err(errors) = load(&lines.join("\n")) {
            for error in &errors.errors {
                if let Some(place) = &error.place {
                    prop_assert!(place.column + place.width <= place.text.chars().count() + 2);
                }
            }
            let _ = errors.to_string();
        }
    }
}
