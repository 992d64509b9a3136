//! The first packets of a connection: the server's greeting, version 10, and the answers to it (MySQL's protocol
//! documentation, "Connection Phase").

/// Capability flags that are used here.
pub(super) mod capability {
    /// Not set by MariaDB: this identifies it.
    pub const LONG_PASSWORD: u32 = 1;
    pub const LONG_FLAG: u32 = 1 << 2;
    /// LOAD DATA LOCAL. Only connections that load rows have it.
    pub const LOCAL_FILES: u32 = 1 << 7;
    pub const PROTOCOL_41: u32 = 1 << 9;
    pub const SSL: u32 = 1 << 11;
    pub const TRANSACTIONS: u32 = 1 << 13;
    pub const SECURE_CONNECTION: u32 = 1 << 15;
    pub const PLUGIN_AUTH: u32 = 1 << 19;
    pub const CONNECT_ATTRIBUTES: u32 = 1 << 20;
    pub const PLUGIN_AUTH_LENENC: u32 = 1 << 21;

    /// Without these the protocol is one of before MySQL 5.5.
    pub const NEEDED: u32 = PROTOCOL_41 | SECURE_CONNECTION | PLUGIN_AUTH;
    /// The capabilities that we request if the server has them. No DEPRECATE_EOF: one form of result sets is enough. No
    /// multi-statements and no LOCAL INFILE: a missing capability cannot be misused.
    pub const WANTED: u32 = LONG_PASSWORD
        | LONG_FLAG
        | PROTOCOL_41
        | TRANSACTIONS
        | SECURE_CONNECTION
        | PLUGIN_AUTH
        | PLUGIN_AUTH_LENENC
        | CONNECT_ATTRIBUTES;
}

/// utf8mb4_general_ci: known to every server since 5.5.
const CHARACTER_SET: u8 = 45;

/// The longest packet that we accept: the most that a server can be set to.
const MAX_PACKET: u32 = 1 << 30;

/// The longest version text.
const VERSION_MAX: usize = 128;

/// The longest data of an authentication plugin.
const NONCE_MAX: usize = 255;

/// The server's greeting.
#[derive(Debug, PartialEq, Eq)]
pub struct Greeting {
    /// As the server gives it, such as `9.7.4-2` or `5.5.5-10.11.19-MariaDB`.
    pub version: String,
    /// The connection's number, for KILL.
    pub connection_id: u32,
    /// Capability flags.
    pub capabilities: u32,
    /// The nonce for scrambling passwords.
    pub nonce: Vec<u8>,
    /// Which way of authentication the server begins with.
    pub plugin: String,
}

impl Greeting {
    /// Parses the payload; `None` if it breaks the format.
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let (&10, rest) = payload.split_first()? else { return None };
        let (version, rest) = split_at_nul(rest)?;
        let version = std::str::from_utf8(version).ok().filter(|text| text.len() <= VERSION_MAX)?;
        if !version.chars().all(|c| c.is_ascii_graphic() || c == ' ') {
            return None;
        }
        let (id, rest) = rest.split_first_chunk::<4>()?;
        let (first, rest) = rest.split_first_chunk::<8>()?;
        // A zero, capabilities (low), character set, status, capabilities (high), length of the nonce, ten reserved.
        let (fixed, rest) = rest.split_first_chunk::<19>()?;
        let capabilities = u32::from_le_bytes([fixed[1], fixed[2], fixed[6], fixed[7]]);
        // The second part has at least 13 bytes, independent of the length field, and ends with a zero.
        let second = usize::from(fixed[8]).saturating_sub(8).max(13);
        let (nonce, rest) = rest.split_at_checked(second)?;
        let mut nonce = [first, nonce].concat();
        if nonce.last() == Some(&0) {
            nonce.pop();
        }
        let plugin = split_at_nul(rest).map_or(rest, |(name, _)| name);
        Some(Self {
            version: version.to_owned(),
            connection_id: u32::from_le_bytes(*id),
            capabilities,
            nonce,
            plugin: plugin_name(plugin)?,
        })
    }

    /// The version without the one that MariaDB puts before it for old clients.
    pub fn own_version(&self) -> &str {
        self.version.trim_start_matches("5.5.5-")
    }

    /// Whether the server is a MariaDB.
    pub fn is_mariadb(&self) -> bool {
        self.version.contains("MariaDB")
    }
}

/// The server asks for another way of authentication.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SwitchRequest {
    pub plugin: String,
    pub nonce: Vec<u8>,
}

