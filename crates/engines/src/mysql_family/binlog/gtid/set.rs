//! MySQL's sets of GTIDs.

use std::collections::BTreeMap;
use std::fmt;

use super::Gtid;
use crate::mysql_family::binlog::event::take;

/// The most intervals, or entries, of a set.
const MOST: u64 = 1 << 20;

/// Numbers of one server and tag: intervals from the first number to the one after the last, in order, with gaps
/// between them.
type Intervals = Vec<(u64, u64)>;

/// MySQL's set of GTIDs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GtidSet(BTreeMap<([u8; 16], String), Intervals>);

impl GtidSet {
    /// Parses the server's words: `uuid:1-5:7,uuid:tag:1-3`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut set = Self::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let mut words = part.split(':').map(str::trim);
            let uuid = *uuid::Uuid::parse_str(words.next()?).ok()?.as_bytes();
            let mut tag = String::new();
            for word in words {
                if !word.starts_with(|c: char| c.is_ascii_digit()) {
                    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
                    (word.len() <= 32 && !word.is_empty() && word.chars().all(plain)).then_some(())?;
                    word.clone_into(&mut tag);
                    continue;
                }
                let (first, last) = word.split_once('-').unwrap_or((word, word));
                let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
                (0 < first && first <= last && last < i64::MAX as u64).then_some(())?;
                set.insert(uuid, &tag, first, last + 1);
            }
        }
        Some(set)
    }

    /// From the body of a PREVIOUS_GTIDS event: the number of servers; for each one UUID, number of intervals, and
    /// intervals. With tags, the number has a mark in its highest byte, and each UUID has its tag.
    pub(in crate::mysql_family::binlog) fn decode(mut body: &[u8]) -> Result<Self, &'static str> {
        const BROKEN: &str = "a PREVIOUS_GTIDS event has an unknown form";
        let mut set = Self::default();
        let read = |bytes: &mut &[u8]| take::<8>(bytes).map(|number| u64::from_le_bytes(*number));
        let mut decode = || -> Option<()> {
            let head = read(&mut body)?;
            let tagged = head >> 56 == 1;
            let servers = if tagged { head << 8 >> 16 } else { head };
            (servers <= MOST).then_some(())?;
            for _ in 0..servers {
                let uuid = *take::<16>(&mut body)?;
                let mut tag = String::new();
                if tagged {
                    let [length] = *take::<1>(&mut body)?;
                    let (text, rest) = body.split_at_checked(usize::from(length >> 1))?;
                    tag = std::str::from_utf8(text).ok().filter(|tag| tag.len() <= 32)?.to_owned();
                    body = rest;
                }
                for _ in 0..read(&mut body).filter(|count| *count <= MOST)? {
                    let (first, after) = (read(&mut body)?, read(&mut body)?);
                    (0 < first && first < after && after < i64::MAX as u64).then_some(())?;
                    set.insert(uuid, &tag, first, after);
                }
            }
            body.is_empty().then_some(())
        };
        decode().ok_or(BROKEN)?;
        Ok(set)
    }

    /// Adds the numbers from `first` to the one before `after`.
    fn insert(&mut self, uuid: [u8; 16], tag: &str, first: u64, after: u64) {
        let intervals = self.0.entry((uuid, tag.to_owned())).or_default();
        // Nearly always it continues the last one.
        if let Some(last) = intervals.last_mut()
            && last.1 == first
        {
            last.1 = after;
            return;
        }
        let begin = intervals.partition_point(|interval| interval.1 < first);
        let end = intervals.partition_point(|interval| interval.0 <= after);
        let joined = intervals.get(begin..end).unwrap_or_default();
        let low = joined.first().map_or(first, |interval| interval.0.min(first));
        let high = joined.last().map_or(after, |interval| interval.1.max(after));
        intervals.splice(begin..end.max(begin), [(low, high)]);
    }

    /// Adds one GTID. False if the set has it already.
    pub fn add(&mut self, uuid: [u8; 16], tag: &str, number: u64) -> bool {
        let new = !self.has(&uuid, tag, number);
        if new {
            self.insert(uuid, tag, number, number.saturating_add(1));
        }
        new
    }

    /// Whether it has this GTID.
    pub fn has(&self, uuid: &[u8; 16], tag: &str, number: u64) -> bool {
        let Some(intervals) = self.0.get(&(*uuid, tag.to_owned())) else { return false };
        let at = intervals.partition_point(|interval| interval.1 <= number);
        intervals.get(at).is_some_and(|interval| interval.0 <= number)
    }

    /// Adds all GTIDs of another set.
    pub fn join(&mut self, other: &Self) {
        for ((uuid, tag), intervals) in &other.0 {
            intervals.iter().for_each(|(first, after)| self.insert(*uuid, tag, *first, *after));
        }
    }

    /// Whether all of its GTIDs are in another set.
    pub fn is_within(&self, other: &Self) -> bool {
        self.0.iter().all(|(key, intervals)| {
            let theirs = other.0.get(key).map(Vec::as_slice).unwrap_or_default();
            let within = |(first, after): &(u64, u64)| {
                let at = theirs.partition_point(|interval| interval.1 <= *first);
                theirs.get(at).is_some_and(|interval| interval.0 <= *first && *after <= interval.1)
            };
            intervals.iter().all(within)
        })
    }

    /// Its GTIDs that are not in another set.
    pub fn without(&self, other: &Self) -> Self {
        let mut rest = Self::default();
        for ((uuid, tag), intervals) in &self.0 {
            let theirs = other.0.get(&(*uuid, tag.clone())).map(Vec::as_slice).unwrap_or_default();
            for (first, after) in intervals {
                let mut next = *first;
                for (low, high) in theirs.iter().filter(|(low, high)| low < after && first < high) {
                    if next < *low {
                        rest.insert(*uuid, tag, next, *low);
                    }
                    next = next.max(*high);
                }
                if next < *after {
                    rest.insert(*uuid, tag, next, *after);
                }
            }
        }
        rest
    }

    /// The first GTID of another set that it has too.
    pub fn first_common(&self, other: &Self) -> Option<Gtid> {
        for ((uuid, tag), intervals) in &other.0 {
            let Some(mine) = self.0.get(&(*uuid, tag.clone())) else { continue };
            for (first, after) in intervals {
                let at = mine.partition_point(|interval| interval.1 <= *first);
                if let Some(interval) = mine.get(at).filter(|interval| interval.0 < *after) {
                    let number = interval.0.max(*first);
                    return Some(Gtid::MySql { uuid: *uuid, tag: tag.clone(), number });
                }
            }
        }
        None
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for GtidSet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut before: Option<&[u8; 16]> = None;
        for ((uuid, tag), intervals) in &self.0 {
            if before != Some(uuid) {
                write!(out, "{}{}", if before.is_some() { "," } else { "" }, uuid::Uuid::from_bytes(*uuid))?;
            }
            before = Some(uuid);
            if !tag.is_empty() {
                write!(out, ":{tag}")?;
            }
            for (first, after) in intervals {
                match after - 1 {
                    last if last == *first => write!(out, ":{first}")?,
                    last => write!(out, ":{first}-{last}")?,
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const ONE: &str = "11111111-1111-1111-1111-111111111111";
    const TWO: &str = "22222222-2222-2222-2222-222222222222";

    fn set(text: &str) -> GtidSet {
        GtidSet::parse(text).unwrap()
    }

    #[test]
    fn a_set_is_read_and_shown_in_the_words_of_the_server() {
        let text = format!("{ONE}:1-5:7,{TWO}:3:blue:1-2");
        assert_eq!(set(&text).to_string(), text);
        assert_eq!(set(&format!("{ONE}:7,\n{ONE}:1-5")).to_string(), format!("{ONE}:1-5:7"));
        assert_eq!(set(&format!("{ONE}:1-3:4-6:9:2-8")).to_string(), format!("{ONE}:1-9"));
        for wrong in ["x", &format!("{ONE}:0"), &format!("{ONE}:5-4"), &format!("{ONE}:-1"), &format!("{ONE}:1-x")] {
            assert_eq!(GtidSet::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn sets_are_compared_and_joined() {
        let (small, large) = (set(&format!("{ONE}:2-3")), set(&format!("{ONE}:1-5,{TWO}:1")));
        assert!(small.is_within(&large) && !large.is_within(&small) && set("").is_within(&small));
        assert!(!set(&format!("{ONE}:4-6")).is_within(&large));
        let mut joined = set(&format!("{ONE}:1:5-9"));
        joined.join(&set(&format!("{ONE}:2-4")));
        assert_eq!(joined.to_string(), format!("{ONE}:1-9"));
        let uuid = [0x11; 16];
        assert!(joined.has(&uuid, "", 9) && !joined.has(&uuid, "", 10) && !joined.has(&uuid, "blue", 1));
        assert!(joined.add(uuid, "", 11) && !joined.add(uuid, "", 11));
        assert_eq!(joined.to_string(), format!("{ONE}:1-9:11"));
        let common = joined.first_common(&set(&format!("{ONE}:10-12"))).unwrap();
        assert_eq!(common.to_string(), format!("{ONE}:11"));
        assert_eq!(joined.first_common(&set(&format!("{ONE}:10,{TWO}:1"))), None);
        let rest =
            set(&format!("{ONE}:1-9:20,{TWO}:1-2,{TWO}:blue:1")).without(&set(&format!("{ONE}:2-3:9:15-30,{TWO}:2-9")));
        assert_eq!(rest.to_string(), format!("{ONE}:1:4-8,{TWO}:1:blue:1"));
        assert!(large.without(&large).is_empty());
    }

    #[test]
    fn a_previous_gtids_event_is_decoded_with_and_without_tags() {
        let mut plain = 1_u64.to_le_bytes().to_vec();
        plain.extend_from_slice(&[0x11; 16]);
        for number in [1_u64, 1, 6] {
            plain.extend_from_slice(&number.to_le_bytes());
        }
        assert_eq!(GtidSet::decode(&plain).unwrap().to_string(), format!("{ONE}:1-5"));
        for cut in 0..plain.len() {
            assert!(GtidSet::decode(&plain[..cut]).is_err(), "{cut}");
        }
    }
}
