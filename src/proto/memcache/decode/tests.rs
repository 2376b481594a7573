use super::*;
use proptest::prelude::*;

const LIMITS: McLimits =
    McLimits { get_line_bytes_max: 1 << 16, value_bytes_max: 1 << 20, words_max: 1000 };

/// What a stream of bytes was taken for: requests as their words and data, rejections as their
/// answer, passed-over bytes as nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Found {
    Request(Vec<Vec<u8>>, Option<Vec<u8>>),
    Rejected(String),
    Closed(McError),
}

/// Decodes a stream that arrives with the given ends of its pieces.
fn decode_steps(stream: &[u8], steps: &[usize]) -> Vec<Found> {
    let mut decoder = McDecoder::default();
    let mut spans = Vec::new();
    let mut found = Vec::new();
    let mut at = 0;
    for &end in steps {
        loop {
            match decoder.decode(&stream[at..end], &LIMITS, &mut spans) {
                Ok(None) => {
                    assert!(decoder.need() > 0);
                    break;
                }
                Ok(Some(McDecoded::Request(request))) => {
                    let buf = &stream[at..];
                    let words = spans.iter().map(|s| s.of(buf).to_vec()).collect();
                    let data = request.data.map(|data| data.of(buf).to_vec());
                    found.push(Found::Request(words, data));
                    at += request.len;
                }
                Ok(Some(McDecoded::Rejected { len, reply })) => {
                    found.push(Found::Rejected(String::from_utf8_lossy(reply).into_owned()));
                    at += len;
                }
                Ok(Some(McDecoded::Skipped { len })) => {
                    assert!(len > 0);
                    at += len;
                }
                Err(error) => {
                    found.push(Found::Closed(error));
                    return found;
                }
            }
        }
    }
    found
}

fn decode(stream: &[u8]) -> Vec<Found> {
    decode_steps(stream, &[stream.len()])
}

fn request(line: &str) -> Found {
    Found::Request(line.split(' ').map(|w| w.as_bytes().to_vec()).collect(), None)
}

fn rejected(text: &str) -> Found {
    Found::Rejected(format!("{text}\r\n"))
}

fn one(stream: &[u8]) -> McRequest {
    let mut spans = Vec::new();
    match McDecoder::default().decode(stream, &LIMITS, &mut spans) {
        Ok(Some(McDecoded::Request(request))) => request,
        other => panic!("{other:?}"),
    }
}

#[test]
fn requests_are_lines_and_data() {
    let stream = b"get a b\r\nset k 0 -1 3\r\nx\r\n\r\nms k 2 T5\r\nab\r\nmn\r\nincr a 1\n";
    assert_eq!(
        decode(stream),
        [
            request("get a b"),
            Found::Request(
                b"set k 0 -1 3".split(|b| *b == b' ').map(<[u8]>::to_vec).collect(),
                Some(b"x\r\n".to_vec())
            ),
            Found::Request(
                b"ms k 2 T5".split(|b| *b == b' ').map(<[u8]>::to_vec).collect(),
                Some(b"ab".to_vec())
            ),
            request("mn"),
            request("incr a 1"),
        ]
    );
}

#[test]
fn silence_and_plainness_are_told() {
    assert!(one(b"set k 0 0 1 noreply\r\na\r\n").noreply);
    assert!(!one(b"delete noreply\r\n").noreply);
    assert!(one(b"delete k noreply\r\n").noreply);
    assert!(one(b"mg k v q\r\n").quiet);
    assert!(!one(b"mg q v\r\n").quiet);
    assert!(one(b"get k\r\n").plain);
    for line in [&b"get k\n"[..], b"get  k\r\n", b" get k\r\n", b"get k \r\n", b"get k\0x\r\n"] {
        assert!(!one(line).plain, "{}", line.escape_ascii());
    }
}

