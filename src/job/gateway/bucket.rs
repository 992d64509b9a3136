//! A repository as a bucket: which objects its sets hold.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fullbore_core::cipher::SecretKey;
use fullbore_core::codec::Compression;
use fullbore_core::conduct::Conduct;
use fullbore_core::media::SetKind;
use fullbore_core::plan::{Knobs, Plan, TransferSize};
use fullbore_core::{Error, Result};
use fullbore_engines::engine::DatabaseUrl;
use fullbore_engines::{ObjectMedia, UploadedObject};
use fullbore_gateway::storage::Done;
use fullbore_gateway::{Failure, ObjectInfo, ObjectReader, Tell};
use fullbore_repository::Repository;
use fullbore_repository::config::Config;
use fullbore_repository::discovery;
use fullbore_repository::inventory::StoredSet;

use super::Writing;
use super::media::was_checked;
use crate::job::backup::{self, recipients};
use crate::job::repository::{Setting, remove, upload};
use crate::job::uploaded::Version;
use crate::job::uploaded::reader::{self, SetReader};

/// The list of objects is read again after this time: other hosts write and prune, too.
const FRESH: Duration = Duration::from_secs(30);
/// The same before the answer that there is no such object.
const NEARLY_FRESH: Duration = Duration::from_secs(2);
/// The buffers of an upload's backup hold the buffers of the gateway, with the head of a block before it.
const TRANSFER_SIZE: u32 = (1 << 20) + (64 << 10);

/// What a client sees of an object.
fn info(version: &Version) -> ObjectInfo {
    let facts = version.facts.clone();
    ObjectInfo {
        key: facts.key,
        bytes: facts.bytes,
        etag: facts.etag,
        modified: facts.completed_at,
        content_type: facts.content_type,
        metadata: facts.metadata,
    }
}

/// The known objects of a bucket: all versions of each key, the newest last.
#[derive(Default)]
struct KnownObjects {
    read: Option<Instant>,
    objects: BTreeMap<String, Vec<Version>>,
}

impl KnownObjects {
    fn add(&mut self, version: Version) {
        let versions = self.objects.entry(version.facts.key.clone()).or_default();
        versions.retain(|other| other.set.record.backup_set_id != version.set.record.backup_set_id);
        versions.push(version);
        versions.sort_by_key(Version::order);
    }
}

/// A repository as a bucket.
pub(super) struct Bucket {
    pub name: String,
    /// `--repo`.
    setting: String,
    config: Config,
    pub repository: Repository,
    template: backup::Request,
    key: Option<SecretKey>,
    known: Mutex<KnownObjects>,
    /// The moment of the last completed upload: no two have the same.
    completed_at: Mutex<i64>,
    pub conduct: Conduct,
    pub tell: Tell,
}

impl ObjectReader for SetReader {
    fn read(&mut self, at: u64) -> Done<Vec<u8>> {
        Ok(self.read_at(at)?)
    }
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Bucket {
    /// Opens a repository, or makes it.
    ///
    /// # Errors
    /// It cannot be used as a bucket.
    pub fn open(setting: &str, config: &Config, writing: &Writing, conduct: &Conduct, tell: &Tell) -> Result<Self> {
        if config.repository.get(setting).is_some_and(|repository| repository.hide_names) {
            let why = "has hide-names, but the records of the gateway must show the keys of objects";
            return Err(Error::usage(format!("--repo {setting}"), why, "use another repository for the gateway"));
        }
        let places = fullbore_repository::places(setting, config)?;
        let repository = Repository::open_to_write(setting, places, &conduct.stores)?;
        let template = template(config, writing, &repository)?;
        let key = discovery::read_key(template.key.as_deref())?;
        // A key file that is missing is told now, and not to the first client.
        recipients(&template.encrypt_to)?;
        // A repository without a name in the configuration is a directory or a prefix: its last part is the name.
        let name = setting.trim_end_matches('/').rsplit(['/', ':']).next().unwrap_or_default();
        if name.is_empty() {
            return Err(Error::usage(
                format!("--repo {setting}"),
                "has no name for a bucket",
                "name it in the configuration",
            ));
        }
        Ok(Self {
            name: name.to_owned(),
            setting: setting.to_owned(),
            config: config.clone(),
            repository,
            template,
            key,
            known: Mutex::default(),
            completed_at: Mutex::default(),
            conduct: conduct.clone(),
            tell: Arc::clone(tell),
        })
    }

    /// The families of a media set that are not in the bucket, besides this one. True if the others were all checked.
    pub fn missing_families(&self, of: &ObjectMedia) -> (Vec<u16>, bool) {
        // If the others cannot be read, those that this gateway has stored count.
        let known = self.known(FRESH).unwrap_or_else(|_| held(&self.known));
        let newest = known.objects.values().filter_map(|versions| versions.last());
        let media: Vec<&ObjectMedia> = newest.filter_map(|version| version.facts.media.as_ref()).collect();
        let checked = media.iter().filter(|other| other.media_set == of.media_set).all(|other| was_checked(other));
        (of.missing(media), checked)
    }

    pub fn setting(&self) -> Setting<'_> {
        Setting { name: &self.setting, config: &self.config }
    }

