//! Document servers behind https.

use crate::cluster::{Cluster, Shape};
use serde_json::json;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use torc::gateway::TlsRoots;

const PATH: &str = "/indexes/movies/documents";

/// Takes TLS off before a server that speaks plain HTTP; the port it listens on.
async fn in_front_of(server: std::net::SocketAddr) -> u16 {
    let certificate = CertificateDer::from_pem_slice(include_bytes!("tls/server.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_slice(include_bytes!("tls/server.key")).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                // Who does not trust the certificate hangs up.
                let Ok(mut inside) = acceptor.accept(stream).await else { return };
                let mut outside = TcpStream::connect(server).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut inside, &mut outside).await;
            });
        }
    });
    port
}

#[tokio::test]
async fn servers_behind_https_are_used_when_somebody_known_vouches_for_them() {
    let shape = Shape { groups: 1, members: 1, copies: 1, shards: 16 };
    let mut cluster = Cluster::start(shape).await;
    let port = in_front_of(cluster.fakes[0].address).await;
    cluster.settings.groups[0][0].url = format!("https://localhost:{port}");
    cluster.restart().await;
    let refused = cluster.post(PATH, &json!([{"id": 1}])).await;
    assert_eq!(refused.status, 503, "nobody known vouches for it: {:?}", refused.json());
    assert_eq!(cluster.writes(), [0]);
    cluster.settings.tls_roots = TlsRoots::from_pem(include_bytes!("tls/ca.pem")).unwrap();
    cluster.restart().await;
    cluster.add(&json!([{"id": 1}])).await;
    assert_eq!(cluster.http.get(&format!("{PATH}/1")).await.json(), json!({"id": 1}));
    // The name must be the certificate's.
    cluster.settings.groups[0][0].url = format!("https://127.0.0.2:{port}");
    cluster.restart().await;
    assert_eq!(cluster.post(PATH, &json!([{"id": 2}])).await.status, 503);
}
