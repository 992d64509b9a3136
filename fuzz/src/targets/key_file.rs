//! Key files. No error may quote what could be a secret.

use fullbore_core::cipher::KeyFile;

/// One input.
pub fn run(input: &[u8]) {
    match KeyFile::parse("key", input) {
    Ok(key) => {
        assert!(key.secret().is_err() || key.public().id() == key.id());
        assert!(!format!("{key:?}").contains("FULLBORE-SECRET"));
    }
    Err(error) => {
        let text = error.to_string();
        assert!(!text.is_empty() && text.len() < 1000, "{text}");
    }
}
}
