//! Signed requests to an S3 store, one at a time, by curl: for what a test has to see or do beside fullbore.
//!
//! curl signs (`--aws-sigv4`), so what a test asserts does not rest on the code under test. The secret goes in by
//! stdin, never by an argument. A limit of curl 7.88: it signs two `x-amz-` headers in the wrong order if the name of one is
//! how the other's begins (`x-amz-server-side-encryption` and `…-encryption-aws-kms-key-id`), and is refused.

use std::fmt::{self, Write as _};
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::output;

/// What SigV4 wants to be encoded, in queries and in paths.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
const IN_PATHS: &AsciiSet = &RESERVED.remove(b'/');
/// How long a call may take unless it says otherwise: nothing on loopback takes so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where a store is, and whose requests it is to get.
#[derive(Clone)]
pub struct S3Client {
    pub(crate) endpoint: String,
    pub(crate) region: String,
    pub(crate) access_key: String,
    pub(crate) secret_key: String,
    pub(crate) ca: Option<PathBuf>,
}

impl fmt::Debug for S3Client {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the secret.
        write!(to, "S3Client({} as {})", self.endpoint, self.access_key)
    }
}

/// One request: made by `Call::new`, completed, and sent by `S3Client::send`.
#[derive(Clone, Debug)]
pub struct Call {
    method: String,
    path: String,
    query: Vec<(String, String)>,
    headers: Vec<String>,
    body: Vec<u8>,
    patience: Duration,
    unsigned: bool,
    /// Other bytes than the body, whose SHA-256 is signed.
    announced: Option<Vec<u8>>,
    rate: Option<String>,
    /// Signed here, at another moment than now.
    moment: Option<String>,
}

impl Call {
    /// A request for `/bucket` or `/bucket/key`, which is encoded here.
    pub fn new(method: &str, path: &str) -> Self {
        Self {
            method: method.to_owned(),
            path: path.to_owned(),
            query: Vec::new(),
            headers: Vec::new(),
            body: Vec::new(),
            patience: PATIENCE,
            unsigned: false,
            announced: None,
            rate: None,
            moment: None,
        }
    }

    /// One part of the query; without a value (`uploads`), it is empty.
    pub fn query(mut self, name: &str, value: &str) -> Self {
        self.query.push((name.to_owned(), value.to_owned()));
        self
    }

    /// A header line.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push(format!("{name}: {value}"));
        self
    }

    /// The body.
    pub fn body(mut self, body: &[u8]) -> Self {
        self.body = body.to_vec();
        self
    }

    /// The body, with its CRC-32C: a part of an upload that was begun with these checksums.
    pub fn part(self, body: &[u8]) -> Self {
        let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, body) as u32;
        self.header("x-amz-checksum-crc32c", &STANDARD.encode(crc.to_be_bytes())).body(body)
    }

    /// The longest that it may take; then it fails with curl's exit code 28.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Without a signature: what anybody could send.
    pub fn unsigned(mut self) -> Self {
        self.unsigned = true;
        self
    }

    /// With the signed SHA-256 of other bytes: the body is not what the signature says.
    pub fn announcing(mut self, other: &[u8]) -> Self {
        self.announced = Some(other.to_vec());
        self
    }

    /// Not faster than this: `300k` bytes in a second.
    pub fn rate(mut self, rate: &str) -> Self {
        self.rate = Some(rate.to_owned());
        self
    }

    /// Signed at this moment, `20261126T120000Z`: the clock of a client may be wrong. Only for calls without a query.
    pub fn signed_at(mut self, moment: &str) -> Self {
        self.moment = Some(moment.to_owned());
        self
    }

    /// Path and query as they are sent. Sorted: curl signs the query in the order that it has.
    fn target(&self) -> String {
        let encoded = |text| utf8_percent_encode(text, RESERVED);
        let mut pairs: Vec<String> =
            self.query.iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(value))).collect();
        pairs.sort();
        let question = if pairs.is_empty() { "" } else { "?" };
        format!("{}{question}{}", utf8_percent_encode(&self.path, IN_PATHS), pairs.join("&"))
    }
}

/// What a store answered, whatever the status.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    /// Without any transfer encoding.
    pub body: Vec<u8>,
}

impl Answer {
    /// The first header of this name (in lower case).
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The text of the first element `name` in a body of XML.
    pub fn element(&self, name: &str) -> Option<String> {
        elements(&self.text(), name).into_iter().next()
    }
}