    /// When its repository was made, in microseconds since 1970.
    pub fn created(&self) -> i64 {
        let by_host = self.repository.created_at.parse::<jiff::Timestamp>().map(|at| at.as_microsecond());
        self.repository.stored_at.or(by_host.ok()).unwrap_or(0)
    }

    /// The request for the backup of an object.
    pub fn request(&self, key: &str) -> backup::Request {
        backup::Request { source: DatabaseUrl::of_name(&UploadedObject, key), ..self.template.clone() }
    }

    /// A conduct of its own for a job: another job that ends does not end it.
    ///
    /// # Errors
    /// The options of its stores do not fit.
    pub fn own_conduct(&self) -> Result<Conduct> {
        let stores = self.config.stores()?.telling_as(&self.conduct.stores);
        Ok(Conduct { stores, volumes: self.conduct.volumes.clone(), ..Conduct::default() })
    }

    /// Bytes that the backup of an upload takes.
    pub fn upload_memory(&self) -> u64 {
        let stripes = upload::families(&self.template);
        let plan = Plan::backup(&self.template.knobs, stripes, self.template.compression, false);
        plan.map_or(0, |plan| plan.pool_bytes() + plan.codec_bytes)
    }

    /// The present moment, later than that of every known object. A clock that was set back must not hide a new object
    /// behind an older one.
    ///
    /// # Errors
    /// The objects that are there cannot be read: then nobody knows which moment is late enough.
    pub fn next_moment(&self) -> Result<i64> {
        drop(self.known(FRESH)?);
        let mut last = held(&self.completed_at);
        *last = jiff::Timestamp::now().as_microsecond().max(last.saturating_add(1));
        Ok(*last)
    }

    /// A set was stored.
    pub fn stored(&self, set: StoredSet) -> Option<ObjectInfo> {
        let version = Version::of(set)?;
        let info = info(&version);
        held(&self.known).add(version);
        Some(info)
    }

