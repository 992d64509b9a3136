//! The positions of sets in the log, from their manifests: log sets are put in order by them.

use fullbore_core::Result;
use fullbore_core::cipher::SecretKey;
use fullbore_core::media::SetKind;
use fullbore_core::pool::Pool;
use jiff::Timestamp;

use super::{DiscoveredSets, open_set};

impl DiscoveredSets {
    /// Reads begin and end of all whole sets from their manifests, if there are log sets or `always`. Encrypted sets
    /// without a key are left out. False: a family has got another name since it was found, as at the commit of a backup that runs.
    ///
    /// # Errors
    /// Not enough memory.
    pub fn learn_log_ranges(&mut self, key: Option<&SecretKey>, always: bool) -> Result<bool> {
        if always || self.sets.iter().any(|found| found.set.kind == SetKind::Log) {
            return self.learn(key, |_| true);
        }
        Ok(true)
    }

    /// The same for log sets only, for a list.
    ///
    /// # Errors
    /// As [`learn_log_ranges`](Self::learn_log_ranges).
    pub fn learn_times(&mut self) -> Result<()> {
        self.learn(None, |kind| kind == SetKind::Log).map(drop)
    }

    fn learn(&mut self, key: Option<&SecretKey>, which: impl Fn(SetKind) -> bool) -> Result<bool> {
        let mut in_place = true;
        let nothing = Pool::new(0, 4096)?;
        for at in 0..self.sets.len() {
            let found = &self.sets[at];
            let set = &found.set;
            if !fullbore_engines::may_have_logs(&found.header.engine)
                || set.incomplete.is_some()
                || set.log_range.is_some()
                || !which(set.kind)
            {
                continue;
            }
            let Ok(opened) = open_set(found, &nothing, 1, key) else {
                in_place &= found.is_in_place();
                continue;
            };
            let Some(manifest) = opened.manifest() else { continue };
            self.sets[at].host = Some(manifest.host.clone()).filter(|host| !host.is_empty());
            let set = &mut self.sets[at].set;
            let finished_at = manifest.finished_at.parse().ok().map(Timestamp::as_microsecond);
            set.log_range =
                fullbore_engines::log_range(&manifest.engine, manifest.kind, &manifest.position, finished_at);
            let name = || Some(manifest.database.clone()).filter(|name| !name.is_empty());
            set.database = set.database.take().or_else(name);
        }
        Ok(in_place)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;

    use fullbore_core::store::Stores;

    use crate::discovery::find;

    #[test]
    fn a_family_that_gets_its_name_while_it_is_read_is_looked_for_again() {
        let (place, media) = (tempfile::tempdir().unwrap(), "../../tests/it/format_v0/sqlite_log");
        for (name, copy) in [("full", "full"), ("log-1", "new")] {
            fs::copy(format!("{media}/{name}.bore"), place.path().join(format!("{copy}.bore"))).unwrap();
        }
        let found = || find(&[place.path().display().to_string()], &Stores::default()).unwrap();
        let mut first = found();
        fs::rename(place.path().join("new.bore"), place.path().join("log.bore")).unwrap();
        assert!(!first.learn_log_ranges(None, false).unwrap());
        let mut second = found();
        assert!(second.learn_log_ranges(None, false).unwrap());
        assert!(second.sets.iter().all(|found| found.set.log_range.is_some()));
    }
}
