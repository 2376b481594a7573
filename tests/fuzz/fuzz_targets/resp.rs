//! See `bodies/resp.rs`.

#![no_main]

#[path = "../bodies/resp.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|input: &[u8]| body::run(input));
