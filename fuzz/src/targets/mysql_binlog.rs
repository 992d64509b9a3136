//! Events of a binary log as a server sends them, and GTIDs as text.

use fullbore_engines::mysql_family::Dialect;
use fullbore_engines::mysql_family::binlog::event::{Body, CRC, HEADER, Header};
use fullbore_engines::mysql_family::binlog::gtid::{Gtid, GtidSet, Gtids};
use fullbore_engines::mysql_family::binlog::walk::Walk;

/// One input: events, one after the other; and the same as a text.
pub fn run(input: &[u8]) {
    walk(input);
    let Ok(text) = std::str::from_utf8(input) else { return };
    for dialect in [Dialect::MySql, Dialect::MariaDb] {
        if let Some(gtids) = Gtids::parse(dialect, text) {
            assert_eq!(Gtids::parse(dialect, &gtids.to_string()), Some(gtids), "it is read as it was shown");
        }
    }
}

fn walk(mut input: &[u8]) {
    let mut walk = Walk::new("binlog.000001", None);
    while let Some((bytes, rest)) = input.split_first_chunk::<HEADER>() {
        let Some(header) = Header::parse(bytes) else { return };
        let length = (header.size as usize - HEADER).min(rest.len());
        let (body, after) = rest.split_at(length);
        input = after;
        let Some(body) = body.len().checked_sub(CRC).and_then(|end| body.get(..end)) else { return };
        let Ok(parsed) = Body::parse(&header, body) else { continue };
        if let Body::Rotate { offset, file } = &parsed {
            let _ = walk.enter(file, *offset);
        }
        if let Body::Previous(set) = &parsed {
            joined(set);
        }
        if walk.pass(&header, &parsed, 0).is_ok()
            && let (Body::Group(group), Some(Gtids::MySql(set))) = (&parsed, &walk.gtids)
            && let Some(Gtid::MySql { uuid, tag, number }) = &group.gtid
        {
            assert!(set.has(uuid, tag, *number));
        }
    }
}

/// A set is within itself, and joined with itself it does not change.
fn joined(set: &GtidSet) {
    let mut twice = set.clone();
    twice.join(set);
    assert!(&twice == set && set.is_within(set) && GtidSet::default().is_within(set));
}
