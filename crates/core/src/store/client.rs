//! What differs between the services that keep objects. Reading, listing and small objects are the same in all of them.

use object_store::list::{PaginatedListOptions, PaginatedListResult, PaginatedListStore};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::signer::Method;
use object_store::{
    Attribute, ClientOptions, Error as StoreError, ObjectStore, ObjectStoreExt, PutPayload, RetryConfig,
};

use super::Control;
#[cfg(feature = "azure")]
use super::azure::Azure;
use super::connection::Connector;
use super::errors::is_absent;
#[cfg(feature = "gcs")]
use super::google::Google;
use super::object_options::{Encryption, ObjectOptions};
use super::s3::S3;
use super::signed::Answer;
use crate::device::{BucketName, Service};
use crate::error::{Error, Result};

/// The metadata of an object that says its set. It tells a lost answer to the last request from a failure.
pub(super) const SET: &str = "fullbore-set";

/// How connections are made and requests tried again, in all services.
pub(super) struct ClientSettings {
    pub retry: RetryConfig,
    pub connector: Connector,
}

impl ClientSettings {
    /// The options of a client of this endpoint. An endpoint with http:// allows plain HTTP.
    pub fn options_for(&self, endpoint: &str) -> ClientOptions {
        let (options, plain) = (self.connector.options(), endpoint.to_ascii_lowercase().starts_with("http://"));
        if plain { options.with_allow_http(true) } else { options }
    }
}

/// The service that is asked.
pub(super) enum Client {
    S3(Box<S3>),
    #[cfg(feature = "azure")]
    Azure(Box<Azure>),
    #[cfg(feature = "gcs")]
    Google(Box<Google>),
}

impl Client {
    /// Opens a bucket. Asks the service nothing.
    pub fn open(name: &BucketName, control: &Control, manner: &ClientSettings) -> Result<Self> {
        if name.service != Service::S3 {
            refuse_options(name, &control.objects)?;
        }
        match name.service {
            Service::S3 => Ok(Self::S3(Box::new(S3::open(&name.name, control, manner)?))),
            #[cfg(feature = "azure")]
            Service::Azure => Ok(Self::Azure(Box::new(Azure::open(&name.name, control, manner)?))),
            #[cfg(not(feature = "azure"))]
            Service::Azure => Err(not_built(name, "Azure Blob Storage", "azure")),
            #[cfg(feature = "gcs")]
            Service::Google => Ok(Self::Google(Box::new(Google::open(&name.name, control, manner)?))),
            #[cfg(not(feature = "gcs"))]
            Service::Google => Err(not_built(name, "Google Cloud Storage", "gcs")),
        }
    }

    /// What all of them can do in the same way.
    pub fn objects(&self) -> &dyn ObjectStore {
        match self {
            Self::S3(s3) => &s3.store,
            #[cfg(feature = "azure")]
            Self::Azure(azure) => &azure.store,
            #[cfg(feature = "gcs")]
            Self::Google(google) => &google.store,
        }
    }

    /// A page of a listing: the objects whose keys begin with `prefix` and have no further `/`, from `token` on.
    pub async fn page(&self, prefix: &str, token: Option<String>) -> object_store::Result<PaginatedListResult> {
        let delimiter = Some("/".into());
        let options = PaginatedListOptions { delimiter, page_token: token, ..PaginatedListOptions::default() };
        let prefix = Some(prefix).filter(|prefix| !prefix.is_empty());
        match self {
            Self::S3(s3) => s3.store.list_paginated(prefix, options).await,
            #[cfg(feature = "azure")]
            Self::Azure(azure) => azure.store.list_paginated(prefix, options).await,
            #[cfg(feature = "gcs")]
            Self::Google(google) => google.store.list_paginated(prefix, options).await,
        }
    }

    /// The metadata of this name. Azure's names follow C#: they have no hyphens.
    pub fn metadata(&self, name: &'static str) -> Attribute {
        match self {
            #[cfg(feature = "azure")]
            Self::Azure(_) => Attribute::Metadata(name.replace('-', "_").into()),
            _ => Attribute::Metadata(name.into()),
        }
    }

    /// The most parts of an object.
    pub fn parts_most(&self) -> u64 {
        match self {
            Self::S3(s3) => s3.parts_most,
            #[cfg(feature = "azure")]
            Self::Azure(_) => super::azure::BLOCKS_MOST,
            #[cfg(feature = "gcs")]
            Self::Google(_) => super::google::PARTS_MOST,
        }
    }

