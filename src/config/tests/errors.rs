//! The texts of errors, to the letter.

use super::*;

fn errors_of(text: &str) -> String {
    load(text).unwrap_err().to_string()
}

#[test]
fn all_mistakes_of_a_file_are_shown_at_once() {
    let text = "\
pool:
  liste: 127.0.0.1:8102
  stats_listen: '127.0.0.1:99999'
  phi_threshold: 8
  timeout: 5O00
  timeout: 50
  read_consistency: dc_quorm
  limits: {client_connection: 5, inline_bytes_max: 5xb}
";
    let expected = "\
f.yml:2:3: unknown key `liste`
 2 |   liste: 127.0.0.1:8102
   |   ^^^^^
   = did you mean `listen`?

f.yml:3:28: `127.0.0.1:99999` has no port from 0 to 65535
 3 |   stats_listen: '127.0.0.1:99999'
   |                            ^^^^^
   = accepted: host:port, [ipv6]:port or the path of a Unix socket

f.yml:4:3: unknown key `phi_threshold`
 4 |   phi_threshold: 8
   |   ^^^^^^^^^^^^^
   = `phi_threshold` is a key of `cluster:`

f.yml:5:13: `5O00` is not a number
 5 |   timeout: 5O00
   |             ^
   = accepted: digits, 0 to 4294967295

f.yml:6:3: key `timeout` is given twice
 6 |   timeout: 50
   |   ^^^^^^^
   = first given on line 5

f.yml:7:21: `dc_quorm` is not a consistency level
 7 |   read_consistency: dc_quorm
   |                     ^^^^^^^^
   = accepted: DC_ONE, DC_QUORUM, DC_SAFE_QUORUM, DC_EACH_SAFE_QUORUM (in any case)
   = did you mean `DC_QUORUM`?

f.yml:8:12: unknown key `client_connection`
 8 |   limits: {client_connection: 5, inline_bytes_max: 5xb}
   |            ^^^^^^^^^^^^^^^^^
   = did you mean `client_connections`?

f.yml:8:53: `5xb` has an unknown unit
 8 |   limits: {client_connection: 5, inline_bytes_max: 5xb}
   |                                                     ^^
   = accepted: bytes as digits, or with a unit: 64kb, 64mb, 1gb";
    assert_eq!(errors_of(text), expected);
}

#[test]
fn mistakes_between_keys_show_both_places() {
    let text = "\
pool:
  listen: 0.0.0.0:8102
  datastore: embedded
  rack: r1
  datacenter: dc1
  tokens: '7'
  dyn_seeds:
  - 10.0.0.2:8101:r1:dc1:5
  - 10.0.0.3:8101:r1:dc1:7
  default_bucket_type: kw
  bucket_types:
  - name: kv
  - prefix: x
";
    let expected = "\
f.yml:9:5: token 7 in rack r1 is both this node's and 10.0.0.3:8101's
 9 |   - 10.0.0.3:8101:r1:dc1:7
   |     ^
   = the other is on line 6

f.yml:10:24: `kw` is no bucket type
 10 |   default_bucket_type: kw
    |                        ^^
    = accepted: kv

f.yml:13:5: a bucket type has no `name`
 13 |   - prefix: x
    |     ^
    = accepted: name: a text of its own, beside the others";
    assert_eq!(errors_of(text), expected);
}

#[test]
fn seeds_and_tokens_show_the_wrong_field() {
    let text =
        "pool:\n  tokens: \"1, 2\"\n  dyn_seeds:\n  - '[::1]:8101:r\u{e4}ck:dc:5y'\n  - a:b\n";
    let expected = "\
f.yml:2:14: `1, 2` is not a list of tokens: ' ' is no decimal digit
 2 |   tokens: \"1, 2\"
   |              ^
   = accepted: decimal digits with an optional `-`, or 0x and 32 hex digits; several with commas \
and no blanks
   = write the list without blanks

f.yml:4:26: `[::1]:8101:r\u{e4}ck:dc:5y` has wrong tokens: 'y' is no decimal digit
 4 |   - '[::1]:8101:r\u{e4}ck:dc:5y'
   |                          ^
   = accepted: host:port:rack:dc:tokens [name]

f.yml:5:5: `a:b` has 2 of the 5 fields
 5 |   - a:b
   |     ^^^
   = accepted: host:port:rack:dc:tokens [name]";
    assert_eq!(errors_of(text), expected);
}

#[test]
fn what_is_no_pool_is_said_so() {
    for (text, expected) in [
        ("", "f.yml: is empty"),
        ("# nothing\n", "f.yml: is empty"),
        ("a: 1\n---\nb: 1\n", "f.yml: holds more than one document"),
        (
            "- a\n",
            "f.yml:1:1: expected a pool, found a list\n 1 | - a\n   | ^\n   = accepted: one root \
             key with the settings below it, as in `dyn_o_mite:`",
        ),
        (
            "a: &x {b: [}\n",
            "f.yml:1:12: did not find expected node content\n 1 | a: &x {b: [}\n   |            ^",
        ),
        (
            "a: !tag\n  b: 1\n",
            "f.yml:1:4: a: tags (`!name`) are not accepted\n 1 | a: !tag\n   |    ^",
        ),
        (
            "a: {}\nb: {}\n",
            "f.yml:2:1: `b` would be a second pool\n 2 | b: {}\n   | ^\n   = accepted: one root \
             key with the settings below it, as in `dyn_o_mite:`\n   = the first begins on line 1",
        ),
        ("a:\n", "f.yml:1:3: expected a map of settings, found nothing\n 1 | a:\n   |   ^"),
    ] {
        let found = errors_of(text);
        assert_eq!(
            found.lines().take(expected.lines().count()).collect::<Vec<_>>().join("\n"),
            expected
        );
    }
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = Config::load(Path::new("/nonexistent/torc.yml"), None).unwrap_err().to_string();
    assert!(error.starts_with("/nonexistent/torc.yml: cannot be read: "), "{error}");
}

#[test]
fn a_missing_key_of_encrypted_links_is_found_before_the_start() {
    let file = std::env::temp_dir().join(format!("torc-config-{}.yml", std::process::id()));
    let text = SMALLEST.to_owned() + "  secure_server_option: all\n  pem_key_file: /nonexistent\n";
    std::fs::write(&file, text).unwrap();
    let error = Config::load(&file, None).unwrap_err();
    std::fs::remove_file(&file).unwrap();
    let what = "`secure_server_option: all` needs a key, but the key file /nonexistent cannot be \
                read: No such file or directory (os error 2)";
    assert_eq!(error.errors[0].what, what);
}

#[test]
fn a_long_list_of_mistakes_is_cut() {
    let seeds: String = (0..500).map(|i| format!("  - h{i}\n")).collect();
    let errors = load(&format!("pool:\n  dyn_seeds:\n{seeds}")).unwrap_err();
    assert_eq!((errors.errors.len(), errors.more), (20, 480));
    assert!(errors.to_string().ends_with("\n\nand 480 more"));
}
