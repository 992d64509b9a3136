//! Lists: objects with prefix, delimiter and pages; parts; uploads; buckets.

use std::sync::Arc;

use s3s::dto::*;
use s3s::{S3Response, S3Result, s3_error};

use crate::answers::{blocking, moment};
use crate::digests::hex;
use crate::gateway::Gateway;
use crate::storage::{Done, ObjectInfo, Storage};
use crate::uploads::{Running, Uploads};

/// Entries of a page, at most: as in S3.
const PAGE_MAX: usize = 1000;
/// Greater than every text with this prefix, if it comes behind it.
const BEHIND: char = char::MAX;

/// Answers with an error if there is no such bucket.
pub(crate) fn must_exist(gateway: &Gateway, bucket: &str) -> S3Result<()> {
    match gateway.storage.buckets().iter().any(|known| known.name == bucket) {
        true => Ok(()),
        false => Err(s3_error!(NoSuchBucket, "this gateway has no such bucket: buckets are repositories")),
    }
}

/// The buckets that a key may use.
pub(crate) fn buckets(gateway: &Gateway, may_use: impl Fn(&str) -> bool) -> ListBucketsOutput {
    let bucket = |known: crate::storage::BucketInfo| Bucket {
        creation_date: Some(moment(known.created)),
        name: Some(known.name),
        ..Bucket::default()
    };
    let usable = gateway.storage.buckets().into_iter().filter(|known| may_use(&known.name));
    let buckets = usable.map(bucket).collect();
    ListBucketsOutput { buckets: Some(buckets), ..ListBucketsOutput::default() }
}

/// A page of a list.
#[derive(Debug, Default)]
struct Page {
    objects: Vec<ObjectInfo>,
    prefixes: Vec<String>,
    /// Where the next page begins, if there is one.
    next: Option<String>,
}

/// Entries with `prefix` that are after `after`. Keys that go on behind the delimiter are one entry.
fn page(storage: &dyn Storage, bucket: &str, prefix: &str, delimiter: &str, after: &str, most: usize) -> Done<Page> {
    let (mut page, mut after) = (Page::default(), after.to_owned());
    // The last page ended with a common prefix: its keys are not listed again.
    if let Some(common) = common_prefix(&after, prefix, delimiter).filter(|common| *common == after) {
        after = format!("{common}{BEHIND}");
    }
    let mut last = None;
    loop {
        let left = most.saturating_sub(page.objects.len() + page.prefixes.len());
        // One more shows whether there is another page.
        let found = storage.list(bucket, prefix, &after, left.saturating_add(1))?;
        let mut skipped = found.len() > left;
        for object in found {
            if page.objects.len() + page.prefixes.len() == most {
                page.next = last;
                return Ok(page);
            }
            match common_prefix(&object.key, prefix, delimiter) {
                // A key may go on with the greatest letter there is.
                Some(common) if page.prefixes.last().is_some_and(|last| last == common) => after = object.key.clone(),
                Some(common) => {
                    after = format!("{common}{BEHIND}");
                    last = Some(common.to_owned());
                    page.prefixes.push(common.to_owned());
                    skipped = true;
                    break;
                }
                None => {
                    (last, after) = (Some(object.key.clone()), object.key.clone());
                    page.objects.push(object);
                }
            }
        }
        if !skipped {
            return Ok(page);
        }
    }
}

/// The part of a key up to the first delimiter behind the prefix.
fn common_prefix<'a>(key: &'a str, prefix: &str, delimiter: &str) -> Option<&'a str> {
    if delimiter.is_empty() {
        return None;
    }
    let rest = key.strip_prefix(prefix)?;
    let at = rest.find(delimiter)?;
    key.get(..prefix.len() + at + delimiter.len())
}

