//! See `bodies/cbi1.rs`.

#![no_main]

#[path = "../bodies/cbi1.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|input: &[u8]| body::run(input));
