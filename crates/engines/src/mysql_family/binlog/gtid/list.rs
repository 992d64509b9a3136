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
pub struct GtidList {
    newest: BTreeMap<u32, MariaGtid>,
    /// The last number of each server in each domain, if the list knows all of them.
    servers: Option<BTreeMap<(u32, u32), u64>>,
}

impl GtidList {
    /// Parses the server's words: `0-1-100,1-2-5`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut list = Self::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            list.add(MariaGtid::parse(part)?);
        }
        Some(list)
    }

    /// Parses the GTIDs of all servers, as [`state`](Self::state) writes them.
    pub fn parse_state(text: &str) -> Option<Self> {
        let mut list = Self { servers: Some(BTreeMap::new()), ..Self::default() };
        text.split(',').try_for_each(|part| MariaGtid::parse(part).map(|gtid| list.add(gtid)))?;
        Some(list)
    }

    /// The last GTID of each server in each domain, as `gtid_binlog_state` has them; the newest of a domain is its last.
    /// Empty if the list does not know them.
    pub fn state(&self) -> String {
        let mut all = self.of_servers();
        all.sort_by_key(|gtid| (gtid.domain, self.of(gtid.domain) == Some(*gtid)));
        all.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }

    fn of_servers(&self) -> Vec<MariaGtid> {
        let all = self.servers.iter().flatten();
        all.map(|(&(domain, server), &sequence)| MariaGtid { domain, server, sequence }).collect()
    }

    /// Takes what another list of the same place knows of servers, if this one does not.
    pub fn learn(&mut self, other: &Self) {
        if self.servers.is_none() && self.newest == other.newest {
            self.servers.clone_from(&other.servers);
        }
    }

    /// The GTIDs of another list that this one does not have; `None` if it does not know all servers.
    pub fn lacks(&self, other: &[MariaGtid]) -> Option<Vec<MariaGtid>> {
        let servers = self.servers.as_ref()?;
        let has =
            |gtid: &MariaGtid| servers.get(&(gtid.domain, gtid.server)).is_some_and(|last| gtid.sequence <= *last);
        Some(other.iter().filter(|gtid| !has(gtid)).copied().collect())
    }

    /// What this list has and `before`, a list of an earlier place, does not; `None` if it does not know all servers.
    pub fn beyond(&self, before: &Self) -> Option<Vec<MariaGtid>> {
        before.lacks(&self.of_servers()).filter(|_| self.servers.is_some())
    }

    /// Whether the numbers of each domain have grown since `before`.
    pub fn has_grown(&self, before: &Self) -> bool {
        let grown =
            |gtid: &MariaGtid| before.of(gtid.domain).is_none_or(|old| old == *gtid || old.sequence < gtid.sequence);
        self.all().all(grown)
    }

    /// From the body of a GTID_LIST event: the count in the lower 28 bits; domain, server and number of each. The last
    /// of a domain is its newest.
    pub(in crate::mysql_family::binlog) fn decode(mut body: &[u8]) -> Result<Self, &'static str> {
        const BROKEN: &str = "a GTID_LIST event has an unknown form";
        let count = take::<4>(&mut body).map(|count| u32::from_le_bytes(*count) & 0x0fff_ffff).ok_or(BROKEN)?;
        let mut list = Self { servers: Some(BTreeMap::new()), ..Self::default() };
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
        self.newest.insert(gtid.domain, gtid);
        if let Some(servers) = &mut self.servers {
            servers.insert((gtid.domain, gtid.server), gtid.sequence);
        }
    }

    /// The newest of a domain.
    pub fn of(&self, domain: u32) -> Option<MariaGtid> {
        self.newest.get(&domain).copied()
    }

    /// All of them, in the order of the domains.
    pub fn all(&self) -> impl Iterator<Item = &MariaGtid> {
        self.newest.values()
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
        for (at, gtid) in self.newest.values().enumerate() {
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

    #[test]
    fn a_list_that_knows_all_servers_tells_what_another_one_lacks() {
        let list = |text| GtidList::parse_state(text).unwrap();
        let (end, log) = (list("0-1-105,0-2-101"), list("0-2-101,0-1-105,1-3-9"));
        // The newest of a domain is the last one that was written, not the one with the greatest number.
        assert_eq!((end.state().as_str(), end.to_string().as_str()), ("0-1-105,0-2-101", "0-2-101"));
        assert_eq!((log.state().as_str(), log.to_string().as_str()), ("0-2-101,0-1-105,1-3-9", "0-1-105,1-3-9"));
        let shown = |gtids: Option<Vec<MariaGtid>>| gtids.unwrap().iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(shown(log.beyond(&end)), ["1-3-9"]);
        assert_eq!(shown(list("0-1-104").lacks(&[MariaGtid::parse("0-1-105").unwrap()])), ["0-1-105"]);
        assert_eq!(GtidList::parse("0-1-1").unwrap().beyond(&end), None);
        assert!(list("0-1-106").has_grown(&list("0-2-105")) && !list("0-1-105").has_grown(&list("0-2-105")));
        let mut unknown = GtidList::parse("0-1-105,1-3-9").unwrap();
        assert_eq!(unknown.state(), "");
        unknown.learn(&log);
        assert_eq!(unknown.state(), log.state());
    }
}
