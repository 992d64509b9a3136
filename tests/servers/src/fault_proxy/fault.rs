//! What can go wrong with a request, and who decides that it does.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::time::Duration;

/// A request as a rule sees it, before any of it has reached the store.
#[derive(Clone, Debug)]
pub struct Request {
    /// How many came before it, over all connections.
    pub number: u64,
    /// How many came before it with the same method, path, query (upload ids aside) and range: 1 is the first retry.
    pub attempt: u32,
    /// `PUT`
    pub method: String,
    /// `/bucket/key`, encoded as it was sent.
    pub path: String,
    /// `partNumber=1&uploadId=…`, without the question mark.
    pub query: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
}

impl Request {
    /// The first header of this name (in lower case).
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }

    /// The value of a parameter of the query; empty if it has none.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, ""))).find(|p| p.0 == name).map(|p| p.1)
    }

    /// The name that S3's documentation gives to this request, as far as fullbore could send it; otherwise `?`. The bucket is
    /// taken to be the first part of the path.
    pub fn operation(&self) -> &'static str {
        let has = |name: &str| self.parameter(name).is_some();
        let of_object = self.path.trim_start_matches('/').split_once('/').is_some_and(|(_, key)| !key.is_empty());
        match (self.method.as_str(), of_object) {
            ("PUT", true) if has("uploadId") => "UploadPart",
            ("PUT", true) if has("tagging") => "PutObjectTagging",
            ("PUT", true) if has("retention") => "PutObjectRetention",
            ("PUT", true) if self.header("x-amz-copy-source").is_some() => "CopyObject",
            ("PUT", true) => "PutObject",
            ("PUT", false) => "CreateBucket",
            ("POST", true) if has("uploads") => "CreateMultipartUpload",
            ("POST", true) if has("uploadId") => "CompleteMultipartUpload",
            ("POST", false) if has("delete") => "DeleteObjects",
            ("DELETE", true) if has("uploadId") => "AbortMultipartUpload",
            ("DELETE", true) => "DeleteObject",
            ("GET", true) if has("uploadId") => "ListParts",
            ("GET", true) => "GetObject",
            ("GET", false) if has("uploads") => "ListMultipartUploads",
            ("GET", false) if has("versions") => "ListObjectVersions",
            ("GET", false) if has("list-type") => "ListObjectsV2",
            ("HEAD", true) => "HeadObject",
            ("HEAD", false) => "HeadBucket",
            _ => "?",
        }
    }

    /// What makes a retry the same request again.
    pub(super) fn identity(&self) -> String {
        let query: Vec<&str> = self.query.split('&').filter(|pair| !pair.starts_with("uploadId=")).collect();
        format!("{} {}?{} {}", self.method, self.path, query.join("&"), self.header("range").unwrap_or_default())
    }
}

/// How far a request gets before it goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// The store hears nothing of it.
    Start,
    /// Half of its body (without one: of its head) reaches the store.
    Request,
    /// The store has done it and answered, and the client hears nothing: a lost response.
    Answer,
    /// Half of the answer's body (without one: of its head) reaches the client.
    Body,
}

/// Which of two answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The one to what was sent first.
    First,
    /// The one to the repetition: for a conditional write that had succeeded, 412.
    Second,
}

/// What goes wrong with one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    Pass,
    /// It waits that long, then nothing.
    Delay(Duration),
    /// The client's connection is reset.
    Reset(At),
    /// The connection stays open, and nothing more happens on it.
    Stall(At),
    /// An error from S3's list; `Fault::internal_error` and `Fault::slow_down` make the usual ones.
    Error {
        /// The HTTP status; 200 is what S3 answers to a CompleteMultipartUpload that fails late.
        status: u16,
        /// S3's name, such as `SlowDown`.
        code: &'static str,
        /// Seconds, as a `Retry-After` header.
        retry_after: Option<u32>,
        /// Whether the store has done it all the same.
        done: bool,
    },
    /// The store hears nothing of it, and the client is told to ask elsewhere.
    Redirect {
        /// The HTTP status, such as 307.
        status: u16,
        /// `http://127.0.0.1:PORT`: the path and the query are added.
        to: String,
    },
    /// The store hears nothing of it, and this is what the client is told, with the status 200.
    Answer {
        /// The body.
        body: &'static str,
    },
    /// The store hears nothing of it, and the answer never ends.
    Flood {
        /// The HTTP status.
        status: u16,
    },
    /// The connection is closed in an orderly way after half of the answer's body (without one: of its head).
    Truncate,
    /// The store gets it twice, one after the other.
    Duplicate(Which),
    /// One bit of this byte of the answer's body is wrong; beyond its end, counted on from its beginning. A body that is
    /// empty, or chunked and shorter, passes.
    FlipAnswer(u64),
    /// The same in the request's body, on its way to the store.
    FlipRequest(u64),
}

impl Fault {
    /// 500, and the store has not heard of the request.
    pub const INTERNAL_ERROR: Self = Self::Error { status: 500, code: "InternalError", retry_after: None, done: false };

    /// 503 SlowDown, with the seconds of a `Retry-After` header.
    pub const fn slow_down(retry_after: Option<u32>) -> Self {
        Self::Error { status: 503, code: "SlowDown", retry_after, done: false }
    }

