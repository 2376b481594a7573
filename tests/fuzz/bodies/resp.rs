//! Any bytes as a request, as an inline line, and as a reply: an answer or an error, the same
//! however they are cut, and everything that is made of it stands.

use torc::proto::args::{Args, Span};
use torc::proto::resp::decode::{RequestDecoder, RequestLimits};
use torc::proto::resp::reply::{ReplyLimits, ReplyScanner, elements};
use torc::proto::resp::shape::Shape;
use torc::proto::resp::table::{self, ModuleCommands};
use torc::proto::resp::{inline, introspect, lift, rewrite};

const REQUEST: RequestLimits = RequestLimits {
    bulk_bytes_max: 1 << 16,
    elements_max: 1 << 10,
    inline_bytes_max: 1 << 10,
    request_bytes_max: 1 << 20,
};

const SHAPES: [Shape; 6] =
    [Shape::Same, Shape::Map, Shape::ScorePairs, Shape::Streams, Shape::Stats, Shape::Commands];

/// Runs one input: a byte that says how long the pieces are, and the bytes.
pub(crate) fn run(input: &[u8]) {
    let [step, bytes @ ..] = input else { return };
    let step = usize::from(*step).max(1);
    request(step, bytes);
    reply(step, bytes);
}

fn request(step: usize, bytes: &[u8]) {
    let (mut spans, mut by_parts) = (Vec::new(), Vec::new());
    let whole = RequestDecoder::default().decode(bytes, &REQUEST, &mut spans);
    let mut decoder = RequestDecoder::default();
    let mut ends = (0..bytes.len()).step_by(step).chain([bytes.len()]);
    let parts = ends
        .find_map(|end| decoder.decode(&bytes[..end], &REQUEST, &mut by_parts).transpose())
        .transpose();
    assert_eq!(whole, parts);
    let Ok(Some(found)) = whole else { return };
    if found.inline {
        let mut frame = Vec::new();
        if inline::rewrite(&bytes[..found.len], &mut frame, &mut spans).is_ok() {
            command(&frame, &spans, bytes);
        }
    } else {
        assert_eq!(spans, by_parts);
        command(&bytes[..found.len], &spans, bytes);
    }
}

/// All that the dispatcher may ask about a request.
fn command(frame: &[u8], spans: &[Span], reply: &[u8]) {
    let args = Args::new(frame, spans);
    let modules = ModuleCommands::default();
    let mut out = Vec::new();
    if args.is_empty() {
        return;
    }
    let spec = match table::find(&args, &modules) {
        Ok(spec) => spec,
        Err(rejection) => return rejection.write(&args, &mut out),
    };
    assert!(spec.keys_of(&args).all(|key| key > 0 && key < args.len()));
    let _ = (spec.class_of(&args), spec.routing_of(&args), spec.shape_of(&args));
    let _ = (spec.toward_c_of(&args), spec.patterns_of(&args).count());
    introspect::answer(spec, &args, &modules, &mut out);
    rewrite::absolute(spec, &args, 1_700_000_000_000, &mut out);
    rewrite::outcome(spec, &args, reply, 1_700_000_000_000, &mut out);
    rewrite::renamed(spec, &args, &mut out);
    rewrite::in_script(spec, &args, &mut out);
}

fn reply(step: usize, bytes: &[u8]) {
    let limits = ReplyLimits::default();
    let whole = ReplyScanner::default().scan(bytes, &limits);
    let mut scanner = ReplyScanner::default();
    let mut ends = (0..bytes.len()).step_by(step).chain([bytes.len()]);
    let parts = ends.find_map(|end| scanner.scan(&bytes[..end], &limits).transpose()).transpose();
    assert_eq!(whole, parts);
    let Ok(Some(len)) = whole else { return };
    let reply = &bytes[..len];
    let joined: usize = elements(reply).map(<[u8]>::len).sum();
    assert!(joined <= reply.len());
    let mut out = Vec::new();
    for shape in SHAPES {
        out.clear();
        lift::lift(shape, reply, &mut out);
        assert!(!lift::is_unchanged(shape, reply) || out == reply);
    }
}
