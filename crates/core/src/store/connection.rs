//! How requests travel: no redirect is followed, no request says where it comes from, and an answer has a bound.
//!
//! A redirect leads to a host that the user did not name: that host gets no token, no signature and no data. The user
//! says where the store is.
//!
//! Public sources: RFC 9110 ("Redirection 3xx", "Referer"); Amazon S3 User Guide ("Making requests", request
//! redirection and `x-amz-bucket-region`).

use std::error::Error;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Limited};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
};
use object_store::{ClientConfigKey, ClientOptions, HeaderMap};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Certificate, Url, redirect};

use super::retries::Retries;
use super::xml::said;

/// How the errors begin for a redirect and for an answer that is too long. A retry helps with neither.
pub(super) const REDIRECTS: &str = "the store redirects to ";
pub(super) const TOO_LONG: &str = "the store's answer is longer than ";
/// How long the connection to the service that tells an instance its role may take: without such a service, nothing
/// answers.
const CONNECT_TO_METADATA: Duration = Duration::from_secs(1);
/// Characters of a host or a region that are shown.
const SHOWN_MOST: usize = 255;

/// Makes connections.
#[derive(Debug, Clone)]
pub(super) struct Connector {
    /// How long one try may take.
    pub one_try: Duration,
    /// How long a connection attempt may take.
    pub connect: Duration,
    /// Authorities to trust besides those of the machine.
    pub certificates: Vec<Certificate>,
    /// Bytes of the longest answer that is read, other than a range of an object.
    pub answer_most: usize,
    /// Gets the requests that fail.
    pub retries: Arc<Retries>,
}

impl Connector {
    /// The options of clients that connect with it: the settings that the crate reads, and those of
    /// [`HttpConnector::connect`].
    pub fn options(&self) -> ClientOptions {
        ClientOptions::new().with_timeout(self.one_try).with_connect_timeout(self.connect)
    }
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let says = |key| options.get_config_value(&key);
        let own =
            says(ClientConfigKey::ConnectTimeout) == self.options().get_config_value(&ClientConfigKey::ConnectTimeout);
        let client = reqwest::Client::builder()
            .user_agent(concat!("fullbore/", env!("CARGO_PKG_VERSION")))
            .redirect(redirect::Policy::none())
            .referer(false)
            .tls_certs_merge(self.certificates.iter().cloned())
            .timeout(self.one_try)
            .connect_timeout(if own { self.connect } else { self.connect.min(CONNECT_TO_METADATA) })
            .http1_only()
            .dns_resolver(AnyAddress)
            .https_only(says(ClientConfigKey::AllowHttp).as_deref() != Some("true"))
            .build();
        let client = client.map_err(|error| super::signed::generic(error.without_url()))?;
        let (client, retries) = (HttpClient::new(client), Arc::clone(&self.retries));
        Ok(HttpClient::new(Bounded { client, answer_most: self.answer_most, retries }))
    }
}

/// Sends requests, and refuses answers that redirect or have no end.
#[derive(Debug)]
struct Bounded {
    client: HttpClient,
    answer_most: usize,
    retries: Arc<Retries>,
}

impl Bounded {
    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let from = request.uri().to_string();
        // A range of an object has the length that was asked for; the reader checks it.
        let range = request.headers().contains_key("range");
        let (parts, body) = self.client.execute(request).await?.into_parts();
        if parts.status.is_redirection() && parts.status.as_u16() != 304 {
            return Err(HttpError::new(HttpErrorKind::Unknown, Redirected::of(&from, &parts.headers)));
        }
        let body = if range && parts.status.as_u16() == 206 { body } else { bounded(body, self.answer_most) };
        Ok(HttpResponse::from_parts(parts, body))
    }

    /// Notes whether a request has to be sent again.
    async fn noted(&self, name: &str, sent: Result<HttpResponse, HttpError>) -> Result<HttpResponse, HttpError> {
        let answer = match sent {
            Ok(answer) if is_later(answer.status().as_u16()) => answer,
            Ok(answer) => {
                self.retries.answered(name);
                return Ok(answer);
            }
            Err(error) => {
                self.retries.failed(name, &innermost(&error));
                return Err(error);
            }
        };
        let (parts, body) = answer.into_parts();
        let body = body.bytes().await?;
        let code = said(&String::from_utf8_lossy(&body), "Code");
        self.retries
            .failed(name, &code.map_or_else(|| format!("status {}", parts.status.as_u16()), |code| shown(&code)));
        Ok(HttpResponse::from_parts(parts, body.into()))
    }
}