/// Bytes as they are in a list with `encoding-type=url`, or as they are.
fn encoded(text: String, encoding: Option<&EncodingType>) -> String {
    if encoding.map(EncodingType::as_str) != Some("url") {
        return text;
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~/".contains(&byte);
    let one = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(one).collect()
}

fn listed(object: ObjectInfo, encoding: Option<&EncodingType>) -> Object {
    Object {
        e_tag: Some(ETag::Strong(object.etag)),
        key: Some(encoded(object.key, encoding)),
        last_modified: Some(moment(object.modified)),
        size: i64::try_from(object.bytes).ok(),
        storage_class: Some(ObjectStorageClass::from_static(ObjectStorageClass::STANDARD)),
        ..Object::default()
    }
}

fn most(asked: Option<i32>) -> S3Result<usize> {
    let wrong = || s3_error!(InvalidArgument, "max-keys is not from 0 on");
    let asked = asked.map(|asked| usize::try_from(asked).map_err(|_| wrong())).transpose()?;
    Ok(asked.unwrap_or(PAGE_MAX).min(PAGE_MAX))
}

async fn page_of(
    gateway: &Arc<Gateway>,
    bucket: &str,
    (prefix, delimiter, after): (Option<&String>, Option<&String>, Option<&String>),
    most: usize,
) -> S3Result<Page> {
    if most == 0 {
        must_exist(gateway, bucket)?;
        return Ok(Page::default());
    }
    let text = |text: Option<&String>| text.cloned().unwrap_or_default();
    let (prefix, delimiter, after) = (text(prefix), text(delimiter), text(after));
    let (storage, bucket) = (Arc::clone(&gateway.storage), bucket.to_owned());
    blocking(move || page(&*storage, &bucket, &prefix, &delimiter, &after, most)).await
}

/// The token of a page: the last entry before it, in hexadecimal. A key may have letters that XML changes.
fn token(last: &str) -> String {
    hex(last.as_bytes())
}

/// The entry of a token.
fn entry_of(token: &str) -> S3Result<String> {
    let digits = |pair: &[u8]| std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok());
    let bytes: Option<Vec<u8>> = token.as_bytes().chunks(2).map(digits).collect();
    let is_plain = token.len().is_multiple_of(2) && token.bytes().all(|byte| byte.is_ascii_hexdigit());
    let entry = bytes.filter(|_| is_plain).and_then(|bytes| String::from_utf8(bytes).ok());
    entry.ok_or_else(|| s3_error!(InvalidArgument, "the continuation token is not of this gateway"))
}

/// Answers ListObjectsV2.
pub(crate) async fn objects_v2(
    gateway: &Arc<Gateway>,
    input: ListObjectsV2Input,
) -> S3Result<S3Response<ListObjectsV2Output>> {
    let most = most(input.max_keys)?;
    let continued = input.continuation_token.as_deref().map(entry_of).transpose()?;
    let after = continued.as_ref().or(input.start_after.as_ref());
    let places = (input.prefix.as_ref(), input.delimiter.as_ref(), after);
    let page = page_of(gateway, &input.bucket, places, most).await?;
    let encoding = input.encoding_type.as_ref();
    let prefix = |prefix: String| CommonPrefix { prefix: Some(encoded(prefix, encoding)) };
    Ok(S3Response::new(ListObjectsV2Output {
        key_count: i32::try_from(page.objects.len() + page.prefixes.len()).ok(),
        is_truncated: Some(page.next.is_some()),
        next_continuation_token: page.next.as_deref().map(token),
        contents: Some(page.objects.into_iter().map(|object| listed(object, encoding)).collect()),
        common_prefixes: Some(page.prefixes.into_iter().map(prefix).collect()),
        max_keys: i32::try_from(most).ok(),
        name: Some(input.bucket),
        prefix: input.prefix.map(|prefix| encoded(prefix, encoding)),
        delimiter: input.delimiter.map(|delimiter| encoded(delimiter, encoding)),
        start_after: input.start_after.map(|after| encoded(after, encoding)),
        continuation_token: input.continuation_token,
        encoding_type: input.encoding_type.clone(),
        ..ListObjectsV2Output::default()
    }))
}

/// Answers ListObjects.
pub(crate) async fn objects(
    gateway: &Arc<Gateway>,
    input: ListObjectsInput,
) -> S3Result<S3Response<ListObjectsOutput>> {
    let most = most(input.max_keys)?;
    let places = (input.prefix.as_ref(), input.delimiter.as_ref(), input.marker.as_ref());
    let page = page_of(gateway, &input.bucket, places, most).await?;
    let encoding = input.encoding_type.as_ref();
    let prefix = |prefix: String| CommonPrefix { prefix: Some(encoded(prefix, encoding)) };
    Ok(S3Response::new(ListObjectsOutput {
        is_truncated: Some(page.next.is_some()),
        next_marker: page.next.map(|next| encoded(next, encoding)),
        contents: Some(page.objects.into_iter().map(|object| listed(object, encoding)).collect()),
        common_prefixes: Some(page.prefixes.into_iter().map(prefix).collect()),
        max_keys: i32::try_from(most).ok(),
        name: Some(input.bucket),
        prefix: input.prefix.map(|prefix| encoded(prefix, encoding)),
        marker: input.marker.map(|marker| encoded(marker, encoding)),
        delimiter: input.delimiter.map(|delimiter| encoded(delimiter, encoding)),
        encoding_type: input.encoding_type.clone(),
        ..ListObjectsOutput::default()
    }))
}

