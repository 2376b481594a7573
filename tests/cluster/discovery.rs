//! Nodes found by a seed provider and by name, and what becomes of it when those change.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use crate::admin::get;
use crate::dns::Dns;
use crate::ring::{Layout, Ring, Store, wait_until};

/// An HTTP service that answers every request with the text it was last given, and with an error
/// while that is `None`.
struct Florida {
    port: u16,
    text: Arc<Mutex<Option<String>>>,
}

impl Florida {
    fn start() -> Florida {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
        let port = listener.local_addr().expect("its address").port();
        let text = Arc::new(Mutex::new(Some(String::new())));
        let shared = Arc::clone(&text);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let mut request = [0; 1024];
                let read = stream.read(&mut request).unwrap_or(0);
                let asked =
                    request[..read].starts_with(b"GET /REST/v1/admin/get_seeds HTTP/1.0\r\n");
                let answer = match &*shared.lock().unwrap() {
                    Some(text) if asked => format!("HTTP/1.0 200 OK\r\nServer: test\r\n\r\n{text}"),
                    _ => "HTTP/1.0 500 Internal Server Error\r\n\r\n".to_owned(),
                };
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        Florida { port, text }
    }

    fn set(&self, text: Option<String>) {
        *self.text.lock().unwrap() = text;
    }
}

fn ring(extra: &str) -> Ring {
    let extra = format!("{extra}  cluster: {{seeds_interval_ms: 200, name: found}}\n");
    let mut ring = Ring::empty(Layout { dcs: vec![], store: Store::Embedded, extra });
    ring.seeded = false;
    ring
}

fn ring_with_dns(dns: &Dns, extra: &str) -> Ring {
    let server = dns.address;
    let cluster = format!("{{seeds_interval_ms: 200, dns_server: '{server}', name: found}}");
    let extra = format!("{extra}  cluster: {cluster}\n");
    let mut ring = Ring::empty(Layout { dcs: vec![], store: Store::Embedded, extra });
    ring.seeded = false;
    ring
}

