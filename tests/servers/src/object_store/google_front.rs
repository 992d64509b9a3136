//! What fake-gcs-server does not have of Google's XML interface, in front of it: uploads in parts, and writes on a condition. It keeps
//! parts in memory, hands whole objects to the server's JSON interface, and passes everything else on.
//!
//! It is written from Google's documentation and by us: that a backup works here proves the way that fullbore goes, and not that
//! Google goes it too.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::HOST;

/// How long one read or write may take: a client that is silent for longer is gone.
const SILENCE: Duration = Duration::from_secs(120);
/// The longest body that is taken, in bytes.
const BODY_MOST: u64 = 1 << 30;

/// A front that listens until it is dropped.
pub(super) struct GoogleFront {
    address: String,
    ended: Arc<AtomicBool>,
}

struct Front {
    /// Where the server listens: `127.0.0.1:PORT`.
    server: String,
    /// Whom it lets in.
    token: String,
    uploads: Mutex<BTreeMap<String, Upload>>,
    next: AtomicU64,
}

struct Upload {
    bucket: String,
    key: String,
    metadata: Vec<(String, String)>,
    parts: BTreeMap<u32, Vec<u8>>,
}

struct Request {
    method: String,
    target: String,
    path: String,
    query: Vec<(String, String)>,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

impl GoogleFront {
    /// Listens before the server at `server` (`127.0.0.1:PORT`) and lets in who has the token.
    pub(super) fn start(server: &str, token: &str) -> io::Result<Self> {
        let listener = TcpListener::bind((HOST, 0))?;
        let (address, ended) = (listener.local_addr()?.to_string(), Arc::new(AtomicBool::new(false)));
        let (server, token) = (server.to_owned(), token.to_owned());
        let front = Arc::new(Front { server, token, uploads: Mutex::default(), next: AtomicU64::new(1) });
        let stop = Arc::clone(&ended);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let front = Arc::clone(&front);
                // A client that breaks off is its own affair.
                thread::spawn(move || front.serve(&stream).unwrap_or_default());
            }
        });
        Ok(Self { address, ended })
    }

    pub(super) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for GoogleFront {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(&self.address); // Wakes the listener.
    }
}

impl Front {
    fn serve(&self, stream: &TcpStream) -> io::Result<()> {
        stream.set_read_timeout(Some(SILENCE))?;
        stream.set_write_timeout(Some(SILENCE))?;
        let mut reader = BufReader::new(stream.try_clone()?);
        while let Some(request) = Request::read(&mut reader)? {
            let bearer = format!("Bearer {}", self.token);
            let answer = if request.header("authorization") == Some(&bearer) {
                self.answer(&request)?
            } else {
                Some(Answer::error(401, "AuthenticationRequired", "Authentication required."))
            };
            match answer {
                Some(answer) => answer.write(stream, request.method == "HEAD")?,
                None => {
                    self.pass_on(&request, stream)?;
                    return stream.shutdown(Shutdown::Both);
                }
            }
        }
        Ok(())
    }

    /// What is answered here; nothing is what the server answers itself.
    fn answer(&self, request: &Request) -> io::Result<Option<Answer>> {
        let (bucket, key) = request.path.trim_start_matches('/').split_once('/').unwrap_or((&request.path[1..], ""));
        let upload = request.parameter("uploadId");
        Ok(match (request.method.as_str(), upload) {
            ("GET", _) if key.is_empty() && request.parameter("uploads").is_some() => {
                Some(self.list(bucket, request.parameter("prefix").unwrap_or_default()))
            }
            ("POST", _) if request.parameter("uploads").is_some() => Some(self.begin(bucket, key, request)?),
            ("PUT", Some(upload)) => Some(self.part(upload, request)),
            ("GET", Some(upload)) => Some(self.parts(upload)),
            ("POST", Some(upload)) => Some(self.complete(upload, request)?),
            ("DELETE", Some(upload)) => Some(match self.uploads().remove(upload) {
                Some(_) => Answer { status: 204, headers: Vec::new(), body: Vec::new() },
                None => no_such_upload(),
            }),
            ("PUT", None) => Some(self.put(
                bucket,
                key,
                &request.metadata(),
                request.header("x-goog-if-generation-match"),
                &request.body,
            )?),
            _ => None,
        })
    }

