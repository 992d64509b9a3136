//! Pages that have lost their content: zero although the tablespace uses them, or after the end of their file.
//!
//! A page may be zero, and a file short, because the content is still only in the redo log. So both are only suspects
//! while files are read, and are judged when the log is complete. Only the server knows its own unfinished pages.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use fullbore_core::units::counted;

use super::files::CopiedFile;
use super::statements::Statements;
use super::work::FileNumber;
use crate::mariadb::redo::touched::Touched;
use crate::mysql_family::innodb::damage::DamagedPage;
use crate::mysql_family::innodb::extents::Layout;
use crate::mysql_family::innodb::page::Fault;

/// Most runs of suspected pages: 2 MiB, a part of `plan::FIXED_MEMORY`. Further runs are not judged.
const RUNS_MAX: usize = 1 << 16;

/// The file and tablespace of suspected pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// The file in the copy.
    pub file: FileNumber,
    /// The tablespace.
    pub space: u32,
    /// Where it lists the pages in use.
    pub layout: Layout,
}

/// Pages that are zero and in use, by their numbers in the tablespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    owner: Owner,
    first: u32,
    count: u32,
}

/// A file that ends before its tablespace does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Short {
    /// Its name in the copy.
    pub file: String,
    /// The tablespace.
    pub space: u32,
    /// The first missing page, by its number in the tablespace.
    pub page: u32,
    /// Pages of the tablespace according to its first page.
    pub counted: u32,
    /// True for an undo file: the server makes it shorter, and its log shows that.
    pub undo: bool,
}

/// Tablespaces that may have pages in use that the server never wrote. It allocates pages for an index before it fills
/// them, and a kill in between leaves them empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unfinished {
    /// In these tablespaces: each has an index that is not complete.
    In(HashSet<u32>),
    /// Anywhere: the server still rolls back transactions after a crash, or loads an empty table.
    Anywhere,
    /// The account has no permission to ask.
    Unknown,
}

impl Unfinished {
    /// Asks the server, while DDL is blocked.
    pub fn ask(server: &mut dyn Statements) -> Self {
        // Without both checks, an insert into an empty table is a bulk load, as for an index.
        let busy = "SELECT COUNT(*) FROM information_schema.INNODB_TRX WHERE (trx_mysql_thread_id = 0 AND trx_state = \
                    'ROLLING BACK') OR (trx_unique_checks = 0 AND trx_foreign_key_checks = 0)";
        // The name of such an index is shown with a question mark before it.
        let indexes = "SELECT DISTINCT SPACE FROM information_schema.INNODB_SYS_INDEXES WHERE NAME LIKE '?%'";
        let answers = server.execute(busy).and_then(|busy| Ok((busy, server.execute(indexes)?)));
        let Ok((busy, indexes)) = answers else { return Self::Unknown };
        if busy.first().and_then(|row| row.number(0)) != Some(0) {
            return Self::Anywhere;
        }
        let spaces = indexes.iter().filter_map(|row| u32::try_from(row.number(0)?).ok());
        Self::In(spaces.collect())
    }

    fn holds(&self, space: u32) -> bool {
        match self {
            Self::In(spaces) => spaces.contains(&space),
            Self::Anywhere => true,
            Self::Unknown => false,
        }
    }
}

/// The verdict on the suspects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Judged {
    /// Lost pages.
    pub damaged: Vec<DamagedPage>,
    /// The warning of pages that may be lost or unfinished, if the account has no permission to ask.
    pub warning: Option<String>,
}

/// The suspects so far. All readers add to it.
#[derive(Default)]
pub struct LostPages(Mutex<Vec<Run>>);

impl LostPages {
    /// Remembers pages that are zero and in use, in ascending order, unless the log already explains them.
    pub fn suspect(&self, owner: Owner, pages: &[u32], touched: &Touched) {
        let left: Vec<u32> = pages.iter().copied().filter(|page| !excused(&owner, *page, touched)).collect();
        if left.is_empty() {
            return;
        }
        let mut runs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for page in left {
            let next_to = |run: &&mut Run| run.owner == owner && run.first.checked_add(run.count) == Some(page);
            if let Some(run) = runs.last_mut().filter(next_to) {
                run.count += 1;
            } else if runs.len() < RUNS_MAX {
                runs.push(Run { owner, first: page, count: 1 });
            }
        }
    }

