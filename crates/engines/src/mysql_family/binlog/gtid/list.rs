//! MariaDB's GTIDs: the last number of each domain.

use std::collections::BTreeMap;
use std::fmt;

use crate::mysql_family::binlog::event::take;

/// MariaDB's GTID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MariaGtid {
    /// The domain.
    pub domain: u32,
    /// The server that wrote the group first.
    pub server: u32,
    /// Its number.
    pub sequence: u64,
}

impl fmt::Display for MariaGtid {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}-{}-{}", self.domain, self.server, self.sequence)
    }
}

/// MariaDB: the last GTID of each domain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GtidList(BTreeMap<u32, MariaGtid>);

impl GtidList {
    /// Parses the server's words: `0-1-100,1-2-5`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut list = Self::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            list.add(MariaGtid::parse(part)?);
        }
        Some(list)
    }

    /// From the body of a GTID_LIST event: the count in the lower 28 bits; domain, server and number of each. The last
    /// of a domain is its newest.
    pub(in crate::mysql_family::binlog) fn decode(mut body: &[u8]) -> Result<Self, &'static str> {
        const BROKEN: &str = "a GTID_LIST event has an unknown form";
        let count = take::<4>(&mut body).map(|count| u32::from_le_bytes(*count) & 0x0fff_ffff).ok_or(BROKEN)?;
        let mut list = Self::default();
        for _ in 0..count {
            let entry = take::<16>(&mut body).ok_or(BROKEN)?;
            let word = |at: usize| u32::from_le_bytes([entry[at], entry[at + 1], entry[at + 2], entry[at + 3]]);
            let sequence = u64::from(word(8)) | u64::from(word(12)) << 32;
            list.add(MariaGtid { domain: word(0), server: word(4), sequence });
        }
        Ok(list)
    }

    /// The newest GTID of its domain.
    pub fn add(&mut self, gtid: MariaGtid) {
        self.0.insert(gtid.domain, gtid);
    }

    /// The newest of a domain.
    pub fn of(&self, domain: u32) -> Option<MariaGtid> {
        self.0.get(&domain).copied()
    }

    /// All of them, in the order of the domains.
    pub fn all(&self) -> impl Iterator<Item = &MariaGtid> {
        self.0.values()
    }
}

impl MariaGtid {
    /// Parses `0-1-100`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split('-');
        let mut word = || numbers.next();
        let (domain, server) = (word()?.parse().ok()?, word()?.parse().ok()?);
        let sequence = word()?.parse().ok()?;
        word().is_none().then_some(Self { domain, server, sequence })
    }
}

impl fmt::Display for GtidList {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, gtid) in self.0.values().enumerate() {
            write!(out, "{}{gtid}", if at > 0 { "," } else { "" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_a_domain_is_its_newest() {
        let list = GtidList::parse("0-1-100,1-2-5").unwrap();
        assert_eq!((list.to_string().as_str(), list.of(0).unwrap().sequence), ("0-1-100,1-2-5", 100));
        assert_eq!(GtidList::parse("0-1"), None);
        let mut body = 2_u32.to_le_bytes().to_vec();
        for (domain, server, sequence) in [(0_u32, 1_u32, 7_u64), (0, 2, 9)] {
            body.extend_from_slice(&domain.to_le_bytes());
            body.extend_from_slice(&server.to_le_bytes());
            body.extend_from_slice(&sequence.to_le_bytes());
        }
        assert_eq!(GtidList::decode(&body).unwrap().to_string(), "0-2-9");
        assert!(GtidList::decode(&body[..30]).is_err());
    }
}
