//! A restore that the server runs: which set of the files, over which database.

use fullbore_core::media::SetKind;
use fullbore_core::{Error, Result};

use super::answer::{Row, kind_of_type, server_time};
use super::place::Place;
use super::questions;
use super::session::{Session, lsn};
use super::words::{self, RestoreWords};
use crate::engine::{Look, RestoreOrder, RestoreStep, ServerOutcome, ServerSet};

/// A restore after all checks.
pub(super) struct PlannedRestore {
    statement: String,
    pub(super) outcome: ServerOutcome,
}

/// The set that a restore takes.
struct Chosen {
    /// The files of its media set, in their order.
    files: Vec<Place>,
    /// Its row of HEADERONLY.
    header: Row,
    kind: SetKind,
    position: i64,
}

impl Session {
    /// The statement of a restore. Nothing has changed yet.
    pub(super) fn planned_restore(&mut self, order: &RestoreOrder) -> Result<PlannedRestore> {
        if order.kind.is_some() && !order.from.is_empty() {
            return Err(Error::usage("--kind", "is for RDS: the files say their kind", "leave it out"));
        }
        if order.from.is_empty() {
            refuse_without_files(order)?;
            return self.planned_recovery();
        }
        let places = order.from.iter().map(|text| Place::parse(text)).collect::<Result<Vec<_>>>()?;
        let chosen = self.chosen(places, order)?;
        let exists = self.check_target(chosen.kind, order.replace)?;
        let mut notes = Vec::new();
        let stop_at = order.stop_at.map(|moment| self.time_of_server(moment)).transpose()?;
        if let Some(time) = &stop_at {
            notes.push(format!(
                "STOPAT is {time} by the clock of the server, which is {} minutes from UTC now; after a change to or from \
                 summer time since then, add or subtract an hour",
                self.zone_minutes.unwrap_or(0)
            ));
        }
        let words = RestoreWords {
            files: &chosen.files,
            position: chosen.position,
            is_log: chosen.kind == SetKind::Log,
            moves: &order.moves,
            replace: exists && order.replace,
            continue_after_error: order.continue_after_error,
            buffer_count: order.buffer_count,
            stop_at,
            stats: order.stats,
        };
        let statement = words::restore(&self.address.database, &words, order.step)?;
        let mut outcome = self.outcome(&chosen.files, vec![statement.clone()]);
        outcome.set = read_set(&chosen.header, chosen.kind);
        outcome.notes = notes;
        Ok(PlannedRestore { statement, outcome })
    }

    /// Runs a restore.
    pub(super) fn run_restore(&mut self, order: &RestoreOrder, look: Look<'_>) -> Result<ServerOutcome> {
        let PlannedRestore { statement, mut outcome } = self.planned_restore(order)?;
        let thing = self.thing();
        let ran = self.run(&statement, outcome.set.bytes, look).map_err(|failure| {
            let may_be_done = failure.may_be_done();
            let error = failure.on(&thing);
            let error = if may_be_done { error.noting("the restore may have finished on the server") } else { error };
            error.noting("the database may be restoring: it cannot be used before a restore is complete")
        });
        outcome.notes.extend(ran?);
        self.check_state(order)?;
        Ok(outcome)
    }

    /// Whether the database has the state that the restore was to end in. The job may be over: it is asked anyway.
    pub(super) fn check_state(&mut self, order: &RestoreOrder) -> Result<()> {
        let wanted = if order.step == RestoreStep::NoRecovery { "RESTORING" } else { "ONLINE" };
        let rows = self.link.ask_at_last(&questions::database(&self.address.database)).map_err(|failure| {
            failure.on(&self.thing()).noting("the restore ended, but the state of the database is not known")
        })?;
        let state = rows.first().map_or(Some("missing".into()), |row| row.text("state"));
        let state = state.unwrap_or_else(|| "unknown".into());
        if state == wanted {
            return Ok(());
        }
        let why = format!("the restore ended, but the state of the database is {state}, and not {wanted}");
        let hint = match (state.as_str(), order.stop_at) {
            ("RESTORING", Some(_)) => {
                "the time of --stop-at may be after the end of this log: restore the next log, or open it with --recovery"
            }
            ("RESTORING", None) => "restore the next set, or open it with --recovery",
            _ => "look into the error log of the server",
        };
        Err(Error::refused(self.thing(), why, hint))
    }