    fn uploads(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Upload>> {
        self.uploads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, bucket: &str, key: &str, request: &Request) -> io::Result<Answer> {
        if self.ask("GET", &format!("/storage/v1/b/{bucket}"), &[], &[])?.status == 404 {
            return Ok(no_such_bucket());
        }
        let id = format!("upload-{:08}", self.next.fetch_add(1, Ordering::Relaxed));
        let (bucket, key, metadata) = (bucket.to_owned(), key.to_owned(), request.metadata());
        let body = format!(
            "<InitiateMultipartUploadResult><Bucket>{bucket}</Bucket><Key>{}</Key><UploadId>{id}</UploadId></InitiateMultipartUploadResult>",
            escaped(&key)
        );
        self.uploads().insert(id, Upload { bucket, key, metadata, parts: BTreeMap::new() });
        Ok(Answer::xml(body))
    }

    fn part(&self, upload: &str, request: &Request) -> Answer {
        let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &request.body);
        let hash = format!("crc32c={}", BASE64.encode((crc as u32).to_be_bytes()));
        if request.header("x-goog-hash").is_some_and(|said| said != hash) {
            return Answer::error(400, "BadDigest", "The CRC32C you specified did not match what we received.");
        }
        let number = request.parameter("partNumber").and_then(|number| number.parse().ok());
        let Some(number) = number.filter(|number| (1..=10_000).contains(number)) else {
            return Answer::error(400, "InvalidArgument", "Part number must be an integer between 1 and 10000.");
        };
        match self.uploads().get_mut(upload) {
            None => no_such_upload(),
            Some(upload) => {
                upload.parts.insert(number, request.body.clone());
                let headers = vec![("ETag", tag_of(number, &request.body)), ("x-goog-hash", hash)];
                Answer { status: 200, headers, body: Vec::new() }
            }
        }
    }

    fn complete(&self, upload: &str, request: &Request) -> io::Result<Answer> {
        let Some(found) = self.uploads().remove(upload) else { return Ok(no_such_upload()) };
        let text = String::from_utf8_lossy(&request.body).into_owned();
        let named = crate::s3_client::elements(&text, "ETag");
        let there: Vec<String> = found.parts.iter().map(|(number, bytes)| tag_of(*number, bytes)).collect();
        if named != there {
            self.uploads().insert(upload.to_owned(), found);
            return Ok(Answer::error(400, "InvalidPart", "One or more of the specified parts could not be found."));
        }
        let whole: Vec<u8> = found.parts.values().flatten().copied().collect();
        let answer = self.put(&found.bucket, &found.key, &found.metadata, None, &whole)?;
        if answer.status != 200 {
            return Ok(answer);
        }
        let body = format!(
            "<CompleteMultipartUploadResult><Location>x</Location><Bucket>{}</Bucket><Key>{}</Key><ETag>\"whole\"</ETag></CompleteMultipartUploadResult>",
            found.bucket,
            escaped(&found.key)
        );
        Ok(Answer::xml(body))
    }

    /// An object in one request; with a condition on its generation.
    fn put(
        &self,
        bucket: &str,
        key: &str,
        metadata: &[(String, String)],
        generation: Option<&str>,
        body: &[u8],
    ) -> io::Result<Answer> {
        let condition = generation.map(|generation| format!("&ifGenerationMatch={generation}")).unwrap_or_default();
        let target = format!(
            "/upload/storage/v1/b/{bucket}/o?uploadType=media&name={}{condition}",
            utf8_percent_encode(key, NON_ALPHANUMERIC)
        );
        let answer = self.ask("POST", &target, metadata, body)?;
        Ok(match answer.status {
            200 => Answer { status: 200, headers: vec![("ETag", "\"whole\"".to_owned())], body: Vec::new() },
            404 => no_such_bucket(),
            412 => Answer::error(
                412,
                "PreconditionFailed",
                "At least one of the pre-conditions you specified did not hold.",
            ),
            status => Answer::error(status, "InternalError", &String::from_utf8_lossy(&answer.body)),
        })
    }

    fn list(&self, bucket: &str, prefix: &str) -> Answer {
        let mut body = String::from("<ListMultipartUploadsResult><IsTruncated>false</IsTruncated>");
        let uploads = self.uploads();
        for (id, upload) in
            uploads.iter().filter(|(_, upload)| upload.bucket == bucket && upload.key.starts_with(prefix))
        {
            let key = escaped(&upload.key);
            let _ = write!(body, "<Upload><Key>{key}</Key><UploadId>{id}</UploadId></Upload>");
        }
        Answer::xml(body + "</ListMultipartUploadsResult>")
    }

