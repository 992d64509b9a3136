//! Containers of Azure Blob Storage. A blob is made of blocks. They are invisible until their list is put; no request
//! begins an upload.
//!
//! The crate sends no metadata and no checksums with blocks and their lists, so this module sends them, signed by the
//! crate. The id of an upload is `UUID:SET`: its blocks are named by the UUID and their numbers, and SET goes into the
//! metadata of the blob.
//!
//! Public sources: Azure Blob Storage REST API (Put Block, Put Block List, Get Block List, Put Blob, Delete Blob, List
//! Blobs; Naming and Referencing Metadata; Authorize with Shared Key).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use object_store::azure::{AzureAuthorizer, MicrosoftAzure};
use object_store::client::{HttpClient, HttpConnector, HttpRequest};
use object_store::multipart::PartId;
use object_store::path::Path;
use object_store::signer::Method;
use object_store::{Error as StoreError, PutPayload};
use uuid::Uuid;

use super::azure_settings::{self, Settings};
use super::client::ClientSettings;
use super::connection::Connector;
use super::raw::{Raw, done, refused};
use super::signed::{Answer, UnfinishedUpload, UploadedPart, encoded, generic};
use super::xml::{Element, said};
use super::{Control, Upload, explained};
use crate::error::Result;

/// The metadata of a blob that says which set it belongs to.
const SET_HEADER: &str = "x-ms-meta-fullbore_set";
/// The most blocks of a blob.
pub(super) const BLOCKS_MOST: u64 = 50_000;
/// Bytes of the longest answer: a page of a listing has 5,000 blobs, whose names have 1,024 characters.
const ANSWER_MOST: usize = 32 << 20;
/// The most pages of a listing.
const PAGES_MOST: usize = 10_000;

/// A container.
pub(super) struct Azure {
    pub store: MicrosoftAzure,
    client: HttpClient,
    account: String,
    /// Where the container is: `https://account.blob.core.windows.net/container`.
    address: String,
    signs: bool,
}

/// A new upload for a blob of the media set `set`. The service learns of it with the first block.
pub(super) fn begin(set: &str) -> String {
    format!("{}:{set}", Uuid::new_v4())
}

/// The parts of an upload's id; the set is unknown if the upload was found by its blocks.
fn parts_of(upload: &str) -> object_store::Result<(Uuid, &str)> {
    let (id, set) = upload.split_once(':').unwrap_or((upload, ""));
    let id = id.parse().map_err(|_| generic("<Code>NoSuchUpload</Code>"))?;
    Ok((id, set))
}

/// The name of a block. All names of a blob's blocks must have the same length.
fn block_name(upload: Uuid, number: u64) -> String {
    let mut name = upload.as_bytes().to_vec();
    name.extend_from_slice(&number.to_be_bytes());
    STANDARD.encode(name)
}

/// The upload that a block belongs to, and the block's number; nothing if it is not one of ours.
fn named(block: &str) -> Option<(Uuid, u64)> {
    let name = STANDARD.decode(block).ok()?;
    let (upload, number) = name.split_at_checked(16)?;
    Some((Uuid::from_slice(upload).ok()?, u64::from_be_bytes(number.try_into().ok()?)))
}

/// The checksum that the service compares a body with: CRC-64/NVME, lowest byte first.
fn crc64(body: &PutPayload) -> String {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc64Nvme);
    body.iter().for_each(|bytes| digest.update(bytes));
    STANDARD.encode(digest.finalize().to_le_bytes())
}

/// The list of a blob's blocks. `Latest`: if the answer is lost and the list is put again, the blocks are committed
/// already.
fn list_of(parts: &[PartId]) -> PutPayload {
    let blocks: String = parts.iter().map(|part| format!("<Latest>{}</Latest>", part.content_id)).collect();
    PutPayload::from(format!("<?xml version=\"1.0\" encoding=\"utf-8\"?><BlockList>{blocks}</BlockList>"))
}

/// An uncommitted block.
struct Block {
    upload: Uuid,
    number: u64,
    size: u64,
}

