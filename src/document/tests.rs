//! The recorded vectors, and the rules they do not reach.

mod batch;
mod reads;
mod vectors;
