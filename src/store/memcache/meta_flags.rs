//! The flags of a meta command: what they ask for, and what is wrong with them.

use base64ct::{Base64, Encoding};

use super::{BAD_FORMAT, KEY_BYTES_MAX, expiry, number};
use crate::proto::args::Args;
use crate::store::db::Expiry;

/// Longest opaque flag, in bytes with its letter.
const OPAQUE_BYTES_MAX: usize = 32;
const BAD_TOKEN: &str = "CLIENT_ERROR bad token in command line format";
const BAD_FLAG: &str = "CLIENT_ERROR invalid flag";
const TWICE: &str = "CLIENT_ERROR duplicate flag";
const BAD_KEY: &str = "CLIENT_ERROR error decoding key";
pub(super) const BAD_OPAQUE: &str = "CLIENT_ERROR opaque token too long";

/// What the flags of a line say.
#[derive(Default)]
pub(super) struct Meta<'a> {
    /// As it is stored: decoded.
    pub(super) key: Vec<u8>,
    pub(super) binary: bool,
    pub(super) flags: Vec<&'a [u8]>,
    pub(super) value: bool,
    /// N: a key that is absent is made.
    pub(super) vivify: Option<Expiry>,
    /// T.
    pub(super) ttl: Option<Expiry>,
    /// R: a key that goes earlier than this is to be made anew.
    pub(super) recache: Option<Expiry>,
    pub(super) no_update: bool,
    pub(super) client_flags: u32,
    pub(super) cas: Option<u64>,
    pub(super) mode: Option<u8>,
    pub(super) initial: u64,
    pub(super) delta: Option<u64>,
    pub(super) stale: bool,
}

impl<'a> Meta<'a> {
    /// Reads the key and the flags from word `first` on.
    pub(super) fn parse(
        args: &Args<'a>,
        first: usize,
        now_ms: u64,
    ) -> Result<Meta<'a>, &'static str> {
        let key = key_of(args)?;
        let mut meta =
            Meta { key: key.to_vec(), flags: args.tail(first).iter().collect(), ..Meta::default() };
        let (mut seen, mut error) = (0u128, None);
        for flag in args.tail(first).iter() {
            let letter = *flag.first().filter(|letter| letter.is_ascii()).ok_or(TWICE)?;
            if seen & 1 << letter != 0 {
                return Err(TWICE);
            }
            seen |= 1 << letter;
            match meta.take(letter, &flag[1..], now_ms) {
                Err(BAD_FLAG) => return Err(BAD_FLAG),
                // The only one that does not say more than an earlier one did.
                Err(BAD_FORMAT) => {
                    error.get_or_insert(BAD_FORMAT);
                }
                Err(line) => error = Some(line),
                Ok(()) => {}
            }
        }
        let opaque = |flag: &&[u8]| flag[0] == b'O' && flag.len() > OPAQUE_BYTES_MAX;
        match error {
            Some(line) => Err(line),
            None if meta.flags.iter().any(opaque) => Err(BAD_OPAQUE),
            None => Ok(meta),
        }
    }

    fn take(&mut self, letter: u8, word: &[u8], now_ms: u64) -> Result<(), &'static str> {
        let time = |word| expiry(Some(word), now_ms).map_err(|_| BAD_TOKEN);
        match letter {
            b'b' => {
                self.key = decoded(&self.key).ok_or(BAD_KEY)?;
                self.binary = true;
            }
            b'N' => self.vivify = Some(time(word)?),
            b'T' => self.ttl = Some(time(word)?),
            b'R' => self.recache = Some(time(word)?),
            b'v' => self.value = true,
            b'u' => self.no_update = true,
            b'F' => self.client_flags = number(word).ok_or(BAD_FORMAT)?,
            b'C' => self.cas = Some(number(word).ok_or(BAD_TOKEN)?),
            b'M' => match word {
                [mode] => self.mode = Some(*mode),
                _ => return Err("CLIENT_ERROR incorrect length for M token"),
            },
            b'J' => {
                self.initial = number(word).ok_or("CLIENT_ERROR invalid numeric initial value")?;
            }
            b'D' => {
                let delta = number(word).ok_or("CLIENT_ERROR invalid numeric delta value")?;
                self.delta = Some(delta);
            }
            b'I' => self.stale = true,
            b'O' | b'P' | b'L' | b'k' | b's' | b't' | b'c' | b'f' | b'l' | b'h' | b'q' => {}
            _ => return Err(BAD_FLAG),
        }
        Ok(())
    }

    /// The beginning of the answer of a hit.
    pub(super) fn head(&self, len: usize) -> Vec<u8> {
        match self.value {
            true => format!("VA {len}").into_bytes(),
            false => b"HD".to_vec(),
        }
    }

    pub(super) fn put_key(&self, binary: bool, line: &mut Vec<u8>) {
        line.extend_from_slice(b" k");
        match binary {
            true => {
                encode(&self.key, line);
                line.extend_from_slice(b" b");
            }
            false => line.extend_from_slice(&self.key),
        }
    }
}

pub(super) fn key_of<'a>(args: &Args<'a>) -> Result<&'a [u8], &'static str> {
    args.get(1).filter(|key| key.len() <= KEY_BYTES_MAX).ok_or(BAD_FORMAT)
}

pub(super) fn decoded(key: &[u8]) -> Option<Vec<u8>> {
    let mut buf = vec![0; key.len()];
    let decoded = Base64::decode(key, &mut buf).ok()?;
    (!decoded.is_empty()).then(|| decoded.to_vec())
}

pub(super) fn encode(key: &[u8], line: &mut Vec<u8>) {
    let mut buf = vec![0; Base64::encoded_len(key)];
    let encoded = Base64::encode(key, &mut buf).expect("room for the whole");
    line.extend_from_slice(encoded.as_bytes());
}
