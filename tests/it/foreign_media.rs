//! Media of other programs: backup files of SQL Server, which the testkit of the engines writes.

use fullbore_engines::compressed::Writer;
use fullbore_engines::sqlserver::configuration::BackupKind;
use fullbore_engines::sqlserver::lsn::Lsn;
use fullbore_engines::sqlserver::writer::{
    FamilyWriter, sample_extents, sample_extents_of, sample_full, sample_label, sample_log, sample_media_set,
    sample_set,
};

use crate::pipe::fed;
use crate::world::World;

/// A full in two stripes, `1.bak` and `2.bak`.
fn striped() -> World {
    let world = World::new();
    for (family, extents) in [(1, &[0, 1][..]), (2, &[2, 5])] {
        let mut set = sample_set(BackupKind::Full, 1);
        set.copies = vec![sample_extents_of(extents, &[0, 1, 2, 5])];
        let bytes = FamilyWriter::new(&sample_label(2, family), 512).set(&set).finish();
        world.write(&format!("{family}.bak"), &bytes);
    }
    world
}

#[test]
fn the_columns_of_headeronly_filelistonly_and_labelonly_have_sql_servers_names() {
    let world = striped();
    let places = "--from 1.bak --from 2.bak";
    let object = world.run(&format!("inspect header {places} --json")).done().object();
    let set = &object["media_sets"][0]["sets"][0]["header"];
    for (column, value) in
        [("DatabaseName", "shop"), ("BackupTypeDescription", "DATABASE"), ("FirstLSN", "34000000010000001")]
    {
        assert_eq!(set[column], value, "{set}");
    }
    let object = world.run(&format!("inspect files {places} --json")).done().object();
    let files = &object["media_sets"][0]["sets"][0]["files"];
    assert_eq!((files[0]["LogicalName"].as_str(), files[1]["Type"].as_str()), (Some("shop"), Some("L")));
    let object = world.run(&format!("inspect label {places} --json")).done().object();
    let labels = &object["media_sets"][0]["labels"];
    assert_eq!((labels[1]["FamilySequenceNumber"].as_u64(), labels[1]["FamilyCount"].as_u64()), (Some(2), Some(2)));
    let text = world.run(&format!("inspect header {places}")).done().text();
    assert!(text.contains(&format!("media set {}", sample_media_set())) && text.contains("BackupSetGUID"), "{text}");
}

#[test]
fn a_missing_family_is_named_by_every_verb_with_exit_code_3() {
    let world = striped();
    let missing = format!("family 2 of 2 of media set {}: missing", sample_media_set());
    for verb in ["inspect header", "inspect files", "inspect label", "list", "verify"] {
        let ended = world.run(&format!("{verb} --from 1.bak")).with_code(3);
        ended.says(&[&missing]);
    }
}

#[test]
fn a_file_that_is_not_a_backup_is_named_in_plain_words_by_every_verb() {
    let world = World::new();
    for (name, bytes) in [("empty.bak", &b""[..]), ("zip.bak", b"PK\x03\x04 a packed file"), ("zero.bak", &[0; 9000])] {
        world.write(name, bytes);
        for verb in ["inspect header", "inspect files", "inspect label", "list", "verify"] {
            let ended = world.run(&format!("{verb} --from {name}")).with_code(3);
            ended.says(&[name, "is not a backup file", "name files that a backup has written"]);
        }
        world.run(&format!("copy --from {name} --to-repo r/ --mkdir")).with_code(3).says(&["is not a backup file"]);
        world
            .run(&format!("restore --from {name} --into dir:out --mkdir"))
            .with_code(3)
            .says(&["is not a backup file"]);
        assert!(!world.at("out").exists(), "{name}");
    }
}

