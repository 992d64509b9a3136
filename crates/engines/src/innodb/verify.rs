//! The pages of a backup, looked at while it is verified: which were damaged already when they were read.
//!
//! A page of a lower layer may be torn: a server's clone sends it again, whole, in a higher one. So what looks bad is only
//! suspected until the end, and forgotten when the page comes again.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use fullbore_core::Result;
use fullbore_core::media::ManifestStream;
use fullbore_core::unpack::Target;
use serde_json::{Value, json};

use super::Dialect;
use super::page::{Fault, PageFormat, Verdict};
use crate::PageCheck;

/// Pages suspected at once, at most: a database with more is named as damaged anyway.
const SUSPECTS_MAX: usize = 1 << 16;
/// How many of them are named.
const NAMED_MAX: usize = 10;
/// What the detail of a stream calls the flags of its tablespace.
const FLAGS: &str = "fsp_flags";

/// The detail of a stream ([`fullbore_core::source::Source::detail`]) whose pages can be verified.
pub fn detail(fsp_flags: u32) -> Value {
    json!({ FLAGS: fsp_flags })
}

/// How the pages of a stream look, if it has a [`detail`].
pub fn format_of(dialect: Dialect, stream: &ManifestStream) -> Option<PageFormat> {
    let flags = u32::try_from(stream.detail.as_ref()?.get(FLAGS)?.as_u64()?).ok()?;
    PageFormat::from_flags(flags, dialect).ok()
}

/// Looks at every page that it is given.
pub struct PageVerifier {
    tablespaces: HashMap<u16, Tablespace>,
    suspects: Mutex<Suspects>,
}

struct Tablespace {
    name: String,
    size: u64,
    format: PageFormat,
    /// Of the system tablespace a second file goes on with the numbers of the first.
    numbered: bool,
}

#[derive(Default)]
struct Suspects {
    /// By stream and number, with the reason.
    pages: BTreeMap<(u16, u64), String>,
    /// There were more than could be remembered.
    more: bool,
}

impl PageVerifier {
    /// For streams with a [`detail`]; of others nothing is looked at.
    pub fn new(dialect: Dialect, streams: &[ManifestStream]) -> Self {
        let tablespace = |stream: &ManifestStream| {
            let format = format_of(dialect, stream)?;
            let numbered = !stream.identity.starts_with("space:0");
            Some((stream.id, Tablespace { name: stream.name.clone(), size: stream.size, format, numbered }))
        };
        Self { tablespaces: streams.iter().filter_map(tablespace).collect(), suspects: Mutex::default() }
    }

    fn suspects(&self) -> MutexGuard<'_, Suspects> {
        self.suspects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tablespace {
    /// What is wrong with a page.
    fn fault(&self, page: &[u8], number: u64) -> Option<Fault> {
        match self.format.check(page, number as u32) {
            Verdict::Corrupt(Fault::Number { found }) if !self.numbered => self.fault(page, found.into()),
            Verdict::Corrupt(fault) => Some(fault),
            Verdict::Valid | Verdict::Empty | Verdict::Unchecked(_) => None,
        }
    }
}

impl Target for PageVerifier {
    fn discards(&self) -> bool {
        false
    }

    fn checks_maps(&self) -> bool {
        true
    }

    fn write(&self, stream: u16, offset: u64, bytes: &[u8]) -> Result<()> {
        let Some(tablespace) = self.tablespaces.get(&stream) else { return Ok(()) };
        let size = u64::from(tablespace.format.physical_size());
        // What is left of the page where the bytes begin says nothing: only whole pages are looked at.
        let skipped = (offset.next_multiple_of(size) - offset).min(bytes.len() as u64) as usize;
        let first = offset.div_ceil(size);
        let mut bad = Vec::new();
        let mut last = first;
        for (number, page) in (first..).zip(bytes[skipped..].chunks_exact(size as usize)) {
            last = number + 1;
            if last * size <= tablespace.size
                && let Some(fault) = tablespace.fault(page, number)
            {
                bad.push((number, fault));
            }
        }
        let mut suspects = self.suspects();
        if !suspects.pages.is_empty() {
            forget(&mut suspects, stream, first..last);
        }
        for (number, fault) in bad {
            suspects.more |= suspects.pages.len() == SUSPECTS_MAX;
            if suspects.pages.len() < SUSPECTS_MAX {
                suspects.pages.insert((stream, number), fault.to_string());
            }
        }
        Ok(())
    }

