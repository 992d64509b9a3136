//! TLS as TDS 7.4 has it: the handshake is in packets of the prelogin, and what follows is TLS alone.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::wire::{PRELOGIN, packet, read_message};

/// A connection of a client.
pub enum Stream {
    /// Without TLS.
    Plain(TcpStream),
    /// After a handshake.
    Tls(Box<StreamOwned<ServerConnection, TcpStream>>),
}

impl Stream {
    /// Ends the connection.
    pub fn shutdown(&self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.shutdown(Shutdown::Both),
            Self::Tls(tls) => tls.sock.shutdown(Shutdown::Both),
        }
    }

    /// The same connection, after a handshake.
    pub fn secured(self, config: Arc<ServerConfig>) -> io::Result<Self> {
        let Self::Plain(mut socket) = self else { return Err(io::Error::other("a second handshake")) };
        let mut tls = ServerConnection::new(config).map_err(io::Error::other)?;
        while tls.is_handshaking() {
            let (kind, bytes) = read_message(&mut socket)?;
            if kind != PRELOGIN {
                return Err(io::Error::other("not a packet of the handshake"));
            }
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                tls.read_tls(&mut rest)?;
                tls.process_new_packets().map_err(io::Error::other)?;
            }
            let mut answer = Vec::new();
            // The client has left the packets when its last message is sent.
            while tls.is_handshaking() && tls.wants_write() {
                tls.write_tls(&mut answer)?;
            }
            if !answer.is_empty() {
                socket.write_all(&packet(PRELOGIN, true, 1, &answer))?;
            }
        }
        Ok(Self::Tls(Box::new(StreamOwned::new(tls, socket))))
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(buffer),
            Self::Tls(tls) => tls.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write(bytes),
            Self::Tls(tls) => tls.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.flush(),
            Self::Tls(tls) => tls.flush(),
        }
    }
}

/// The configuration of a server with the certificate in `folder`.
///
/// # Panics
/// If the certificate cannot be read.
pub fn config(folder: &Path) -> Arc<ServerConfig> {
    let certificate = CertificateDer::from_pem_file(folder.join("public.crt"));
    let certificate = certificate.unwrap_or_else(|error| panic!("the certificate of the stub: {error}"));
    let key = PrivateKeyDer::from_pem_file(folder.join("private.key"));
    let key = key.unwrap_or_else(|error| panic!("the key of the stub: {error}"));
    let versions = ServerConfig::builder_with_provider(default_provider().into()).with_safe_default_protocol_versions();
    let config = versions.and_then(|config| config.with_no_client_auth().with_single_cert(vec![certificate], key));
    Arc::new(config.unwrap_or_else(|error| panic!("TLS of the stub: {error}")))
}
