//! The body of a request on its way into the storage. Its bytes count only when the last one has come and every checksum
//! and signature is right.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::StreamExt;
use hyper::HeaderMap;
use md5::{Digest, Md5};
use s3s::checksum::ChecksumHasher;
use s3s::crypto::{Checksum as _, Crc32, Crc32c, Crc64Nvme, Sha1, Sha256};
use s3s::dto::{Checksum, StreamingBlob};
use s3s::{S3Error, S3Result, TrailingHeaders, s3_error};
use tokio::task::spawn_blocking;

use crate::answers::answer;
use crate::incoming::{CHUNKS, MEMORY, STILL};
use crate::uploads::{BUFFER, Buffer, Running};

/// The sums that a client may send with a body.
const SUMS: [&str; 5] = [
    "x-amz-checksum-crc32",
    "x-amz-checksum-crc32c",
    "x-amz-checksum-sha1",
    "x-amz-checksum-sha256",
    "x-amz-checksum-crc64nvme",
];

/// A body that was received whole.
pub(crate) struct Received {
    pub bytes: u64,
    pub md5: [u8; 16],
    /// The sums that the client has sent, which are right.
    pub sums: Checksum,
}

/// What the client says of a body.
pub(crate) struct Said {
    headers: HeaderMap,
    trailer: Option<TrailingHeaders>,
    pub content_md5: Option<String>,
    /// Bytes of the body.
    pub length: Option<u64>,
}

impl Said {
    /// From the headers of a request.
    pub fn new(
        headers: &HeaderMap,
        trailer: Option<TrailingHeaders>,
        content_md5: Option<String>,
        length: Option<i64>,
    ) -> Self {
        let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse().ok();
        // A body in signed chunks is longer than its bytes.
        let decoded = number("x-amz-decoded-content-length");
        let length = decoded.or_else(|| length.and_then(|length| u64::try_from(length).ok()));
        Self { headers: headers.clone(), trailer, content_md5, length }
    }

    fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
        headers.get(name)?.to_str().ok()
    }

    /// True if a sum of this kind comes, before or behind the body.
    fn has(&self, sum: &str) -> bool {
        let announced = Self::header(&self.headers, "x-amz-trailer").unwrap_or_default();
        self.headers.contains_key(sum) || announced.split(',').any(|name| name.trim().eq_ignore_ascii_case(sum))
    }

    fn hashers(&self) -> Hashers {
        let [crc32, crc32c, sha1, sha256, crc64nvme] = SUMS.map(|sum| self.has(sum));
        let asked = ChecksumHasher {
            crc32: crc32.then(Crc32::new),
            crc32c: crc32c.then(Crc32c::new),
            sha1: sha1.then(Sha1::new),
            sha256: sha256.then(Sha256::new),
            crc64nvme: crc64nvme.then(Crc64Nvme::new),
        };
        Hashers { md5: Md5::new(), asked }
    }

    /// Compares what was computed with what the client says.
    fn check(&self, bytes: u64, md5: &[u8; 16], sums: &Checksum) -> S3Result<()> {
        if self.length.is_some_and(|length| length != bytes) {
            return Err(s3_error!(IncompleteBody, "{bytes} bytes came, and the request announced others"));
        }
        if let Some(said) = &self.content_md5
            && STANDARD.decode(said).ok().as_deref() != Some(&md5[..])
        {
            return Err(s3_error!(BadDigest, "the bytes that came do not have this Content-MD5"));
        }
        let computed = [
            &sums.checksum_crc32,
            &sums.checksum_crc32c,
            &sums.checksum_sha1,
            &sums.checksum_sha256,
            &sums.checksum_crc64nvme,
        ];
        let trailer = self.trailer.as_ref().and_then(|trailer| trailer.read(Clone::clone)).unwrap_or_default();
        for (name, computed) in SUMS.into_iter().zip(computed) {
            let Some(computed) = computed else { continue };
            let said = Self::header(&self.headers, name).or_else(|| Self::header(&trailer, name));
            match said {
                Some(said) if said == computed => {}
                Some(_) => return Err(s3_error!(BadDigest, "the bytes that came do not have this {name}")),
                None => return Err(s3_error!(BadDigest, "{name} was announced, and did not come")),
            }
        }
        Ok(())
    }
}

