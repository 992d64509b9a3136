//! The port of a named instance, which SQL Server Browser tells over UDP (the SQL Server Resolution Protocol, MC-SQLR).
//!
//! The answer has no signature. It only says a port: who answers there is proven by TLS.

use std::io::ErrorKind;
use std::net::{ToSocketAddrs, UdpSocket};
use std::time::Duration;

use fullbore_core::{Error, Result};

/// The port of SQL Server Browser.
pub const BROWSER_PORT: u16 = 1434;
/// The longest name of an instance, in bytes.
pub const INSTANCE_MAX: usize = 32;
/// The kind of a question about one instance.
const ONE_INSTANCE: u8 = 4;
/// The kind of an answer.
const ANSWER: u8 = 5;
/// Bytes of an answer, at most: its kind, its length, and 1,024 bytes.
const ANSWER_MAX: usize = 3 + 1024;
/// How long an answer may take; a question or an answer may be lost on the way.
const PATIENCE: Duration = Duration::from_secs(1);
/// The errors of a socket that got none.
const NO_ANSWER: [ErrorKind; 4] =
    [ErrorKind::WouldBlock, ErrorKind::TimedOut, ErrorKind::ConnectionRefused, ErrorKind::Interrupted];
/// How often is asked.
const TRIES: usize = 3;

/// The TCP port of an instance on a host.
///
/// # Errors
/// The host is not known, nobody answers, or the instance has no TCP port.
pub fn port_of(host: &str, instance: &str, browser: u16) -> Result<u16> {
    let thing = format!("instance `{instance}` of {host}");
    let failed = |error| Error::io("ask SQL Server Browser for", &thing, error);
    let addresses: Vec<_> = (host, browser).to_socket_addrs().map_err(failed)?.collect();
    let mut question = vec![ONE_INSTANCE];
    question.extend_from_slice(instance.as_bytes());
    question.push(0);
    for address in addresses.iter().cycle().take(TRIES * addresses.len().min(2)) {
        let own = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(own).map_err(failed)?;
        // Only what comes from there is received.
        socket.connect(address).map_err(failed)?;
        if socket.send(&question).is_err() {
            continue; // Another address may be reached.
        }
        if let Some(answer) = answer(&socket).map_err(failed)? {
            return port(&answer, instance).ok_or_else(|| {
                let why = "SQL Server Browser names no TCP port of it";
                Error::refused(
                    &thing,
                    why,
                    "enable TCP/IP for the instance, or write its port: mssql://USER@HOST:PORT/…",
                )
            });
        }
    }
    let why = format!("SQL Server Browser does not answer on UDP port {browser}, or does not know this instance");
    Err(Error::refused(&thing, why, "start SQL Server Browser there, or write the port: mssql://USER@HOST:PORT/…"))
}

/// The answer, if one comes in time. A host without a listener may say so at once.
fn answer(socket: &UdpSocket) -> std::io::Result<Option<Vec<u8>>> {
    let mut bytes = vec![0; ANSWER_MAX];
    socket.set_read_timeout(Some(PATIENCE))?;
    match socket.recv(&mut bytes) {
        Ok(length) => {
            bytes.truncate(length);
            Ok(Some(bytes))
        }
        Err(error) if NO_ANSWER.contains(&error.kind()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The port in an answer: `ServerName;DB1;InstanceName;SHOP;IsClustered;No;Version;15.0.2000.5;tcp;49721;;`.
fn port(answer: &[u8], instance: &str) -> Option<u16> {
    let (head, text) = answer.split_at_checked(3)?;
    let &[kind, low, high] = head else { return None };
    let text = text.get(..usize::from(u16::from_le_bytes([low, high])))?;
    if kind != ANSWER {
        return None;
    }
    let text = String::from_utf8_lossy(text);
    let one = text.split(";;").next()?;
    let words: Vec<&str> = one.split(';').collect();
    let value = |name: &str| {
        let pair = words.chunks_exact(2).find(|pair| matches!(pair, [of, _] if of.eq_ignore_ascii_case(name)));
        pair.and_then(|pair| pair.last()).copied()
    };
    value("InstanceName").filter(|name| name.eq_ignore_ascii_case(instance))?;
    value("tcp")?.parse().ok().filter(|port| *port != 0)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn said(text: &str) -> Vec<u8> {
        let length = u16::try_from(text.len()).unwrap().to_le_bytes();
        [&[ANSWER, length[0], length[1]][..], text.as_bytes()].concat()
    }

    const TEXT: &str =
        "ServerName;DB1;InstanceName;SHOP;IsClustered;No;Version;15.0.2000.5;np;\\\\DB1\\pipe;tcp;49721;;";

    #[test]
    fn the_port_of_the_instance_is_found_and_nothing_else() {
        assert_eq!(port(&said(TEXT), "shop"), Some(49721));
        assert_eq!(port(&said(TEXT), "other"), None);
        assert_eq!(port(&said(&TEXT.replace("tcp;49721;", "")), "shop"), None);
        assert_eq!(port(&said(&TEXT.replace("49721", "0")), "shop"), None);
        assert_eq!(port(&said(&TEXT.replace("49721", "70000")), "shop"), None);
        let whole = said(TEXT);
        for length in 0..whole.len() {
            assert_eq!(port(&whole[..length], "shop"), None, "cut at {length}");
        }
        let mut wrong = whole;
        wrong[0] = 6;
        assert_eq!(port(&wrong, "shop"), None);
    }

    #[test]
    fn a_host_without_a_browser_is_an_error_with_the_next_step() {
        let closed = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let error = port_of("127.0.0.1", "shop", closed).unwrap_err();
        assert!(error.to_string().contains("instance `shop`") && error.to_string().contains("HOST:PORT"), "{error}");
    }

    proptest::proptest! {
        #[test]
        fn no_answer_makes_the_reader_panic(answer in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            let _ = port(&answer, "shop");
        }
    }
}
