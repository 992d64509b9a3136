//! MariaDB's redo log: mini-transactions and their records, as they are and sealed.

use fullbore_engines::mariadb::redo::framing::{LENGTH_MAX, parse, seal, split};
use fullbore_engines::mariadb::redo::record::{record_length, records};
use fullbore_engines::mariadb::redo::ring::Ring;
use fullbore_engines::mariadb::redo::touched::Touched;

/// One input.
pub fn run(input: &[u8]) {
    let Some((&[choice, lap], bytes)) = input.split_first_chunk::<2>() else { return };
    let Some(ring) = Ring::new(12288, 4 << 20) else { return };
    let encrypted = choice & 1 == 1;
    let start = 12288 + ring.capacity() * u64::from(lap);
    let mut at = 0;
    while let Ok(found) = parse(&bytes[at..], start + at as u64, &ring, encrypted) {
        assert!(found.records > 0 && found.records < found.length && found.length <= LENGTH_MAX + 15);
        let mut first = true;
        for record in records(&bytes[at..at + found.records]) {
            let file = record.file(first);
            first &= file.is_some();
        }
        at += found.length;
    }
    // The filter is large: one for all inputs.
    static TOUCHED: std::sync::LazyLock<Touched> = std::sync::LazyLock::new(|| Touched::new(false));
    TOUCHED.look(bytes);
    // All records that there are, sealed, are one mini-transaction.
    let mut end = 0;
    while bytes.get(end).is_some_and(|kind| *kind > 1) {
        match record_length(&bytes[end..]) {
            Ok(length) if end + length <= bytes.len() => end += length,
            _ => break,
        }
    }
    if end > 0 {
        let sealed = seal(&bytes[..end], start, &ring, encrypted.then_some(7));
        let found = parse(&sealed, start, &ring, encrypted).expect("what is sealed is read");
        assert_eq!((found.records, found.length), (end, sealed.len()));
        assert!(records(&sealed[..end]).count() > 0);
        if !encrypted {
            assert_eq!(split(&sealed), Some((&bytes[..end], &[][..])));
            TOUCHED.look(&sealed);
        }
    }
}
