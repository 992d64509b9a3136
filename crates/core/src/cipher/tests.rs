#![allow(clippy::unwrap_used)]

use std::os::unix::fs::PermissionsExt;

use aws_lc_rs::agreement::{PrivateKey, UnparsedPublicKey, X25519, agree};
use proptest::prelude::*;
use zeroize::Zeroizing;

use super::*;

const SET: [u8; 16] = *b"media set number";
// The key pairs of RFC 7748, section 6.1.
const ALICE: &str = "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a";
const BOB: &str = "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb";
const EXAMPLE_KEY_FILE: &str = "# Alice of RFC 7748\n\
    FULLBORE-SECRET-KEY-1 dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCr1LwfM\n\
    FULLBORE-PUBLIC-KEY-1 hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo6iEtf\n";

fn hex<const N: usize>(text: &str) -> [u8; N] {
    let digits: Vec<u8> = text.chars().filter_map(|digit| digit.to_digit(16)).map(|digit| digit as u8).collect();
    let bytes: Vec<u8> = digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect();
    bytes.try_into().unwrap()
}

#[test]
fn aes_256_gcm_gives_the_values_of_its_specification() {
    // Test case 16 of McGrew and Viega, "The Galois/Counter Mode of Operation".
    let key = aes_gcm::gcm_key(&hex("feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308"));
    let nonce = hex("cafebabefacedbaddecaf888");
    let aad: [u8; 20] = hex("feedfacedeadbeeffeedfacedeadbeefabaddad2");
    let plain: [u8; 60] = hex(concat!(
        "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72",
        "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39"
    ));
    let mut bytes = plain;
    let tag = aes_gcm::seal(&key, nonce, &aad, &mut bytes).unwrap();
    assert_eq!(tag, hex("76fc6ece0f4e1768cddf8853bb2d551b"));
    let sealed: [u8; 60] = hex(concat!(
        "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa",
        "8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662"
    ));
    assert_eq!(bytes, sealed);
    aes_gcm::open_in_place(&key, nonce, &aad, &tag, &mut bytes).unwrap();
    assert_eq!(bytes, plain);
}

#[test]
fn hkdf_gives_the_values_of_rfc_5869() {
    let salt: [u8; 13] = hex("000102030405060708090a0b0c");
    let info: [u8; 10] = hex("f0f1f2f3f4f5f6f7f8f9");
    let first: [u8; 32] = hex("3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf");
    assert_eq!(*hkdf_sha256(&salt, &[0x0b; 22], &[&info[..4], &info[4..]]), first);
    let without_salt: [u8; 32] = hex("8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d");
    assert_eq!(*hkdf_sha256(&[], &[0x0b; 22], &[]), without_salt);
}

#[test]
fn x25519_gives_the_keys_of_rfc_7748() {
    let alice = SecretKey::new(Zeroizing::new(hex(ALICE))).unwrap();
    let bob = SecretKey::new(Zeroizing::new(hex(BOB))).unwrap();
    assert_eq!(*alice.public().bytes(), hex("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"));
    assert_eq!(*bob.public().bytes(), hex("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"));
    let shared: [u8; 32] = hex("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742");
    for (mine, theirs) in [(&alice, &bob), (&bob, &alice)] {
        let mine = PrivateKey::from_private_key(&X25519, &mine.bytes()[..]).unwrap();
        let theirs = UnparsedPublicKey::new(&X25519, theirs.public().bytes());
        assert!(agree(&mine, theirs, (), |secret| if secret == shared { Ok(()) } else { Err(()) }).is_ok());
    }
}

