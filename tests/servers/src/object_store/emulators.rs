//! How a test looks into the emulators of Azure and Google: requests of their own interfaces, which do not rest on the code under test.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Deserialize;

use super::{Object, ObjectStore, StoreKind};
use crate::s3_client::{Answer, Call, elements};

/// The version of Azure's interface that is spoken here.
const AZURE_VERSION: &str = "2023-11-03";
/// What signatures of an account permit until then: everything in blobs.
const AZURE_UNTIL: &str = "2099-01-01T00:00:00Z";

/// A page of a listing of Google's JSON interface.
#[derive(Deserialize)]
struct GooglePage {
    #[serde(default)]
    items: Vec<GoogleObject>,
    #[serde(rename = "nextPageToken")]
    next: Option<String>,
}

#[derive(Deserialize)]
struct GoogleObject {
    name: String,
    size: String,
}

impl ObjectStore {
    /// The request that tells whether this server runs, and is this one.
    pub(super) fn proof_of_life(&self) -> Call {
        match self.kind {
            StoreKind::Versitygw | StoreKind::Minio => Call::new("GET", "/"),
            StoreKind::Azurite => self.azure("GET", "").query("comp", "list"),
            StoreKind::FakeGcs => Call::new("GET", "/_internal/healthcheck").unsigned(),
        }
    }

    /// What permits everything in this store of Azure for as long as tests run, as pairs of a query: an account's signature.
    pub fn azure_signature(&self) -> Vec<(&'static str, String)> {
        let account = self.access_key();
        let signed = format!("{account}\nrwdlac\nb\nsco\n\n{AZURE_UNTIL}\n\n\n{AZURE_VERSION}\n\n");
        let key = BASE64.decode(self.secret_key()).unwrap_or_else(|error| panic!("the key of {account}: {error}"));
        let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), signed.as_bytes());
        [
            ("sv", AZURE_VERSION),
            ("ss", "b"),
            ("srt", "sco"),
            ("sp", "rwdlac"),
            ("se", AZURE_UNTIL),
            ("sig", BASE64.encode(signature).as_str()),
        ]
        .map(|(name, value)| (name, value.to_owned()))
        .to_vec()
    }

    fn azure(&self, method: &str, path: &str) -> Call {
        let call = Call::new(method, &format!("/{}{path}", self.access_key())).unsigned();
        let call = call.header("x-ms-version", AZURE_VERSION);
        self.azure_signature().iter().fold(call, |call, (name, value)| call.query(name, value))
    }

    /// A request about an object that this store understands, with what permits it.
    fn about(&self, method: &str, bucket: &str, key: &str) -> Call {
        match self.kind {
            StoreKind::Versitygw | StoreKind::Minio => Call::new(method, &format!("/{bucket}/{key}")),
            StoreKind::Azurite => self.azure(method, &format!("/{bucket}/{key}")).header("x-ms-blob-type", "BlockBlob"),
            StoreKind::FakeGcs if method == "PUT" => Call::new("POST", &format!("/upload/storage/v1/b/{bucket}/o"))
                .query("uploadType", "media")
                .query("name", key)
                .unsigned(),
            StoreKind::FakeGcs => Call::new(method, &format!("/{bucket}/{key}")).unsigned(),
        }
    }

    pub(super) fn demand_bucket(&self, name: &str) {
        let call = match self.kind {
            StoreKind::Versitygw | StoreKind::Minio => Call::new("PUT", &format!("/{name}")),
            StoreKind::Azurite => self.azure("PUT", &format!("/{name}")).query("restype", "container"),
            StoreKind::FakeGcs => {
                let call = Call::new("POST", "/storage/v1/b").query("project", "tests").unsigned();
                call.body(format!("{{\"name\": \"{name}\"}}").as_bytes())
            }
        };
        self.client.demand(&call);
    }

    /// Writes an object, in any kind of store.
    ///
    /// # Panics
    /// If the store does not take it.
    pub fn put(&self, bucket: &str, key: &str, bytes: &[u8]) {
        self.client.demand(&self.about("PUT", bucket, key).body(bytes));
    }

    /// An object's bytes, in any kind of store.
    ///
    /// # Panics
    /// If it is not there.
    pub fn get(&self, bucket: &str, key: &str) -> Vec<u8> {
        self.client.demand(&self.about("GET", bucket, key)).body
    }

    /// What a store says of an object without giving it, whatever the status.
    ///
    /// # Panics
    /// If there is no answer.
    pub fn head(&self, bucket: &str, key: &str) -> Answer {
        let answer = self.client.send(&self.about("HEAD", bucket, key));
        answer.unwrap_or_else(|failure| panic!("HEAD {bucket}/{key}: {failure}"))
    }

    /// Removes an object, in any kind of store.
    ///
    /// # Panics
    /// If the store does not.
    pub fn remove(&self, bucket: &str, key: &str) {
        self.client.demand(&self.about("DELETE", bucket, key));
    }

    /// Puts a block of Azure that belongs to no blob yet.
    ///
    /// # Panics
    /// If the store does not take it.
    pub fn put_block(&self, bucket: &str, key: &str, block: &str, bytes: &[u8]) {
        let call = self.about("PUT", bucket, key).query("comp", "block").query("blockid", block);
        self.client.demand(&call.body(bytes));
    }

    pub(super) fn azure_objects(&self, bucket: &str) -> Vec<Object> {
        let call = self.azure("GET", &format!("/{bucket}")).query("restype", "container").query("comp", "list");
        let page = self.client.demand(&call).text();
        assert!(elements(&page, "NextMarker").iter().all(String::is_empty), "more than a page: {page}");
        let objects = elements(&page, "Blob").into_iter().map(|blob| {
            let part = |name: &str| elements(&blob, name).into_iter().next().unwrap_or_default();
            Object { key: part("Name"), size: part("Content-Length").parse().unwrap_or_else(|_| panic!("{blob}")) }
        });
        objects.collect()
    }

    /// The blobs of which there are blocks that no list of blocks was put for, with what Azure calls these blocks: as `ObjectStore::uploads`.
    pub(super) fn azure_uploads(&self, bucket: &str) -> Vec<(String, String)> {
        let call = self.azure("GET", &format!("/{bucket}")).query("restype", "container").query("comp", "list");
        let page = self.client.demand(&call.query("include", "uncommittedblobs")).text();
        let mut found = Vec::new();
        for key in elements(&page, "Name") {
            let blocks = self.azure("GET", &format!("/{bucket}/{key}")).query("comp", "blocklist");
            let blocks = self.client.demand(&blocks.query("blocklisttype", "uncommitted")).text();
            found.extend(elements(&blocks, "Name").into_iter().map(|block| (key.clone(), block)));
        }
        found
    }

    pub(super) fn google_objects(&self, bucket: &str) -> Vec<Object> {
        let (mut found, mut token) = (Vec::new(), None);
        loop {
            let call = Call::new("GET", &format!("/storage/v1/b/{bucket}/o")).unsigned();
            let call = token.iter().fold(call, |call, token: &String| call.query("pageToken", token));
            let text = self.client.demand(&call).text();
            let page: GooglePage = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
            found.extend(page.items.into_iter().map(|object| Object {
                size: object.size.parse().unwrap_or_else(|_| panic!("{} has the size {}", object.name, object.size)),
                key: object.name,
            }));
            token = page.next.filter(|token| !token.is_empty());
            if token.is_none() {
                return found;
            }
        }
    }
}

/// What the account of an Azure store is let in by: a key in base64.
pub(super) fn azure_key(secret: &str) -> String {
    BASE64.encode(secret)
}
