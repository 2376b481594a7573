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
