//! A restore that the server runs: which set of the files, over which database.

use fullbore_core::media::SetKind;
use fullbore_core::{Error, Result};

use super::answer::{Row, kind_of_type, server_time};
use super::place::Place;
use super::session::{Session, lsn};
use super::words::{self, RestoreWords};
use super::{chain, questions};
use crate::engine::{Look, RestoreOrder, RestoreStep, Seen, ServerOutcome, ServerSet, StopMark};

/// A restore after all checks.
pub(super) struct PlannedRestore {
    /// The statements, with the bytes of their sets.
    steps: Vec<(String, u64)>,
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
        let stop_at = order.stop_at.map(|moment| self.time_of_server(moment)).transpose()?;
        let chosen = match &self.media_sets(places)?[..] {
            [files] => vec![self.chosen(files, order)?],
            several => self.chain(several, order, stop_at.as_deref())?,
        };
        let stop_mark = self.stop_mark(order, &chosen)?;
        let first = chosen.first().map_or(SetKind::Full, |chosen| chosen.kind);
        let exists = self.check_target(first, order.replace)?;
        let mut notes = Vec::new();
        if let Some(time) = &stop_at {
            notes.push(format!(
                "STOPAT is {time} by the clock of the server, which is {} minutes from UTC now; after a change to or from \
                 summer time since then, add or subtract an hour",
                self.zone_minutes.unwrap_or(0)
            ));
        }
        let last = chosen.len() - 1;
        let mut steps = Vec::new();
        for (at, one) in chosen.iter().enumerate() {
            // A chain stops in its logs.
            let stops = last == 0 || one.kind == SetKind::Log;
            let words = RestoreWords {
                files: &one.files,
                position: one.position,
                is_log: one.kind == SetKind::Log,
                moves: if at == 0 { &order.moves } else { &[] },
                replace: at == 0 && exists && order.replace,
                continue_after_error: order.continue_after_error,
                buffer_count: order.buffer_count,
                stop_at: stop_at.clone().filter(|_| stops),
                stop_mark: stop_mark.clone(),
                // The database can be read after the last step.
                standby: order.standby.as_deref().filter(|_| at == last),
                stats: order.stats,
            };
            let step = if at == last { order.step } else { RestoreStep::NoRecovery };
            let statement = words::restore(&self.address.database, &words, step)?;
            steps.push((statement, one.header.bytes("BackupSize").unwrap_or(0)));
        }
        let files: Vec<Place> = chosen.iter().flat_map(|one| one.files.clone()).fold(Vec::new(), |mut files, file| {
            // Several sets may be on one media set.
            if !files.contains(&file) {
                files.push(file);
            }
            files
        });
        let mut outcome = self.outcome(&files, steps.iter().map(|(statement, _)| statement.clone()).collect());
        if let Some(end) = chosen.last() {
            outcome.set = read_set(&end.header, end.kind);
        }
        outcome.set.bytes = steps.iter().map(|(_, bytes)| *bytes).fold(0, u64::saturating_add);
        outcome.notes = notes;
        Ok(PlannedRestore { steps, outcome })
    }

    /// The mark to stop at, with its time by the clock of the server.
    ///
    /// # Errors
    /// The files hold no log backup, or more than one set: the server alone knows which log has the mark.
    fn stop_mark<'o>(
        &self,
        order: &'o RestoreOrder,
        chosen: &[Chosen],
    ) -> Result<Option<(&'o StopMark, Option<String>)>> {
        let Some(mark) = &order.stop_mark else { return Ok(None) };
        let flag = if mark.before { "--stop-before-mark" } else { "--stop-at-mark" };
        match chosen {
            [one] if one.kind == SetKind::Log => {}
            [_] => return Err(Error::usage(flag, "is for a log backup, and the set is none", "leave it out")),
            _ => {
                let why = "only the server knows which log backup has the mark, so a chain cannot stop at it";
                let hint = "restore the sets before it with --no-recovery, then this log backup alone";
                return Err(Error::usage(flag, why, hint));
            }
        }
        if order.stop_at.is_some() {
            return Err(Error::usage(flag, "and --stop-at name two places to stop at", "leave one of them out"));
        }
        Ok(Some((mark, mark.after.map(|moment| self.time_of_server(moment)).transpose()?)))
    }

    /// Runs a restore, one statement after the other.
    pub(super) fn run_restore(&mut self, order: &RestoreOrder, look: Look<'_>) -> Result<ServerOutcome> {
        let PlannedRestore { steps, mut outcome } = self.planned_restore(order)?;
        let (thing, whole, count) = (self.thing(), outcome.set.bytes, steps.len());
        let mut done: u64 = 0;
        for (at, (statement, bytes)) in steps.iter().enumerate() {
            let mut of_all = |seen: &Seen| {
                // A float has enough digits for a share of it.
                let now = done as f64 + *bytes as f64 * seen.percent / 100.0;
                let percent = if count == 1 || whole == 0 { seen.percent } else { now / whole as f64 * 100.0 };
                look(&Seen { percent, total_bytes: whole })
            };
            let ran = self.run(statement, *bytes, &mut of_all).map_err(|failure| {
                let may_be_done = failure.may_be_done();
                let error = failure.on(&thing);
                let error =
                    if may_be_done { error.noting("the restore may have finished on the server") } else { error };
                let error = if at > 0 { error.noting(&format!("{at} of {count} steps are done")) } else { error };
                error.noting("the database may be restoring: it cannot be used before a restore is complete")
            });
            // Each statement would say the same.
            let new = ran?.into_iter().filter(|note| !outcome.notes.contains(note)).collect::<Vec<_>>();
            outcome.notes.extend(new);
            done = done.saturating_add(*bytes);
        }
        self.check_state(order)?;
        Ok(outcome)
    }

    /// Whether the database has the state that the restore was to end in. The job may be over: it is asked anyway.
    pub(super) fn check_state(&mut self, order: &RestoreOrder) -> Result<()> {
        let wanted = match (&order.standby, order.step) {
            (Some(_), _) => STANDBY,
            (None, RestoreStep::NoRecovery) => "RESTORING",
            (None, RestoreStep::Recovery) => "ONLINE",
        };
        let rows = self.link.ask_at_last(&questions::database(&self.address.database)).map_err(|failure| {
            failure.on(&self.thing()).noting("the restore ended, but the state of the database is not known")
        })?;
        let state = rows.first().map_or_else(|| "missing".into(), state_of);
        if state == wanted {
            return Ok(());
        }
        let why = format!("the restore ended, but the state of the database is {state}, and not {wanted}");
        let hint = match (state.as_str(), order.stop_at.is_some() || order.stop_mark.is_some()) {
            ("RESTORING", true) => {
                "the place to stop at may be behind the end of this log: restore the next log, or open it with --recovery"
            }
            ("RESTORING", false) => "restore the next set, or open it with --recovery",
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
            Some(state) if state == "RESTORING" || state == STANDBY => {
                let statement = words::recover(&self.address.database);
                let outcome = self.outcome(&[], vec![statement.clone()]);
                Ok(PlannedRestore { steps: vec![(statement, 0)], outcome })
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
        Ok(self.database_row()?.as_ref().map(state_of))
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
            (_, Some("RESTORING" | STANDBY)) => Ok(true),
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

    /// The sets on the files of one media set.
    fn headers(&mut self, files: &[Place]) -> Result<Vec<Row>> {
        let sets = self.link.ask(&questions::headers(files));
        sets.map_err(|failure| failure.on(&files.first().map_or_else(String::new, Place::shown)))
    }

    /// The sets of a chain on several media sets, in the order of their restore.
    fn chain(&mut self, media: &[Vec<Place>], order: &RestoreOrder, stop_at: Option<&str>) -> Result<Vec<Chosen>> {
        let flags = [("--set", order.set.is_some()), ("--latest", order.latest), ("--file", order.position.is_some())];
        if let Some((flag, _)) = flags.iter().find(|(_, given)| *given) {
            let why = "names one set, and the files are of several media sets, which are restored as a chain";
            return Err(Error::usage(*flag, why, "leave it out, or name the files of one media set"));
        }
        let mut links = Vec::new();
        for files in media {
            for header in self.headers(files)? {
                links.push(chain::Link::of(files, header)?);
            }
        }
        let chosen = |link: chain::Link| {
            let chain::Link { files, header, kind, position, .. } = link;
            Chosen { files, header, kind, position }
        };
        Ok(chain::steps(links, stop_at)?.into_iter().map(chosen).collect())
    }

    /// The set on the files of one media set.
    fn chosen(&mut self, files: &[Place], order: &RestoreOrder) -> Result<Chosen> {
        let sets = self.headers(files)?;
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
                    shown(files),
                    why,
                    "fullbore inspect shows the sets of a file that it can read",
                ));
            }
            (several, true) => several
                .iter()
                .copied()
                .max_by_key(|set| set.integer("Position"))
                .ok_or_else(|| Error::usage(shown(files), "no backup set is there", ""))?,
            (several, false) => {
                let lines: String = several.iter().map(|set| format!("\n    {}", title(set))).collect();
                let why = format!("there are {} sets:{lines}", several.len());
                return Err(Error::usage(shown(files), why, "choose one with --set ID, or the newest with --latest"));
            }
        };
        let unknown = |what: &str| Error::refused(shown(files), what.to_owned(), "use RESTORE of SQL Server itself");
        let number =
            header.integer("BackupType").ok_or_else(|| unknown("the server does not say the kind of the set"))?;
        let kind = kind_of_type(number).ok_or_else(|| unknown("the set holds single files of a database"))?;
        let position = header.integer("Position").filter(|position| *position > 0);
        let position = position.ok_or_else(|| unknown("the server does not say the position of the set"))?;
        Ok(Chosen { kind, position, header: header.clone(), files: files.to_vec() })
    }

    /// The places by their media sets, each in the order of its families.
    ///
    /// # Errors
    /// A file twice, or a missing family.
    fn media_sets(&mut self, places: Vec<Place>) -> Result<Vec<Vec<Place>>> {
        let mut media: Vec<Families> = Vec::new();
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
            let at = media.iter().position(|known| known.id == id).unwrap_or_else(|| {
                media.push(Families { id, count, places: Vec::new() });
                media.len() - 1
            });
            let Some(known) = media.get_mut(at) else { continue };
            if let Some((_, other)) = known.places.iter().find(|(known, _)| *known == number) {
                let why = format!("is family {number}, as {}", other.shown());
                return Err(Error::usage(place.shown(), why, "name each family once"));
            }
            known.places.push((number, place));
        }
        media.into_iter().map(Families::whole).collect()
    }
}

