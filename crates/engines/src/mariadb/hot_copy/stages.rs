//! The server's backup lock: its stages, how long each was waited for and held, and that it is given back on every way
//! out.

use std::time::{Duration, Instant};

use fullbore_core::Result;
use fullbore_core::halt::Halt;

use super::statements::Statements;

/// A refusal after this time was a timeout; an earlier refusal is final.
const WAITED: Duration = Duration::from_millis(900);

/// The stages, in the order in which the server takes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// No other backup; Aria's log is kept.
    Start,
    /// No new writes to tables of other engines.
    Flush,
    /// No such writes at all, and no DDL.
    BlockDdl,
    /// No commits.
    BlockCommit,
}

impl Stage {
    fn name(self) -> &'static str {
        match self {
            Stage::Start => "START",
            Stage::Flush => "FLUSH",
            Stage::BlockDdl => "BLOCK_DDL",
            Stage::BlockCommit => "BLOCK_COMMIT",
        }
    }
}

/// How long others were kept waiting, each from the moment the stage was asked for until the lock was given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Blocked {
    /// Writers of tables of other engines.
    pub other_engines: Duration,
    /// DDL.
    pub ddl: Duration,
    /// Commits: the longest time that a writer of InnoDB tables could have been kept waiting.
    pub commits: Duration,
    /// Of that, until the server had the stage: it waits for commits that are under way.
    pub waited_for_commits: Duration,
    /// Until the server had `BLOCK_DDL`: it waits for running DDL and statements on tables of other engines.
    pub waited_for_ddl: Duration,
}

/// The backup lock, held until [`end`](Self::end) or until it is dropped.
pub struct Stages<'a> {
    server: &'a mut dyn Statements,
    /// Each stage, with the moments when it was requested and reached.
    entered: Vec<(Stage, Instant, Instant)>,
    held: bool,
}

impl<'a> Stages<'a> {
    /// Takes the lock in its first stage, which blocks no session. A wait for a lock ends after `timeout`, or with the
    /// job.
    pub fn start(server: &'a mut dyn Statements, timeout: Duration, halt: &Halt) -> Result<Self> {
        // The connection is idle while the files are copied, and its statements may take long.
        server.execute("SET SESSION lock_wait_timeout=1, wait_timeout=31536000, max_statement_time=0")?;
        let mut stages = Self { server, entered: Vec::new(), held: false };
        let since = Instant::now();
        loop {
            halt.check()?;
            // A longer wait could not be ended: the log's thread, which ends later waits, must not begin before this.
            let asked = Instant::now();
            match stages.enter(Stage::Start) {
                Ok(()) => break,
                Err(_) if asked.elapsed() >= WAITED && since.elapsed() < timeout => {}
                Err(error) => return Err(error),
            }
        }
        let seconds = timeout.as_secs().clamp(1, 31_536_000);
        stages.server.execute(&format!("SET SESSION lock_wait_timeout={seconds}"))?;
        Ok(stages)
    }

    /// Advances to `stage`.
    pub fn enter(&mut self, stage: Stage) -> Result<()> {
        let asked = Instant::now();
        // Held from here on: the stage may be reached although the connection fails.
        self.held = true;
        let answer = self.server.execute(&format!("BACKUP STAGE {}", stage.name()));
        answer.map_err(|error| error.noting(hint(stage)))?;
        self.entered.push((stage, asked, Instant::now()));
        Ok(())
    }

    /// The connection that holds the lock.
    pub fn server(&mut self) -> &mut dyn Statements {
        self.server
    }

    /// An error if the connection, and with it the lock, is lost.
    pub fn check(&mut self) -> Result<()> {
        let answer = self.server.execute("DO 1");
        answer
            .map(drop)
            .map_err(|error| error.noting("the connection that held the backup lock is gone: start the backup again"))
    }

