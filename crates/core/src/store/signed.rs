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
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::connection::Connector;
use super::multipart::{CHECKSUM, crc32c_of, read_checksum, shown};
use super::raw::Raw;
use super::xml::{Element, Unreadable, said};

/// The most pages of a listing: fullbore stops following a store that never ends it.
const PAGES_MOST: usize = 10_000;
/// All but the unreserved characters of RFC 3986: what SigV4 encodes in a query.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

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
        _ if said(&answer.body, "Code").is_some() => generic(answer.body.clone()),
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
    utf8_percent_encode(text, RESERVED).to_string()
}

/// A page of a listing, and where the next one begins.
pub(super) struct Page<T> {
    pub items: Vec<T>,
    pub next: Option<Vec<(&'static str, String)>>,
}

/// A page of ListMultipartUploads that was asked for with `encoding-type=url`.
pub(super) fn uploads(body: &str) -> Result<Page<UnfinishedUpload>, Unreadable> {
    let page = Element::read(body)?;
    let is_encoded = page.text("EncodingType") == Some("url");
    let decode = |text: &str| if is_encoded { decoded(text) } else { text.to_owned() };
    let upload = |inside: &Element<'_>| {
        let initiated = inside.text("Initiated").and_then(|time| time.parse::<Timestamp>().ok());
        Some(UnfinishedUpload {
            key: decode(inside.text("Key")?),
            upload: super::Upload(inside.text("UploadId")?.to_owned()),
            initiated: initiated.map(Timestamp::as_microsecond),
        })
    };
    let next = || {
        let (key, id) = (page.text("NextKeyMarker")?, page.text("NextUploadIdMarker").unwrap_or_default());
        Some(vec![("key-marker", decode(key)), ("upload-id-marker", id.to_owned())])
    };
    Ok(Page {
        items: page.all("Upload").into_iter().filter_map(upload).collect(),
        next: more(&page).then(next).flatten(),
    })
}

/// A page of ListParts.
pub(super) fn parts(body: &str) -> Result<Page<UploadedPart>, Unreadable> {
    let page = Element::read(body)?;
    let part = |inside: &Element<'_>| {
        Some(UploadedPart {
            number: inside.text("PartNumber")?.parse().ok().filter(|number| (1..=10_000).contains(number))?,
            size: inside.text("Size")?.parse().ok()?,
            tag: inside.text("ETag")?.to_owned(),
            crc32c: inside.text("ChecksumCRC32C").and_then(read_checksum),
        })
    };
    let next = || Some(vec![("part-number-marker", page.text("NextPartNumberMarker")?.to_owned())]);
    Ok(Page { items: page.all("Part").into_iter().filter_map(part).collect(), next: more(&page).then(next).flatten() })
}

/// The tags in an answer to GetObjectTagging: key and value. An answer that cannot be read has none.
pub(super) fn tags(body: &str) -> Vec<(String, String)> {
    let Ok(answer) = Element::read(body) else { return Vec::new() };
    let tag = |tag: &Element<'_>| Some((tag.text("Key")?.to_owned(), tag.text("Value")?.to_owned()));
    answer.all("Tag").into_iter().filter_map(tag).collect()
}

fn more(page: &Element<'_>) -> bool {
    page.text("IsTruncated") == Some("true")
}

/// True when a listing may continue at `next` after `pages` pages, the last of which was asked for from `last` on.
pub(super) fn goes_on<T: PartialEq>(pages: usize, last: &T, next: &T) -> bool {
    pages < PAGES_MOST && last != next
}

/// `%41` → `A`, `+` → a space; anything else stays.
fn decoded(text: &str) -> String {
    percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned()
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
        let page = uploads(body).unwrap();
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
        let all = [part("1"), part("0"), part("99999")].concat();
        let page = parts(&format!("<R><IsTruncated>false</IsTruncated>{all}</R>")).unwrap();
        assert_eq!(page.items, [UploadedPart { number: 1, size: 5, tag: "\"e\"".into(), crc32c: Some(1) }]);
        assert!(page.next.is_none());
    }

    #[test]
    fn a_listing_that_cannot_be_read_is_an_error_and_not_an_empty_one() {
        for body in ["", "<Upload>", "<Upload><Key></Upload>", "</Part><Part>", "%", "<Key>%e", "<R><Upload></R>"] {
            assert!(uploads(body).is_err() && parts(body).is_err(), "{body}");
        }
        for body in ["<R/>", "<IsTruncated>true</IsTruncated>", "<R><Upload><Key/></Upload><Part/></R>"] {
            let (uploads, parts) = (uploads(body).unwrap(), parts(body).unwrap());
            assert!(uploads.items.is_empty() && uploads.next.is_none(), "{body}");
            assert!(parts.items.is_empty() && parts.next.is_none(), "{body}");
        }
    }

    #[test]
    fn all_but_unreserved_characters_are_encoded_and_a_damaged_encoding_stays() {
        assert_eq!(decoded("%zz%4%c3%bc%"), "%zz%4ü%");
        assert_eq!(encoded("a/b c=ü"), "a%2Fb%20c%3D%C3%BC");
        let unreserved = "AZaz09-._~";
        assert_eq!(encoded(unreserved), unreserved);
        for byte in (0..128_u8).filter(|byte| !byte.is_ascii_alphanumeric() && !b"-._~".contains(byte)) {
            let letter = char::from(byte).to_string();
            assert_eq!(encoded(&letter), format!("%{byte:02X}"));
            assert_eq!(decoded(&encoded(&letter)), letter);
        }
    }
}
