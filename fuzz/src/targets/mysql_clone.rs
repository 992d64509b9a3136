//! Messages of MySQL's CLONE protocol: the type, then the body; and what its files would become.

use fullbore_engines::mysql::clone::descriptor::{DATA_MAX, Descriptor, FILE_SIZE_MAX, Stage};
use fullbore_engines::mysql::clone::files::Files;
use fullbore_engines::mysql::clone::message::Response;
use fullbore_engines::mysql::clone::page_zero::PageSize;

/// One input.
pub fn run(input: &[u8]) {
    // Several messages, each with a length of one byte before it: files live on what was said before.
    let mut rest = input;
    let mut files = PageSize::new(16384).map(|page| Files::new(page, "uuid")).expect("16384 is a page size");
    while let Some((&length, after)) = rest.split_first() {
        let (message, after) = after.split_at(usize::from(length).min(after.len()));
        rest = after;
        let Some((&kind, body)) = message.split_first() else { continue };
        match Response::parse(kind, body) {
            Ok(Response::Descriptor(Descriptor::Data(data))) => {
                assert!(data.length <= DATA_MAX && data.offset + u64::from(data.length) <= FILE_SIZE_MAX);
            }
            Ok(Response::Descriptor(Descriptor::State(state))) => {
                let back = Descriptor::parse(&state.acknowledgement());
                assert!(matches!(back, Ok(Descriptor::State(back)) if back.stage == state.stage));
            }
            Ok(Response::Descriptor(Descriptor::File(file))) => {
                if let Ok(Some(change)) = files.plan(&file, Stage::FileCopy) {
                    let path = &change.file().path;
                    assert!(
                        !path.starts_with('/') && !path.split('/').any(|part| matches!(part, "" | "." | "..")),
                        "{path}"
                    );
                    files.commit(&change);
                }
            }
            _ => {}
        }
    }
}
