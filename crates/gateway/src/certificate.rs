//! A certificate authority of one's own, and a certificate that it has signed: for machines that need no public one.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use fullbore_core::key_store::write_new;
use fullbore_core::{Error, Result};
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_RSA_SHA256, RsaKeySize, SanType,
};
use zeroize::Zeroizing;

/// Days before now from which on it counts: clocks differ.
const DAYS_BEFORE: i64 = 1;
const DAY: i64 = 86_400;

/// The files that were made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    /// The certificate of the authority: clients trust it.
    pub authority: PathBuf,
    /// The key of the authority.
    pub authority_key: PathBuf,
    /// The certificate of the gateway, and that of the authority.
    pub certificate: PathBuf,
    /// The key of the gateway.
    pub key: PathBuf,
}

/// The names of the files in a directory.
fn files(directory: &Path) -> Made {
    let at = |name: &str| directory.join(name);
    Made {
        authority: at("ca.crt"),
        authority_key: at("ca.key"),
        certificate: at("gateway.crt"),
        key: at("gateway.key"),
    }
}

/// Makes an authority and a certificate for hosts (names and addresses), and writes them to four files in a directory.
/// The keys are RSA with 2,048 bits: that is what SQL Server on Linux is known to be tested with. Nothing is overwritten.
///
/// # Errors
/// A host is not a name or an address, or a file exists or cannot be written.
pub fn make(directory: &Path, hosts: &[String], days: u32) -> Result<Made> {
    let made = files(directory);
    let all = [&made.authority, &made.authority_key, &made.certificate, &made.key];
    if let Some(there) = all.iter().find(|path| path.symlink_metadata().is_ok()) {
        return Err(Error::refused(
            there.display().to_string(),
            "exists",
            "name another directory: nothing is overwritten",
        ));
    }
    let failed = |e: rcgen::Error| Error::refused("certificate", format!("cannot be made: {e}"), "");
    let new_key = || KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).map_err(failed);
    let (authority_key, key) = (new_key()?, new_key()?);
    let authority = authority(days)?;
    let authority_certificate = authority.self_signed(&authority_key).map_err(failed)?;
    let own = own(hosts, days)?;
    let authority_pem = Zeroizing::new(authority_key.serialize_pem());
    let issuer = Issuer::new(authority, authority_key);
    let certificate: Certificate = own.signed_by(&key, &issuer).map_err(failed)?;
    let chain = format!("{}{}", certificate.pem(), authority_certificate.pem());
    // Certificates are public. The keys come first: a certificate without its key is of no use.
    write_new(&made.authority_key, 0o600, authority_pem.as_bytes())?;
    write_new(&made.key, 0o600, Zeroizing::new(key.serialize_pem()).as_bytes())?;
    write_new(&made.authority, 0o644, authority_certificate.pem().as_bytes())?;
    write_new(&made.certificate, 0o644, chain.as_bytes())?;
    Ok(made)
}

fn authority(days: u32) -> Result<CertificateParams> {
    let mut params = params(Vec::new(), days)?;
    params.distinguished_name.push(DnType::CommonName, "fullbore gateway authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

fn own(hosts: &[String], days: u32) -> Result<CertificateParams> {
    let Some(first) = hosts.first() else {
        return Err(Error::usage("--host", "no host was named", "name the host as clients name it: --host backup1"));
    };
    let names = hosts.iter().map(|host| name_of(host)).collect::<Result<_>>()?;
    let mut params = params(names, days)?;
    params.distinguished_name.push(DnType::CommonName, first);
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

fn params(names: Vec<SanType>, days: u32) -> Result<CertificateParams> {
    let mut params = CertificateParams::default();
    let now = jiff::Timestamp::now().as_second();
    let at = |seconds: i64| {
        let when = std::time::UNIX_EPOCH + std::time::Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        when.into()
    };
    if !(1..=36_500).contains(&days) {
        return Err(Error::usage(format!("--days {days}"), "is not from 1 to 36500", "write the days that it counts"));
    }
    (params.not_before, params.not_after) = (at(now - DAYS_BEFORE * DAY), at(now + i64::from(days) * DAY));
    params.subject_alt_names = names;
    Ok(params)
}

/// A host as a certificate names it.
fn name_of(host: &str) -> Result<SanType> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(SanType::IpAddress(address));
    }
    let letters = |part: &str| !part.is_empty() && part.chars().all(|one| one.is_ascii_alphanumeric() || one == '-');
    let wrong = || Error::usage(format!("--host {host}"), "is not a name or an address", "write it without a port");
    let is_name = host.len() <= 253 && host.split('.').all(letters);
    let name = is_name.then(|| host.to_owned().try_into().ok()).flatten().ok_or_else(wrong)?;
    Ok(SanType::DnsName(name))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn keys_are_for_their_owner_alone_and_nothing_is_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let hosts = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let made = make(directory.path(), &hosts, 10).unwrap();
        for (path, mode) in [(&made.key, 0o600), (&made.authority_key, 0o600), (&made.certificate, 0o644)] {
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, mode);
        }
        let before = std::fs::read(&made.key).unwrap();
        assert!(make(directory.path(), &hosts, 10).unwrap_err().to_string().contains("exists"));
        assert_eq!(std::fs::read(&made.key).unwrap(), before);
        assert!(crate::tls::acceptor(&made.certificate, &made.key).is_ok());
        assert!(crate::tls::acceptor(&made.certificate, &made.authority_key).is_err());
    }

    #[test]
    fn a_host_that_is_none_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        for host in ["", "a:9443", "a b", "https://a", ".", "a..b"] {
            assert!(make(directory.path(), &[host.to_owned()], 10).is_err(), "{host}");
        }
        assert!(make(directory.path(), &[], 10).is_err());
        assert!(make(directory.path(), &["a".to_owned()], 0).is_err());
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
