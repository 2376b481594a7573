//! Any bytes as a stream of memcache requests, and as a reply: an answer or an error, the same
//! however they are cut, and everything that is made of it stands.

use torc::proto::args::Args;
use torc::proto::memcache::decode::{McDecoded, McDecoder, McError, McLimits, McRequest};
use torc::proto::memcache::reply::{McReplyLimits, McReplyScanner, is_wanted};
use torc::proto::memcache::{forward, ids, values};

const LIMITS: McLimits =
    McLimits { get_line_bytes_max: 1 << 14, value_bytes_max: 1 << 10, words_max: 1 << 8 };

/// Runs one input: a byte that says how long the pieces are, and the bytes.
pub(crate) fn run(input: &[u8]) {
    let [step, bytes @ ..] = input else { return };
    let step = usize::from(*step).max(1);
    assert_eq!(requests(bytes.len().max(1), bytes), requests(step, bytes));
    reply(step, bytes);
}

/// What a stream was taken for, when it arrives in pieces of `step` bytes.
fn requests(step: usize, stream: &[u8]) -> (Vec<Vec<u8>>, Option<McError>) {
    let mut decoder = McDecoder::default();
    let (mut spans, mut found, mut at) = (Vec::new(), Vec::new(), 0);
    for end in (0..stream.len()).step_by(step).chain([stream.len()]) {
        loop {
            match decoder.decode(&stream[at..end], &LIMITS, &mut spans) {
                Ok(None) => break,
                Ok(Some(McDecoded::Skipped { len })) => at += len,
                Ok(Some(McDecoded::Rejected { len, reply })) => {
                    found.push(reply.to_vec());
                    at += len;
                }
                Ok(Some(McDecoded::Request(request))) => {
                    let buf = &stream[at..at + request.len];
                    found.push(forwarded(&request, &Args::new(buf, &spans), stream));
                    at += request.len;
                }
                Err(error) => return (found, Some(error)),
            }
        }
    }
    (found, None)
}

/// The canonical form; it must be a request again, and the same one.
fn forwarded(request: &McRequest, args: &Args<'_>, reply: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    forward::write(request, args, None, &mut frame);
    if request.plain {
        assert_eq!(frame, args.raw());
    }
    let mut spans = Vec::new();
    match McDecoder::default().decode(&frame, &LIMITS, &mut spans) {
        Ok(Some(McDecoded::Request(again))) => {
            assert_eq!((again.len, again.plain), (frame.len(), true));
            assert_eq!(again.command.name, request.command.name);
        }
        other => panic!("{other:?}"),
    }
    let mut out = Vec::new();
    forward::write(request, args, Some(1_700_000_000), &mut out);
    forward::outcome(request, args, reply, 1_700_000_000, &mut out);
    forward::write_for(request, args, ids::Mark::new(7), &mut out);
    let mut scratch = Vec::new();
    let _ = forward::ring_key(request, args, &mut scratch);
    let _ = (request.command.compare_of(args), request.command.effect_of(args));
    let _ = (request.command.toward_c_of(args), is_wanted(request, reply));
    frame
}

fn reply(step: usize, bytes: &[u8]) {
    let limits = McReplyLimits::default();
    let whole = McReplyScanner::default().scan(bytes, &limits);
    let mut scanner = McReplyScanner::default();
    let mut ends = (0..bytes.len()).step_by(step).chain([bytes.len()]);
    let parts = ends.find_map(|end| scanner.scan(&bytes[..end], &limits).transpose()).transpose();
    assert_eq!(whole, parts);
    let mut out = Vec::new();
    ids::marked(bytes, bytes, ids::Mark::new(0), &mut out);
    let _ = values::join([(&b"k"[..], 0), (b"k", 1)], &[bytes, b"END\r\n"], &mut out);
}