fn variables(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

fn is_logged(ring: &Ring, node: usize, text: &str) {
    wait_until(text, || ring.nodes[node].log().contains(text));
}

#[test]
fn a_florida_service_names_nodes_and_their_successors() {
    let florida = Florida::start();
    let mut ring = ring("  dyn_seed_provider: florida_provider\n");
    ring.env = variables(&[("DYNOMITE_FLORIDA_PORT", &florida.port.to_string())]);
    let entry = |ring: &Ring, number: usize| {
        let node = &ring.nodes[number];
        format!("127.0.0.1:{}:{}:{}:{}", node.peer, node.rack, node.dc, node.token)
    };
    ring.add("dc1", "r1", 0);
    ring.add("dc1", "r2", 0);
    let list = format!("{}|nonsense|{}", entry(&ring, 0), entry(&ring, 1));
    florida.set(Some(list.clone()));
    ring.wait_settled();
    // Whoever asks first tells the other by gossip.
    let told = |ring: &Ring| ring.nodes.iter().any(|n| n.log().contains("(told by the seed list)"));
    wait_until("a seed list told a node", || told(&ring));
    // It has nothing to say for a while: what was told stays.
    florida.set(None);
    is_logged(&ring, 0, "the seed provider cannot be asked: it answers with status 500");
    ring.wait_settled();
    // A node dies and is replaced: same place, another address.
    florida.set(Some(list));
    is_logged(&ring, 0, "the seed provider answers");
    ring.nodes[1].kill();
    let successor = ring.add("dc1", "r2", 0);
    florida.set(Some(entry(&ring, successor)));
    ring.wait_settled();
    assert_eq!(ring.nodes[0].info("peers").as_deref(), Some("2"));
}

#[test]
fn names_may_begin_to_exist_and_mean_another_address() {
    let dns = Dns::start();
    let mut ring = ring_with_dns(&dns, "  dyn_seed_provider: dns_provider\n");
    ring.env = variables(&[("DYNOMITE_DNS_NAME", "seeds.ring.test")]);
    ring.add("dc1", "r1", 0);
    is_logged(&ring, 0, "the seed provider cannot be asked: ");
    // The list exists; the name in it does not.
    let mut second = ring_with_dns(&dns, "  advertise: n2.ring.test\n");
    second.add("dc1", "r2", 0);
    let port = second.nodes[0].peer;
    dns.set_text("seeds.ring.test", &format!("n2.ring.test:{port}:r2:dc1:0"));
    is_logged(&ring, 0, "added at n2.ring.test");
    assert_eq!(ring.nodes[0].info("peers").as_deref(), Some("2"));
    // It begins to exist.
    dns.set_address("n2.ring.test", [127, 0, 0, 1]);
    is_logged(&ring, 0, "n2.ring.test is at 127.0.0.1 (its name was looked up)");
    let usable = |ring: &Ring, count: &str| {
        wait_until(&format!("{count} nodes can be used"), || {
            ring.nodes[0].info("peers_usable").as_deref() == Some(count)
        });
    };
    usable(&ring, "2");
    usable(&second, "2");
    // Its address changes, to one where nobody is, while the old one goes on answering.
    dns.set_address("n2.ring.test", [127, 0, 0, 3]);
    usable(&ring, "1");
    // Its successor is there.
    second.nodes[0].kill();
    second.peer_at = ("127.0.0.3".into(), Some(port));
    second.add("dc1", "r2", 0);
    usable(&ring, "2");
    assert_eq!(ring.nodes[0].info("peers").as_deref(), Some("2"));
}

#[test]
fn addresses_and_services_lead_to_torc_nodes() {
    let dns = Dns::start();
    let mut ring = ring_with_dns(&dns, "  dyn_seed_provider: dns_provider\n");
    ring.env = variables(&[
        ("DYNOMITE_DNS_NAME", "_dynomite._tcp.ring.test"),
        ("DYNOMITE_DNS_TYPE", "SRV"),
    ]);
    ring.add("dc1", "r1", 0);
    ring.add("dc1", "r2", 0);
    dns.set_service("_dynomite._tcp.ring.test", "n1.ring.test", ring.nodes[0].peer);
    dns.set_address("n1.ring.test", [127, 0, 0, 1]);
    ring.wait_settled();
    // The third finds the first by its address, and listens at the same port.
    ring.env = variables(&[("DYNOMITE_DNS_NAME", "n1.ring.test"), ("DYNOMITE_DNS_TYPE", "A")]);
    ring.peer_at = ("127.0.0.4".into(), Some(ring.nodes[0].peer));
    ring.add("dc2", "r1", 0);
    ring.wait_settled();
    assert_eq!(ring.nodes[0].info("peers").as_deref(), Some("3"));
}

#[test]
fn the_environment_tells_where_others_reach_a_node() {
    let mut ring = ring("");
    ring.peer_at = ("0.0.0.0".into(), None);
    ring.seeded = true;
    let cases =
        [("aws", "EC2_PUBLIC_HOSTNAME", "127.0.0.5"), ("network", "PUBLIC_IPV4", "127.0.0.6")];
    for (env, name, address) in cases {
        ring.set_extra(&format!("  env: {env}\n  cluster: {{name: found}}\n"));
        ring.env = variables(&[(name, address)]);
        ring.add("dc1", address, 0);
    }
    ring.wait_settled();
    for node in &ring.nodes {
        for (number, (.., address)) in cases.iter().enumerate() {
            let told = format!("\"host\":\"{address}\",\"port\":{}", ring.nodes[number].peer);
            assert!(get(node, "/ring").1.contains(&told), "{told}");
        }
    }
}

/// Skipped where the machine has no IPv6.
#[test]
fn nodes_find_each_other_by_ipv6_addresses_with_brackets_and_without() {
    if TcpListener::bind(("::1", 0)).is_err() {
        println!("skipped: nodes by IPv6 addresses: no IPv6");
        return;
    }
    let mut ring = ring("");
    ring.peer_at = ("[::1]".into(), None);
    let first = ring.add("dc1", "r1", 0);
    let port = ring.nodes[first].peer;
    for (rack, host) in [("r2", "[::1]"), ("r3", "::1")] {
        ring.set_extra(&format!(
            "  cluster: {{name: found}}\n  dyn_seeds:\n  - '{host}:{port}:r1:dc1:0'\n"
        ));
        ring.add("dc1", rack, 0);
    }
    ring.wait_settled();
    for node in &ring.nodes {
        let mut client = node.connect();
        assert_eq!(client.call(&["TORC.CONSISTENCY", "DC_SAFE_QUORUM"]).text(), "OK");
        assert_eq!(client.call(&["SET", "k", &node.rack]).text(), "OK");
        assert_eq!(client.call(&["GET", "k"]).text(), node.rack);
        assert_eq!(get(node, "/ring").1.matches("\"host\":\"::1\"").count(), 3);
    }
}
