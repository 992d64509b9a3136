//! A connection to a server: its own command-line client at the other end of two pipes.

use std::io::{BufRead, BufReader, PipeReader, Write};
use std::process::{Child, ChildStdin, Stdio};

use fullbore_core::{Error, Result};
use fullbore_engines::mariadb::hot_copy::{Row, Statements};
use fullbore_test_servers::Server;

pub struct Client {
    child: Child,
    input: ChildStdin,
    output: BufReader<PipeReader>,
    asked: u64,
}

impl Client {
    pub fn connect(server: &Server) -> Self {
        let (output, out) = std::io::pipe().unwrap();
        let mut command = server.client();
        command.args(["--batch", "--unbuffered", "--skip-column-names", "--force", "--skip-reconnect"]);
        command.stdin(Stdio::piped()).stderr(out.try_clone().unwrap()).stdout(out);
        let mut child = command.spawn().unwrap();
        drop(command); // And with it our ends of the pipe for its output.
        Self { input: child.stdin.take().unwrap(), child, output: BufReader::new(output), asked: 0 }
    }

    /// Runs statements; the error is the server's first.
    fn ask(&mut self, sql: &str) -> std::result::Result<Vec<String>, String> {
        self.asked += 1;
        let mark = format!("-- answered {} --", self.asked);
        writeln!(self.input, "{sql};\nSELECT '{mark}';").map_err(|error| error.to_string())?;
        let (mut lines, mut refused) = (Vec::new(), None);
        loop {
            let mut line = Vec::new();
            if self.output.read_until(b'\n', &mut line).map_err(|error| error.to_string())? == 0 {
                return Err(refused.unwrap_or_else(|| "the connection is gone".to_owned()));
            }
            let line = String::from_utf8_lossy(&line).trim_end_matches('\n').to_owned();
            if line == mark {
                return refused.map_or(Ok(lines), Err);
            }
            if ["ERROR 2006", "ERROR 2013", "ERROR 2026", "ERROR 4031"].iter().any(|gone| line.starts_with(gone)) {
                return Err(line); // The client continues without a server, and gives no more answers.
            }
            if line.starts_with("ERROR ") {
                refused.get_or_insert(line);
            } else {
                lines.push(line);
            }
        }
    }

    /// Runs statements that have to succeed.
    pub fn run(&mut self, sql: &str) -> Vec<String> {
        self.ask(sql).unwrap_or_else(|error| panic!("{error}\nin: {sql}"))
    }

    /// Runs statements that may fail.
    pub fn try_run(&mut self, sql: &str) -> std::result::Result<Vec<String>, String> {
        self.ask(sql)
    }
}

impl Statements for Client {
    fn execute(&mut self, sql: &str) -> Result<Vec<Row>> {
        let lines = self.ask(sql).map_err(|error| Error::refused(sql, error, ""))?;
        let cell = |text: &str| (text != "NULL").then(|| text.as_bytes().to_vec());
        Ok(lines.iter().map(|line| Row(line.split('\t').map(cell).collect())).collect())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill(); // It may have ended by itself.
        let _ = self.child.wait();
    }
}
