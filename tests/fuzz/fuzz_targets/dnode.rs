//! See `bodies/dnode.rs`.

#![no_main]

#[path = "../bodies/dnode.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|input: &[u8]| body::run(input));
