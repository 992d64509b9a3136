//! Keys of encrypted tablespaces: the donor sends them in clear, in page 0 or with a new file. They must not be stored
//! in clear.
//!
//! [`wrap`] encrypts the key with the server's built-in master key. That key is a public constant of the server and
//! hides nothing. But a server with any keyring starts on such a file and wraps the key with its own master key. Media
//! with the page must still be encrypted.

use aws_lc_rs::cipher::{AES_256, EncryptingKey, UnboundCipherKey};
use fullbore_core::checksum::crc32c;

use super::descriptor::{BadMessage, TablespaceKey};
use super::page_zero::{self, PageSize};

/// Magic, master key id, the server's id, key and initialisation vector, checksum of these 64 bytes.
const INFORMATION: usize = 3 + 4 + 36 + 64 + 4;
const MAGIC: &[u8; 3] = b"lCC";
const ID: usize = 3;
const SERVER: usize = 7;
const KEY: usize = 43;
const CHECKSUM: usize = 107;
/// The built-in master key, padded with zeros.
const BUILT_IN: &[u8; 16] = b"DefaultMasterKey";

/// Where the information is in page 0: after the page's header, the FSP header and the descriptors of extents.
fn place(page: PageSize) -> usize {
    let pages_in_extent = match page.bytes() {
        bytes @ ..=16384 => (1 << 20) / bytes,
        _ => 64,
    };
    (38 + 112 + 40 * (page.bytes() / pages_in_extent)) as usize
}

/// The result of [`wrap`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrapped {
    /// A key in clear: it is wrapped now, and the page's checksum is renewed.
    Now,
    /// A key that is wrapped with a master key already, as in a page that was copied from the file.
    Before,
    /// No key.
    Nothing,
}

/// Wraps the key in page 0 of a tablespace with the server's page size. An error if the place of the key has other
/// data: it must not be stored.
pub fn wrap(bytes: &mut [u8], page: PageSize) -> Result<Wrapped, BadMessage> {
    if bytes.len() != page.bytes() as usize {
        return Err(BadMessage("a first page of another size than the server's pages"));
    }
    let at = place(page);
    let information = &mut bytes[at..at + INFORMATION];
    if !information.starts_with(MAGIC) {
        let empty = information.iter().all(|byte| *byte == 0);
        return if empty { Ok(Wrapped::Nothing) } else { Err(BadMessage("a key in an unknown form")) };
    }
    let checksum = crc32c(&information[KEY..CHECKSUM]).to_be_bytes();
    if information[CHECKSUM..] != checksum {
        // The checksum is that of the key in clear.
        return Ok(Wrapped::Before);
    }
    information[ID..ID + 4].fill(0);
    encrypt(&mut information[KEY..CHECKSUM])?;
    page_zero::seal(bytes, false);
    Ok(Wrapped::Now)
}

/// Puts a key, wrapped, into page 0 of a tablespace that was just created.
pub(super) fn insert(bytes: &mut [u8], page: PageSize, key: &TablespaceKey, server: &str) -> Result<(), BadMessage> {
    let at = place(page);
    let information = &mut bytes[at..at + INFORMATION];
    information[..3].copy_from_slice(MAGIC);
    let server = &server.as_bytes()[..server.len().min(KEY - SERVER)];
    information[SERVER..SERVER + server.len()].copy_from_slice(server);
    information[KEY..CHECKSUM].copy_from_slice(&key.0[..]);
    let checksum = crc32c(&key.0[..]);
    information[CHECKSUM..].copy_from_slice(&checksum.to_be_bytes());
    encrypt(&mut information[KEY..CHECKSUM])?;
    page_zero::seal(bytes, false);
    Ok(())
}

/// AES-256 in ECB mode, without padding: as the server wraps keys.
fn encrypt(bytes: &mut [u8]) -> Result<(), BadMessage> {
    let failed = |_| BadMessage("a key that cannot be encrypted");
    let mut key = [0; 32];
    key[..BUILT_IN.len()].copy_from_slice(BUILT_IN);
    let key = EncryptingKey::ecb(UnboundCipherKey::new(&AES_256, &key).map_err(failed)?).map_err(failed)?;
    key.encrypt(bytes).map(drop).map_err(failed)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use aws_lc_rs::cipher::{DecryptingKey, DecryptionContext};
    use zeroize::Zeroizing;

    use super::*;

    fn decrypt(bytes: &mut [u8]) {
        let mut key = [0; 32];
        key[..16].copy_from_slice(BUILT_IN);
        let key = DecryptingKey::ecb(UnboundCipherKey::new(&AES_256, &key).unwrap()).unwrap();
        key.decrypt(bytes, DecryptionContext::None).unwrap();
    }

    #[test]
    fn a_key_in_clear_is_wrapped_once_and_its_place_depends_on_the_page_size() {
        for (size, at) in [(4096, 790), (16384, 10390), (65536, 38 + 112 + 40 * 1024)] {
            let page = PageSize::new(size).unwrap();
            assert_eq!(place(page), at);
            let mut bytes = page_zero::make(9, 0x6021, page, size);
            assert_eq!(wrap(&mut bytes, page), Ok(Wrapped::Nothing));
            bytes[at..at + 3].copy_from_slice(MAGIC);
            bytes[at + KEY..at + CHECKSUM].fill(0x5A);
            let checksum = crc32c(&[0x5A; 64]);
            bytes[at + CHECKSUM..at + INFORMATION].copy_from_slice(&checksum.to_be_bytes());
            assert_eq!(wrap(&mut bytes, page), Ok(Wrapped::Now));
            assert!(!bytes.windows(16).any(|window| window == [0x5A; 16]), "the key is still in clear");
            let sealed = bytes.clone();
            page_zero::seal(&mut bytes, false);
            assert_eq!(bytes, sealed);
            assert_eq!(wrap(&mut bytes, page), Ok(Wrapped::Before));
            assert_eq!(bytes, sealed);
            decrypt(&mut bytes[at + KEY..at + CHECKSUM]);
            assert_eq!(bytes[at + KEY..at + CHECKSUM], [0x5A; 64]);
        }
    }

    #[test]
    fn an_inserted_key_is_wrapped_and_nonsense_in_its_place_is_refused() {
        let page = PageSize::new(16384).unwrap();
        let mut bytes = page_zero::make(9, 0x6021, page, 16384);
        let key = TablespaceKey(Zeroizing::new([7; 64]));
        insert(&mut bytes, page, &key, "0f1f2f3f-0000-1111-2222-333344445555").unwrap();
        assert_eq!(wrap(&mut bytes, page), Ok(Wrapped::Before));
        let at = place(page);
        decrypt(&mut bytes[at + KEY..at + CHECKSUM]);
        assert_eq!(bytes[at + KEY..at + CHECKSUM], [7; 64]);
        bytes[at] = b'x';
        assert!(wrap(&mut bytes, page).is_err());
        assert!(wrap(&mut bytes[..8192], page).is_err());
    }
}
