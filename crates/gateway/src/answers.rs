//! Answers of a call of the storage, in the terms of the protocol.

use std::time::{Duration, SystemTime};

use s3s::dto::Timestamp;
use s3s::{S3Error, S3Result, s3_error};
use tokio::task::spawn_blocking;

use crate::storage::{Done, Failure};

/// The answer to a call that failed.
pub(crate) fn answer(failure: Failure) -> S3Error {
    match failure {
        Failure::NoBucket => s3_error!(NoSuchBucket, "this gateway has no such bucket: buckets are repositories"),
        Failure::NoObject => s3_error!(NoSuchKey, "there is no such object"),
        Failure::Busy(why) => s3_error!(SlowDown, "{why}"),
        Failure::Refused(why) => s3_error!(NotImplemented, "{why}"),
        Failure::Failed(error) if error.is_lack_of_room() => no_room(&error),
        Failure::Failed(error) => s3_error!(InternalError, "{}", error.one_line()),
    }
}

/// The answer of a storage that is full. Amazon's has no code for that; the status is the one that HTTP has for it, and
/// clients do not try again at once.
fn no_room(error: &fullbore_core::Error) -> S3Error {
    let code = s3s::S3ErrorCode::Custom("InsufficientStorage".into());
    let mut answer = S3Error::with_message(code, error.one_line());
    answer.set_status_code(hyper::StatusCode::INSUFFICIENT_STORAGE);
    answer
}

/// Does blocking work in a thread that may wait.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Done<T> + Send + 'static) -> S3Result<T> {
    let done = spawn_blocking(work).await;
    done.map_err(|_| s3_error!(InternalError, "a thread of the gateway has failed"))?.map_err(answer)
}

/// A moment in microseconds since 1970.
pub(crate) fn moment(micros: i64) -> Timestamp {
    let since = Duration::from_micros(u64::try_from(micros).unwrap_or(0));
    Timestamp::from(SystemTime::UNIX_EPOCH + since)
}
