//! The way back: new targets, replaced ones, and a kill after each step.

use std::cell::RefCell;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use fullbore_engines::engine::{Depth, Over, Restorer};
use fullbore_engines::sqlite::integrity;
use fullbore_engines::sqlite::restore::{Step, prepare};
use fullbore_engines::sqlite::{Digest, content_digest};

use crate::child::Child;
use crate::copy::Live;

fn database(path: &Path, rows: u32, journal_mode: &str) -> Digest {
    let connection = rusqlite::Connection::open(path).unwrap();
    connection.pragma_update(None, "journal_mode", journal_mode).unwrap();
    connection
        .execute_batch(&format!(
            "CREATE TABLE t(x); WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows}) \
             INSERT INTO t SELECT hex(randomblob(50)) FROM n"
        ))
        .unwrap();
    drop(connection);
    content_digest(path).unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A folder with the database that was "unpacked".
fn folder() -> (tempfile::TempDir, PathBuf, Digest) {
    let folder = tempfile::tempdir().unwrap();
    let from = folder.path().join("from.db");
    let digest = database(&from, 700, "wal");
    (folder, from, digest)
}

fn no_stop(_: Step) -> fullbore_core::Result<()> {
    Ok(())
}

#[test]
fn a_new_database_appears_under_its_name_only_when_complete() {
    let (folder, from, digest) = folder();
    let target = folder.path().join("new.db");
    let restore = prepare(&target, Over::Nothing).unwrap();
    assert!(restore.temporary().file_name().unwrap().to_str().unwrap().starts_with("new.db.restoring-"));
    std::fs::copy(&from, restore.temporary()).unwrap();
    assert_eq!(integrity::check(restore.temporary(), Depth::Full).unwrap(), Vec::<String>::new());
    assert!(!target.exists());
    let steps = RefCell::new(Vec::new());
    let warnings = restore
        .publish_with(&|step| {
            steps.borrow_mut().push(step);
            Ok(())
        })
        .unwrap();
    assert_eq!((warnings, steps.into_inner()), (Vec::new(), vec![Step::Synced, Step::Renamed, Step::RenameSynced]));
    assert_eq!(names(folder.path()), ["from.db", "new.db"]);
    assert_eq!(content_digest(&target).unwrap(), digest);
}

#[test]
fn a_dropped_restore_leaves_nothing() {
    let (folder, from, _) = folder();
    let restore = prepare(&folder.path().join("new.db"), Over::Nothing).unwrap();
    std::fs::copy(&from, restore.temporary()).unwrap();
    let later = prepare(&folder.path().join("new.db"), Over::Nothing).unwrap();
    assert_eq!(later.leftovers(), [restore.temporary().to_owned()], "a killed restore would be named");
    drop(restore);
    drop(later);
    assert_eq!(names(folder.path()), ["from.db"]);
}

#[test]
fn nothing_is_overwritten_without_replace() {
    let (folder, from, _) = folder();
    let target = folder.path().join("target.db");
    let refused = |target: &Path| prepare(target, Over::Nothing).unwrap_err().to_string();
    assert!(refused(&from).contains("--replace"));
    for suffix in ["-wal", "-shm", "-journal"] {
        let side = folder.path().join(format!("target.db{suffix}"));
        std::fs::write(&side, b"").unwrap();
        assert!(refused(&target).contains(suffix));
        std::fs::remove_file(side).unwrap();
    }
    std::os::unix::fs::symlink("nowhere", folder.path().join("link.db")).unwrap();
    assert!(refused(&folder.path().join("link.db")).contains("link.db"));
    assert!(refused(folder.path()).contains("directory"));
    assert!(refused(&folder.path().join("no/such/x.db")).contains("No such file"));
    // Created by someone while the restore was running.
    let restore = prepare(&target, Over::Nothing).unwrap();
    std::fs::copy(&from, restore.temporary()).unwrap();
    let create = |step| {
        if step == Step::Synced {
            std::fs::write(&target, b"mine").unwrap();
        }
        Ok(())
    };
    assert!(restore.publish_with(&create).is_err());
    drop(restore);
    assert_eq!(std::fs::read(&target).unwrap(), b"mine");
}

#[test]
fn a_target_that_is_no_database_is_never_replaced() {
    let (folder, _, _) = folder();
    let target = folder.path().join("thesis.txt");
    std::fs::write(&target, "years of work, and no SQLite").unwrap();
    assert!(prepare(&target, Over::Database).unwrap_err().to_string().contains("not an SQLite database"));
}

#[test]
fn a_replaced_database_keeps_its_owner_and_permissions_and_loses_its_side_files() {
    for journal_mode in ["wal", "delete", "persist"] {
        let (folder, from, digest) = folder();
        let target = folder.path().join("target.db");
        database(&target, 100, journal_mode);
        std::fs::set_permissions(&target, std::fs::Permissions::from_mode(0o640)).unwrap();
        let link = folder.path().join("link.db");
        std::os::unix::fs::symlink("target.db", &link).unwrap();
        let restore = prepare(&link, Over::Database).unwrap();
        std::fs::copy(&from, restore.temporary()).unwrap();
        assert_eq!(restore.publish_with(&no_stop).unwrap(), Vec::<String>::new());
        assert_eq!(names(folder.path()), ["from.db", "link.db", "target.db"], "{journal_mode}");
        assert_eq!(target.metadata().unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(content_digest(&target).unwrap(), digest);
    }
}

#[test]
fn a_database_in_use_is_not_replaced_however_idle_its_user_is() {
    let (_folder, from, _) = folder();
    let mut live = Live::new("PRAGMA journal_mode = wal");
    live.fill(10, 100);
    let restore = prepare(&live.path, Over::Database).unwrap();
    std::fs::copy(&from, restore.temporary()).unwrap();
    assert!(restore.publish_with(&no_stop).unwrap_err().to_string().contains("in use"));
    drop(restore);
    live.sql("INSERT INTO a(x) VALUES (1)");

    let mut live = Live::new("PRAGMA journal_mode = delete");
    live.sql("BEGIN; SELECT count(*) FROM t");
    let restore = prepare(&live.path, Over::Database).unwrap();
    std::fs::copy(&from, restore.temporary()).unwrap();
    assert!(restore.publish_with(&no_stop).unwrap_err().to_string().contains("in use"));
    live.sql("COMMIT");
    restore.publish_with(&no_stop).unwrap();
}

#[test]
fn a_connection_to_the_old_database_cannot_write_beside_the_new_one() {
    for journal_mode in ["wal", "delete"] {
        let (folder, from, digest) = folder();
        let target = folder.path().join("target.db");
        database(&target, 100, journal_mode);
        let child = RefCell::new(Child::start());
        let restore = prepare(&target, Over::Database).unwrap();
        std::fs::copy(&from, restore.temporary()).unwrap();
        let intrude = |step| {
            if step == Step::Locked {
                child.borrow_mut().open(0, &target);
            }
            if matches!(step, Step::Locked | Step::Checkpointed | Step::RemovalSynced) {
                assert!(
                    child.borrow_mut().ask("sql 0 SELECT count(*) FROM t").unwrap_err().contains("locked"),
                    "{step:?}"
                );
            }
            Ok(())
        };
        restore.publish_with(&intrude).unwrap();
        let error = child.borrow_mut().ask("sql 0 INSERT INTO t VALUES ('stray')").unwrap_err();
        assert!(error.contains("not a database"), "{journal_mode}: {error}");
        drop(child);
        assert_eq!(names(folder.path()), ["from.db", "target.db"]);
        assert_eq!(content_digest(&target).unwrap(), digest);
    }
}

#[test]
fn after_a_kill_at_any_step_the_old_or_the_new_database_is_whole() {
    for journal_mode in ["wal", "delete", "persist"] {
        for (number, step) in Step::ALL.into_iter().enumerate() {
            let (folder, from, new) = folder();
            let mut live = Live::new(&format!("PRAGMA journal_mode = {journal_mode}; PRAGMA wal_autocheckpoint = 0"));
            live.fill(50, 3000);
            // A crash leaves rows that only the log has.
            let Live { folder: home, path, child } = live;
            child.kill();
            let snapshot = home.path().join("before.db");
            let old = old_digest(&path, &snapshot);

            let mut publisher = Child::start();
            let gone = publisher.ask(&format!("publish {number} {} {}", from.display(), path.display()));
            let side_files = journal_mode != "delete";
            let reached = gone == Err("gone".into());
            assert!(reached || (step == Step::SideFileRemoved && !side_files), "{journal_mode} {step:?}: {gone:?}");
            let renamed = matches!(step, Step::Renamed | Step::RenameSynced) || !reached;
            assert_eq!(content_digest(&path).unwrap(), if renamed { new } else { old }, "{journal_mode} {step:?}");
            let rest: Vec<String> = names(home.path()).into_iter().filter(|name| name.contains("restoring")).collect();
            assert_eq!(rest.len(), usize::from(!renamed), "a leftover to name, and only then");
            assert_eq!(prepare(&path, Over::Database).unwrap().leftovers().len(), rest.len());
            drop(folder);
        }
    }
}

/// The digest of a crashed database, taken from a copy of its files: looking must not repair the original.
fn old_digest(path: &Path, copy: &Path) -> Digest {
    for extension in ["db", "db-wal"] {
        let from = path.with_extension(extension);
        if from.exists() {
            std::fs::copy(from, copy.with_extension(extension)).unwrap();
        }
    }
    let digest = content_digest(copy).unwrap();
    for extension in ["db", "db-wal", "db-shm"] {
        let _ = std::fs::remove_file(copy.with_extension(extension));
    }
    digest
}

#[test]
fn damage_in_a_restored_file_is_found_before_it_is_published() {
    let (folder, from, _) = folder();
    let restore = prepare(&folder.path().join("a ?#%b.db"), Over::Nothing).unwrap();
    let mut bytes = std::fs::read(&from).unwrap();
    bytes[4096..8192].fill(0xee);
    std::fs::write(restore.temporary(), bytes).unwrap();
    assert!(!integrity::check(restore.temporary(), Depth::Quick).unwrap().is_empty());
    std::fs::write(restore.temporary(), [0; 5000]).unwrap();
    assert!(!integrity::check(restore.temporary(), Depth::Full).unwrap().is_empty());
    drop(restore);
}

#[test]
fn a_file_swapped_in_before_or_after_the_lock_is_refused_and_stays() {
    for swapped_after in [Step::Synced, Step::Locked, Step::Checkpointed] {
        let (folder, from, _) = folder();
        let target = folder.path().join("old.db");
        database(&target, 20, "delete");
        let other = folder.path().join("other.db");
        let expected = database(&other, 30, "delete");
        let restore = prepare(&target, Over::Database).unwrap();
        std::fs::copy(&from, restore.temporary()).unwrap();
        let swap = |step| {
            if step == swapped_after {
                std::fs::rename(&other, &target).unwrap();
            }
            Ok(())
        };
        let text = restore.publish_with(&swap).unwrap_err().to_string();
        assert!(text.contains("another file took its name"), "{swapped_after:?}: {text}");
        drop(restore);
        assert_eq!(content_digest(&target).unwrap(), expected, "{swapped_after:?}");
    }
}