/// `docs/media-format-encryption.md`, "Example": made with other libraries, from that page alone.
#[test]
fn the_example_of_the_format_opens() {
    let key = KeyFile::parse("example", EXAMPLE_KEY_FILE.as_bytes()).unwrap();
    assert_eq!(key.id().to_string(), "c120c662fd009e925d9934ed0ab882ab");
    let mut record = [0; WrappedKey::LENGTH];
    record[..96].copy_from_slice(&hex::<96>(concat!(
        "c120c662fd009e925d9934ed0ab882ab",
        "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f",
        "80bd239e1f417a8f3a8e2b00d1c1c3f493bb0ffb30db522d07b2b9acc66a4d0b",
        "9cd03c150f272c448db5685991c28a32"
    )));
    let wrapped = WrappedKey::from_bytes(&record).unwrap();
    assert_eq!(wrapped.to_bytes(), record);
    let data_key = unwrap(std::slice::from_ref(&wrapped), key.secret().unwrap(), &SET).unwrap();
    assert_eq!(*data_key.bytes(), std::array::from_fn(|index| index as u8));
    let mac = hex("363702349d355aa18f23f2543d2734b2251151d67bded1b416d5a43ed164e3dd");
    assert!(FooterKey::new(&data_key).verify_mac(b"footer", &mac));
    let tag = hex("0b60fa91cf7ba9987273b4a6f1d736e2");
    let mut plain = [0; 9];
    let sealed: [u8; 9] = hex("823120c88c75e8d64c");
    Opener::new(&data_key).open(0x0102_0304_0506_0708, b"header", &tag, &sealed, &mut plain).unwrap();
    assert_eq!(&plain, b"forty-two");
    let sidecar = Sidecar { media_set_id: SET, records: vec![wrapped] }.to_bytes().unwrap();
    assert_eq!(sidecar[160..], 0x830d_09e9_u32.to_le_bytes());
}

#[test]
fn hmac_of_the_footer_knows_its_bytes_and_its_key() {
    let key = FooterKey::new(&DataKey(Zeroizing::new([1; 32])));
    let mac = key.mac(b"footer");
    assert!(key.verify_mac(b"footer", &mac));
    assert!(!key.verify_mac(b"Footer", &mac));
    assert!(!FooterKey::new(&DataKey(Zeroizing::new([2; 32]))).verify_mac(b"footer", &mac));
    for bit in 0..256 {
        let mut changed = mac;
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(!key.verify_mac(b"footer", &changed), "bit {bit} went unnoticed");
    }
}

fn key(byte: u8) -> SecretKey {
    SecretKey::new(Zeroizing::new([byte; 32])).unwrap()
}

#[test]
fn each_recipient_opens_the_set_and_nobody_else() {
    let keys = [key(1), key(2), key(3)];
    let publics: Vec<PublicKey> = keys.iter().map(|key| key.public().clone()).collect();
    let data_key = DataKey::random().unwrap();
    let records = wrap_for(&publics, &data_key, &SET).unwrap();
    for key in &keys {
        assert_eq!(unwrap(&records, key, &SET).unwrap().bytes(), data_key.bytes());
        assert_eq!(unwrap(&records, key, b"another media se").unwrap_err(), UnwrapError::Damaged { given: key.id() });
    }
    let stranger = key(4);
    let error = unwrap(&records, &stranger, &SET).unwrap_err().at("/mnt/a/x.bore", 64);
    let text = error.to_string();
    for id in keys.iter().map(SecretKey::id).chain([stranger.id()]) {
        assert!(text.contains(&id.to_string()), "{text}");
    }
    assert!(text.contains("/mnt/a/x.bore") && text.contains("--key") && error.exit_kind().exit_code() == 1, "{text}");
    assert!(unwrap(&[], &stranger, &SET).unwrap_err().to_string().contains("no key at all"));
}

#[test]
fn the_same_data_key_is_never_wrapped_to_the_same_bytes() {
    let (data_key, public) = (DataKey::random().unwrap(), [key(1).public().clone()]);
    assert_ne!(wrap_for(&public, &data_key, &SET).unwrap(), wrap_for(&public, &data_key, &SET).unwrap());
}

