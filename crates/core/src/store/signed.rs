//! Requests that the crate has no method for, signed as it signs its own: a HEAD with all its headers, locks and tags,
//! a longer lock, unfinished uploads and their parts.
//!
//! Public sources: Amazon S3 API Reference (HeadObject, GetObjectRetention, PutObjectRetention, GetObjectTagging,
//! GetObjectLockConfiguration, ListMultipartUploads, ListParts).

use std::time::Duration;

use aws_lc_rs::digest;
use jiff::Timestamp;
use object_store::aws::{AmazonS3, AwsAuthorizer};
use object_store::client::{HttpClient, HttpConnector, HttpRequest};
use object_store::path::Path;
use object_store::signer::{Method, Signer};
use object_store::{ClientOptions, Error as StoreError, HeaderMap, PutPayload};

use super::connection::Connector;
use super::multipart::{CHECKSUM, crc32c_of, read_checksum, shown};
use super::raw::Raw;

/// The most pages of a listing: fullbore stops following a store that never ends it.
const PAGES_MOST: usize = 10_000;

/// An upload that was begun, and neither completed nor aborted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnfinishedUpload {
    /// The key of the object that it would become.
    pub key: String,
    /// Its id.
    pub upload: super::Upload,
    /// When it was begun, microseconds since 1970, by the store's clock; the store may not tell.
    pub initiated: Option<i64>,
}

/// A part that a store has of an unfinished upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadedPart {
    /// From 1.
    pub number: u32,
    /// Bytes.
    pub size: u64,
    /// The tag, which the completion names.
    pub tag: String,
    /// Its CRC-32C, where the store tells.
    pub crc32c: Option<u32>,
}

/// What a store answers.
pub(super) struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: String,
}

impl Answer {
    /// A header, if it is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The store's own clock, when it answered.
    pub fn date(&self) -> Option<Timestamp> {
        jiff::fmt::rfc2822::parse(self.header("date")?).ok().map(|time| time.timestamp())
    }

    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// How requests are signed, as the environment tells the crate.
#[derive(Debug, Clone, Default)]
pub(super) struct SigningSettings {
    /// `AWS_REGION`; us-east-1 if it is not set.
    pub region: Option<String>,
    /// `AWS_UNSIGNED_PAYLOAD=false`: parts are hashed for the signature too.
    pub signs_parts: bool,
    /// `AWS_REQUEST_PAYER`: the requester pays.
    pub pays: bool,
}

/// Sends them.
#[derive(Debug)]
pub(super) struct Signed {
    client: HttpClient,
    manners: SigningSettings,
}

impl Signed {
    pub fn new(connector: &Connector, options: &ClientOptions, manners: SigningSettings) -> object_store::Result<Self> {
        Ok(Self { client: connector.connect(options)?, manners })
    }

    /// One try. An error on the way, or an answer that may differ next time, is [`StoreError::Generic`].
    pub async fn send(
        &self,
        store: &AmazonS3,
        method: Method,
        path: &Path,
        query: &[(&str, &str)],
        body: &str,
    ) -> object_store::Result<Answer> {
        let mut raw = self.raw(store, method, path, query).await?;
        if !body.is_empty() {
            // Amazon's S3 refuses a request for a lock without a checksum of its body.
            let payload = PutPayload::from(body.to_owned());
            raw = raw.header(CHECKSUM, &shown(crc32c_of(&payload))).body(payload);
        }
        answer(&self.client, self.signed(store, raw).await?).await
    }

    /// A request before it is signed.
    pub async fn raw(
        &self,
        store: &AmazonS3,
        method: Method,
        path: &Path,
        query: &[(&str, &str)],
    ) -> object_store::Result<Raw> {
        // Where the object is: the crate knows how the endpoint names buckets. Its signature in the URL is not used, so
        // that no message holds one.
        let mut url = store.signed_url(Method::GET, path, Duration::from_secs(60)).await?;
        url.set_query(None);
        Ok(Raw::new(method, url.into(), query))
    }

    /// The request as it is sent, its body hashed for the signature.
    pub async fn signed(&self, store: &AmazonS3, raw: Raw) -> object_store::Result<HttpRequest> {
        self.signed_over(store, raw, true, None).await
    }

    /// The same for a part, which has a checksum: this costs a tenth of the hash, which is made only on request.
    pub async fn signed_part(&self, store: &AmazonS3, raw: Raw) -> object_store::Result<HttpRequest> {
        let hash = self.manners.signs_parts.then(|| sha256(raw.payload()));
        self.signed_over(store, raw, self.manners.signs_parts, hash.as_ref().map(AsRef::as_ref)).await
    }

