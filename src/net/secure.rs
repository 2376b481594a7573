//! Keys of encrypted links: the shared RSA key, and the system's random bytes.

use std::sync::Arc;

use crate::dispatch::Security;
use crate::proto::dnode::crypto::{
    ChunkCipher, CryptoError, SecureOption, TryCryptoRng, TryRng, WrapKey,
};

/// How the links of a node are encrypted.
#[derive(Clone, Debug)]
pub struct LinkSecurity {
    /// Which of them are.
    pub option: SecureOption,
    /// The RSA key all nodes share.
    pub wrap_key: Arc<WrapKey>,
    /// `mbuf_size`, in bytes.
    pub mbuf_size: usize,
}

impl LinkSecurity {
    /// What one worker's dispatcher needs.
    pub(super) fn for_dispatcher(&self) -> Security {
        Security {
            option: self.option,
            wrap_key: Arc::clone(&self.wrap_key),
            mbuf_size: self.mbuf_size,
            rng: Box::new(SystemRandom),
        }
    }

    /// The cipher of a new link, and the data field of its first frame.
    pub(super) fn new_link(&self) -> Result<(ChunkCipher, Vec<u8>), CryptoError> {
        ChunkCipher::for_new_link(&self.wrap_key, self.mbuf_size, &mut SystemRandom)
    }
}

/// The random bytes of the system.
struct SystemRandom;

impl TryRng for SystemRandom {
    type Error = CryptoError;

    fn try_next_u32(&mut self) -> Result<u32, CryptoError> {
        getrandom::u32().map_err(|_| CryptoError::Random)
    }

    fn try_next_u64(&mut self) -> Result<u64, CryptoError> {
        getrandom::u64().map_err(|_| CryptoError::Random)
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), CryptoError> {
        getrandom::fill(bytes).map_err(|_| CryptoError::Random)
    }
}

impl TryCryptoRng for SystemRandom {}
