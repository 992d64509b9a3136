//! How a store really keeps objects, and its unfinished uploads: fullbore asks the store and assumes nothing.

use jiff::Timestamp;
use object_store::path::Path;
use object_store::signer::Method;

use super::bucket::{Bucket, persistently};
use super::explained;
use super::signed::{Answer, UnfinishedUpload, UploadedPart, generic, goes_on, parts, refusal, tags, uploads};
use super::xml::{Unreadable, said};
use crate::error::{Error, Result};

use super::Upload;
#[cfg(feature = "azure")]
use super::client::Client;

/// What a store says of how it keeps an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kept {
    /// `AES256`, `aws:kms` …
    pub encryption: Option<String>,
    /// `GOVERNANCE` or `COMPLIANCE`, and until when.
    pub lock: Option<(String, Timestamp)>,
    /// A legal hold, which lasts until an operator lifts it; nothing if the store does not say.
    pub legal_hold: Option<bool>,
    /// Which version of the object this is, where the bucket has versions.
    pub version: Option<String>,
    /// The store's clock.
    pub now: Option<Timestamp>,
}

impl Bucket {
    async fn tell(
        &self,
        method: Method,
        key: &str,
        query: &[(&str, &str)],
        body: &str,
    ) -> object_store::Result<Answer> {
        let path = if key.is_empty() { Path::default() } else { Path::parse(key)? };
        persistently(self.control.patience, || self.client.tell(method.clone(), &path, query, body)).await
    }

    pub(super) fn tells(&self, key: &str, method: Method, query: &[(&str, &str)], action: &str) -> Result<Answer> {
        self.tells_of(key, method, query, "", action)
    }

    pub(super) fn tells_of(
        &self,
        key: &str,
        method: Method,
        query: &[(&str, &str)],
        body: &str,
        action: &str,
    ) -> Result<Answer> {
        let thing = self.thing(key);
        let told =
            async { self.tell(method, key, query, body).await.map_err(|error| explained(action, &thing, &error)) };
        self.ask(key, told)
    }

    pub(super) fn must(&self, key: &str, answer: Answer, action: &str) -> Result<Answer> {
        if answer.is_success() {
            return Ok(answer);
        }
        Err(explained(action, &self.thing(key), &refusal(&answer)))
    }

    /// The body of a success, by its reader.
    fn parsed<T>(
        &self,
        key: &str,
        answer: Answer,
        action: &str,
        reader: impl Fn(&str) -> std::result::Result<T, Unreadable>,
    ) -> Result<T> {
        let body = self.must(key, answer, action)?.body;
        reader(&body).map_err(|flaw| explained(action, &self.thing(key), &generic(flaw)))
    }

    /// An object, or the bucket if there is no key.
    fn thing(&self, key: &str) -> String {
        if key.is_empty() { self.shown() } else { self.url(key) }
    }

    /// How an object is kept; nothing if it is not there.
    pub fn kept(&self, key: &str) -> Result<Option<Kept>> {
        let head = self.tells(key, Method::HEAD, &[], "look at")?;
        if head.status == 404 {
            return Ok(None);
        }
        let head = self.must(key, head, "look at")?;
        if !self.client.is_s3() {
            return Ok(Some(kept_by_policy(&head)));
        }
        let text = |name: &str| head.header(name).map(str::to_owned);
        let until = head.header("x-amz-object-lock-retain-until-date").and_then(|until| until.parse().ok());
        Ok(Some(Kept {
            encryption: text("x-amz-server-side-encryption"),
            lock: text("x-amz-object-lock-mode").zip(until),
            legal_hold: head.header("x-amz-object-lock-legal-hold").map(|hold| hold == "ON"),
            version: text("x-amz-version-id"),
            now: head.date(),
        }))
    }