    /// Releases the lock, and returns how long each stage blocked other sessions.
    pub fn end(mut self) -> Result<Blocked> {
        let result = self.server.execute("BACKUP STAGE END");
        let now = Instant::now();
        self.held = result.is_err(); // After an error, `drop` tries again.
        result?;
        let at = |stage: Stage| self.entered.iter().find(|(entered, ..)| *entered == stage);
        let since = |stage: Stage| at(stage).map_or(Duration::ZERO, |(_, asked, _)| now - *asked);
        let waited = |stage: Stage| at(stage).map_or(Duration::ZERO, |(_, asked, had)| *had - *asked);
        Ok(Blocked {
            other_engines: since(Stage::Flush),
            ddl: since(Stage::BlockDdl),
            commits: since(Stage::BlockCommit),
            waited_for_commits: waited(Stage::BlockCommit),
            waited_for_ddl: waited(Stage::BlockDdl),
        })
    }
}

impl Drop for Stages<'_> {
    fn drop(&mut self) {
        // Twice, because the cancellation of an earlier statement may hit the first. If both fail, the connection is
        // broken, and the server releases the lock by itself.
        if self.held && self.server.execute("BACKUP STAGE END").is_err() {
            let _ = self.server.execute("BACKUP STAGE END");
        }
    }
}

fn hint(stage: Stage) -> &'static str {
    match stage {
        Stage::Start => {
            "another backup may be running on this server, or a session holds LOCK TABLES: look at SHOW PROCESSLIST, \
             or raise --lock-timeout; the account needs RELOAD"
        }
        Stage::Flush | Stage::BlockDdl => {
            "the backup waits for running DDL, or for a long statement or LOCK TABLES on a table of another engine \
             than InnoDB: look at SHOW PROCESSLIST, or raise --lock-timeout"
        }
        Stage::BlockCommit => "running commits did not end in time: raise --lock-timeout",
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::statements::Row;
    use super::*;
    use fullbore_core::Error;

    /// Records its statements, and refuses one of them.
    struct Recorder {
        said: Vec<String>,
        refused: &'static str,
    }

    impl Statements for Recorder {
        fn execute(&mut self, sql: &str) -> Result<Vec<Row>> {
            self.said.push(sql.to_owned());
            if sql == self.refused {
                Err(Error::refused(sql, "Lock wait timeout exceeded", ""))
            } else {
                Ok(Vec::new())
            }
        }
    }

    fn stages_of(recorder: &Recorder) -> Vec<&str> {
        recorder.said.iter().filter_map(|said| said.strip_prefix("BACKUP STAGE ")).collect()
    }

    #[test]
    fn all_stages_are_taken_and_given_back_once() {
        let mut recorder = Recorder { said: Vec::new(), refused: "" };
        let mut stages = Stages::start(&mut recorder, Duration::from_secs(10), &Halt::new()).unwrap();
        for stage in [Stage::Flush, Stage::BlockDdl, Stage::BlockCommit] {
            stages.enter(stage).unwrap();
        }
        let blocked = stages.end().unwrap();
        assert!(blocked.other_engines >= blocked.ddl && blocked.ddl >= blocked.commits);
        assert_eq!(stages_of(&recorder), ["START", "FLUSH", "BLOCK_DDL", "BLOCK_COMMIT", "END"]);
    }

    #[test]
    fn the_lock_is_given_back_also_after_a_stage_that_was_refused() {
        let mut recorder = Recorder { said: Vec::new(), refused: "BACKUP STAGE BLOCK_DDL" };
        let mut stages = Stages::start(&mut recorder, Duration::from_secs(10), &Halt::new()).unwrap();
        let error = stages.enter(Stage::BlockDdl).unwrap_err().to_string();
        assert!(error.contains("--lock-timeout") && error.contains("Lock wait timeout"), "{error}");
        drop(stages);
        assert_eq!(stages_of(&recorder), ["START", "BLOCK_DDL", "END"]);
    }

    #[test]
    fn an_end_that_fails_is_tried_again() {
        let mut recorder = Recorder { said: Vec::new(), refused: "BACKUP STAGE END" };
        let stages = Stages::start(&mut recorder, Duration::from_secs(10), &Halt::new()).unwrap();
        assert!(stages.end().is_err());
        assert_eq!(stages_of(&recorder), ["START", "END", "END", "END"]);
    }
}
