//! Commands that the table does not know, of a redis-server that has some under other names.

use std::os::unix::fs::PermissionsExt;

use crate::client::{Reply, bulk};
use crate::ring::{Folder, Layout, Ring, Store, redis_bin, wait_until};

#[test]
fn commands_of_a_module_go_by_their_first_argument() {
    let Some(bin) = redis_bin("commands_of_a_module_go_by_their_first_argument") else { return };
    let folder = Folder::new();
    let program = folder.0.join("redis-server");
    let names = "--rename-command APPEND my.add --rename-command STRLEN my.get.length";
    let script = format!("#!/bin/sh\nexec '{}' \"$@\" {names}\n", bin.display());
    std::fs::write(&program, script).expect("written");
    let may_run = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&program, may_run).expect("it may run");
    let extra = "  module_commands: {writes: [my.], reads: [My.Get.]}\n".to_owned();
    let (dcs, store) = (vec![vec![2, 2]], Store::Redis(program));
    let ring = Ring::start(Layout { dcs, store, extra });
    let mut client = ring.nodes[0].connect();
    for i in 0..20 {
        let key = format!("k{i}");
        assert_eq!(client.call(&["MY.ADD", &key, "abc"]), Reply::Int(3));
        assert_eq!(client.call(&["my.get.length", &key]), Reply::Int(3));
        for node in &ring.nodes {
            let mut other = node.connect();
            wait_until("the copy arrives", || other.call(&["GET", &key]) == bulk("abc"));
        }
        let plan = |verb: &str, client: &mut crate::client::Client| {
            client.call(&["TORC.PLAN", verb, &key]).text()
        };
        assert!(plan("MY.ADD", &mut client).contains("write"));
        assert!(plan("MY.GET.LENGTH", &mut client).contains("read"));
    }
    let unknown = client.call(&["OTHER.ADD", "k", "v"]).text();
    assert!(unknown.starts_with("ERR unknown command 'OTHER.ADD'"), "{unknown}");
}
