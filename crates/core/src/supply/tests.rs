//! What supplies promise: the suite for all of them, and files that change while they are read.
#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::Mutex;

use super::*;
use crate::io::Queue;
use crate::testkit::{Fault, FaultPlan, FaultSupply, MemorySupply, supply_conforms};

#[test]
fn every_supply_conforms() {
    for mode in [Mode::Auto, Mode::Uring, Mode::Blocking, Mode::Buffered] {
        if Queue::new(1, mode).is_err() {
            continue; // This machine has no io_uring.
        }
        for depth in [1, 4] {
            let directory = crate::io::directory_on_disk();
            let path = directory.path().join("a");
            supply_conforms(|bytes, pool| {
                fs::write(&path, bytes).unwrap();
                Box::new(FileSupply::open("a", &path, pool, depth, mode).unwrap())
            });
        }
    }
    supply_conforms(|bytes, pool| {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let bytes = bytes.to_vec();
        std::thread::spawn(move || drop(writer.write_all(&bytes))); // The suite drops one half-way: EPIPE.
        Box::new(PipeSupply::new("-", File::from(OwnedFd::from(reader)), pool))
    });
}

#[test]
fn nothing_can_be_read_from_nul_a_directory_a_missing_file_or_a_named_pipe() {
    let pool = Pool::new(1, 4096).unwrap();
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("inner")).unwrap();
    let fifo = directory.path().join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    let refused = |text: String| {
        open(&Device::parse(&text).unwrap(), &pool, 1, Mode::Auto, &Stores::default())
            .err()
            .unwrap()
            .exit_kind()
            .exit_code()
    };
    let inside = |name: &str| format!("{}/{name}", directory.path().display());
    assert_eq!(refused("nul:".into()), 2);
    assert_eq!(refused(inside("")), 2);
    assert_eq!(refused(inside("inner")), 2);
    assert_eq!(refused(inside("fifo")), 2);
    assert_eq!(refused(inside("missing")), 1);
}

#[test]
fn a_file_that_is_cut_while_it_is_read_is_damaged_and_one_that_grows_is_read_as_it_was() {
    for mode in [Mode::Auto, Mode::Blocking, Mode::Buffered] {
        let directory = crate::io::directory_on_disk();
        let path = directory.path().join("a");
        fs::write(&path, vec![1; 1 << 20]).unwrap();
        let pool = Pool::new(2, 65536).unwrap();
        let mut supply = FileSupply::open("a", &path, &pool, 2, mode).unwrap();
        drop(supply.next().unwrap());
        File::options().write(true).open(&path).unwrap().set_len(500_001).unwrap();
        let error = std::iter::from_fn(|| supply.next().transpose()).find_map(Result::err).unwrap();
        assert_eq!(error.exit_kind().exit_code(), 3);
        assert!(error.to_string().contains("byte 500001") && error.to_string().contains("cut"), "{mode:?}: {error}");
        assert!(supply.next().is_err(), "an error is no end");
        assert!(supply.read_at(600_000, &mut [0; 10]).is_err());

        let mut supply = FileSupply::open("a", &path, &pool, 2, mode).unwrap();
        File::options().append(true).open(&path).unwrap().write_all(b"more").unwrap();
        let got: usize = std::iter::from_fn(|| supply.next().unwrap()).map(|piece| piece.len()).sum();
        assert_eq!(got, 500_001);
    }
}

#[test]
fn supplies_share_a_pool_that_has_their_queue_depths_and_what_is_given_out() {
    let directory = crate::io::directory_on_disk();
    let path = directory.path().join("a");
    fs::write(&path, vec![1; 1 << 20]).unwrap();
    let pool = Pool::new(4, 65536).unwrap();
    let mut one = FileSupply::open("a", &path, &pool, 1, Mode::Auto).unwrap();
    let mut two = FileSupply::open("a", &path, &pool, 1, Mode::Auto).unwrap();
    let mut given = (0, 0);
    loop {
        let (first, second) = (one.next().unwrap(), two.next().unwrap());
        given.0 += first.as_ref().map_or(0, |piece| piece.len());
        given.1 += second.as_ref().map_or(0, |piece| piece.len());
        if first.is_none() && second.is_none() {
            break;
        }
    }
    assert_eq!(given, (1 << 20, 1 << 20), "each supply gives all of its family");
    drop((one, two));
    assert_eq!(pool.free(), 4, "each buffer is home again");
}

#[test]
fn buffers_of_a_file_begin_where_a_caller_wishes() {
    const BUFFER: usize = 96 << 10;
    let folder = crate::io::directory_on_disk();
    let path = folder.path().join("family");
    fs::write(&path, vec![1; 10 * BUFFER + 77]).unwrap();
    let pool = Pool::new(2, BUFFER).unwrap();
    let mut supply = FileSupply::open("family", &path, &pool, 1, Mode::Auto).unwrap();
    let mut lengths = Vec::new();
    while let Some(piece) = supply.next().unwrap() {
        // A read is under way; the one after it begins 4096 bytes behind a buffer.
        supply.begin_at(5 * BUFFER as u64 + 4096);
        lengths.push(piece.len());
    }
    assert_eq!(lengths[..4], [BUFFER, BUFFER, 4096, BUFFER], "{lengths:?}");
    assert_eq!(lengths.iter().sum::<usize>(), 10 * BUFFER + 77);
}

#[test]
fn planned_faults_of_a_supply_happen() {
    let pool = Pool::new(4, 4096).unwrap();
    let make = |fault| {
        let plan = FaultPlan::new().with(0, fault);
        let inner = MemorySupply::new("m", &Arc::new(Mutex::new(vec![0; 10_000])), &pool);
        FaultSupply::new(Box::new(inner), &plan, 0)
    };
    let read = |supply: &mut FaultSupply| {
        let mut bytes = Vec::new();
        while let Some(piece) = supply.next()? {
            bytes.extend_from_slice(&piece);
        }
        Ok::<_, Error>(bytes)
    };
    for fault in [Fault::ErrorAtOperation(1, 5), Fault::ErrorAtByte(5000, 5), Fault::Kill(1)] {
        assert!(read(&mut make(fault)).is_err(), "{fault:?}");
    }
    let mut short = make(Fault::EndsAt(5000));
    assert_eq!((short.size(), read(&mut short).unwrap().len()), (Some(5000), 5000));
    let flipped = read(&mut make(Fault::FlipBit(9_999, 7))).unwrap();
    assert_eq!((flipped[9_999], flipped.iter().filter(|&&byte| byte != 0).count()), (128, 1));
    let mut one = [0];
    make(Fault::FlipBit(6, 0)).read_at(6, &mut one).unwrap();
    assert_eq!(one, [1]);
}
