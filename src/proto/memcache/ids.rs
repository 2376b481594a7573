//! Cas ids in a ring of several racks: a client is told which store an id is of.
//!
//! Every store counts its own ids, and small numbers are given by all of them. So what a client
//! gets is the id of the store on which conditional writes of the key run, with that store's
//! [`Mark`] in its upper bits; the mark is taken off before the store sees the id again. After
//! the ring has changed, an id of the former store thereby becomes a number the present one never
//! gave: the cas is refused with EXISTS, and its client reads again.

use super::values::{Value, Values, values};

/// The bits of one store's mark, above all ids it will ever count to.
const SHIFT: u32 = 48;

/// An id that no store gives.
const NOBODY: u64 = u64::MAX;

/// What tells the ids of one store from those of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark(u16);

impl Mark {
    /// A mark of these bits; nodes of a ring should have different ones.
    pub fn new(bits: u16) -> Mark {
        Mark(bits)
    }

    /// Puts the mark on an id, or takes it off: one undoes the other. 0 is no id and stays.
    pub fn apply(self, id: u64) -> u64 {
        if id == 0 { 0 } else { id ^ u64::from(self.0) << SHIFT }
    }

    /// The same for an id in digits; what is no number stays as it is.
    pub(super) fn apply_to(self, id: &[u8], out: &mut Vec<u8>) {
        match super::number::u64_of(id) {
            Some(id) => put(self.apply(id), out),
            None => out.extend_from_slice(id),
        }
    }
}

/// Appends a reply whose ids are those that the reply `of` has for the same values, under `mark`.
/// Where it has none, or another value, the id is nobody's: an id must never let a client replace
/// what it has not seen.
pub fn marked(reply: &[u8], of: &[u8], mark: Mark, out: &mut Vec<u8>) {
    let mut theirs = values(of);
    rewrite(reply, out, |value| {
        let id = match value {
            Some(value) => id_for(value, &mut theirs),
            None => meta_id(of).filter(|_| is_same(reply, of)),
        };
        Some(id.map_or(NOBODY, |id| mark.apply(id)))
    });
}

/// Appends a reply without its ids: what replicas have in common.
pub fn without(reply: &[u8], out: &mut Vec<u8>) {
    rewrite(reply, out, |_| None);
}

/// The id of the next value of the same key, if it is the same value. Both replies have their keys
/// in the order asked.
fn id_for(value: Value<'_>, theirs: &mut Values<'_>) -> Option<u64> {
    let mut ahead = theirs.clone();
    let own = ahead.find(|own| own.key == value.key)?;
    *theirs = ahead;
    let (line, _) = first_line(own.block);
    let id = line.split(|b| *b == b' ').nth(ID_WORD).and_then(super::number::u64_of);
    id.filter(|_| is_same(value.block, own.block))
}

/// True for two replies, or values of them, that differ in their ids alone.
pub fn is_same(reply: &[u8], other: &[u8]) -> bool {
    let (mut a, mut b) = (Vec::new(), Vec::new());
    without(reply, &mut a);
    without(other, &mut b);
    a == b
}

/// The word of a VALUE line with the id.
const ID_WORD: usize = 4;

