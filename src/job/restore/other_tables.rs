//! The message of a restore about tables that are in the directory as SQL text, and have to be loaded.

use std::path::Path;

use fullbore_engines::TextOfTable;

use crate::report::Report;
use fullbore_core::units::{counted, show_bytes};

/// The default limit of a server for one statement, in bytes.
const USUAL_PACKET: u64 = 64 << 20;

/// Names the one command that loads them.
pub(super) fn tell(directory: &Path, texts: &[TextOfTable], report: &mut Report) {
    let Some(folder) = texts.first().and_then(|text| text.path.split('/').next()) else { return };
    let folder = directory.join(folder);
    let quoted = folder.display().to_string().replace('\'', "'\\''");
    let command = format!(
        "cat '{quoted}'/*/*.sql | mysql --binary-mode --comments --max-allowed-packet=1G --user=root --password"
    );
    let tables = counted(texts.len() as u64, "table");
    let longest = texts.iter().map(|text| text.longest_statement).max().unwrap_or(0);
    let packet = match longest {
        ..USUAL_PACKET => String::new(),
        _ => format!(" (max_allowed_packet of the server must be greater than {})", show_bytes(longest)),
    };
    if texts.iter().all(|text| text.in_memory) {
        report.notes.push(format!(
            "empty, as after every start of the server: {tables} of the engine MEMORY; to load them{packet}: {command}"
        ));
        return;
    }
    report.warnings.push(format!(
        "empty until they are loaded: {tables} of other engines than InnoDB; start the server and load them before \
         anybody uses it{packet}: {command}"
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_is_named_with_its_directory_and_what_the_server_must_take() {
        let text = |longest_statement, in_memory| TextOfTable {
            path: "#other-engines/shop/item.sql".into(),
            longest_statement,
            in_memory,
        };
        let mut report = Report::default();
        tell(Path::new("/it's"), &[], &mut report);
        assert!(report.warnings.is_empty() && report.notes.is_empty());
        tell(Path::new("/it's"), &[text(1000, false), text(100 << 20, true)], &mut report);
        let said = &report.warnings[0];
        assert!(said.contains(r"cat '/it'\''s/#other-engines'/*/*.sql | mysql") && said.contains("100"), "{said}");
        tell(Path::new("/a"), &[text(1000, true)], &mut report);
        assert!(report.notes[0].contains("MEMORY") && report.warnings.len() == 1);
    }
}
