//! Recorded frames, receiver probes, every split point, round trips.

use proptest::prelude::*;
use serde_json::Value;

use super::header::{Header, HeaderDecoder, HeaderError, HeaderLimits, put_header};
use super::{Ext, MsgType, Role, ext::EXT_BYTES_MAX};
use crate::stamp::Stamp;

/// The recorded frames of C nodes.
pub(crate) fn vectors() -> Value {
    serde_json::from_str(include_str!("../../../tests/vectors/dnode-frames.json")).unwrap()
}

/// Bytes of a hexadecimal string.
pub(crate) fn unhex(text: &str) -> Vec<u8> {
    let digit = |b: u8| (b as char).to_digit(16).unwrap() as u8;
    text.as_bytes().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

fn hex_field(value: &Value, name: &str) -> Vec<u8> {
    unhex(value[name].as_str().unwrap())
}

fn decode(buf: &[u8]) -> Option<Header> {
    HeaderDecoder::default().decode(buf, &HeaderLimits::default()).unwrap()
}

/// Feeds `stream` in pieces of `step` bytes to a receiver that finds the ends of bodies with
/// `body_len`, and returns the headers with their bodies.
fn receive(
    stream: &[u8],
    step: usize,
    body_len: impl Fn(&Header, &[u8]) -> Option<usize>,
) -> Vec<(Header, Vec<u8>)> {
    let (mut frames, mut buf, mut open) = (Vec::new(), Vec::new(), None);
    let (mut decoder, limits) = (HeaderDecoder::default(), HeaderLimits::default());
    for piece in stream.chunks(step) {
        buf.extend_from_slice(piece);
        loop {
            match open {
                None => match decoder.decode(&buf, &limits).unwrap() {
                    Some(header) => {
                        open = Some(header);
                        buf.drain(..header.len);
                    }
                    None => {
                        buf.drain(..decoder.take_junk());
                        assert!(buf.len() <= 512, "junk is not kept");
                        break;
                    }
                },
                Some(header) => match body_len(&header, &buf) {
                    Some(len) => {
                        frames.push((header, buf.drain(..len).collect()));
                        open = None;
                    }
                    None => break,
                },
            }
        }
    }
    frames
}

/// The body ends after the announced bytes.
fn by_plen(header: &Header, buf: &[u8]) -> Option<usize> {
    (buf.len() as u64 >= header.plen).then_some(header.plen as usize)
}

/// Enough RESP to find the end of the recorded requests and replies.
fn by_resp(header: &Header, buf: &[u8]) -> Option<usize> {
    if header.plen_binds() {
        return by_plen(header, buf);
    }
    let (mut at, mut todo) = (0, 1i64);
    while todo > 0 {
        let line = memchr::memmem::find(buf.get(at..)?, b"\r\n")?;
        let number = || std::str::from_utf8(&buf[at + 1..at + line]).unwrap().parse::<i64>();
        todo -= 1;
        let payload = match buf[at] {
            b'*' => {
                todo += number().unwrap().max(0);
                0
            }
            b'$' if buf[at + 1] != b'-' => number().unwrap() as usize + 2,
            _ => 0,
        };
        at += line + 2 + payload;
    }
    (buf.len() >= at).then_some(at)
}

#[test]
fn recorded_headers_decode_and_are_written_byte_for_byte() {
    let vectors = vectors();
    let mut seen = 0;
    for frame in vectors["frames"].as_array().unwrap() {
        let name = frame["name"].as_str().unwrap();
        let bytes = hex_field(frame, "hex");
        if frame["stream"] == true {
            continue;
        }
        let header = decode(&bytes).unwrap_or_else(|| panic!("{name}: no header"));
        let want = &frame["header"];
        let field = |key: &str| want[key].as_u64().unwrap();
        assert_eq!(header.id, field("msg_id"), "{name}");
        assert_eq!(u64::from(header.kind), field("type"), "{name}");
        assert_eq!(u64::from(header.flags), field("flags"), "{name}");
        assert_eq!(u64::from(header.version), field("version"), "{name}");
        assert_eq!(u64::from(header.same_dc), field("same_dc"), "{name}");
        assert_eq!(header.data.len() as u64, field("data_len"), "{name}");
        assert_eq!(header.plen, field("payload_len"), "{name}");
        assert_eq!(header.skipped, 0, "{name}");
        let body = &bytes[header.len..];
        assert_eq!(body.len() as u64, frame["actual_payload_len"].as_u64().unwrap(), "{name}");
        if let Some(text) = frame["payload_ascii"].as_str() {
            assert_eq!(body, text.as_bytes(), "{name}");
        }
        let mut out = Vec::new();
        let data = header.data.of(&bytes);
        put_header(
            &mut out,
            header.id,
            header.kind,
            header.flags,
            header.version,
            header.same_dc,
            data,
            header.plen,
        );
        assert_eq!(out, bytes[..header.len], "{name}");
        seen += 1;
    }
    assert_eq!(seen, 36);
}

#[test]
fn recorded_frames_survive_every_cut() {
    let vectors = vectors();
    let frames = vectors["frames"].as_array().unwrap();
    let small = |f: &&Value| f["stream"] != true && f["hex"].as_str().unwrap().len() < 2000;
    let bytes: Vec<_> = frames.iter().filter(small).map(|f| hex_field(f, "hex")).collect();
    let stream = bytes.concat();
    let whole = receive(&stream, stream.len(), by_resp);
    assert_eq!(whole.len(), bytes.len());
    for (frame, (header, body)) in bytes.iter().zip(&whole) {
        assert_eq!(frame[..header.len], frame[..frame.len() - body.len()]);
        assert_eq!(frame[header.len..], body[..]);
    }
    for step in 1..200 {
        assert_eq!(receive(&stream, step, by_resp), whole, "pieces of {step}");
    }
    for frame in &bytes {
        let header = decode(frame).unwrap();
        for cut in 0..frame.len() {
            let mut decoder = HeaderDecoder::default();
            let first = decoder.decode(&frame[..cut], &HeaderLimits::default()).unwrap();
            if cut < header.len {
                assert_eq!(first, None);
                assert_eq!(decoder.take_junk(), 0);
                assert_eq!(decoder.decode(frame, &HeaderLimits::default()), Ok(Some(header)));
            } else {
                assert_eq!(first, Some(header));
            }
        }
    }
}

#[test]
fn a_payload_without_its_header_is_skipped_to_the_next_magic() {
    let vectors = vectors();
    let frames = vectors["frames"].as_array().unwrap();
    let stream = frames.iter().find(|f| f["stream"] == true).unwrap();
    let stream = hex_field(stream, "hex");
    for step in [1, 5, 50, stream.len()] {
        let frames = receive(&stream, step, by_resp);
        let ids: Vec<_> = frames.iter().map(|(h, body)| (h.id, body.len())).collect();
        assert_eq!(ids, [(0, 43), (8, 43)], "pieces of {step}");
    }
}

#[test]
fn probes_are_read_as_a_c_node_reads_them() {
    let vectors = vectors();
    for case in vectors["receiver_probes"]["cases"].as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        // A C node dies or closes on these; what torc does is the business of the connection.
        if ["empty-request-payload", "garbage-payload"].contains(&name) {
            continue;
        }
        let sent = unhex(&case["sent_hex"].as_str().unwrap().replace('|', ""));
        let answers = receive(&hex_field(case, "received_hex"), usize::MAX, by_resp);
        let expected: Vec<_> = answers.iter().map(|(h, _)| (h.id, h.same_dc)).collect();
        for step in [1, 3, 7, 20, 33, usize::MAX] {
            let served: Vec<_> = receive(&sent, step, by_resp)
                .into_iter()
                .filter(|(h, _)| matches!(h.msg_type(), MsgType::Req | MsgType::ReqForward))
                .map(|(h, _)| (h.id, h.same_dc))
                .collect();
            match name {
                // Where the reference wedges the connection, torc goes on.
                "type-0-with-resp-then-get" | "empty-gossip-payload-then-get" => {
                    assert_eq!(served, [(2, true)], "{name}");
                }
                _ => assert_eq!(served, expected, "{name}, pieces of {step}"),
            }
        }
    }
}

