//! Objects on their way out: all of one, or a range of it.

use std::ops::Range as Span;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use s3s::dto::*;
use s3s::{S3Response, S3Result, s3_error};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::answers::{blocking, moment};
use crate::budget::Lease;
use crate::gateway::Gateway;
use crate::storage::{Failure, ObjectInfo, ObjectReader};

/// Pieces of an object that are read ahead of the client.
const AHEAD: usize = 2;
/// Objects of one request to delete several, at most: as in S3.
const DELETED_MAX: usize = 1000;

fn type_of(object: &ObjectInfo) -> String {
    object.content_type.clone().unwrap_or_else(|| "application/octet-stream".to_owned())
}

fn metadata_of(object: &ObjectInfo) -> Option<Metadata> {
    Some(object.metadata.clone().into_iter().collect()).filter(|metadata: &Metadata| !metadata.is_empty())
}

/// The conditions of a request on the ETag.
fn check(object: &ObjectInfo, matches: Option<&ETagCondition>, differs: Option<&ETagCondition>) -> S3Result<()> {
    let is = |condition: &ETagCondition| match condition {
        ETagCondition::Any => true,
        ETagCondition::ETag(etag) => etag.value() == object.etag,
    };
    if matches.is_some_and(|condition| !is(condition)) {
        return Err(s3_error!(PreconditionFailed));
    }
    if differs.is_some_and(is) {
        return Err(s3_error!(NotModified));
    }
    Ok(())
}

/// The bytes that a request asks for.
fn span_of(range: Option<Range>, bytes: u64) -> S3Result<Span<u64>> {
    match range {
        None => Ok(0..bytes),
        // An empty object has no last bytes.
        Some(_) if bytes == 0 => Err(s3_error!(InvalidRange, "the object is empty")),
        Some(range) => range.check(bytes).map_err(|_| s3_error!(InvalidRange, "the object has {bytes} bytes")),
    }
}

fn content_range(range: Option<Range>, span: &Span<u64>, bytes: u64) -> Option<String> {
    range.map(|_| format!("bytes {}-{}/{bytes}", span.start, span.end.saturating_sub(1)))
}

/// Answers HEAD.
pub(crate) async fn head(gateway: &Arc<Gateway>, input: HeadObjectInput) -> S3Result<S3Response<HeadObjectOutput>> {
    let (storage, HeadObjectInput { bucket, key, range, if_match, if_none_match, .. }) =
        (Arc::clone(&gateway.storage), input);
    let object = blocking(move || storage.find(&bucket, &key)).await?;
    check(&object, if_match.as_ref(), if_none_match.as_ref())?;
    let span = span_of(range, object.bytes)?;
    Ok(S3Response::new(HeadObjectOutput {
        accept_ranges: Some("bytes".to_owned()),
        content_length: i64::try_from(span.end - span.start).ok(),
        content_type: Some(type_of(&object)),
        e_tag: Some(ETag::Strong(object.etag.clone())),
        last_modified: Some(moment(object.modified)),
        metadata: metadata_of(&object),
        ..HeadObjectOutput::default()
    }))
}

/// Answers GET.
pub(crate) async fn get(gateway: &Arc<Gateway>, input: GetObjectInput) -> S3Result<S3Response<GetObjectOutput>> {
    if input.part_number.is_some() {
        return Err(s3_error!(NotImplemented, "this gateway gives ranges of bytes, and no parts by their number"));
    }
    let GetObjectInput { bucket, key, range, if_match, if_none_match, .. } = input;
    let storage = Arc::clone(&gateway.storage);
    let (place, name) = (bucket.clone(), key.clone());
    let known = blocking(move || storage.find(&place, &name)).await?;
    check(&known, if_match.as_ref(), if_none_match.as_ref())?;
    span_of(range, known.bytes)?;
    let memory = gateway.take(gateway.storage.download_memory(known.bytes))?;
    let storage = Arc::clone(&gateway.storage);
    let (object, reader) = blocking(move || storage.open(&bucket, &key)).await?;
    let span = span_of(range, object.bytes)?;
    let length = i64::try_from(span.end - span.start).ok();
    let said = content_range(range, &span, object.bytes);
    let body = body(reader, span, memory, gateway.still);
    let mut answer = S3Response::new(GetObjectOutput {
        accept_ranges: Some("bytes".to_owned()),
        body: Some(body),
        content_length: length,
        content_range: said.clone(),
        content_type: Some(type_of(&object)),
        e_tag: Some(ETag::Strong(object.etag.clone())),
        last_modified: Some(moment(object.modified)),
        metadata: metadata_of(&object),
        ..GetObjectOutput::default()
    });
    if said.is_some() {
        answer.status = Some(hyper::StatusCode::PARTIAL_CONTENT);
    }
    Ok(answer)
}