    /// One of each, delays and stalls included, but no wrong bytes on the way to the store: whether that notices depends on
    /// what it is given to check them by.
    pub fn each() -> Vec<Self> {
        let done = |status| Self::Error { status, code: "InternalError", retry_after: None, done: true };
        let mut all = vec![Self::Delay(Duration::from_millis(20)), Self::INTERNAL_ERROR, done(500)];
        all.extend([Self::slow_down(None), Self::slow_down(Some(1)), Self::Truncate, Self::FlipAnswer(7)]);
        all.extend([At::Start, At::Request, At::Answer, At::Body].map(Self::Reset));
        all.extend([At::Start, At::Request, At::Answer, At::Body].map(Self::Stall));
        all.extend([Which::First, Which::Second].map(Self::Duplicate));
        all
    }

    /// The kind alone, for counts.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Delay(_) => "delay",
            Self::Reset(_) => "reset",
            Self::Stall(_) => "stall",
            Self::Error { .. } => "error",
            Self::Redirect { .. } => "redirect",
            Self::Answer { .. } => "answer",
            Self::Flood { .. } => "flood",
            Self::Truncate => "truncate",
            Self::Duplicate(_) => "duplicate",
            Self::FlipAnswer(_) => "flip answer",
            Self::FlipRequest(_) => "flip request",
        }
    }
}

/// Faults by a seed. Whether and how a request fails depends on the seed, on what it is and on which attempt it is, not on
/// when it comes: so the same job has the same faults again, however its threads are scheduled.
#[derive(Clone, Debug)]
pub struct Plan {
    seed: u64,
    per_cent: u64,
    faults: Vec<Fault>,
    attempts: u32,
    by_arrival: bool,
}

impl Plan {
    /// One of `Fault::each()` for a tenth of the requests, and never for the third attempt of one.
    pub fn seeded(seed: u64) -> Self {
        Self { seed, per_cent: 10, faults: Fault::each(), attempts: 2, by_arrival: false }
    }

    /// For how many of a hundred requests.
    pub fn per_cent(mut self, per_cent: u64) -> Self {
        self.per_cent = per_cent;
        self
    }

    /// Only these.
    pub fn faults(mut self, faults: &[Fault]) -> Self {
        self.faults = faults.to_vec();
        self
    }

    /// An attempt with this number (0 is the first) and later ones of the same request pass.
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts;
        self
    }

    /// By the number of the request instead of what it is: for one that has a new name in each run, of a job that sends one
    /// after the other.
    pub fn by_arrival(mut self) -> Self {
        self.by_arrival = true;
        self
    }

    /// The fault of a request.
    pub fn fault(&self, request: &Request) -> Fault {
        if request.attempt >= self.attempts || self.faults.is_empty() {
            return Fault::Pass;
        }
        let mut hasher = DefaultHasher::new();
        self.seed.hash(&mut hasher);
        if self.by_arrival {
            request.number.hash(&mut hasher);
        } else {
            (request.identity(), request.attempt).hash(&mut hasher);
        }
        let mut random = fastrand::Rng::with_seed(hasher.finish());
        if random.u64(0..100) >= self.per_cent {
            return Fault::Pass;
        }
        self.faults[random.usize(0..self.faults.len())].clone()
    }

    /// As a rule for `FaultProxy::start`.
    pub fn rule(self) -> impl Fn(&Request) -> Fault + Send + Sync + 'static {
        move |request| self.fault(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, path: &str, query: &str) -> Request {
        let (method, path, query) = (method.to_owned(), path.to_owned(), query.to_owned());
        Request { number: 0, attempt: 0, method, path, query, headers: Vec::new() }
    }

    #[test]
    fn a_request_has_the_name_that_s3_gives_it() {
        for (method, path, query, name) in [
            ("PUT", "/b", "", "CreateBucket"),
            ("PUT", "/b/k", "", "PutObject"),
            ("PUT", "/b/k", "partNumber=1&uploadId=x", "UploadPart"),
            ("POST", "/b/k", "uploads", "CreateMultipartUpload"),
            ("POST", "/b/k", "uploadId=x", "CompleteMultipartUpload"),
            ("DELETE", "/b/k", "uploadId=x", "AbortMultipartUpload"),
            ("GET", "/b/", "list-type=2&prefix=a", "ListObjectsV2"),
            ("GET", "/b/k/l", "", "GetObject"),
            ("PATCH", "/b/k", "", "?"),
        ] {
            assert_eq!(request(method, path, query).operation(), name);
        }
    }

    #[test]
    fn a_plan_repeats_itself_and_lets_the_last_attempt_pass() {
        let requests: Vec<Request> = (0..2000).map(|n| request("PUT", "/b/k", &format!("partNumber={n}"))).collect();
        let faults = |seed: u64| -> Vec<Fault> { requests.iter().map(|r| Plan::seeded(seed).fault(r)).collect() };
        assert_eq!(faults(1), faults(1));
        assert_ne!(faults(1), faults(2));
        let wrong = faults(1).iter().filter(|fault| **fault != Fault::Pass).count();
        assert!((140..260).contains(&wrong), "{wrong} of 2000");
        for kind in Fault::each() {
            assert!(faults(1).contains(&kind), "{kind:?} does not come");
        }
        let third = Request { attempt: 2, ..request("PUT", "/b/k", "") };
        assert_eq!(Plan::seeded(1).per_cent(100).fault(&third), Fault::Pass);
    }

    #[test]
    fn another_upload_id_is_the_same_request() {
        let upload = |id: &str| request("PUT", "/b/k", &format!("partNumber=1&uploadId={id}"));
        assert_eq!(upload("a").identity(), upload("b").identity());
        assert_ne!(upload("a").identity(), request("PUT", "/b/k", "partNumber=2&uploadId=a").identity());
    }
}
