//! Backup files of SQL Server in repositories: taken in, compared with the full before them, and given back.

use std::fs;
use std::path::{Path, PathBuf};

use fullbore_engines::compressed::Writer;
use fullbore_engines::sqlserver::configuration::BackupKind;
use fullbore_engines::sqlserver::lsn::Lsn;
use fullbore_engines::sqlserver::page::{PAGE, place, seal};
use fullbore_engines::sqlserver::writer::{
    FamilyWriter, WrittenSet, sample_extents, sample_extents_of, sample_full, sample_label, sample_log, sample_set,
};
use serde_json::Value;
use uuid::Uuid;

use crate::program::Ended;
use crate::world::World;

/// A world with the repository `night`.
pub fn world() -> World {
    let world = World::new();
    world.write("fullbore.toml", b"[repository.night]\nto = [\"a/\"]\n");
    world
}

/// A full, a differential or a log, as the media with this number.
pub fn set(kind: BackupKind, number: u32) -> WrittenSet {
    let mut set = sample_set(kind, 1);
    set.header.guid = Uuid::from_u128(u128::from(number) + 7000);
    let database = &mut set.configuration.database;
    (database.first, database.last) = (lsn(number * 100), lsn(number * 100 + 100));
    set
}

fn lsn(block: u32) -> Lsn {
    Lsn { file: 34, block, slot: 1 }
}

pub fn written(set: &WrittenSet, number: u32) -> Vec<u8> {
    let mut label = sample_label(1, 1);
    label.stripe.media_set = Uuid::from_u128(u128::from(number) + 600);
    FamilyWriter::new(&label, 512).set(set).finish()
}

/// Extents 0 to `count`, with bytes that no codec packs. Each page whose number is a multiple of `step` has others, from
/// `fill`.
pub fn extents(count: u32, step: u32, fill: u64) -> Vec<u8> {
    let numbers: Vec<u32> = (0..count).collect();
    let mut bytes = sample_extents(&numbers, count);
    for page in bytes.as_chunks_mut::<PAGE>().0 {
        let id = place(page, u32::from(page[32]) % 8).unwrap();
        if page[1] == 1 {
            let seed = if id.page % step == 3 { fill } else { 0 };
            let mut random = fastrand::Rng::with_seed(seed << 32 | u64::from(id.page));
            page[96..].fill_with(|| random.u8(..));
            seal(page, id, 1);
        }
    }
    bytes
}

/// The sets in the repository, oldest first.
pub fn list(world: &World) -> Vec<Value> {
    world.run("list --repo night --json").done().json().as_array().unwrap().clone()
}

pub fn how(ended: &Ended) -> Vec<String> {
    let copied = ended.object()["copied"].as_array().unwrap().clone();
    copied.iter().map(|copy| copy["how"].as_str().unwrap().to_owned()).collect()
}

pub fn id(set: &Value) -> &str {
    set["backup_set_id"].as_str().unwrap()
}

#[test]
fn media_of_every_kind_come_back_byte_for_byte_and_are_taken_in_once() {
    let world = world();
    fs::create_dir(world.at("dump")).unwrap();
    let mut full = set(BackupKind::Full, 1);
    full.copies = vec![extents(4, 8, 1)];
    let mut differential = set(BackupKind::Differential, 2);
    differential.copies = vec![extents(2, 8, 2)];
    let mut log = set(BackupKind::Log, 3);
    log.logs = vec![sample_log(70_000)];
    let media = [
        ("dump/full.bak", written(&full, 1)),
        ("dump/diff.bak", written(&differential, 2)),
        ("dump/log.trn", written(&log, 3)),
        ("dump/packed.bak", Writer::of_stream(&sample_full(true)).container),
    ];
    media.iter().for_each(|(name, bytes)| world.write(name, bytes));
    let done = world.run("copy --from dump/* --to-repo night --report json").done();
    let ways = how(&done);
    let count = |way: &str| ways.iter().filter(|known| *known == way).count();
    assert_eq!((count("stored whole"), count("stored as it is")), (2, 2), "pages have places, others not: {done}");
    let again = world.run("copy --from dump/* --to-repo night --report json").done();
    assert_eq!(how(&again), ["there already"; 4], "{again}");
    let sets = list(&world);
    assert_eq!(sets.len(), 4);
    assert!(sets.iter().all(|set| set["engine"] == "sqlserver" && set["database"] == "DB1/shop"), "{sets:?}");
    let copy_only = sets.iter().filter(|set| set["copy_only"] == true).count();
    assert_eq!(copy_only, 2, "the differential and the log begin no chain");
    world.run("verify --repo night").done();
    for set in &sets {
        let line = format!("restore --repo night --set {} --into bak:out/ --mkdir", id(set));
        world.run(&line).done();
        world.run(&line).refused(1, "out", "exists");
        world.run(&format!("{line} --replace")).done();
    }
    for (name, bytes) in &media {
        assert!(world.read(&name.replace("dump", "out")) == *bytes, "{name}");
    }
    assert_eq!(world.names("out").len(), 4);
}