#[test]
fn every_flipped_bit_of_a_wrapped_key_is_noticed() {
    let mine = key(1);
    let records = wrap_for(&[mine.public().clone()], &DataKey::random().unwrap(), &SET).unwrap();
    let mut bytes = records[0].to_bytes();
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        let opened = WrappedKey::from_bytes(&bytes).ok().and_then(|record| unwrap(&[record], &mine, &SET).ok());
        assert!(opened.is_none(), "bit {bit} went unnoticed");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn no_recipient_too_many_or_the_same_twice_is_a_usage_error() {
    let data_key = DataKey::random().unwrap();
    let publics: Vec<PublicKey> = (0..65).map(|byte| PublicKey::new([byte + 9; 32])).collect();
    for recipients in [&publics[..0], &publics[..65], &[publics[0].clone(), publics[0].clone()]] {
        assert_eq!(wrap_for(recipients, &data_key, &SET).unwrap_err().exit_kind().exit_code(), 2);
    }
    assert_eq!(wrap_for(&publics[..64], &data_key, &SET).unwrap().len(), 64);
}

#[test]
fn a_public_key_of_small_order_is_refused() {
    for first in [0, 1] {
        let mut bytes = [0; 32];
        bytes[0] = first;
        assert!(wrap_for(&[PublicKey::new(bytes)], &DataKey::random().unwrap(), &SET).is_err());
    }
}

#[test]
fn no_secret_is_ever_shown() {
    let file = KeyFile::parse("example", EXAMPLE_KEY_FILE.as_bytes()).unwrap();
    let data_key = DataKey(Zeroizing::new([0xab; 32]));
    let shown = format!("{file:?} {:?} {data_key:?}", file.secret().unwrap());
    for secret in ["dwdt", "119", "0x77", "7707", "171", "abab"] {
        assert!(!shown.contains(secret), "{shown}");
    }
}

#[test]
fn cipher_numbers_are_fixed() {
    for number in 0..=255 {
        assert_eq!(CipherId::from_number(number).map(CipherId::number), (number < 2).then_some(number));
    }
    assert_eq!(CipherId::from_number(1).map(CipherId::name), Some("aes-256-gcm"));
}

#[test]
fn key_files_are_private_new_and_read_back() {
    let directory = tempfile::tempdir().unwrap();
    let (secret, public) = (directory.path().join("k.key"), directory.path().join("k.pub"));
    let made = KeyFile::generate().unwrap();
    made.write_new(&secret).unwrap();
    made.write_public_new(&public).unwrap();
    assert_eq!(std::fs::metadata(&secret).unwrap().permissions().mode() & 0o7777, 0o600);
    let (secret_file, public_file) = (KeyFile::read(&secret).unwrap(), KeyFile::read(&public).unwrap());
    assert_eq!(secret_file.public(), made.public());
    assert_eq!(public_file.public(), made.public());
    assert_eq!(secret_file.secret().unwrap().bytes(), made.secret().unwrap().bytes());
    let text = public_file.secret().unwrap_err().to_string();
    assert!(text.contains("k.pub") && text.contains(&made.id().to_string()), "{text}");
    assert!(!std::fs::read_to_string(&public).unwrap().contains("SECRET"));
    assert!(std::fs::read_to_string(&secret).unwrap().contains("# created: 20"));

    let before = std::fs::read(&secret).unwrap();
    let text = KeyFile::generate().unwrap().write_new(&secret).unwrap_err().to_string();
    assert!(text.contains("already there"), "{text}");
    assert_eq!(std::fs::read(&secret).unwrap(), before, "an existing key file was touched");

    for mode in [0o640, 0o604, 0o620, 0o601] {
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(mode)).unwrap();
        let text = KeyFile::read(&secret).unwrap_err().to_string();
        assert!(text.contains("chmod 600"), "{text}");
    }
    std::fs::set_permissions(&public, std::fs::Permissions::from_mode(0o666)).unwrap();
    assert!(KeyFile::read(&public).is_ok());
    assert!(KeyFile::read(&directory.path().join("missing")).unwrap_err().to_string().contains("missing"));
    assert!(KeyFile::read(directory.path()).is_err());
}