#[test]
fn verify_ends_with_a_statement_of_coverage_and_finds_a_changed_bit() {
    let world = World::new();
    let good = sample_full(true);
    world.write("x.bak", &good);
    let text = world.run("verify --from x.bak").done().text();
    assert!(text.contains("protected by page checksum and backup checksum"), "{text}");
    let object = world.run("verify --from x.bak --json").done().object();
    let covered = object["coverage"].as_array().unwrap().iter().map(|line| line["bytes"].as_u64().unwrap());
    assert_eq!(covered.sum::<u64>(), good.len() as u64);
    let mut bad = good;
    let page = bad.windows(6).position(|window| window == [9, 0, 0, 0, 1, 0]).unwrap();
    bad[page + 3000] ^= 1;
    world.write("x.bak", &bad);
    world.run("verify --from x.bak").with_code(3).says(&["page 1:9: its checksum does not match", "backup checksum"]);
}

#[test]
fn a_list_has_the_sets_of_a_database_in_the_order_of_its_log() {
    let world = World::new();
    for (name, kind, first) in
        [("a.trn", BackupKind::Log, 300), ("b.trn", BackupKind::Log, 200), ("c.bak", BackupKind::Full, 100)]
    {
        let mut set = sample_set(kind, 1);
        set.header.guid = uuid::Uuid::from_u128(first.into());
        let database = &mut set.configuration.database;
        (database.first, database.last) =
            (Lsn { file: 1, block: first, slot: 1 }, Lsn { file: 1, block: first + 100, slot: 1 });
        let at = |second| Some(jiff::civil::date(2026, 11, 26).at(4, (first / 10) as i8, second, 0));
        (database.started, database.finished) = (at(0), at(30));
        set.logs = vec![sample_log(512)];
        let mut label = sample_label(1, 1);
        label.stripe.media_set = uuid::Uuid::from_u128(first.into());
        world.write(name, &FamilyWriter::new(&label, 512).set(&set).finish());
    }
    world.write("notes.txt", b"not media");
    let sets = world.run("list --from . --json").done().json();
    let devices: Vec<_> = sets.as_array().unwrap().iter().map(|set| set["devices"][0].as_str().unwrap()).collect();
    assert!(
        devices[0].ends_with("c.bak") && devices[1].ends_with("b.trn") && devices[2].ends_with("a.trn"),
        "{devices:?}"
    );
    let text = world.run("list .").done().text();
    for words in ["TRANSACTION LOG", "points in time of shop", "a full, then 2 log backups", "log records are not read"]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
    let object = world.run("list . --json").done().object();
    assert_eq!(object["restorable"][0]["ranges"][0]["log_backups"], 2, "{object}");
    let to = |time: &str| world.run(&format!("list . --stop-at {time}"));
    let text = to("2026-11-26T04:25:00").done().text();
    let held = "a.trn, which holds this time: from 2026-11-26T04:20:00 to 2026-11-26T04:30:00";
    assert!(text.contains("a restore of shop to 2026-11-26T04:25:00 takes") && text.contains(held), "{text}");
    to("2026-11-26T04:30:01").with_code(3).says(&["`shop` at 2026-11-26T04:30:01", "ends at 2026-11-26T04:30:00"]);
    to("2026-11-26T04:10:00").with_code(3).says(&["the first full of these files ended at 2026-11-26T04:10:30"]);
    to("2026-11-26T04:25:00Z").refused(2, "--stop-at", "has a zone");
    let steps = world.run("list . --stop-at 2026-11-26T04:19:00 --json").done().object()["stop_at"][0]["steps"].clone();
    assert_eq!((steps.as_array().unwrap().len(), steps[1]["holds_to"].as_str()), (2, Some("2026-11-26T04:20:00")));
    world.run("restore --from . --stop-at 2026-11-26T04:25:00Z --into dir:out --mkdir").refused(
        2,
        "--stop-at",
        "documented",
    );
    std::fs::remove_file(world.at("b.trn")).unwrap();
    to("2026-11-26T04:25:00").with_code(3).says(&["ends at 2026-11-26T04:10:30"]);
    let text = world.run("list .").with_code(4).text();
    assert!(text.contains("not restorable: the log from LSN 1000000020000001 to LSN 1000000030000001"), "{text}");
}