/// Why there is no answer.
#[derive(Clone, Debug)]
pub struct Failure {
    /// curl's exit code: 7 no connection, 18 partial body, 28 timeout, 35 and 60 TLS, 52 no answer, 56 reset.
    pub code: i32,
    /// What curl said.
    pub message: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "curl ended with {}: {}", self.code, self.message)
    }
}

impl S3Client {
    /// A client for a store at `https://HOST:PORT`, with this key; `ca` is the file of its authority.
    pub fn new(endpoint: &str, region: &str, access_key: &str, secret_key: &str, ca: Option<PathBuf>) -> Self {
        let [endpoint, region, access_key, secret_key] = [endpoint, region, access_key, secret_key].map(str::to_owned);
        Self { endpoint, region, access_key, secret_key, ca }
    }

    /// The same client with another access key of the same secret.
    pub fn with_key(&self, access_key: &str) -> Self {
        Self { access_key: access_key.to_owned(), ..self.clone() }
    }

    /// The same client for another place, such as a proxy before the store: `http://127.0.0.1:PORT`.
    pub fn at(mut self, endpoint: &str) -> Self {
        endpoint.clone_into(&mut self.endpoint);
        self
    }

    /// The same client with another secret.
    pub fn with_secret(mut self, secret_key: &str) -> Self {
        secret_key.clone_into(&mut self.secret_key);
        self
    }

    /// The same client, which signs for another region.
    pub fn in_region(mut self, region: &str) -> Self {
        region.clone_into(&mut self.region);
        self
    }

    /// The same client, which knows only the machine's authorities.
    pub fn without_ca(mut self) -> Self {
        self.ca = None;
        self
    }

