//! Requests that the crate has no method for: sent over the crate's own HTTP client.

use bytes::Bytes;
use object_store::client::{HttpClient, HttpRequest, HttpRequestBody};
use object_store::path::Path;
use object_store::signer::Method;
use object_store::{Error as StoreError, HeaderMap, HeaderValue, PutPayload};

use super::signed::{Answer, answer, encoded, generic, refusal};

/// A request before it is signed.
pub(super) struct Raw {
    method: Method,
    address: String,
    headers: HeaderMap,
    body: PutPayload,
}

impl Raw {
    /// For this address, which is escaped already.
    pub fn new(method: Method, address: String, query: &[(&str, &str)]) -> Self {
        let pairs: Vec<String> = query.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
        let address = if pairs.is_empty() { address } else { format!("{address}?{}", pairs.join("&")) };
        Self { method, address, headers: HeaderMap::new(), body: PutPayload::new() }
    }

    /// With a header; an invalid value is left out.
    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.insert(name, value);
        }
        self
    }

    /// With this body.
    pub fn body(mut self, body: PutPayload) -> Self {
        self.body = body;
        self
    }

    /// The body.
    pub fn payload(&self) -> &PutPayload {
        &self.body
    }

    /// As it is signed and sent.
    pub fn request(self) -> object_store::Result<HttpRequest> {
        let length = self.body.content_length();
        // The signer can hash a body in one piece.
        let body = match self.body.as_ref().len() {
            0 | 1 => HttpRequestBody::from(Bytes::from(self.body)),
            _ => HttpRequestBody::from(self.body),
        };
        let mut request = HttpRequest::new(body);
        *request.method_mut() = self.method;
        *request.uri_mut() = self.address.parse().map_err(generic)?;
        *request.headers_mut() = self.headers;
        request.headers_mut().insert("content-length", HeaderValue::from(length));
        Ok(request)
    }
}

/// One try; a refusal of the service is an error.
pub(super) async fn done(client: &HttpClient, request: HttpRequest, path: &Path) -> object_store::Result<Answer> {
    let answer = answer(client, request).await?;
    if answer.is_success() { Ok(answer) } else { Err(refused(&answer, path)) }
}

/// An answer that is not a success, as an error of the crate. Its kind tells lasting errors from those that may pass.
pub(super) fn refused(answer: &Answer, path: &Path) -> StoreError {
    let refusal = refusal(answer);
    let (path, source) = (path.to_string(), refusal.to_string().into());
    match answer.status {
        404 => StoreError::NotFound { path, source },
        409 => StoreError::AlreadyExists { path, source },
        412 => StoreError::Precondition { path, source },
        401 | 403 => StoreError::PermissionDenied { path, source },
        _ => refusal,
    }
}
