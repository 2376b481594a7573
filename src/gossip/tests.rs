//! The machine in a small world of its own: virtual time, a network that delays and cuts, real
//! frames.

mod c_nodes;
mod cost;
mod failure;
mod identity;
mod joining;
mod noise;
mod seeds;
mod world;
