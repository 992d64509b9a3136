//! Mini-transactions: records, a byte for the lap on which they were written, and a checksum.

use fullbore_core::checksum::Crc32c;

use super::record::{Stop, record_length};
use super::ring::Ring;

/// The most bytes of records in one mini-transaction.
pub const RECORDS_MAX: usize = 1 << 20;
/// Bytes after the records: the lap's byte and the checksum.
const END: usize = 5;
/// Bytes between them in an encrypted log.
const NONCE: usize = 8;
/// The most bytes of one mini-transaction, its end included.
pub const LENGTH_MAX: usize = RECORDS_MAX + END + NONCE;

/// A mini-transaction at the start of some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MiniTransaction {
    /// Bytes of records; then comes the lap's byte.
    pub records: usize,
    /// Bytes in all.
    pub length: usize,
}

/// Parses the mini-transaction that begins at `lsn` with the first of `bytes`.
///
/// # Errors
/// [`Stop::Short`] if `bytes` ends within it, and [`Stop::Bad`] if this is not a mini-transaction of the lap of `lsn`:
/// the end of the log, or the rest of another lap.
///
/// The checksum does not cover the LSN. So stale bytes of the same lap can look like the log: only bytes below the
/// server's flushed LSN may be given.
pub fn parse(bytes: &[u8], lsn: u64, ring: &Ring, encrypted: bool) -> Result<MiniTransaction, Stop> {
    let mut at = 0;
    loop {
        match *bytes.get(at).ok_or(Stop::Short)? {
            0 | 1 => break,
            _ => at += record_length(&bytes[at..])?,
        }
        if at > RECORDS_MAX {
            return Err(Stop::Bad("a mini-transaction that is too long"));
        }
    }
    if at == 0 {
        return Err(Stop::Bad("the end of the log"));
    }
    let nonce = if encrypted { NONCE } else { 0 };
    let length = at + END + nonce;
    let end = bytes.get(at..length).ok_or(Stop::Short)?;
    if end[0] != ring.sequence(lsn + at as u64) {
        return Err(Stop::Bad("a mini-transaction of another lap"));
    }
    let mut checksum = Crc32c::new();
    checksum.update(&bytes[..at]);
    checksum.update(&end[1..1 + nonce]);
    if end[1 + nonce..] != checksum.finish().to_be_bytes() {
        return Err(Stop::Bad("a mini-transaction with a wrong checksum"));
    }
    Ok(MiniTransaction { records: at, length })
}

/// The records of the first mini-transaction of a log that is not encrypted, and the bytes after it. For bytes that
/// [`parse`] found good: it does not check the lap and the checksum. `None` at the end.
pub fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut at = 0;
    while *bytes.get(at)? > 1 {
        at += record_length(&bytes[at..]).ok()?;
    }
    Some((&bytes[..at], bytes.get(at + END..)?)).filter(|_| at > 0)
}

/// Ends `records` at `lsn` as a server would: for tests and fuzzing.
#[doc(hidden)]
pub fn seal(records: &[u8], lsn: u64, ring: &Ring, nonce: Option<u64>) -> Vec<u8> {
    let mut bytes = records.to_vec();
    let mut checksum = Crc32c::new();
    checksum.update(records);
    bytes.push(ring.sequence(lsn + records.len() as u64));
    if let Some(nonce) = nonce {
        checksum.update(&nonce.to_be_bytes());
        bytes.extend_from_slice(&nonce.to_be_bytes());
    }
    bytes.extend_from_slice(&checksum.finish().to_be_bytes());
    bytes
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::record::put_record;
    use super::*;
    use proptest::prelude::*;

    fn records(bodies: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (index, body) in bodies.iter().enumerate() {
            // Type 0 (a freed page) always has 2 to 15 bytes: its first byte would otherwise look like an end.
            put_record(((index as u8 % 5 + 1) << 4) | if index % 3 == 2 { 0x80 } else { 0 }, body, &mut bytes);
        }
        bytes
    }

    #[test]
    fn the_record_of_a_checkpoint_is_16_bytes_and_24_when_encrypted() {
        let ring = Ring::new(12288, 4 << 20).unwrap();
        let mut record = vec![0xFA, 0, 0];
        record.extend_from_slice(&50_000_u64.to_be_bytes());
        for (nonce, length) in [(None, 16), (Some(7), 24)] {
            let sealed = seal(&record, 60_000, &ring, nonce);
            assert_eq!(parse(&sealed, 60_000, &ring, nonce.is_some()), Ok(MiniTransaction { records: 11, length }));
        }
    }

    #[test]
    fn the_end_of_the_log_and_another_lap_are_told_from_more_to_come() {
        let ring = Ring::new(12288, 4 << 20).unwrap();
        assert_eq!(parse(&[], 12288, &ring, false), Err(Stop::Short));
        assert!(matches!(parse(&[0; 100], 12288, &ring, false), Err(Stop::Bad(_))));
        let sealed = seal(&records(&[vec![1; 9]]), 12288, &ring, None);
        assert!(parse(&sealed, 12288, &ring, false).is_ok());
        assert_eq!(
            parse(&sealed, 12288 + ring.capacity(), &ring, false),
            Err(Stop::Bad("a mini-transaction of another lap"))
        );
        let endless = [0x31_u8, 5].repeat(RECORDS_MAX);
        assert!(matches!(parse(&endless, 12288, &ring, false), Err(Stop::Bad(_))));
    }

    proptest! {
        #[test]
        fn a_sealed_mini_transaction_is_found_and_no_part_or_change_of_it(
            bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..600), 1..6),
            distance in 0_u64..1 << 40, nonce in prop::option::of(any::<u64>()), cut in any::<prop::sample::Index>(),
            flip in any::<prop::sample::Index>(),
        ) {
            let ring = Ring::new(12288, 4 << 20).unwrap();
            let lsn = 12288 + distance;
            let records = records(&bodies);
            let mut sealed = seal(&records, lsn, &ring, nonce);
            let expected = MiniTransaction { records: records.len(), length: sealed.len() };
            prop_assert_eq!(parse(&sealed, lsn, &ring, nonce.is_some()), Ok(expected));
            if nonce.is_none() {
                let twice = [&sealed[..], &sealed].concat();
                prop_assert_eq!(split(&twice), Some((&records[..], &sealed[..])));
                prop_assert_eq!(split(&sealed), Some((&records[..], &[][..])));
            }
            let cut = cut.index(sealed.len());
            prop_assert_eq!(parse(&sealed[..cut], lsn, &ring, nonce.is_some()), Err(Stop::Short));
            let bit = flip.index(sealed.len() * 8);
            sealed[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(parse(&sealed, lsn, &ring, nonce.is_some()).is_err());
        }
    }
}