#[test]
fn a_later_full_is_stored_as_the_pages_that_differ() {
    let world = world();
    let mut first = set(BackupKind::Full, 1);
    first.configuration.files[0].size = 16 << 20;
    first.copies = vec![extents(200, 20, 1)];
    first.logs = vec![sample_log(1 << 16)];
    let mut second = set(BackupKind::Full, 2);
    second.configuration.files[0].size = 16 << 20;
    second.copies = vec![extents(200, 20, 2)];
    second.logs = first.logs.clone();
    let media = [("1.bak", written(&first, 1)), ("2.bak", written(&second, 2))];
    media.iter().for_each(|(name, bytes)| world.write(name, bytes));
    let done = world.run("copy --from 1.bak --from 2.bak --to-repo night --report json").done();
    assert_eq!(how(&done), ["stored whole", "stored as the pages that differ"], "{done}");
    let sets = list(&world);
    assert_eq!((sets[0]["kind"].as_str(), sets[1]["kind"].as_str()), (Some("full"), Some("differential")));
    let changed = 200 * 8 / 20 * PAGE as u64;
    let kept = (media[1].1.len() - 200 * 8 * PAGE) as u64;
    let stored = sets[1]["stored_bytes"].as_u64().unwrap();
    // The rest of a family is its header, manifest and trailer.
    let most = (changed + kept) * 11 / 10 + (64 << 10);
    assert!(stored > changed && stored < most, "{stored} bytes for {changed} in pages and {kept} others");
    world.run("verify --repo night").done();
    for (set, (name, bytes)) in sets.iter().zip(&media) {
        world.run(&format!("restore --repo night --set {} --into bak:out --mkdir", id(set))).done();
        assert!(world.read(&format!("out/{name}")) == *bytes, "{name}");
    }
    world.run("restore-test --repo night --scratch .").done();
}

#[test]
fn a_stored_differential_becomes_files_over_its_stored_full_and_a_chain_comes_back_with_its_logs() {
    let world = world();
    let mut fulls = [1, 2].map(|number| set(BackupKind::Full, number));
    for (full, fill) in fulls.iter_mut().zip(1..) {
        full.copies = vec![extents(100, 20, fill)];
    }
    let mut differential = set(BackupKind::Differential, 3);
    differential.configuration.database.base = fulls[1].header.guid;
    differential.copies = vec![extents(2, 8, 3)];
    let mut media: Vec<(String, Vec<u8>)> =
        fulls.iter().zip(1..).map(|(full, number)| (format!("{number}.bak"), written(full, number))).collect();
    media.push(("3.dif".into(), written(&differential, 3)));
    for number in [4, 5] {
        let mut log = set(BackupKind::Log, number);
        log.logs = vec![sample_log(70_000)];
        media.push((format!("{number}.trn"), written(&log, number)));
    }
    media.iter().for_each(|(name, bytes)| world.write(name, bytes));
    let from: String = media.iter().map(|(name, _)| format!(" --from {name}")).collect();
    let done = world.run(&format!("copy{from} --to-repo night --report json")).done();
    assert_eq!(how(&done)[1], "stored as the pages that differ", "the base of the differential has a base itself");
    let ids: Vec<String> = list(&world).iter().map(|set| id(set).to_owned()).collect();
    world.run("restore --from 2.bak --from 3.dif --into dir:wanted --mkdir").done();
    let done = world.run(&format!("restore --repo night --set {} --into dir:out --mkdir", ids[2])).done();
    assert!(world.read("out/shop") == world.read("wanted/shop"), "{done}");
    assert_eq!(world.names("out"), world.names("wanted"));
    let logged = world.run(&format!("restore --repo night --set {} --into dir:logged --mkdir", ids[4])).with_code(4);
    logged.says(&["the log backups are not applied"]);
    assert!(world.read("logged/shop") == world.read("wanted/shop"));
    world.run(&format!("restore --repo night --set {} --into bak:chain --chain --mkdir", ids[4])).done();
    assert_eq!(world.names("chain"), ["2.bak", "3.dif", "4.trn", "5.trn"]);
    for (name, bytes) in &media[1..] {
        assert!(world.read(&format!("chain/{name}")) == *bytes, "{name}");
    }
    world
        .run(&format!("restore --repo night --set {} --into dir:x --chain --mkdir", ids[4]))
        .refused(2, "--chain", "bak:");
    world.write("fullbore.toml", b"[repository.night]\nto = [\"b/\"]\n");
    world.run("copy --from 3.dif --to-repo night --mkdir").done();
    let line = format!("restore --repo night --set {} --into dir:alone --mkdir", id(&list(&world)[0]));
    world.run(&line).with_code(3).says(&["the full backup", "is not stored", "take the files of this full in too"]);
    assert!(!world.at("alone").exists());
}

