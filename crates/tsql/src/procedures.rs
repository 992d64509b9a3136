//! `EXEC msdb.dbo.rds_…`: the procedures of Amazon RDS for SQL Server. There they start tasks; here they run at once.

use std::collections::HashMap;

use fullbore_core::{Error, Result};

use super::expression::{Value, Variables, moment};
use super::lexemes::{Lexeme, Position};
use super::names::Names;
use super::on_server;
use super::parser::{HINT, Parser};
use super::statement::{Action, Command};

/// The arguments of a call, by their names in small letters without `@`.
struct Arguments {
    at: Position,
    procedure: String,
    given: HashMap<String, (Value, Position)>,
}

/// Reads the statement behind the word EXEC.
///
/// # Errors
/// An unknown procedure, or an argument that is unknown or missing.
pub(crate) fn execute(parser: &mut Parser, variables: &Variables, names: &Names, at: Position) -> Result<Command> {
    let mut path = vec![part_of_name(parser)?];
    while parser.take_sign('.') {
        // `msdb..name` leaves the schema out.
        let is_left_out = parser.peek() == Some(&Lexeme::Sign('.'));
        path.push(if is_left_out { "dbo".into() } else { part_of_name(parser)? });
    }
    let procedure = path.pop().unwrap_or_default();
    let place = path.join(".");
    if !["", "dbo", "msdb.dbo"].contains(&place.to_lowercase().as_str()) {
        let why = format!("the procedures of RDS are in msdb.dbo, not in {place}");
        return Err(Error::usage(at.to_string(), why, "write EXEC msdb.dbo.rds_…"));
    }
    let mut call = Arguments { at, procedure: procedure.to_lowercase(), given: HashMap::new() };
    while let Some(Lexeme::Variable(name)) = parser.peek().cloned() {
        let at = parser.at();
        parser.next();
        parser.want_sign('=')?;
        let value = variables.value(parser)?;
        if call.given.insert(name.to_lowercase(), (value, at)).is_some() {
            return Err(Error::usage(format!("{at}: @{name}"), "it is given twice", "give it once"));
        }
        if !parser.take_sign(',') {
            break;
        }
    }
    if call.procedure.starts_with("rds_") && matches!(parser.peek(), Some(Lexeme::Text(_) | Lexeme::Number(_))) {
        let why = "its arguments need their names";
        let hint = "write @source_db_name = N'…', and so on";
        return Err(Error::usage(format!("{}: {}", parser.at(), call.procedure), why, hint));
    }
    let command = match call.procedure.as_str() {
        "rds_backup_database" => call.backup(names),
        "rds_restore_database" => call.restore(names, "RESTORE DATABASE"),
        "rds_restore_log" => call.restore(names, "RESTORE LOG"),
        "rds_finish_restore" => call.finish(names),
        "rds_task_status" => call.tasks(names),
        "rds_cancel_task" => call.cancel(names),
        other => Err(Error::usage(at.to_string(), format!("fullbore does not know the procedure {other}"), HINT)),
    }?;
    match call.given.iter().next() {
        Some((name, (_, at))) => {
            let why = format!("fullbore has no such argument of {}", call.procedure);
            Err(Error::usage(format!("{at}: @{name}"), why, HINT))
        }
        None => Ok(command),
    }
}

fn part_of_name(parser: &mut Parser) -> Result<String> {
    match parser.next() {
        Some(Lexeme::Word(name) | Lexeme::Name(name)) => Ok(name),
        _ => Err(parser.unexpected("the name of a procedure")),
    }
}

impl Arguments {
    fn take(&mut self, name: &str) -> Option<Value> {
        self.given.remove(name).map(|(value, _)| value)
    }

    fn text(&mut self, name: &str) -> Result<String> {
        match self.take(name) {
            Some(Value::Text(text)) if !text.is_empty() => Ok(text),
            _ => {
                let why = format!("it needs a text in @{name}");
                Err(Error::usage(format!("{}: {}", self.at, self.procedure), why, HINT))
            }
        }
    }

    /// 0 or 1, as a number or a text; 0 without the argument.
    fn is_on(&mut self, name: &str) -> Result<bool> {
        match self.take(name).map(|value| value.text()) {
            None => Ok(false),
            Some(text) if text == "0" => Ok(false),
            Some(text) if text == "1" => Ok(true),
            Some(_) => Err(Error::usage(format!("{}: @{name}", self.at), "it is neither 0 nor 1", "write 0 or 1")),
        }
    }

    fn numbers(&mut self, flags: &[(&str, &str)]) -> Result<Vec<String>> {
        let mut words = Vec::new();
        for (argument, flag) in flags {
            let Some(value) = self.take(argument) else { continue };
            let text = value.text();
            if !text.parse::<u64>().is_ok_and(|number| number > 0) {
                let why = "it is not a whole number above 0";
                return Err(Error::usage(format!("{}: @{argument}", self.at), why, "write a number"));
            }
            words.extend([format!("--{flag}"), text]);
        }
        Ok(words)
    }