impl Azure {
    pub fn open(name: &str, control: &Control, manner: &ClientSettings) -> Result<Self> {
        let thing = format!("az://{name}");
        let Settings { mut builder, account, endpoint } = azure_settings::read(&thing, &control.settings)?;
        let options = manner.options_for(&endpoint);
        let connector = Connector { answer_most: ANSWER_MOST, ..manner.connector.clone() };
        builder = builder.with_container_name(name).with_retry(manner.retry.clone());
        builder = builder.with_client_options(options.clone()).with_http_connector(connector.clone());
        let failed = |error: StoreError| explained("open", &thing, &error);
        let signs = !azure_settings::is_anonymous(&control.settings);
        Ok(Self {
            store: builder.build().map_err(failed)?,
            client: connector.connect(&options).map_err(failed)?,
            account,
            address: format!("{}/{name}", endpoint.trim_end_matches('/')),
            signs,
        })
    }

    fn raw(&self, method: Method, path: &Path, query: &[(&str, &str)]) -> Raw {
        let key = path.as_ref().split('/').filter(|part| !part.is_empty()).map(encoded);
        let address = key.fold(self.address.clone(), |address, part| format!("{address}/{part}"));
        Raw::new(method, address, query)
    }

    async fn signed(&self, raw: Raw) -> object_store::Result<HttpRequest> {
        let mut request = raw.request()?;
        if self.signs {
            let credential = self.store.credentials().get_credential().await?;
            AzureAuthorizer::new(&credential, &self.account).try_authorize(&mut request)?;
        }
        Ok(request)
    }

    async fn send(&self, raw: Raw, path: &Path) -> object_store::Result<Answer> {
        done(&self.client, self.signed(raw).await?, path).await
    }

    /// Sends a request; one try, whatever the answer.
    pub async fn tell(&self, method: Method, path: &Path, query: &[(&str, &str)]) -> object_store::Result<Answer> {
        super::signed::answer(&self.client, self.signed(self.raw(method, path, query)).await?).await
    }

    /// Uploads block `number`.
    pub async fn write_block(
        &self,
        path: &Path,
        upload: &str,
        number: usize,
        payload: PutPayload,
    ) -> object_store::Result<PartId> {
        let (name, checksum) = (block_name(parts_of(upload)?.0, number as u64), crc64(&payload));
        let once = || {
            let raw = self.raw(Method::PUT, path, &[("comp", "block"), ("blockid", &name)]);
            self.send(raw.header("x-ms-content-crc64", &checksum).body(payload.clone()), path)
        };
        once().await.map(|_| PartId { content_id: name.clone() })
    }

    /// Puts the list of blocks: from now on the blob is there.
    pub async fn complete(&self, path: &Path, upload: &str, parts: Vec<PartId>) -> object_store::Result<()> {
        let list = list_of(&parts);
        let raw = self.raw(Method::PUT, path, &[("comp", "blocklist")]).header("x-ms-content-crc64", &crc64(&list));
        let raw = raw.header("x-ms-blob-content-type", "application/octet-stream");
        self.send(raw.header(SET_HEADER, parts_of(upload)?.1).body(list), path).await.map(drop)
    }

    /// Lets the service forget the blocks of an upload. It has no request for that. But a list that names none of the
    /// blocks drops them and makes an empty blob, which is removed at once. Where a blob exists already, the blocks
    /// stay for a week, invisible.
    pub async fn abort(&self, path: &Path, upload: &str) -> object_store::Result<()> {
        let id = parts_of(upload)?.0;
        if !self.uncommitted(path).await?.is_some_and(|blocks| blocks.iter().any(|block| block.upload == id)) {
            return Ok(());
        }
        let raw = self.raw(Method::PUT, path, &[("comp", "blocklist")]).header("if-none-match", "*").body(list_of(&[]));
        let put = match self.send(raw, path).await {
            Err(StoreError::AlreadyExists { .. } | StoreError::Precondition { .. }) => return Ok(()),
            put => put?,
        };
        let tag = put.header("etag").unwrap_or_default();
        let removed = self.send(self.raw(Method::DELETE, path, &[]).header("if-match", tag), path).await;
        match removed {
            // Another program has put something else in its place.
            Err(StoreError::Precondition { .. } | StoreError::NotFound { .. }) => Ok(()),
            removed => removed.map(drop),
        }
    }

    /// Removes a blob.
    pub async fn remove(&self, path: &Path) -> object_store::Result<()> {
        self.send(self.raw(Method::DELETE, path, &[]), path).await.map(drop)
    }

