//! Commands that concern every node.

use super::super::scripted::{Scripted, ring};
use crate::dispatch::view::Settings;

fn three_nodes(settings: Settings) -> Scripted {
    let peers = ring(&[("n1", "dc1/r1", 1), ("n2", "dc1/r2", 1), ("n3", "dc2/r1", 1)]);
    Scripted::new(peers, settings)
}

/// The two other nodes are sent a command, and both say the same.
fn answer_others(s: &mut Scripted, command: &str, said: &str) {
    for name in ["n2", "n3"] {
        assert_eq!(s.sent(name), [format!("3 {command}")]);
        s.answer(name, said);
    }
}

const SHA: &str = "$40\r\ne0e1f9fabfc9d4800c877a703b823ac0578ff8db\r\n";

#[test]
fn a_script_is_loaded_on_every_node_of_every_datacenter() {
    let mut s = three_nodes(Settings::default());
    s.send("SCRIPT LOAD return");
    answer_others(&mut s, "SCRIPT LOAD return", SHA);
    s.answer("store", SHA);
    assert_eq!(s.replies(), SHA);
}

#[test]
fn an_error_names_the_nodes_that_did_not_do_it() {
    let mut s = three_nodes(Settings { allow_flush: true, ..Settings::default() });
    s.lose("n3");
    s.send("FLUSHALL");
    s.sent("n2");
    s.answer("n2", "-MISCONF no disk\r\n");
    s.answer("store", "+OK\r\n");
    assert_eq!(
        s.replies(),
        "-ERR Dynomite: 2 of 3 nodes did not do it: n3 (dc2, r1): not connected; \
         n2 (dc1, r2): MISCONF no disk\r\n"
    );
}

#[test]
fn an_error_of_all_nodes_is_told_in_its_own_words() {
    let mut s = three_nodes(Settings::default());
    s.send("SCRIPT LOAD (");
    answer_others(&mut s, "SCRIPT LOAD (", "-ERR Error compiling script\r\n");
    s.answer("store", "-ERR Error compiling script\r\n");
    assert_eq!(s.replies(), "-ERR Error compiling script\r\n");
}

#[test]
fn a_library_is_deleted_where_it_is() {
    const NOT_FOUND: &str = "-ERR Library not found\r\n";
    const OK: &str = "+OK\r\n";
    for (own, others, told) in
        [(OK, NOT_FOUND, OK), (NOT_FOUND, OK, OK), (NOT_FOUND, NOT_FOUND, NOT_FOUND)]
    {
        let mut s = three_nodes(Settings::default());
        s.node.libraries.sure = true;
        s.send("FUNCTION DELETE a");
        answer_others(&mut s, "FUNCTION DELETE a", others);
        s.answer("store", own);
        assert_eq!(s.replies(), told);
    }
}

#[test]
fn flushing_needs_the_setting() {
    let mut s = three_nodes(Settings::default());
    for command in ["FLUSHALL", "FLUSHDB ASYNC"] {
        s.send(command);
        assert!(s.replies().contains("allow_flush"), "{command}");
        assert!(s.sent("store").is_empty() && s.sent("n2").is_empty());
    }
}

#[test]
fn a_script_exists_when_every_node_has_it() {
    let mut s = three_nodes(Settings::default());
    s.send("SCRIPT EXISTS a b");
    for name in ["n2", "n3"] {
        s.sent(name);
        s.answer(name, if name == "n2" { "*2\r\n:1\r\n:1\r\n" } else { "*2\r\n:0\r\n:1\r\n" });
    }
    s.answer("store", "*2\r\n:1\r\n:1\r\n");
    assert_eq!(s.replies(), "*2\r\n:0\r\n:1\r\n");
}

#[test]
fn a_running_script_is_killed_wherever_it_runs() {
    let mut s = three_nodes(Settings::default());
    let idle = "-NOTBUSY No scripts in execution right now.\r\n";
    for busy in [true, false] {
        s.send("SCRIPT KILL");
        for name in ["n2", "n3"] {
            s.sent(name);
            s.answer(name, if busy && name == "n3" { "+OK\r\n" } else { idle });
        }
        s.answer("store", idle);
        assert_eq!(s.replies(), if busy { "+OK\r\n" } else { idle });
    }
}

#[test]
fn what_a_node_of_the_reference_cannot_do_is_begun_nowhere() {
    let mut peers = ring(&[("n1", "dc1/r1", 1), ("c1", "dc1/r2", 1)]);
    peers[1].is_torc = false;
    let mut s = Scripted::new(peers, Settings::default());
    s.send("FUNCTION LOAD code");
    let reply = s.replies();
    assert!(
        reply.starts_with("-ERR Peer: Peer Node does not know this command (c1, r2"),
        "{reply}"
    );
    assert!(s.sent("store").is_empty());
}

#[test]
fn a_script_unknown_to_the_datastore_is_sent_again_with_its_text() {
    let peers = ring(&[("n1", "dc1/r1", 2147483647), ("n2", "dc1/r1", 4294967294)]);
    let mut s = Scripted::new(peers, Settings::default());
    s.send("SCRIPT LOAD return");
    s.sent("n2");
    s.answer("n2", SHA);
    s.answer("store", SHA);
    let sha = "63143b6f8007b98c53ca2149822777b3566f9241";
    s.replies();
    s.sent("store");
    for keys in ["0", "1 k1", "1 k2", "1 k3"] {
        s.send(&format!("EVALSHA {sha} {keys} x"));
        let name = if s.sent("n2").is_empty() { "store" } else { "n2" };
        s.sent("store");
        s.answer(name, "-NOSCRIPT No matching script.\r\n");
        let again = s.sent(name);
        assert!(again[0].ends_with(&format!("EVAL return {keys} x")), "{again:?}");
        s.answer(name, ":1\r\n");
        assert_eq!(s.replies(), ":1\r\n");
    }
    s.send("SCRIPT FLUSH");
    s.sent("n2");
    s.answer("n2", "+OK\r\n");
    s.answer("store", "+OK\r\n");
    s.replies();
    s.send(&format!("EVALSHA {sha} 0"));
    assert_eq!(s.sent("n2"), [format!("3 TORC.SCRIPT {sha}")]);
    s.answer("n2", "$-1\r\n");
    s.answer("store", "-NOSCRIPT No matching script.\r\n");
    assert_eq!(s.replies(), "-NOSCRIPT No matching script.\r\n");
}

#[test]
fn replicas_get_a_known_script_with_its_text() {
    let mut s = three_nodes(Settings::default());
    s.send("SCRIPT LOAD return");
    s.send("EVALSHA 63143b6f8007b98c53ca2149822777b3566f9241 1 k");
    assert_eq!(s.sent("n2"), ["3 SCRIPT LOAD return", "3 EVAL return 1 k"]);
    assert_eq!(s.sent("n3"), ["3 SCRIPT LOAD return", "4 EVAL return 1 k"]);
    assert_eq!(s.sent("store"), ["SCRIPT LOAD return", "EVAL return 1 k"]);
}