/// The families of one media set that are named.
struct Families {
    id: String,
    /// How many it has.
    count: i64,
    /// Their numbers and places.
    places: Vec<(i64, Place)>,
}

impl Families {
    /// The places in the order of the families.
    ///
    /// # Errors
    /// One is missing.
    fn whole(mut self) -> Result<Vec<Place>> {
        let is_there = |wanted: &i64| self.places.iter().any(|(number, _)| number == wanted);
        if let Some(missing) = (1..=self.count.min(64)).find(|number| !is_there(number)) {
            let why = format!("family {missing} of {} is missing", self.count);
            return Err(Error::incomplete(format!("media set {}", self.id), why, "name all its files with --from"));
        }
        self.places.sort_by_key(|(number, _)| *number);
        Ok(self.places.into_iter().map(|(_, place)| place).collect())
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
        ("--stop-at-mark, --stop-before-mark", order.stop_mark.is_some()),
        ("--standby", order.standby.is_some()),
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

/// The state of a database that can be read between two steps. The server calls it ONLINE.
pub(super) const STANDBY: &str = "STANDBY";

/// The state of a database.
fn state_of(row: &Row) -> String {
    match (row.text("state"), row.integer("in_standby")) {
        (Some(state), Some(1)) if state == "ONLINE" => STANDBY.into(),
        (state, _) => state.unwrap_or_else(|| "unknown".into()),
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