    /// The blocks of a blob that are not part of it; nothing if there is neither a blob nor a block.
    async fn uncommitted(&self, path: &Path) -> object_store::Result<Option<Vec<Block>>> {
        let answer = self.tell(Method::GET, path, &[("comp", "blocklist"), ("blocklisttype", "uncommitted")]).await?;
        if answer.status == 404 && said(&answer.body, "Code").is_none_or(|code| code == "BlobNotFound") {
            return Ok(None);
        }
        if !answer.is_success() {
            return Err(refused(&answer, path));
        }
        let block = |inside: &Element<'_>| {
            let (upload, number) = named(inside.text("Name")?)?;
            Some(Block { upload, number, size: inside.text("Size")?.parse().ok()? })
        };
        let list = Element::read(&answer.body).map_err(generic)?;
        Ok(Some(list.all("Block").into_iter().filter_map(block).collect()))
    }

    /// The blocks that the service has of an upload; nothing if it has none.
    pub async fn parts(&self, path: &Path, upload: &str) -> object_store::Result<Option<Vec<UploadedPart>>> {
        let id = parts_of(upload)?.0;
        let blocks = self.uncommitted(path).await?.unwrap_or_default();
        let part = |block: &Block| {
            let number = u32::try_from(block.number + 1).ok()?;
            Some(UploadedPart { number, size: block.size, tag: block_name(id, block.number), crc32c: None })
        };
        let mut parts: Vec<_> = blocks.iter().filter(|block| block.upload == id).filter_map(part).collect();
        parts.sort_by_key(|part| part.number);
        Ok(Some(parts).filter(|parts| !parts.is_empty()))
    }

    /// The uploads under `prefix` that have blocks, but no blob.
    pub async fn unfinished_uploads(&self, prefix: &str) -> object_store::Result<Vec<UnfinishedUpload>> {
        let (mut found, mut marker) = (Vec::new(), String::new());
        for _ in 0..PAGES_MOST {
            let fixed =
                [("restype", "container"), ("comp", "list"), ("include", "uncommittedblobs"), ("prefix", prefix)];
            let mut query = fixed.to_vec();
            if !marker.is_empty() {
                query.push(("marker", &marker));
            }
            let answer = self.send(self.raw(Method::GET, &Path::default(), &query), &Path::default()).await?;
            let page = Element::read(&answer.body).map_err(generic)?;
            // A name with blocks and without a blob is listed as empty.
            let is_empty = |blob: &Element<'_>| blob.text("Content-Length").is_none_or(|length| length == "0");
            for blob in page.all("Blob").into_iter().filter(|blob| is_empty(blob)) {
                let Some(key) = blob.text("Name") else { continue };
                found.extend(self.uploads_of(key).await?);
            }
            match page.text("NextMarker").filter(|next| !next.is_empty()) {
                Some(next) if next != marker => marker = next.to_owned(),
                _ => return Ok(found),
            }
        }
        Err(generic("the listing of uncommitted blobs does not end"))
    }

    async fn uploads_of(&self, key: &str) -> object_store::Result<Vec<UnfinishedUpload>> {
        let mut ids: Vec<Uuid> =
            self.uncommitted(&Path::parse(key)?).await?.unwrap_or_default().iter().map(|block| block.upload).collect();
        ids.sort_unstable();
        ids.dedup();
        let upload =
            |id: Uuid| UnfinishedUpload { key: key.to_owned(), upload: Upload(id.to_string()), initiated: None };
        Ok(ids.into_iter().map(upload).collect())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_named_by_its_upload_and_number_and_all_names_are_of_one_length() {
        let upload = begin("set");
        let (id, set) = parts_of(&upload).unwrap();
        assert_eq!(set, "set");
        assert_eq!(parts_of(&id.to_string()).unwrap(), (id, ""));
        for number in [0, 1, BLOCKS_MOST, u64::MAX] {
            let name = block_name(id, number);
            assert_eq!((name.len(), named(&name)), (32, Some((id, number))));
        }
        for foreign in ["", "AAAA", "no base64", &STANDARD.encode([0; 25])] {
            assert_eq!(named(foreign), None, "{foreign}");
        }
        assert!(parts_of("no upload").is_err());
    }

    #[test]
    fn the_checksum_is_the_one_of_the_check_value_of_crc_64_nvme() {
        let expected = STANDARD.encode(0xae8b_1486_0a79_9888_u64.to_le_bytes());
        assert_eq!(crc64(&PutPayload::from_static(b"123456789")), expected);
    }
}
