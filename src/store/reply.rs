//! RESP2 replies, appended to an output queue.

use crate::proto::outbuf::OutBuf;

use super::blob::Blob;
use super::error::CommandError;
use super::format::push_double;

/// `:n`
pub(super) fn int(out: &mut OutBuf, n: i64) {
    header(out.tail_mut(), b':', n);
}

/// `:n` for a count.
pub(super) fn count(out: &mut OutBuf, n: usize) {
    header(out.tail_mut(), b':', n as i64);
}

/// `*n`; `n` replies follow.
pub(super) fn array(out: &mut OutBuf, n: usize) {
    header(out.tail_mut(), b'*', n as i64);
}

/// A bulk string.
pub(super) fn bulk(out: &mut OutBuf, data: &[u8]) {
    let tail = out.tail_mut();
    header(tail, b'$', data.len() as i64);
    tail.extend_from_slice(data);
    tail.extend_from_slice(b"\r\n");
}

/// A bulk string that is shared with the queue when it is large.
pub(super) fn blob(out: &mut OutBuf, blob: &Blob) {
    match blob {
        Blob::Shared(data) => {
            header(out.tail_mut(), b'$', data.len() as i64);
            out.put_shared(data.as_ref().clone());
            out.tail_mut().extend_from_slice(b"\r\n");
        }
        Blob::Inline { .. } | Blob::Heap(_) | Blob::Growing(_) => bulk(out, blob.as_slice()),
    }
}

/// A bulk string or nil.
pub(super) fn blob_or_nil(out: &mut OutBuf, found: Option<&Blob>) {
    match found {
        Some(found) => blob(out, found),
        None => nil(out),
    }
}

/// A bulk string with the text of a double.
pub(super) fn double(out: &mut OutBuf, x: f64) {
    let mut text = Vec::with_capacity(24);
    push_double(&mut text, x);
    bulk(out, &text);
}

/// A bulk string with the text of an integer.
pub(super) fn bulk_int(out: &mut OutBuf, n: i64) {
    bulk(out, itoa::Buffer::new().format(n).as_bytes());
}

/// The null bulk string.
pub(super) fn nil(out: &mut OutBuf) {
    out.put(b"$-1\r\n");
}

/// The null array.
pub(super) fn nil_array(out: &mut OutBuf) {
    out.put(b"*-1\r\n");
}

/// `+OK`
pub(super) fn ok(out: &mut OutBuf) {
    out.put(b"+OK\r\n");
}

/// A status line.
pub(super) fn status(out: &mut OutBuf, text: &str) {
    let tail = out.tail_mut();
    tail.push(b'+');
    tail.extend_from_slice(text.as_bytes());
    tail.extend_from_slice(b"\r\n");
}

/// An error line. Line ends inside the text become blanks, as Redis does.
pub(super) fn error(out: &mut OutBuf, error: &CommandError) {
    let tail = out.tail_mut();
    tail.push(b'-');
    let blank = |byte| {
        if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }
    };
    tail.extend(error.text().into_iter().map(blank));
    tail.extend_from_slice(b"\r\n");
}

#[inline]
fn header(tail: &mut Vec<u8>, kind: u8, n: i64) {
    tail.push(kind);
    match n {
        0..=9 => tail.push(b'0' + n as u8),
        _ => tail.extend_from_slice(itoa::Buffer::new().format(n).as_bytes()),
    }
    tail.extend_from_slice(b"\r\n");
}
