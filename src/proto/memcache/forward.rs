//! The form in which a request goes to a store or peer, and what its replicas get.
//!
//! Everything is sent so that exactly one reply comes back: `noreply` and the meta flag `q` are
//! left out. Times of expiry can be made absolute on the way, so that all replicas forget a value
//! at the same moment.

use super::decode::McRequest;
use super::ids::Mark;
use super::number;
use super::reply;
use super::table::{Form, RELATIVE_S_MAX, is_relative};
use crate::proto::args::Args;
use base64ct::{Base64, Encoding};

/// The key by which the ring places a request: a meta key that is written in base64 is meant
/// decoded. `None` when it cannot be decoded, or where the request has no key.
pub fn ring_key<'a>(
    request: &McRequest,
    args: &Args<'a>,
    scratch: &'a mut Vec<u8>,
) -> Option<&'a [u8]> {
    let key = request.command.keys.first_key(args).and_then(|i| args.get(i))?;
    if !request.command.meta_flags(args).any(|flag| flag[0] == b'b') {
        return Some(key);
    }
    scratch.clear();
    scratch.resize(key.len(), 0);
    Base64::decode(key, scratch).ok()
}

/// Appends the request in its replying form: single blanks, CR LF, nothing that asks for silence.
/// With `now_s` (Unix time in seconds) times of expiry become absolute.
pub fn write(request: &McRequest, args: &Args<'_>, now_s: Option<u64>, out: &mut Vec<u8>) {
    write_words(request, args, now_s, None, out);
}

/// The same for the store whose ids have this mark: the mark is taken off.
pub fn write_for(request: &McRequest, args: &Args<'_>, mark: Mark, out: &mut Vec<u8>) {
    write_words(request, args, None, Some(mark), out);
}

fn write_words(
    request: &McRequest,
    args: &Args<'_>,
    now_s: Option<u64>,
    mark: Option<Mark>,
    out: &mut Vec<u8>,
) {
    let words = match request.command.form {
        // The hold time of old deletes means nothing.
        Form::Delete => 2,
        _ => args.len() - usize::from(request.noreply),
    };
    let exptime = request.command.exptime_word();
    for (i, word) in args.iter().enumerate().take(words) {
        let flag = is_flag(request, i);
        // memcached looks at a flag's first byte only.
        if flag && word[0] == b'q' {
            continue;
        }
        if i > 0 {
            out.push(b' ');
        }
        match (now_s, mark) {
            _ if exptime == Some(i) => expiry(word, now_s, out),
            (Some(_), _) if flag && matches!(word[0], b'T' | b'N') => {
                out.push(word[0]);
                expiry(&word[1..], now_s, out);
            }
            (_, Some(mark)) if request.command.form == Form::Cas && i == ID_WORD => {
                mark.apply_to(word, out);
            }
            (_, Some(mark)) if flag && word[0] == b'C' => {
                out.push(b'C');
                mark.apply_to(&word[1..], out);
            }
            _ => out.extend_from_slice(word),
        }
    }
    out.extend_from_slice(b"\r\n");
    data(request, args, out);
}

/// Appends what the other replicas get after the first one answered `reply` to a request whose
/// outcome depends on what is stored. False when nothing changed, so that nothing is sent.
pub fn outcome(
    request: &McRequest,
    args: &Args<'_>,
    reply: &[u8],
    now_s: u64,
    out: &mut Vec<u8>,
) -> bool {
    match (request.command.name, request.command.form) {
        (_, Form::Store | Form::Cas) => {
            if reply != b"STORED\r\n" {
                return false;
            }
            out.extend_from_slice(b"set");
            for (i, word) in args.iter().enumerate().take(5).skip(1) {
                out.push(b' ');
                match i {
                    3 => expiry(word, Some(now_s), out),
                    _ => out.extend_from_slice(word),
                }
            }
            out.extend_from_slice(b"\r\n");
            data(request, args, out);
            true
        }
        (_, Form::Meta | Form::MetaSet) => meta_outcome(request, args, reply, now_s, out),
        // It changes when its values expire, whatever ids it was asked for.
        ("gats", _) if !reply::is_error(reply) => {
            write(request, args, Some(now_s), out);
            true
        }
        _ => false,
    }
}

/// A meta command that did what it was asked for is done without conditions elsewhere, and
/// nothing is asked in return.
fn meta_outcome(
    request: &McRequest,
    args: &Args<'_>,
    reply: &[u8],
    now_s: u64,
    out: &mut Vec<u8>,
) -> bool {
    let done = matches!(reply.get(..2), Some(b"HD" | b"VA"));
    if !done || !request.command.class_of(args).eq(&crate::proto::command::Class::Write) {
        return false;
    }
    for (i, word) in args.iter().enumerate() {
        let kept = match word[0] {
            _ if !is_flag(request, i) => true,
            b'M' => !matches!(word.get(1), Some(b'E' | b'e' | b'R' | b'r' | b'S' | b's')),
            b'b' | b'F' | b'T' | b'N' | b'R' | b'I' | b'J' | b'D' | b'x' => true,
            _ => false,
        };
        if !kept {
            continue;
        }
        if i > 0 {
            out.push(b' ');
        }
        if is_flag(request, i) && matches!(word[0], b'T' | b'N') {
            out.push(word[0]);
            expiry(&word[1..], Some(now_s), out);
        } else {
            out.extend_from_slice(word);
        }
    }
    out.extend_from_slice(b"\r\n");
    data(request, args, out);
    true
}

fn is_flag(request: &McRequest, word: usize) -> bool {
    match request.command.form {
        Form::Meta => word >= 2,
        Form::MetaSet => word >= 3,
        _ => false,
    }
}

/// A time of expiry in digits, and with `now_s` as a point in time.
fn expiry(exptime: &[u8], now_s: Option<u64>, out: &mut Vec<u8>) {
    let Some(seconds) = number::i32_of(exptime) else { return out.extend_from_slice(exptime) };
    let at = match now_s {
        // Over already. memcached does the same, and nodes of the reference know no signs.
        _ if seconds < 0 => i64::from(RELATIVE_S_MAX) + 1,
        Some(now_s) if is_relative(exptime) => now_s as i64 + i64::from(seconds),
        _ if exptime.iter().all(u8::is_ascii_digit) => return out.extend_from_slice(exptime),
        Some(_) | None => i64::from(seconds),
    };
    out.extend_from_slice(itoa::Buffer::new().format(at).as_bytes());
}

/// The word of a cas with the id.
const ID_WORD: usize = 5;

fn data(request: &McRequest, args: &Args<'_>, out: &mut Vec<u8>) {
    if let Some(data) = request.data {
        out.extend_from_slice(data.of(args.raw()));
        out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests;