#[test]
fn junk_is_counted_and_given_back() {
    let mut frame = b"hello junk".to_vec();
    put_header(&mut frame, 7, 3, 0, 1, true, b"d", 4);
    let header = decode(&frame).unwrap();
    assert_eq!((header.id, header.skipped, header.len), (7, 10, frame.len()));

    let mut decoder = HeaderDecoder::default();
    let limits = HeaderLimits::default();
    let noise = vec![b'$'; 4096];
    assert_eq!(decoder.decode(&noise, &limits), Ok(None));
    let junk = decoder.take_junk();
    assert!((4096 - 16..4096).contains(&junk));
    let rest = [&noise[junk..], &frame].concat();
    let header = decoder.decode(&rest, &limits).unwrap().unwrap();
    assert_eq!((header.id, header.len), (7, rest.len()));
    assert_eq!(header.skipped, 4096 - junk + 10);
}

#[test]
fn a_magic_without_a_header_is_junk() {
    for bad in [
        "$2014$",
        "$2014$ x",
        "$2014$ 1 3 0 1 -1 *1 d *3\r\n",
        "$2014$ 99999999999999999999 3 0 1 1 *1 d *3\r\n",
        "$2014$ 000000000000000000000000000001 3 0 1 1 *1 d *3\r\n",
        "$2014$ 1 3 0 1 1 1 d *3\r\n",
        "$2014$ 1 3 0 1 1 *1 dd *3\r\n",
        "$2014$ 1 3 0 1 1 *1 d *3\n",
    ] {
        let mut frame = bad.as_bytes().to_vec();
        put_header(&mut frame, 2, 3, 0, 1, true, b"d", 4);
        let header = decode(&frame).unwrap_or_else(|| panic!("{bad:?}"));
        assert_eq!((header.id, header.skipped, header.len), (2, bad.len(), frame.len()));
    }
}

