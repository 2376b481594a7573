//! The extension field: what torc nodes tell each other in the `data` field of a header.
//!
//! `d` followed by `;key=value` pairs, for example `d;r=c;w=1`. A C node skips a longer plaintext
//! data field, but the field is sent to proven torc nodes only. It is at most [`EXT_BYTES_MAX`]
//! long, so it never has the length of a wrapped RSA key (128). Unknown keys are skipped.

use super::DATA_PLAIN;
use crate::stamp::Stamp;

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
    /// `s`: of a request, the stamp of the write, or 0 in a read that asks for stamps; of an
    /// answer, the stamp its key had before; of an answer to a heartbeat, the sender's clock.
    pub stamp: Option<Stamp>,
    /// `o=1`, of an answer: the write was left out, because its key was written later.
    pub outrun: bool,
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

    /// The field; the plain `d` when there is nothing to say.
    pub fn encode(&self) -> ExtField {
        let mut field = ExtField { bytes: [0; EXT_BYTES_MAX], len: 0 };
        let mut number = itoa::Buffer::new();
        field.add(DATA_PLAIN);
        if let Some(stamp) = self.stamp {
            field.add(b";s=");
            field.add(number.format(stamp.get()).as_bytes());
        }
        if self.outrun {
            field.add(b";o=1");
        }
        if let Some(Role::Control) = self.role {
            field.add(b";r=c");
        }
        if let Some(wire) = self.wire {
            field.add(b";w=");
            field.add(number.format(wire).as_bytes());
        }
        field
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
                [b's', b'=', value @ ..] => ext.stamp = decimal(value).map(Stamp::new),
                [b'o', b'=', b'1'] => ext.outrun = true,
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

/// An encoded field.
#[derive(Clone, Copy)]
pub struct ExtField {
    bytes: [u8; EXT_BYTES_MAX],
    len: usize,
}

impl ExtField {
    /// Its bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn add(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }
}

fn decimal(text: &[u8]) -> Option<u64> {
    if !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}
