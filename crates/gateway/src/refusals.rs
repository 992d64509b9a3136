//! Requests that are refused by their heads, before a byte of their bodies is read: what this gateway does not do, and what
//! would do something else than it says if a header or a parameter were passed over.

use std::borrow::Cow;

use hyper::header::{AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::{Method, StatusCode, Uri};

/// Headers that change what an upload means.
const OF_UPLOADS: [(&str, &str); 6] = [
    ("x-amz-object-lock-", "locks of single objects: the configuration of the repository locks its sets"),
    ("x-amz-tagging", "tags"),
    ("x-amz-website-redirect-location", "redirects"),
    ("x-amz-write-offset-bytes", "uploads that go on with an object"),
    ("if-match", "conditions on uploads"),
    ("if-none-match", "conditions on uploads"),
];
/// Conditions of a request to delete.
const OF_DELETES: [(&str, &str); 3] = [
    ("if-match", "conditions on deletes"),
    ("x-amz-if-match-", "conditions on deletes"),
    ("x-amz-mfa", "deletes with a second factor"),
];
/// Keys of customers, which encrypt objects or open them.
const CUSTOMER_KEYS: &str = "x-amz-server-side-encryption-customer-";

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub status: StatusCode,
    pub code: &'static str,
    pub message: String,
}

fn not_done(what: &str) -> Refusal {
    let message = format!("this gateway does not do {what}");
    Refusal { status: StatusCode::NOT_IMPLEMENTED, code: "NotImplemented", message }
}

/// The reason why a request with this head is refused, if there is one.
pub(crate) fn refusal(method: &Method, uri: &Uri, headers: &HeaderMap) -> Option<Refusal> {
    of_signature(uri, headers).or_else(|| of_request(method, uri, headers))
}

/// Only version 4 is bound to a moment, and to the body.
fn of_signature(uri: &Uri, headers: &HeaderMap) -> Option<Refusal> {
    let by_header = headers.get_all(AUTHORIZATION).iter().any(|value| !value.as_bytes().starts_with(b"AWS4-"));
    let by_query = names(uri).any(|name| ["awsaccesskeyid", "signature"].contains(&&name[..]));
    (by_header || by_query).then(|| Refusal {
        status: StatusCode::BAD_REQUEST,
        code: "InvalidRequest",
        message: "this gateway takes signatures of version 4 only: use AWS4-HMAC-SHA256".to_owned(),
    })
}

fn of_request(method: &Method, uri: &Uri, headers: &HeaderMap) -> Option<Refusal> {
    let kind = headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes).trim_ascii_start();
    let is_form = kind.get(..10).is_some_and(|begin| begin.eq_ignore_ascii_case(b"multipart/"));
    if *method == Method::POST && is_form {
        return Some(not_done("uploads by forms"));
    }
    if names(uri).any(|name| name == "versionid") {
        return Some(not_done(
            "requests for one version of an object: it shows the newest one, and deletes all of them",
        ));
    }
    if has(headers, CUSTOMER_KEYS) {
        return Some(not_done("encryption with keys of clients: --encrypt-to encrypts"));
    }
    let refused = match *method {
        Method::PUT | Method::POST => &OF_UPLOADS[..],
        Method::DELETE => &OF_DELETES[..],
        _ => &[],
    };
    if let Some((_, what)) = refused.iter().find(|(begin, _)| has(headers, begin)) {
        return Some(not_done(what));
    }
    let is_upload = [Method::PUT, Method::POST].contains(method);
    (is_upload && is_encoded(headers)).then(|| not_done("Content-Encoding: it would give the object back without it"))
}

/// True if there is a header whose name begins so.
fn has(headers: &HeaderMap, begin: &str) -> bool {
    headers.keys().any(|name| name.as_str().starts_with(begin) && (begin.ends_with('-') || name.as_str() == begin))
}

/// True if the bytes have another encoding than the chunks of the signature.
fn is_encoded(headers: &HeaderMap) -> bool {
    let values = headers.get_all(CONTENT_ENCODING).iter();
    let mut encodings = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    let is_plain = |encoding: &[u8]| {
        let plain: [&[u8]; 3] = [b"", b"aws-chunked", b"identity"];
        plain.iter().any(|plain| plain.eq_ignore_ascii_case(encoding.trim_ascii()))
    };
    !encodings.all(is_plain)
}

