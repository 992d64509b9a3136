//! Object Lock: what is locked, for how long, and what may not be known.
//!
//! Public sources: Amazon S3 API Reference (HeadObject, GetObjectRetention, GetObjectLegalHold,
//! GetObjectLockConfiguration, PutObjectRetention).

use std::fmt;

use jiff::Timestamp;
use object_store::signer::Method;

use super::attributes::Kept;
use super::bucket::Bucket;
use super::explained;
use super::signed::{Answer, no_bucket};
use super::xml::said;
use crate::error::{Error, Result};

const ASK: &str = "ask for the lock of";
/// What an account needs to remove objects from a bucket with Object Lock.
pub const PERMISSIONS: &str = "give the account s3:GetObjectRetention and s3:GetObjectLegalHold";

/// Why an object cannot be removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lock {
    /// `GOVERNANCE`, `COMPLIANCE`, or a policy of the store, until then.
    Until(String, Timestamp),
    /// A legal hold: it lasts until an operator lifts it.
    Held,
    /// The account may not read the lock: the object counts as locked.
    Unknown,
}

/// Whether an object may be removed, and with what effect.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Locked {
    /// Nothing: it may be removed.
    pub by: Option<Lock>,
    /// Its bucket has versions: a removed object stays behind a delete marker, and costs the same.
    pub leaves_version: bool,
}

impl Lock {
    /// Until when, where that is known.
    pub fn until(&self) -> Option<Timestamp> {
        match self {
            Self::Until(_, until) => Some(*until),
            Self::Held | Self::Unknown => None,
        }
    }
}

/// As it follows the name of an object.
impl fmt::Display for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Until(mode, until) => write!(f, "is locked until {until} ({mode})"),
            Self::Held => f.write_str("is under a legal hold"),
            Self::Unknown => f.write_str("may be locked: the account may not read the lock"),
        }
    }
}

impl Bucket {
    /// The lock of an object; some stores do not report it in a HEAD.
    pub(super) fn retention(&self, key: &str) -> Result<Option<(String, Timestamp)>> {
        let Some(answer) = self.told_of(key, "retention")? else { return Ok(None) };
        Ok(retention_of(&self.must(key, answer, ASK)?.body))
    }

    /// The store's answer about the `retention` or the `legal-hold` of an object; nothing if the object has none, or
    /// the store knows none.
    fn told_of(&self, key: &str, what: &str) -> Result<Option<Answer>> {
        let answer = self.tells(key, Method::GET, &[(what, "")], ASK)?;
        Ok(Some(answer).filter(|answer| !matches!(answer.status, 400 | 404 | 501)))
    }

    /// Whether an object may be removed. A missing object may be.
    ///
    /// # Errors
    /// The store does not answer.
    pub fn locked(&self, key: &str) -> Result<Locked> {
        let Some(kept) = self.kept(key)? else { return Ok(Locked::default()) };
        let leaves_version = kept.version.as_deref().is_some_and(|version| version != "null");
        Ok(Locked { by: self.locked_by(key, &kept)?, leaves_version })
    }

    fn locked_by(&self, key: &str, kept: &Kept) -> Result<Option<Lock>> {
        let now = kept.now.unwrap_or_else(Timestamp::now);
        let lasts = |lock: Option<(String, Timestamp)>| lock.filter(|(_, until)| *until > now);
        let until = |(mode, until)| Lock::Until(mode, until);
        if kept.legal_hold == Some(true) {
            return Ok(Some(Lock::Held));
        }
        if let Some(lock) = lasts(kept.lock.clone()) {
            return Ok(Some(until(lock)));
        }
        if !self.client.is_s3() || !self.may_lock(kept)? {
            return Ok(None);
        }
        // A HEAD shows a lock only to an account that may read locks, and some stores never show it.
        if kept.lock.is_none()
            && let Some(answer) = self.told_of(key, "retention")?
        {
            if answer.status == 403 {
                return Ok(Some(Lock::Unknown));
            }
            if let Some(lock) = lasts(retention_of(&self.must(key, answer, ASK)?.body)) {
                return Ok(Some(until(lock)));
            }
        }
        if kept.legal_hold.is_none()
            && let Some(answer) = self.told_of(key, "legal-hold")?
        {
            if answer.status == 403 {
                return Ok(Some(Lock::Unknown));
            }
            let body = self.must(key, answer, ASK)?.body;
            return Ok(said(&body, "Status").filter(|status| status == "ON").map(|_| Lock::Held));
        }
        Ok(None)
    }

