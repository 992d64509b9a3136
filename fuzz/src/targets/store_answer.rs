//! Answers of object stores. Nothing in one becomes longer than it is written, and a damaged end takes nothing away.


// The file itself: the store's other packages take longer to build than everything else.
#[path = "../../../crates/core/src/store/xml.rs"]
#[allow(dead_code)]
mod xml;

/// One input.
pub fn run(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let code = xml::said(text, "Code");
    assert!(code.is_none_or(|code| code.len() <= text.len()));
    match xml::Element::read(text) {
        Ok(root) => {
            let codes = root.all("Code");
            assert_eq!(codes.is_empty(), root.text("Code").is_none());
            let cut = format!("{text}<Error><Code>cut o");
            assert!(xml::is_error(&cut) && xml::Element::read(&cut).is_err());
        }
        Err(flaw) => assert!(flaw.to_string().starts_with(xml::UNREADABLE)),
    }
}
