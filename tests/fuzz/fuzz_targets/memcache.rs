//! See `bodies/memcache.rs`.

#![no_main]

#[path = "../bodies/memcache.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|input: &[u8]| body::run(input));