    /// Sends one request, and returns the answer whatever its status is.
    ///
    /// # Panics
    /// If there is no curl, or no temporary directory can be written.
    pub fn send(&self, call: &Call) -> Result<Answer, Failure> {
        let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("cannot make a temporary directory: {error}"));
        let (sent, heads) = (folder.path().join("body"), folder.path().join("heads"));
        let announced = folder.path().join("announced");
        for (path, bytes) in [(&sent, &call.body), (&announced, call.announced.as_ref().unwrap_or(&call.body))] {
            fs::write(path, bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        }
        let hash =
            output(Command::new("sha256sum").arg("--").arg(&announced)).unwrap_or_else(|error| panic!("{error}"));
        let hash = hash.split(' ').next().unwrap_or_default();
        let config = self.config(call, &sent.to_string_lossy(), &heads.to_string_lossy(), hash);
        // `-q`: no configuration of the user who runs the test.
        let mut curl = Command::new("curl")
            .args(["-q", "--config", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot run curl: {error}: install the package `curl`"));
        if let Some(mut stdin) = curl.stdin.take() {
            stdin.write_all(config.as_bytes()).unwrap_or_else(|error| panic!("curl takes no configuration: {error}"));
        }
        let done = curl.wait_with_output().unwrap_or_else(|error| panic!("cannot wait for curl: {error}"));
        if !done.status.success() {
            let message = String::from_utf8_lossy(&done.stderr).trim().to_owned();
            return Err(Failure { code: done.status.code().unwrap_or(-1), message });
        }
        let heads = fs::read(&heads).unwrap_or_default();
        // To a HEAD curl prints the head there.
        let body = if call.method == "HEAD" { Vec::new() } else { done.stdout };
        Ok(answer(&String::from_utf8_lossy(&heads), body))
    }

    /// Writes an object.
    ///
    /// # Panics
    /// If the store does not take it.
    pub fn put(&self, bucket: &str, key: &str, body: &[u8]) {
        self.demand(&Call::new("PUT", &format!("/{bucket}/{key}")).body(body));
    }

    /// An object's bytes, or none if there is no such object.
    ///
    /// # Panics
    /// If the store answers anything else.
    pub fn get(&self, bucket: &str, key: &str) -> Option<Vec<u8>> {
        let call = Call::new("GET", &format!("/{bucket}/{key}"));
        let answer = self.send(&call).unwrap_or_else(|failure| panic!("GET {bucket}/{key}: {failure}"));
        match answer.status {
            200 => Some(answer.body),
            404 => None,
            status => panic!("GET {bucket}/{key}: {status} {}", answer.text()),
        }
    }

    /// Deletes an object.
    ///
    /// # Panics
    /// If the store does not.
    pub fn delete(&self, bucket: &str, key: &str) {
        self.demand(&Call::new("DELETE", &format!("/{bucket}/{key}")));
    }

    /// Sends a request that has to succeed.
    ///
    /// # Panics
    /// With the store's answer, if its status is not 2xx.
    pub fn demand(&self, call: &Call) -> Answer {
        let answer = self.send(call).unwrap_or_else(|failure| panic!("{} {}: {failure}", call.method, call.path));
        assert!(
            (200..300).contains(&answer.status),
            "{} {}: {} {}",
            call.method,
            call.path,
            answer.status,
            answer.text()
        );
        answer
    }

    /// The headers of a signature at another moment: curl signs with the time that it is.
    fn signed_headers(&self, call: &Call, moment: &str, hash: &str) -> [(&'static str, String); 3] {
        let host = self.endpoint.rsplit("//").next().unwrap_or_default();
        let day = moment.get(..8).unwrap_or_default();
        let names = "host;x-amz-content-sha256;x-amz-date";
        let (method, target) = (&call.method, call.target());
        let request = format!(
            "{method}\n{target}\n\nhost:{host}\nx-amz-content-sha256:{hash}\nx-amz-date:{moment}\n\n{names}\n{hash}"
        );
        let scope = format!("{day}/{}/s3/aws4_request", self.region);
        let digest = hex(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, request.as_bytes()).as_ref());
        let text = format!("AWS4-HMAC-SHA256\n{moment}\n{scope}\n{digest}");
        let mac = |key: &[u8], text: &str| {
            let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, key);
            aws_lc_rs::hmac::sign(&key, text.as_bytes()).as_ref().to_vec()
        };
        let key = mac(format!("AWS4{}", self.secret_key).as_bytes(), day);
        let key = [&self.region, "s3", "aws4_request"].iter().fold(key, |key, part| mac(&key, part));
        let signature = hex(&mac(&key, &text));
        let (id, names) = (&self.access_key, names);
        let value = format!("AWS4-HMAC-SHA256 Credential={id}/{scope}, SignedHeaders={names}, Signature={signature}");
        [("x-amz-date", moment.to_owned()), ("x-amz-content-sha256", hash.to_owned()), ("authorization", value)]
    }

    /// What curl is told by stdin.
    fn config(&self, call: &Call, sent: &str, heads: &str, hash: &str) -> String {
        let mut config = String::from("silent\nshow-error\ngloboff\npath-as-is\n");
        let mut say = |name: &str, value: &str| {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"");
            // Writing to a String does not fail.
            let _ = writeln!(config, "{name} = \"{value}\"");
        };
        say("url", &format!("{}{}", self.endpoint, call.target()));
        say("noproxy", "*");
        say("max-time", &format!("{:.3}", call.patience.as_secs_f64()));
        say("dump-header", heads);
        if let Some(rate) = &call.rate {
            say("limit-rate", rate);
        }
        if let Some(moment) = &call.moment {
            for (name, value) in self.signed_headers(call, moment, hash) {
                say("header", &format!("{name}: {value}"));
            }
        } else if !call.unsigned {
            say("user", &format!("{}:{}", self.access_key, self.secret_key));
            say("aws-sigv4", &format!("aws:amz:{}:s3", self.region));
            // S3 demands it, and curl before 8 does not say it by itself.
            say("header", &format!("x-amz-content-sha256: {hash}"));
        }
        if let Some(ca) = &self.ca {
            say("cacert", &ca.to_string_lossy());
        }
        for header in &call.headers {
            say("header", header);
        }
        match call.method.as_str() {
            "GET" => {}
            "HEAD" => config.push_str("head\n"),
            method => {
                say("request", method);
                // An empty one too: a PUT has a length. A form, which curl would say it is, it is not.
                say("data-binary", &format!("@{sent}"));
                say("header", "Content-Type: application/octet-stream");
            }
        }
        config
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn answer(heads: &str, body: Vec<u8>) -> Answer {
    // Heads that came before, such as `100 Continue`, are not the answer's.
    let last = heads.trim_end().rsplit("\r\n\r\n").next().unwrap_or_default();
    let mut lines = last.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|code| code.parse().ok()).unwrap_or(0);
    let headers = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    Answer { status, headers, body }
}

/// The texts of all elements `name` in an answer of XML; they are taken to have no attributes and none inside of one of
/// the same name, as it is in S3.
pub(crate) fn elements(xml: &str, name: &str) -> Vec<String> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    xml.split(&open)
        .skip(1)
        .filter_map(|rest| rest.split_once(&close))
        .map(|(text, _)| {
            let plain = text.replace("&lt;", "<").replace("&gt;", ">").replace("&#34;", "\"").replace("&quot;", "\"");
            plain.replace("&#39;", "'").replace("&apos;", "'").replace("&amp;", "&")
        })
        .collect()
}
