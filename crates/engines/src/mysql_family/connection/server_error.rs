//! The answer of a server that refuses: a number, an SQLSTATE and a text.

use std::fmt;

use fullbore_core::Error;

/// A request failed: the server refused, or the connection is lost.
#[derive(Debug)]
pub enum Failure {
    /// An ERR packet; the connection is still good.
    Server(ServerError),
    /// Everything else; the connection is of no more use.
    Fault(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Fault(error)
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Server(error) => error.into_error(),
            Failure::Fault(error) => error,
        }
    }
}

/// An ERR packet, or the error message of the clone protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerError {
    /// Which server.
    pub server: String,
    /// The server's number, as in MySQL's "Server Error Message Reference".
    pub code: u32,
    /// Five characters; empty if the server sent none.
    pub state: String,
    /// The server's message, without control characters and of bounded length.
    pub message: String,
}

/// A user without the privilege: ER_SPECIFIC_ACCESS_DENIED_ERROR.
pub const PRIVILEGE_MISSING: u32 = 1227;
/// The account lacks a privilege: on a database, on a table, on the server.
pub const NOT_ALLOWED: [u32; 3] = [1044, 1142, PRIVILEGE_MISSING];
/// ER_CLONE_TOO_MANY_CONCURRENT_CLONES.
pub const CLONE_RUNNING: u32 = 3634;
/// ER_CLONE_ENCRYPTION: keys are not sent without TLS.
pub const CLONE_NEEDS_TLS: u32 = 3872;

/// The longest message to keep.
const MESSAGE_MAX: usize = 512;

/// Errors whose texts quote names of databases, tables, columns, other objects or accounts, and nothing else.
const OF_NAMES: [u32; 33] = [
    1007, 1008, 1032, 1114, 1044, 1049, 1050, 1051, 1054, 1060, 1061, 1072, 1091, 1109, 1141, 1142, 1143, 1146, 1147,
    1227, 1304, 1305, 1359, 1360, 1396, 1410, 1449, 1451, 1452, 1524, 1537, 1539, 3523,
];

impl ServerError {
    /// From number and text; `text` is cut and cleaned, because it goes to a terminal.
    pub fn new(server: &str, code: u32, state: &str, text: &[u8]) -> Self {
        let clean = |text: &str| text.chars().filter(|c| !c.is_control()).take(MESSAGE_MAX).collect::<String>();
        let text = String::from_utf8_lossy(&text[..text.len().min(4 * MESSAGE_MAX)]);
        Self { server: server.to_owned(), code, state: clean(state), message: clean(&text) }
    }

    /// Whether the account lacks a privilege.
    pub fn is_denied(&self) -> bool {
        NOT_ALLOWED.contains(&self.code)
    }

    /// An ERR packet without its first byte, 0xFF: number, then `#` and SQLSTATE, then the text. In the handshake
    /// there is no SQLSTATE.
    pub fn parse(server: &str, body: &[u8]) -> Self {
        let Some((code, rest)) = body.split_first_chunk::<2>() else {
            return Self::new(server, 0, "", b"an error without a number");
        };
        let code = u32::from(u16::from_le_bytes(*code));
        match rest.split_first_chunk::<6>() {
            Some((state, text)) if state[0] == b'#' => {
                Self::new(server, code, &String::from_utf8_lossy(&state[1..]), text)
            }
            _ => Self::new(server, code, "", rest),
        }
    }

    /// The text without the value of a row that it may quote: `Duplicate entry '…' for key …`.
    pub fn without_values(&self) -> String {
        let text = &self.message;
        // The apostrophe of `Can't` is no quote.
        let is_quote = |at: &usize| !text[..*at].ends_with(char::is_alphanumeric);
        let quote = text.match_indices('\'').map(|(at, _)| at).find(is_quote);
        let hidden = quote.map(|at| {
            let (before, rest) = (&text[..at], &text[at + 1..]);
            let after = rest.rsplit_once("' for ").map_or("", |(_, after)| after);
            if after.is_empty() { format!("{before}'…'") } else { format!("{before}'…' for {after}") }
        });
        format!("{} (error {})", hidden.as_ref().unwrap_or(text), self.code)
    }

