//! The requests of the S3 target reach what they are meant for: its client signs as the gateway verifies.

use std::path::Path;

use fullbore_fuzz::targets::s3_request::answers;

/// The statuses of the answers to a seed.
fn statuses(seed: &str) -> Vec<u16> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds/s3_request").join(seed);
    let input = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let status = |answer: &String| answer.get(9..12).and_then(|status| status.parse().ok()).unwrap_or(0);
    answers(&input).iter().map(status).collect()
}

#[test]
fn good_requests_are_done_and_others_are_refused() {
    assert_eq!(statuses("put_get_range_delete"), [200, 206, 206, 200, 204, 404]);
    assert_eq!(statuses("parts"), [200, 200, 200, 200, 200, 200, 200, 200]);
    assert_eq!(statuses("abort"), [200, 200, 204, 404]);
    assert_eq!(statuses("lists"), [200; 10]);
    assert_eq!(statuses("chunks_with_a_trailer"), [200, 200]);
    assert_eq!(statuses("signed_chunks"), [403]);
    assert_eq!(statuses("four_uploads_for_memory_of_three"), [200, 200, 200, 503, 411]);
    assert!(statuses("without_a_signature").iter().all(|status| [0, 400, 403, 501].contains(status)));
    assert!(statuses("odd_requests").iter().all(|status| (400..=501).contains(status)));
}
