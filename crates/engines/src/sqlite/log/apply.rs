//! Restores a log set: writes its frames over the pages of a restored database.

use std::fs::File;
use std::io::{BufReader, Read};
use std::os::unix::fs::FileExt;

use fullbore_core::{Error, Result};

use super::super::header::Malformed;
use super::super::position::LogPosition;
use super::super::wal::{Chain, FRAME_HEADER_SIZE};
use super::end::{End, show_time};
use super::group::{GROUP_SIZE, Group};

/// The streams of an unpacked log set, and the database that they continue.
pub struct Unpacked<'a> {
    /// The name of the set in errors.
    pub name: &'a str,
    /// The stream `groups`.
    pub groups: &'a File,
    /// The stream `frames`.
    pub frames: &'a File,
    /// The end of the set's predecessor, from the manifest.
    pub first: &'a End,
    /// The database file, at `base`.
    pub database: &'a File,
    /// The position of the database.
    pub base: &'a End,
}

/// The result of applying a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// The position of the database now.
    pub end: End,
    /// Frames that were written.
    pub frames: u64,
    /// True when the next commit is later than the time to stop at.
    pub stopped: bool,
}

impl Unpacked<'_> {
    /// Writes every page that was committed until `stop` (microseconds since 1970) into the database, and checks the
    /// checksum chain of every frame that it reads.
    ///
    /// # Errors
    /// The set does not continue the database, or breaks its format; the database must not be used then.
    pub fn apply(&self, stop: Option<i64>) -> Result<Applied> {
        let mut applied = Applied { end: self.base.clone(), frames: 0, stopped: false };
        let damaged = |bad: Malformed| self.damaged(&bad.0);
        let mut frames = BufReader::with_capacity(1 << 20, self.frames);
        let mut groups = BufReader::new(self.groups);
        let mut before: Option<Group> = None;
        let mut record = [0; GROUP_SIZE];
        // Whether the position of the database is reached: from there on frames are written.
        let mut reached = self.begins_here();
        while read_whole(&mut groups, &mut record).map_err(|e| Error::io("read", self.name, e))? {
            let group = Group::decode(&record).map_err(damaged)?;
            group.follows(before.as_ref()).map_err(damaged)?;
            if before.is_none() {
                self.check_first(&group)?;
            }
            applied.stopped |= stop.is_some_and(|stop| group.time > stop);
            // The follower may see the last commit of the base late, with a time after the stop. The base has to be in
            // the set anyway.
            if applied.stopped && reached {
                break;
            }
            self.apply_group(&group, &mut frames, &mut reached, &mut applied)?;
            before = Some(group);
        }
        if !reached {
            return Err(self.apart());
        }
        let size = u64::from(applied.end.pages) * u64::from(applied.end.page_size);
        self.database.set_len(size).map_err(|e| Error::io("set the size of", "the restored database", e))?;
        Ok(applied)
    }

    /// True when the database is exactly at the end of the set's predecessor.
    fn begins_here(&self) -> bool {
        let place = |end: &End| end.log.as_ref().map(|log| (log.salts(), log.max_frame));
        let sums = |end: &End| end.log.as_ref().and_then(LogPosition::sums);
        let same_sums = sums(self.first).zip(sums(self.base)).is_none_or(|(one, other)| one == other);
        place(self.first).is_some() && place(self.first) == place(self.base) && same_sums
    }

    /// Checks that the first group continues the predecessor's end in the manifest, or begins a log.
    fn check_first(&self, group: &Group) -> Result<()> {
        let Some(log) = &self.first.log else { return Err(self.damaged("its predecessor had no log")) };
        let continues = group.salts == log.salts()
            && group.first_frame - 1 == log.max_frame
            && log.sums().is_none_or(|sums| sums == group.before);
        if continues || group.salts != log.salts() && group.first_frame == 1 {
            return Ok(());
        }
        Err(self.damaged("its first commit does not continue its predecessor"))
    }

    fn apply_group(
        &self,
        group: &Group,
        frames: &mut impl Read,
        reached: &mut bool,
        applied: &mut Applied,
    ) -> Result<()> {
        let page_size = self.base.page_size as usize;
        let mut frame = vec![0; FRAME_HEADER_SIZE + page_size];
        let mut chain = Chain::new(group.salts, group.big_endian, group.before);
        *reached |= self.stands_before(group);
        for number in group.first_frame..=group.last_frame {
            if !read_whole(frames, &mut frame).map_err(|e| Error::io("read", self.name, e))? {
                return Err(self.damaged("it has fewer frames than its groups list"));
            }
            let page = chain.link(&frame).map_err(|why| self.damaged(&format!("frame {number}: {why}")))?;
            if *reached && !applied.stopped {
                let offset = u64::from(page - 1) * page_size as u64;
                let written = self.database.write_all_at(&frame[FRAME_HEADER_SIZE..], offset);
                written.map_err(|e| Error::io("write a page to", "the restored database", e))?;
                applied.frames += 1;
                if chain.last_commit != 0 {
                    self.resize(&mut applied.end, chain.last_commit)?;
                }
            } else {
                *reached |= self.stands_at(group, number, &chain);
            }
        }
        if (chain.last_commit, chain.sums) != (group.pages, group.after) {
            return Err(self.damaged("the end of its frames contradicts its groups"));
        }
        if *reached && !applied.stopped {
            applied.end.log = Some(LogPosition::new(group.salts, group.last_frame, Some(group.after), 0));
            applied.end.at = show_time(group.time);
        }
        Ok(())
    }

    /// True at the last frame of the database.
    fn stands_at(&self, group: &Group, frame: u32, chain: &Chain) -> bool {
        self.base.log.as_ref().is_some_and(|log| {
            (log.salts(), log.max_frame) == (group.salts, frame)
                && log.sums().is_none_or(|sums| sums == chain.sums)
                && chain.last_commit == self.base.pages
        })
    }

    /// True when the database ended just before the group.
    fn stands_before(&self, group: &Group) -> bool {
        self.base.log.as_ref().is_some_and(|log| {
            (log.salts(), log.max_frame) == (group.salts, group.first_frame - 1)
                && log.sums().is_none_or(|sums| sums == group.before)
        })
    }

    fn resize(&self, end: &mut End, pages: u32) -> Result<()> {
        if end.pages != pages {
            let size = u64::from(pages) * u64::from(end.page_size);
            self.database.set_len(size).map_err(|e| Error::io("set the size of", "the restored database", e))?;
            end.pages = pages;
        }
        Ok(())
    }

    fn damaged(&self, why: &str) -> Error {
        let hint = "restore to a time before this set, with --stop-at";
        Error::incomplete(self.name, format!("its frames are not a valid log: {why}"), hint)
    }

    fn apart(&self) -> Error {
        Error::incomplete(
            self.name,
            format!("it continues {}, but the database is at {}", self.first.show(), self.base.show()),
            "name the sets in between too, with --from; or restore to a time before this set, with --stop-at",
        )
    }
}

