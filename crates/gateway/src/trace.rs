//! `--trace`: a line for each request and a line for its answer. No line has a secret.

use hyper::{HeaderMap, Method, Uri};

use crate::refusals::decoded;

/// Headers whose values are shown. Of others, only the length is.
const SHOWN: [&str; 30] = [
    "accept-encoding",
    "amz-sdk-invocation-id",
    "amz-sdk-request",
    "connection",
    "content-encoding",
    "content-length",
    "content-md5",
    "content-range",
    "content-type",
    "etag",
    "expect",
    "host",
    "if-match",
    "if-none-match",
    "last-modified",
    "range",
    "te",
    "transfer-encoding",
    "user-agent",
    "x-amz-acl",
    "x-amz-bucket-region",
    "x-amz-checksum-algorithm",
    "x-amz-checksum-crc32",
    "x-amz-checksum-crc64nvme",
    "x-amz-content-sha256",
    "x-amz-date",
    "x-amz-decoded-content-length",
    "x-amz-sdk-checksum-algorithm",
    "x-amz-storage-class",
    "x-amz-trailer",
];
/// Parameters of a query whose values are secrets, or can be used as such.
const HIDDEN: [&str; 4] =
    ["x-amz-signature", "x-amz-security-token", "signature", "x-amz-server-side-encryption-customer-key"];
/// Letters of a value, at most.
const VALUE_MAX: usize = 300;

fn plain(text: &str) -> String {
    let shown: String = text.chars().take(VALUE_MAX).collect();
    shown.escape_debug().to_string()
}

/// The headers, in the order of the request.
fn headers(all: &HeaderMap) -> String {
    let one = |(name, value): (&hyper::header::HeaderName, &hyper::header::HeaderValue)| {
        let name = name.as_str();
        match (name, value.to_str()) {
            ("authorization", Ok(value)) => format!(" {name}=[{}]", signed_by(value)),
            (_, Ok(value)) if SHOWN.contains(&name) => format!(" {name}=[{}]", plain(value)),
            _ => format!(" {name}=({} bytes)", value.len()),
        }
    };
    all.iter().map(one).collect()
}

/// An `Authorization` without its signature.
fn signed_by(value: &str) -> String {
    let without = value.split("Signature=").next().unwrap_or_default();
    // Another scheme may have its secret anywhere.
    match value.starts_with("AWS4-HMAC-SHA256 ") {
        true => format!("{}Signature=…", plain(without)),
        false => format!("another scheme, {} bytes", value.len()),
    }
}

fn target(uri: &Uri) -> String {
    let query = uri.query().unwrap_or_default();
    let one = |pair: &str| {
        let name = pair.split('=').next().unwrap_or_default();
        // A server decodes names: an encoded one is as good.
        let lower = decoded(name).to_ascii_lowercase();
        match HIDDEN.contains(&lower.as_str()) {
            true => format!("{}=…", plain(name)),
            false => plain(pair),
        }
    };
    let query = query.split('&').filter(|pair| !pair.is_empty()).map(one).collect::<Vec<_>>().join("&");
    let question = if query.is_empty() { "" } else { "?" };
    format!("{}{question}{query}", plain(uri.path()))
}

/// The line for a request.
pub(crate) fn request(number: u64, peer: &str, method: &Method, uri: &Uri, all: &HeaderMap) -> String {
    format!("trace: request {number} from {peer}: {method} {}{}", target(uri), headers(all))
}

/// The line for an answer; `after` are milliseconds since the request.
pub(crate) fn answer(number: u64, status: hyper::StatusCode, all: &HeaderMap, after: u128) -> String {
    format!("trace: answer {number} after {after} ms: {}{}", status.as_u16(), headers(all))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_line_shows_who_asks_for_what_and_no_secret() {
        let secret = "5a9b0c1d2e3f";
        let mut all = HeaderMap::new();
        let signed = format!("AWS4-HMAC-SHA256 Credential=SQL1/20261126/eu/s3/aws4_request, Signature={secret}");
        for (name, value) in [
            ("authorization", signed.as_str()),
            ("x-amz-security-token", secret),
            ("x-amz-server-side-encryption-customer-key", secret),
            ("cookie", secret),
            ("range", "bytes=0-511"),
        ] {
            all.append(name, value.parse().unwrap());
        }
        let uri: Uri = format!(
            "/b/k%0A?uploadId=7&X-Amz-Signature={secret}&X-Amz-Security-Token={secret}&X-Amz-Signatur%65={secret}"
        )
        .parse()
        .unwrap();
        let line = request(3, "10.0.0.1:5", &Method::GET, &uri, &all);
        assert!(!line.contains(secret), "{line}");
        for part in
            ["Credential=SQL1/", "range=[bytes=0-511]", "/b/k%0A?uploadId=7&X-Amz-Signature=…", "cookie=(12 bytes)"]
        {
            assert!(line.contains(part), "{part}: {line}");
        }
        all.clear();
        all.append("authorization", format!("Basic {secret}").parse().unwrap());
        assert!(!headers(&all).contains(secret));
    }
}
