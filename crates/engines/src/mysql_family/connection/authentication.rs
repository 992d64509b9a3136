//! Authentication: the answer of each plugin. A plugin that is not here is refused by its name.
//!
//! Public descriptions: MySQL's protocol documentation ("Authentication Methods"), MariaDB's "Connecting" and
//! "Authentication Plugin - ed25519".

use aws_lc_rs::digest;
use aws_lc_rs::rsa::{OAEP_SHA1_MGF1SHA1, OaepPublicEncryptingKey, PublicEncryptingKey};
use curve25519_dalek::{EdwardsPoint, Scalar};
use rustls::pki_types::SubjectPublicKeyInfoDer;
use rustls::pki_types::pem::PemObject;
use zeroize::Zeroizing;

/// A way of authentication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Plugin {
    /// `mysql_native_password`: SHA-1; MariaDB's default.
    Native,
    /// `caching_sha2_password`: SHA-256, and once after each start of the server the password itself, encrypted.
    CachingSha2,
    /// `sha256_password`: always the password itself, encrypted. MySQL also asks for it if the account does not exist.
    Sha256,
    /// MariaDB's `client_ed25519`: a signature.
    Ed25519,
}

impl Plugin {
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "mysql_native_password" => Some(Plugin::Native),
            "caching_sha2_password" => Some(Plugin::CachingSha2),
            "sha256_password" => Some(Plugin::Sha256),
            "client_ed25519" => Some(Plugin::Ed25519),
            _ => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Plugin::Native => "mysql_native_password",
            Plugin::CachingSha2 => "caching_sha2_password",
            Plugin::Sha256 => "sha256_password",
            Plugin::Ed25519 => "client_ed25519",
        }
    }

    /// The first answer: empty for an empty password, except that a signature is always made. [`Plugin::Sha256`] has no
    /// answer that could be sent without a request.
    pub fn answer(self, password: &[u8], nonce: &[u8]) -> Vec<u8> {
        match self {
            Plugin::Sha256 => Vec::new(),
            Plugin::Ed25519 => ed25519_signature(password, nonce).to_vec(),
            _ if password.is_empty() => Vec::new(),
            Plugin::Native => native_scramble(password, nonce),
            Plugin::CachingSha2 => sha2_scramble(password, nonce),
        }
    }
}

/// SHA1(password) XOR SHA1(nonce ‖ SHA1(SHA1(password))).
fn native_scramble(password: &[u8], nonce: &[u8]) -> Vec<u8> {
    let sha1 = |parts: &[&[u8]]| hash(&digest::SHA1_FOR_LEGACY_USE_ONLY, parts);
    let once = sha1(&[password]);
    let twice = sha1(&[&once]);
    xor(&once, &sha1(&[nonce, &twice]))
}

/// SHA256(password) XOR SHA256(SHA256(SHA256(password)) ‖ nonce).
fn sha2_scramble(password: &[u8], nonce: &[u8]) -> Vec<u8> {
    let sha256 = |parts: &[&[u8]]| hash(&digest::SHA256, parts);
    let once = sha256(&[password]);
    let twice = sha256(&[&once]);
    xor(&once, &sha256(&[&twice, nonce]))
}

/// An Ed25519 signature of the nonce with a key made from SHA-512 of the password, of whatever length: RFC 8032 hashes
/// a seed of 32 bytes instead, hence no finished implementation fits.
fn ed25519_signature(password: &[u8], nonce: &[u8]) -> [u8; 64] {
    let secret = hash(&digest::SHA512, &[password]);
    let mut clamped = Zeroizing::new([0_u8; 32]);
    clamped.copy_from_slice(&secret[..32]);
    clamped[0] &= 0xF8;
    clamped[31] = clamped[31] & 0x7F | 0x40;
    let key = Scalar::from_bytes_mod_order(*clamped);
    let public = EdwardsPoint::mul_base(&key).compress();
    let reduced = |parts: &[&[u8]]| {
        let mut wide = [0; 64];
        wide.copy_from_slice(&hash(&digest::SHA512, parts));
        Scalar::from_bytes_mod_order_wide(&wide)
    };
    let once = reduced(&[&secret[32..], nonce]);
    let commitment = EdwardsPoint::mul_base(&once).compress();
    let challenge = reduced(&[commitment.as_bytes(), public.as_bytes(), nonce]);
    let mut signature = [0; 64];
    signature[..32].copy_from_slice(commitment.as_bytes());
    signature[32..].copy_from_slice((challenge * key + once).as_bytes());
    signature
}