/// Bytes of the files in a directory.
fn bytes_in(world: &World, directory: &str) -> u64 {
    world.names(directory).iter().map(|name| world.at(&format!("{directory}/{name}")).metadata().unwrap().len()).sum()
}

#[test]
fn an_extent_far_behind_the_others_makes_no_large_set() {
    let world = world();
    let far = |cell: u32, number: u32, fill: u64| {
        let mut set = set(BackupKind::Full, number);
        // The longest file that SQL Server has.
        set.configuration.files[0].size = 1 << 45;
        set.copies = vec![[extents(20, 20, fill), sample_extents(&[cell], 0)].concat()];
        written(&set, number)
    };
    // The last extent of the file, and the last one that always has a place.
    for (name, cell) in [("end", (1 << 29) - 1), ("near", (1 << 12) - 1)] {
        let media = [far(cell, 1, 1), far(cell, 2, 2)];
        for (bytes, number) in media.iter().zip(1..) {
            world.write(&format!("{name}{number}.bak"), bytes);
        }
        world.run(&format!("copy --from {name}1.bak --to {name}/ --mkdir")).done();
        let (stored, read) = (bytes_in(&world, name), media[0].len() as u64);
        assert!(stored < read + (1 << 20), "{name}: {stored} bytes for {read}");
        fs::create_dir(world.at(&format!("{name}-r"))).unwrap();
        world.write("fullbore.toml", format!("[repository.night]\nto = [\"{name}-r/\"]\n").as_bytes());
        let line = format!("copy --from {name}1.bak --from {name}2.bak --to-repo night --report json");
        assert_eq!(how(&world.run(&line).done()), ["stored whole", "stored as the pages that differ"]);
        for (set, number) in list(&world).iter().zip(1..) {
            world.run(&format!("restore --repo night --set {} --into bak:{name}-out --mkdir", id(set))).done();
            assert!(world.read(&format!("{name}-out/{name}{number}.bak")) == media[number - 1], "{name}{number}");
        }
    }
}

#[test]
fn a_file_that_is_cut_while_it_is_read_is_left_out_by_its_cause() {
    let world = world();
    let mut full = set(BackupKind::Full, 1);
    full.configuration.files[0].size = 64 << 20;
    full.copies = vec![extents(480, 20, 1)];
    world.write("cut.bak", &written(&full, 1));
    world.write("good.trn", &written(&set(BackupKind::Log, 6), 6));
    fs::create_dir(world.at("out")).unwrap();
    let copy = world.start("copy --from cut.bak --from good.trn --to out/ --throttle 8MiB/s");
    copy.says(" % ");
    fs::File::options().write(true).open(world.at("cut.bak")).unwrap().set_len((28 << 20) + 5000).unwrap();
    let ended = copy.wait().with_code(4);
    let said = ended.says(&["not stored", "cut.bak", "it was cut during the read", "no program writes"]);
    assert!(!said.err.contains("an earlier read"), "{said}");
    assert_eq!(world.names("out").len(), 1, "the log is taken in");
}