    fn zero(&self, stream: u16, offset: u64, length: u64) -> Result<()> {
        if let Some(tablespace) = self.tablespaces.get(&stream) {
            let size = u64::from(tablespace.format.physical_size());
            forget(&mut self.suspects(), stream, offset.div_ceil(size)..offset.saturating_add(length) / size);
        }
        Ok(())
    }
}

/// Pages came again.
fn forget(suspects: &mut Suspects, stream: u16, pages: std::ops::Range<u64>) {
    if pages.is_empty() {
        return;
    }
    let range = (stream, pages.start)..(stream, pages.end);
    let known: Vec<(u16, u64)> = suspects.pages.range(range).map(|(&page, _)| page).collect();
    known.iter().for_each(|page| drop(suspects.pages.remove(page)));
}

impl PageCheck for PageVerifier {
    fn damaged(&self) -> Vec<String> {
        let suspects = self.suspects();
        let name = |stream: &u16| self.tablespaces.get(stream).map_or("", |tablespace| tablespace.name.as_str());
        let named = suspects.pages.iter().take(NAMED_MAX);
        let mut said: Vec<String> = named
            .map(|((stream, number), why)| {
                format!("page {number} of `{}` was damaged already when it was backed up: {why}", name(stream))
            })
            .collect();
        let rest = suspects.pages.len().saturating_sub(NAMED_MAX);
        if rest > 0 {
            let more = if suspects.more { "at least " } else { "" };
            said.push(format!("and {more}{rest} more pages were damaged already when they were backed up"));
        }
        said
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::innodb::fixtures;

    fn stream(id: u16, flags: u32, size: u64, identity: &str) -> ManifestStream {
        ManifestStream {
            id,
            name: format!("shop/{id}.ibd"),
            layer: 0,
            unit: 16384,
            map_window: 0,
            size,
            identity: identity.into(),
            base: None,
            detail: Some(detail(flags)),
        }
    }

    const PAGE: usize = 4096;

    /// Five pages of a real server, of which three are empty, and the flags of their tablespace.
    fn tablespace() -> (Vec<u8>, u32) {
        let fixture = fixtures::ALL.iter().find(|fixture| fixture.name == "mysql-crc32-plain").unwrap();
        let mut pages = fixture.bytes[..PAGE].to_vec();
        pages.resize(4 * PAGE, 0);
        pages.extend(&fixture.bytes[PAGE..]);
        let flags = u32::from_be_bytes(*pages[54..].first_chunk().unwrap());
        (pages, flags)
    }

    #[test]
    fn a_damaged_page_is_named_unless_it_comes_again_whole() {
        let (pages, flags) = tablespace();
        let verifier = PageVerifier::new(Dialect::MySql, &[stream(7, flags, pages.len() as u64, "space:9")]);
        verifier.write(7, 0, &pages).unwrap();
        assert_eq!(verifier.damaged(), Vec::<String>::new());
        let mut torn = pages.clone();
        torn[4 * PAGE + 900] ^= 1;
        torn[100] ^= 1;
        verifier.write(7, 0, &torn).unwrap();
        let said = verifier.damaged();
        assert!(said.len() == 2 && said[1].contains("page 4 of `shop/7.ibd`"), "{said:?}");
        // A part of a page says nothing; a whole one does, and so do zeros.
        verifier.write(7, 1024, &pages[1024..2048]).unwrap();
        assert_eq!(verifier.damaged().len(), 2);
        verifier.write(7, 0, &pages[..PAGE]).unwrap();
        assert_eq!(verifier.damaged().len(), 1);
        verifier.zero(7, 4 * PAGE as u64, PAGE as u64).unwrap();
        assert_eq!(verifier.damaged(), Vec::<String>::new());
    }

    #[test]
    fn what_is_beyond_the_end_of_another_number_in_the_system_tablespace_or_unknown_is_not_judged() {
        let (pages, flags) = tablespace();
        let mut bad = pages.clone();
        bad[900] ^= 1;
        let streams = [stream(1, flags, PAGE as u64 - 1, "space:9"), stream(2, flags, 1 << 30, "space:0:ibdata2")];
        let verifier = PageVerifier::new(Dialect::MySql, &streams);
        verifier.write(1, 0, &bad[..PAGE]).unwrap();
        verifier.write(2, 50 * PAGE as u64, &pages).unwrap();
        verifier.write(3, 0, &bad).unwrap();
        assert_eq!(verifier.damaged(), Vec::<String>::new());
        let many = PageVerifier::new(Dialect::MySql, &[stream(1, flags, 1 << 30, "space:9")]);
        many.write(1, 0, &[7; PAGE * 15]).unwrap();
        assert!(many.damaged().len() == 11 && many.damaged()[10].contains("and 5 more"));
    }
}