    /// The known objects, read again if they are older than this.
    fn known(&self, fresh: Duration) -> Result<MutexGuard<'_, KnownObjects>> {
        let mut known = held(&self.known);
        if known.read.is_some_and(|read| read.elapsed() < fresh) {
            return Ok(known);
        }
        let conduct = self.own_conduct()?;
        let inventory = self.setting().inventory(&self.repository, &conduct, &mut Vec::new())?;
        *known = KnownObjects { read: Some(Instant::now()), objects: BTreeMap::new() };
        inventory.sets.into_iter().filter_map(Version::of).for_each(|version| known.add(version));
        // A clock that was set back must not make a new object older than what it replaces.
        let versions = known.objects.values().flatten();
        let last = versions.map(|version| version.facts.completed_at).max().unwrap_or(0);
        let mut completed_at = held(&self.completed_at);
        *completed_at = last.max(*completed_at);
        drop(completed_at);
        Ok(known)
    }

    /// What a client sees of the newest object with this key.
    pub fn info(&self, key: &str) -> Done<ObjectInfo> {
        Ok(info(&self.newest(key)?))
    }

    /// The newest object with this key.
    fn newest(&self, key: &str) -> Done<Version> {
        let newest = |known: &KnownObjects| known.objects.get(key).and_then(|versions| versions.last()).cloned();
        if let Some(found) = newest(&*self.known(FRESH)?) {
            return Ok(found);
        }
        newest(&*self.known(NEARLY_FRESH)?).ok_or(Failure::NoObject)
    }

    /// The same, to be read. A set that another host has removed meanwhile is not the newest one any more.
    pub fn open_object(&self, key: &str) -> Done<(ObjectInfo, Box<dyn ObjectReader>)> {
        let version = self.newest(key)?;
        let opened = reader::open(&version.set, &self.repository, self.key.as_ref());
        let opened = match opened {
            Ok(opened) => opened,
            Err(_) if self.newer(key, &version)? => {
                return self.open_object(key);
            }
            Err(error) => return Err(error.into()),
        };
        Ok((info(&version), Box::new(opened)))
    }

    /// The object of one set, to be read.
    pub fn open_set(&self, set: &StoredSet) -> Result<SetReader> {
        reader::open(set, &self.repository, self.key.as_ref())
    }

    /// True if the newest version of a key is another one by now.
    fn newer(&self, key: &str, than: &Version) -> Done<bool> {
        held(&self.known).read = None;
        match self.newest(key) {
            Ok(version) => Ok(version.set.record.backup_set_id != than.set.record.backup_set_id),
            Err(failure) => Err(failure),
        }
    }

    /// Objects in the order of their keys.
    pub fn list(&self, prefix: &str, after: &str, most: usize) -> Done<Vec<ObjectInfo>> {
        let known = self.known(FRESH)?;
        let begin = if after < prefix { Bound::Included(prefix) } else { Bound::Excluded(after) };
        let keys = known.objects.range::<str, _>((begin, Bound::Unbounded));
        let keys = keys.take_while(|(key, _)| key.starts_with(prefix));
        Ok(keys.filter_map(|(_, versions)| versions.last()).take(most).map(info).collect())
    }

    /// Removes all sets with this key.
    pub fn remove(&self, key: &str) -> Done<()> {
        let versions = self.known(NEARLY_FRESH)?.objects.get(key).cloned().unwrap_or_default();
        if versions.is_empty() {
            return Ok(());
        }
        let conduct = self.own_conduct()?;
        let sets: Vec<StoredSet> = versions.into_iter().map(|version| version.set).collect();
        let removed = remove::sets(&sets, key, self.setting(), &conduct);
        held(&self.known).read = None;
        match removed {
            Err(error @ Error::Refused { .. }) => Err(Failure::Refused(error.one_line())),
            removed => Ok(removed?),
        }
    }
}

/// The request for every backup into a repository, without the object.
fn template(config: &Config, writing: &Writing, repository: &Repository) -> Result<backup::Request> {
    let configured = config.compression.as_ref().map(|text| text.parse::<Compression>()).transpose()?;
    let knobs = Knobs {
        transfer_size: TransferSize::new(u64::from(TRANSFER_SIZE))?,
        // One reader takes the bytes from all connections.
        readers: Some(1),
        workers: writing.knobs.workers.or(config.workers).or(Some(1)),
        ..writing.knobs.clone()
    };
    let encrypt_to = if writing.encrypt_to.is_empty() { &config.encrypt_to } else { &writing.encrypt_to };
    Ok(backup::Request {
        to: repository.places.clone(),
        stripes: writing.stripes.or(config.stripes),
        compression: writing.compression.or(configured).unwrap_or_default(),
        knobs,
        encrypt_to: encrypt_to.clone(),
        key: writing.key.clone().or_else(|| config.key.clone()),
        name_template: config.name_template.clone(),
        ..backup::Request::plain(DatabaseUrl::default(), SetKind::Full)
    })
}