/// The sums while bytes come.
struct Hashers {
    md5: Md5,
    asked: ChecksumHasher,
}

/// Receives a body into a new piece. The body ends by itself if no byte comes for too long.
pub(crate) async fn receive(
    upload: &Arc<Running>,
    piece: u32,
    body: Option<StreamingBlob>,
    said: &Said,
) -> S3Result<Received> {
    let _receiving = upload.receiving();
    let mut hashers = said.hashers();
    let mut buffer = upload.buffer().await?;
    let mut bytes: u64 = 0;
    if let Some(mut body) = body {
        while let Some(frame) = body.next().await {
            let frame = frame.map_err(broken)?;
            upload.moves();
            bytes += frame.len() as u64;
            let mut left = &frame[..];
            while !left.is_empty() {
                let (now, later) = left.split_at(left.len().min(BUFFER - buffer.bytes.len()));
                buffer.bytes.extend_from_slice(now);
                left = later;
                if buffer.bytes.len() == BUFFER {
                    (buffer, hashers) = write(buffer, hashers, upload, piece).await?;
                    // Another part may wait for a buffer: they take turns.
                    drop(buffer);
                    buffer = upload.buffer().await?;
                }
            }
        }
    }
    // The last one, or the only one, also if it is empty.
    if !buffer.bytes.is_empty() || bytes == 0 {
        (buffer, hashers) = write(buffer, hashers, upload, piece).await?;
    }
    drop(buffer);
    let (md5, sums) = (hashers.md5.finalize().into(), hashers.asked.finalize());
    said.check(bytes, &md5, &sums)?;
    Ok(Received { bytes, md5, sums })
}

/// Hands the bytes of a buffer to the storage.
async fn write(
    mut buffer: Buffer,
    mut hashers: Hashers,
    upload: &Arc<Running>,
    piece: u32,
) -> S3Result<(Buffer, Hashers)> {
    let upload = Arc::clone(upload);
    let done = spawn_blocking(move || {
        hashers.md5.update(&buffer.bytes);
        hashers.asked.update(&buffer.bytes);
        buffer.bytes = upload.upload.write(piece, std::mem::take(&mut buffer.bytes))?;
        buffer.bytes.clear();
        upload.moves();
        Ok((buffer, hashers))
    });
    done.await.map_err(|_| s3_error!(InternalError, "a thread of the gateway has failed"))?.map_err(answer)
}

/// The body ended early, or what it is signed with is wrong.
fn broken(error: s3s::StdError) -> S3Error {
    let text = error.to_string();
    let behind = |begin: &str| text.find(begin).and_then(|at| text.get(at..)).map(str::to_owned);
    let mut found = if let Some(text) = behind(STILL) {
        s3_error!(RequestTimeout, "{text}")
    } else if let Some(text) = behind(CHUNKS) {
        s3_error!(InvalidRequest, "{text}")
    } else if let Some(text) = behind(MEMORY) {
        s3_error!(SlowDown, "{text}")
    } else if text.contains("Sha256Mismatch") {
        let code = s3s::S3ErrorCode::Custom("XAmzContentSHA256Mismatch".into());
        S3Error::with_message(code, "the bytes that came do not have the announced SHA-256")
    } else if text.contains("SignatureMismatch") {
        s3_error!(SignatureDoesNotMatch, "a chunk of the body has a wrong signature")
    } else {
        s3_error!(IncompleteBody, "the body ended early: {text}")
    };
    if found.status_code().is_none() {
        found.set_status_code(hyper::StatusCode::BAD_REQUEST);
    }
    found
}
