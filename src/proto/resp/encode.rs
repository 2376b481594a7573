//! Writers of RESP: each appends to the caller's buffer and cannot fail.
//!
//! `map`, `set`, `double`, `boolean`, `null` and `verbatim` exist in RESP3 only.

/// `+text`. The text must hold no CR or LF; they are written as blanks.
pub fn simple(out: &mut Vec<u8>, text: &[u8]) {
    line(out, b'+', text);
}

/// `-text`, where the text begins with an error code (`ERR ...`). CR and LF become blanks.
pub fn error(out: &mut Vec<u8>, text: &[u8]) {
    line(out, b'-', text);
}

/// `:value`.
pub fn int(out: &mut Vec<u8>, value: i64) {
    out.push(b':');
    decimal(out, value);
    out.extend_from_slice(b"\r\n");
}

/// `$len` and the bytes.
pub fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    header(out, b'$', bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// The RESP2 null string, `$-1`.
pub fn null_bulk(out: &mut Vec<u8>) {
    out.extend_from_slice(b"$-1\r\n");
}

/// The RESP2 null array, `*-1`.
pub fn null_array(out: &mut Vec<u8>) {
    out.extend_from_slice(b"*-1\r\n");
}

/// The header of an array; `len` elements must follow.
pub fn array(out: &mut Vec<u8>, len: usize) {
    header(out, b'*', len);
}

/// A request: an array of bulk strings.
pub fn command<'a, I>(out: &mut Vec<u8>, args: I)
where
    I: IntoIterator<Item = &'a [u8], IntoIter: ExactSizeIterator>,
{
    let args = args.into_iter();
    array(out, args.len());
    for arg in args {
        bulk(out, arg);
    }
}

/// RESP3: the header of a map; `pairs` keys and values must follow.
pub fn map(out: &mut Vec<u8>, pairs: usize) {
    header(out, b'%', pairs);
}

/// RESP3: the header of a set; `len` elements must follow.
pub fn set(out: &mut Vec<u8>, len: usize) {
    header(out, b'~', len);
}

/// RESP3: a double from its decimal text.
pub fn double(out: &mut Vec<u8>, text: &[u8]) {
    line(out, b',', text);
}

/// RESP3: a boolean.
pub fn boolean(out: &mut Vec<u8>, value: bool) {
    out.extend_from_slice(if value { b"#t\r\n" } else { b"#f\r\n" });
}

/// RESP3: the null.
pub fn null(out: &mut Vec<u8>) {
    out.extend_from_slice(b"_\r\n");
}

/// RESP3: a verbatim string of plain text.
pub fn verbatim(out: &mut Vec<u8>, text: &[u8]) {
    header(out, b'=', text.len() + 4);
    out.extend_from_slice(b"txt:");
    out.extend_from_slice(text);
    out.extend_from_slice(b"\r\n");
}

/// A type byte, a length, CR LF.
pub fn header(out: &mut Vec<u8>, kind: u8, len: usize) {
    if len < 10 {
        out.extend_from_slice(&[kind, b'0' + len as u8, b'\r', b'\n']);
        return;
    }
    out.push(kind);
    unsigned(out, len as u64);
    out.extend_from_slice(b"\r\n");
}

/// The decimal digits of `value`.
pub fn decimal(out: &mut Vec<u8>, value: i64) {
    if value < 0 {
        out.push(b'-');
    }
    unsigned(out, value.unsigned_abs());
}

/// The decimal digits of `value`.
pub fn unsigned(out: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    while value >= 10 {
        let pair = (value % 100) as usize * 2;
        value /= 100;
        at -= 2;
        digits[at..at + 2].copy_from_slice(&PAIRS[pair..pair + 2]);
    }
    if value > 0 || at == digits.len() {
        at -= 1;
        digits[at] = b'0' + value as u8;
    }
    out.extend_from_slice(&digits[at..]);
}

fn line(out: &mut Vec<u8>, kind: u8, text: &[u8]) {
    out.push(kind);
    let start = out.len();
    out.extend_from_slice(text);
    for byte in &mut out[start..] {
        if matches!(byte, b'\r' | b'\n') {
            *byte = b' ';
        }
    }
    out.extend_from_slice(b"\r\n");
}

/// `00` to `99`, one after the other.
const PAIRS: [u8; 200] = {
    let mut pairs = [0; 200];
    let mut i = 0;
    while i < 100 {
        pairs[i * 2] = b'0' + (i / 10) as u8;
        pairs[i * 2 + 1] = b'0' + (i % 10) as u8;
        i += 1;
    }
    pairs
};

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_writer_has_its_form() {
        assert_eq!(written(|o| simple(o, b"OK")), "+OK\r\n");
        assert_eq!(written(|o| error(o, b"ERR a\r\nb")), "-ERR a  b\r\n");
        assert_eq!(written(|o| int(o, -7)), ":-7\r\n");
        assert_eq!(written(|o| bulk(o, b"")), "$0\r\n\r\n");
        assert_eq!(written(|o| bulk(o, b"0123456789")), "$10\r\n0123456789\r\n");
        assert_eq!(written(null_bulk), "$-1\r\n");
        assert_eq!(written(null_array), "*-1\r\n");
        assert_eq!(written(|o| array(o, 0)), "*0\r\n");
        assert_eq!(written(|o| command(o, [&b"GET"[..], b"k"])), "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n");
        assert_eq!(written(|o| map(o, 12)), "%12\r\n");
        assert_eq!(written(|o| set(o, 1)), "~1\r\n");
        assert_eq!(written(|o| double(o, b"1.5")), ",1.5\r\n");
        assert_eq!(written(|o| boolean(o, true)), "#t\r\n");
        assert_eq!(written(|o| boolean(o, false)), "#f\r\n");
        assert_eq!(written(null), "_\r\n");
        assert_eq!(written(|o| verbatim(o, b"hi")), "=6\r\ntxt:hi\r\n");
    }

    #[test]
    fn the_ends_of_the_number_range_are_written() {
        assert_eq!(written(|o| decimal(o, i64::MIN)), i64::MIN.to_string());
        assert_eq!(written(|o| unsigned(o, u64::MAX)), u64::MAX.to_string());
    }

    proptest! {
        #[test]
        fn digits_are_those_of_the_standard_library(value: i64, shift in 0u32..64) {
            let value = value >> shift;
            prop_assert_eq!(written(|o| decimal(o, value)), value.to_string());
        }
    }
}