/// True for an answer that may differ later.
fn is_later(status: u16) -> bool {
    status >= 500 || status == 429 || status == 408
}

/// The innermost cause of an error.
fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

impl HttpService for Bounded {
    fn call<'a, 'b>(
        &'a self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move {
            // Its query may hold a signature.
            let name = format!("{} {}", request.method(), request.uri().path());
            let sent = self.send(request).await;
            self.noted(&name, sent).await
        })
    }
}

fn bounded(body: HttpResponseBody, most: usize) -> HttpResponseBody {
    HttpResponseBody::new(Limited::new(body, most).map_err(move |error| match error.downcast::<HttpError>() {
        Ok(error) => *error,
        Err(_) => HttpError::new(HttpErrorKind::Unknown, io::Error::other(format!("{TOO_LONG}{} MiB", most >> 20))),
    }))
}

/// Where a store redirects to.
#[derive(Debug)]
struct Redirected {
    /// Scheme, host and port; nothing where the store does not say.
    to: Option<String>,
    /// The region of the bucket, as S3 tells it.
    region: Option<String>,
}

impl Redirected {
    fn of(from: &str, headers: &HeaderMap) -> Self {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let to = text("location").and_then(|location| Url::parse(from).ok()?.join(location).ok());
        // Its path and query may hold the request's signature.
        let to = to.and_then(|to| {
            let port = to.port().map_or(String::new(), |port| format!(":{port}"));
            Some(format!("{}://{}{port}", to.scheme(), to.host_str()?))
        });
        Self { to: to.map(|to| shown(&to)), region: text("x-amz-bucket-region").map(shown) }
    }
}

fn shown(text: &str) -> String {
    text.chars().filter(|letter| letter.is_ascii_graphic()).take(SHOWN_MOST).collect()
}

impl fmt::Display for Redirected {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{REDIRECTS}{}", self.to.as_deref().unwrap_or("another endpoint"))?;
        self.region.as_ref().map_or(Ok(()), |region| write!(to, " (the bucket's region is {region})"))
    }
}

impl Error for Redirected {}

/// The addresses of a host in any order: a store's name leads to many machines, and all are to be used.
struct AnyAddress;

impl Resolve for AnyAddress {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found: Vec<_> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let mut keyed: Vec<_> = found.into_iter().map(|address| (uuid::Uuid::new_v4(), address)).collect();
            keyed.sort_unstable();
            Ok(Box::new(keyed.into_iter().map(|(_, address)| address)) as Addrs)
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_is_named_by_its_host_and_the_bucket_s_region_and_by_nothing_of_its_path() {
        let said = |location: Option<&str>, region: Option<&str>| {
            let mut headers = HeaderMap::new();
            for (name, value) in [("location", location), ("x-amz-bucket-region", region)] {
                value.map(|value| headers.insert(name, value.parse().unwrap()));
            }
            Redirected::of("https://s3.amazonaws.com/b/k?sig=SECRET", &headers).to_string()
        };
        assert_eq!(
            said(Some("https://u:p@b.s3.eu-west-1.amazonaws.com/k?sig=SECRET"), Some("eu-west-1")),
            "the store redirects to https://b.s3.eu-west-1.amazonaws.com (the bucket's region is eu-west-1)"
        );
        assert_eq!(said(Some("//other:81/k"), None), "the store redirects to https://other:81");
        assert_eq!(said(Some("/elsewhere"), None), "the store redirects to https://s3.amazonaws.com");
        for none in [None, Some(""), Some("http://"), Some("data:,x")] {
            let said = said(none, None);
            assert!(said.starts_with(REDIRECTS) && !said.contains("SECRET"), "{said}");
        }
    }
}
