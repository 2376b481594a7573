//! Scenarios: one thing goes wrong, and what must follow.

mod affinity;
mod deadlines;
mod fragments;
mod framing;
mod observed;
mod peers;
mod pressure;
mod reads;
mod several;
mod stores;
mod views;

use torc::dispatch::Counters;

use super::world::World;

/// Helpers of the scenarios.
impl World {
    /// The figures of node `n`.
    fn counters(&self, n: usize) -> &Counters {
        self.nodes[n].dispatcher.counters()
    }

    /// Asks one line; the brief reply and how many milliseconds it took.
    fn timed(&mut self, user: usize, line: &str) -> (String, u64) {
        let start_ms = self.now_ms();
        let reply = self.ask(user, line);
        (reply, self.now_ms() - start_ms)
    }

    /// Sends one line and gives the brief replies of several requests sent so.
    fn ask_all(&mut self, user: usize, lines: &[&str]) -> Vec<String> {
        lines.iter().for_each(|line| self.send_line(user, line));
        lines.iter().map(|_| super::user::brief(&self.reply(user))).collect()
    }

    /// Puts a value into the stores of some nodes, past the ring.
    fn plant(&mut self, nodes: &[usize], key: &str, value: &str) {
        for n in nodes {
            assert_eq!(self.in_store(*n, &format!("SET {key} {value}")), "OK");
        }
    }
}

/// Asserts that a reply begins as the reference's does and tells the cause behind it.
#[track_caller]
fn assert_error(reply: &str, text: &str, cause: &str) {
    assert!(
        reply.starts_with(text) && reply.contains(cause),
        "{reply:?} is not {text:?} ({cause})"
    );
}

const NOT_CONNECTED: &str = "-ERR Peer: Peer Node is not connected";
const PEER_REFUSED: &str = "-ERR Peer: Peer Node refused connection";
const STORE_REFUSED: &str = "-ERR Storage: Datastore refused connection";
const NO_QUORUM: &str = "-ERR Dynomite: Failed to achieve Quorum";