    /// The requested class and tags that an object does not have. They cost money, not data, so this is not an error. A
    /// store that does not tell them gives no difference.
    ///
    /// # Errors
    /// The store does not answer.
    pub fn differs(&self, key: &str) -> Result<Vec<String>> {
        let objects = &self.control.objects;
        let mut differs = Vec::new();
        if let Some(asked) = &objects.storage_class {
            let head = self.must(key, self.tells(key, Method::HEAD, &[], "look at")?, "look at")?;
            // S3 does not name the default class.
            let shown = head.header("x-amz-storage-class").unwrap_or("STANDARD");
            if shown != asked {
                differs.push(format!("`{}`: class {asked} was requested, and the store shows {shown}", self.url(key)));
            }
        }
        if !objects.tags.is_empty() {
            let answer = self.tells(key, Method::GET, &[("tagging", "")], "ask for the tags of")?;
            let shown = tags(&answer.body);
            let missing = objects.tags.iter().find(|tag| !shown.contains(tag));
            match missing {
                Some((name, _)) if answer.is_success() => {
                    differs.push(format!(
                        "`{}`: the tag `{name}` was requested, and the store does not show it",
                        self.url(key)
                    ));
                }
                // An account that may set tags may lack the right to read them.
                _ => {}
            }
        }
        Ok(differs)
    }

    /// The checks that are possible between the claim and the first part: whether the store encrypts at all, and
    /// whether a lock can be read.
    pub(crate) fn check_beforehand(&self, claim: &str) -> Result<()> {
        if let Some(asked) = self.client.encryption() {
            let kept = self.kept(claim)?.unwrap_or_default();
            if kept.encryption.as_deref() != Some(asked.algorithm) {
                return Err(self.ignores_encryption(claim, &kept));
            }
        }
        if self.control.objects.lock.is_some() {
            self.retention(claim).map_err(|error| {
                error.noting("the account needs s3:GetObjectRetention, so that fullbore can check the lock")
            })?;
        }
        Ok(())
    }

    /// Checks that a completed object is kept as requested. A store that ignores an option must not pass.
    pub fn check_kept(&self, key: &str) -> Result<()> {
        let objects = &self.control.objects;
        if self.client.encryption().is_none() && objects.lock.is_none() {
            return Ok(());
        }
        let kept = self.kept(key)?.unwrap_or_default();
        if let Some(asked) = self.client.encryption()
            && kept.encryption.as_deref() != Some(asked.algorithm)
        {
            return Err(self.ignores_encryption(key, &kept));
        }
        let Some(asked) = self.control.lock() else { return Ok(()) };
        let lock = if kept.lock.is_some() { kept.lock } else { self.retention(key)? };
        let is_kept = |(mode, until): &(String, Timestamp)| {
            mode.eq_ignore_ascii_case(&asked.mode.to_string()) && *until >= asked.until
        };
        if lock.as_ref().is_some_and(is_kept) {
            return Ok(());
        }
        let shown = lock.map_or_else(|| "shows none".to_owned(), |(mode, until)| format!("shows {mode} until {until}"));
        Err(Error::refused(
            self.url(key),
            format!("a lock ({}) until {} was requested, and the store {shown}", asked.mode, asked.until),
            "leave --lock-until out, or use a store with Object Lock; the bucket's own default may differ",
        ))
    }

    fn ignores_encryption(&self, key: &str, kept: &Kept) -> Error {
        let asked = self.client.encryption().map_or("none", |asked| asked.algorithm);
        let shown = kept.encryption.as_deref().unwrap_or("none");
        Error::refused(
            self.url(key),
            format!("encryption by the store ({asked}) was requested, and the store shows {shown}: it ignores --sse"),
            "leave --sse out, and use --encrypt-to: it does not depend on the store",
        )
    }