/// The names of the query, in lower case and without percent signs.
pub(crate) fn names(uri: &Uri) -> impl Iterator<Item = String> + '_ {
    let pairs = uri.query().unwrap_or_default().split('&');
    pairs.map(|pair| decoded(pair.split('=').next().unwrap_or_default()).to_ascii_lowercase())
}

/// A text of a query as a server reads it. What is no text becomes signs of replacement.
pub(crate) fn decoded(text: &str) -> Cow<'_, str> {
    percent_encoding::percent_decode_str(text).decode_utf8_lossy()
}

impl Refusal {
    /// The answer. It ends the connection: nobody reads the body.
    pub fn answer(&self) -> s3s::HttpResponse {
        let Self { status, code, message } = self;
        let body = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>{code}</Code><Message>{message}</Message></Error>"
        );
        let mut answer = s3s::HttpResponse::new(s3s::Body::from(body));
        *answer.status_mut() = *status;
        answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
        answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        answer
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn code(method: &str, target: &str, header: Option<(&str, &str)>) -> Option<u16> {
        let mut headers = HeaderMap::new();
        if let Some((name, value)) = header {
            let name: hyper::header::HeaderName = name.parse().unwrap();
            headers.insert(name, value.parse().unwrap());
        }
        let found = refusal(&method.parse().unwrap(), &target.parse().unwrap(), &headers);
        found.map(|refusal| refusal.status.as_u16())
    }

    #[test]
    fn what_would_mean_something_else_is_refused_by_its_head() {
        for (method, target, header, status) in [
            ("DELETE", "/b/k?versionId=7", None, 501),
            ("GET", "/b/k?version%49d=null", None, 501),
            ("HEAD", "/b/k?versionId", None, 501),
            ("DELETE", "/b/k", Some(("if-match", "\"a\"")), 501),
            ("DELETE", "/b/k", Some(("x-amz-if-match-size", "3")), 501),
            ("PUT", "/b/k", Some(("if-none-match", "*")), 501),
            ("POST", "/b/k?uploadId=7", Some(("if-match", "\"a\"")), 501),
            ("PUT", "/b/k", Some(("x-amz-object-lock-mode", "COMPLIANCE")), 501),
            ("PUT", "/b/k", Some(("x-amz-tagging", "a=b")), 501),
            ("PUT", "/b/k", Some(("x-amz-website-redirect-location", "/x")), 501),
            ("GET", "/b/k", Some(("x-amz-server-side-encryption-customer-algorithm", "AES256")), 501),
            ("PUT", "/b/k", Some(("content-encoding", "aws-chunked, gzip")), 501),
            ("POST", "/b", Some(("content-type", "Multipart/form-data; boundary=X")), 501),
            ("GET", "/b/k", Some(("authorization", "AWS ALL:c2ln")), 400),
            ("GET", "/b/k?AWSAccessKeyId=ALL&Expires=4102444800&Signature=x", None, 400),
            ("GET", "/b/k?AWSAccess%4BeyId=ALL", None, 400),
        ] {
            assert_eq!(code(method, target, header), Some(status), "{method} {target} {header:?}");
        }
    }

    #[test]
    fn what_this_gateway_does_is_not_refused() {
        for (method, target, header) in [
            ("GET", "/b/k", Some(("if-match", "\"a\""))),
            ("GET", "/b?list-type=2&prefix=versionId", None),
            ("GET", "/b/k?X-Amz-Signature=5&X-Amz-Credential=ALL", None),
            ("PUT", "/b/k", Some(("content-encoding", "aws-chunked"))),
            ("PUT", "/b/k", Some(("x-amz-acl", "private"))),
            ("PUT", "/b/k", Some(("authorization", "AWS4-HMAC-SHA256 Credential=ALL/20261126/eu/s3/aws4_request"))),
        ] {
            assert_eq!(code(method, target, header), None, "{method} {target} {header:?}");
        }
    }
}
