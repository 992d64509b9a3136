//! The requests that this gateway answers; those that write are here.

use std::sync::Arc;

use async_trait::async_trait;
use s3s::dto::*;
use s3s::{S3, S3Error, S3Request, S3Response, S3Result, s3_error};

use crate::answers::blocking;
use crate::digests::hex;
use crate::gateway::{Gateway, Unfinished};
use crate::keys::Keys;
use crate::receive::{Received, Said};
use crate::storage::{NewObject, ObjectInfo};
use crate::uploads::{PARTS_MAX, Part};
use crate::{listing, send};

/// Bytes of the name that a client gives itself.
const CLIENT_MAX: usize = 200;

/// A clone of the same gateway and of its keys, for the protocol's library.
#[derive(Clone)]
pub(crate) struct Shared(pub Arc<Gateway>, pub Keys);

/// The id of the key that signed a request.
fn signer<T>(request: &S3Request<T>) -> String {
    request.credentials.as_ref().map_or_else(String::new, |credentials| credentials.access_key.clone())
}

fn client<T>(request: &S3Request<T>) -> String {
    let agent = request.headers.get(hyper::header::USER_AGENT).and_then(|agent| agent.to_str().ok());
    agent.unwrap_or("unknown client").chars().filter(|letter| !letter.is_control()).take(CLIENT_MAX).collect()
}

fn etag(value: &str) -> Option<ETag> {
    Some(ETag::Strong(value.to_owned()))
}

fn completed(bucket: String, object: &ObjectInfo) -> CompleteMultipartUploadOutput {
    CompleteMultipartUploadOutput {
        location: Some(format!("/{bucket}/{}", object.key)),
        bucket: Some(bucket),
        key: Some(object.key.clone()),
        e_tag: etag(&object.etag),
        ..CompleteMultipartUploadOutput::default()
    }
}

#[async_trait]
impl S3 for Shared {
    async fn create_multipart_upload(
        &self,
        req: S3Request<CreateMultipartUploadInput>,
    ) -> S3Result<S3Response<CreateMultipartUploadOutput>> {
        let (owner, client) = (signer(&req), client(&req));
        let CreateMultipartUploadInput { bucket, key, content_type, metadata, .. } = req.input;
        let metadata = metadata.unwrap_or_default().into_iter().collect();
        let object = NewObject { key: key.clone(), content_type, metadata, client };
        let upload = self.0.begin(&bucket, object, &owner).await?;
        let upload = self.0.uploads.add(upload);
        Ok(S3Response::new(CreateMultipartUploadOutput {
            bucket: Some(bucket),
            key: Some(key),
            upload_id: Some(upload.id.clone()),
            ..CreateMultipartUploadOutput::default()
        }))
    }

    async fn upload_part(&self, req: S3Request<UploadPartInput>) -> S3Result<S3Response<UploadPartOutput>> {
        let UploadPartInput { bucket, key, upload_id, part_number, body, content_md5, content_length, .. } = req.input;
        let said = Said::new(&req.headers, req.trailing_headers, content_md5, content_length);
        let number = u16::try_from(part_number).ok().filter(|number| (1..=PARTS_MAX).contains(number));
        let wrong = || s3_error!(InvalidArgument, "the number of a part is from 1 to {PARTS_MAX}");
        let number = number.ok_or_else(wrong)?;
        let upload = self.0.uploads.find(&upload_id, &bucket, &key)?;
        let (piece, received) = self.0.receive((&upload, number), body, &said).await?;
        let Received { bytes, md5, sums } = received;
        upload.received(number, Part { piece, bytes, md5, sums: sums.clone(), received: crate::uploads::now() });
        Ok(S3Response::new(UploadPartOutput {
            e_tag: etag(&hex(&md5)),
            checksum_crc32: sums.checksum_crc32,
            checksum_crc32c: sums.checksum_crc32c,
            checksum_crc64nvme: sums.checksum_crc64nvme,
            checksum_sha1: sums.checksum_sha1,
            checksum_sha256: sums.checksum_sha256,
            ..UploadPartOutput::default()
        }))
    }

