use super::*;
use crate::proto::resp::encode;
use proptest::prelude::*;

const LIMITS: RequestLimits = RequestLimits {
    bulk_bytes_max: 1 << 20,
    elements_max: 1 << 16,
    inline_bytes_max: 1 << 10,
    request_bytes_max: 4 << 20,
};

/// Length and arguments.
type Found = Option<(usize, Vec<Vec<u8>>)>;

/// Decodes what is there; `Ok(None)` when more is needed.
fn decode(buf: &[u8]) -> Result<Found, DecodeError> {
    decode_steps(buf, &[buf.len()])
}

/// Shows the decoder the first `steps[0]` bytes, then the first `steps[1]`, and so on.
fn decode_steps(buf: &[u8], steps: &[usize]) -> Result<Found, DecodeError> {
    let mut decoder = RequestDecoder::default();
    let mut spans = vec![Span::new(0, 1)];
    for &step in steps {
        if let Some(found) = decoder.decode(&buf[..step], &LIMITS, &mut spans)? {
            let args = spans.iter().map(|s| s.of(buf).to_vec()).collect();
            return Ok(Some((found.len, args)));
        }
        assert!(decoder.need() > 0);
    }
    Ok(None)
}

fn args_of(buf: &[u8]) -> Vec<Vec<u8>> {
    decode(buf).unwrap().unwrap().1
}

fn error_of(buf: &[u8]) -> String {
    decode(buf).unwrap_err().to_string()
}

#[test]
fn a_request_is_found_with_its_arguments() {
    let set = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$0\r\n\r\n";
    let mut two = set.to_vec();
    two.extend_from_slice(b"*1\r\n");
    let (len, args) = decode(&two).unwrap().unwrap();
    assert_eq!(len, set.len());
    assert_eq!(args, [&b"SET"[..], b"k", b""]);
    assert_eq!(args_of(b"*0\r\n").len(), 0);
    assert_eq!(args_of(b"*-1\r\n").len(), 0);
    assert_eq!(args_of(b"*-10\r\n").len(), 0);
}

#[test]
fn binary_bytes_and_line_ends_are_part_of_arguments() {
    assert_eq!(args_of(b"*2\r\n$4\r\n\r\n\r\n\r\n$2\r\n\0\xff\r\n"), [&b"\r\n\r\n"[..], b"\0\xff"]);
}

#[test]
fn an_inline_request_is_a_line() {
    let mut decoder = RequestDecoder::default();
    let mut spans = Vec::new();
    for (buf, len) in [(&b"ping\nx"[..], 5), (b"\r\n", 2), (b"\n", 1), (b"SET a 1\r\n*1", 9)] {
        let found = decoder.decode(buf, &LIMITS, &mut spans).unwrap();
        assert_eq!(found, Some(Decoded { len, inline: true }));
        assert!(spans.is_empty());
    }
    assert_eq!(decoder.decode(b"pin", &LIMITS, &mut spans), Ok(None));
    let found = decoder.decode(b"ping\r\n", &LIMITS, &mut spans).unwrap();
    assert_eq!(found, Some(Decoded { len: 6, inline: true }));
}

#[test]
fn broken_framing_is_told_in_the_words_of_redis() {
    let cases: [(&[u8], &str); 13] = [
        (b"*x\r\n", "Protocol error: invalid multibulk length"),
        (b"*\r\n", "Protocol error: invalid multibulk length"),
        (b"*01\r\n", "Protocol error: invalid multibulk length"),
        (b"*3\rx", "Protocol error: invalid multibulk length"),
        (b"*3\n", "Protocol error: invalid multibulk length"),
        (b"*99999999999999999999", "Protocol error: invalid multibulk length"),
        (b"*65537\r\n", "Protocol error: invalid multibulk length"),
        (b"*1\r\nGET\r\n", "Protocol error: expected '$', got 'G'"),
        (b"*1\r\n\0", "Protocol error: expected '$', got '?'"),
        (b"*1\r\n$-1\r\n", "Protocol error: invalid bulk length"),
        (b"*1\r\n$1048577\r\n", "Protocol error: invalid bulk length"),
        (b"*1\r\n$1a", "Protocol error: invalid bulk length"),
        (b"*1\r\n$1\r\nab", "Protocol error: expected CRLF after a bulk string"),
    ];
    for (buf, text) in cases {
        assert_eq!(error_of(buf), text, "{}", buf.escape_ascii());
    }
    assert_eq!(decode(b"*2\r\n$1\r\na\r\n+").unwrap_err().offset, 11);
}