/// A body that a thread fills. It ends if the client takes nothing for the time `still`.
fn body(mut reader: Box<dyn ObjectReader>, span: Span<u64>, memory: Lease, still: Duration) -> StreamingBlob {
    let (sender, receiver) = mpsc::channel::<Result<Bytes, std::io::Error>>(AHEAD);
    let runtime = Handle::current();
    tokio::task::spawn_blocking(move || {
        let _memory = memory;
        let mut at = span.start;
        while at < span.end {
            let read = reader.read(at).map(|mut bytes| {
                bytes.truncate(usize::try_from(span.end - at).unwrap_or(usize::MAX));
                bytes
            });
            let next = match read {
                Ok(bytes) if bytes.is_empty() => Err(std::io::Error::other("the object ends early")),
                Ok(bytes) => {
                    at += bytes.len() as u64;
                    Ok(Bytes::from(bytes))
                }
                Err(failure) => Err(std::io::Error::other(text_of(&failure))),
            };
            let failed = next.is_err();
            let sent = runtime.block_on(tokio::time::timeout(still, sender.send(next)));
            // The client has gone, or takes nothing.
            if failed || !matches!(sent, Ok(Ok(()))) {
                return;
            }
        }
    });
    let pieces = stream::unfold(receiver, |mut receiver| async { receiver.recv().await.map(|next| (next, receiver)) });
    StreamingBlob::wrap(SyncStream(std::sync::Mutex::new(Box::pin(pieces))))
}

fn text_of(failure: &Failure) -> String {
    match failure {
        Failure::Failed(error) => error.one_line(),
        other => format!("{other:?}"),
    }
}

/// A stream that threads may share: a lock protects it.
struct SyncStream<S>(std::sync::Mutex<std::pin::Pin<Box<S>>>);

impl<S: futures_util::Stream> futures_util::Stream for SyncStream<S> {
    type Item = S::Item;

    fn poll_next(
        self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        let inner = self.get_mut().0.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        inner.as_mut().poll_next(cx)
    }
}

/// Answers DeleteObjects.
pub(crate) async fn delete_many(
    gateway: &Arc<Gateway>,
    input: DeleteObjectsInput,
) -> S3Result<S3Response<DeleteObjectsOutput>> {
    if input.delete.objects.len() > DELETED_MAX {
        return Err(s3_error!(MalformedXML, "a request deletes {DELETED_MAX} objects at most"));
    }
    let is_conditional = |object: &ObjectIdentifier| {
        let conditions = object.e_tag.is_some() || object.last_modified_time.is_some() || object.size.is_some();
        object.version_id.is_some() || conditions
    };
    if let Some(object) = input.delete.objects.iter().find(|object| is_conditional(object)) {
        let key = object.key.escape_debug();
        let why = "this gateway deletes all versions of a key, and keeps no conditions";
        return Err(s3_error!(NotImplemented, "`{key}` has a version or a condition: {why}; nothing was deleted"));
    }
    let quiet = input.delete.quiet.unwrap_or(false);
    let (mut deleted, mut errors) = (Vec::new(), Vec::new());
    for object in input.delete.objects {
        let (storage, bucket, key) = (Arc::clone(&gateway.storage), input.bucket.clone(), object.key.clone());
        match blocking(move || storage.remove(&bucket, &key)).await {
            Ok(()) if quiet => {}
            Ok(()) => deleted.push(DeletedObject { key: Some(object.key), ..DeletedObject::default() }),
            Err(error) => errors.push(Error {
                code: Some(error.code().as_str().to_owned()),
                key: Some(object.key),
                message: error.message().map(str::to_owned),
                version_id: None,
            }),
        }
    }
    Ok(S3Response::new(DeleteObjectsOutput {
        deleted: Some(deleted).filter(|deleted| !deleted.is_empty()),
        errors: Some(errors).filter(|errors| !errors.is_empty()),
        ..DeleteObjectsOutput::default()
    }))
}
