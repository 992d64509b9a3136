//! TLS: the certificate and the key that the gateway shows, read from PEM files.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use fullbore_core::io::{is_credential, read_small};
use fullbore_core::{Error, Result};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

/// Bytes of the longest PEM file.
const FILE_MAX: usize = 1 << 20;

/// From a file of certificates, the gateway's own first, and a file with its key.
///
/// # Errors
/// A file cannot be read, others may use the key, or the two do not belong together.
pub(crate) fn acceptor(certificate: &Path, key: &Path) -> Result<TlsAcceptor> {
    let hint = "make both with `fullbore gateway cert`, or name PEM files";
    let wrong = |path: &Path, why: String| Error::usage(path.display().to_string(), why, hint);
    let failed = |path: &Path, e| Error::io("read", path.display().to_string(), e).on_named_thing();
    let (bytes, _) = read_small(certificate, FILE_MAX).map_err(|e| failed(certificate, e))?;
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&bytes)
        .collect::<Result<_, _>>()
        .map_err(|e| wrong(certificate, format!("is not a file of certificates: {e}")))?;
    if chain.is_empty() {
        return Err(wrong(certificate, "has no certificate".to_owned()));
    }
    let (bytes, metadata) = read_small(key, FILE_MAX).map_err(|e| failed(key, e))?;
    let mode = metadata.permissions().mode();
    if mode & 0o077 != 0 && !is_credential(key) {
        let why = format!("it holds a private key, and others than its owner may use it (mode {:04o})", mode & 0o7777);
        return Err(Error::refused(key.display().to_string(), why, format!("chmod 600 '{}'", key.display())));
    }
    let secret = PrivateKeyDer::from_pem_slice(&bytes).map_err(|e| wrong(key, format!("is not a private key: {e}")))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let made = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, secret));
    let mut config = made.map_err(|e| wrong(certificate, format!("does not work with `{}`: {e}", key.display())))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
