//! Pages that were damaged at the source. They end a backup, except with `--continue-after-error`: then the set lists
//! them for ever.

use fullbore_core::Error;
use fullbore_core::units::counted;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// How many pages a manifest names.
const LISTED_MAX: usize = 100;
/// The list in a manifest's position.
const LIST: &str = "damaged_pages";
/// How many there were, listed or not.
const COUNT: &str = "damaged_page_count";

/// A page that was damaged in the server's own file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DamagedPage {
    /// The file's name in the copy.
    pub file: String,
    /// Its number in that file.
    pub page: u64,
    /// The kind of damage.
    pub why: String,
}

/// The error of a backup that finds damage and was not told to continue; `None` without damage.
pub fn refuse(pages: &[DamagedPage]) -> Option<Error> {
    let first = pages.first()?;
    let more = match pages.len() {
        1 => String::new(),
        count => format!(", and {}", counted(count as u64 - 1, "more page")),
    };
    Some(Error::refused(
        &first.file,
        format!("page {} is damaged in the server's own file: {}{more}", first.page, first.why),
        "repair the table from a good backup (CHECK TABLE names it); --continue-after-error stores the pages as they \
         are",
    ))
}

/// Puts them into the position of a manifest.
pub fn write(pages: &[DamagedPage], position: &mut Value) {
    if let (false, Some(fields)) = (pages.is_empty(), position.as_object_mut()) {
        fields.insert(COUNT.into(), json!(pages.len()));
        fields.insert(LIST.into(), json!(pages[..pages.len().min(LISTED_MAX)]));
    }
}

/// The damage in a manifest's position, for a restore: the first page, and the number of damaged pages.
pub fn read(position: &Value) -> Option<String> {
    let count = position.get(COUNT)?.as_u64()?;
    let first: Option<DamagedPage> =
        position.get(LIST)?.get(0).and_then(|first| serde_json::from_value(first.clone()).ok());
    let first = first.map_or(String::new(), |page| format!(" (page {} of `{}`: {})", page.page, page.file, page.why));
    let (pages, were) = (counted(count, "page"), if count == 1 { "was" } else { "were" });
    Some(format!("{pages}{first} {were} damaged already when it was made"))
}

/// The warning of a backup that continued.
pub fn warning(pages: &[DamagedPage]) -> Option<String> {
    let first = pages.first()?;
    Some(format!(
        "damaged in the server's own files: {} (page {} of `{}`: {}). The backup has these bytes as they are, and its \
         restore needs --continue-after-error",
        counted(pages.len() as u64, "page"),
        first.page,
        first.file,
        first.why
    ))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn page(number: u64) -> DamagedPage {
        DamagedPage { file: "shop/a.ibd".into(), page: number, why: "its checksum is wrong".into() }
    }

    #[test]
    fn damage_is_in_the_position_and_can_be_read_out_of_it() {
        let mut position = json!({ "server_id": 1 });
        write(&[], &mut position);
        assert_eq!((read(&position), refuse(&[]).is_none(), warning(&[])), (None, true, None));
        let pages: Vec<DamagedPage> = (7..300).map(page).collect();
        write(&pages, &mut position);
        let said = read(&position).unwrap();
        assert!(said.contains("293 pages") && said.contains("page 7 of `shop/a.ibd`"), "{said}");
        assert_eq!(position["damaged_pages"].as_array().unwrap().len(), 100);
        let refused = refuse(&pages).unwrap().to_string();
        assert!(
            refused.contains("page 7") && refused.contains("292 more") && refused.contains("--continue"),
            "{refused}"
        );
        assert!(!refuse(&pages[..1]).unwrap().to_string().contains("more pages"));
    }

    #[test]
    fn a_position_of_other_making_says_nothing_wrong() {
        for odd in [json!({ "damaged_page_count": "x" }), json!({ "damaged_page_count": 3 }), json!([1]), json!(null)] {
            assert_eq!(read(&odd), None, "{odd}");
        }
        let odd = json!({ "damaged_page_count": 3, "damaged_pages": [{ "file": 1 }] });
        assert_eq!(read(&odd).unwrap(), "3 pages were damaged already when it was made");
    }
}
