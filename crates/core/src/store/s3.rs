//! Buckets that speak S3.
//!
//! Public sources: Amazon S3 API Reference (PutObject, CreateMultipartUpload, UploadPart, CompleteMultipartUpload,
//! GetObject).

use std::sync::{Arc, Mutex, PoisonError};

use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey, Checksum};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::signer::Method;
use object_store::{
    Attribute, Attributes, ClientOptions, Error as StoreError, HeaderMap, HeaderValue, PutMultipartOptions, PutPayload,
    TagSet,
};
use reqwest::Certificate;

use super::client::{ClientSettings, SET};
use super::connection::Connector;
use super::object_options::{Encryption, ObjectLock, ObjectOptions};
use super::signed::{Answer, Signed, SigningSettings};
use super::{Control, explained, multipart, profile};
use crate::error::{Error, Result};
use crate::io::read_whole;

/// The most parts of an object in most stores, and in those whose hosts end so.
const PARTS_MOST: u64 = 10_000;
const PARTS_MOST_AT: [(&str, u64); 1] = [(".scw.cloud", 1_000)];
/// The environment's settings of encryption: its algorithm and the name of a key.
const ENCRYPTION: [&str; 2] = ["AWS_SERVER_SIDE_ENCRYPTION", "AWS_SSE_KMS_KEY_ID"];

/// The environment's setting of checksums for the crate. fullbore chooses them here and in multipart.rs.
const CHECKSUMS: &str = "AWS_CHECKSUM_ALGORITHM";

/// A bucket.
pub(super) struct S3 {
    pub store: AmazonS3,
    /// The same store for the requests that begin an object: they name the checksums of the parts, and ask for a lock.
    /// Beside it, that lock.
    beginning: Mutex<(Option<ObjectLock>, AmazonS3)>,
    /// Makes that store again when the lock changes.
    builder: AmazonS3Builder,
    /// The encryption that is requested for each object: by an option, or by the environment.
    pub encryption: Option<Encryption>,
    pub parts_most: u64,
    connector: Connector,
    options: ClientOptions,
    manners: SigningSettings,
    /// `AWS_SKIP_SIGNATURE`: requests are not signed.
    anonymous: bool,
    signed: Mutex<Option<Arc<Signed>>>,
}

impl S3 {
    pub fn open(name: &str, control: &Control, manner: &ClientSettings) -> Result<Self> {
        let thing = format!("s3://{name}");
        let mut builder = AmazonS3Builder::new().with_retry(manner.retry.clone());
        builder = builder.with_unsigned_payload(true);
        // An option may name another encryption than the environment: it is set below, so that the two are not mixed.
        let ours = |name: &str| ENCRYPTION.contains(&name) || name == CHECKSUMS || !name.starts_with("AWS_");
        for (name, value) in control.settings.iter().chain(&profile::added(&control.settings)?) {
            if ours(name) {
                continue;
            }
            if let Ok(key) = name.to_ascii_lowercase().parse::<AmazonS3ConfigKey>() {
                builder = builder.with_config(key, value);
            }
        }
        let endpoint = [AmazonS3ConfigKey::S3Endpoint, AmazonS3ConfigKey::Endpoint];
        let endpoint = endpoint.iter().find_map(|key| builder.get_config_value(key)).unwrap_or_default();
        let options = manner.options_for(&endpoint);
        let connector = Connector { certificates: trusted(control)?, ..manner.connector.clone() };
        let encryption = encryption(control)?;
        for (name, value) in encryption.iter().flat_map(encryption_settings) {
            let key = name.parse::<AmazonS3ConfigKey>().map_err(|error| explained("open", &thing, &error))?;
            builder = builder.with_config(key, value);
        }
        builder = builder.with_bucket_name(name).with_client_options(options.clone());
        builder = builder.with_http_connector(connector.clone());
        let says = |key: AmazonS3ConfigKey, word: &str| builder.get_config_value(&key).as_deref() == Some(word);
        let manners = SigningSettings {
            region: builder.get_config_value(&AmazonS3ConfigKey::Region),
            signs_parts: says(AmazonS3ConfigKey::UnsignedPayload, "false"),
            pays: says(AmazonS3ConfigKey::RequestPayer, "true"),
        };
        let anonymous = says(AmazonS3ConfigKey::SkipSignature, "true");
        let build = |builder: AmazonS3Builder| builder.build().map_err(|error| explained("open", &thing, &error));
        // The checksum of small objects: it costs a tenth of the hash for a signature. Parts have another one, which
        // the crate does not know.
        let store = build(builder.clone().with_checksum_algorithm(Checksum::CRC64NVME))?;
        let lock = control.lock();
        let beginning = build(saying(&builder, &options, lock.as_ref()))?;
        let beginning = Mutex::new((lock, beginning));
        let known = PARTS_MOST_AT.iter().find(|(host, _)| host_of(&endpoint).ends_with(host)).map(|(_, parts)| *parts);
        let parts_most = control.objects.max_parts.or(known).unwrap_or(PARTS_MOST);
        let signed = Mutex::default();
        Ok(Self { store, beginning, builder, encryption, parts_most, connector, options, manners, anonymous, signed })
    }

