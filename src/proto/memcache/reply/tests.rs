use super::*;
use crate::proto::memcache::table;

const LIMITS: McReplyLimits =
    McReplyLimits { line_bytes_max: 300, value_bytes_max: 1 << 16, reply_bytes_max: 1 << 17 };

fn scan(buf: &[u8]) -> Result<Option<usize>, McReplyErrorKind> {
    McReplyScanner::default().scan(buf, &LIMITS).map_err(|error| error.kind)
}

const REPLIES: [&[u8]; 12] = [
    b"END\r\n",
    b"STORED\r\n",
    b"17\r\n",
    b"CLIENT_ERROR bad data chunk\r\n",
    b"VALUE a 0 0\r\n\r\nEND\r\n",
    b"VALUE a 0 5 77\r\nEND\r\n\r\nVALUE b 1 1\r\nx\r\nEND\r\n",
    b"VALUE a 0 1\r\nx\r\nSERVER_ERROR out of memory writing get response\r\n",
    b"VA 4 c1 O2\r\n\r\n\r\n\r\n",
    b"HD s5\r\n",
    b"MN\r\n",
    b"STAT pid 1\r\nSTAT VALUE x\r\nEND\r\n",
    b"ITEM a [1 b; 0 s]\r\nEND\r\n",
];

#[test]
fn every_reply_ends_where_it_ends_however_it_is_cut() {
    let mut scanner = McReplyScanner::default();
    for reply in REPLIES {
        let text = reply.escape_ascii();
        let stream = [reply, b"END\r\n"].concat();
        assert_eq!(scan(&stream), Ok(Some(reply.len())), "{text}");
        for end in 0..reply.len() {
            assert_eq!(scan(&reply[..end]), Ok(None), "{text} {end}");
            assert_eq!(scanner.scan(&reply[..end], &LIMITS), Ok(None), "{text} {end}");
            assert!(scanner.need() > 0);
        }
        assert_eq!(scanner.scan(&stream, &LIMITS), Ok(Some(reply.len())), "{text}");
    }
}

#[test]
fn what_is_no_reply_is_refused() {
    use McReplyErrorKind::*;
    assert_eq!(scan(b"STORED\n"), Err(Line));
    assert_eq!(scan(&[b'x'; 301]), Err(Line));
    assert_eq!(scan(b"VALUE a 0\r\n"), Err(Length));
    assert_eq!(scan(b"VALUE a 0 -1\r\n"), Err(Length));
    assert_eq!(scan(b"VALUE a 0 65537\r\n"), Err(Length));
    assert_eq!(scan(b"VA x\r\n"), Err(Length));
    assert_eq!(scan(b"VALUE a 0 1\r\nxyz"), Err(DataEnd));
    let mut big = Vec::new();
    for _ in 0..3 {
        big.extend_from_slice(b"VALUE a 0 60000\r\n");
        big.resize(big.len() + 60_000, b'v');
        big.extend_from_slice(b"\r\n");
    }
    assert_eq!(scan(&big), Err(TooBig));
}

#[test]
fn errors_are_known() {
    assert!(is_error(b"ERROR\r\n"));
    assert!(is_error(b"CLIENT_ERROR x\r\n"));
    assert!(is_error(b"SERVER_ERROR x\r\n"));
    assert!(!is_error(b"STORED\r\n") && !is_error(b"ERRORS\r\n"));
}

fn request(name: &str, noreply: bool, quiet: bool) -> McRequest {
    let command = table::lookup(name.as_bytes()).unwrap();
    McRequest { len: 0, command, data: None, noreply, quiet, plain: false }
}

#[test]
fn the_client_is_told_what_it_wants_to_know() {
    assert!(!is_wanted(&request("set", true, false), b"SERVER_ERROR x\r\n"));
    assert!(is_wanted(&request("set", false, false), b"STORED\r\n"));
    for (name, silent, told) in [
        ("mg", &b"EN\r\n"[..], &b"VA 0\r\n\r\n"[..]),
        ("ms", b"HD O1\r\n", b"NS\r\n"),
        ("md", b"HD\r\n", b"NF\r\n"),
        ("ma", b"VA 1\r\n5\r\n", b"NF\r\n"),
    ] {
        assert!(!is_wanted(&request(name, false, true), silent), "{name}");
        assert!(is_wanted(&request(name, false, true), told), "{name}");
        assert!(is_wanted(&request(name, false, true), b"CLIENT_ERROR x\r\n"), "{name}");
        assert!(is_wanted(&request(name, false, false), silent), "{name}");
    }
}