/// Fills `buffer`; false at the end, an error if only a part is left.
fn read_whole(from: &mut impl Read, buffer: &mut [u8]) -> std::io::Result<bool> {
    let mut done = 0;
    while done < buffer.len() {
        match from.read(&mut buffer[done..]) {
            Ok(0) if done == 0 => return Ok(false),
            Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => done += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::{Seek, Write};

    use super::super::super::wal::checksum;
    use super::*;

    const PAGE: usize = 512;
    const SALTS: [u8; 8] = *b"saltsalt";

    fn file(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file.rewind().unwrap();
        file
    }

    /// Frames of pages with their first byte, each a commit of so many pages, seen at 100, 200, …; records and frames.
    fn set(frames: &[(u32, u8, u32)]) -> (Vec<u8>, Vec<u8>) {
        let (mut groups, mut bytes, mut sums) = (Vec::new(), Vec::new(), (11, 12));
        for (&(page, content, pages), number) in frames.iter().zip(6..) {
            let before = sums;
            let start = [page.to_be_bytes(), pages.to_be_bytes()].concat();
            sums = checksum(false, checksum(false, sums, &start), &[content; PAGE]);
            bytes.extend([&start[..], &SALTS, &sums.0.to_be_bytes(), &sums.1.to_be_bytes(), &[content; PAGE]].concat());
            let time = i64::from(number - 5) * 100;
            let group = Group {
                time,
                salts: SALTS,
                first_frame: number,
                last_frame: number,
                pages,
                big_endian: false,
                before,
                after: sums,
            };
            groups.extend(group.encode());
        }
        (groups, bytes)
    }

    fn end(frame: u32, sums: (u32, u32), pages: u32) -> End {
        let log = Some(LogPosition::new(SALTS, frame, Some(sums), 0));
        End { page_size: PAGE as u32, pages, change_counter: None, log, file: None, at: show_time(0) }
    }

    fn apply(groups: &[u8], frames: &[u8], base: &End, stop: Option<i64>) -> (Result<Applied>, Vec<u8>) {
        let database = file(&[b'0'; 2 * PAGE]);
        let (groups, frames, first) = (file(groups), file(frames), end(5, (11, 12), 2));
        let unpacked =
            Unpacked { name: "log", groups: &groups, frames: &frames, first: &first, database: &database, base };
        let applied = unpacked.apply(stop);
        let mut bytes = vec![0; database.metadata().unwrap().len() as usize];
        database.read_exact_at(&mut bytes, 0).unwrap();
        (applied, bytes.chunks(PAGE).map(|page| page[0]).collect())
    }

    const FRAMES: [(u32, u8, u32); 4] = [(1, b'a', 2), (3, b'b', 3), (2, b'c', 3), (1, b'd', 1)];

    #[test]
    fn pages_are_those_of_the_last_commit_before_the_stop() {
        let (groups, frames) = set(&FRAMES);
        for (stop, pages) in
            [(Some(99), "00"), (Some(100), "a0"), (Some(250), "a0b"), (Some(300), "acb"), (Some(400), "d"), (None, "d")]
        {
            let (applied, bytes) = apply(&groups, &frames, &end(5, (11, 12), 2), stop);
            assert_eq!(String::from_utf8(bytes).unwrap(), pages, "{stop:?}");
            assert_eq!(applied.unwrap().stopped, stop.is_some_and(|stop| stop < 400));
        }
    }

    #[test]
    fn a_base_within_the_set_passes_over_what_it_holds_and_one_elsewhere_is_refused() {
        let (groups, frames) = set(&FRAMES);
        let within = Group::decode(&groups[GROUP_SIZE..]).unwrap();
        let (applied, bytes) = apply(&groups, &frames, &end(7, within.after, 3), Some(300));
        assert_eq!((applied.unwrap().frames, &bytes[..]), (1, &b"0c\0"[..]));
        for base in [end(4, (11, 12), 2), end(5, (11, 13), 2), end(7, (1, 1), 3), end(99, (1, 1), 2)] {
            assert!(apply(&groups, &frames, &base, None).0.is_err(), "{base:?}");
        }
    }

    #[test]
    fn every_flipped_bit_of_frames_or_groups_is_noticed() {
        let (groups, frames) = set(&FRAMES[..2]);
        for bit in 0..frames.len() * 8 {
            let mut flipped = frames.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(apply(&groups, &flipped, &end(5, (11, 12), 2), None).0.is_err(), "bit {bit} of the frames");
        }
        // All but the times, which have no second place.
        for bit in (64..groups.len() * 8).filter(|bit| bit / 8 % GROUP_SIZE >= 8) {
            let mut flipped = groups.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(apply(&flipped, &frames, &end(5, (11, 12), 2), None).0.is_err(), "bit {bit} of the groups");
        }
    }

    #[test]
    fn frames_that_are_missing_are_noticed() {
        let (groups, frames) = set(&FRAMES);
        assert!(apply(&groups, &frames[..frames.len() - 1], &end(5, (11, 12), 2), None).0.is_err());
        assert!(apply(&groups, &frames[..frames.len() - PAGE - 24], &end(5, (11, 12), 2), None).0.is_err());
        assert!(apply(&groups[..groups.len() - 1], &frames, &end(5, (11, 12), 2), None).0.is_err());
        assert!(apply(&groups[GROUP_SIZE..], &frames, &end(5, (11, 12), 2), None).0.is_err());
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic(
            tail in proptest::collection::vec(proptest::num::u8::ANY, 0..200), cut in 0..100_usize,
        ) {
            let (mut groups, frames) = set(&FRAMES);
            groups.truncate(cut);
            groups.extend(&tail);
            let _ = apply(&groups, &frames, &end(5, (11, 12), 2), None);
            let _ = apply(&tail, &tail, &end(5, (11, 12), 2), Some(150));
        }
    }
}
