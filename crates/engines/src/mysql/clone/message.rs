//! Messages of the CLONE protocol: requests out, responses in. Pure: bytes and checked values. Little endian, and the
//! descriptors inside big endian.

use super::descriptor::{BadMessage, DESCRIPTOR_VERSION, Descriptor, StateDescriptor};

/// The server command that makes a connection speak CLONE.
pub const COM_CLONE: u8 = 32;
/// The protocol's version that is asked for: settings, names of libraries, and no later addition that is not needed.
pub const PROTOCOL_VERSION: u32 = 0x0102;

/// Commands of the CLONE protocol.
pub mod command {
    /// The first connection begins the clone.
    pub const INIT: u8 = 1;
    /// Another connection takes part.
    pub const ATTACH: u8 = 2;
    /// Send data.
    pub const EXECUTE: u8 = 4;
    /// A stage is received, or the clone is given up.
    pub const ACKNOWLEDGE: u8 = 5;
    /// Back to SQL.
    pub const EXIT: u8 = 6;
}

/// The type of a response that is raw data: it is not parsed here but read as it comes.
pub const RAW_DATA: u8 = 3;
/// The longest response that is not raw data: a setting can hold a list of the server's plugins.
pub const RESPONSE_MAX: usize = 1 << 20;

const INNODB: u8 = 12;
const LOCATOR_MAX: usize = 4096;
const LOCATORS_MAX: usize = 8;
const LOCATOR_SIZE: u32 = 34;
const LOCATOR_TYPE: u32 = 1;
const KEEP_DDL_RUNNING: u32 = 0x8000_0000;

/// A storage engine's name for its clone: bytes that are sent back unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Locator(Vec<u8>);

impl Locator {
    /// The locator of a clone that does not exist yet: it has our version of descriptors.
    pub fn of_version() -> Self {
        let mut bytes = vec![0; LOCATOR_SIZE as usize];
        bytes[..4].copy_from_slice(&DESCRIPTOR_VERSION.to_be_bytes());
        bytes[4..8].copy_from_slice(&LOCATOR_SIZE.to_be_bytes());
        bytes[8..12].copy_from_slice(&LOCATOR_TYPE.to_be_bytes());
        Self(bytes)
    }

    fn push_to(&self, body: &mut Vec<u8>) {
        body.push(INNODB);
        body.extend_from_slice(&(self.0.len() as u32).to_le_bytes());
        body.extend_from_slice(&self.0);
    }
}

/// Whether tables may be created, altered and dropped while the clone runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ddl {
    /// They may.
    Runs,
    /// The donor holds its backup lock, for which it waits this long.
    Waits {
        /// At most 2^31 − 1.
        seconds: u32,
    },
}

/// The body of [`command::INIT`] and [`command::ATTACH`].
pub fn begin(ddl: Ddl, locators: &[Locator]) -> Vec<u8> {
    let timeout = match ddl {
        Ddl::Runs => KEEP_DDL_RUNNING | 300,
        Ddl::Waits { seconds } => seconds & !KEEP_DDL_RUNNING,
    };
    let mut body = PROTOCOL_VERSION.to_le_bytes().to_vec();
    body.extend_from_slice(&timeout.to_le_bytes());
    for locator in locators {
        locator.push_to(&mut body);
    }
    body
}

/// The body of [`command::ACKNOWLEDGE`]: with an `error` other than 0 the donor gives the clone up.
pub fn acknowledge(error: i32, locator: &Locator, state: Option<&StateDescriptor>) -> Vec<u8> {
    let mut body = error.to_le_bytes().to_vec();
    locator.push_to(&mut body);
    let descriptor = state.map(StateDescriptor::acknowledgement);
    let descriptor = descriptor.as_ref().map_or(&[][..], |bytes| bytes);
    body.extend_from_slice(&(descriptor.len() as u32).to_le_bytes());
    body.extend_from_slice(descriptor);
    body
}

/// A response that is not raw data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Response {
    /// The version that the donor chose, and how it calls the clone.
    Locators(u32, Vec<Locator>),
    /// Something of InnoDB's.
    Descriptor(Descriptor),
    /// A plugin that the recipient would need.
    Plugin {
        /// Its name.
        name: String,
        /// Its library; empty for one that is built in, or where the donor does not say.
        library: String,
    },
    /// A setting of the server.
    Setting(String, String),
    /// A collation that the recipient would need.
    Collation(String),
    /// The end of the answer.
    Complete,
    /// The end of the answer: it failed.
    Error {
        /// The server's number.
        code: u32,
        /// A response of the server.
        text: Vec<u8>,
    },
    /// An unknown, later type: skipped.
    Unknown(u8),
}

