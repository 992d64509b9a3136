//! Ids of sets and runs as people read and write them.

use uuid::Uuid;

/// Characters of a short id. The ids of sets begin with the millisecond of the backup.
const SHORT: usize = 13;

/// The start of an id, long enough for every option that takes one.
pub fn short(id: &str) -> &str {
    id.get(..SHORT).unwrap_or(id)
}

/// True when `part` is the id or a part of it. An empty part does not fit: it may be an unset shell variable.
pub fn fits(id: Uuid, part: &str) -> bool {
    let part = part.trim_matches('…').to_ascii_lowercase();
    let id = id.to_string();
    !part.is_empty() && id.contains(&part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_an_id_is_its_start_its_end_or_between_them() {
        let id: Uuid = "01a2092b-9560-7c4d-8e5f-9fcdf68770de".parse().unwrap_or_default();
        let shown = id.to_string();
        for part in [
            "01a2092b-9560-7c4d-8e5f-9fcdf68770de",
            "01A2",
            "9fcdf68770de",
            "…9FCDF68770DE",
            "9560-7c4d",
            short(&shown),
        ] {
            assert!(fits(id, part), "{part}");
        }
        for part in ["", "…", "95607c4d", "01a2092b-9560-7c4d-8e5f-9fcdf68770de0", "x"] {
            assert!(!fits(id, part), "{part}");
        }
        assert_eq!((short(&shown), short("é")), ("01a2092b-9560", "é"));
    }
}
