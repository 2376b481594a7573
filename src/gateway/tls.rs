//! How backends are reached: plain HTTP, or TLS where their address says `https://`.

use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Why certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The text is no PEM.
    #[error("not a file of PEM certificates: {0}")]
    Pem(rustls::pki_types::pem::Error),
    /// A certificate is broken.
    #[error("a certificate cannot be used: {0}")]
    Certificate(#[from] rustls::Error),
    /// There is none.
    #[error("it holds no certificate")]
    Empty,
}

/// Who vouches for backends: the certificate authorities browsers know (the default), or only
/// those of a file.
#[derive(Clone, Default)]
pub struct TlsRoots(Option<Arc<RootCertStore>>);

impl TlsRoots {
    /// The authorities of a PEM file, and no others.
    ///
    /// # Errors
    /// There is no usable certificate in it.
    pub fn from_pem(text: &[u8]) -> Result<TlsRoots, TlsError> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(text) {
            roots.add(certificate.map_err(TlsError::Pem)?)?;
        }
        if roots.is_empty() { Err(TlsError::Empty) } else { Ok(TlsRoots(Some(Arc::new(roots)))) }
    }
}

impl fmt::Debug for TlsRoots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(own) => write!(f, "TlsRoots({})", own.len()),
            None => f.write_str("TlsRoots(public)"),
        }
    }
}

/// Opens connections for both kinds of addresses.
pub(super) type Connector = HttpsConnector<HttpConnector>;

/// A connector that gives a connection this time to be made.
pub(super) fn connector(connect_timeout: Duration, roots: &TlsRoots) -> Connector {
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    http.set_connect_timeout(Some(connect_timeout));
    let tls = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring knows both versions of TLS");
    let tls = match &roots.0 {
        Some(own) => tls.with_root_certificates(own.clone()),
        None => tls.with_webpki_roots(),
    };
    HttpsConnectorBuilder::new()
        .with_tls_config(tls.with_no_client_auth())
        .https_or_http()
        .enable_http1()
        .wrap_connector(http)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_certificates_replaces_the_public_ones() {
        let text = include_bytes!("../../tests/gateway/tls/ca.pem");
        assert_eq!(format!("{:?}", TlsRoots::from_pem(text).unwrap()), "TlsRoots(1)");
        assert_eq!(format!("{:?}", TlsRoots::default()), "TlsRoots(public)");
        assert!(matches!(TlsRoots::from_pem(b""), Err(TlsError::Empty)));
        let broken = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(matches!(TlsRoots::from_pem(broken), Err(TlsError::Certificate(_))));
        let cut = b"-----BEGIN CERTIFICATE-----\nAAAA\n";
        assert!(matches!(TlsRoots::from_pem(cut), Err(TlsError::Pem(_))));
    }
}
