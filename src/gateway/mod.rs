//! The document gateway: a Meilisearch-compatible HTTP face over replica groups of ordinary
//! Meilisearch servers. So far: the built-in document server it can be tried on.

pub mod builtin;
mod call;
mod error;
mod server;
mod time;

pub use error::{ApiError, Failure};
pub use server::{ServeLimits, serve};
pub use time::WallClock;