    /// True for `@type = 'DIFFERENTIAL'`.
    fn is_differential(&mut self) -> Result<bool> {
        match self.take("type").map(|kind| kind.text().to_uppercase()).as_deref() {
            None | Some("FULL") => Ok(false),
            Some("DIFFERENTIAL") => Ok(true),
            Some(kind) => {
                let why = format!("`{kind}` is not a type");
                Err(Error::usage(format!("{}: @type", self.at), why, "write FULL or DIFFERENTIAL"))
            }
        }
    }

    /// `arn:aws:s3:::bucket/key*` as URLs: `*` stands for the number of each file.
    fn objects(&mut self, argument: &str, files: u64) -> Result<Vec<String>> {
        let arn = self.text(argument)?;
        let wrong =
            |why: &str| Error::usage(format!("{}: @{argument}", self.at), why, "write arn:aws:s3:::bucket/file.bak");
        let place = arn
            .strip_prefix("arn:aws:s3:::")
            .filter(|place| place.contains('/'))
            .ok_or_else(|| wrong("it is not the name of an S3 object"))?;
        match (place.split_once('*'), files) {
            (None, 1) => Ok(vec![format!("s3://{place}")]),
            (Some((before, after)), _) => {
                Ok((1..=files).map(|number| format!("s3://{before}{number}-of-{files}{after}")).collect())
            }
            (None, _) => Err(wrong("several files need a `*` in the name")),
        }
    }

    fn files(&mut self) -> Result<u64> {
        match self.take("number_of_files") {
            None => Ok(1),
            Some(Value::Number(count @ 1..=10)) => Ok(count.unsigned_abs()),
            Some(_) => Err(Error::usage(
                format!("{}: @number_of_files", self.at),
                "it is not from 1 to 10",
                "write a number from 1 to 10",
            )),
        }
    }

    /// The URL of a database, and whether a SQL Server of RDS runs the procedure itself.
    fn target(&self, database: &str, names: &Names) -> Result<(String, bool)> {
        let url = names.database(database, self.at)?.to_owned();
        on_server::accepted(&url, database, self.at, names)?;
        let is_on_server = on_server::is_on_server(&url);
        if is_on_server && !url.contains("rds=true") {
            let why = "its URL is of a SQL Server without the procedures of RDS";
            let hint = "add rds=true to the URL, or write BACKUP and RESTORE";
            return Err(Error::usage(format!("{}: database [{database}]", self.at), why, hint));
        }
        Ok((url, is_on_server))
    }

    /// `arn:aws:s3:::bucket/key` as a URL. RDS itself puts numbers for `*`.
    fn object_of_rds(&mut self, argument: &str) -> Result<String> {
        let arn = self.text(argument)?;
        let place = arn.strip_prefix("arn:aws:s3:::").filter(|place| place.contains('/'));
        place.map(|place| format!("s3://{place}")).ok_or_else(|| {
            let why = "it is not the name of an S3 object";
            Error::usage(format!("{}: @{argument}", self.at), why, "write arn:aws:s3:::bucket/file.bak")
        })
    }

    fn backup_by_rds(&mut self, database: String, url: String) -> Result<Command> {
        let mut words = vec!["backup".to_owned(), url, "--to".into(), self.object_of_rds("s3_arn_to_backup_to")?];
        match self.files()? {
            1 => {}
            files => words.extend(["--stripes".into(), files.to_string()]),
        }
        if self.is_differential()? {
            words.extend(["--kind".into(), "differential".into()]);
        }
        words.extend(self.flags_of_backup()?);
        words.push("--experimental".into());
        let action = Action::Backup { statement: "BACKUP DATABASE".into(), database };
        Ok(Command::new(self.at, words, action))
    }

    fn flags_of_backup(&mut self) -> Result<Vec<String>> {
        let init = self.is_on("overwrite_s3_backup_file")?.then(|| "--init".to_owned());
        let numbers = self.numbers(&[
            ("max_transfer_size", "max-transfer-size"),
            ("buffer_count", "buffer-count"),
            ("block_size", "block-size"),
        ])?;
        Ok(init.into_iter().chain(numbers).collect())
    }

    fn restore_by_rds(&mut self, (database, url): (String, String), statement: &str) -> Result<Command> {
        let mut words = vec!["restore".to_owned(), "--from".into(), self.object_of_rds("s3_arn_to_restore_from")?];
        let kind = match (statement, self.is_differential()?) {
            ("RESTORE LOG", _) => Some("log"),
            (_, true) => Some("differential"),
            _ => None,
        };
        words.extend(kind.into_iter().flat_map(|kind| ["--kind".to_owned(), kind.to_owned()]));
        if self.is_on("with_norecovery")? {
            words.push("--no-recovery".into());
        }
        if let Some(time) = self.take("stopat") {
            words.extend(["--stop-at".into(), on_server::time_with_zone(Some(&time), self.at)?]);
        }
        words.extend(self.numbers(&[("buffer_count", "buffer-count")])?);
        words.extend(["--into".into(), url, "--experimental".into()]);
        let action = Action::Restore { statement: statement.into(), database };
        Ok(Command::new(self.at, words, action))
    }