    /// The encryption that is asked for with each object, and looked up afterwards.
    pub fn encryption(&self) -> Option<&Encryption> {
        match self {
            Self::S3(s3) => s3.encryption.as_ref(),
            // They always encrypt; fullbore asks them for nothing.
            #[cfg(feature = "azure")]
            Self::Azure(_) => None,
            #[cfg(feature = "gcs")]
            Self::Google(_) => None,
        }
    }

    /// True for what speaks S3.
    pub fn is_s3(&self) -> bool {
        matches!(self, Self::S3(_))
    }

    /// Begins an object of the media set `set`; the id of its upload.
    pub async fn begin(&self, path: &Path, set: &str, control: &Control) -> object_store::Result<String> {
        match self {
            Self::S3(s3) => s3.begin(path, set, &control.objects, control.lock()).await,
            #[cfg(feature = "azure")]
            Self::Azure(_) => Ok(super::azure::begin(set)),
            #[cfg(feature = "gcs")]
            Self::Google(google) => google.begin(path, set).await,
        }
    }

    /// Uploads part `number`, from 0.
    pub async fn write_part(
        &self,
        path: &Path,
        upload: &str,
        number: usize,
        payload: PutPayload,
    ) -> object_store::Result<PartId> {
        match self {
            Self::S3(s3) => s3.write_part(path, upload, number, payload).await,
            #[cfg(feature = "azure")]
            Self::Azure(azure) => azure.write_block(path, upload, number, payload).await,
            #[cfg(feature = "gcs")]
            Self::Google(google) => google.write_part(path, upload, number, payload).await,
        }
    }

    /// Makes the object out of its parts.
    pub async fn complete(&self, path: &Path, upload: &str, parts: Vec<PartId>) -> object_store::Result<()> {
        match self {
            Self::S3(s3) => s3.complete(path, upload, parts).await,
            #[cfg(feature = "azure")]
            Self::Azure(azure) => azure.complete(path, upload, parts).await,
            #[cfg(feature = "gcs")]
            Self::Google(google) => google.complete(path, upload, parts).await,
        }
    }

    /// Gives up an upload, if it exists.
    pub async fn abort(&self, path: &Path, upload: &str) -> object_store::Result<()> {
        let aborted = match self {
            Self::S3(s3) => s3.store.abort_multipart(path, &upload.to_owned()).await,
            #[cfg(feature = "azure")]
            Self::Azure(azure) => azure.abort(path, upload).await,
            #[cfg(feature = "gcs")]
            Self::Google(google) => google.store.abort_multipart(path, &upload.to_owned()).await,
        };
        match aborted {
            Err(StoreError::NotFound { .. }) => Ok(()),
            aborted => aborted,
        }
    }

    /// Removes an object, if it exists.
    pub async fn remove(&self, path: &Path) -> object_store::Result<()> {
        let removed = match self {
            Self::S3(s3) => s3.store.delete(path).await,
            #[cfg(feature = "azure")]
            Self::Azure(azure) => azure.remove(path).await,
            #[cfg(feature = "gcs")]
            Self::Google(google) => google.store.delete(path).await,
        };
        match removed {
            Err(error) if is_absent(&error) => Ok(()),
            removed => removed,
        }
    }

    /// Sends a request that the crate has no method for; one try. Only S3 gets a body.
    pub async fn tell(
        &self,
        method: Method,
        path: &Path,
        query: &[(&str, &str)],
        body: &str,
    ) -> object_store::Result<Answer> {
        match self {
            Self::S3(s3) => s3.tell(method, path, query, body).await,
            #[cfg(feature = "azure")]
            Self::Azure(azure) => azure.tell(method, path, query).await,
            #[cfg(feature = "gcs")]
            Self::Google(google) => google.tell(method, path, query).await,
        }
    }
}

/// Refuses options that only S3 has: another store would ignore them silently.
fn refuse_options(name: &BucketName, objects: &ObjectOptions) -> Result<()> {
    let asked = [
        ("--sse", objects.encryption.is_some()),
        ("--storage-class", objects.storage_class.is_some()),
        ("--tag", !objects.tags.is_empty()),
        ("--lock-until", objects.lock.is_some()),
        ("--max-parts", objects.max_parts.is_some()),
    ];
    match asked.iter().find(|(_, asked)| *asked) {
        Some((flag, _)) => Err(Error::usage(
            *flag,
            format!("is for stores that speak S3, and {name} is not in one"),
            "leave it out, and set this in the bucket's own settings",
        )),
        None => Ok(()),
    }
}

#[cfg(not(all(feature = "azure", feature = "gcs")))]
fn not_built(name: &BucketName, what: &str, feature: &str) -> Error {
    Error::usage(
        name.to_string(),
        format!("is in {what}, and this program was built without support for it"),
        format!("build it with the feature `{feature}`: cargo build --release --features {feature}"),
    )
}
