//! A whole script: batches, variables, statements. All of it is read before anything runs.

use fullbore_core::{Error, Result};
use jiff::Zoned;

use super::backup::backup;
use super::expression::{Value, Variables, type_name};
use super::lexemes::{Lexeme, lexemes};
use super::names::Names;
use super::parser::{HINT, Parser};
use super::procedures::execute;
use super::restore::restore;
use super::statement::{Action, Command, database_name};

/// Commands of one script.
const COMMANDS_MAX: usize = 10_000;

/// The commands of a script, in order. GETDATE() is `now`.
///
/// # Errors
/// The first word that T-SQL or fullbore does not have: with its line, its column and the next step.
pub fn read_script(script: &str, names: &Names, now: Zoned) -> Result<Vec<Command>> {
    let mut parser = Parser::new(lexemes(script)?);
    let mut variables = Variables::new(now);
    let mut commands = Vec::new();
    while let Some(lexeme) = parser.peek() {
        if commands.len() >= COMMANDS_MAX {
            return Err(Error::usage(
                parser.at().to_string(),
                "the script has more than 10000 statements",
                "divide it",
            ));
        }
        match lexeme {
            Lexeme::Go => {
                parser.next();
                if matches!(parser.peek(), Some(Lexeme::Number(_))) {
                    let why = "a batch runs once: a number behind GO has no meaning here";
                    return Err(Error::usage(parser.at().to_string(), why, "write GO alone"));
                }
                variables.clear();
            }
            Lexeme::Sign(';') => {
                parser.next();
            }
            _ => commands.extend(statement(&mut parser, &mut variables, names)?),
        }
    }
    end_steps(&mut commands);
    Ok(commands)
}

/// After NORECOVERY or STANDBY, a restore of the same database without it is the last step: it gets `--recovery`. All steps go where
/// the first one has moved the database.
fn end_steps(commands: &mut [Command]) {
    let mut open: Vec<(String, String)> = Vec::new();
    for command in commands {
        let Action::Restore { database, .. } = &command.action else { continue };
        let database = database.to_lowercase();
        let has = |flag: &str| command.words.iter().any(|word| word == flag);
        let (continues, ends) = (has("--no-recovery") || has("--standby"), has("--recovery"));
        let place = open.iter().position(|(known, _)| *known == database);
        let Some(into) = command.words.iter().position(|word| word == "--into").map(|at| at + 1) else { continue };
        let Some(target) = command.words.get_mut(into) else { continue };
        if let Some((_, first)) = place.and_then(|place| open.get(place)) {
            target.clone_from(first);
        }
        match (place, continues) {
            (None, true) => open.push((database, target.clone())),
            (Some(place), false) => {
                open.remove(place);
                if !ends {
                    command.words.push("--recovery".into());
                }
            }
            _ => {}
        }
    }
}

fn statement(parser: &mut Parser, variables: &mut Variables, names: &Names) -> Result<Option<Command>> {
    let at = parser.at();
    let word = parser.any_word("a statement")?;
    match word.as_str() {
        "BACKUP" => backup(parser, variables, names, at).map(Some),
        "RESTORE" => restore(parser, variables, names, at).map(Some),
        "EXEC" | "EXECUTE" => execute(parser, variables, names, at).map(Some),
        "DECLARE" => declare(parser, variables).map(|()| None),
        "SET" => set(parser, variables).map(|()| None),
        "SELECT" if matches!(parser.peek(), Some(Lexeme::Variable(_))) => set(parser, variables).map(|()| None),
        "PRINT" => {
            let action = Action::Print(variables.value(parser)?.text());
            Ok(Some(Command::new(at, Vec::new(), action)))
        }
        // Every statement here names its database.
        "USE" => database_name(parser, variables).map(|_| None),
        other => {
            let hint = "fullbore runs BACKUP, RESTORE, EXEC rds_…, DECLARE, SET, PRINT and USE";
            Err(Error::usage(at.to_string(), format!("fullbore does not know the statement {other}"), hint))
        }
    }
}

fn declare(parser: &mut Parser, variables: &mut Variables) -> Result<()> {
    loop {
        let Some(Lexeme::Variable(name)) = parser.next() else { return Err(parser.unexpected("a variable")) };
        parser.take_word("AS");
        type_name(parser)?;
        let value = if parser.take_sign('=') { variables.value(parser)? } else { Value::Null };
        variables.set(&name, value);
        if !parser.take_sign(',') {
            return Ok(());
        }
    }
}

/// `SET @name = value`, `SELECT @name = value`, and settings of a session that change nothing here.
fn set(parser: &mut Parser, variables: &mut Variables) -> Result<()> {
    let at = parser.at();
    match parser.next() {
        Some(Lexeme::Variable(name)) => {
            if !variables.has(&name) {
                let why = "this variable is not declared in its batch";
                return Err(Error::usage(format!("{at}: @{name}"), why, format!("add: DECLARE @{name} nvarchar(260)")));
            }
            parser.want_sign('=')?;
            let value = variables.value(parser)?;
            variables.set(&name, value);
            Ok(())
        }
        Some(Lexeme::Word(setting))
            if ["NOCOUNT", "XACT_ABORT", "QUOTED_IDENTIFIER", "ANSI_NULLS"]
                .contains(&setting.to_ascii_uppercase().as_str()) =>
        {
            if parser.take_word("ON") || parser.take_word("OFF") { Ok(()) } else { Err(parser.unexpected("ON or OFF")) }
        }
        _ => Err(Error::usage(at.to_string(), "a variable is expected here", HINT)),
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
