//! Pages in use without a check, in a database whose other pages have one. A changed bit of their flags may be the reason:
//! then nothing proves their bytes.

use fullbore_core::units::counted;

use super::page::{PAGE, PageId};

/// Pages that are remembered.
const PAGES_MAX: usize = 1 << 20;
/// So many ranges of pages are named; the pages of the others are counted.
const NAMED_MAX: usize = 20;
/// Types of pages of which every genuine file has one without a check: IAM, and a type that is not documented.
const WITHOUT: [u8; 2] = [10, 17];

/// A page without a check.
#[derive(Debug, Clone, Copy)]
struct Unchecked {
    id: PageId,
    /// The number of its copy.
    round: u32,
    /// True if a backup checksum covers it.
    is_covered: bool,
}

/// The pages of one backup set.
#[derive(Debug, Default)]
pub struct UncheckedPages {
    pages: Vec<Unchecked>,
    /// Those of the stream that is being read begin here.
    begun: usize,
    forgotten: u64,
}

/// The result.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Pages that nothing protects, in words.
    pub unprotected: Option<String>,
    /// Their bytes.
    pub bytes: u64,
    /// Pages that only the backup checksum protects, in words.
    pub covered: Option<String>,
}

impl UncheckedPages {
    /// A page at its place that has no check.
    pub fn learn(&mut self, id: PageId, kind: u8, round: u32) {
        match (WITHOUT.contains(&kind), self.pages.len() < PAGES_MAX) {
            (true, _) => {}
            (false, true) => self.pages.push(Unchecked { id, round, is_covered: false }),
            (false, false) => self.forgotten += 1,
        }
    }

    /// The stream with these pages ends.
    pub fn end_stream(&mut self, has_backup_checksum: bool) {
        for page in self.pages.iter_mut().skip(self.begun) {
            page.is_covered = has_backup_checksum;
        }
        self.begun = self.pages.len();
    }

    /// Takes those of another family, which was read to its end.
    pub fn join(&mut self, other: Self) {
        let room = PAGES_MAX.saturating_sub(self.pages.len());
        self.forgotten += other.forgotten + other.pages.len().saturating_sub(room) as u64;
        self.pages.extend(other.pages.into_iter().take(room));
        self.begun = self.pages.len();
    }

    /// Names those that count: `counts` gets a page and the number of its copy.
    pub fn judge(mut self, counts: &dyn Fn(PageId, u32) -> bool) -> Found {
        self.pages.retain(|page| counts(page.id, page.round));
        self.pages.sort_unstable_by_key(|page| page.id);
        self.pages.dedup_by_key(|page| page.id);
        let of = |covered: bool| self.pages.iter().filter(move |page| page.is_covered == covered).map(|page| page.id);
        let shown = |covered: bool| {
            let mut words = ranges(of(covered))?;
            if self.forgotten > 0 && !covered {
                words.push_str(&format!("; {} were not judged", counted(self.forgotten, "more page")));
            }
            Some(words)
        };
        Found { unprotected: shown(false), bytes: of(false).count() as u64 * PAGE as u64, covered: shown(true) }
    }
}

/// Pages in words: `3 pages (1:10, 1:12 to 1:13)`.
fn ranges(pages: impl Iterator<Item = PageId>) -> Option<String> {
    let mut found: Vec<(PageId, PageId)> = Vec::new();
    let (mut all, mut more) = (0_u64, 0_u64);
    for id in pages {
        all += 1;
        let is_full = found.len() >= NAMED_MAX;
        match found.last_mut() {
            Some((_, last)) if last.file == id.file && last.page.checked_add(1) == Some(id.page) => *last = id,
            _ if is_full => more += 1,
            _ => found.push((id, id)),
        }
    }
    let one = |(first, last): &(PageId, PageId)| match first == last {
        true => format!("{}:{}", first.file, first.page),
        false => format!("{}:{} to {}:{}", first.file, first.page, last.file, last.page),
    };
    let mut words: Vec<String> = found.iter().map(one).collect();
    if more > 0 {
        words.push(format!("and {more} more"));
    }
    (all > 0).then(|| format!("{} ({})", counted(all, "page"), words.join(", ")))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_follow_each_other_are_one_range_and_too_many_are_counted() {
        let mut pages = UncheckedPages::default();
        let id = |page| PageId { file: 1, page };
        [13, 10, 12].iter().for_each(|page| pages.learn(id(*page), 1, 1));
        pages.learn(id(9), 10, 1);
        pages.learn(id(99), 1, 1);
        pages.end_stream(false);
        pages.learn(id(50), 1, 1);
        pages.end_stream(true);
        let found = pages.judge(&|id, _| id.page != 99);
        assert_eq!(found.unprotected.unwrap(), "3 pages (1:10, 1:12 to 1:13)");
        assert_eq!((found.covered.unwrap().as_str(), found.bytes), ("1 page (1:50)", 3 * PAGE as u64));
        let many = ranges((0..60).map(|page| id(page * 2))).unwrap();
        assert!(many.starts_with("60 pages (1:0, 1:2,") && many.ends_with("and 40 more)"), "{many}");
    }
}
