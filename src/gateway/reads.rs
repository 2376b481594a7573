//! Reads: one document, listings, searches.

mod facet_search;
mod fetch;
mod listing;
mod multi_search;
mod scatter;
mod search;

pub(super) use facet_search::facet_search;
pub(super) use fetch::{fetch, is_document};
pub(super) use listing::{list, list_by_body};
pub(super) use multi_search::multi_search;
pub(super) use search::{search, search_by_query};