#[test]
fn every_typing_mistake_in_a_key_is_found() {
    for (at, right) in EXAMPLE_KEY_FILE.char_indices().skip(20) {
        for wrong in ['A', 'b', '7', '+', '/', '=', ' ', '\n'] {
            let mut text = EXAMPLE_KEY_FILE.to_owned();
            text.replace_range(at..at + right.len_utf8(), &wrong.to_string());
            if let Ok(file) = KeyFile::parse("typed", text.as_bytes()) {
                let same =
                    *file.public().bytes() == hex("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a");
                assert!(same, "{wrong:?} at {at} made another key");
            }
        }
    }
}

#[test]
fn a_file_that_is_no_key_is_refused_without_quoting_it() {
    let public = EXAMPLE_KEY_FILE.lines().nth(2).unwrap();
    let secret = EXAMPLE_KEY_FILE.lines().nth(1).unwrap();
    let relabelled = secret.replace("SECRET", "PUBLIC");
    let later = secret.replace("KEY-1", "KEY-2");
    let other = KeyFile::generate().unwrap();
    let foreign = {
        let file = tempfile::tempdir().unwrap();
        let path = file.path().join("k");
        other.write_public_new(&path).unwrap();
        std::fs::read_to_string(path).unwrap()
    };
    let long = "# ".repeat(10_000);
    for (text, says) in [
        (String::new(), "no key"),
        ("# only a comment\n".into(), "no key"),
        (format!("{public}\n{public}\n"), "line 2: a second"),
        (relabelled, "line 1: the checksum"),
        (later, "line 1: a kind of key"),
        (format!("{secret}\n{foreign}"), "not that of"),
        ("hunter2\n".into(), "line 1: neither"),
        ("FULLBORE-PUBLIC-KEY-1\n".into(), "48 characters"),
        (secret[..secret.len() - 1].into(), "48 characters"),
        (long, "not a key file"),
    ] {
        let error = KeyFile::parse("some.key", text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(says) && error.contains("some.key"), "{error}");
        assert!(!error.contains("dwdt") && !error.contains("hunter2"), "{error}");
    }
    assert!(KeyFile::parse("binary", &[0xff, 0xfe]).is_err());
    assert!(KeyFile::parse("windows", EXAMPLE_KEY_FILE.replace('\n', "\r\n").as_bytes()).is_ok());
}

fn sidecar(count: u8) -> Sidecar {
    let publics: Vec<PublicKey> = (0..count).map(|byte| PublicKey::new([byte + 9; 32])).collect();
    Sidecar { media_set_id: SET, records: wrap_for(&publics, &DataKey::random().unwrap(), &SET).unwrap() }
}

#[test]
fn a_sidecar_is_replaced_whole() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("set.keys");
    for count in [1, 64, 2] {
        let written = sidecar(count);
        written.write(&path).unwrap();
        assert_eq!(Sidecar::read(&path).unwrap(), written);
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "something was left behind");
    assert!(sidecar(1).write(&directory.path().join("no/such/directory")).is_err());
    assert!(Sidecar { media_set_id: SET, records: Vec::new() }.write(&path).is_err());
    std::fs::create_dir(directory.path().join("d")).unwrap();
    assert!(sidecar(1).write(&directory.path().join("d")).is_err());
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2, "a failure left something behind");
}

#[test]
fn every_flipped_bit_and_every_cut_of_a_sidecar_is_noticed() {
    let mut bytes = sidecar(2).to_bytes().unwrap();
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(Sidecar::parse(&bytes).is_err(), "bit {bit} went unnoticed");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    for length in 0..bytes.len() {
        assert!(Sidecar::parse(&bytes[..length]).is_err(), "{length}");
    }
    let longer = [&bytes[..], &[0]].concat();
    assert!(matches!(Sidecar::parse(&longer), Err(BadSidecar::Length { .. })));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("set.keys");
    std::fs::write(&path, vec![b'f'; 1 << 20]).unwrap();
    let error = Sidecar::read(&path).unwrap_err();
    assert!(error.to_string().contains("set.keys") && error.exit_kind().exit_code() == 3, "{error}");
}