    /// The store that begins objects with this lock.
    fn beginning(&self, lock: Option<ObjectLock>) -> object_store::Result<AmazonS3> {
        let mut beginning = self.beginning.lock().unwrap_or_else(PoisonError::into_inner);
        if beginning.0 != lock {
            let made = saying(&self.builder, &self.options, lock.as_ref()).build()?;
            *beginning = (lock, made);
        }
        Ok(beginning.1.clone())
    }

    /// Begins an object of the media set `set`.
    pub async fn begin(
        &self,
        path: &Path,
        set: &str,
        objects: &ObjectOptions,
        lock: Option<ObjectLock>,
    ) -> object_store::Result<String> {
        if self.anonymous {
            let source = "<Code>AnonymousWrite</Code>".into();
            return Err(StoreError::PermissionDenied { path: path.to_string(), source });
        }
        let mut attributes = Attributes::from_iter([(Attribute::Metadata(SET.into()), set.to_owned())]);
        if let Some(class) = &objects.storage_class {
            attributes.insert(Attribute::StorageClass, class.clone().into());
        }
        let mut tags = TagSet::default();
        objects.tags.iter().for_each(|(key, value)| tags.push(key, value));
        let options = PutMultipartOptions { attributes, tags, ..PutMultipartOptions::default() };
        self.beginning(lock)?.create_multipart_opts(path, options).await
    }

    /// Uploads part `number`, from 0; one try.
    pub async fn write_part(
        &self,
        path: &Path,
        upload: &str,
        number: usize,
        payload: PutPayload,
    ) -> object_store::Result<PartId> {
        multipart::write_part(&*self.signed()?, &self.store, path, upload, number, payload).await
    }

    /// Makes the object out of its parts; one try.
    pub async fn complete(&self, path: &Path, upload: &str, parts: Vec<PartId>) -> object_store::Result<()> {
        multipart::complete(&*self.signed()?, &self.store, path, upload, parts).await
    }

    /// Sends a request that the crate has no method for; one try.
    pub async fn tell(
        &self,
        method: Method,
        path: &Path,
        query: &[(&str, &str)],
        body: &str,
    ) -> object_store::Result<Answer> {
        self.signed()?.send(&self.store, method, path, query, body).await
    }

    /// The client that sends it; it connects when it is first needed.
    fn signed(&self) -> object_store::Result<Arc<Signed>> {
        let mut signed = self.signed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(signed) = &*signed {
            return Ok(Arc::clone(signed));
        }
        Ok(Arc::clone(signed.insert(Arc::new(Signed::new(&self.connector, &self.options, self.manners.clone())?))))
    }
}

/// A client whose requests have the headers that begin an object.
fn saying(builder: &AmazonS3Builder, options: &ClientOptions, lock: Option<&ObjectLock>) -> AmazonS3Builder {
    let mut said = multipart::beginning();
    said.extend(lock.map(lock_headers).unwrap_or_default());
    builder.clone().with_client_options(options.clone().with_default_headers(said))
}

/// Bytes of the longest bundle of certificates: the bundle of a whole system has a quarter of a MiB.
const CA_BUNDLE_MAX: usize = 4 << 20;

/// Authorities to trust besides those of the machine.
fn trusted(control: &Control) -> Result<Vec<Certificate>> {
    if let Some((_, path)) = control.settings.iter().find(|(name, _)| name == "AWS_CA_BUNDLE") {
        let pem = read_whole(std::path::Path::new(path), CA_BUNDLE_MAX)
            .map_err(|error| Error::io("read AWS_CA_BUNDLE from", path, error))?;
        let certificates = pem.and_then(|pem| Certificate::from_pem_bundle(&pem).ok()).unwrap_or_default();
        if certificates.is_empty() {
            let why = "holds no certificates, or is too long";
            return Err(Error::usage(
                format!("AWS_CA_BUNDLE={path}"),
                why,
                "name a file with certificates in PEM form",
            ));
        }
        return Ok(certificates);
    }
    Ok(Vec::new())
}

/// The encryption that an option or the environment requests.
fn encryption(control: &Control) -> Result<Option<Encryption>> {
    if control.objects.encryption.is_some() {
        return Ok(control.objects.encryption.clone());
    }
    let setting =
        |name: &str| control.settings.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    let Some(algorithm) = setting(ENCRYPTION[0]).filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    let key = setting(ENCRYPTION[1]).filter(|_| algorithm.starts_with("aws:kms"));
    let text = key.map_or_else(|| algorithm.to_owned(), |key| format!("{algorithm}:{key}"));
    Encryption::parse(ENCRYPTION[0], &text).map(Some)
}

/// The crate's names for it.
fn encryption_settings(encryption: &Encryption) -> Vec<(&'static str, String)> {
    let mut settings = vec![("aws_server_side_encryption", encryption.algorithm.to_owned())];
    settings.extend(encryption.key.clone().map(|key| ("aws_sse_kms_key_id", key)));
    settings
}

fn lock_headers(lock: &ObjectLock) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in [
        ("x-amz-object-lock-mode", lock.mode.to_string()),
        ("x-amz-object-lock-retain-until-date", lock.until.to_string()),
    ] {
        // Both are made of letters, digits and hyphens.
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(name, value);
        }
    }
    headers
}

/// The host of `https://host:port/path`.
fn host_of(endpoint: &str) -> String {
    let rest = endpoint.split_once("://").map_or(endpoint, |(_, rest)| rest);
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    host.rsplit_once(':').map_or(host, |(host, _)| host).to_ascii_lowercase()
}