    /// The error of a statement that may hold values and hashes of passwords: its text if it quotes names only, and
    /// otherwise [without values](Self::without_values).
    pub fn with_names_only(&self) -> String {
        if OF_NAMES.contains(&self.code) { self.to_string() } else { self.without_values() }
    }

    /// The error with the next step that its number suggests.
    pub fn into_error(self) -> Error {
        let hint = match self.code {
            1045 | 1698 => "wrong user or password: use --password-file, FULLBORE_PASSWORD or ~/.my.cnf",
            1044 | 1142 | 1143 | 1227 => "ask the administrator for this privilege",
            1130 => "the account must be allowed to come from this host: CREATE USER … @'HOST'",
            1040 | 1203 | 1226 => "the server has no connection left: use fewer --readers, or raise max_connections",
            1129 => "find the cause of the failed connections, then run FLUSH HOSTS on the server",
            3159 => "the server accepts only encrypted connections: ssl-mode=required",
            3118 | 4151 => "run ALTER USER … ACCOUNT UNLOCK on the server",
            1820 | 1862 => "the password has expired: run ALTER USER … IDENTIFIED BY on the server",
            29 | 1004 | 1016 | 1017 => {
                "a file of the server is not there any more, or cannot be read: check it on the server's host; while \
                 the server runs, such a table can still be copied (CREATE TABLE … SELECT) and dropped"
            }
            CLONE_RUNNING => "one clone at a time: wait until the other clone ends (performance_schema.processlist)",
            CLONE_NEEDS_TLS => "the server sends encrypted tables only over TLS: ssl-mode=required",
            _ => "look up this error number in the server's manual; its error log may say more",
        };
        Error::refused(&self.server, format!("the server refuses: {self}"), hint)
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let between = if self.state.is_empty() { "" } else { "/" };
        write!(f, "{} (error {}{between}{})", self.message, self.code, self.state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_err_packet_gives_number_state_and_text_without_control_characters() {
        let error = ServerError::parse("db1", b"\xca\x04#42000Access \x1b[31mdenied");
        assert_eq!((error.code, error.state.as_str(), error.message.as_str()), (1226, "42000", "Access [31mdenied"));
        assert_eq!(ServerError::parse("db1", b"\x6a\x04Host is blocked").state, "");
        for short in [&b""[..], b"\x01"] {
            assert_eq!(ServerError::parse("db1", short).code, 0);
        }
        let long = [b'x'; 100_000];
        assert_eq!(ServerError::new("db1", 1, "", &long).message.len(), MESSAGE_MAX);
    }

    #[test]
    fn the_text_of_an_error_has_no_value() {
        let told = |text: &str| ServerError::new("db", 1062, "", text.as_bytes()).without_values();
        assert_eq!(
            told("Duplicate entry 'secret' for key 't.PRIMARY'"),
            "Duplicate entry '…' for key 't.PRIMARY' (error 1062)"
        );
        assert_eq!(told("Out of space"), "Out of space (error 1062)");
        assert_eq!(told("Duplicate entry 'a' for b' for key 'k'"), "Duplicate entry '…' for key 'k' (error 1062)");
        assert_eq!(told("Can't take 'secret'"), "Can't take '…' (error 1062)");
        assert_eq!(told("bad 'cut off secret"), "bad '…' (error 1062)");
        let of = |code, text: &str| ServerError::new("db", code, "42000", text.as_bytes()).with_names_only();
        let syntax = "right syntax to use near 'IDENTIFIED WITH 'mysql_native_password' AS '*CE2F0C36' at line 1";
        assert_eq!(of(1064, syntax), "right syntax to use near '…' (error 1064)");
        assert_eq!(
            of(1396, "Operation CREATE USER failed for 'a'@'%'"),
            "Operation CREATE USER failed for 'a'@'%' (error 1396/42000)"
        );
    }
}
