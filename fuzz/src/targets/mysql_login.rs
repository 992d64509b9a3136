//! What a server says first, and the URL that led to it.

use fullbore_engines::mysql_family::connection::Greeting;
use fullbore_engines::mysql_family::url::ServerAddress;

/// One input.
pub fn run(input: &[u8]) {
    if let Some(greeting) = Greeting::parse(input) {
        assert!(greeting.nonce.len() < 300 && greeting.version.len() < 200);
    }
    if let Ok(url) = std::str::from_utf8(input)
        && let Err(error) = ServerAddress::parse(url)
    {
        // Between the scheme and the last @ could be a password.
        let password =
            url.rsplit_once('@').and_then(|(before, _)| before.split_once("://")?.1.split_once(':')).map(|(_, p)| p);
        if let Some(password) = password.filter(|password| password.len() > 40) {
            assert!(!error.to_string().contains(password));
        }
    }
}