/// Answers ListParts.
pub(crate) fn parts(upload: &Running, input: &ListPartsInput) -> ListPartsOutput {
    let marker = input.part_number_marker.unwrap_or(0);
    let most = input.max_parts.and_then(|most| usize::try_from(most).ok()).unwrap_or(PAGE_MAX).min(PAGE_MAX);
    let mut left = upload.parts();
    left.retain(|(number, _)| i32::from(*number) > marker);
    let is_truncated = left.len() > most;
    left.truncate(most);
    let next = left.last().map(|(number, _)| i32::from(*number)).filter(|_| is_truncated);
    let part = |(number, part): (u16, crate::uploads::Part)| Part {
        part_number: Some(i32::from(number)),
        size: i64::try_from(part.bytes).ok(),
        e_tag: Some(ETag::Strong(hex(&part.md5))),
        last_modified: Some(part.received),
        ..Part::default()
    };
    ListPartsOutput {
        bucket: Some(upload.bucket.clone()),
        key: Some(upload.key.clone()),
        upload_id: Some(upload.id.clone()),
        is_truncated: Some(is_truncated),
        next_part_number_marker: next,
        part_number_marker: Some(marker),
        max_parts: i32::try_from(most).ok(),
        parts: Some(left.into_iter().map(part).collect()),
        ..ListPartsOutput::default()
    }
}

/// Answers ListMultipartUploads: the first ones, by key.
pub(crate) fn uploads(all: &Uploads, input: ListMultipartUploadsInput) -> ListMultipartUploadsOutput {
    let most = input.max_uploads.and_then(|most| usize::try_from(most).ok()).unwrap_or(PAGE_MAX).min(PAGE_MAX);
    let (prefix, marker) = (input.prefix.clone().unwrap_or_default(), input.key_marker.clone().unwrap_or_default());
    let id = input.upload_id_marker.clone().unwrap_or_default();
    let is_after = |upload: &Running| match id.is_empty() {
        true => upload.key > marker,
        false => (&upload.key, &upload.id) > (&marker, &id),
    };
    let mut found = all.of_bucket(&input.bucket);
    found.retain(|upload| upload.key.starts_with(&prefix) && is_after(upload));
    let is_truncated = found.len() > most;
    found.truncate(most);
    let last = found.last().filter(|_| is_truncated).cloned();
    let upload = |upload: &Arc<Running>| MultipartUpload {
        key: Some(upload.key.clone()),
        upload_id: Some(upload.id.clone()),
        initiated: Some(upload.begun.clone()),
        initiator: Some(Initiator { id: Some(upload.owner.clone()), ..Initiator::default() }),
        ..MultipartUpload::default()
    };
    ListMultipartUploadsOutput {
        uploads: Some(found.iter().map(upload).collect()),
        is_truncated: Some(is_truncated),
        next_key_marker: last.as_ref().map(|upload| upload.key.clone()),
        next_upload_id_marker: last.as_ref().map(|upload| upload.id.clone()),
        max_uploads: i32::try_from(most).ok(),
        bucket: Some(input.bucket),
        prefix: input.prefix,
        key_marker: input.key_marker,
        ..ListMultipartUploadsOutput::default()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_token_gives_its_entry_back_whatever_letters_it_has_and_another_text_is_refused() {
        for entry in ["a", "line\r\nfeed", "ü\u{10ffff}", "a<b>&\"'"] {
            let token = token(entry);
            assert!(token.bytes().all(|byte| byte.is_ascii_hexdigit()));
            assert_eq!(entry_of(&token).unwrap(), entry);
        }
        for wrong in ["a", "zz", "ff", "+1"] {
            assert_eq!(entry_of(wrong).unwrap_err().code().as_str(), "InvalidArgument", "{wrong}");
        }
    }
}
