#![allow(clippy::unwrap_used)]
use std::fs::File;

use super::super::framing::seal;
use super::super::header::CHECKPOINTS_AT;
use super::super::record::put_record;
use super::super::ring::PAYLOAD_AT;
use super::*;

const SIZE: u64 = 1 << 20;
const FIRST: u64 = 50_000;

/// A server's log, written in a way that is hard to follow: the last block is rewritten in place, and stale
/// mini-transactions that validate are after the flushed bytes.
pub(crate) struct Writer {
    directory: tempfile::TempDir,
    file: File,
    ring: Ring,
    pub(crate) lsn: u64,
    /// All that was written, with the ends of the restored log.
    expected: Vec<u8>,
    random: fastrand::Rng,
    nonce: bool,
    checkpoint: u64,
}

impl Writer {
    pub(crate) fn new(seed: u64, nonce: bool) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = File::options().create_new(true).write(true).open(directory.path().join("ib_logfile0")).unwrap();
        file.set_len(SIZE).unwrap();
        file.write_all_at(&Header::made(FIRST, nonce), 0).unwrap();
        let ring = Ring::new(FIRST, SIZE).unwrap();
        let random = fastrand::Rng::with_seed(seed);
        let writer = Self { directory, file, ring, lsn: FIRST, expected: Vec::new(), random, nonce, checkpoint: FIRST };
        writer.put_checkpoint(0, FIRST);
        writer
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("ib_logfile0")
    }

    fn put_checkpoint(&self, place: usize, lsn: u64) {
        let bytes = Checkpoint { lsn, end_lsn: lsn }.to_bytes();
        self.file.write_all_at(&bytes, CHECKPOINTS_AT[place]).unwrap();
    }

    fn put(&self, lsn: u64, bytes: &[u8]) {
        let first = self.ring.contiguous(lsn, bytes.len() as u64) as usize;
        self.file.write_all_at(&bytes[..first], self.ring.offset(lsn)).unwrap();
        self.file.write_all_at(&bytes[first..], PAYLOAD_AT).unwrap();
    }

    /// Writes one mini-transaction of about `size` bytes, and stale bytes after it.
    pub(crate) fn write(&mut self, size: usize) {
        let mut records = Vec::new();
        let body: Vec<u8> = (0..size.max(1)).map(|_| self.random.u8(..)).collect();
        put_record(0x30, &body, &mut records);
        let nonce = self.nonce.then(|| self.random.u64(..));
        let mut sealed = seal(&records, self.lsn, &self.ring, nonce);
        self.put(self.lsn, &sealed);
        let end = self.lsn + sealed.len() as u64;
        // Bytes that validate and are not the log.
        let stale = seal(&[0x33, 1, 2, 3], end, &self.ring, nonce);
        self.put(end, &stale);
        sealed[records.len()] = SEQUENCE;
        self.expected.extend_from_slice(&sealed);
        self.lsn = end;
    }

    fn server(&self) -> ServerLsn {
        ServerLsn { flushed: self.lsn, current: self.lsn }
    }
}

/// Everything that was given, put together by its LSN.
fn collect(out: &mut Vec<u8>) -> impl FnMut(u64, &[u8]) -> Result<()> + '_ {
    |lsn, bytes| {
        assert_eq!(lsn, FIRST + out.len() as u64);
        out.extend_from_slice(bytes);
        Ok(())
    }
}

#[test]
fn a_log_that_goes_round_many_times_is_taken_byte_for_byte() {
    for (seed, nonce) in [(1, false), (2, true), (3, false)] {
        let mut writer = Writer::new(seed, nonce);
        let mut tail = Tail::open(&writer.path(), Mode::Auto).unwrap();
        let mut out = Vec::new();
        for step in 0..4000 {
            let size = if step % 100 == 0 { 100_000 } else { writer.random.usize(1..2000) };
            writer.write(size);
            if writer.random.u8(..) < 60 {
                while tail.advance(writer.server(), &mut collect(&mut out)).unwrap() {}
                assert!(tail.lsn() <= writer.lsn);
            }
        }
        while tail.advance(writer.server(), &mut collect(&mut out)).unwrap() {}
        assert!(writer.lsn - tail.lsn() <= 4096 + 2000, "the last block is left for later");
        assert!(tail.finish(writer.server(), writer.lsn, &mut collect(&mut out)).unwrap());
        assert_eq!(tail.lsn(), writer.lsn);
        assert!(out == writer.expected, "seed {seed}");
        assert!(writer.lsn > FIRST + 3 * SIZE);
    }
}

