//! One search over several backends.
//!
//! Every backend gets the client's request for the first `offset + limit` hits of the shards it
//! answers for, with ranking scores and their details. Hits merge by the ranking rules, one by
//! one as the details list them, then by score, by rank inside the backend, by canonical id.

mod facets;
mod merge;
mod request;

pub use facets::{Faceting, merge_facets};
pub use merge::{MergeError, merge};
pub use request::{Paging, SearchError, SearchRequest};
