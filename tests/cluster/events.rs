//! Every change of the ring is one event: a line of the log, one more in a counter, and an entry of
//! `/ring` with its cause and time.

use std::collections::BTreeMap;
use std::time::UNIX_EPOCH;

use serde_json::Value;

use crate::admin::{get, page};
use crate::ring::{Layout, Node, Ring, Store, wait_until};

/// What an entry of `/ring` says: slot, what happened, and why.
type Entry = (String, String, String);

/// Milliseconds since 1970.
fn wall_ms() -> u64 {
    UNIX_EPOCH.elapsed().expect("a clock").as_millis() as u64
}

/// The entries, and when they were made, milliseconds since 1970.
fn entries(node: &Node) -> Vec<(Entry, u64)> {
    let (_, text) = get(node, "/ring");
    let ring: Value = serde_json::from_str(&text).expect("JSON");
    let event = |event: &Value| {
        let text = |name: &str| event[name].as_str().expect(name).to_owned();
        ((text("slot"), text("what"), text("cause")), event["at_ms"].as_u64().expect("a time"))
    };
    ring["events"].as_array().expect("events").iter().map(event).collect()
}

/// The counter's values, by kind.
fn counts(node: &Node) -> BTreeMap<String, u64> {
    let (_, text) = get(node, "/metrics");
    let line = |line: &str| {
        let rest = line.strip_prefix("torc_ring_events_total{kind=\"")?;
        let (kind, count) = rest.split_once("\"} ")?;
        Some((kind.to_owned(), count.parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

/// The kind an entry is counted as.
fn kind(what: &str) -> &'static str {
    let starts = [
        ("added at ", "added"),
        ("moved from ", "moved"),
        ("not believed to be at ", "conflict"),
        ("refused a message of ", "refused"),
        ("is a ", "kind"),
        ("to be connected again", "retry"),
        ("changed its tokens", "tokens"),
        ("held down", "ordered"),
        ("reads at ", "ordered"),
    ];
    let same = ["up", "down", "removed", "restarted"];
    let starts = starts.iter().find(|(start, _)| what.starts_with(start)).map(|(_, kind)| *kind);
    let same = || same.into_iter().find(|kind| *kind == what);
    let state = || what.contains(" -> ").then_some("state");
    starts.or_else(same).or_else(state).unwrap_or_else(|| panic!("an event nobody caused: {what}"))
}

/// Log, counter and page of a node tell the same. They are read one after the other, so it is
/// waited until nothing happens in between.
fn check_told_alike(node: &Node) {
    let mut told = Vec::new();
    wait_until("nothing happens for a moment", || {
        told = entries(node);
        let lines: Vec<String> = node
            .log()
            .lines()
            .filter_map(|line| Some(line.split_once("node::control: ring: ")?.1.to_owned()))
            .filter(|line| line.ends_with(')'))
            .collect();
        let expected = told.iter().map(|((slot, what, why), _)| format!("{slot} {what} ({why})"));
        let counted = told.iter().fold(BTreeMap::new(), |mut counts, ((_, what, _), _)| {
            *counts.entry(kind(what).to_owned()).or_default() += 1;
            counts
        });
        expected.eq(lines) && counted == counts(node)
    });
    assert!(told.windows(2).all(|two| two[0].1 <= two[1].1), "in the order of time: {told:?}");
}

/// A ring of two racks, watched through its first node.
struct Scene {
    ring: Ring,
}

impl Scene {
    fn watcher(&self) -> &Node {
        &self.ring.nodes[0]
    }

    fn address(&self, node: usize) -> String {
        format!("127.0.0.1:{}", self.ring.nodes[node].peer)
    }

    /// Waits for an entry whose time lies within that of the change.
    fn expect(&self, since: u64, slot: &str, what: &str, cause: &str) {
        let entry = (slot.to_owned(), what.to_owned(), cause.to_owned());
        let mut at_ms = None;
        wait_until(&format!("{slot} {what} ({cause})"), || {
            let found = entries(self.watcher()).into_iter().rev().find(|(e, _)| *e == entry);
            at_ms = found.map(|(_, at_ms)| at_ms).filter(|at_ms| *at_ms >= since);
            at_ms.is_some()
        });
        assert!(at_ms.is_some_and(|at_ms| at_ms <= wall_ms()), "{what} at {at_ms:?}");
    }

    /// A third node joins, dies, and comes back with more arcs.
    fn joins_and_returns(&mut self) -> usize {
        let since = wall_ms();
        let third = self.ring.add("dc2", "r3", 7);
        let added = format!("added at {}", self.address(third));
        self.expect(since, "dc2/r3/7", &added, "told by gossip");
        self.ring.wait_settled();
        let since = wall_ms();
        self.ring.nodes[third].kill();
        self.expect(since, "dc2/r3/7", "down", "nobody listens at its address");
        let since = wall_ms();
        self.ring.nodes[third].edit(|text| text.replace("tokens: '7'", "tokens: '7,70,700'"));
        self.ring.nodes[third].start();
        self.expect(since, "dc2/r3/7", "restarted", "a newer generation was heard");
        self.expect(since, "dc2/r3/7", "changed its tokens", "it said so");
        self.expect(since, "dc2/r3/7", "up", "it answers");
        let tokens = "\"tokens\":[\"7\",\"70\",\"700\"]";
        assert!(get(self.watcher(), "/ring").1.contains(tokens));
        self.expect(since, "dc2/r3/7", "JOINING -> NORMAL", "it said so");
        self.ring.wait_settled();
        third
    }

    /// Operators change that node's state, and something of the watcher.
    fn is_ordered(&self, third: usize) {
        let since = wall_ms();
        assert_eq!(get(&self.ring.nodes[third], "/state/standby").0, 200);
        self.expect(since, "dc2/r3/7", "NORMAL -> STANDBY", "it said so");
        assert_eq!(get(self.watcher(), "/set_consistency/read/dc_quorum").0, 200);
        self.expect(since, "dc1/r1/0", "reads at DC_QUORUM", "by order of an operator");
    }

    /// Another process takes that node's place elsewhere, and leaves.
    fn is_replaced(&mut self, third: usize) {
        let since = wall_ms();
        self.ring.nodes[third].kill();
        self.expect(since, "dc2/r3/7", "down", "nobody listens at its address");
        let since = wall_ms();
        let heir = self.ring.add("dc2", "r3", 7);
        let moved = format!("moved from {} to {}", self.address(third), self.address(heir));
        self.expect(since, "dc2/r3/7", &moved, "told by gossip");
        self.ring.wait_settled();
        let since = wall_ms();
        self.ring.leave(heir);
        self.expect(since, "dc2/r3/7", "removed", "it said that it leaves");
    }

    /// One that dies is forgotten by order.
    fn is_forgotten(&mut self) {
        let since = wall_ms();
        self.ring.nodes[1].kill();
        self.expect(since, "dc1/r2/0", "down", "nobody listens at its address");
        let since = wall_ms();
        assert_eq!(page(self.watcher(), "POST", "/ring/forget/dc1/r2/0").0, 200);
        self.expect(since, "dc1/r2/0", "removed", "forgotten by an operator");
    }

    /// A node of another cluster asks, and never becomes a part of the ring.
    fn is_asked_by_a_stranger(&mut self) {
        let since = wall_ms();
        self.ring.set_extra("  cluster: {name: other}\n");
        self.ring.add("dc1", "r4", 0);
        wait_until("a stranger is refused", || {
            let refused = |((slot, what, why), at_ms): &(Entry, u64)| {
                let from = what.starts_with("refused a message of 127.0.0.1:");
                from && slot == "dc1/r1/0" && why.contains("other") && *at_ms >= since
            };
            entries(self.watcher()).iter().any(refused)
        });
        assert_eq!(self.watcher().info("peers").as_deref(), Some("1"));
    }
}

#[test]
fn every_change_is_told_once_in_the_log_the_counter_and_the_page_with_cause_and_time() {
    let (store, extra) = (Store::Embedded, String::new());
    let ring = Ring::start(Layout { dcs: vec![vec![1, 1]], store, extra });
    let mut scene = Scene { ring };
    let third = scene.joins_and_returns();
    scene.is_ordered(third);
    scene.is_replaced(third);
    scene.is_forgotten();
    scene.is_asked_by_a_stranger();
    check_told_alike(scene.watcher());
}
