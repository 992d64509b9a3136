//! T-SQL: any text ends in command lines or in an error.

use fullbore_tsql::{Names, read_script};

/// One input.
pub fn run(input: &[u8]) {
    let Ok(script) = std::str::from_utf8(input) else { return };
    let names = Names {
        databases: [
            ("shop", "sqlite:shop.db"),
            ("old", "dir:out"),
            ("live", "mssql://sa@db1/live"),
            ("cloud", "mssql://sa@rds1/cloud?rds=true"),
        ]
        .map(|(name, url)| (name.into(), url.into()))
        .into(),
        paths: [("D:\\".to_owned(), "/mnt/d".to_owned())].into(),
        certificates: [("c".to_owned(), "c.pub".to_owned())].into(),
        repository: Some("night".to_owned()),
        experimental: true,
    };
    match read_script(script, &names, jiff::Zoned::default()) {
        Ok(commands) => assert!(commands.iter().all(|command| command.at.line > 0)),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
