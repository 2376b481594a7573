//! Addresses, stores, seeds, and the address told to others.

use super::super::setting::Text;
use super::*;

fn tcp(host: &str, port: u16) -> Option<Endpoint> {
    Some(Endpoint::tcp(host, port))
}

#[test]
fn listeners_are_cut_at_the_last_colon() {
    for (text, expected) in [
        ("127.0.0.1:8102", tcp("127.0.0.1", 8102)),
        ("node-1.example:1", tcp("node-1.example", 1)),
        ("::1:8102", tcp("::1", 8102)),
        ("[::1]:8102", tcp("::1", 8102)),
        (":::8102", tcp("::", 8102)),
        ("0.0.0.0:0", tcp("0.0.0.0", 0)),
        ("/run/torc.sock", Some(Endpoint::Unix("/run/torc.sock".into()))),
        (":8102", None),
        ("[]:8102", None),
        ("*:8102", None),
        ("127.0.0.1", None),
        ("127.0.0.1:", None),
        ("127.0.0.1:65536", None),
        ("127.0.0.1:+5", None),
        ("127.0.0.1:81 02", None),
        ("my host:8102", None),
        ("[::1:8102", None),
        ("1:2:8102", None),
    ] {
        assert_eq!(Endpoint::parse(text).ok(), expected, "{text}");
    }
    assert!(Endpoint::parse(&format!("/{}", "x".repeat(107))).is_err());
    assert_eq!(Endpoint::tcp("::1", 5).to_string(), "[::1]:5");
}

#[test]
fn a_store_has_a_weight_and_maybe_a_name() {
    for (text, name) in [
        ("127.0.0.1:6379:1", "127.0.0.1:6379"),
        ("127.0.0.1:6379:1 main", "main"),
        ("cache.example:11211:7", "cache.example"),
        ("[::1]:6379:1", "[::1]:6379"),
        ("::1:6379:1", "[::1]:6379"),
        ("/run/redis.sock:1", "/run/redis.sock"),
        ("/run/redis.sock:1 local", "local"),
    ] {
        assert_eq!(ServerAddr::parse(text).unwrap().name, name, "{text}");
    }
    for text in ["127.0.0.1:6379", "127.0.0.1", "/run/redis.sock", "127.0.0.1:0:1", ":6379:1"] {
        assert!(ServerAddr::parse(text).is_err(), "{text}");
    }
}

#[test]
fn seeds_are_read_from_the_right() {
    let seed = Seed::parse("fe80::7:8101:rack-1:dc1:1,2 node7").unwrap();
    assert_eq!(seed.address, HostPort::new("fe80::7", 8101));
    assert_eq!((seed.rack.as_str(), seed.datacenter.as_str()), ("rack-1", "dc1"));
    assert_eq!(seed.tokens, DynToken::parse_config_list("1,2").unwrap());
    assert_eq!(seed.name.as_deref(), Some("node7"));
    for text in [
        "h:8101:r:dc",
        "h:8101:r:dc:",
        "h:8101::dc:1",
        "h:8101:r::1",
        "h:0:r:dc:1",
        ":8101:r:dc:1",
        "h:8101:r:dc:1,",
        "h:8101:r:dc:abc",
    ] {
        assert!(Seed::parse(text).is_err(), "{text}");
    }
    assert_eq!("10.0.0.1:8101:r:dc:7".parse::<Seed>().unwrap().tokens.len(), 1);
    assert_eq!(
        "10.0.0.1:r:dc:7".parse::<Seed>().unwrap_err().to_string(),
        "`10.0.0.1:r:dc:7` has 4 of the 5 fields; expected host:port:rack:dc:tokens [name]"
    );
}

#[test]
fn the_own_address_comes_from_the_file_then_the_environment_then_the_listener() {
    let ec2 = |name: &str| (name == "EC2_PUBLIC_HOSTNAME").then(|| "ec2.example".to_owned());
    let own = |lines: &[&str], env: &dyn Fn(&str) -> Option<String>| {
        with(lines).config.own_address(8101, env)
    };
    let none = |_: &str| None;
    let found = own(&["advertise: '[::5]'"], &ec2).unwrap();
    assert_eq!((found.address, found.source), (HostPort::new("::5", 8101), "advertise"));
    let found = own(&["advertise: n.example:99"], &ec2).unwrap();
    assert_eq!(found.address, HostPort::new("n.example", 99));
    let found = own(&[], &ec2).unwrap();
    assert_eq!((found.address.host.as_str(), found.source), ("ec2.example", "EC2_PUBLIC_HOSTNAME"));
    assert_eq!(found.warning, None);
    let found = own(&["env: network"], &ec2).unwrap();
    assert_eq!((found.address.host.as_str(), found.source), ("127.0.0.1", "dyn_listen"));
    assert_eq!(
        found.warning.as_deref(),
        Some("a C node would announce ec2.example from EC2_PUBLIC_HOSTNAME, whatever `env` says")
    );
    let refused = own(&["env: network", "dyn_listen: 0.0.0.0:8101"], &none).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "dyn_listen 0.0.0.0:8101 is no address that other nodes could connect to; give them one \
         with `advertise: host` or the environment variable PUBLIC_HOSTNAME"
    );
}

#[test]
fn the_first_peer_table_is_the_node_and_its_seeds() {
    let config = with(&["dyn_seeds: ['10.0.0.2:8101:r:d:1 two', '10.0.0.3:8101:r:d:2']"]).config;
    let peers = config.peer_table(&HostPort::new("10.0.0.1", 8101));
    let names: Vec<&str> = peers.iter().map(|p| p.name.as_str()).collect();
    assert_eq!(names, ["10.0.0.1:8101", "two", "10.0.0.3:8101"]);
    assert_eq!(peers.iter().filter(|p| p.is_local).count(), 1);
    assert_eq!((peers[2].port, peers[2].dc.as_str(), peers[2].id.0), (8101, "d", 2));
}