impl Response {
    /// Parses the body of a response of type `kind`, which must not be [`RAW_DATA`].
    pub fn parse(kind: u8, body: &[u8]) -> Result<Self, BadMessage> {
        let mut rest = body;
        let response = match kind {
            1 => locators(&mut rest)?,
            2 => {
                let descriptor = rest.strip_prefix(&[INNODB, 0]);
                let descriptor = descriptor.ok_or(BadMessage("a descriptor of another storage engine"))?;
                return Ok(Response::Descriptor(Descriptor::parse(descriptor)?));
            }
            RAW_DATA => return Err(BadMessage("data that no descriptor announced")),
            4 => Response::Plugin { name: text(&mut rest)?, library: String::new() },
            5 | 8 | 9 => Response::Setting(text(&mut rest)?, text(&mut rest)?),
            6 => Response::Collation(text(&mut rest)?),
            7 => Response::Plugin { name: text(&mut rest)?, library: text(&mut rest)? },
            99 => Response::Complete,
            100 => {
                let code = i32::from_le_bytes(take(&mut rest)?).unsigned_abs();
                let text = std::mem::take(&mut rest).to_vec();
                Response::Error { code, text }
            }
            other => return Ok(Response::Unknown(other)),
        };
        if rest.is_empty() { Ok(response) } else { Err(BadMessage("a message with bytes after its end")) }
    }
}

fn locators(rest: &mut &[u8]) -> Result<Response, BadMessage> {
    let version = u32::from_le_bytes(take(rest)?);
    let mut locators = Vec::new();
    while !rest.is_empty() {
        let [engine] = take(rest)?;
        let length = u32::from_le_bytes(take(rest)?) as usize;
        if engine != INNODB || length > LOCATOR_MAX || locators.len() == LOCATORS_MAX {
            return Err(BadMessage("a locator of another storage engine, or a locator that is too long"));
        }
        let (bytes, after) = rest.split_at_checked(length).ok_or(BadMessage("a locator that is too short"))?;
        locators.push(Locator(bytes.to_vec()));
        *rest = after;
    }
    Ok(Response::Locators(version, locators))
}

/// A length, then as many bytes of text.
fn text(rest: &mut &[u8]) -> Result<String, BadMessage> {
    let length = u32::from_le_bytes(take(rest)?) as usize;
    let (bytes, after) = rest.split_at_checked(length).ok_or(BadMessage("a text that is too short"))?;
    *rest = after;
    Ok(String::from_utf8_lossy(bytes).into_owned())
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], BadMessage> {
    let (bytes, after) = rest.split_first_chunk::<N>().ok_or(BadMessage("a message that is too short"))?;
    *rest = after;
    Ok(*bytes)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_clone_is_asked_for_with_version_policy_and_locator() {
        let body = begin(Ddl::Runs, &[Locator::of_version()]);
        assert_eq!(body[..13], [2, 1, 0, 0, 0x2c, 1, 0, 0x80, 12, 34, 0, 0, 0]);
        assert_eq!(body[13..25], [0, 0, 0, 100, 0, 0, 0, 34, 0, 0, 0, 1]);
        assert_eq!(body.len(), 8 + 5 + 34);
        assert_eq!(begin(Ddl::Waits { seconds: 60 }, &[]), [2, 1, 0, 0, 60, 0, 0, 0]);
    }

    #[test]
    fn locators_come_back_as_they_were_sent() {
        let mut body = 0x0102_u32.to_le_bytes().to_vec();
        Locator::of_version().push_to(&mut body);
        let expected = Response::Locators(0x0102, vec![Locator::of_version()]);
        assert_eq!(Response::parse(1, &body), Ok(expected));
        for cut in 5..body.len() {
            assert!(Response::parse(1, &body[..cut]).is_err(), "cut at {cut}");
        }
        body[4] = 1;
        assert!(Response::parse(1, &body).is_err(), "another storage engine");
    }

    #[test]
    fn settings_errors_and_the_end_are_told_apart_and_checked_to_their_last_byte() {
        let setting = Response::parse(5, b"\x01\0\0\0a\x02\0\0\0bc");
        assert_eq!(setting, Ok(Response::Setting("a".into(), "bc".into())));
        let error = Response::Error { code: 3634, text: b"Too many".to_vec() };
        assert_eq!(Response::parse(100, b"\x32\x0e\0\0Too many"), Ok(error));
        assert_eq!(Response::parse(99, b""), Ok(Response::Complete));
        assert_eq!(Response::parse(77, b"whatever"), Ok(Response::Unknown(77)));
        for (kind, body) in
            [(99, &b"x"[..]), (5, b"\xff\xff\xff\xffa"), (4, b"\x01\0\0\0ab"), (100, b"\x01"), (2, b"\x0b\0"), (3, b"")]
        {
            assert!(Response::parse(kind, body).is_err(), "{kind} {body:?}");
        }
    }

    #[test]
    fn giving_up_needs_no_state() {
        let body = acknowledge(-1, &Locator::of_version(), None);
        assert_eq!(body[..4], [0xFF; 4]);
        assert_eq!(body.len(), 4 + 5 + 34 + 4);
    }
}