    /// The uploads under `prefix` that were begun, and neither completed nor aborted. They cost money, and are
    /// invisible.
    pub fn unfinished_uploads(&self, prefix: &str) -> Result<Vec<UnfinishedUpload>> {
        let action = "list the unfinished uploads of";
        #[cfg(feature = "azure")]
        if let Client::Azure(azure) = &self.client {
            let once = || azure.unfinished_uploads(prefix);
            return self.listed("", action, once);
        }
        let mut found: Vec<UnfinishedUpload> = Vec::new();
        let (mut from, mut pages) = (Vec::new(), 0);
        loop {
            let mut answer = self.page_of_uploads(prefix, &from)?;
            // versitygw 1.8 refuses the upload id with which it continues its own listing: then the rest of that key is
            // listed by its name.
            if let (400, [(_, key), (_, id)]) = (answer.status, &from[..])
                && !id.is_empty()
            {
                let rest = self.page_of_uploads(key, &[])?;
                found.extend(self.parsed("", rest, action, uploads)?.items);
                from.truncate(1);
                answer = self.page_of_uploads(prefix, &from)?;
            }
            let page = self.parsed("", answer, action, uploads)?;
            found.extend(page.items);
            pages += 1;
            match page.next {
                Some(next) if goes_on(pages, &from, &next) => from = next,
                Some(_) => return Err(self.endless(action)),
                None => break,
            }
        }
        found.retain(|upload| upload.key.starts_with(prefix));
        found.sort_by(|one, other| (&one.key, &one.upload.0).cmp(&(&other.key, &other.upload.0)));
        found.dedup();
        Ok(found)
    }

    fn page_of_uploads(&self, prefix: &str, from: &[(&'static str, String)]) -> Result<Answer> {
        let fixed = [("uploads", ""), ("prefix", prefix), ("encoding-type", "url")];
        self.page("", &fixed, from, "list the unfinished uploads of")
    }

    /// The parts that the store has of an unfinished upload, by number; nothing if there is no such upload.
    pub fn parts(&self, key: &str, upload: &Upload) -> Result<Option<Vec<UploadedPart>>> {
        let action = "list the parts of";
        #[cfg(feature = "azure")]
        if let Client::Azure(azure) = &self.client {
            let path = self.path(key)?;
            return self.listed(key, action, || azure.parts(&path, &upload.0));
        }
        let mut found = Vec::new();
        let (mut from, mut pages) = (Vec::new(), 0);
        loop {
            let answer = self.page(key, &[("uploadId", &upload.0)], &from, action)?;
            if answer.status == 404 && said(&answer.body, "Code").is_some_and(|code| code == "NoSuchUpload") {
                return Ok(None);
            }
            let page = self.parsed(key, answer, action, parts)?;
            found.extend(page.items);
            pages += 1;
            match page.next {
                Some(next) if goes_on(pages, &from, &next) => from = next,
                Some(_) => return Err(self.endless(action)),
                None => return Ok(Some(found)),
            }
        }
    }

    #[cfg(feature = "azure")]
    fn listed<T, F>(&self, key: &str, action: &str, once: impl FnMut() -> F) -> Result<T>
    where
        F: Future<Output = object_store::Result<T>>,
    {
        let thing = self.thing(key);
        let found = async { persistently(self.control.patience, once).await };
        self.ask(key, async { found.await.map_err(|error| explained(action, &thing, &error)) })
    }

    fn page(&self, key: &str, fixed: &[(&str, &str)], from: &[(&'static str, String)], action: &str) -> Result<Answer> {
        let mut query = fixed.to_vec();
        query.extend(from.iter().map(|(name, value)| (*name, value.as_str())));
        self.tells(key, Method::GET, &query, action)
    }

    fn endless(&self, action: &str) -> Error {
        Error::refused(
            self.shown(),
            format!("cannot {action} it: the listing does not end"),
            "do not trust this store with a backup",
        )
    }
}

/// How a blob is kept by a rule of the container or of an operator: fullbore sets none there. Google reports this only
/// in its other interface, and refuses to remove what it keeps.
fn kept_by_policy(head: &Answer) -> Kept {
    let until = head.header("x-ms-immutability-policy-until-date");
    let until = until.and_then(|until| jiff::fmt::rfc2822::parse(until).ok()).map(|until| until.timestamp());
    let mode = head.header("x-ms-immutability-policy-mode").unwrap_or("policy").to_owned();
    Kept {
        encryption: None,
        lock: until.map(|until| (mode, until)),
        legal_hold: head.header("x-ms-legal-hold").map(|hold| hold == "true"),
        version: None,
        now: head.date(),
    }
}
