//! The records of the stream `groups` (MEDIA_FORMAT §11): commits that were first seen at one time.

use super::super::header::Malformed;

/// Bytes of a record.
pub const GROUP_SIZE: usize = 48;
const BIG_ENDIAN: u32 = 1;

/// A run of whole commits of one log, first seen at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group {
    /// When they were seen, in microseconds since 1970.
    pub time: i64,
    /// The log's salts.
    pub salts: [u8; 8],
    /// Number of their first frame in the log, from 1.
    pub first_frame: u32,
    /// Number of their last frame: a commit frame.
    pub last_frame: u32,
    /// Size of the database in pages after it.
    pub pages: u32,
    /// Whether the log's checksums are over big-endian words.
    pub big_endian: bool,
    /// The log's running checksum before the first frame.
    pub before: (u32, u32),
    /// The same after the last frame.
    pub after: (u32, u32),
}

impl Group {
    /// How many frames it has.
    pub fn frames(&self) -> u32 {
        self.last_frame - self.first_frame + 1
    }

    /// The record.
    pub fn encode(&self) -> [u8; GROUP_SIZE] {
        let mut bytes = [0; GROUP_SIZE];
        bytes[..8].copy_from_slice(&self.time.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.salts);
        let flags = if self.big_endian { BIG_ENDIAN } else { 0 };
        let numbers = [
            self.first_frame,
            self.last_frame,
            self.pages,
            flags,
            self.before.0,
            self.before.1,
            self.after.0,
            self.after.1,
        ];
        for (place, number) in bytes[16..].as_chunks_mut::<4>().0.iter_mut().zip(numbers) {
            *place = number.to_le_bytes();
        }
        bytes
    }

    /// Reads a record and bounds its numbers.
    ///
    /// # Errors
    /// The rule that it breaks.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let bytes: &[u8; GROUP_SIZE] =
            bytes.first_chunk().ok_or_else(|| Malformed(format!("{} bytes are too few for a group", bytes.len())))?;
        let number = |at: usize| bytes[at..].first_chunk().map_or(0, |four| u32::from_le_bytes(*four));
        let (mut time, mut salts) = ([0; 8], [0; 8]);
        time.copy_from_slice(&bytes[..8]);
        salts.copy_from_slice(&bytes[8..16]);
        let group = Self {
            time: i64::from_le_bytes(time),
            salts,
            first_frame: number(16),
            last_frame: number(20),
            pages: number(24),
            big_endian: number(28) & BIG_ENDIAN != 0,
            before: (number(32), number(36)),
            after: (number(40), number(44)),
        };
        let bad = |why: &str| Err(Malformed(why.into()));
        // The number of frames, too, must be a u32.
        if group.first_frame == 0 || group.last_frame < group.first_frame || group.last_frame == u32::MAX {
            return bad("its frames are not numbered upwards from 1");
        }
        if group.pages == 0 {
            return bad("it leaves a database without pages");
        }
        if number(28) & !BIG_ENDIAN != 0 {
            return bad("it has unknown flags");
        }
        Ok(group)
    }

    /// Checks that this record may follow `before`, or be the first.
    ///
    /// # Errors
    /// The rule that it breaks.
    pub fn follows(&self, before: Option<&Group>) -> Result<(), Malformed> {
        let Some(before) = before else { return Ok(()) };
        let bad = |why: &str| Err(Malformed(why.into()));
        if self.time < before.time {
            return bad("it is older than the group before it");
        }
        match self.salts == before.salts {
            true if (self.first_frame - 1, self.before) != (before.last_frame, before.after) => {
                bad("it does not continue the group before it")
            }
            true if self.big_endian != before.big_endian => bad("the byte order changes within a log"),
            false if self.first_frame != 1 => bad("a log does not begin with its first frame"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn group() -> Group {
        Group {
            time: 1_700_000_000_000_000,
            salts: *b"saltsalt",
            first_frame: 3,
            last_frame: 9,
            pages: 77,
            big_endian: true,
            before: (1, 2),
            after: (3, 4),
        }
    }

    #[test]
    fn a_record_comes_back_as_it_was() {
        assert_eq!(Group::decode(&group().encode()).unwrap(), group());
        assert!(Group::decode(&group().encode()[..47]).is_err());
    }

    #[test]
    fn numbers_out_of_bounds_are_refused() {
        for (at, value) in [(16, 0), (16, 10), (20, 2), (20, u32::MAX), (24, 0), (28, 2)] {
            let mut bytes = group().encode();
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
            assert!(Group::decode(&bytes).is_err(), "{value} at {at}");
        }
    }

    #[test]
    fn a_record_that_does_not_continue_the_one_before_it_is_refused() {
        let next = Group { first_frame: 10, last_frame: 10, before: (3, 4), ..group() };
        let restarted = Group { salts: *b"saltsalu", first_frame: 1, ..next };
        for good in [next, restarted] {
            good.follows(Some(&group())).unwrap();
        }
        let bad = [
            Group { first_frame: 11, last_frame: 11, ..next },
            Group { before: (3, 5), ..next },
            Group { time: 5, ..next },
            Group { big_endian: false, ..next },
            Group { first_frame: 2, ..restarted },
        ];
        for bad in bad {
            assert!(bad.follows(Some(&group())).is_err(), "{bad:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..100)) {
            if let Ok(group) = Group::decode(&bytes) {
                assert_eq!(group.encode(), bytes[..GROUP_SIZE]);
                let _ = (group.frames(), group.follows(Some(&group)));
            }
        }
    }
}
