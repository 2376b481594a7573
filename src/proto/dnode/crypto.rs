//! Encrypted bodies: which links encrypt, how a key travels, how a body is enciphered.
//!
//! The side that opens a connection draws 32 random bytes, sends them RSA-wrapped in the data
//! field of its first frame, and both sides use the first 16 for AES-128-CBC. Each chunk of
//! `mbuf_size - 64` plaintext bytes is enciphered on its own, with PKCS#7 padding and **the key as
//! IV**, so both ends need the same `mbuf_size`.
//!
//! # What it is worth
//!
//! This is the reference's cipher, kept to interoperate. It hides values from somebody who only
//! listens on a link, and no more:
//!
//! - The key is the IV of every chunk, so equal requests of a connection have equal ciphertexts,
//!   and who makes a node encrypt chosen texts learns more than he should.
//! - There is no authentication code: whoever can change bytes on the link can change values.
//! - RSA-1024 is within reach of those who can pay for it, and all nodes share one private key, so
//!   who gets it can read recorded traffic of all links.
//!
//! Between datacenters that do not trust the network, run the links through something made for
//! that: WireGuard or IPsec between the hosts, or TLS proxies in front of the peer ports, with
//! `secure_server_option: none`. Keys never reach `Debug` output, an error or a log.
//!
//! Parity: `Netflix/dynomite` `src/dyn_crypto.c` decrypts with the key of some other connection
//! when a key fails to unwrap, and enciphers shared buffers in place, which loses data of later
//! replicas. Here a failed unwrap is an error, and sealing writes to its own output.

use std::fmt;

use aes::Aes128;
use aes::cipher::block_padding::Pkcs7;
use aes::cipher::{BlockModeDecrypt, BlockModeEncrypt, InnerIvInit, KeyInit};
use rsa::PrivateKey;
use rsa::pkcs1::DecodeRsaPrivateKey;
use rsa::pkcs8::DecodePrivateKey;
use rsa::traits::PublicKeyParts;
use sha1::Sha1;

use super::header::Header;

/// Fallible source of secret random bytes; a parameter everywhere, so that tests are repeatable.
pub use rsa::rand_core::{TryCryptoRng, TryRng};

/// Bytes of a wrapped key: the modulus of RSA-1024, the only size a C node survives.
pub const WRAPPED_BYTES: usize = 128;

/// Bytes of a connection's key as it travels.
pub const LINK_KEY_BYTES: usize = 32;

/// What an mbuf keeps for itself; the rest of `mbuf_size` is one plaintext chunk.
const MBUF_OVERHEAD: usize = 64;

const AES_BYTES: usize = 16;

/// `secure_server_option`: the links whose opening side encrypts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SecureOption {
    /// No link; no key file is needed.
    #[default]
    None,
    /// Links that leave the rack.
    Rack,
    /// Links that leave the datacenter.
    Datacenter,
    /// Every link.
    All,
}

impl SecureOption {
    /// The option by its name in the configuration.
    pub fn from_name(name: &str) -> Option<SecureOption> {
        match name {
            "none" => Some(SecureOption::None),
            "rack" => Some(SecureOption::Rack),
            "datacenter" => Some(SecureOption::Datacenter),
            "all" => Some(SecureOption::All),
            _ => None,
        }
    }

    /// True when a link between two nodes is encrypted. `same_rack` means the same rack of the
    /// same datacenter.
    pub fn encrypts(self, same_dc: bool, same_rack: bool) -> bool {
        match self {
            SecureOption::None => false,
            SecureOption::Rack => !same_dc || !same_rack,
            SecureOption::Datacenter => !same_dc,
            SecureOption::All => true,
        }
    }
}

/// Enciphers and deciphers whole bodies.
pub trait BodyCipher {
    /// Appends the ciphertext of `plain` to `out`.
    fn seal(&self, plain: &[u8], out: &mut Vec<u8>);

    /// Deciphers `sealed` where it stands; the plaintext, whose length is returned, ends where
    /// `sealed` ends. After an error nobody knows what `sealed` holds.
    fn open_in_place(&self, sealed: &mut [u8]) -> Result<usize, CryptoError>;

    /// Appends the plaintext of `sealed` to `out`; on an error `out` is as it was.
    fn open(&self, sealed: &[u8], out: &mut Vec<u8>) -> Result<(), CryptoError> {
        let start = out.len();
        out.extend_from_slice(sealed);
        let opened = self.open_in_place(&mut out[start..]);
        let plain = opened.inspect_err(|_| out.truncate(start))?;
        out.drain(start..out.len() - plain);
        Ok(())
    }
}