#[test]
fn nothing_above_the_flushed_lsn_is_taken_although_it_validates() {
    let mut writer = Writer::new(7, false);
    let mut tail = Tail::open(&writer.path(), Mode::Auto).unwrap();
    writer.write(20_000);
    let flushed = writer.lsn;
    writer.write(20_000);
    let mut out = Vec::new();
    let server = ServerLsn { flushed, current: writer.lsn };
    assert!(tail.finish(server, flushed, &mut collect(&mut out)).unwrap());
    assert_eq!(tail.lsn(), flushed);
    // A target that the server has not flushed yet is not reached.
    assert!(!tail.finish(server, writer.lsn, &mut collect(&mut out)).unwrap());
    assert_eq!(tail.lsn(), flushed);
}

#[test]
fn a_log_that_overtakes_its_reader_ends_the_copy_and_says_what_to_raise() {
    let mut writer = Writer::new(8, false);
    let mut tail = Tail::open(&writer.path(), Mode::Auto).unwrap();
    while writer.lsn < FIRST + SIZE + 10_000 {
        writer.write(5000);
    }
    let mut out = Vec::new();
    let error = tail.advance(writer.server(), &mut collect(&mut out)).unwrap_err().to_string();
    assert!(error.contains("innodb_log_file_size") && error.contains("overwritten"), "{error}");
    assert!(out.is_empty());
}

#[test]
fn a_log_that_overtakes_its_reader_between_two_questions_is_noticed_by_the_next() {
    let mut writer = Writer::new(9, false);
    let mut tail = Tail::open(&writer.path(), Mode::Auto).unwrap();
    writer.write(9000);
    let mut out = Vec::new();
    tail.advance(writer.server(), &mut collect(&mut out)).unwrap();
    while writer.lsn < FIRST + SIZE + 10_000 {
        writer.write(5000);
    }
    assert!(tail.prove(writer.server()).is_err());
}

#[test]
fn bytes_that_make_no_sense_are_an_error_after_some_attempts_and_an_overrun_if_a_checkpoint_is_newer() {
    for newer in [false, true] {
        let mut writer = Writer::new(10, false);
        let mut tail = Tail::open(&writer.path(), Mode::Auto).unwrap();
        for _ in 0..200 {
            writer.write(50);
        }
        writer.put(FIRST + 100, &[0x55; 300]);
        if newer {
            writer.checkpoint = writer.lsn;
            writer.put_checkpoint(1, writer.checkpoint);
        }
        let mut out = Vec::new();
        let error = loop {
            match tail.advance(writer.server(), &mut collect(&mut out)) {
                Ok(_) => {}
                Err(error) => break error.to_string(),
            }
        };
        assert_eq!(error.contains("innodb_log_file_size"), newer, "{error}");
        assert_eq!(error.contains("is invalid at LSN"), !newer, "{error}");
    }
}

#[test]
fn another_file_under_the_name_and_a_shorter_one_are_noticed() {
    let mut writer = Writer::new(11, false);
    let mut tail = Tail::open(&writer.path(), Mode::Auto).unwrap();
    writer.write(9000);
    let copy = writer.directory.path().join("ib_logfile101");
    fs::copy(writer.path(), &copy).unwrap();
    fs::rename(&copy, writer.path()).unwrap();
    let error = tail.advance(writer.server(), &mut |_, _| Ok(())).unwrap_err().to_string();
    assert!(error.contains("another redo log"), "{error}");
}

#[test]
fn a_torn_head_is_read_again_and_a_foreign_one_refused() {
    let writer = Writer::new(12, false);
    writer.file.write_all_at(b"PHYS", 0).unwrap();
    let error = Tail::open(&writer.path(), Mode::Auto).err().unwrap().to_string();
    assert!(error.contains("10.5 to 10.7"), "{error}");
    writer.file.write_all_at(&[0; 600], 0).unwrap();
    assert!(Tail::open(&writer.path(), Mode::Auto).is_err());
    writer.file.write_all_at(&Header::made(FIRST, false), 0).unwrap();
    writer.file.write_all_at(&[9; 64], CHECKPOINTS_AT[0]).unwrap();
    let error = Tail::open(&writer.path(), Mode::Auto).err().unwrap().to_string();
    assert!(error.contains("no valid checkpoint"), "{error}");
}
