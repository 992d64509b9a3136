//! What a log set of SQLite says of itself: the records of its commits, and the positions in its manifest.

use fullbore_engines::sqlite::log::group::{GROUP_SIZE, Group};
use fullbore_engines::sqlite::log::{End, LogEnd};

/// One input.
pub fn run(input: &[u8]) {
    let mut before: Option<Group> = None;
    for record in input.chunks(GROUP_SIZE) {
        let Ok(group) = Group::decode(record) else { break };
        assert_eq!(group.encode(), record);
        assert!(group.frames() >= 1 && group.pages >= 1);
        if group.follows(before.as_ref()).is_ok()
            && let Some(before) = before.filter(|before| before.salts == group.salts)
        {
            assert!(before.last_frame < group.first_frame && before.time <= group.time);
        }
        before = Some(group);
    }
    let Ok(position) = serde_json::from_slice::<serde_json::Value>(input) else { return };
    if let Ok(end) = End::read(&position) {
        let _ = (end.time(), end.show());
        let again = serde_json::to_value(&end).map(|value| End::read(&value));
        assert!(matches!(again, Ok(Ok(same)) if same == end));
        if let Some(log) = &end.log {
            let _ = (log.salts(), log.sums());
        }
    }
    if let Ok(last) = LogEnd::read(&position) {
        assert_eq!(End::read(&position).ok(), Some(last.end));
    }
}
