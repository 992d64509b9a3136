//! TLS to a server, by rustls with aws-lc-rs. It checks the server's identity as `ssl-mode` requires.

use std::path::Path;
use std::sync::Arc;

use fullbore_core::io::read_whole;
use fullbore_core::{Error, Result};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_cert_signed_by_trust_anchor};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme, StreamOwned};

use super::super::url::{Endpoint, ServerAddress, TlsMode};
use super::stream::Stream;

/// The largest file of certificates to read.
const CA_FILE_MAX: usize = 1 << 20;

/// Puts TLS around the plain stream to the server, and finishes the handshake.
pub(super) fn wrap(stream: Stream, address: &ServerAddress) -> Result<Stream> {
    let Stream::Plain(mut socket) = stream else { return Ok(stream) };
    let name = match &address.endpoint {
        Endpoint::Tcp { host, .. } => ServerName::try_from(host.clone()),
        Endpoint::Socket(_) => ServerName::try_from("localhost".to_owned()),
    };
    let refused = |why: String| {
        let hint = match address.tls.mode {
            TlsMode::VerifyCa | TlsMode::VerifyIdentity => {
                "ssl-ca must name the authority that signed the server's certificate; \
                 verify-identity also needs the host's name in the certificate"
            }
            _ => "the server's error log may say more; ssl-mode=disabled works without TLS",
        };
        Error::refused(address.name(), format!("TLS fails: {why}"), hint)
    };
    let name = name.map_err(|_| refused("the host's name is not valid in a certificate".into()))?;
    let mut connection =
        ClientConnection::new(Arc::new(configuration(address)?), name).map_err(|error| refused(error.to_string()))?;
    while connection.is_handshaking() {
        if let Err(error) = connection.complete_io(&mut socket) {
            return Err(if socket.is_halted() { Error::Halted } else { refused(error.to_string()) });
        }
    }
    Ok(Stream::Tls(Box::new(StreamOwned::new(connection, socket))))
}

fn configuration(address: &ServerAddress) -> Result<ClientConfig> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let refused = |error: rustls::Error| Error::refused(address.name(), format!("TLS cannot be set up: {error}"), "");
    let builder =
        ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions().map_err(refused)?;
    let verifier: Arc<dyn ServerCertVerifier> = match address.tls.mode {
        TlsMode::VerifyIdentity => {
            let roots = Arc::new(authorities(address)?);
            let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider).build();
            verifier.map_err(|error| Error::refused(address.name(), format!("ssl-ca is not usable: {error}"), ""))?
        }
        TlsMode::VerifyCa => Arc::new(ChainVerifier { roots: Some(authorities(address)?), provider }),
        TlsMode::Disabled | TlsMode::Preferred | TlsMode::Required => Arc::new(ChainVerifier { roots: None, provider }),
    };
    Ok(builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth())
}

fn authorities(address: &ServerAddress) -> Result<RootCertStore> {
    let Some(path) = &address.tls.authority else {
        let hint = "add ssl-ca=FILE to the URL: the certificate of the authority, as PEM";
        return Err(Error::usage(
            address.name(),
            "ssl-mode asks to verify the server, but the URL names no authority",
            hint,
        ));
    };
    let mut roots = RootCertStore::empty();
    for certificate in read_certificates(path)? {
        roots.add(certificate).map_err(|error| bad_file(path, &error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(bad_file(path, "it holds no certificate"));
    }
    Ok(roots)
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let failed = |error| Error::io("read", path.display().to_string(), error).on_named_thing();
    let pem = read_whole(path, CA_FILE_MAX).map_err(failed)?;
    let pem = pem.ok_or_else(|| bad_file(path, "it is too long for certificates"))?;
    let certificates = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
    certificates.map_err(|error| bad_file(path, &error.to_string()))
}

fn bad_file(path: &Path, why: &str) -> Error {
    Error::usage(path.display().to_string(), why, "ssl-ca names a PEM file with the authority's certificate")
}

/// Checks that the server owns its certificate and, with `roots`, that a root signed it. It does not check the name.
#[derive(Debug)]
struct ChainVerifier {
    roots: Option<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for ChainVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if let Some(roots) = &self.roots {
            let certificate = ParsedCertificate::try_from(end_entity)?;
            let algorithms = self.provider.signature_verification_algorithms.all;
            verify_server_cert_signed_by_trust_anchor(&certificate, roots, intermediates, now, algorithms)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