/// Why something secret could not be used. Every one of them closes the connection, and none
/// says more than an attacker may know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CryptoError {
    /// The text is no RSA private key in PEM form.
    #[error("not an RSA private key in PEM form: {0}")]
    NotAKey(String),
    /// The key has another size than C nodes can use.
    #[error("the RSA key has {0} bits; dynomite nodes need exactly 1024")]
    KeySize(usize),
    /// The random source failed.
    #[error("no random bytes")]
    Random,
    /// A wrapped key does not unwrap with our key.
    #[error("the peer's key does not unwrap: do both nodes use the same pem_key_file?")]
    Unwrap,
    /// An encrypted frame came before any key.
    #[error("encrypted frame before a key")]
    NoKey,
    /// The ciphertext is empty or no multiple of the block size.
    #[error("ciphertext of {0} bytes is not a whole number of blocks")]
    Length(usize),
    /// A chunk's padding is wrong: another key, another mbuf_size, or damage.
    #[error("bad padding in the chunk at {at}: do both nodes use the same mbuf_size?")]
    Padding {
        /// Offset of the chunk in the body.
        at: usize,
    },
}

/// One connection's key as it travels. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct LinkKey([u8; LINK_KEY_BYTES]);

impl LinkKey {
    /// A new key.
    pub fn random<R: TryCryptoRng + ?Sized>(rng: &mut R) -> Result<LinkKey, CryptoError> {
        let mut bytes = [0; LINK_KEY_BYTES];
        rng.try_fill_bytes(&mut bytes).map_err(|_| CryptoError::Random)?;
        Ok(LinkKey(bytes))
    }

    /// A key made elsewhere.
    pub fn from_bytes(bytes: [u8; LINK_KEY_BYTES]) -> LinkKey {
        LinkKey(bytes)
    }
}

impl fmt::Debug for LinkKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LinkKey(..)")
    }
}

/// The RSA key all nodes share: its public half wraps, its private half unwraps.
pub struct WrapKey(PrivateKey);

impl WrapKey {
    /// The key of a PEM text (`RSA PRIVATE KEY`, or PKCS#8 `PRIVATE KEY`).
    pub fn from_pem(text: &str) -> Result<WrapKey, CryptoError> {
        let key = if text.contains("-----BEGIN PRIVATE KEY-----") {
            PrivateKey::from_pkcs8_pem(text).map_err(|e| CryptoError::NotAKey(e.to_string()))
        } else {
            PrivateKey::from_pkcs1_pem(text).map_err(|e| CryptoError::NotAKey(e.to_string()))
        }?;
        match key.size() {
            WRAPPED_BYTES => Ok(WrapKey(key)),
            bytes => Err(CryptoError::KeySize(bytes * 8)),
        }
    }

    /// The data field of a connection's first frame.
    pub fn wrap<R: TryCryptoRng + ?Sized>(
        &self,
        key: &LinkKey,
        rng: &mut R,
    ) -> Result<Vec<u8>, CryptoError> {
        let public = self.0.as_public_key();
        public.oaep_encrypt_with_rng::<Sha1, _>(rng, &key.0).map_err(|_| CryptoError::Random)
    }

    /// The key in a data field of [`WRAPPED_BYTES`]. `rng` blinds the private operation.
    pub fn unwrap<R: TryCryptoRng + ?Sized>(
        &self,
        wrapped: &[u8],
        rng: &mut R,
    ) -> Result<LinkKey, CryptoError> {
        let plain = self.0.oaep_decrypt_with_rng::<Sha1, _>(rng, wrapped);
        let plain = plain.map_err(|_| CryptoError::Unwrap)?;
        plain.try_into().map(LinkKey).map_err(|_| CryptoError::Unwrap)
    }
}

impl fmt::Debug for WrapKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WrapKey(..)")
    }
}

/// AES-128-CBC in chunks, as DNODE uses it.
#[derive(Clone)]
pub struct ChunkCipher {
    aes: Aes128,
    iv: [u8; AES_BYTES],
    chunk_plain: usize,
}

impl ChunkCipher {
    /// The cipher of a connection. `mbuf_size` is the setting of that name, in bytes, the same
    /// on both ends.
    pub fn new(key: &LinkKey, mbuf_size: usize) -> ChunkCipher {
        assert!(mbuf_size > MBUF_OVERHEAD, "mbuf_size leaves no room for data");
        let mut iv = [0; AES_BYTES];
        iv.copy_from_slice(&key.0[..AES_BYTES]);
        ChunkCipher { aes: Aes128::new(&iv.into()), iv, chunk_plain: mbuf_size - MBUF_OVERHEAD }
    }