    /// True where objects can be locked. If the account may not ask, a bucket with versions counts as one with Object
    /// Lock, which needs versions.
    fn may_lock(&self, kept: &Kept) -> Result<bool> {
        if let Some(known) = self.locks.get() {
            return Ok(known.unwrap_or(kept.version.is_some()));
        }
        let answer = self.tells("", Method::GET, &[("object-lock", "")], "ask for Object Lock in")?;
        let known = (answer.status != 403).then(|| is_enabled(&answer));
        Ok(self.locks.get_or_init(|| known).unwrap_or(kept.version.is_some()))
    }

    /// Refuses to replace or remove a locked object: a store with versions would accept this, and hide what it must
    /// keep.
    ///
    /// # Errors
    /// It is locked, or the account may not read the lock.
    pub fn refuse_locked(&self, key: &str) -> Result<()> {
        let Some(lock) = self.locked(key)?.by else { return Ok(()) };
        let hint = match lock {
            Lock::Unknown => PERMISSIONS,
            _ => "name another key; --init does not replace a locked object",
        };
        Err(Error::refused(self.url(key), lock.to_string(), hint))
    }

    /// Locks an object for as long as new ones are locked, unless it is locked for longer: a set that depends on it
    /// must not outlive it. True when its lock was made longer. Without a lock for new ones nothing is done.
    ///
    /// # Errors
    /// The object is not there, or the store does not lock it; the account needs `s3:PutObjectRetention`.
    pub fn extend_lock(&self, key: &str) -> Result<bool> {
        let Some(asked) = self.control.lock() else { return Ok(false) };
        let action = "extend the lock of";
        let now = self.retention(key)?;
        if now.as_ref().is_some_and(|(_, until)| *until >= asked.until) {
            return Ok(false);
        }
        // fullbore weakens no lock: a stronger one is there on purpose.
        let is_stronger = |(mode, _): &(String, Timestamp)| mode.eq_ignore_ascii_case("COMPLIANCE");
        let mode = now.filter(is_stronger).map_or_else(|| asked.mode.to_string(), |(mode, _)| mode);
        let body = format!(
            "<Retention xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Mode>{mode}</Mode>\
             <RetainUntilDate>{}</RetainUntilDate></Retention>",
            asked.until
        );
        let answer = self.tells_of(key, Method::PUT, &[("retention", "")], &body, action)?;
        self.must(key, answer, action)?;
        match self.retention(key)? {
            Some((_, until)) if until >= asked.until => Ok(true),
            shown => {
                let shown = shown.map_or_else(|| "no lock".to_owned(), |(mode, until)| format!("{mode} until {until}"));
                let why = format!("a lock until {} was requested, and the store shows {shown}", asked.until);
                Err(Error::refused(self.url(key), why, "use a store with Object Lock, or leave --lock-until out"))
            }
        }
    }

    /// Refuses a lock in a bucket that has none, before anything is written.
    pub(crate) fn check_lockable(&self) -> Result<()> {
        let Some(lock) = self.control.lock() else { return Ok(()) };
        let answer = self.tells("", Method::GET, &[("object-lock", "")], "ask for Object Lock in")?;
        let now = answer.date().unwrap_or_else(Timestamp::now);
        if lock.until <= now {
            return Err(Error::usage(
                "--lock-until",
                format!("{} is not in the future: the store's clock says {now}", lock.until),
                "give a later time, or a number of days: 30d",
            ));
        }
        // An account that may lock objects may lack the right to see the bucket's settings: then the store refuses the
        // first upload.
        if is_enabled(&answer) || answer.status == 403 {
            return Ok(());
        }
        // Some stores give the same answer for a bucket that they do not have.
        if self.tells("", Method::HEAD, &[], "look at")?.status == 404 {
            return Err(explained("look at", &self.shown(), &no_bucket()));
        }
        Err(Error::refused(
            self.shown(),
            "has no Object Lock, and --lock-until needs it",
            "create a bucket with Object Lock enabled (a store enables it only when it creates the bucket), \
            or leave --lock-until out",
        ))
    }
}

fn retention_of(body: &str) -> Option<(String, Timestamp)> {
    let until = said(body, "RetainUntilDate").and_then(|until| until.parse().ok());
    said(body, "Mode").zip(until)
}

fn is_enabled(answer: &Answer) -> bool {
    answer.is_success() && said(&answer.body, "ObjectLockEnabled").is_some_and(|enabled| enabled == "Enabled")
}