#[test]
fn half_a_stripe_pair_and_a_damaged_page_are_left_out_by_name() {
    let world = world();
    for (family, extents) in [(1, &[0, 1][..]), (2, &[2, 5])] {
        let mut set = sample_set(BackupKind::Full, 1);
        set.copies = vec![sample_extents_of(extents, &[0, 1, 2, 5])];
        world.write(&format!("{family}.bak"), &FamilyWriter::new(&sample_label(2, family), 512).set(&set).finish());
    }
    world.run("copy --from 1.bak --to-repo night").with_code(3).says(&["family 2 of 2"]);
    let mut full = set(BackupKind::Full, 5);
    full.copies = vec![extents(4, 8, 1)];
    let good = written(&full, 5);
    let mut bad = good.clone();
    let page = bad.windows(6).position(|window| window == [9, 0, 0, 0, 1, 0]).unwrap();
    bad[page + 3000] ^= 1;
    world.write("bad.bak", &bad);
    world.run("copy --from bad.bak --to-repo night").with_code(3).says(&["bad.bak", "page 1:9"]);
    assert!(world.run("list --repo night --json").done().json().as_array().unwrap().is_empty());
    world.write("good.bak", &written(&set(BackupKind::Log, 6), 6));
    let done = world.run("copy --from 1.bak --from bad.bak --from good.bak --to-repo night");
    done.with_code(4).says(&["not stored", "family 2 of 2", "page 1:9"]);
    assert_eq!(list(&world).len(), 1);
    // The other half comes later.
    let done = world.run("copy --from 1.bak --from 2.bak --to-repo night").done();
    assert!(done.err.contains("stored whole"), "{done}");
}

#[test]
fn damaged_pages_are_taken_in_if_the_user_says_so_and_a_file_that_was_cut_off_never_is() {
    let world = world();
    let mut full = set(BackupKind::Full, 5);
    full.copies = vec![extents(4, 8, 1)];
    let mut bad = written(&full, 5);
    let page = bad.windows(6).position(|window| window == [9, 0, 0, 0, 1, 0]).unwrap();
    bad[page + 3000] ^= 1;
    world.write("bad.bak", &bad);
    let copy = "copy --from bad.bak --to-repo night --continue-after-error";
    world.run(copy).with_code(4).says(&["stored as it is", "page 1:9"]);
    let restore = "restore --repo night --into bak:out --mkdir";
    world.run(restore).refused(1, "damaged already", "--continue-after-error");
    world.run(&format!("{restore} --continue-after-error")).with_code(4).says(&["damaged already", "page 1:9"]);
    assert!(world.read("out/bad.bak") == bad);
    world.run("verify --repo night --latest").with_code(4).says(&["damaged already"]);
    // The damaged media do not keep the good ones out.
    world.write("good.bak", &written(&full, 5));
    world.run("copy --from good.bak --to-repo night").done();
    assert_eq!(list(&world).len(), 2);
    full.header.guid = Uuid::from_u128(8000);
    let other = written(&full, 6);
    world.write("bad.bak", &other[..other.len() / 2]);
    world.run(copy).with_code(3).says(&["bad.bak", "cut off"]);
}

#[test]
fn an_encrypted_repository_compares_a_full_with_its_key_and_stores_it_whole_without() {
    let world = world();
    world.run("key new k.key --no-recovery").done();
    let config = "[repository.night]\nto = [\"a/\"]\nencrypt-to = [\"k.key.pub\"]\nhide-names = true\nstripes = 2\n";
    world.write("fullbore.toml", config.as_bytes());
    let media: Vec<Vec<u8>> = (1..4)
        .map(|number| {
            let mut full = set(BackupKind::Full, number);
            full.copies = vec![extents(20, 20, number.into())];
            written(&full, number)
        })
        .collect();
    for (number, bytes) in media.iter().enumerate() {
        world.write(&format!("{number}.bak"), bytes);
    }
    world.run("copy --from 0.bak --to-repo night").done();
    let with_key = world.run("copy --from 1.bak --to-repo night --key k.key --report json").done();
    assert_eq!(how(&with_key), ["stored as the pages that differ"], "{with_key}");
    let without = world.run("copy --from 2.bak --to-repo night --report json").done();
    assert_eq!(how(&without), ["stored whole"], "{without}");
    assert!(without.err.contains("stored whole"), "{without}");
    let again = world.run("copy --from *.bak --to-repo night --report json").done();
    assert_eq!(how(&again), ["there already"; 3], "{again}");
    for (number, set) in list(&world).iter().enumerate() {
        let restore = format!("restore --repo night --set {} --into bak:out --mkdir --key k.key", id(set));
        world.run(&restore).done();
        assert!(world.read(&format!("out/{number}.bak")) == media[number], "{number}.bak");
    }
}

