//! Errors of a store, in words that say what to do.

use object_store::Error as StoreError;

use super::connection::{REDIRECTS, TOO_LONG};
use super::error_codes;
use super::xml::{UNREADABLE, said};
use crate::error::Error;

/// The most characters of a store's own words in a message.
const WORDS_MAX: usize = 300;

/// The codes that say that the bucket or container does not exist: the command names something that is not there.
const NO_BUCKET: [&str; 2] = ["NoSuchBucket", "ContainerNotFound"];

/// An answer of a store: a code of S3 or a part of a message, its cause, and the next step.
const KNOWN: [(&str, &str, &str); 38] = [
    // Where an instance gets the keys of its role: no keys were named before.
    (
        "/latest/api/token",
        "there are no credentials",
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or run where a role gives them",
    ),
    (
        "InvalidObjectState",
        "it is in a storage class that cannot be read at once",
        "restore the object in the store first (RestoreObject); this takes hours",
    ),
    (
        "InvalidStorageClass",
        "the store does not have this storage class",
        "use a class that the store has, or leave --storage-class out",
    ),
    (
        "AnonymousWrite",
        "AWS_SKIP_SIGNATURE is set, and a backup into this store needs credentials",
        "unset it, and set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    ),
    ("BadDigest", "a part arrived changed, on every try", "check the network, and run it again"),
    ("NoSuchBucket", "there is no such bucket", "check its name and AWS_ENDPOINT_URL, or create it"),
    ("InvalidAccessKeyId", "the store does not know this access key", "check AWS_ACCESS_KEY_ID and AWS_ENDPOINT_URL"),
    // versitygw's name for it.
    ("XAdminUserNotFound", "the store does not know this access key", "check AWS_ACCESS_KEY_ID and AWS_ENDPOINT_URL"),
    (
        "SignatureDoesNotMatch",
        "the secret key does not belong to the access key",
        "check AWS_SECRET_ACCESS_KEY and AWS_REGION",
    ),
    (
        "InvalidToken",
        "the session token is not valid",
        "check AWS_SESSION_TOKEN; leave it unset for keys that are static",
    ),
    ("ExpiredToken", "the session token has expired", "get new credentials"),
    (
        "RequestTimeTooSkewed",
        "the clock of this machine differs too much from the store's",
        "set the clock (timedatectl, chrony)",
    ),
    (
        "AuthorizationHeaderMalformed",
        "the request is signed for another region than the bucket's",
        "set AWS_REGION to the bucket's region",
    ),
    ("IllegalLocationConstraint", "the bucket is in another region", "set AWS_REGION to the bucket's region"),
    ("PermanentRedirect", "the bucket is at another endpoint", "set AWS_REGION, or AWS_ENDPOINT_URL, to the bucket's"),
    ("incorrectly configured region", "the bucket is in another region", "set AWS_REGION to the bucket's region"),
    (
        "AccessDenied",
        "the account may not do this",
        "it needs to get, put, list and delete objects, and to abort multipart uploads, in this bucket",
    ),
    (
        "NotImplemented",
        "the store cannot do this",
        "fullbore needs multipart uploads and conditional writes (If-None-Match)",
    ),
    (
        "MethodNotAllowed",
        "the store cannot do this",
        "fullbore needs multipart uploads and conditional writes (If-None-Match)",
    ),
    (
        "SlowDown",
        "the store asks to slow down, even after many retries",
        "use fewer --stripes or --throttle, or try again later",
    ),
    ("EntityTooSmall", "a part is too small for the store", "this is a defect of fullbore: please report it"),
    ("EntityTooLarge", "an object or a part is larger than the store takes", "use more --stripes"),
    (
        "TooManyParts",
        "an object has more parts than the store takes",
        "set --max-parts to the store's limit: fullbore then plans fewer and larger parts; or use more --stripes",
    ),
    // How versitygw says it.
    (
        "Part number must be",
        "an object has more parts than the store takes",
        "set --max-parts to the store's limit: fullbore then plans fewer and larger parts; or use more --stripes",
    ),
    (
        "Bucket is missing Object Lock",
        "the bucket has no Object Lock, and --lock-until needs it",
        "create a bucket with Object Lock enabled, or leave --lock-until out",
    ),
    ("InvalidPart", "an uploaded part is not there", "try again; another program may have aborted the upload"),
    ("NoSuchUpload", "the upload no longer exists", "another program or a lifecycle rule of the bucket aborted it"),
    ("QuotaExceeded", "the quota of the bucket is used up", "free space there, or choose a stronger --compression"),
    ("StorageFull", "the store is full", "free space there, or choose a stronger --compression"),
    (
        "timed out",
        "the store gave no answer in time",
        "check the endpoint and the network; --device-timeout makes the wait longer",
    ),
    (
        "reset by peer",
        "the connection was cut on every try",
        "check the store and the network; a store that speaks only TLS needs https:// in AWS_ENDPOINT_URL",
    ),
    (
        "connection closed",
        "the connection was cut on every try",
        "check the store and the network; a store that speaks only TLS needs https:// in AWS_ENDPOINT_URL",
    ),
    ("Connection refused", "nothing listens at the endpoint", "check AWS_ENDPOINT_URL, and whether the store runs"),
    ("dns error", "the name of the endpoint cannot be resolved", "check AWS_ENDPOINT_URL and AWS_REGION"),
    (
        "InvalidContentType",
        "the endpoint does not speak TLS",
        "write http:// in AWS_ENDPOINT_URL if you want no TLS, or name the TLS port",
    ),
    // How servers written in Go say it.
    ("HTTP request to an HTTPS server", "the endpoint speaks TLS only", "write https:// in AWS_ENDPOINT_URL"),
    (
        "certificate expired",
        "the endpoint's certificate has expired",
        "renew the store's certificate; if the clock of this machine is wrong, set it",
    ),
    (
        "certificate",
        "the endpoint's certificate is not trusted",
        "set AWS_CA_BUNDLE to the file with the authority's certificate",
    ),
];

/// The error of a request: `thing` is what it was about, as the user named it, and `action` what was tried, as a verb.
pub(super) fn explained(action: &str, thing: &str, error: &StoreError) -> Error {
    let text = whole_text(error);
    let (said_code, message) = (said(&text, "Code"), said(&text, "Message"));
    if let Some(elsewhere) = elsewhere(action, thing, &text) {
        return elsewhere;
    }
    // These codes say nothing: the message does.
    let code = said_code.as_deref().filter(|code| !["InvalidArgument", "InvalidRequest"].contains(code));
    if let Some((mark, why, hint)) = error_codes::of(thing)
        .iter()
        .chain(&KNOWN)
        .find(|(mark, ..)| code.map_or(text.contains(mark), |code| code == *mark || code.ends_with(mark)))
    {
        let more = message.map(|words| format!(" (the store says: {})", shortened(&words))).unwrap_or_default();
        let (why, hint) = (format!("cannot {action} it: {why}{more}"), error_codes::named(thing, hint));
        return match NO_BUCKET.contains(mark) {
            true => Error::usage(thing, why, hint),
            false => Error::refused(thing, why, hint),
        };
    }
    let (why, hint) = match error {
        _ if is_absent(error) => (
            "it is not there",
            "check the name; `fullbore list --from` with a prefix that ends in `/` shows what is there",
        ),
        StoreError::PermissionDenied { .. } | StoreError::Unauthenticated { .. } => {
            ("the store does not allow it", "check the keys, and what the account may do in this bucket")
        }
        StoreError::Precondition { .. } => ("it was replaced meanwhile", "run it again"),
        _ => ("", "check the endpoint and the network"),
    };
    let words = match (why, said_code) {
        ("", Some(code)) => format!("the store says {}: {}", shortened(&code), shortened(&message.unwrap_or_default())),
        // After the last hyphen comes the cause; before it, what the crate was doing.
        ("", None) => shortened(text.rsplit_once(" - ").map_or(text.as_str(), |(_, cause)| cause)),
        (why, _) => why.to_owned(),
    };
    Error::refused(thing, format!("cannot {action} it: {words}"), hint)
}

/// The error of an answer that redirects, has no end or cannot be read: fullbore does not follow it.
fn elsewhere(action: &str, thing: &str, text: &str) -> Option<Error> {
    let said = |mark: &str| Some(format!("{mark}{}", text.split_once(mark)?.1));
    if let Some(words) = said(REDIRECTS) {
        let why = format!("cannot {action} it: {}, and nothing was sent there", shortened(&words));
        let hint = match thing.split_once("://") {
            Some(("az", _)) => "if you trust that host, set AZURE_STORAGE_ENDPOINT to it",
            Some(("gs", _)) => "if you trust that host, set GOOGLE_BASE_URL to it",
            _ => "if you trust that host, set AWS_ENDPOINT_URL to it, or AWS_REGION to the bucket's region",
        };
        return Some(Error::refused(thing, why, hint));
    }
    let words = said(TOO_LONG).or_else(|| said(UNREADABLE))?;
    let why = format!("cannot {action} it: {}", shortened(&words));
    Some(Error::refused(thing, why, "check the endpoint: its answer is not that of an object store"))
}

/// True if the object does not exist. Stores give the same answer for other things that they do not find: a bucket, an
/// account.
pub(super) fn is_absent(error: &StoreError) -> bool {
    let StoreError::NotFound { .. } = error else { return false };
    // The answer to a HEAD has no code.
    said(&whole_text(error), "Code").is_none_or(|code| ["NoSuchKey", "BlobNotFound"].contains(&code.as_str()))
}

/// True if the account may not do this. For a listing the crate gives no kind: the store's own code does.
pub(super) fn is_denied(error: &StoreError) -> bool {
    let codes = ["AccessDenied", "AuthorizationFailure", "AuthorizationPermissionMismatch"];
    matches!(error, StoreError::PermissionDenied { .. } | StoreError::Unauthenticated { .. })
        || said(&whole_text(error), "Code").is_some_and(|code| codes.contains(&code.as_str()))
}

/// True for the answer of a store without multipart uploads to the request that begins one.
pub(super) fn has_no_multipart(error: &StoreError) -> bool {
    let codes = ["NotImplemented", "MethodNotAllowed", "InvalidRequest"];
    said(&whole_text(error), "Code").is_some_and(|code| codes.contains(&code.as_str()))
}

/// The error of an answer that is shorter than announced: it ends at byte `end` of the family.
pub(crate) fn cut_off(device: &str, end: u64) -> Error {
    Error::damaged(device, end, "the store's answer ends here, before its announced length")
}

/// The error and all its causes in one line. No request's headers are in them, and so no key.
pub(super) fn whole_text(error: &StoreError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    text
}

fn shortened(words: &str) -> String {
    let printable = words.chars().map(|letter| if letter.is_control() { ' ' } else { letter });
    let short: String = printable.take(WORDS_MAX).collect();
    short.trim().to_owned()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_object_that_is_not_there_is_told_from_an_account_or_a_bucket() {
        let answer = |body: &str| StoreError::NotFound { path: "k".into(), source: body.to_owned().into() };
        assert!(is_absent(&answer("<Error><Code>NoSuchKey</Code></Error>")) && is_absent(&answer("404")));
        for code in ["NoSuchBucket", "XAdminUserNotFound", "NoSuchVersion"] {
            assert!(!is_absent(&answer(&format!("<Error><Code>{code}</Code></Error>"))), "{code}");
        }
        assert!(!is_absent(&generic("<Code>NoSuchKey</Code>")));
    }

    #[test]
    fn a_listing_that_is_not_allowed_is_told_from_one_that_fails() {
        assert!(is_denied(&generic("Server returned 403: <Error><Code>AccessDenied</Code></Error>")));
        assert!(!is_denied(&generic("<Error><Code>SignatureDoesNotMatch</Code></Error>")));
    }

    fn generic(text: &str) -> StoreError {
        StoreError::Generic { store: "S3", source: text.to_owned().into() }
    }

    #[test]
    fn a_code_of_the_store_becomes_a_cause_and_a_next_step() {
        let body = "Server returned 403: <Error><Code>SignatureDoesNotMatch</Code>\
            <Message>no\u{1b}[1m match</Message><StringToSign>x</StringToSign></Error>";
        let error = explained("write", "s3://b/k", &generic(body)).to_string();
        assert!(
            error.contains("s3://b/k") && error.contains("secret key") && error.contains("AWS_SECRET_ACCESS_KEY"),
            "{error}"
        );
        assert!(!error.contains("StringToSign") && !error.contains('\u{1b}'), "{error}");
    }

    #[test]
    fn an_answer_that_cannot_be_read_is_told_with_its_place_and_without_control_characters() {
        let flaw = super::super::xml::Element::read("<a><\u{1b}[1m></b></a>").unwrap_err();
        let error = explained("list", "s3://b", &StoreError::Generic { store: "S3", source: flaw.into() }).to_string();
        assert!(error.contains("cannot list it: the store's answer cannot be read: at byte 9: ill-formed"), "{error}");
        assert!(error.contains("is not that of an object store") && !error.contains('\u{1b}'), "{error}");
    }

    #[test]
    fn an_unknown_answer_is_shown_in_the_stores_words() {
        let error =
            explained("read", "s3://b/k", &generic("<Code>OddThing</Code><Message>very odd</Message>")).to_string();
        assert!(error.contains("OddThing") && error.contains("very odd") && error.contains("hint: "), "{error}");
    }
}
