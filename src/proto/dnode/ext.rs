//! The extension field: what torc nodes tell each other in the `data` field of a header.
//!
//! `d` followed by `;key=value` pairs, for example `d;r=c;w=1`. A C node skips a longer plaintext
//! data field, but the field is sent to proven torc nodes only. It is at most [`EXT_BYTES_MAX`]
//! long, so it never has the length of a wrapped RSA key (128). Unknown keys are skipped.

use super::DATA_PLAIN;

/// Longest extension field, in bytes.
pub const EXT_BYTES_MAX: usize = 96;

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// `r=c`: gossip, filters, feeds, hints and repair; never requests of clients.
    Control,
}

/// The extension field of one frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ext {
    /// `s`: the stamp of a write, as the hybrid clock gives it.
    pub stamp: Option<u64>,
    /// `r`: the role of the connection; said in its first frame.
    pub role: Option<Role>,
    /// `w`: the highest wire version of torc messages the sender speaks.
    pub wire: Option<u8>,
}

impl Ext {
    /// True when there is nothing to say, so that the field is the plain `d`.
    pub fn is_empty(&self) -> bool {
        *self == Ext::default()
    }

    /// Appends the field; the plain `d` when there is nothing to say.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let mut number = itoa::Buffer::new();
        out.extend_from_slice(DATA_PLAIN);
        if let Some(stamp) = self.stamp {
            out.extend_from_slice(b";s=");
            out.extend_from_slice(number.format(stamp).as_bytes());
        }
        if let Some(Role::Control) = self.role {
            out.extend_from_slice(b";r=c");
        }
        if let Some(wire) = self.wire {
            out.extend_from_slice(b";w=");
            out.extend_from_slice(number.format(wire).as_bytes());
        }
        debug_assert!(out.len() - start <= EXT_BYTES_MAX);
    }

    /// Reads a data field. A field of another form, a key nobody knows, and a value that does
    /// not parse say nothing: the frame itself is still good.
    pub fn parse(data: &[u8]) -> Ext {
        let mut ext = Ext::default();
        let pairs = match data.strip_prefix(b"d;") {
            Some(pairs) if data.len() <= EXT_BYTES_MAX => pairs,
            Some(_) | None => return ext,
        };
        for pair in pairs.split(|b| *b == b';') {
            match pair {
                [b's', b'=', value @ ..] => ext.stamp = decimal(value),
                [b'r', b'=', b'c'] => ext.role = Some(Role::Control),
                [b'w', b'=', value @ ..] => {
                    ext.wire = decimal(value).and_then(|w| u8::try_from(w).ok());
                }
                _ => {}
            }
        }
        ext
    }
}

fn decimal(text: &[u8]) -> Option<u64> {
    if !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}