    async fn complete_multipart_upload(
        &self,
        req: S3Request<CompleteMultipartUploadInput>,
    ) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
        refuse_sums_of_objects(&req.input)?;
        let CompleteMultipartUploadInput { bucket, key, upload_id, multipart_upload, mpu_object_size, .. } = req.input;
        let found = self.0.uploads.find(&upload_id, &bucket, &key);
        let (upload, Some(list)) = (
            match found {
                Ok(upload) => upload,
                // The first answer was lost.
                Err(error) => match self.0.uploads.remembered(&upload_id, &bucket, &key) {
                    Some(object) => return Ok(S3Response::new(completed(bucket, &object))),
                    None => return Err(error),
                },
            },
            multipart_upload.and_then(|list| list.parts),
        ) else {
            return Err(s3_error!(MalformedXML, "the request has no list of parts"));
        };
        let (parts, etag) = upload.chosen(&list)?;
        let bytes: u64 = parts.iter().map(|part| part.bytes).sum();
        if mpu_object_size.is_some_and(|announced| u64::try_from(announced).ok() != Some(bytes)) {
            return Err(s3_error!(InvalidRequest, "the parts have {bytes} bytes, and the request announces others"));
        }
        let Some(upload) = self.0.uploads.take(&upload.id) else {
            return Err(s3_error!(NoSuchUpload, "the upload is being completed or aborted by another request"));
        };
        let work = self.0.complete(upload, parts, etag);
        let named = bucket.clone();
        // Blanks are sent meanwhile: a set that becomes durable may take longer than a client waits for a byte.
        let future = Box::pin(async move {
            let object = work.await.map_err(|_| s3_error!(InternalError, "a task of the gateway has failed"))??;
            Ok(completed(named, &object))
        });
        Ok(S3Response::new(CompleteMultipartUploadOutput {
            future: Some(future),
            ..CompleteMultipartUploadOutput::default()
        }))
    }

    async fn abort_multipart_upload(
        &self,
        req: S3Request<AbortMultipartUploadInput>,
    ) -> S3Result<S3Response<AbortMultipartUploadOutput>> {
        let AbortMultipartUploadInput { bucket, key, upload_id, .. } = req.input;
        let found = self.0.uploads.find(&upload_id, &bucket, &key)?;
        if let Some(upload) = self.0.uploads.take(&found.id) {
            blocking(move || {
                upload.upload.abort("was aborted by its client");
                Ok(())
            })
            .await?;
        }
        Ok(S3Response::new(AbortMultipartUploadOutput::default()))
    }

    async fn put_object(&self, req: S3Request<PutObjectInput>) -> S3Result<S3Response<PutObjectOutput>> {
        let (owner, client) = (signer(&req), client(&req));
        let PutObjectInput { bucket, key, body, content_md5, content_length, content_type, metadata, .. } = req.input;
        let said = Said::new(&req.headers, req.trailing_headers, content_md5, content_length);
        let metadata = metadata.unwrap_or_default().into_iter().collect();
        let object = NewObject { key, content_type, metadata, client };
        let upload = self.0.uploads.add(self.0.begin(&bucket, object, &owner).await?.whole());
        let unfinished = Unfinished { gateway: Arc::clone(&self.0), id: upload.id.clone() };
        let (piece, received) = self.0.receive((&upload, 1), body, &said).await?;
        let part = crate::FinishedPart { number: 1, piece, bytes: received.bytes, md5: received.md5 };
        // From now on it ends by itself.
        let Some(upload) = self.0.uploads.take(&unfinished.id) else {
            return Err(s3_error!(ServiceUnavailable, "the upload was ended: try again later"));
        };
        let work = self.0.complete(upload, vec![part], hex(&received.md5));
        let object = work.await.map_err(|_| s3_error!(InternalError, "a task of the gateway has failed"))??;
        let sums = received.sums;
        Ok(S3Response::new(PutObjectOutput {
            e_tag: etag(&object.etag),
            checksum_crc32: sums.checksum_crc32,
            checksum_crc32c: sums.checksum_crc32c,
            checksum_crc64nvme: sums.checksum_crc64nvme,
            checksum_sha1: sums.checksum_sha1,
            checksum_sha256: sums.checksum_sha256,
            ..PutObjectOutput::default()
        }))
    }

    async fn copy_object(&self, _: S3Request<CopyObjectInput>) -> S3Result<S3Response<CopyObjectOutput>> {
        Err(no_copies())
    }

    async fn upload_part_copy(&self, _: S3Request<UploadPartCopyInput>) -> S3Result<S3Response<UploadPartCopyOutput>> {
        Err(no_copies())
    }

    async fn delete_object(&self, req: S3Request<DeleteObjectInput>) -> S3Result<S3Response<DeleteObjectOutput>> {
        let (storage, DeleteObjectInput { bucket, key, .. }) = (Arc::clone(&self.0.storage), req.input);
        blocking(move || storage.remove(&bucket, &key)).await?;
        Ok(S3Response::new(DeleteObjectOutput::default()))
    }

    async fn delete_objects(&self, req: S3Request<DeleteObjectsInput>) -> S3Result<S3Response<DeleteObjectsOutput>> {
        send::delete_many(&self.0, req.input).await
    }

    async fn list_parts(&self, req: S3Request<ListPartsInput>) -> S3Result<S3Response<ListPartsOutput>> {
        let upload = self.0.uploads.find(&req.input.upload_id, &req.input.bucket, &req.input.key)?;
        Ok(S3Response::new(listing::parts(&upload, &req.input)))
    }

    async fn list_multipart_uploads(
        &self,
        req: S3Request<ListMultipartUploadsInput>,
    ) -> S3Result<S3Response<ListMultipartUploadsOutput>> {
        Ok(S3Response::new(listing::uploads(&self.0.uploads, req.input)))
    }

    async fn get_object(&self, req: S3Request<GetObjectInput>) -> S3Result<S3Response<GetObjectOutput>> {
        send::get(&self.0, req.input).await
    }

    async fn head_object(&self, req: S3Request<HeadObjectInput>) -> S3Result<S3Response<HeadObjectOutput>> {
        send::head(&self.0, req.input).await
    }

    async fn list_objects_v2(&self, req: S3Request<ListObjectsV2Input>) -> S3Result<S3Response<ListObjectsV2Output>> {
        listing::objects_v2(&self.0, req.input).await
    }

    async fn list_objects(&self, req: S3Request<ListObjectsInput>) -> S3Result<S3Response<ListObjectsOutput>> {
        listing::objects(&self.0, req.input).await
    }

    async fn head_bucket(&self, req: S3Request<HeadBucketInput>) -> S3Result<S3Response<HeadBucketOutput>> {
        listing::must_exist(&self.0, &req.input.bucket)?;
        Ok(S3Response::new(HeadBucketOutput::default()))
    }

    async fn get_bucket_location(
        &self,
        req: S3Request<GetBucketLocationInput>,
    ) -> S3Result<S3Response<GetBucketLocationOutput>> {
        listing::must_exist(&self.0, &req.input.bucket)?;
        // None is us-east-1: the region that clients use when they are told no other.
        Ok(S3Response::new(GetBucketLocationOutput::default()))
    }

    async fn list_buckets(&self, req: S3Request<ListBucketsInput>) -> S3Result<S3Response<ListBucketsOutput>> {
        let id = signer(&req);
        Ok(S3Response::new(listing::buckets(&self.0, |bucket| self.1.may_use(&id, bucket))))
    }
}

/// This gateway computes no checksum of an object in parts: one that nobody checks must not look checked.
fn refuse_sums_of_objects(input: &CompleteMultipartUploadInput) -> S3Result<()> {
    let sums = [
        &input.checksum_crc32,
        &input.checksum_crc32c,
        &input.checksum_crc64nvme,
        &input.checksum_sha1,
        &input.checksum_sha256,
    ];
    match sums.iter().any(|sum| sum.is_some()) {
        true => Err(s3_error!(NotImplemented, "this gateway checks parts, and no checksum of an object in parts")),
        false => Ok(()),
    }
}

fn no_copies() -> S3Error {
    s3_error!(NotImplemented, "this gateway copies no objects: download the object, and upload it under the new key")
}