#[test]
fn a_set_is_chosen_by_its_position_and_one_that_is_not_there_is_refused() {
    let world = World::new();
    let (full, log) = (sample_set(BackupKind::Full, 1), sample_set(BackupKind::Log, 2));
    world.write("x.bak", &FamilyWriter::new(&sample_label(1, 1), 512).set(&full).set(&log).finish());
    let object = world.run("inspect header x.bak --file 2 --json").done().object();
    let sets = object["media_sets"][0]["sets"].as_array().unwrap();
    assert_eq!((sets.len(), sets[0]["header"]["BackupType"].as_u64()), (1, Some(2)));
    world.run("verify x.bak --latest").refused(2, "--latest", "does not work");
    world.run("list x.bak --last 1").refused(2, "--last", "does not work");
    world.run("inspect header x.bak --file 3").refused(2, "--file 3", "no set at this position");
    world.run("verify x.bak --file 3").refused(2, "--file 3", "no such backup set");
}

#[test]
fn media_of_both_programs_are_not_taken_for_one_and_compressed_files_are_named() {
    let world = World::with_database();
    world.run("backup sqlite:app.db --to a/").done();
    world.write("a/x.bak", &sample_full(false));
    let sets = world.run("list a").done().text();
    assert!(sets.contains("sqlite") && !sets.contains("shop"), "{sets}");
    world.run("verify a a/x.bak").refused(2, "x.bak", "of fullbore");
    world.run("inspect header a --file 1").done();
    world.run("inspect header a --file 2").refused(2, "--file 2", "other programs");
    world.write("c.bak", b"MSSQLBAK\x02\0\0\0 and more");
    world.run("inspect header c.bak").refused(3, "c.bak", "inside its header");
}

#[test]
fn a_compressed_backup_is_shown_and_verified_as_the_plain_one() {
    let world = World::new();
    world.write("plain.bak", &sample_full(true));
    world.write("packed.bak", &Writer::of_stream(&sample_full(true)).container);
    let shown = |name: &str| {
        world.run(&format!("inspect header {name} --json")).done().object()["media_sets"][0]["sets"].clone()
    };
    assert_eq!(shown("packed.bak"), shown("plain.bak"));
    world.run("verify packed.bak").done();
}

#[test]
fn a_full_becomes_the_files_of_its_database_in_an_empty_directory() {
    let world = World::new();
    let mut set = sample_set(BackupKind::Full, 1);
    set.copies = vec![sample_extents(&[0, 1], 2)];
    set.logs = vec![sample_log(1 << 16)];
    world.write("full.bak", &FamilyWriter::new(&sample_label(1, 1), 512).set(&set).finish());
    world.run("restore --from full.bak --into dir:out").refused(2, "out", "does not exist");
    let done = world.run("restore --from full.bak --into dir:out --mkdir").done();
    assert!(done.err.contains("FOR ATTACH_REBUILD_LOG"), "{done}");
    assert!(done.text().contains("full of sqlserver shop into dir:out"), "{done}");
    assert_eq!(world.names("out"), ["shop", "shop_log"]);
    let page = &world.read("out/shop")[8 * 8192..9 * 8192];
    assert_eq!(u32::from_le_bytes(page[32..36].try_into().unwrap()), 8, "page 8 is at its place");
    world.run("restore --from full.bak --into dir:out").refused(1, "out", "is not empty");
    world.run("restore --from full.bak --into sqlite:x.db").refused(2, "--into", "dir:PATH");
    world.run("restore --from full.bak --into dir:other --mkdir --replace").refused(
        2,
        "--replace",
        "SQL Server backup",
    );
    let half = sample_full(false);
    world.write("half.bak", &half[..half.len() / 2]);
    world.run("restore --from half.bak --into dir:half --mkdir").with_code(3);
    assert!(!world.at("half").exists(), "a restore that fails leaves nothing");
}

#[test]
fn a_differential_without_its_full_is_named_by_list_and_verify() {
    let world = World::new();
    let mut set = sample_set(BackupKind::Differential, 1);
    set.copies = vec![Vec::new()];
    world.write("d.bak", &FamilyWriter::new(&sample_label(1, 1), 512).set(&set).finish());
    world.run("verify d.bak").refused(3, "the full backup 00000000", "cannot be restored without it");
    assert!(world.run("list d.bak").with_code(4).text().contains("full is missing"));
}

