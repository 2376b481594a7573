//! The `documents:` section.

use super::*;

fn faults(lines: &[&str]) -> Vec<String> {
    let mut text = format!("{SMALLEST}  documents:\n");
    for line in lines {
        text += &format!("    {line}\n");
    }
    match load(&text) {
        Ok(_) => Vec::new(),
        Err(errors) => errors.errors.into_iter().map(|e| e.what).collect(),
    }
}

#[test]
fn backends_stand_behind_nodes_or_in_groups() {
    let loaded = with(&[
        "documents:",
        "  replication_factor: 2",
        "  master_key: m",
        "  session_strategy: route_pin",
        "  backends:",
        "    a: {url: 'http://127.0.0.1:7700', group: 0}",
        "    b:",
        "      url: http://127.0.0.1:7701/prefix",
        "      group: 0",
    ]);
    let documents = loaded.config.documents;
    assert_eq!(documents.shards, 64);
    assert_eq!(documents.listen, Endpoint::tcp("127.0.0.1", 7701));
    assert_eq!(documents.session_strategy, SessionWait::RoutePin);
    assert_eq!(documents.master_key.map(|key| key.expose().to_owned()), Some("m".into()));
    let [a, b] = &documents.backends.0[..] else { panic!("{:?}", documents.backends) };
    assert_eq!((a.id.as_str(), a.group), ("a", Some(0)));
    assert_eq!(b.url, "http://127.0.0.1:7701/prefix");
    let loaded = with(&["documents:", "  backends:", "    n1: https://search.example"]);
    assert_eq!(loaded.config.documents.backends.0[0].group, None);
    assert!(with(&[]).config.documents.backends.0.is_empty());
}

#[test]
fn groups_that_cannot_serve_and_odd_numbers_are_refused() {
    let one = "a: {url: 'http://h:1', group: 0}";
    for (lines, expected) in [
        (vec!["backends: 5"], "expected a map of servers, found text"),
        (vec!["backends:", "  a: ftp://h:1"], "`ftp://h:1` is no address"),
        (vec!["backends:", "  a: {url: 'http://h:1'}"], "`a` needs both `url` and `group`"),
        (vec!["backends:", "  a: {uri: 'http://h:1'}"], "unknown key `uri`"),
        (vec!["backends:", &format!("  {one}"), "  b: http://h:2"], "some backends name a group"),
        (vec!["backends:", &format!("  {one}"), &format!("  {one}")], "`a` is given twice"),
        (vec!["backends:", "  a: {url: 'http://h:1', group: 1}"], "group 0 has no backend"),
        (
            vec!["replication_factor: 2", "backends:", &format!("  {one}")],
            "group 0 has 1 backends, fewer than replication_factor 2",
        ),
        (vec!["shards: 0"], "`shards` 0 is out of range"),
        (vec!["node_timeout_ms: 0"], "`node_timeout_ms` 0 is out of range"),
        (vec!["slot: 16"], "`slot` is not below `max_gateways`"),
        (vec!["partial_reads: maybe"], "`maybe` is not a policy"),
        (vec!["listen: /tmp/socket"], "documents are served over TCP"),
        (
            vec!["listen: 127.0.0.1:8102", "backends:", &format!("  {one}")],
            "`documents.listen` and `listen` are the same address",
        ),
    ] {
        let found = faults(&lines);
        let first = found.first().map(String::as_str).unwrap_or_default();
        assert!(first.starts_with(expected), "{lines:?}: {found:?}");
    }
}

#[test]
fn the_relay_may_not_listen_where_documents_are_served() {
    let text = format!(
        "{SMALLEST}  affinity: {{mode: advise}}\n  relay: {{listen: '127.0.0.1:7701'}}\n  \
         documents: {{backends: {{a: {{url: 'http://h:1', group: 0}}}}}}\n"
    );
    let found = load(&text).unwrap_err().errors;
    let clash = "`documents.listen` and `relay.listen` are the same address";
    assert_eq!(found.iter().map(|e| e.what.as_str()).collect::<Vec<_>>(), [clash]);
    assert!(load(&text.replace("7701", "7702")).is_ok());
}
