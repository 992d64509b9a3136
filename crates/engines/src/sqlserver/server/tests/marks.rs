//! Restores that stop at a mark of the log, and databases that can be read between two steps.

use super::*;
use crate::engine::StopMark;

pub fn mark(mark: &str, before: bool) -> StopMark {
    StopMark { mark: mark.into(), before, after: None }
}

#[test]
fn a_database_is_readable_between_steps_and_a_log_stops_at_a_mark() {
    let stub = SqlServerStub::start();
    stub.with(|model| {
        model.store("shop", "D", &["/full.bak".into()], true);
        model.store("shop", "L", &["/1.trn".into()], true);
        model.store("shop", "L", &["/2.trn".into()], true);
    });
    let standby = |place: &str| RestoreOrder { standby: Some("/undo".into()), ..from(&[place]) };
    restore(&stub, "copy", &standby("server:/full.bak")).unwrap();
    stub.with(|model| assert!(model.databases["copy"].in_standby));
    refused(restore(&stub, "copy", &from(&["server:/full.bak"])), &["exists (state STANDBY)"]);
    restore(&stub, "copy", &standby("server:/1.trn")).unwrap();
    let moment: jiff::Timestamp = "2026-11-26T08:30:00Z".parse().unwrap();
    let after = StopMark { after: Some(moment.as_microsecond()), ..mark("end of day", false) };
    let to_mark = RestoreOrder { stop_mark: Some(after), ..from(&["server:/2.trn"]) };
    restore(&stub, "copy", &to_mark).unwrap();
    stub.with(|model| assert!(!model.databases["copy"].in_standby));
    let ran: Vec<String> = stub.batches("RESTORE").into_iter().filter(|batch| !batch.contains("ONLY FROM")).collect();
    assert_eq!(
        ran,
        [
            "RESTORE DATABASE [copy] FROM DISK = N'/full.bak' WITH FILE = 1, STANDBY = N'/undo', STATS = 10",
            "RESTORE LOG [copy] FROM DISK = N'/1.trn' WITH FILE = 1, STANDBY = N'/undo', STATS = 10",
            "RESTORE LOG [copy] FROM DISK = N'/2.trn' WITH FILE = 1, RECOVERY, STOPATMARK = N'end of day' AFTER \
             N'2026-11-26T09:30:00.000', STATS = 10",
        ]
    );
    let of_mark = |places: &[&str]| RestoreOrder { stop_mark: Some(mark("m", true)), ..from(places) };
    let chain = ["server:/full.bak", "server:/1.trn", "server:/2.trn"];
    refused(restore(&stub, "new", &of_mark(&chain)), &["--stop-before-mark", "a chain cannot stop at it"]);
    refused(restore(&stub, "new", &of_mark(&chain[..1])), &["--stop-before-mark", "is for a log backup"]);
    stub.with(|model| model.databases.get_mut("shop").unwrap().state = "RESTORING".into());
    let both = RestoreOrder { stop_at: Some(moment.as_microsecond()), ..of_mark(&chain[2..]) };
    refused(restore(&stub, "shop", &both), &["--stop-before-mark", "two places"]);
    // The stub leaves the database as it was: the restore says that it is not what was asked for.
    stub.with(|model| model.faults.stays_restoring = true);
    refused(restore(&stub, "shop", &of_mark(&chain[2..])), &["RESTORING", "behind the end of this log"]);
}
