//! The key file of encrypted links.

use std::io;
use std::path::PathBuf;

use super::model::Config;
use crate::proto::dnode::crypto::{CryptoError, WrapKey};

/// Why the key file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// It cannot be read.
    #[error("the key file {} cannot be read: {error}", path.display())]
    Read {
        /// Its path.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It holds something else than a key that all nodes can use.
    #[error("the key file {} cannot be used: {error}", path.display())]
    Key {
        /// Its path.
        path: PathBuf,
        /// Why.
        error: CryptoError,
    },
}

impl Config {
    /// Reads `pem_key_file`.
    pub fn read_pem_key(&self) -> Result<WrapKey, KeyFileError> {
        let path = self.peers.pem_key_file.clone();
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) => return Err(KeyFileError::Read { path, error }),
        };
        WrapKey::from_pem(&text).map_err(|error| KeyFileError::Key { path, error })
    }
}
