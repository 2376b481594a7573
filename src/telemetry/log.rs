//! The log: where it goes, and which level it has while the node runs.
//!
//! Dynomite counts levels from 0 (emergencies only) to 11; here they are the five levels of
//! `tracing`, and a filter can name modules (`info,torc::gossip=debug`). The file can be opened
//! anew at any time, so that log rotation works as with the reference (SIGHUP).

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use arc_swap::ArcSwap;
use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{EnvFilter, Registry, reload};

/// The level Dynomite starts with.
pub const VERBOSITY_DEFAULT: u32 = 5;
/// The greatest level; more is cut.
pub const VERBOSITY_MAX: u32 = 11;

/// Why the log cannot be set up or changed.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The file cannot be opened.
    #[error("cannot open the log file {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The text is no filter. The log is unchanged.
    #[error("{0} (a filter is a level or a list such as info,torc::gossip=debug)")]
    Filter(String),
    /// This process has a log already.
    #[error("the log of this process is set up twice")]
    Twice,
}

/// The running log of a process.
#[derive(Debug)]
pub struct Log {
    filter: reload::Handle<EnvFilter, Registry>,
    verbosity: AtomicU32,
    file: Option<Arc<LogFile>>,
}

impl Log {
    /// Sets up the log of this process, to `file` or else to standard error.
    ///
    /// # Errors
    ///
    /// When the file cannot be opened, or a log is there already.
    pub fn start(verbosity: u32, file: Option<&Path>) -> Result<Log, LogError> {
        let (subscriber, log) = Log::build(verbosity, file)?;
        tracing::subscriber::set_global_default(subscriber).map_err(|_| LogError::Twice)?;
        Ok(log)
    }

    /// The same without making it the log of the process.
    pub(crate) fn build(
        verbosity: u32,
        path: Option<&Path>,
    ) -> Result<(Box<dyn Subscriber + Send + Sync>, Log), LogError> {
        let verbosity = verbosity.min(VERBOSITY_MAX);
        let (filter, handle) = reload::Layer::new(EnvFilter::new(level(verbosity).to_string()));
        let registry = tracing_subscriber::registry().with(filter);
        let format = tracing_subscriber::fmt::layer().with_ansi(false);
        let file = match path {
            Some(path) => Some(Arc::new(LogFile::open(path)?)),
            None => None,
        };
        let subscriber: Box<dyn Subscriber + Send + Sync> = match file.clone() {
            Some(file) => {
                let current = move || file.file.load_full();
                Box::new(registry.with(format.with_writer(current)))
            }
            None => Box::new(registry.with(format.with_writer(io::stderr))),
        };
        let verbosity = AtomicU32::new(verbosity);
        Ok((subscriber, Log { filter: handle, verbosity, file }))
    }

    /// Dynomite's number of the level.
    pub fn verbosity(&self) -> u32 {
        self.verbosity.load(Ordering::Relaxed)
    }

    /// Sets the level by Dynomite's number; more than 11 is 11.
    pub fn set_verbosity(&self, verbosity: u32) {
        let verbosity = verbosity.min(VERBOSITY_MAX);
        self.replace(EnvFilter::new(level(verbosity).to_string()));
        self.verbosity.store(verbosity, Ordering::Relaxed);
    }

    /// The filter in force, as text.
    pub fn filter(&self) -> String {
        self.filter.with_current(ToString::to_string).unwrap_or_default()
    }

    /// Sets the filter.
    ///
    /// # Errors
    ///
    /// When the text is no filter; nothing changes then.
    pub fn set_filter(&self, text: &str) -> Result<(), LogError> {
        let filter = EnvFilter::builder()
            .parse(text.trim())
            .map_err(|error| LogError::Filter(error.to_string()))?;
        self.replace(filter);
        Ok(())
    }

    /// Opens the file anew, after it was renamed by log rotation.
    ///
    /// # Errors
    ///
    /// When it cannot be opened; the old one stays in use then.
    pub fn reopen(&self) -> Result<(), LogError> {
        match &self.file {
            Some(file) => file.reopen(),
            None => Ok(()),
        }
    }

    fn replace(&self, filter: EnvFilter) {
        // It fails only when the subscriber is gone, and then nobody logs.
        let _ = self.filter.reload(filter);
    }
}

/// The level of one of Dynomite's numbers.
fn level(verbosity: u32) -> LevelFilter {
    match verbosity {
        0..=3 => LevelFilter::ERROR,
        4 => LevelFilter::WARN,
        5 | 6 => LevelFilter::INFO,
        7 => LevelFilter::DEBUG,
        8.. => LevelFilter::TRACE,
    }
}

/// A file that is appended to and can be opened anew.
#[derive(Debug)]
struct LogFile {
    path: PathBuf,
    file: ArcSwap<File>,
}

impl LogFile {
    fn open(path: &Path) -> Result<LogFile, LogError> {
        Ok(LogFile { path: path.to_owned(), file: ArcSwap::from_pointee(append_to(path)?) })
    }

    fn reopen(&self) -> Result<(), LogError> {
        self.file.store(Arc::new(append_to(&self.path)?));
        Ok(())
    }
}

fn append_to(path: &Path) -> Result<File, LogError> {
    let opened = OpenOptions::new().create(true).append(true).open(path);
    opened.map_err(|source| LogError::File { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_level_follows_dynomites_numbers_and_filters() {
        let (_subscriber, log) = Log::build(99, None).unwrap();
        assert_eq!((log.verbosity(), log.filter().as_str()), (11, "trace"));
        log.set_verbosity(4);
        assert_eq!((log.verbosity(), log.filter().as_str()), (4, "warn"));
        log.set_filter("info,torc::gossip=debug\n").unwrap();
        assert_eq!(log.filter(), "torc::gossip=debug,info");
        let error = log.set_filter("torc=loud").unwrap_err().to_string();
        assert!(error.contains("a filter is a level or a list"), "{error}");
        assert_eq!(log.filter(), "torc::gossip=debug,info");
    }

    #[test]
    fn the_file_is_appended_to_and_opened_anew() {
        let folder = std::env::temp_dir().join(format!("torc-log-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (path, old) = (folder.join("torc.log"), folder.join("torc.log.1"));
        let (subscriber, log) = Log::build(VERBOSITY_DEFAULT, Some(&path)).unwrap();
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!("one");
            std::fs::rename(&path, &old).unwrap();
            tracing::info!("two");
            log.reopen().unwrap();
            tracing::info!("three");
            tracing::debug!("not shown");
        });
        let (first, second) = (std::fs::read_to_string(&old), std::fs::read_to_string(&path));
        std::fs::remove_dir_all(&folder).unwrap();
        let (first, second) = (first.unwrap(), second.unwrap());
        assert!(first.contains("one") && first.contains("two") && !first.contains("three"));
        assert!(second.contains("three") && !second.contains("not shown"));
    }
}
