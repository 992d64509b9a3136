//! A session of a server that a test keeps open: it holds locks, and waits.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use fullbore_test_servers::Server;

/// The session; it ends when this is dropped.
pub struct Held {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Held {
    /// Runs statements, and stays.
    pub fn by(server: &Server, statements: &str) -> Self {
        let mut client = server.client();
        client.args(["--batch", "--skip-column-names", "--unbuffered"]);
        let mut child = client.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (to, from) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut held = Self { child, to, from };
        held.run(statements);
        held
    }

    /// Runs further statements to their end.
    pub fn run(&mut self, statements: &str) {
        self.send(&format!("{statements}; SELECT 'is done'"));
        for line in (&mut self.from).lines() {
            if line.unwrap().contains("is done") {
                return;
            }
        }
        panic!("the session ended: {statements}");
    }

    /// Sends statements that may wait.
    pub fn send(&mut self, statements: &str) {
        writeln!(self.to, "{statements};").unwrap();
        self.to.flush().unwrap();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.child.kill(); // It may have ended.
        let _ = self.child.wait();
    }
}

/// Waits until a session of the server runs a statement that begins so.
pub fn wait_for_statement(server: &Server, begin: &str) {
    fullbore_test_servers::wait_until(begin, || is_running(server, begin));
}

/// Whether a session of the server runs a statement that begins so.
pub fn is_running(server: &Server, begin: &str) -> bool {
    let count = format!(
        "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE '{begin}%' AND id <> CONNECTION_ID()"
    );
    server.sql(&count).trim() != "0"
}