    fn backup(&mut self, names: &Names) -> Result<Command> {
        let database = self.text("source_db_name")?;
        let (url, is_on_server) = self.target(&database, names)?;
        if is_on_server {
            return self.backup_by_rds(database, url);
        }
        let files = self.files()?;
        let mut words = vec!["backup".to_owned(), url];
        let objects = self.objects("s3_arn_to_backup_to", files)?;
        let directory =
            objects.first().and_then(|first| first.rsplit_once('/')).map(|(directory, _)| format!("{directory}/"));
        words.extend(objects.into_iter().flat_map(|object| ["--to".to_owned(), object]));
        let differential = self.is_differential()?;
        if differential {
            words.extend(["--kind".into(), "differential".into(), "--base".into(), directory.unwrap_or_default()]);
        }
        words.extend(self.flags_of_backup()?);
        let action = Action::Backup { statement: "BACKUP DATABASE".into(), database };
        Ok(Command::new(self.at, words, action))
    }

    fn restore(&mut self, names: &Names, statement: &str) -> Result<Command> {
        let database = self.text("restore_db_name")?;
        let (url, is_on_server) = self.target(&database, names)?;
        if is_on_server {
            return self.restore_by_rds((database, url), statement);
        }
        let mut words = vec!["restore".to_owned()];
        let arn = self.text("s3_arn_to_restore_from")?;
        self.given
            .insert("s3_arn_to_restore_from".into(), (Value::Text(arn.trim_end_matches('*').to_owned()), self.at));
        words.extend(["--from".to_owned(), self.objects("s3_arn_to_restore_from", 1)?.concat()]);
        let (keeps_open, is_log) = (self.is_on("with_norecovery")?, statement == "RESTORE LOG");
        if keeps_open {
            words.push("--no-recovery".into());
        } else if is_log {
            words.push("--recovery".into());
        }
        if let Some(time) = self.take("stopat") {
            words.extend(["--stop-at".into(), moment(Some(&time), self.at)?]);
        }
        words.extend(self.numbers(&[("buffer_count", "buffer-count")])?);
        // The media say these.
        self.is_differential()?;
        self.numbers(&[("block_size", "block-size"), ("max_transfer_size", "max-transfer-size")])?;
        words.extend(["--into".into(), url]);
        let action = Action::Restore { statement: statement.into(), database };
        Ok(Command::new(self.at, words, action))
    }

    fn finish(&mut self, names: &Names) -> Result<Command> {
        let database = self.text("db_name")?;
        let (into, is_on_server) = self.target(&database, names)?;
        let mut words = vec!["restore".to_owned(), "--recovery".into(), "--into".into(), into];
        words.extend(is_on_server.then(|| "--experimental".to_owned()));
        let action = Action::Restore { statement: "RESTORE DATABASE".into(), database };
        Ok(Command::new(self.at, words, action))
    }

    fn repository(&self, names: &Names) -> Result<String> {
        names.repository.clone().ok_or_else(|| {
            let why = "the configuration names no repository for it";
            Error::usage(
                format!("{}: {}", self.at, self.procedure),
                why,
                "add it to fullbore.toml, in [sql]: repository = \"nightly\"",
            )
        })
    }

    fn tasks(&mut self, names: &Names) -> Result<Command> {
        let repository = self.repository(names)?;
        let words = match self.take("task_id") {
            Some(task) => vec!["task".into(), task.text(), "--repo".into(), repository],
            None => match self.take("db_name") {
                Some(name) => {
                    let url = names.database(&name.text(), self.at)?;
                    // The tasks of a server have the name that the server gives.
                    let file = url.split_once(':').map(|(_, path)| path).filter(|path| !path.starts_with("//"));
                    let file = file.ok_or_else(|| {
                        let thing = format!("{}: rds_task_status: @db_name", self.at);
                        Error::usage(thing, "is a database of a server", "leave it out, or write @task_id")
                    })?;
                    vec!["tasks".into(), "--repo".into(), repository, "--database".into(), file.to_owned()]
                }
                None => vec!["tasks".into(), "--repo".into(), repository],
            },
        };
        Ok(Command::new(self.at, words, Action::Show))
    }

    fn cancel(&mut self, names: &Names) -> Result<Command> {
        let repository = self.repository(names)?;
        let task = self.take("task_id").map(|task| task.text()).filter(|task| !task.is_empty());
        let missing =
            || Error::usage(format!("{}: rds_cancel_task", self.at), "it names no task", "write @task_id = …");
        let task = task.ok_or_else(missing)?;
        let words = vec!["cancel".into(), task, "--repo".into(), repository];
        Ok(Command::new(self.at, words, Action::Show))
    }
}
