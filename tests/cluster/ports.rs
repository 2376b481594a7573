//! Ports for processes that tests start.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

/// A port nobody listens on, given out once. It lies below the range systems take the near end
/// of connections from, so that none of those takes it before it is listened on.
pub(crate) fn free_port() -> u16 {
    const FIRST: u32 = 10_000;
    const COUNT: u32 = 22_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let start = std::process::id().wrapping_mul(0x9e37_79b9) % COUNT;
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        assert!(number < COUNT, "no free port");
        let port = (FIRST + (start + number) % COUNT) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
