//! The pages on a real socket: the bytes a script sees.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;
use crate::net::http::serve;
use crate::net::listener::Listener;

/// Everything the node says to `bytes` until it closes.
async fn exchange(port: u16, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    // The node may close before it has read everything.
    let _ = stream.write_all(bytes).await;
    let mut reply = Vec::new();
    let _ = stream.read_to_end(&mut reply).await;
    String::from_utf8_lossy(&reply).into_owned()
}

#[tokio::test]
async fn a_reply_has_proper_headers_and_closes_whatever_came() {
    let listener = Listener::tcp("127.0.0.1", 0, 16).unwrap();
    let port = listener.port().unwrap();
    let pages = pages(Told::default());
    let served = tokio::spawn(serve(listener, pages.router.clone(), LIMITS));

    let reply = exchange(port, b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let (head, body) = reply.split_once("\r\n\r\n").unwrap();
    assert_eq!(body, "OK\r\n");
    let mut lines: Vec<String> = head.split("\r\n").map(str::to_ascii_lowercase).collect();
    lines.retain(|line| !line.starts_with("date:"));
    lines[1..].sort();
    assert_eq!(
        lines,
        [
            "http/1.1 200 ok",
            "connection: close",
            "content-length: 4",
            "content-type: text/plain; charset=utf-8"
        ]
    );

    // A caller on the same machine may see the log filter.
    let reply = exchange(port, b"GET /log-level HTTP/1.0\r\n\r\n").await;
    assert!(reply.ends_with("\r\n\r\ninfo\n"), "{reply}");

    let reply = exchange(port, b"rubbish\r\n\r\n").await;
    assert!(reply.starts_with("HTTP/1.1 400 "), "{reply}");
    let noise: Vec<u8> = (0..4_096u32).map(|i| (i * 167 % 251) as u8).collect();
    exchange(port, &noise).await;
    let reply = exchange(port, b"GET /live HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert!(reply.ends_with("live\n"), "{reply}");
    served.abort();
}

#[tokio::test]
async fn a_unix_socket_is_refused() {
    let path = std::env::temp_dir().join(format!("torc-admin-{}.sock", std::process::id()));
    let listener = Listener::unix(&path).unwrap();
    let error = serve(listener, Router::new(), LIMITS).await.unwrap_err();
    let _ = std::fs::remove_file(&path);
    assert_eq!(error.kind(), std::io::ErrorKind::Unsupported);
}