    /// `moment`, in microseconds since 1970, by the clock of the server.
    pub(super) fn time_of_server(&self, moment: i64) -> Result<String> {
        let unknown = || {
            let why = "the server does not say how far its clock is from UTC";
            Error::refused(self.thing(), why, "restore without --stop-at, or use RESTORE of SQL Server itself")
        };
        server_time(moment, self.zone_minutes.ok_or_else(unknown)?)
    }

    /// `--recovery` without files.
    fn planned_recovery(&mut self) -> Result<PlannedRestore> {
        match self.state()? {
            Some(state) if state == "RESTORING" => {
                let statement = words::recover(&self.address.database);
                let outcome = self.outcome(&[], vec![statement.clone()]);
                Ok(PlannedRestore { statement, outcome })
            }
            Some(state) => {
                let why = format!("is not restoring: its state is {state}");
                Err(Error::refused(self.thing(), why, "name the files with --from"))
            }
            None => Err(Error::usage(self.thing(), "the server has no such database", "name the files with --from")),
        }
    }

    /// The state of the database; `None` if it does not exist.
    pub(super) fn state(&mut self) -> Result<Option<String>> {
        Ok(self.database_row()?.map(|row| row.text("state").unwrap_or_else(|| "unknown".into())))
    }

    /// Whether the database exists. A full over an existing one needs `--replace`; other sets need one that is restoring.
    fn check_target(&mut self, kind: SetKind, replace: bool) -> Result<bool> {
        let state = self.state()?;
        match (kind, state.as_deref()) {
            (SetKind::Full, None) => Ok(false),
            (SetKind::Full, Some(_)) if replace => Ok(true),
            (SetKind::Full, Some(state)) => {
                let why = format!("the database exists (state {state})");
                Err(Error::refused(self.thing(), why, "restore under another name, or add --replace to overwrite it"))
            }
            (_, _) if replace => {
                let why = format!("is for a full; the chosen set is a {kind}");
                Err(Error::usage("--replace", why, "leave it out"))
            }
            (_, Some("RESTORING")) => Ok(true),
            (_, Some(state)) => {
                let why = format!("is not restoring (state {state}): a {kind} continues a restore");
                Err(Error::refused(self.thing(), why, "restore its full first, with --no-recovery"))
            }
            (_, None) => {
                let why = format!("the server has no such database, and a {kind} continues a restore");
                Err(Error::refused(self.thing(), why, "restore its full first, with --no-recovery"))
            }
        }
    }

    /// The files of one media set, all of them, and the set on it.
    fn chosen(&mut self, places: Vec<Place>, order: &RestoreOrder) -> Result<Chosen> {
        let files = self.in_order(places)?;
        let sets = self
            .link
            .ask(&questions::headers(&files))
            .map_err(|failure| failure.on(&files.first().map_or_else(String::new, Place::shown)))?;
        let fits = |set: &&Row| match (&order.set, order.position) {
            (Some(part), _) => set.guid("BackupSetGUID").is_some_and(|id| id_fits(&id, part)),
            (None, Some(position)) => set.integer("Position") == Some(position.into()),
            (None, None) => true,
        };
        let fitting: Vec<&Row> = sets.iter().filter(fits).collect();
        let header = match (&fitting[..], order.latest) {
            ([one], _) => *one,
            ([], _) => {
                let why = match (&order.set, order.position) {
                    (Some(_), _) => "no set there has this id".to_owned(),
                    (None, Some(position)) => format!("no set is at position {position}"),
                    (None, None) => "no backup set is there".to_owned(),
                };
                return Err(Error::usage(
                    shown(&files),
                    why,
                    "fullbore inspect shows the sets of a file that it can read",
                ));
            }
            (several, true) => several
                .iter()
                .copied()
                .max_by_key(|set| set.integer("Position"))
                .ok_or_else(|| Error::usage(shown(&files), "no backup set is there", ""))?,
            (several, false) => {
                let lines: String = several.iter().map(|set| format!("\n    {}", title(set))).collect();
                let why = format!("there are {} sets:{lines}", several.len());
                return Err(Error::usage(shown(&files), why, "choose one with --set ID, or the newest with --latest"));
            }
        };
        let unknown = |what: &str| Error::refused(shown(&files), what.to_owned(), "use RESTORE of SQL Server itself");
        let number =
            header.integer("BackupType").ok_or_else(|| unknown("the server does not say the kind of the set"))?;
        let kind = kind_of_type(number).ok_or_else(|| unknown("the set holds single files of a database"))?;
        let position = header.integer("Position").filter(|position| *position > 0);
        let position = position.ok_or_else(|| unknown("the server does not say the position of the set"))?;
        Ok(Chosen { kind, position, header: header.clone(), files })
    }