    async fn signed_over(
        &self,
        store: &AmazonS3,
        raw: Raw,
        signs_body: bool,
        hash: Option<&[u8]>,
    ) -> object_store::Result<HttpRequest> {
        let mut request = raw.request()?;
        let credential = store.credentials().get_credential().await?;
        let region = self.manners.region.as_deref().unwrap_or("us-east-1");
        let authorizer = AwsAuthorizer::new(&credential, "s3", region).with_sign_payload(signs_body);
        authorizer.with_request_payer(self.manners.pays).try_authorize(&mut request, hash)?;
        Ok(request)
    }

    /// The client that sends it.
    pub fn client(&self) -> &HttpClient {
        &self.client
    }
}

fn sha256(payload: &PutPayload) -> digest::Digest {
    let mut hash = digest::Context::new(&digest::SHA256);
    payload.iter().for_each(|bytes| hash.update(bytes));
    hash.finish()
}

/// Sends a request; gives its answer. An answer that may differ next time is [`StoreError::Generic`].
pub(super) async fn answer(client: &HttpClient, request: HttpRequest) -> object_store::Result<Answer> {
    let response = client.execute(request).await.map_err(generic)?;
    let (parts, body) = response.into_parts();
    let bytes = body.bytes().await.map_err(generic)?;
    let answer = Answer {
        status: parts.status.as_u16(),
        headers: parts.headers,
        body: String::from_utf8_lossy(&bytes).into_owned(),
    };
    let transient = answer.status >= 500 && answer.status != 501 || answer.status == 429;
    if transient { Err(refusal(&answer)) } else { Ok(answer) }
}

/// An answer that is not a success, as an error with code and message.
pub(super) fn refusal(answer: &Answer) -> StoreError {
    // Without a body, Azure names the code in a header.
    match answer.header("x-ms-error-code") {
        _ if answer.body.contains("<Code>") => generic(answer.body.clone()),
        Some(code) => generic(format!("<Code>{code}</Code>")),
        None => generic(format!("the store answered with status {}", answer.status)),
    }
}

/// The error of stores for a missing bucket.
pub(super) fn no_bucket() -> StoreError {
    generic("<Code>NoSuchBucket</Code>")
}

pub(super) fn generic(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> StoreError {
    StoreError::Generic { store: "S3", source: source.into() }
}

/// A value in a query, or a part of a path: everything but unreserved characters is escaped.
pub(super) fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(byte as char);
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// A page of a listing, and where the next one begins.
pub(super) struct Page<T> {
    pub items: Vec<T>,
    pub next: Option<Vec<(&'static str, String)>>,
}

/// A page of ListMultipartUploads that was asked for with `encoding-type=url`.
pub(super) fn uploads(body: &str) -> Page<UnfinishedUpload> {
    let decode = |text: String| if element(body, "EncodingType").is_some() { decoded(&text) } else { text };
    let upload = |inside: &str| {
        let initiated = element(inside, "Initiated").and_then(|time| time.parse::<Timestamp>().ok());
        Some(UnfinishedUpload {
            key: decode(element(inside, "Key")?),
            upload: super::Upload(element(inside, "UploadId")?),
            initiated: initiated.map(Timestamp::as_microsecond),
        })
    };
    let next = || {
        let (key, id) = (element(body, "NextKeyMarker")?, element(body, "NextUploadIdMarker").unwrap_or_default());
        Some(vec![("key-marker", decode(key)), ("upload-id-marker", id)])
    };
    Page { items: elements(body, "Upload").filter_map(upload).collect(), next: more(body).then(next).flatten() }
}

/// A page of ListParts.
pub(super) fn parts(body: &str) -> Page<UploadedPart> {
    let part = |inside: &str| {
        Some(UploadedPart {
            number: element(inside, "PartNumber")?.parse().ok().filter(|number| (1..=10_000).contains(number))?,
            size: element(inside, "Size")?.parse().ok()?,
            tag: element(inside, "ETag")?,
            crc32c: element(inside, "ChecksumCRC32C").as_deref().and_then(read_checksum),
        })
    };
    let next = || Some(vec![("part-number-marker", element(body, "NextPartNumberMarker")?)]);
    Page { items: elements(body, "Part").filter_map(part).collect(), next: more(body).then(next).flatten() }
}

/// The tags in an answer to GetObjectTagging: key and value.
pub(super) fn tags(body: &str) -> Vec<(String, String)> {
    elements(body, "Tag").filter_map(|tag| Some((element(tag, "Key")?, element(tag, "Value")?))).collect()
}

fn more(body: &str) -> bool {
    element(body, "IsTruncated").is_some_and(|truncated| truncated == "true")
}

/// True when a listing may continue at `next` after `pages` pages, the last of which was asked for from `last` on.
pub(super) fn goes_on<T: PartialEq>(pages: usize, last: &T, next: &T) -> bool {
    pages < PAGES_MOST && last != next
}

/// The text of the first element of that name.
pub(super) fn element(body: &str, name: &str) -> Option<String> {
    elements(body, name).next().map(unescaped)
}

/// The content of each element of that name; no such element is inside another.
pub(super) fn elements<'a>(body: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let mut rest = body;
    std::iter::from_fn(move || {
        let (inside, after) = rest.split_once(&open)?.1.split_once(&close)?;
        rest = after;
        Some(inside)
    })
}

pub(super) fn unescaped(text: &str) -> String {
    let named = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#34;", "\""), ("&#39;", "'"), ("&apos;", "'")];
    let text = named.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to));
    // Last: what it makes is not looked at again.
    text.replace("&amp;", "&")
}