#[test]
fn what_memcached_refuses_is_refused_in_its_words() {
    let long = "k".repeat(251);
    for (line, text) in [
        ("", "ERROR"),
        ("x", "ERROR"),
        ("nope a", "ERROR"),
        ("GET a", "ERROR"),
        ("get", "ERROR"),
        ("get ", "ERROR"),
        ("set k 0 0", "ERROR"),
        ("set k 0 0 1 2 3 4", "ERROR"),
        ("set k x 0 1", "CLIENT_ERROR bad command line format"),
        ("set k 0 0 -1", "CLIENT_ERROR bad command line format"),
        ("cas k 0 0 1 x", "CLIENT_ERROR bad command line format"),
        ("incr k x", "CLIENT_ERROR invalid numeric delta argument"),
        ("touch k x", "CLIENT_ERROR invalid exptime argument"),
        ("gat x k", "CLIENT_ERROR invalid exptime argument"),
        ("delete k 5", "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]"),
        ("verbosity x", "CLIENT_ERROR bad command line format"),
        ("flush_all x", "CLIENT_ERROR invalid exptime argument"),
        ("ms k", "CLIENT_ERROR bad command line format"),
        ("me", "CLIENT_ERROR bad command line format"),
        (&format!("get {long}"), "CLIENT_ERROR bad command line format"),
        (&format!("set {long} 0 0 1"), "CLIENT_ERROR bad command line format"),
    ] {
        let stream = format!("{line}\r\nget a\r\n");
        assert_eq!(decode(stream.as_bytes()), [rejected(text), request("get a")], "{line}");
    }
    let silent = decode(b"incr k x noreply\r\nset k 0 0 noreply\r\n");
    assert_eq!(silent, [Found::Rejected(String::new()), Found::Rejected(String::new())]);
}

#[test]
fn a_damaged_block_costs_its_request_only() {
    let stream = b"set k 0 0 3\r\nabcdef\r\nget a\r\n";
    let chunk = rejected("CLIENT_ERROR bad data chunk");
    assert_eq!(decode(stream), [chunk, rejected("ERROR"), request("get a")]);
}

#[test]
fn a_value_that_is_too_large_is_passed_over_unbuffered() {
    let mut stream = b"set k 0 0 1048577\r\n".to_vec();
    stream.resize(stream.len() + 1_048_577, b'v');
    stream.extend_from_slice(b"\r\nget a\r\n");
    let large = rejected("SERVER_ERROR object too large for cache");
    assert_eq!(decode(&stream), [large.clone(), request("get a")]);
    let steps: Vec<usize> = (0..stream.len()).step_by(1000).chain([stream.len()]).collect();
    assert_eq!(decode_steps(&stream, &steps), [large, request("get a")]);
}

#[test]
fn the_connection_ends_where_no_line_can_be_found() {
    assert_eq!(decode(&[0x80, 0, 0]), [Found::Closed(McError::Binary)]);
    assert_eq!(decode(b"GET / HTTP/1.1\r\n"), [Found::Closed(McError::Http)]);
    let long = vec![b'x'; LINE_BYTES_MAX + 1];
    assert_eq!(decode(&long), [Found::Closed(McError::LineTooLong)]);
    assert_eq!(decode(&long[..LINE_BYTES_MAX]), []);
    let mut get = b"get".to_vec();
    (0..900).for_each(|i| get.extend_from_slice(format!(" key:{i}").as_bytes()));
    get.extend_from_slice(b"\r\n");
    assert!(get.len() > LINE_BYTES_MAX);
    assert!(matches!(&decode(&get)[..], [Found::Request(words, None)] if words.len() == 901));
    let steps: Vec<usize> = (0..=get.len()).collect();
    assert_eq!(decode_steps(&get, &steps), decode(&get));
}

#[test]
fn every_split_gives_the_same_requests() {
    let stream = b"get a  b\r\nset k 0 0 5 noreply\r\nab\r\nc\r\nbad\nset k 0 0 1\r\nabc\r\nmn\r\n";
    let whole = decode(stream);
    assert_eq!(whole.len(), 6);
    for a in 0..stream.len() {
        for b in a..stream.len() {
            assert_eq!(decode_steps(stream, &[a, b, stream.len()]), whole, "{a} {b}");
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_give_an_answer_that_no_cut_changes(
        words in prop::collection::vec(
            prop::sample::select(vec![
                "get", "set", "ms", "delete", "incr", " ", "k", "0", "3", "-1", "noreply", "q",
                "\r\n", "\n", "\0", "abc", "T5",
            ]),
            0..40,
        ),
        cut in any::<prop::sample::Index>(),
    ) {
        let stream: Vec<u8> = words.join(" ").into_bytes();
        let cut = cut.index(stream.len() + 1);
        prop_assert_eq!(decode_steps(&stream, &[cut, stream.len()]), decode(&stream));
    }
}
