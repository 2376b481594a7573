use super::*;
use crate::proto::resp::encode;
use proptest::prelude::*;

const LIMITS: ReplyLimits = ReplyLimits {
    bulk_bytes_max: 1 << 20,
    elements_max: 1 << 16,
    line_bytes_max: 1 << 10,
    depth_max: 8,
    reply_bytes_max: 2 << 20,
};

fn scan(buf: &[u8]) -> Result<Option<usize>, DecodeError> {
    ReplyScanner::default().scan(buf, &LIMITS)
}

fn scan_steps(buf: &[u8], steps: &[usize]) -> Result<Option<usize>, DecodeError> {
    let mut scanner = ReplyScanner::default();
    for &step in steps {
        if let Some(len) = scanner.scan(&buf[..step], &LIMITS)? {
            return Ok(Some(len));
        }
        assert!(scanner.need() > 0);
    }
    Ok(None)
}

const REPLIES: [&[u8]; 16] = [
    b"+OK\r\n",
    b"+\r\n",
    b"-ERR no such key\r\n",
    b":-42\r\n",
    b":9223372036854775807\r\n",
    b":-9223372036854775808\r\n",
    b"$0\r\n\r\n",
    b"$12\r\nhello\r\nworld\r\n",
    b"$-1\r\n",
    b"*-1\r\n",
    b"*0\r\n",
    b"*2\r\n$1\r\na\r\n$-1\r\n",
    b"*3\r\n:1\r\n*2\r\n:2\r\n*2\r\n:3\r\n*1\r\n:4\r\n$1\r\nx\r\n",
    b"*2\r\n*0\r\n*0\r\n",
    b"*2\r\n*2\r\n$1\r\n1\r\n$1\r\n2\r\n*-1\r\n",
    b"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n",
];

#[test]
fn every_reply_ends_where_it_ends_however_it_is_cut() {
    for reply in REPLIES {
        let text = reply.escape_ascii();
        let mut more = reply.to_vec();
        more.extend_from_slice(b":7\r\n");
        assert_eq!(scan(&more), Ok(Some(reply.len())), "{text}");
        for a in 0..reply.len() {
            assert_eq!(scan(&reply[..a]), Ok(None), "{text} {a}");
            for b in a..reply.len() {
                let found = scan_steps(&more, &[a, b, reply.len()]);
                assert_eq!(found, Ok(Some(reply.len())), "{text} {a} {b}");
            }
        }
    }
}

#[test]
fn one_scanner_serves_one_reply_after_the_other() {
    let mut scanner = ReplyScanner::default();
    let stream: Vec<u8> = REPLIES.concat();
    let mut at = 0;
    for reply in REPLIES {
        for end in at..at + reply.len() {
            assert_eq!(scanner.scan(&stream[at..end], &LIMITS), Ok(None));
        }
        assert_eq!(scanner.scan(&stream[at..], &LIMITS), Ok(Some(reply.len())));
        at += reply.len();
    }
}

#[test]
fn what_is_no_reply_is_refused() {
    let cases: [(&[u8], Kind); 14] = [
        (b"x", Kind::ReplyType(b'x')),
        (b"%1\r\n", Kind::ReplyType(b'%')),
        (b":12a\r\n", Kind::ReplyLine),
        (b":\r\n", Kind::ReplyLine),
        (b":9223372036854775808\r\n", Kind::ReplyLine),
        (b":10000000000000000000\r\n", Kind::ReplyLine),
        (b"$-2\r\n", Kind::BulkLength),
        (b"$1048577\r\n", Kind::BulkLength),
        (b"*-2\r\n", Kind::MultibulkLength),
        (b"*65537\r\n", Kind::MultibulkLength),
        (b"$1\r\nab", Kind::BulkEnd),
        (b"+a\nb", Kind::ReplyLine),
        (b"+a\rb", Kind::ReplyLine),
        (b"*2\r\n$1\r\na\r\n_\r\n", Kind::ReplyType(b'_')),
    ];
    for (buf, kind) in cases {
        assert_eq!(scan(buf).map_err(|e| e.kind), Err(kind), "{}", buf.escape_ascii());
        let steps: Vec<usize> = (0..=buf.len()).collect();
        assert_eq!(scan_steps(buf, &steps), scan(buf), "{}", buf.escape_ascii());
    }
}