#[test]
fn a_file_that_is_overwritten_or_appended_to_is_a_set_of_its_own_each_time() {
    let world = world();
    let mut first = set(BackupKind::Full, 1);
    first.copies = vec![extents(8, 20, 1)];
    let mut second = set(BackupKind::Full, 2);
    second.copies = vec![extents(8, 20, 2)];
    let label = sample_label(1, 1);
    let media = [
        ("mon.bak", FamilyWriter::new(&label, 512).set(&first).finish()),
        ("tue.bak", FamilyWriter::new(&label, 512).set(&second).finish()),
        ("wed.bak", FamilyWriter::new(&label, 512).set(&second).set(&first).finish()),
    ];
    media.iter().for_each(|(name, bytes)| world.write(name, bytes));
    world.run("copy --from *.bak --to-repo night").done();
    let sets = list(&world);
    assert_eq!(sets.len(), 3);
    for set in &sets {
        world.run(&format!("restore --repo night --set {} --into bak:out --mkdir", id(set))).done();
    }
    for (name, bytes) in &media {
        assert!(world.read(&format!("out/{name}")) == *bytes, "{name}");
    }
    // The same bytes under another name are the same set.
    fs::rename(world.at("tue.bak"), world.at("thu.bak")).unwrap();
    world.run("copy --from thu.bak --to-repo night").done();
    assert_eq!(list(&world).len(), 3);
}

#[test]
fn a_flipped_byte_of_the_stored_set_is_found() {
    let world = world();
    world.write("x.bak", &sample_full(true));
    world.run("copy --from x.bak --to-repo night").done();
    let family = world.names("a").into_iter().find(|name| name.ends_with(".bore")).unwrap();
    let mut bytes = world.read(&format!("a/{family}"));
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    world.write(&format!("a/{family}"), &bytes);
    world.run("verify --repo night").with_code(3);
    world.run("restore --repo night --into bak:out --mkdir").with_code(3);
    assert!(world.names("out").is_empty());
    // The damaged set does not count: the file is taken in again.
    world.run("copy --from x.bak --to-repo night").with_code(4).says(&["was found damaged and cannot be a base"]);
    world.run("restore --repo night --into bak:out").done();
    assert!(world.read("out/x.bak") == sample_full(true));
}

#[test]
fn a_copy_that_was_killed_is_repeated_and_a_chain_goes_to_a_repository_that_has_its_base_in_another_form() {
    let world = world();
    let other = "[repository.night]\nto = [\"a/\"]\n[repository.away]\nto = [\"b/\"]\n";
    world.write("fullbore.toml", other.as_bytes());
    let fulls: Vec<Vec<u8>> = (1..4)
        .map(|number| {
            let mut full = set(BackupKind::Full, number);
            full.copies = vec![extents(40, 8, number.into())];
            written(&full, number)
        })
        .collect();
    fulls.iter().zip(1..).for_each(|(bytes, number)| world.write(&format!("{number}.bak"), bytes));
    let killed = world.start("copy --from 2.bak --to-repo night --throttle 64KiB/s");
    world.media_begun("a");
    killed.signal("KILL");
    killed.wait().with_code(-9);
    world.run("copy --from 2.bak --to-repo night").done();
    world.run("copy --from 3.bak --to-repo night").done();
    // Here the base of the third is itself stored as the pages that differ from the first.
    world.run("copy --from 1.bak --to-repo away").done();
    world.run("copy --from 2.bak --to-repo away").done();
    world.run("copy --repo night --to-repo away").done();
    let last = list(&world).last().unwrap().clone();
    world.run(&format!("restore --repo away --set {} --into bak:out --mkdir", id(&last))).done();
    assert!(world.read("out/3.bak") == fulls[2]);
}

#[test]
fn a_file_that_is_replaced_before_it_is_read_is_not_taken_in_under_the_old_identity() {
    let world = world();
    let media = |number: u32| {
        let mut full = set(BackupKind::Full, number);
        full.copies = vec![extents(8, 8, number.into())];
        written(&full, number)
    };
    world.write("1.bak", &media(1));
    world.write("2.bak", &media(2));
    let running = world.start("copy --from 1.bak --from 2.bak --to-repo night --throttle 128KiB/s");
    world.media_begun("a");
    world.write("2.bak", &media(3));
    running.wait().with_code(4).says(&["not stored", "was replaced by other media"]);
    assert_eq!(list(&world).len(), 1);
    world.run("copy --from 2.bak --to-repo night").done();
    let last = list(&world).last().unwrap().clone();
    world.run(&format!("restore --repo night --set {} --into bak:out --mkdir", id(&last))).done();
    assert!(world.read("out/2.bak") == media(3));
}