impl SwitchRequest {
    /// Parses the payload without its first byte, 0xFE.
    pub fn parse(body: &[u8]) -> Option<Self> {
        let (plugin, nonce) = split_at_nul(body)?;
        let nonce = nonce.strip_suffix(&[0]).unwrap_or(nonce);
        (nonce.len() <= NONCE_MAX).then_some(())?;
        Some(Self { plugin: plugin_name(plugin)?, nonce: nonce.to_vec() })
    }
}

/// The request to begin TLS: the first half of the login.
pub(super) fn tls_request(capabilities: u32) -> Vec<u8> {
    let mut payload = Vec::with_capacity(32);
    payload.extend_from_slice(&(capabilities | capability::SSL).to_le_bytes());
    payload.extend_from_slice(&MAX_PACKET.to_le_bytes());
    payload.push(CHARACTER_SET);
    payload.resize(32, 0);
    payload
}

/// The login: the account, and the first answer of the plugin. No text may be longer than 250 bytes.
pub(super) fn login(capabilities: u32, tls: bool, user: &str, plugin: &str, answer: &[u8]) -> Vec<u8> {
    let mut payload = tls_request(capabilities);
    if !tls {
        payload[..4].copy_from_slice(&capabilities.to_le_bytes());
    }
    payload.extend_from_slice(user.as_bytes());
    payload.push(0);
    push_short(&mut payload, answer);
    payload.extend_from_slice(plugin.as_bytes());
    payload.push(0);
    if capabilities & capability::CONNECT_ATTRIBUTES != 0 {
        let mut attributes = Vec::new();
        push_short(&mut attributes, b"program_name");
        push_short(&mut attributes, b"fullbore");
        push_short(&mut payload, &attributes);
    }
    payload
}

/// A length of one byte, then the bytes: a length-encoded string of at most 250 bytes.
fn push_short(payload: &mut Vec<u8>, bytes: &[u8]) {
    let length = bytes.len().min(250);
    payload.push(length as u8);
    payload.extend_from_slice(&bytes[..length]);
}

fn split_at_nul(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    Some((&bytes[..end], &bytes[end + 1..]))
}

/// A plugin's name goes into errors: letters, digits and underscores only.
fn plugin_name(name: &[u8]) -> Option<String> {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    (name.len() <= 64 && name.iter().all(plain)).then(|| String::from_utf8_lossy(name).into_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn greeting() -> Vec<u8> {
        let mut bytes = b"\x0a9.7.4-2\0".to_vec();
        bytes.extend_from_slice(&77_u32.to_le_bytes());
        bytes.extend_from_slice(b"12345678\0\xff\xff\xff\x02\x00\xff\xdf\x15");
        bytes.extend_from_slice(&[0; 10]);
        bytes.extend_from_slice(b"abcdefghijkl\0caching_sha2_password\0");
        bytes
    }

    #[test]
    fn a_greeting_gives_version_nonce_and_plugin() {
        let greeting = Greeting::parse(&greeting()).unwrap();
        assert_eq!(greeting.version, "9.7.4-2");
        assert_eq!(greeting.nonce, b"12345678abcdefghijkl");
        assert_eq!((greeting.connection_id, greeting.capabilities), (77, 0xdfff_ffff));
        assert_eq!(greeting.plugin, "caching_sha2_password");
        assert!(!greeting.is_mariadb());
    }

    #[test]
    fn a_cut_or_strange_greeting_is_refused() {
        let whole = greeting();
        // Without its last zero the name of the plugin still ends where the packet does.
        let least = whole.len() - "caching_sha2_password\0".len();
        for cut in 0..least {
            assert_eq!(Greeting::parse(&whole[..cut]), None, "cut at {cut}");
        }
        for (at, byte) in [(0, 9), (1, 27)] {
            let mut wrong = whole.clone();
            wrong[at] = byte;
            assert_eq!(Greeting::parse(&wrong), None);
        }
    }

    #[test]
    fn a_login_has_its_fields_where_the_protocol_wants_them() {
        let payload = login(capability::WANTED, false, "backup", "mysql_native_password", &[7; 20]);
        assert_eq!(payload[..4], capability::WANTED.to_le_bytes());
        assert_eq!(&payload[32..40], b"backup\0\x14");
        assert_eq!(&payload[60..82], b"mysql_native_password\0");
        assert_eq!(&payload[82..], b"\x16\x0cprogram_name\x08fullbore");
        assert_eq!(tls_request(1).len(), 32);
    }
}