    /// The cipher of a connection that this side opens, and the data field of its first frame,
    /// which brings the key.
    pub fn for_new_link<R: TryCryptoRng + ?Sized>(
        wrap_key: &WrapKey,
        mbuf_size: usize,
        rng: &mut R,
    ) -> Result<(ChunkCipher, Vec<u8>), CryptoError> {
        let key = LinkKey::random(rng)?;
        let wrapped = wrap_key.wrap(&key, rng)?;
        Ok((ChunkCipher::new(&key, mbuf_size), wrapped))
    }

    /// Length of the ciphertext of `plain` bytes: the `plen` of the frame.
    pub fn sealed_len(&self, plain: usize) -> usize {
        let rest = plain % self.chunk_plain;
        let tail = if rest == 0 { 0 } else { padded(rest) };
        plain / self.chunk_plain * padded(self.chunk_plain) + tail
    }
}

impl BodyCipher for ChunkCipher {
    fn seal(&self, plain: &[u8], out: &mut Vec<u8>) {
        out.reserve(self.sealed_len(plain.len()));
        for chunk in plain.chunks(self.chunk_plain) {
            let start = out.len();
            out.extend_from_slice(chunk);
            out.resize(start + padded(chunk.len()), 0);
            let cbc = cbc::Encryptor::inner_iv_init(&self.aes, &self.iv.into());
            let sealed = cbc.encrypt_padded::<Pkcs7>(&mut out[start..], chunk.len());
            debug_assert!(sealed.is_ok(), "the output has room for the padding");
        }
    }

    fn open_in_place(&self, sealed: &mut [u8]) -> Result<usize, CryptoError> {
        if sealed.is_empty() || !sealed.len().is_multiple_of(AES_BYTES) {
            return Err(CryptoError::Length(sealed.len()));
        }
        let (full, full_sealed) = (self.chunk_plain, padded(self.chunk_plain));
        let count = sealed.len().div_ceil(full_sealed);
        let mut last_len = 0;
        for (number, chunk) in sealed.chunks_mut(full_sealed).enumerate() {
            let cbc = cbc::Decryptor::inner_iv_init(&self.aes, &self.iv.into());
            let plain = cbc.decrypt_padded::<Pkcs7>(chunk).map(<[u8]>::len);
            // Every chunk but the last is full, so a short one is a wrong key or mbuf_size.
            let last = number + 1 == count;
            match plain {
                Ok(len) if len == full || (last && len < full) => last_len = len,
                Ok(_) | Err(_) => return Err(CryptoError::Padding { at: number * full_sealed }),
            }
        }
        // The padding goes from between the chunks to the front.
        let mut end = sealed.len();
        for number in (0..count).rev() {
            let start = number * full_sealed;
            let len = if number + 1 == count { last_len } else { full };
            sealed.copy_within(start..start + len, end - len);
            end -= len;
        }
        Ok(sealed.len() - end)
    }
}

impl fmt::Debug for ChunkCipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChunkCipher")
            .field("chunk_plain", &self.chunk_plain)
            .finish_non_exhaustive()
    }
}

/// The receiving side of a connection: which key opens the next frame, and seals the answers.
#[derive(Debug)]
pub struct ReceiveKey {
    mbuf_size: usize,
    current: Option<ChunkCipher>,
}

impl ReceiveKey {
    /// A connection on which no key was seen yet.
    pub fn new(mbuf_size: usize) -> ReceiveKey {
        ReceiveKey { mbuf_size, current: None }
    }

    /// Takes the key of an encrypted frame when its data field has the length of one, and gives
    /// the cipher for this frame's body. Any later key replaces the one before.
    pub fn accept<R: TryCryptoRng + ?Sized>(
        &mut self,
        header: &Header,
        data: &[u8],
        wrap_key: &WrapKey,
        rng: &mut R,
    ) -> Result<&ChunkCipher, CryptoError> {
        debug_assert!(header.encrypted());
        if data.len() == WRAPPED_BYTES {
            self.current = None;
            let key = wrap_key.unwrap(data, rng)?;
            self.current = Some(ChunkCipher::new(&key, self.mbuf_size));
        }
        self.current.as_ref().ok_or(CryptoError::NoKey)
    }

    /// The cipher for answers: that of the newest key. `None`: answer in plaintext.
    pub fn answers(&self) -> Option<&ChunkCipher> {
        self.current.as_ref()
    }
}

/// Length after padding: always at least one byte more.
fn padded(len: usize) -> usize {
    (len / AES_BYTES + 1) * AES_BYTES
}

#[cfg(test)]
mod tests;