#[test]
fn one_family_comes_through_a_pipe_and_a_missing_one_is_named_before_its_pages_are_read() {
    let world = striped();
    let full = sample_full(true);
    let packed = Writer::of_stream(&full).container;
    for bytes in [&full, &packed] {
        let shown = fed(&world, "inspect header --from - --json", bytes).done().object();
        assert_eq!(shown["media_sets"][0]["sets"][0]["header"]["DatabaseName"], "shop");
        let text = fed(&world, "verify --from -", bytes).done().text();
        assert!(text.contains("protected by page checksum and backup checksum"), "{text}");
    }
    let files = fed(&world, "inspect files -", &full).done().text();
    assert!(files.contains("LogicalName            shop_log"), "{files}");
    assert!(fed(&world, "inspect label --from -", &full).done().text().contains("MediaSetId"));
    let missing = format!("family 2 of 2 of media set {}: missing", sample_media_set());
    let half = world.read("1.bak");
    fed(&world, "inspect label --from -", &half).with_code(3).says(&[&missing]);
    // The damage behind it is not read.
    fed(&world, "verify --from -", &half[..half.len() - 9]).with_code(3).says(&[&missing]);
    fed(&world, "verify --from -", &full[..full.len() - 9]).with_code(3).says(&["cut off"]);
    let mut bad = full.clone();
    let page = bad.windows(6).position(|window| window == [9, 0, 0, 0, 1, 0]).unwrap();
    bad[page + 3000] ^= 1;
    fed(&world, "verify --from -", &bad).with_code(3).says(&["page 1:9: its checksum does not match"]);
    for line in ["list --from -", "restore --from - --into dir:out --mkdir", "copy --from - --to a/"] {
        fed(&world, line, &full).refused(2, "--from -", "a pipe can be read once");
    }
    fed(&world, "verify --from - --from 1.bak", &full).refused(2, "--from -", "alone");
}

#[test]
fn two_files_that_claim_to_be_one_family_are_refused_unless_they_are_copies() {
    let world = World::new();
    let full = |extents: &[u32]| {
        let mut set = sample_set(BackupKind::Full, 1);
        set.copies = vec![sample_extents_of(extents, extents)];
        FamilyWriter::new(&sample_label(1, 1), 512).set(&set).finish()
    };
    world.write("a.bak", &full(&[0, 1]));
    world.write("b.bak", &full(&[0, 1, 2]));
    for verb in ["verify", "inspect header", "list", "restore --into dir:out --mkdir", "copy --to sets/ --mkdir"] {
        let ended = world.run(&format!("{verb} --from a.bak --from b.bak")).with_code(3);
        ended.says(&["`a.bak` and `b.bak` say that they are the same family"]);
    }
    world.write("b.bak", &full(&[0, 1]));
    world.run("verify --from a.bak --from b.bak").done().says(&["`b.bak` has the same bytes as `a.bak`"]);
    let done = world.run("inspect header --from a.bak --from b.bak").with_code(4);
    done.says(&["`b.bak` holds a family that another file holds too, `a.bak`: not read"]);
    // Nothing protects the name of a set: each file alone passes every check.
    let mut other = full(&[0, 1]);
    let at = other.windows(8).position(|name| name == b"s\0h\0o\0p\0").unwrap();
    other[at] = b'x';
    world.write("b.bak", &other);
    let ended = world.run("verify --from a.bak --from b.bak").with_code(3);
    ended.says(&[&format!("`a.bak` and `b.bak`: say that they are the same family, and differ from byte {at} on")]);
    world.write("b.bak", &full(&[0, 1]));
    // A copy that was cut off does not count.
    let whole = full(&[0, 1]);
    world.write("a.bak", &whole[..whole.len() - 700]);
    world
        .run("verify --from a.bak --from b.bak")
        .with_code(4)
        .says(&["`a.bak` holds a family that another file holds"]);
}
