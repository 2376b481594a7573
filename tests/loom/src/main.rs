//! `src/ckf` with loom's atomics, and the models of what its threads do to each other.

#[allow(dead_code, unreachable_pub, unused_imports, missing_docs)]
#[path = "../../../src/ckf/mod.rs"]
mod ckf;

#[cfg(loom)]
mod models;

fn main() {
    #[cfg(loom)]
    models::run();
    #[cfg(not(loom))]
    panic!("build it with RUSTFLAGS='--cfg loom', as scripts/loom does");
}
