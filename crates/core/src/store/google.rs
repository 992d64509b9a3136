//! Buckets of Google Cloud Storage, by its XML interface, whose uploads are those of S3.
//!
//! The crate sends parts without a checksum, and lists neither uploads nor parts: these requests are made here.
//!
//! Public sources: Cloud Storage documentation, XML API (Initiate a multipart upload, Object upload part, List
//! multipart uploads, List parts, x-goog-hash), "Multipart uploads", "Request preconditions".

use object_store::client::{HttpClient, HttpConnector, HttpRequest};
use object_store::gcp::{GoogleCloudStorage, GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::signer::Method;
use object_store::{Attribute, Attributes, Error as StoreError, PutMultipartOptions, PutPayload};

use super::client::{ClientSettings, SET};
use super::multipart::{crc32c_of, shown};
use super::raw::{Raw, done};
use super::signed::{Answer, answer, encoded, generic};
use super::{Control, EMULATOR, explained};
use crate::error::{Error, Result};

/// The most parts of an object.
pub(super) const PARTS_MOST: u64 = 10_000;
/// Where Google's buckets are.
const ADDRESS: &str = "https://storage.googleapis.com";
/// Settings that choose the keys, besides the file that Google's own libraries know.
const KEYS: [GoogleConfigKey; 4] = [
    GoogleConfigKey::ServiceAccount,
    GoogleConfigKey::ServiceAccountKey,
    GoogleConfigKey::ApplicationCredentials,
    GoogleConfigKey::BearerToken,
];

/// A bucket.
pub(super) struct Google {
    pub store: GoogleCloudStorage,
    client: HttpClient,
    /// Where the bucket is: `https://storage.googleapis.com/bucket`.
    address: String,
}

/// The checksum of a part as the service wants it: CRC-32C, highest byte first.
fn crc32c(body: &PutPayload) -> String {
    format!("crc32c={}", shown(crc32c_of(body)))
}

/// The address of an emulator as its variable says it, with or without a scheme.
fn emulator(control: &Control) -> Option<String> {
    let (_, address) = control.settings.iter().find(|(name, address)| name == EMULATOR && !address.is_empty())?;
    Some(if address.contains("://") { address.clone() } else { format!("http://{address}") })
}

impl Google {
    pub fn open(name: &str, control: &Control, manner: &ClientSettings) -> Result<Self> {
        let thing = format!("gs://{name}");
        let mut builder = GoogleCloudStorageBuilder::new();
        for (name, value) in control.settings.iter().filter(|(name, _)| name.starts_with("GOOGLE_")) {
            if let Ok(key) = name.to_ascii_lowercase().parse::<GoogleConfigKey>() {
                if key == GoogleConfigKey::SkipSignature {
                    let why = "a backup into this store needs credentials";
                    return Err(Error::usage(name, why, "unset it, and set GOOGLE_APPLICATION_CREDENTIALS"));
                }
                builder = builder.with_config(key, value);
            }
        }
        if let Some(address) = emulator(control) {
            let has_keys = KEYS.iter().any(|key| builder.get_config_value(key).is_some());
            builder = builder.with_config(GoogleConfigKey::BaseUrl, address.trim_end_matches('/'));
            // An emulator needs no account.
            builder = if has_keys { builder } else { builder.with_bearer_token("none") };
        }
        let address = builder.get_config_value(&GoogleConfigKey::BaseUrl).unwrap_or_else(|| ADDRESS.to_owned());
        let options = manner.options_for(&address);
        builder = builder.with_bucket_name(name).with_retry(manner.retry.clone());
        builder = builder.with_client_options(options.clone()).with_http_connector(manner.connector.clone());
        let failed = |error: StoreError| explained("open", &thing, &error);
        Ok(Self {
            store: builder.build().map_err(failed)?,
            client: manner.connector.connect(&options).map_err(failed)?,
            address: format!("{}/{}", address.trim_end_matches('/'), encoded(name)),
        })
    }

    fn raw(&self, method: Method, path: &Path, query: &[(&str, &str)]) -> Raw {
        let key = path.as_ref();
        let slash = if key.is_empty() { "" } else { "/" };
        Raw::new(method, format!("{}{slash}{}", self.address, encoded(key)), query)
    }

    async fn signed(&self, raw: Raw) -> object_store::Result<HttpRequest> {
        let credential = self.store.credentials().get_credential().await?;
        raw.header("authorization", &format!("Bearer {}", credential.bearer)).request()
    }

    /// Sends a request; one try, whatever the answer.
    pub async fn tell(&self, method: Method, path: &Path, query: &[(&str, &str)]) -> object_store::Result<Answer> {
        answer(&self.client, self.signed(self.raw(method, path, query)).await?).await
    }

    /// Begins an object of the media set `set`.
    pub async fn begin(&self, path: &Path, set: &str) -> object_store::Result<String> {
        let attributes = Attributes::from_iter([(Attribute::Metadata(SET.into()), set.to_owned())]);
        let options = PutMultipartOptions { attributes, ..PutMultipartOptions::default() };
        self.store.create_multipart_opts(path, options).await
    }

    /// Uploads part `number`, from 0.
    pub async fn write_part(
        &self,
        path: &Path,
        upload: &str,
        number: usize,
        payload: PutPayload,
    ) -> object_store::Result<PartId> {
        let number = (number + 1).to_string();
        let raw = self.raw(Method::PUT, path, &[("partNumber", &number), ("uploadId", upload)]);
        let request = self.signed(raw.header("x-goog-hash", &crc32c(&payload)).body(payload)).await?;
        let answer = done(&self.client, request, path).await?;
        let tag = answer.header("etag").ok_or_else(|| generic("the answer to a part has no ETag"))?;
        Ok(PartId { content_id: tag.to_owned() })
    }

    /// Makes the object from its parts. An empty object gets one empty part. (The crate would write an
    /// empty object without its metadata.)
    pub async fn complete(&self, path: &Path, upload: &str, mut parts: Vec<PartId>) -> object_store::Result<()> {
        if parts.is_empty() {
            parts.push(self.write_part(path, upload, 0, PutPayload::new()).await?);
        }
        self.store.complete_multipart(path, &upload.to_owned(), parts).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    #[test]
    fn the_checksum_of_a_part_is_the_check_value_of_crc_32c_with_its_highest_byte_first() {
        let expected = format!("crc32c={}", STANDARD.encode(0xe306_9283_u32.to_be_bytes()));
        assert_eq!(crc32c(&PutPayload::from_static(b"123456789")), expected);
    }
}