/// Appends a reply with other ids: what `id` says for each value, and for `None` in
/// the line of a meta reply. Where it says nothing, there is no id.
fn rewrite<'a>(
    reply: &'a [u8],
    out: &mut Vec<u8>,
    mut id: impl FnMut(Option<Value<'a>>) -> Option<u64>,
) {
    let mut blocks = values(reply);
    for value in blocks.by_ref() {
        let (line, data) = first_line(value.block);
        for (i, word) in line.split(|b| *b == b' ').enumerate() {
            match i {
                0 => out.extend_from_slice(word),
                ID_WORD => {
                    if let Some(id) = id(Some(value)) {
                        out.push(b' ');
                        put(id, out);
                    }
                }
                _ => put_word(word, out),
            }
        }
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(data);
    }
    let (line, rest) = first_line(blocks.rest());
    let Some(flags) = meta_flags(line) else { return out.extend_from_slice(blocks.rest()) };
    for (i, word) in line.split(|b| *b == b' ').enumerate() {
        match word.first() {
            _ if i == 0 => out.extend_from_slice(word),
            Some(b'c') if i >= flags => {
                if let Some(id) = id(None) {
                    out.extend_from_slice(b" c");
                    put(id, out);
                }
            }
            _ => put_word(word, out),
        }
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(rest);
}

/// The id in a meta reply.
fn meta_id(reply: &[u8]) -> Option<u64> {
    let (line, _) = first_line(reply);
    let flags = line.split(|b| *b == b' ').skip(meta_flags(line)?);
    let mut ids = flags.filter_map(|flag| flag.strip_prefix(b"c"));
    ids.next().and_then(super::number::u64_of)
}

/// Where the flags begin among the words of a meta reply's line; `None` for other lines.
fn meta_flags(line: &[u8]) -> Option<usize> {
    match line.split(|b| *b == b' ').next()? {
        b"VA" => Some(2),
        b"HD" | b"EN" | b"NF" | b"NS" | b"EX" => Some(1),
        _ => None,
    }
}

/// The first line without its end, and what follows it.
fn first_line(bytes: &[u8]) -> (&[u8], &[u8]) {
    let end = memchr::memchr(b'\n', bytes).map_or(bytes.len(), |i| i + 1);
    let (line, rest) = bytes.split_at(end);
    (line.strip_suffix(b"\r\n").unwrap_or(line), rest)
}

fn put_word(word: &[u8], out: &mut Vec<u8>) {
    out.push(b' ');
    out.extend_from_slice(word);
}

fn put(id: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(id).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARK: Mark = Mark(0x8001);

    fn marked_by(reply: &str, of: &str) -> String {
        let mut out = Vec::new();
        marked(reply.as_bytes(), of.as_bytes(), MARK, &mut out);
        String::from_utf8(out).unwrap()
    }

    fn with(id: u64) -> String {
        MARK.apply(id).to_string()
    }

    #[test]
    fn a_mark_is_undone_by_itself_and_by_no_other() {
        assert_eq!(MARK.apply(0), 0);
        for id in [1, 5, 1 << 47, NOBODY] {
            assert_eq!(MARK.apply(MARK.apply(id)), id);
            assert_ne!(Mark(0x8000).apply(MARK.apply(id)), id);
        }
    }

    #[test]
    fn values_get_the_ids_of_the_first_store() {
        let own = "VALUE a 0 1 5\r\nc\r\nVALUE b 7 2 6\r\n\r\n\r\nEND\r\n";
        let right = own.replace(" 5\r", &format!(" {}\r", with(5)));
        let right = right.replace(" 6\r", &format!(" {}\r", with(6)));
        assert_eq!(marked_by(own, own), right);
        // A majority has another value, and one that the first store lacks.
        let other = "VALUE a 1 1 77\r\nd\r\nVALUE x 0 1 3\r\n1\r\nVALUE b 7 2 9\r\n\r\n\r\nEND\r\n";
        let right = format!(
            "VALUE a 1 1 {NOBODY}\r\nd\r\nVALUE x 0 1 {NOBODY}\r\n1\r\n\
             VALUE b 7 2 {}\r\n\r\n\r\nEND\r\n",
            with(6)
        );
        assert_eq!(marked_by(other, own), right);
        for other in ["END\r\n", "VALUE a 0 1\r\nc\r\nEND\r\n", "STORED\r\n", "SERVER_ERROR c5\r\n"]
        {
            assert_eq!(marked_by(other, own), other);
        }
    }

    #[test]
    fn meta_replies_have_one_id() {
        let right = format!("VA 2 c{} kc Oc\r\nc1\r\n", with(4));
        let reply = "VA 2 c9 kc Oc\r\nc1\r\n";
        assert_eq!(marked_by(reply, "VA 2 c4 kc Oc\r\nc1\r\n"), right);
        let other = "VA 2 c4 kc Oc\r\nc2\r\n";
        assert_eq!(marked_by(reply, other), reply.replace("c9", &format!("c{NOBODY}")));
        assert_eq!(marked_by("HD c9\r\n", "EN\r\n"), format!("HD c{NOBODY}\r\n"));
        assert_eq!(marked_by("NS c0\r\n", "NS c0\r\n"), "NS c0\r\n");
        assert_eq!(marked_by("EN\r\n", "EN\r\n"), "EN\r\n");
    }

    #[test]
    fn without_their_ids_replicas_say_the_same() {
        let plain = |reply: &str| {
            let mut out = Vec::new();
            without(reply.as_bytes(), &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(plain("VALUE a 0 1 5\r\nc\r\nEND\r\n"), "VALUE a 0 1\r\nc\r\nEND\r\n");
        assert_eq!(plain("VA 1 s1 c5 t-1\r\nc\r\n"), "VA 1 s1 t-1\r\nc\r\n");
        assert_eq!(plain("HD\r\n"), "HD\r\n");
    }
}
