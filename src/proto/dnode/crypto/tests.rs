//! Recorded secured frames, chunk edges, refusals.

use std::convert::Infallible;

use proptest::prelude::*;
use rsa::PrivateKey;
use rsa::pkcs1::EncodeRsaPrivateKey;
use rsa::rand_core::{TryCryptoRng, TryRng};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::*;
use crate::proto::dnode::tests::{unhex, vectors};
use crate::proto::dnode::{HeaderDecoder, HeaderLimits};

const MBUF: usize = 16 * 1024;
const CHUNK: usize = MBUF - 64;

/// Repeatable bytes for tests.
struct Counter(u64);

impl TryRng for Counter {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        self.try_next_u64().map(|word| (word >> 32) as u32)
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        self.0 += 1;
        Ok(self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn try_fill_bytes(&mut self, dst: &mut [u8]) -> Result<(), Infallible> {
        for chunk in dst.chunks_mut(8) {
            let word = self.try_next_u64()?.to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
        Ok(())
    }
}

impl TryCryptoRng for Counter {}

fn wrap_key(vectors: &Value) -> WrapKey {
    let der = unhex(vectors["rsa_key_pkcs1_der_hex"].as_str().unwrap());
    let key = PrivateKey::from_pkcs1_der(&der).unwrap();
    let pem = key.to_pkcs1_pem(Default::default()).unwrap();
    assert!(pem.starts_with("-----BEGIN RSA PRIVATE KEY-----"));
    WrapKey::from_pem(&pem).unwrap()
}

fn cipher(mbuf_size: usize) -> ChunkCipher {
    ChunkCipher::new(&LinkKey::from_bytes([7; 32]), mbuf_size)
}

#[test]
fn recorded_secured_frames_open_and_seal_byte_for_byte() {
    let vectors = vectors();
    let wrap_key = wrap_key(&vectors);
    let mut seen = 0;
    for frame in vectors["frames"].as_array().unwrap() {
        let name = frame["name"].as_str().unwrap();
        let Some(link_key) = frame["aes_key_32_hex"].as_str().map(unhex) else {
            continue;
        };
        let link_key = LinkKey::from_bytes(link_key.try_into().unwrap());
        let bytes = unhex(frame["hex"].as_str().unwrap());
        let header = HeaderDecoder::default().decode(&bytes, &HeaderLimits::default());
        let header = header.unwrap().unwrap();
        let (data, body) = (header.data.of(&bytes), &bytes[header.len..]);
        assert!(header.encrypted());

        let mut receiver = ReceiveKey::new(MBUF);
        let mut rng = Counter(1);
        if data.len() == WRAPPED_BYTES {
            assert_eq!(wrap_key.unwrap(data, &mut rng), Ok(link_key.clone()), "{name}");
        } else {
            let err = receiver.accept(&header, data, &wrap_key, &mut rng).unwrap_err();
            assert_eq!(err, CryptoError::NoKey, "{name}");
            receiver.current = Some(ChunkCipher::new(&link_key, MBUF));
        }
        let cipher = receiver.accept(&header, data, &wrap_key, &mut rng).unwrap();
        let mut plain = Vec::new();
        cipher.open(body, &mut plain).unwrap();
        if let Some(text) = frame["plaintext_ascii"].as_str() {
            assert_eq!(plain, text.as_bytes(), "{name}");
        }
        let digest = unhex(frame["plaintext_sha256"].as_str().unwrap());
        assert_eq!(Sha256::digest(&plain)[..], digest[..], "{name}");

        let mut sealed = Vec::new();
        receiver.answers().unwrap().seal(&plain, &mut sealed);
        assert_eq!(sealed, body, "{name}");
        assert_eq!(cipher_len(&plain), body.len(), "{name}");
        seen += 1;
    }
    assert_eq!(seen, 8);
}

fn cipher_len(plain: &[u8]) -> usize {
    cipher(MBUF).sealed_len(plain.len())
}

#[test]
fn lengths_at_the_chunk_edges() {
    let cipher = cipher(MBUF);
    for (plain, sealed) in [
        (0, 0),
        (1, 16),
        (15, 16),
        (16, 32),
        (CHUNK - 16, CHUNK),
        (CHUNK - 1, CHUNK),
        (CHUNK, CHUNK + 16),
        (CHUNK + 1, CHUNK + 32),
        (40_032, 40_080),
        (5 << 20, (5 << 20) / CHUNK * (CHUNK + 16) + padded((5 << 20) % CHUNK)),
    ] {
        assert_eq!(cipher.sealed_len(plain), sealed, "{plain}");
        let text: Vec<u8> = (0..plain).map(|i| (i % 251) as u8).collect();
        let mut out = b"before".to_vec();
        cipher.seal(&text, &mut out);
        assert_eq!(out.len(), 6 + sealed);
        if plain > 0 {
            let mut back = b"x".to_vec();
            cipher.open(&out[6..], &mut back).unwrap();
            assert!(back[1..] == text[..]);
        }
    }
}

#[test]
fn damage_and_other_settings_are_errors_that_leave_the_output_alone() {
    let ours = cipher(MBUF);
    let mut sealed = Vec::new();
    // Ones: the cheapest text in which a wrong cut finds valid padding by accident.
    ours.seal(&[1; 50_000], &mut sealed);
    let mut out = b"kept".to_vec();
    assert_eq!(ours.open(&[], &mut out), Err(CryptoError::Length(0)));
    assert_eq!(ours.open(&sealed[..33], &mut out), Err(CryptoError::Length(33)));
    let other_size = cipher(8192).open(&sealed, &mut out);
    assert_eq!(other_size, Err(CryptoError::Padding { at: 0 }));
    let other_key = ChunkCipher::new(&LinkKey::from_bytes([8; 32]), MBUF);
    assert_eq!(other_key.open(&sealed, &mut out), Err(CryptoError::Padding { at: 0 }));
    sealed.clear();
    ours.seal(&[b'x'; 50_000], &mut sealed);
    let cut = ours.open(&sealed[..sealed.len() - 16], &mut out);
    assert_eq!(cut, Err(CryptoError::Padding { at: 3 * (CHUNK + 16) }));
    assert_eq!(out, b"kept");
}

#[test]
fn keys_wrap_and_a_wrong_one_does_not_unwrap() {
    let vectors = vectors();
    let wrap_key = wrap_key(&vectors);
    let mut rng = Counter(9);
    let key = LinkKey::random(&mut rng).unwrap();
    let wrapped = wrap_key.wrap(&key, &mut rng).unwrap();
    assert_eq!(wrapped.len(), WRAPPED_BYTES);
    assert_ne!(wrapped, wrap_key.wrap(&key, &mut rng).unwrap(), "padding is random");
    assert_eq!(wrap_key.unwrap(&wrapped, &mut rng), Ok(key.clone()));
    for bad in [vec![0x55; WRAPPED_BYTES], wrapped[1..].to_vec(), Vec::new()] {
        assert_eq!(wrap_key.unwrap(&bad, &mut rng), Err(CryptoError::Unwrap));
    }
    let shown = format!("{key:?} {wrap_key:?} {:?}", cipher(MBUF));
    assert_eq!(shown, "LinkKey(..) WrapKey(..) ChunkCipher { chunk_plain: 16320, .. }");
}

#[test]
fn a_key_that_fails_forgets_the_one_before() {
    let vectors = vectors();
    let wrap_key = wrap_key(&vectors);
    let mut rng = Counter(3);
    let wrapped = wrap_key.wrap(&LinkKey::from_bytes([1; 32]), &mut rng).unwrap();
    let header = HeaderDecoder::default()
        .decode(b"$2014$ 1 3 1 1 0 *1 d *16\r\n", &HeaderLimits::default())
        .unwrap()
        .unwrap();
    let mut receiver = ReceiveKey::new(MBUF);
    assert!(receiver.accept(&header, &wrapped, &wrap_key, &mut rng).is_ok());
    assert!(receiver.accept(&header, b"d", &wrap_key, &mut rng).is_ok());
    let bad = receiver.accept(&header, &[7; WRAPPED_BYTES], &wrap_key, &mut rng);
    assert_eq!(bad.unwrap_err(), CryptoError::Unwrap);
    assert!(receiver.answers().is_none());
}

#[test]
fn only_rsa_1024_is_taken() {
    assert!(matches!(WrapKey::from_pem("nonsense"), Err(CryptoError::NotAKey(_))));
    let larger = PrivateKey::new(&mut Counter(5), 1152).unwrap();
    let pem = larger.to_pkcs1_pem(Default::default()).unwrap();
    assert_eq!(WrapKey::from_pem(&pem).unwrap_err(), CryptoError::KeySize(1152));
}

#[test]
fn options_decide_per_link() {
    for (name, links) in [
        ("none", [false, false, false]),
        ("rack", [false, true, true]),
        ("datacenter", [false, false, true]),
        ("all", [true, true, true]),
    ] {
        let option = SecureOption::from_name(name).unwrap();
        let of = [(true, true), (true, false), (false, false)];
        assert_eq!(of.map(|(dc, rack)| option.encrypts(dc, rack)), links, "{name}");
    }
    assert!(SecureOption::Rack.encrypts(false, true), "equal rack names of two datacenters");
    assert_eq!(SecureOption::from_name("ALL"), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn bodies_round_trip(
        plain in prop::collection::vec(any::<u8>(), 1..2000), mbuf_size in 65usize..700,
    ) {
        let cipher = cipher(mbuf_size);
        let (mut sealed, mut back) = (Vec::new(), Vec::new());
        cipher.seal(&plain, &mut sealed);
        prop_assert_eq!(sealed.len(), cipher.sealed_len(plain.len()));
        cipher.open(&sealed, &mut back).unwrap();
        prop_assert_eq!(back, plain);
    }
}