#[test]
fn the_limits_of_line_depth_and_size_hold() {
    let mut line = vec![b'a'; 1026];
    line[0] = b'+';
    assert_eq!(scan(&line).unwrap_err().kind, Kind::ReplyLine);
    let nested = |depth: usize| [&b"*1\r\n".repeat(depth)[..], b":1\r\n"].concat();
    assert!(scan(&nested(8)).unwrap().is_some());
    let stacked = |depth: usize| b"*2\r\n".repeat(depth);
    assert_eq!(scan(&stacked(8)), Ok(None));
    assert_eq!(scan(&stacked(9)).unwrap_err().kind, Kind::TooDeep);
    let mut big = Vec::new();
    encode::array(&mut big, 3);
    for _ in 0..3 {
        encode::bulk(&mut big, &vec![b'v'; 1 << 20]);
    }
    assert_eq!(scan(&big).unwrap_err().kind, Kind::FrameTooBig);
}

#[test]
fn replies_are_read() {
    assert!(is_error(b"-ERR\r\n") && !is_error(b"+OK\r\n") && !is_error(b""));
    assert!(is_null(b"$-1\r\n") && is_null(b"*-1\r\n") && !is_null(b"$0\r\n\r\n"));
    assert!(is_ok(b"+OK\r\n") && !is_ok(b"+PONG\r\n"));
    assert_eq!(parse_int(b":-9223372036854775808\r\n"), Some(i64::MIN));
    assert_eq!(parse_int(b":1\r\n"), Some(1));
    assert_eq!(parse_int(b"$1\r\n1\r\n"), None);
    assert_eq!(parse_int(b""), None);
    assert_eq!(text(b"$3\r\nabc\r\n"), Some(&b"abc"[..]));
    assert_eq!(text(b"+abc\r\n"), Some(&b"abc"[..]));
    assert_eq!(text(b"$-1\r\n"), None);
    assert_eq!(text(b":1\r\n"), None);
}

#[test]
fn elements_are_slices_of_the_reply() {
    let reply = b"*4\r\n:1\r\n*2\r\n+a\r\n*1\r\n$-1\r\n$-1\r\n$1\r\nx\r\n";
    let found: Vec<&[u8]> = elements(reply).collect();
    assert_eq!(found, [&b":1\r\n"[..], b"*2\r\n+a\r\n*1\r\n$-1\r\n", b"$-1\r\n", b"$1\r\nx\r\n"]);
    assert_eq!(elements(reply).left(), 4);
    assert_eq!(elements(b"*-1\r\n").count(), 0);
    assert_eq!(elements(b"+OK\r\n").count(), 0);
    assert_eq!(elements(b"").count(), 0);
}

/// Any reply of limited depth.
fn reply() -> impl Strategy<Value = Vec<u8>> {
    let leaf = prop_oneof![
        any::<i64>().prop_map(|n| encoded(|o| encode::int(o, n))),
        "[a-z ]{0,12}".prop_map(|t| encoded(|o| encode::simple(o, t.as_bytes()))),
        "ERR [a-z ]{0,12}".prop_map(|t| encoded(|o| encode::error(o, t.as_bytes()))),
        prop::collection::vec(any::<u8>(), 0..30).prop_map(|b| encoded(|o| encode::bulk(o, &b))),
        Just(encoded(encode::null_bulk)),
        Just(encoded(encode::null_array)),
    ];
    leaf.prop_recursive(5, 40, 6, |inner| {
        prop::collection::vec(inner, 0..6).prop_map(|items| {
            let mut out = encoded(|o| encode::array(o, items.len()));
            out.extend(items.concat());
            out
        })
    })
}

fn encoded(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    out
}

proptest! {
    #[test]
    fn replies_are_found_whole(
        first in reply(),
        second in reply(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let stream = [first.as_slice(), &second].concat();
        let mut steps: Vec<usize> = cuts.iter().map(|c| c.index(first.len())).collect();
        steps.sort_unstable();
        steps.push(stream.len());
        prop_assert_eq!(scan_steps(&stream, &steps), Ok(Some(first.len())));
        let joined: Vec<u8> = elements(&first).flatten().copied().collect();
        prop_assert!(first.ends_with(&joined));
    }

    #[test]
    fn any_bytes_give_an_answer_that_no_cut_changes(
        bytes in prop::collection::vec(
            prop::sample::select(b"*$+-:0123\r\nab".to_vec()), 0..40,
        ),
        cut in any::<prop::sample::Index>(),
    ) {
        let cut = cut.index(bytes.len() + 1);
        prop_assert_eq!(scan_steps(&bytes, &[cut, bytes.len()]), scan(&bytes));
    }
}
