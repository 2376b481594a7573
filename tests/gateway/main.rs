//! The document gateway over real HTTP, against servers that behave as a recorded Meilisearch.

mod fake;
mod http;
mod transcript;