    fn parts(&self, upload: &str) -> Answer {
        let uploads = self.uploads();
        let Some(upload) = uploads.get(upload) else { return no_such_upload() };
        let mut body = String::from("<ListPartsResult><IsTruncated>false</IsTruncated>");
        for (number, bytes) in &upload.parts {
            let (tag, size) = (escaped(&tag_of(*number, bytes)), bytes.len());
            let _ = write!(body, "<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag><Size>{size}</Size></Part>");
        }
        Answer::xml(body + "</ListPartsResult>")
    }

    /// Asks the server, and waits for all of its answer.
    fn ask(&self, method: &str, target: &str, metadata: &[(String, String)], body: &[u8]) -> io::Result<Answer> {
        let mut stream = self.connect()?;
        let mut head = format!("{method} {target} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n", self.server);
        metadata.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
        write!(stream, "{head}Content-Length: {}\r\n\r\n", body.len())?;
        stream.write_all(body)?;
        let mut all = Vec::new();
        stream.read_to_end(&mut all)?;
        let text = String::from_utf8_lossy(&all);
        let status = text.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
        let body = text.split_once("\r\n\r\n").map_or(Vec::new(), |(_, body)| body.as_bytes().to_vec());
        Ok(Answer { status, headers: Vec::new(), body })
    }

    /// Lets the server answer, on a connection that ends with it.
    fn pass_on(&self, request: &Request, client: &TcpStream) -> io::Result<()> {
        let mut stream = self.connect()?;
        let mut head =
            format!("{} {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n", request.method, request.target, self.server);
        let hop = ["host", "connection", "content-length", "authorization"];
        let kept = request.headers.iter().filter(|(name, _)| !hop.contains(&name.as_str()));
        kept.for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
        write!(stream, "{head}Content-Length: {}\r\n\r\n", request.body.len())?;
        stream.write_all(&request.body)?;
        let mut client = client;
        io::copy(&mut stream, &mut client).map(drop)
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(&self.server)?;
        stream.set_read_timeout(Some(SILENCE))?;
        stream.set_write_timeout(Some(SILENCE))?;
        Ok(stream)
    }
}

impl Request {
    /// The next request, or none if the client has closed before one. Its body has a length.
    fn read(from: &mut impl BufRead) -> io::Result<Option<Self>> {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if from.read_line(&mut line)? == 0 {
                return Ok(None);
            }
            match line.trim_end() {
                "" => break,
                line => lines.push(line.to_owned()),
            }
        }
        let mut words = lines[0].split(' ').map(str::to_owned);
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let header =
            |line: &String| line.split_once(':').map(|(n, v)| (n.trim().to_ascii_lowercase(), v.trim().to_owned()));
        let headers: Vec<_> = lines[1..].iter().filter_map(header).collect();
        let length =
            headers.iter().find(|(name, _)| name == "content-length").and_then(|(_, value)| value.parse().ok());
        let mut body = Vec::new();
        from.take(length.unwrap_or(0).min(BODY_MOST)).read_to_end(&mut body)?;
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let pair = |pair: &str| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(name), decoded(value))
        };
        let query = query.split('&').filter(|pair| !pair.is_empty()).map(pair).collect();
        Ok(Some(Self { method, path: decoded(path), query, headers, body, target: target.clone() }))
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    fn parameter(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    fn metadata(&self) -> Vec<(String, String)> {
        self.headers.iter().filter(|(name, _)| name.starts_with("x-goog-meta-")).cloned().collect()
    }
}

impl Answer {
    fn xml(body: String) -> Self {
        Self { status: 200, headers: vec![("Content-Type", "application/xml".to_owned())], body: body.into_bytes() }
    }

    fn error(status: u16, code: &str, message: &str) -> Self {
        let body = format!("<Error><Code>{code}</Code><Message>{}</Message></Error>", escaped(message));
        Self { status, ..Self::xml(body) }
    }

    fn write(&self, mut to: &TcpStream, without_body: bool) -> io::Result<()> {
        let mut head = format!("HTTP/1.1 {} as Google says it\r\n", self.status);
        self.headers.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
        write!(to, "{head}Content-Length: {}\r\n\r\n", self.body.len())?;
        if without_body { Ok(()) } else { to.write_all(&self.body) }
    }
}

fn no_such_upload() -> Answer {
    Answer::error(404, "NoSuchUpload", "The requested upload was not found.")
}

fn no_such_bucket() -> Answer {
    Answer::error(404, "NoSuchBucket", "The specified bucket does not exist.")
}

fn tag_of(number: u32, bytes: &[u8]) -> String {
    format!("\"{number}-{:08x}\"", crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// `%41` → `A`, `+` → a space.
fn decoded(text: &str) -> String {
    percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned()
}