proptest! {
    #[test]
    fn what_was_sealed_opens_and_nothing_else(
        sequence in any::<u64>(),
        aad in prop::collection::vec(any::<u8>(), 0..100),
        plain in prop::collection::vec(any::<u8>(), 0..3000),
        at in any::<prop::sample::Index>(),
        bit in 0..8,
    ) {
        let data_key = DataKey(Zeroizing::new([7; 32]));
        let (sealer, opener) = (Sealer::new(&data_key), Opener::new(&data_key));
        let mut sealed = plain.clone();
        let tag = sealer.seal_in_place(sequence, &aad, &mut sealed).unwrap();
        let mut opened = vec![1; plain.len()];
        prop_assert_eq!(opener.open(sequence, &aad, &tag, &sealed, &mut opened), Ok(()));
        prop_assert_eq!(&opened, &plain);
        let mut in_place = sealed.clone();
        prop_assert_eq!(opener.open_in_place(sequence, &aad, &tag, &mut in_place), Ok(()));
        prop_assert_eq!(&in_place, &plain);

        let mut all = [&sealed[..], &tag, &aad].concat();
        let at = at.index(all.len());
        all[at] ^= 1_u8 << bit;
        let (changed, rest) = all.split_at(sealed.len());
        let changed_tag = rest[..16].try_into().unwrap();
        opened.fill(1);
        prop_assert_eq!(opener.open(sequence, &rest[16..], &changed_tag, changed, &mut opened), Err(OpenError));
        prop_assert!(opened.iter().all(|&byte| byte == 0), "unauthenticated bytes got out");
        let mut in_place = changed.to_vec();
        prop_assert_eq!(opener.open_in_place(sequence, &rest[16..], &changed_tag, &mut in_place), Err(OpenError));
        prop_assert!(in_place.iter().all(|&byte| byte == 0), "unauthenticated bytes got out");

        prop_assert_eq!(opener.open(sequence ^ 1, &aad, &tag, &sealed, &mut opened), Err(OpenError));
        let other = Opener::new(&DataKey(Zeroizing::new([8; 32])));
        prop_assert_eq!(other.open(sequence, &aad, &tag, &sealed, &mut opened), Err(OpenError));
        let mut longer = vec![1; plain.len() + 1];
        prop_assert_eq!(opener.open(sequence, &aad, &tag, &sealed, &mut longer), Err(OpenError));
    }

    #[test]
    fn any_bytes_may_be_given_to_the_parsers(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        text in "(FULLBORE-(SECRET|PUBLIC)-KEY-[0-9] [A-Za-z0-9+/=]{0,60}\n|#.*\n|.*\n){0,4}",
    ) {
        let _ = Sidecar::parse(&bytes);
        let _ = Sidecar::parse(&[b"fbKEYS\0\0\0\0", &bytes[..]].concat());
        let _ = KeyFile::parse("x", &bytes);
        let _ = KeyFile::parse("x", text.as_bytes());
        if let Some(record) = bytes.first_chunk() {
            let mut record: [u8; WrappedKey::LENGTH] = *record;
            record[96..].fill(0);
            let mine = key(1);
            record[..16].copy_from_slice(&mine.id().0);
            let record = WrappedKey::from_bytes(&record).unwrap();
            prop_assert!(unwrap(&[record], &mine, &SET).is_err());
        }
    }

    #[test]
    fn wrapped_keys_and_sidecars_survive_their_bytes(count in 1..5_u8, set in any::<[u8; 16]>()) {
        let mut written = sidecar(count);
        written.media_set_id = set;
        prop_assert_eq!(Sidecar::parse(&written.to_bytes().unwrap()).unwrap(), written);
    }
}
