//! A file with the process id, removed at an orderly end.

use std::path::{Path, PathBuf};

use super::Failure;

/// Removes its file when dropped.
#[derive(Debug)]
pub(super) struct PidFile(PathBuf);

impl PidFile {
    /// Writes the id of this process.
    pub(super) fn create(path: &Path) -> Result<PidFile, Failure> {
        let text = format!("{}\n", std::process::id());
        std::fs::write(path, text).map_err(|error| {
            Failure::Failed(format!("cannot write the pid file {}: {error}", path.display()))
        })?;
        Ok(PidFile(path.to_owned()))
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // Somebody else may have removed it; there is nobody left to tell.
        let _ = std::fs::remove_file(&self.0);
    }
}