#[test]
fn a_file_that_somebody_writes_to_while_it_is_read_is_not_taken_in() {
    let world = world();
    let mut full = set(BackupKind::Full, 1);
    full.copies = vec![extents(8, 8, 1)];
    world.write("1.bak", &written(&full, 1));
    let running = world.start("copy --from 1.bak --to-repo night --throttle 256KiB/s");
    world.media_begun("a");
    let file = fs::File::options().append(true).open(world.at("1.bak")).unwrap();
    file.set_modified(std::time::SystemTime::now() + std::time::Duration::from_secs(5)).unwrap();
    running.wait().with_code(3).says(&["1.bak", "changed while it was read"]);
    assert!(list(&world).is_empty());
    world.run("copy --from 1.bak --to-repo night").done();
}

#[test]
fn media_go_into_a_directory_and_a_dry_run_writes_nothing() {
    let world = world();
    fs::create_dir(world.at("sets")).unwrap();
    world.write("x.bak", &sample_full(false));
    let planned = world.run("copy --from x.bak --to sets/ --dry-run").done();
    assert!(planned.text().contains("to be stored"), "{planned}");
    world.run("copy --from x.bak --to-repo night --dry-run").done();
    assert!(world.names("sets").is_empty() && world.names("a").is_empty());
    world.run("copy --from x.bak --to sets/ --compression zstd:1").done();
    let again = world.run("copy --from x.bak --to sets/").done();
    assert!(again.err.contains("is there already"), "{again}");
    assert_eq!(world.names("sets").len(), 1);
    world.run("restore --from sets --into bak:out --mkdir").done();
    assert!(world.read("out/x.bak") == sample_full(false));
    world.run("copy --from x.bak --to sets/ --chain").refused(2, "--chain", "does not work");
}

#[test]
fn a_server_cannot_be_backed_up_and_a_database_is_not_media() {
    let world = World::with_database();
    world.run("backup sqlserver:shop --to x.bore").refused(
        2,
        "sqlserver:shop",
        "does not read the bytes of a SQL Server",
    );
    world.run("backup sqlite:app.db --to x.bore").done();
    world.run("restore --from x.bore --into bak:out").refused(2, "bak:out", "backup of sqlite");
}

/// The genuine files, if they are here.
fn genuine() -> Vec<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data/bak");
    let directory = std::env::var_os("FULLBORE_BAK_FILES").map_or(beside, PathBuf::from);
    let files = |directory: PathBuf| fs::read_dir(directory).into_iter().flatten().map(|entry| entry.unwrap().path());
    let all = files(directory.clone()).chain(files(directory.join("chain")));
    all.filter(|path| path.is_file()).collect()
}

#[test]
fn all_genuine_files_go_into_a_repository_and_come_back_byte_for_byte() {
    let files = genuine();
    if files.is_empty() {
        return;
    }
    let world = world();
    let from: String = files.iter().map(|path| format!(" --from {}", path.display())).collect();
    let done = world.run(&format!("copy{from} --to-repo night --report json")).with_code(4);
    // One of the files is half of a pair.
    assert!(done.err.contains("family 2 of 2") && done.err.contains("Northwind_CC.bak"), "{done}");
    let object = done.object();
    let copied = object["copied"].as_array().unwrap();
    assert!(copied.iter().any(|copy| copy["how"] == "stored as the pages that differ"), "{done}");
    let families: u64 = copied.iter().map(|copy| copy["from_families"].as_u64().unwrap()).sum();
    assert_eq!(families as usize, files.len() - 1);
    world.run("verify --repo night").done();
    for set in list(&world) {
        world.run(&format!("restore --repo night --set {} --into bak:out --mkdir", id(&set))).done();
    }
    for path in files.iter().filter(|path| !path.ends_with("Northwind_CC.bak")) {
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(world.read(&format!("out/{name}")) == fs::read(path).unwrap(), "{name}");
    }
}
