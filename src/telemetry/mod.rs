//! What a node tells its operators: the log, and metrics.

pub mod figures;
pub mod log;
pub mod metrics;
