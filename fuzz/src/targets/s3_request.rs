//! Whole S3 requests: HTTP, signatures, chunks, lists in XML and ranges, through the gateway into objects in memory.

use std::sync::Arc;

use fullbore_gateway::keys::Keys;
use fullbore_gateway::wire::Wire;

use crate::s3::signer::{ID, SECRET, signed};
use crate::s3::storage::InMemory;

/// Between two requests.
const NEXT: &[u8] = b"\n%%\n";
/// Before a request that the target signs. The others come as they are.
const SIGN: &[u8] = b"SIGN ";
/// In every request with a signature.
const SIGNED: &[u8] = b"Signature=";
/// The id of the last upload, in a request.
const UPLOAD: &[u8] = b"{id}";
/// Requests of an input, at most.
const REQUESTS_MAX: usize = 12;
/// Memory for three uploads: the fourth has to be refused.
const MEMORY: u64 = 3 * ((8 << 20) + 1000);

/// The input is requests, one connection for each.
pub fn run(input: &[u8]) {
    for text in answers(input) {
        assert!(text.is_empty() || text.starts_with("HTTP/1."), "{text}");
        for wrong in ["InternalError", "thread of the gateway has failed", "task of the gateway has failed"] {
            assert!(!text.contains(wrong), "{text}");
        }
    }
}

/// The answer to each request of an input.
pub fn answers(input: &[u8]) -> Vec<String> {
    let rights = format!("[[key]]\nid=\"{ID}\"\nsecret=\"{SECRET}\"\nrights=[\"write\",\"read\",\"list\",\"delete\"]");
    let keys = Keys::parse("keys", &rights).expect("good keys");
    let storage = Arc::new(InMemory::default());
    let wire = Wire::new(keys, storage.clone(), MEMORY).expect("a gateway in memory");
    let (mut id, mut has_signed, mut all) = (Vec::new(), false, Vec::new());
    for request in parts(input).take(REQUESTS_MAX) {
        let request = replaced(request, &id);
        let now = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
        let sent = match request.strip_prefix(SIGN) {
            Some(request) => signed(request, &now),
            None => request,
        };
        has_signed |= sent.windows(SIGNED.len()).any(|word| word.eq_ignore_ascii_case(SIGNED));
        let text = String::from_utf8_lossy(&wire.answers(&sent)).into_owned();
        if let Some(begun) = text.split("<UploadId>").nth(1).and_then(|rest| rest.split('<').next()) {
            id = begun.as_bytes().to_vec();
        }
        all.push(text);
    }
    assert!(has_signed || storage.count() == 0, "nobody has signed, and there is an object");
    assert_eq!(wire.end(), 0, "memory is missing after the end of all uploads");
    all
}

/// The requests of an input.
fn parts(input: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut left = Some(input);
    std::iter::from_fn(move || {
        let now = left?;
        let at = now.windows(NEXT.len()).position(|bytes| bytes == NEXT);
        left = at.and_then(|at| now.get(at + NEXT.len()..));
        Some(at.map_or(now, |at| now.get(..at).unwrap_or_default()))
    })
}

/// A request with the id of the upload in it.
fn replaced(request: &[u8], id: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut left = request;
    while let Some(at) = left.windows(UPLOAD.len()).position(|bytes| bytes == UPLOAD) {
        out.extend_from_slice(left.get(..at).unwrap_or_default());
        out.extend_from_slice(id);
        left = left.get(at + UPLOAD.len()..).unwrap_or_default();
    }
    out.extend_from_slice(left);
    out
}