#[test]
fn limits_hold_before_the_bytes_arrive() {
    let mut spans = Vec::new();
    let limits = RequestLimits { request_bytes_max: 20, ..LIMITS };
    let fits = b"*1\r\n$10\r\n0123456789";
    assert!(RequestDecoder::default().decode(&fits[..9], &limits, &mut spans).is_err());
    let limits = RequestLimits { request_bytes_max: 21, ..LIMITS };
    assert_eq!(RequestDecoder::default().decode(fits, &limits, &mut spans), Ok(None));
    let long = [b'a'; 1025];
    assert_eq!(error_of(&long), "Protocol error: too big inline request");
    assert_eq!(decode(&long[..1024]), Ok(None));
    let mut ended = long.to_vec();
    ended.push(b'\n');
    assert_eq!(error_of(&ended), "Protocol error: too big inline request");
}

#[test]
fn need_is_a_lower_bound_and_memory_follows_the_bytes() {
    let mut decoder = RequestDecoder::default();
    let mut spans = Vec::new();
    assert_eq!(decoder.decode(b"*3\r\n$3\r\nSET\r\n$100\r\nab", &LIMITS, &mut spans), Ok(None));
    assert_eq!(decoder.need(), 98 + 2 + 6);
    let mut decoder = RequestDecoder::default();
    assert_eq!(decoder.decode(b"*65536\r\n", &LIMITS, &mut spans), Ok(None));
    assert_eq!(decoder.need(), 6 * 65536);
    assert!(decoder.partial.as_ref().unwrap().spans.capacity() < 16);
}

#[test]
fn an_idle_decoder_is_small() {
    assert!(size_of::<RequestDecoder>() <= 32);
}

#[test]
fn every_split_gives_the_same_request() {
    let requests: [&[u8]; 5] = [
        b"*3\r\n$3\r\nSET\r\n$5\r\nkey:1\r\n$12\r\nhello\r\nworld\r\n",
        b"*1\r\n$4\r\nPING\r\n",
        b"*0\r\n",
        b"set k \"a b\"\r\n",
        b"*2\r\n$0\r\n\r\n$0\r\n\r\n",
    ];
    for request in requests {
        let whole = decode(request).unwrap();
        assert!(whole.is_some());
        for a in 0..request.len() {
            assert_eq!(decode_steps(request, &[a]), Ok(None), "{a}");
            for b in a..request.len() {
                assert_eq!(decode_steps(request, &[a, b, request.len()]).unwrap(), whole);
            }
        }
    }
}

#[test]
fn errors_do_not_depend_on_how_the_bytes_were_cut() {
    for buf in [&b"*3\r\n$3\r\nSET\r\nx\r\n"[..], b"*1x", b"*1\r\n$2\r\nabc\r\n", b"*-x\r\n"] {
        let steps: Vec<usize> = (0..=buf.len()).collect();
        assert_eq!(decode_steps(buf, &steps), decode(buf), "{}", buf.escape_ascii());
    }
}

#[test]
fn many_elements_byte_by_byte_are_not_rescanned() {
    let mut request = Vec::new();
    encode::command(&mut request, vec![&b"abc"[..]; 60_000]);
    let mut decoder = RequestDecoder::default();
    let mut spans = Vec::new();
    for end in 0..request.len() {
        assert_eq!(decoder.decode(&request[..end], &LIMITS, &mut spans), Ok(None));
    }
    let found = decoder.decode(&request, &LIMITS, &mut spans).unwrap().unwrap();
    assert_eq!((found.len, spans.len()), (request.len(), 60_000));
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        args in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..20),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let mut request = Vec::new();
        encode::command(&mut request, args.iter().map(Vec::as_slice).collect::<Vec<_>>());
        let mut steps: Vec<usize> = cuts.iter().map(|c| c.index(request.len())).collect();
        steps.sort_unstable();
        steps.push(request.len());
        let found = decode_steps(&request, &steps).unwrap();
        prop_assert_eq!(found, Some((request.len(), args)));
    }

    #[test]
    fn any_bytes_give_an_answer_that_no_cut_changes(
        bytes in prop::collection::vec(
            prop::sample::select(b"*$+-:0123\r\n ab\"'".to_vec()), 0..40,
        ),
        cut in any::<prop::sample::Index>(),
    ) {
        let whole = decode(&bytes);
        let cut = cut.index(bytes.len() + 1);
        let by_parts = decode_steps(&bytes, &[cut, bytes.len()]);
        prop_assert_eq!(whole, by_parts);
    }
}
