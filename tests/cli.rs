//! The command line as a start script or an operator uses it: texts and exit codes.

use std::path::PathBuf;
use std::process::Command;

/// Exit code, standard output, standard error.
fn torc(args: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_torc"))
        .args(args)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// A file in the temporary folder, removed at the end of the test.
struct TempFile(PathBuf);

impl TempFile {
    fn new(name: &str, text: &str) -> TempFile {
        let path = std::env::temp_dir().join(format!("torc-cli-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        TempFile(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn version_and_help_end_well() {
    let (code, out, err) = torc(&["-V"]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert_eq!(out, concat!("torc ", env!("CARGO_PKG_VERSION"), "\n"));
    for flag in ["-h", "--help"] {
        let (code, out, _) = torc(&[flag]);
        assert_eq!(code, 0);
        assert!(out.contains("torc [OPTIONS]") && out.contains("check"), "{out}");
    }
}

#[test]
fn bad_usage_ends_with_64() {
    for args in [
        vec!["--no-such-flag"],
        vec!["no-such-command"],
        vec!["-y"],
        vec![],
        vec!["check"],
        vec!["token"],
        vec!["tokens", "plan", "--nodes", "0"],
        vec!["tokens", "plan", "--nodes", "40000", "--hash", "crc32"],
        vec!["-d", "-c", "conf/single.yml"],
        vec!["-D"],
        vec!["-x", "1", "-c", "conf/single.yml"],
    ] {
        let (code, out, err) = torc(&args);
        assert_eq!((code, out.as_str()), (64, ""), "{args:?}");
        assert!(!err.is_empty(), "{args:?}");
    }
}

#[test]
fn a_right_configuration_is_explained() {
    let expected = "\
the configuration is valid
  node     dc1/rack2
  tokens   0 (murmur)
  ring     3 node(s) listed, 3 rack(s), 1 datacenter(s)
  clients  127.0.0.1:8112 (Redis)
  reads    DC_QUORUM
  writes   DC_QUORUM
  peers    127.0.0.1:8111
  store    127.0.0.1:6380
  admin    127.0.0.1:22232
";
    let file = "conf/three-racks/rack2.yml";
    for args in [
        ["check", "-c", file].as_slice(),
        &["-t", "-c", file],
        &["--test-conf", "--conf-file", file, "-v", "9", "-m", "16384", "-M", "200000"],
    ] {
        assert_eq!(torc(args), (0, expected.to_owned(), String::new()));
    }
}

#[test]
fn a_wrong_configuration_ends_with_64_and_its_reasons() {
    let file = TempFile::new("wrong.yml", "pool:\n  listen: 127.0.0.1\n  tokens: 1\n");
    let (code, out, err) = torc(&["check", "-c", file.path()]);
    assert_eq!((code, out.as_str()), (64, ""));
    let expected = format!(
        "torc: {}:2:11: `127.0.0.1` has no port\n \
         2 |   listen: 127.0.0.1\n   \
         |           ^^^^^^^^^\n   \
         = accepted: host:port, [ipv6]:port or the path of a Unix socket\n",
        file.path()
    );
    assert_eq!(err, expected);
    assert_eq!(torc(&["-t", "-c", "/nonexistent.yml"]).0, 64);
}

#[test]
fn warnings_go_to_standard_error() {
    let text = "pool:\n  listen: 127.0.0.1:1\n  tokens: 1\n  datastore: embedded\n  max_msgs: 1\n";
    let file = TempFile::new("warned.yml", text);
    let overlay = TempFile::new("overlay.yml", "rack: over\n");
    let (code, out, err) = torc(&["check", "-c", file.path(), "--overlay", overlay.path()]);
    assert_eq!(code, 0);
    assert_eq!(err, "torc: warning: without effect: `max_msgs` (see `limits`)\n");
    assert!(out.contains("node     localdc/over\n"), "{out}");
}

#[test]
fn token_shows_where_keys_live() {
    let (code, out, _) = torc(&["token", "foo", "123456789"]);
    assert_eq!(code, 0);
    assert_eq!(out, "foo  token 3303027599 (murmur)\n123456789  token 3077965456 (murmur)\n");
    let (_, out, _) = torc(&["token", "--hash", "md5", "--hash-tag", "{}", "a{foo}b"]);
    assert_eq!(out, "a{foo}b  token 3675831724 (md5 of foo)\n");
    let (_, out, _) = torc(&["token", "-c", "conf/two-dcs/dc1-node1.yml", "foo", "abc"]);
    assert_eq!(
        out,
        "\
foo  token 3303027599 (murmur)
  dc1/rack1            127.0.0.1:8101 (this node), tokens 0
  dc2/rack1            127.0.0.1:8121, tokens 0
abc  token 2064434216 (murmur)
  dc1/rack1            127.0.0.1:8111, tokens 2147483648
  dc2/rack1            127.0.0.1:8131, tokens 2147483648
"
    );
}

#[test]
fn tokens_plan_prints_lines_for_the_configuration() {
    let (code, out, _) = torc(&["tokens", "plan", "--nodes", "2", "--racks", "r1,r2"]);
    assert_eq!(code, 0);
    assert_eq!(
        out,
        "\
# murmur, each node owns 50.00 % of its rack
rack: r1           # node 1
tokens: '0'
rack: r1           # node 2
tokens: '2147483648'
rack: r2           # node 1
tokens: '0'
rack: r2           # node 2
tokens: '2147483648'
"
    );
    let (_, out, _) =
        torc(&["tokens", "plan", "--nodes", "2", "--tokens-per-node", "2", "--hash", "murmur3"]);
    let lines: Vec<&str> = out.lines().filter(|l| l.starts_with("tokens")).collect();
    assert_eq!(
        lines,
        [
            "tokens: '0x00000000000000000000000000000000,0x80000000000000000000000000000000'",
            "tokens: '0x40000000000000000000000000000000,0xc0000000000000000000000000000000'",
        ]
    );
}

#[test]
fn schema_is_the_kept_file() {
    assert_eq!(torc(&["schema"]).1, include_str!("../conf/torc.schema.json"));
}
