//! Parts of the URL of a server that the engines of servers have in common.

use fullbore_core::device::percent_decoded;
use fullbore_core::{Error, Result};

/// The longest URL of a server, in bytes.
pub const URL_MAX: usize = 4096;
/// The longest name of a host, in bytes: no name service has longer ones.
pub const HOST_MAX: usize = 253;

/// The host, which may be empty, and the port in `HOST`, `HOST:PORT` or `[IPv6]:PORT`. `wrong` makes an error from a
/// reason, and `bad_host` is the reason if the host is no name and no address.
///
/// # Errors
/// The text has another form.
pub fn host_and_port<'a>(place: &'a str, bad_host: &str, wrong: fn(&str) -> Error) -> Result<(&'a str, Option<u16>)> {
    let (host, port) = match place.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']').ok_or_else(|| wrong("a `[` has no `]`"))?;
            if host.parse::<std::net::Ipv6Addr>().is_err() {
                return Err(wrong("the text in brackets is not an IPv6 address"));
            }
            match after.strip_prefix(':') {
                None if !after.is_empty() => return Err(wrong("after `]` only a port may follow")),
                port => (host, port),
            }
        }
        None => match place.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (place, None),
        },
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
    if host.len() > HOST_MAX || !host.chars().all(plain) {
        return Err(wrong(bad_host));
    }
    let number = |text: &str| text.parse().ok().filter(|number| *number != 0);
    let port = port.map(|text| number(text).ok_or_else(|| wrong("the port is not a number from 1 to 65535")));
    Ok((host, port.transpose()?))
}

/// A part of a URL with its `%XX` decoded. `name` is the part, for the error, which does not repeat the text.
///
/// # Errors
/// A `%` has no two digits behind it, or the text is not UTF-8, holds a zero byte, or is too long.
pub fn decoded(text: &str, name: &str) -> Result<String> {
    let bad = || Error::usage(name, "two hexadecimal digits of a UTF-8 text must follow a `%`", "");
    let text = percent_decoded(text).and_then(|bytes| String::from_utf8(bytes).ok()).ok_or_else(bad)?;
    if text.contains('\0') || text.len() > URL_MAX { Err(bad()) } else { Ok(text) }
}