/// `%41` → `A`, `+` → a space; anything else stays.
fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut plain, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        let hex = text.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                plain.push(byte);
                at += 3;
            }
            None => {
                plain.push(if bytes[at] == b'+' { b' ' } else { bytes[at] });
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_uploads_is_read_with_its_keys_decoded_and_its_markers() {
        let body = "<R><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>\
            <NextKeyMarker>a%2Fb+c</NextKeyMarker><NextUploadIdMarker>u2</NextUploadIdMarker>\
            <Upload><Key>a%2Fb+c</Key><UploadId>u1</UploadId>\
            <Initiated>2026-11-22T08:00:00.000Z</Initiated></Upload>\
            <Upload><Key>d&amp;lt;</Key><UploadId>u2</UploadId></Upload>\
            <Upload><Key>without an id</Key></Upload></R>";
        let page = uploads(body);
        assert_eq!(page.items.len(), 2);
        assert_eq!((page.items[0].key.as_str(), page.items[0].initiated), ("a/b c", Some(1_795_334_400_000_000)));
        assert_eq!((page.items[1].key.as_str(), page.items[1].initiated), ("d&lt;", None));
        assert_eq!(page.next.unwrap(), [("key-marker", "a/b c".to_owned()), ("upload-id-marker", "u2".to_owned())]);
    }

    #[test]
    fn a_page_of_parts_is_read_and_numbers_out_of_bounds_are_not() {
        let part = |number: &str| {
            format!(
                "<Part><PartNumber>{number}</PartNumber><ETag>&#34;e&#34;</ETag>\
                 <Size>5</Size><ChecksumCRC32C>AAAAAQ==</ChecksumCRC32C></Part>"
            )
        };
        let page =
            parts(&format!("<R><IsTruncated>false</IsTruncated>{}{}{}</R>", part("1"), part("0"), part("99999")));
        assert_eq!(page.items, [UploadedPart { number: 1, size: 5, tag: "\"e\"".into(), crc32c: Some(1) }]);
        assert!(page.next.is_none());
    }

    #[test]
    fn what_is_no_answer_gives_nothing_and_no_panic() {
        for body in [
            "",
            "<Upload>",
            "<Upload><Key></Upload>",
            "</Part><Part>",
            "<IsTruncated>true</IsTruncated>",
            "%",
            "<Key>%e",
        ] {
            assert!(uploads(body).items.is_empty() && parts(body).items.is_empty(), "{body}");
        }
        assert_eq!(decoded("%zz%4%c3%bc%"), "%zz%4ü%");
        assert_eq!(encoded("a/b c=ü"), "a%2Fb%20c%3D%C3%BC");
    }

    proptest::proptest! {
        #[test]
        fn no_answer_of_a_store_is_a_panic(pieces in proptest::collection::vec(
            "(<|</)?(Upload|Key|UploadId|Part|PartNumber|Size|ETag|IsTruncated|Next[A-Z]{1,3})?>?|.{0,4}|\
            %[0-9a-g]{0,2}|true",
            0..60,
        )) {
            let body = pieces.concat();
            let (uploads, parts) = (uploads(&body), parts(&body));
            proptest::prop_assert!(uploads.items.len() + parts.items.len() <= body.len());
        }
    }
}