#[test]
fn limits_are_errors_with_the_offset() {
    let limits = HeaderLimits { data_max: 8, body_max: 100 };
    let decode = |text: &[u8]| HeaderDecoder::default().decode(text, &limits);
    let err = decode(b"$2014$ 1 3 0 1 1 *9 ").unwrap_err();
    assert_eq!(err, HeaderError::DataTooLong { at: 16, len: 9, max: 8 });
    let err = decode(b"$2014$ 1 7 0 1 1 *1 a *101\r\n").unwrap_err();
    assert_eq!(err, HeaderError::BodyTooLong { len: 101, max: 100 });
    assert!(decode(b"$2014$ 1 3 1 1 1 *1 d *101\r\n").is_err());
    assert!(decode(b"$2014$ 1 3 0 1 1 *1 d *101\r\n").unwrap().is_some(), "only a hint");
}

#[test]
fn odd_numbers_are_kept_as_c_keeps_them() {
    let header = decode(b"$2014$ 18446744073709551615 300 17 999 1 *6 a $ *b *0\r\n").unwrap();
    assert_eq!((header.id, header.kind, header.flags, header.version), (u64::MAX, 255, 1, 255));
    assert!(header.encrypted() && header.plen_binds());
    assert_eq!(header.msg_type(), MsgType::Other(255));
    for code in 0..=255 {
        assert_eq!(MsgType::from_code(code).code(), code);
    }
}

#[test]
fn extension_fields() {
    let parse = |text: &str| Ext::parse(text.as_bytes());
    assert!(parse("d").is_empty() && parse("a").is_empty() && parse("").is_empty());
    assert!(parse("d;").is_empty() && parse("hello").is_empty() && parse("d;s=;w=300").is_empty());
    let control = Ext { role: Some(Role::Control), wire: Some(1), ..Ext::default() };
    assert_eq!(parse("d;new=1;r=c;x;w=1"), control);
    assert_eq!(control.encode().as_slice(), b"d;r=c;w=1");
    let answer = Ext { stamp: Some(Stamp::new(17)), outrun: true, ..Ext::default() };
    assert_eq!(answer.encode().as_slice(), b"d;s=17;o=1");
    let full = Ext {
        stamp: Some(Stamp::new(u64::MAX)),
        outrun: true,
        role: Some(Role::Control),
        wire: Some(u8::MAX),
    };
    let mut out = full.encode().as_slice().to_vec();
    assert_eq!(Ext::parse(&out), full);
    out.resize(EXT_BYTES_MAX + 1, b';');
    assert!(Ext::parse(&out).is_empty(), "too long to be one of ours");
}

fn any_header() -> impl Strategy<Value = (u64, u8, u8, u8, bool, Vec<u8>, u64)> {
    let data = prop::collection::vec(any::<u8>(), 1..64);
    (any::<u64>(), any::<u8>(), 0u8..16, any::<u8>(), any::<bool>(), data, 0u64..1 << 29)
}

proptest! {
    #[test]
    fn headers_round_trip(
        (id, kind, flags, version, same_dc, data, plen) in any_header(),
        junk in prop::collection::vec(any::<u8>(), 0..40),
        step in 1usize..90,
    ) {
        prop_assume!(memchr::memmem::find(&junk, b"$2014$").is_none());
        prop_assume!(junk.last() != Some(&b' '));
        let mut frame = junk.clone();
        put_header(&mut frame, id, kind, flags, version, same_dc, &data, plen);
        let header = decode(&frame).unwrap();
        prop_assert_eq!(
            (header.id, header.kind, header.flags, header.version, header.same_dc, header.plen),
            (id, kind, flags, version, same_dc, plen)
        );
        prop_assert_eq!(header.data.of(&frame), &data[..]);
        prop_assert_eq!((header.len, header.skipped), (frame.len(), junk.len()));
        let pieces = receive(&frame, step, |_, _| Some(0));
        prop_assert_eq!(pieces.len(), 1);
        prop_assert_eq!(pieces[0].0.id, id);
    }

    #[test]
    fn noise_never_panics(noise in prop::collection::vec(any::<u8>(), 0..600), step in 1usize..99) {
        receive(&noise, step, |_, _| Some(0));
    }

    #[test]
    fn extension_round_trips(
        stamp in any::<Option<u64>>(), wire in any::<Option<u8>>(), control in any::<bool>(),
        outrun in any::<bool>(),
    ) {
        let (stamp, role) = (stamp.map(Stamp::new), control.then_some(Role::Control));
        let ext = Ext { stamp, outrun, role, wire };
        prop_assert_eq!(Ext::parse(ext.encode().as_slice()), ext);
    }
}