/// The password as `caching_sha2_password` needs it without TLS: with a zero at its end, XOR the nonce, RSA-OAEP
/// (SHA-1) with the server's public key in PEM. `None` if that is not a key or the password is too long for it.
pub(super) fn encrypt_password(password: &[u8], nonce: &[u8], pem: &[u8]) -> Option<Vec<u8>> {
    if nonce.is_empty() {
        return None;
    }
    let der = SubjectPublicKeyInfoDer::from_pem_slice(pem).ok()?;
    let key = OaepPublicEncryptingKey::new(PublicEncryptingKey::from_der(&der).ok()?).ok()?;
    let plain = password.iter().chain(&[0]).zip(nonce.iter().cycle()).map(|(a, b)| a ^ b);
    let plain = Zeroizing::new(plain.collect::<Vec<u8>>());
    let mut sealed = vec![0; key.ciphertext_size()];
    let length = key.encrypt(&OAEP_SHA1_MGF1SHA1, &plain, &mut sealed, None).ok()?.len();
    sealed.truncate(length);
    Some(sealed)
}

fn hash(algorithm: &'static digest::Algorithm, parts: &[&[u8]]) -> Zeroizing<Vec<u8>> {
    let mut context = digest::Context::new(algorithm);
    for part in parts {
        context.update(part);
    }
    Zeroizing::new(context.finish().as_ref().to_vec())
}

fn xor(a: &[u8], b: &[u8]) -> Vec<u8> {
    a.iter().zip(b).map(|(a, b)| a ^ b).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use aws_lc_rs::rsa::{KeySize, OaepPrivateDecryptingKey, PrivateDecryptingKey};
    use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};

    use super::*;

    const NONCE: &[u8] = b"abcdefghijklmnopqrst";

    #[test]
    fn a_server_that_knows_only_the_double_hash_can_check_the_native_scramble() {
        let answer = native_scramble(b"secret", NONCE);
        let sha1 = |parts: &[&[u8]]| hash(&digest::SHA1_FOR_LEGACY_USE_ONLY, parts);
        let stored = sha1(&[&sha1(&[b"secret"])]);
        let once = xor(&answer, &sha1(&[NONCE, &stored]));
        assert_eq!(*sha1(&[&once]), *stored);
        assert!(Plugin::Native.answer(b"", NONCE).is_empty());
    }

    #[test]
    fn a_signature_is_an_ed25519_signature_of_the_key_that_the_password_gives() {
        // A password of 32 bytes is a seed of RFC 8032: there both must agree.
        let password = [7; 32];
        let pair = Ed25519KeyPair::from_seed_unchecked(&password).unwrap();
        let signature = ed25519_signature(&password, NONCE);
        UnparsedPublicKey::new(&ED25519, pair.public_key().as_ref()).verify(NONCE, &signature).unwrap();
        assert_eq!(signature[..], *pair.sign(NONCE).as_ref());
    }

    #[test]
    fn an_encrypted_password_is_read_by_the_owner_of_the_key_and_nonsense_is_no_key() {
        use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
        let private = PrivateDecryptingKey::generate(KeySize::Rsa2048).unwrap();
        let der: PublicKeyX509Der<'_> = private.public_key().as_der().unwrap();
        let text = {
            use base64::Engine;
            base64::engine::general_purpose::STANDARD.encode(der.as_ref())
        };
        let pem = format!("-----BEGIN PUBLIC KEY-----\n{text}\n-----END PUBLIC KEY-----\n");
        let sealed = encrypt_password(b"secret", NONCE, pem.as_bytes()).unwrap();
        let private = OaepPrivateDecryptingKey::new(private).unwrap();
        let mut plain = [0; 512];
        let plain = private.decrypt(&OAEP_SHA1_MGF1SHA1, &sealed, &mut plain, None).unwrap();
        assert_eq!(xor(plain, NONCE), b"secret\0");
        for bad in [&b""[..], b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"] {
            assert_eq!(encrypt_password(b"secret", NONCE, bad), None);
        }
        assert_eq!(encrypt_password(&[b'x'; 4096], NONCE, pem.as_bytes()), None, "longer than the key can take");
        assert_eq!(encrypt_password(b"secret", b"", pem.as_bytes()), None);
    }
}