    /// Whether there is any suspicion.
    pub fn is_suspecting(&self) -> bool {
        !self.0.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// The damaged pages among the suspects, once the log is complete; at most `most` pages.
    pub fn judge(
        &self,
        touched: &Touched,
        files: &[CopiedFile],
        short: &[Short],
        unfinished: &Unfinished,
        most: usize,
    ) -> Judged {
        let names: HashMap<FileNumber, &str> = files.iter().map(|file| (file.number, file.name.as_str())).collect();
        let mut damaged: Vec<DamagedPage> =
            short.iter().filter_map(|short| missing(short, touched)).take(most).collect();
        let mut zero = Vec::new();
        let mut runs = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        runs.sort_by_key(|run| (run.owner.file, run.first));
        for run in runs.iter().filter(|run| !unfinished.holds(run.owner.space)) {
            // A file that is not in the final copy was dropped, or copied again.
            let Some(name) = names.get(&run.owner.file) else { continue };
            let pages = (run.first..=run.first + (run.count - 1)).filter(|page| !excused(&run.owner, *page, touched));
            let why = Fault::Zero.to_string();
            let named = pages.map(|page| DamagedPage { file: (*name).to_owned(), page: page.into(), why: why.clone() });
            zero.extend(named.take(most.saturating_sub(damaged.len() + zero.len())));
        }
        if *unfinished == Unfinished::Unknown {
            return Judged { damaged, warning: unclear(&zero) };
        }
        damaged.extend(zero);
        Judged { damaged, warning: None }
    }
}

/// The warning of zero pages that cannot be judged.
fn unclear(zero: &[DamagedPage]) -> Option<String> {
    let first = zero.first()?;
    Some(format!(
        "all zero, but in use according to the tablespace: {} (page {} of `{}`). This is damage, or the server was \
         killed while it added an index; with an account that has PROCESS, fullbore can tell",
        counted(zero.len() as u64, "page"),
        first.page,
        first.file
    ))
}

/// Whether the log explains a page that is zero and in use.
fn excused(owner: &Owner, page: u32, touched: &Touched) -> bool {
    touched.page(owner.space, page, owner.layout.table_of(page), owner.layout.byte_of(page))
}

/// The first missing page, unless the log may show that the tablespace was truncated.
fn missing(short: &Short, touched: &Touched) -> Option<DamagedPage> {
    let cut = if touched.is_known() { touched.size(short.space) } else { short.undo };
    let why = Fault::Missing { counted: short.counted }.to_string();
    (!cut).then(|| DamagedPage { file: short.file.clone(), page: short.page.into(), why })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::mariadb::hot_copy::{FileKind, Row};
    use crate::mariadb::redo::framing::seal;
    use crate::mariadb::redo::record::{put_record, put_varint};
    use crate::mariadb::redo::ring::Ring;
    use crate::mysql_family::Dialect;
    use crate::mysql_family::innodb::page::PageFormat;

    fn owner(file: u32, space: u32) -> Owner {
        let layout = Layout::of(&PageFormat::from_flags(0x15, Dialect::MariaDb).unwrap());
        Owner { file: FileNumber(file), space, layout }
    }

    fn copied(number: u32) -> CopiedFile {
        CopiedFile {
            number: FileNumber(number),
            name: format!("shop/{number}.ibd"),
            kind: FileKind::Tablespace,
            unit: 16384,
            size: 1 << 20,
            space: Some(number),
            encrypted: false,
            elsewhere: None,
        }
    }

    /// The log has a record of `kind` with such numbers.
    fn log(touched: &Touched, kind: u8, numbers: &[u32], rest: &[u8]) {
        let (mut body, mut records) = (Vec::new(), Vec::new());
        numbers.iter().for_each(|number| put_varint(*number, &mut body));
        body.extend_from_slice(rest);
        put_record(kind, &body, &mut records);
        touched.look(&seal(&records, 12288, &Ring::new(12288, 4 << 20).unwrap(), None));
    }

    #[test]
    fn zero_pages_are_damaged_unless_the_log_makes_them_before_or_after_they_were_read() {
        let (lost, touched) = (LostPages::default(), Touched::new(false));
        log(&touched, 0x10, &[7, 11], &[]);
        lost.suspect(owner(7, 7), &[10, 11, 12, 13, 20], &touched);
        lost.suspect(owner(8, 8), &[10], &touched);
        lost.suspect(owner(9, 9), &[10], &touched);
        log(&touched, 0x00, &[7, 12], &[]);
        // The byte with the bits of page 20: the byte after 150 + 24 + 20 / 4.
        log(&touched, 0x30, &[7, 0, 150 + 24 + 5], &[0]);
        log(&touched, 0x10, &[8, 10], &[]);
        let none = Unfinished::In(HashSet::new());
        let damaged = lost.judge(&touched, &[copied(7), copied(8)], &[], &none, 9).damaged;
        let found: Vec<(&str, u64)> = damaged.iter().map(|page| (page.file.as_str(), page.page)).collect();
        assert_eq!(found, [("shop/7.ibd", 10), ("shop/7.ibd", 13)]);
        assert!(damaged[0].why.contains("all zero"));
        assert_eq!(lost.judge(&touched, &[copied(7)], &[], &none, 1).damaged.len(), 1);
        for unfinished in [Unfinished::In(HashSet::from([7])), Unfinished::Anywhere] {
            assert_eq!(lost.judge(&touched, &[copied(7)], &[], &unfinished, 9), Judged::default());
        }
        let unclear = lost.judge(&touched, &[copied(7)], &[], &Unfinished::Unknown, 9);
        assert!(
            unclear.damaged.is_empty()
                && unclear.warning.unwrap().contains("all zero, but in use according to the tablespace: 2 pages ")
        );
    }

    /// A server that answers two queries, or refuses the query with the text `refused`.
    struct Answers(u64, Vec<u32>, &'static str);

    impl Statements for Answers {
        fn execute(&mut self, sql: &str) -> fullbore_core::Result<Vec<Row>> {
            if sql.contains(self.2) {
                return Err(fullbore_core::Error::refused("server", "needs PROCESS", ""));
            }
            let row = |number: u64| Row(vec![Some(number.to_string().into_bytes())]);
            Ok(if sql.contains("INNODB_TRX") {
                vec![row(self.0)]
            } else {
                self.1.iter().map(|n| row((*n).into())).collect()
            })
        }
    }

    #[test]
    fn the_server_tells_what_is_unfinished() {
        let ask = |rolling, spaces: &[u32], refused| Unfinished::ask(&mut Answers(rolling, spaces.to_vec(), refused));
        assert_eq!(ask(0, &[20, 21], "nothing"), Unfinished::In(HashSet::from([20, 21])));
        assert_eq!(ask(1, &[], "nothing"), Unfinished::Anywhere);
        assert_eq!(ask(0, &[], "INDEXES"), Unfinished::Unknown);
    }

    #[test]
    fn a_short_file_is_damaged_unless_the_log_cuts_it() {
        let short = |space, undo| Short { file: format!("{space}"), space, page: 300, counted: 896, undo };
        let touched = Touched::new(false);
        log(&touched, 0x20, &[2, 640], &[10]);
        let files = [short(1, true), short(2, true), short(3, false)];
        let damaged = LostPages::default().judge(&touched, &[], &files, &Unfinished::Anywhere, 9).damaged;
        assert_eq!(damaged.iter().map(|page| page.file.as_str()).collect::<Vec<_>>(), ["1", "3"]);
        assert!(damaged[0].page == 300 && damaged[0].why.contains("has 896 pages"), "{damaged:?}");
        let damaged = LostPages::default().judge(&Touched::new(true), &[], &files, &Unfinished::Anywhere, 9).damaged;
        assert_eq!(damaged.iter().map(|page| page.file.as_str()).collect::<Vec<_>>(), ["3"]);
    }

    #[test]
    fn the_memory_of_pages_is_bounded_and_neighbours_share_an_entry() {
        let (lost, touched) = (LostPages::default(), Touched::new(false));
        let many: Vec<u32> = (0..200_000).collect();
        lost.suspect(owner(1, 1), &many, &touched);
        assert_eq!(lost.0.lock().unwrap().len(), 1);
        let odd: Vec<u32> = many.iter().map(|page| page * 2).collect();
        lost.suspect(owner(2, 2), &odd, &touched);
        assert_eq!(lost.0.lock().unwrap().len(), RUNS_MAX);
        lost.suspect(owner(3, 3), &[u32::MAX], &touched);
        assert!(lost.is_suspecting());
        let none = Unfinished::In(HashSet::new());
        assert_eq!(lost.judge(&touched, &[copied(1)], &[], &none, 1000).damaged.len(), 1000);
    }
}