    /// The places in the order of the families of one media set.
    ///
    /// # Errors
    /// A file of another media set, a file twice, or a missing family.
    fn in_order(&mut self, places: Vec<Place>) -> Result<Vec<Place>> {
        let mut media: Option<(String, i64)> = None;
        let mut families: Vec<(i64, Place)> = Vec::new();
        for place in places {
            if place == Place::Nul {
                return Err(Error::usage("nul:", "holds nothing", "name the files of a backup"));
            }
            let rows = self.link.ask(&questions::label(&place)).map_err(|failure| failure.on(&place.shown()))?;
            let row = rows.into_iter().next().unwrap_or_default();
            // Documents say that some of these are NULL where there is one family.
            let id = row.guid("MediaSetId").unwrap_or_else(|| "unknown".into());
            let (count, number) =
                (row.integer("FamilyCount").unwrap_or(1), row.integer("FamilySequenceNumber").unwrap_or(1));
            match &media {
                Some((known, _)) if *known != id => {
                    let why = format!("belongs to media set {id}, and the files before it to {known}");
                    return Err(Error::usage(place.shown(), why, "restore one media set at a time"));
                }
                _ => media = Some((id, count)),
            }
            if let Some((_, other)) = families.iter().find(|(known, _)| *known == number) {
                let why = format!("is family {number}, as {}", other.shown());
                return Err(Error::usage(place.shown(), why, "name each family once"));
            }
            families.push((number, place));
        }
        let (id, count) = media.unwrap_or_default();
        let is_there = |wanted: &i64| families.iter().any(|(number, _)| number == wanted);
        if let Some(missing) = (1..=count.min(64)).find(|number| !is_there(number)) {
            let why = format!("family {missing} of {count} is missing");
            return Err(Error::incomplete(format!("media set {id}"), why, "name all its files with --from"));
        }
        families.sort_by_key(|(number, _)| *number);
        Ok(families.into_iter().map(|(_, place)| place).collect())
    }
}

/// Refuses the first flag that needs files, for a recovery without files.
pub(super) fn refuse_without_files(order: &RestoreOrder) -> Result<()> {
    let flags = [
        ("--set", order.set.is_some()),
        ("--latest", order.latest),
        ("--file", order.position.is_some()),
        ("--kind", order.kind.is_some()),
        ("--replace", order.replace),
        ("--no-recovery", order.step == RestoreStep::NoRecovery),
        ("--stop-at", order.stop_at.is_some()),
        ("--move", !order.moves.is_empty()),
        ("--continue-after-error", order.continue_after_error),
        ("--buffer-count", order.buffer_count.is_some()),
    ];
    match flags.iter().find(|(_, given)| *given) {
        Some((flag, _)) => {
            let why = "needs --from: without files, --recovery only opens the database as it is";
            Err(Error::usage(*flag, why, "name the files with --from, or leave it out"))
        }
        None => Ok(()),
    }
}

/// Whether an id has `part` in it; hyphens do not matter.
fn id_fits(id: &str, part: &str) -> bool {
    let plain = |text: &str| text.to_ascii_lowercase().replace('-', "");
    let (id, part) = (plain(id), plain(part));
    !part.is_empty() && id.contains(&part)
}

fn shown(files: &[Place]) -> String {
    files.iter().map(Place::shown).collect::<Vec<_>>().join(", ")
}

/// A set in one line.
fn title(set: &Row) -> String {
    let kind = set.integer("BackupType").and_then(kind_of_type).map_or("set".to_owned(), |kind| kind.to_string());
    let text = |column| set.text(column).unwrap_or_else(|| "?".into());
    let id = set.guid("BackupSetGUID").unwrap_or_else(|| "?".into());
    format!("{id}: {kind} of `{}`, finished {}", text("DatabaseName"), text("BackupFinishDate"))
}

fn read_set(header: &Row, kind: SetKind) -> ServerSet {
    let bytes = header.bytes("BackupSize").unwrap_or(0);
    ServerSet {
        kind: Some(kind),
        backup_set_id: header.guid("BackupSetGUID"),
        media_set_id: None,
        bytes,
        stored_bytes: header.bytes("CompressedBackupSize").unwrap_or(bytes),
        started_at: header.text("BackupStartDate"),
        finished_at: header.text("BackupFinishDate"),
        first: lsn(header, "FirstLSN"),
        checkpoint: lsn(header, "CheckpointLSN"),
        last: lsn(header, "LastLSN"),
        has_checksums: header.integer("HasBackupChecksums").map(|bit| bit != 0),
    }
}
