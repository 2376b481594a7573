//! What a node tells its operators: the log.

pub mod log;
