//! Signature version 4 for a request as text, from Amazon's public description of it. A request that cannot be signed is
//! sent as it is.

use std::borrow::Cow;

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

/// The key of the client.
pub const ID: &str = "ALL";
/// Its secret.
pub const SECRET: &str = "0123456789abcdefSECRET";
const REGION: &str = "eu";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

/// A request with its head signed. The head ends at the first empty line; what is behind it is the body, whose length is
/// added if the head says none.
pub fn signed(request: &[u8], now: &str) -> Vec<u8> {
    let (head, body) = split(request);
    let head = String::from_utf8_lossy(head);
    let mut lines = head.lines();
    let first = lines.next().unwrap_or_default();
    let mut headers: Vec<(&str, Cow<'_, str>)> = Vec::new();
    for line in lines {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        headers.push((name.trim(), Cow::Borrowed(value.trim())));
    }
    let has =
        |headers: &[(&str, Cow<'_, str>)], name: &str| headers.iter().any(|(of, _)| of.eq_ignore_ascii_case(name));
    let length = body.len().to_string();
    for (name, value) in
        [("host", "h"), ("x-amz-content-sha256", "UNSIGNED-PAYLOAD"), ("x-amz-date", now), ("content-length", &length)]
    {
        let is_chunked = name == "content-length" && has(&headers, "transfer-encoding");
        if !has(&headers, name) && !is_chunked {
            headers.push((name, Cow::Borrowed(value)));
        }
    }
    let authorization = authorization(first, &headers, now);
    let mut out = format!("{first}\r\n").into_bytes();
    for (name, value) in &headers {
        out.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    out.extend_from_slice(format!("authorization: {authorization}\r\n\r\n").as_bytes());
    out.extend_from_slice(body);
    out
}

/// The head and the body of a request.
fn split(request: &[u8]) -> (&[u8], &[u8]) {
    let at = request.windows(2).position(|pair| pair == b"\n\n");
    match at {
        Some(at) => (request.get(..at).unwrap_or_default(), request.get(at + 2..).unwrap_or_default()),
        None => (request, b""),
    }
}

/// The value of the header that signs `host`, the sum of the body and the date.
fn authorization(first: &str, headers: &[(&str, Cow<'_, str>)], now: &str) -> String {
    let mut words = first.split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut pairs: Vec<String> = query.split('&').filter(|pair| !pair.is_empty()).map(with_sign).collect();
    pairs.sort();
    let names = ["host", "x-amz-content-sha256", "x-amz-date"];
    let value = |name: &str| {
        let found: Vec<&str> =
            headers.iter().filter(|(of, _)| of.eq_ignore_ascii_case(name)).map(|(_, value)| &value[..]).collect();
        found.join(",")
    };
    let lines: String = names.iter().map(|name| format!("{name}:{}\n", value(name))).collect();
    let (list, sum) = (names.join(";"), value("x-amz-content-sha256"));
    let canonical = format!("{method}\n{path}\n{}\n{lines}\n{list}\n{sum}", pairs.join("&"));
    let day = now.split('T').next().unwrap_or_default();
    let scope = format!("{day}/{REGION}/s3/aws4_request");
    let to_sign = format!("AWS4-HMAC-SHA256\n{now}\n{scope}\n{}", hex(&Sha256::digest(canonical.as_bytes())));
    let key = [day, REGION, "s3", "aws4_request"]
        .iter()
        .fold(format!("AWS4{SECRET}").into_bytes(), |key, text| mac(&key, text));
    let signature = hex(&mac(&key, &to_sign));
    format!("AWS4-HMAC-SHA256 Credential={ID}/{scope}, SignedHeaders={list}, Signature={signature}")
}

fn with_sign(pair: &str) -> String {
    if pair.contains('=') { pair.to_owned() } else { format!("{pair}=") }
}
