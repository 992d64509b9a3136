//! The preparation of a copy, before its first byte is read: its media, its names, its plan.

use fullbore_core::cipher::{CipherId, DataKey};
use fullbore_core::codec::{self, Compression};
use fullbore_core::device::Device;
use fullbore_core::media::{Label, Manifest, ManifestFamily, SetHeader, total};
use fullbore_core::plan::{Knobs, UnpackPlan};
use fullbore_core::sink::LEAST_PART;
use fullbore_core::store::Stores;
use fullbore_core::unpack::{Family, MediaSet};
use fullbore_core::{Error, Result};
use uuid::Uuid;

use super::Request;
use super::method::CopyMethod;
use super::one::One;
use crate::job::backup::{self, sinks};
use crate::job::inspect::show_codec;
use crate::job::names::{self, DEFAULT_TEMPLATE, NameFields};
use crate::job::recover::{self, Ours};
use crate::job::stripes;
use crate::job::{reading, space};
use crate::report::{PoolReport, Report};
use fullbore_core::conduct::Conduct;
use fullbore_core::resources;
use fullbore_model::verdict::{Copying, Setup};
use fullbore_repository::discovery;

/// Writes in flight for each family, if memory is not short.
const QUEUE_DEPTH: usize = 4;
/// Bytes of a family in addition to its blocks.
const FAMILY_OVERHEAD: u64 = 256 << 10;

/// Everything known before the first byte is read.
pub(super) struct Prepared {
    /// The devices of its families.
    pub devices: Vec<Device>,
    /// The header of the copy; for a copy as it is, the header of its source.
    pub header: SetHeader,
    /// The manifest of the copy, if known.
    pub manifest: Option<Manifest>,
    /// The fresh key of a copy that is made anew and encrypted.
    pub data_key: Option<DataKey>,
    /// Bytes expected in each family.
    pub expected: Vec<u64>,
    /// Families that exist already, from a copy that was killed.
    pub standing: Vec<bool>,
    /// Part of the working names, so that unfinished files do not count as families of the source.
    pub attempt: Uuid,
}

/// Threads and buffers of a copy.
pub(super) struct CopyPlan {
    /// Threads and buffers for reading.
    pub reading: UnpackPlan,
    /// Buffers for writing, if blocks are made anew.
    pub output_buffers: usize,
    /// Writes in flight for each family of the copy.
    pub queue_depth: usize,
}

impl CopyPlan {
    /// The plan for a set that is copied this way, with so many writes in flight for each family.
    ///
    /// # Errors
    /// A setting out of its bounds.
    fn new(knobs: &Knobs, found: &discovery::Found, way: &CopyMethod, queue_depth: usize) -> Result<Self> {
        let families = usize::from(found.families);
        let mut reading = UnpackPlan::new(knobs, families, found.header.transfer_size, 0)?;
        let output_buffers = match way {
            CopyMethod::AsItIs => {
                // The same buffers are read and written, so they are in use longer.
                reading.input_buffers += families * queue_depth;
                0
            }
            CopyMethod::Anew { stripes, .. } => stripes * (1 + queue_depth) + 2 * reading.workers,
        };
        Ok(Self { reading, output_buffers, queue_depth })
    }

    /// The plan, after a check that there is enough memory; a smaller plan if memory is short and BUFFERCOUNT was not
    /// given. Reports the memory.
    ///
    /// # Errors
    /// A setting out of its bounds; even the smallest plan does not fit.
    pub fn claimed(
        request: &Request,
        found: &discovery::Found,
        way: &CopyMethod,
        conduct: &Conduct,
        report: &mut Report,
    ) -> Result<Self> {
        let knobs = &request.reading.knobs;
        let usual = Self::new(knobs, found, way, QUEUE_DEPTH)?;
        let each = (found.stored_bytes / way.families(found) as u64).saturating_add(FAMILY_OVERHEAD);
        let claim = |plan: &Self, report: &mut Report| plan.claim(request, (found, way), each, conduct, report);
        let Err(too_large) = claim(&usual, report) else { return Ok(usual) };
        for smaller in reading::smaller(knobs, &usual.reading, found.families.into()) {
            let plan = Self::new(&smaller, found, way, 1)?;
            if claim(&plan, report).is_ok() {
                let of = |plan: &Self| (plan.reading.buffer_count() + plan.output_buffers, plan.reading.workers);
                report.note_smaller_plan(of(&plan), of(&usual));
                return Ok(plan);
            }
        }
        Err(reading::naming_smallest(too_large, knobs, report))
    }

    /// Reports the memory for families of at most `each` bytes, and refuses the plan if there is not enough.
    pub fn claim(
        &self,
        request: &Request,
        (found, way): (&discovery::Found, &CopyMethod),
        each: u64,
        conduct: &Conduct,
        report: &mut Report,
    ) -> Result<()> {
        let transfer_size = self.reading.transfer_size;
        let buffer_count = self.reading.buffer_count() + self.output_buffers;
        let packs = match way {
            CopyMethod::AsItIs => Compression::None,
            CopyMethod::Anew { compression, .. } => compression.unwrap_or(Compression::None),
        };
        let families = way.families(found);
        let part_bytes = stripes::part_bytes(&request.to, families, each, LEAST_PART, &conduct.stores)?;
        let codec_bytes = (self.reading.workers * codec::memory(packs, transfer_size as usize)) as u64;
        report.pool = PoolReport {
            buffer_count: buffer_count as u64,
            max_transfer_size: transfer_size.into(),
            bytes: buffer_count as u64 * u64::from(transfer_size),
            codec_bytes,
            part_bytes,
        };
        resources::check_memory(report.pool.bytes, buffer_count, transfer_size, codec_bytes + part_bytes)
    }
}

impl One<'_> {
    /// `stores` are the stores of the copy.
    pub(super) fn prepare(
        &self,
        way: &CopyMethod,
        set: &mut MediaSet,
        stores: &Stores,
        report: &mut Report,
    ) -> Result<Prepared> {
        let attempt = Uuid::new_v4();
        let media_set_id = match way {
            CopyMethod::AsItIs => self.found.media_set_id,
            CopyMethod::Anew { .. } => Uuid::now_v7(),
        };
        let devices = self.devices(media_set_id, way.families(self.found), set.manifest())?;
        let expected = expected(way, set)?;
        let mut prepared = Prepared {
            standing: vec![false; devices.len()],
            header: set.header().clone(),
            manifest: set.manifest().cloned(),
            data_key: None,
            devices,
            expected,
            attempt,
        };
        match way {
            CopyMethod::AsItIs => prepared.learn_standing(set, stores)?,
            CopyMethod::Anew { compression, recipients, .. } => {
                let (data_key, keys) = backup::fresh_key(recipients, media_set_id)?;
                prepared.data_key = data_key;
                prepared.header.keys = keys;
                prepared.describe_anew(media_set_id, *compression)?;
            }
        }
        // Also if all families exist: this run removes the leftovers of a killed copy beside them.
        let database = self.database(set.manifest());
        let stems = fullbore_engines::stems(&self.found.header.engine, &database);
        let patterns = sinks::patterns(self.template(), &stems);
        let recovered = recover::recover(&prepared.devices, &Ours { database, patterns }, self.request.dry_run)?;
        report.notes.extend(recovered.notes);
        if !prepared.stands() {
            let written = prepared.expected.iter().zip(&prepared.standing).filter(|(_, stands)| !**stands);
            let most = written.map(|(bytes, _)| *bytes).max().unwrap_or(0);
            let devices: Vec<Device> = prepared.to_write().map(|(device, _)| device.clone()).collect();
            let each = space::Expected { bytes: most, is_most: false };
            space::check_room(&devices, each.times(devices.len()), &recovered.freed)?;
        }
        Ok(prepared)
    }

    /// The plan for the verdict; `None` if families exist already, because these are read instead of written.
    pub(super) fn setup(
        &self,
        way: &CopyMethod,
        plan: &CopyPlan,
        set: &MediaSet,
        prepared: &Prepared,
        report: &Report,
    ) -> Option<Setup> {
        if prepared.standing.contains(&true) {
            return None;
        }
        let packed = show_codec(self.found.header.codec);
        let (anew, packs) = match way {
            CopyMethod::AsItIs => (false, None),
            CopyMethod::Anew { compression, .. } => (true, *compression),
        };
        let setup =
            Setup::of_copy(&plan.reading, usize::from(self.found.families), (plan.output_buffers, plan.queue_depth));
        let sealed = set.is_sealed();
        Some(Setup {
            codec: match packs {
                Some(compression) => compression.to_string(),
                None if sealed => Compression::None.to_string(),
                None => packed.clone(),
            },
            codec_bytes: report.pool.codec_bytes,
            encrypted: prepared.data_key.is_some(),
            copying: Some(Copying {
                anew,
                packs: packs.is_some(),
                unpacks: (!sealed).then_some(packed),
                decrypts: !sealed && !self.found.header.keys.is_empty(),
            }),
            ..setup
        })
    }

    fn template(&self) -> &str {
        self.request.name_template.as_deref().unwrap_or(DEFAULT_TEMPLATE)
    }

    /// The name of the database, if known.
    pub(super) fn database(&self, manifest: Option<&Manifest>) -> String {
        let of_label = || self.found.set.database.clone();
        let known = || self.known.map(|known| known.database.clone());
        manifest.map(|manifest| manifest.database.clone()).or_else(of_label).or_else(known).unwrap_or_default()
    }

    fn stem(&self, manifest: Option<&Manifest>) -> String {
        let database = self.database(manifest);
        match &database[..] {
            "" => "database".to_owned(),
            database => fullbore_engines::stems(&self.found.header.engine, database).now,
        }
    }

    /// The devices of all families. Each copy of a set gets the same names, so that a killed copy is found again.
    fn devices(&self, media_set_id: Uuid, stripes: usize, manifest: Option<&Manifest>) -> Result<Vec<Device>> {
        let (stem, set_id) = (self.stem(manifest), media_set_id.to_string());
        let started = jiff::Timestamp::from_microsecond(self.found.header.started_at).unwrap_or_default();
        let fields = NameFields { database: &stem, kind: self.found.header.kind, started, set_id: &set_id };
        let devices = names::devices(&self.request.to, Some(stripes), self.template(), &fields)?;
        let read = |device: &&Device| {
            let elsewhere = self.request.from_stores.is_some() && device.is_in_store();
            !elsewhere
                && device.identity().is_some()
                && self.found.devices.iter().any(|read| read.identity() == device.identity())
        };
        match devices.iter().find(read) {
            None => Ok(devices),
            Some(device) => {
                Err(Error::usage(device.to_string(), "is a family of the set to copy", "name another place with --to"))
            }
        }
    }
}

/// Bytes expected in each family of the copy.
fn expected(way: &CopyMethod, set: &mut MediaSet) -> Result<Vec<u64>> {
    let sizes: Vec<u64> = set.families().iter().filter_map(Family::size).collect();
    let CopyMethod::Anew { stripes, compression, .. } = way else { return Ok(sizes) };
    let stored = total(sizes.iter().copied());
    let (families, data_key) = set.parts_mut();
    let mut plain = 0_u64;
    for family in families {
        plain = plain.saturating_add(family.trailer(data_key)?.data_bytes);
    }
    let whole = match compression {
        None => stored,
        Some(Compression::None) => plain.saturating_add(plain / 100),
        Some(_) => stored.min(plain),
    };
    Ok(vec![(whole / *stripes as u64).saturating_add(FAMILY_OVERHEAD); *stripes])
}

impl Prepared {
    /// True if all families exist already.
    pub fn stands(&self) -> bool {
        self.standing.iter().all(|stands| *stands)
    }

    /// The families to write, each with its expected length.
    pub fn to_write(&self) -> impl Iterator<Item = (&Device, u64)> {
        let families = self.devices.iter().zip(&self.expected).zip(&self.standing);
        families.filter(|(_, stands)| !**stands).map(|((device, bytes), _)| (device, *bytes))
    }

    /// How it is copied, in words.
    pub(super) fn how(&self, way: &CopyMethod) -> &'static str {
        if self.stands() { "there already" } else { way.name() }
    }

    /// Finds the families that a killed copy has finished. They have the same header and the same footer, which has the
    /// digest of everything between.
    fn learn_standing(&mut self, set: &MediaSet, stores: &Stores) -> Result<()> {
        for ((device, family), stands) in self.devices.iter().zip(set.families()).zip(&mut self.standing) {
            let there = discovery::family_at(device, stores)?;
            *stands = there.is_some_and(|there| there.header() == family.header() && there.footer() == family.footer());
        }
        Ok(())
    }

    /// Turns header and manifest into those of new media.
    fn describe_anew(&mut self, media_set_id: Uuid, compression: Option<Compression>) -> Result<()> {
        let Some(manifest) = &mut self.manifest else {
            let name = format!("media set {}", self.header.media_set_id);
            return Err(Error::refused(name, "its manifest cannot be read", "name the key file with --key"));
        };
        let header = &mut self.header;
        let tool_version = env!("CARGO_PKG_VERSION");
        header.media_set_id = media_set_id;
        header.families = self.devices.len() as u16;
        header.tool_version = tool_version.into();
        header.cipher = if header.keys.is_empty() { CipherId::None } else { CipherId::Aes256Gcm };
        header.label = header.keys.is_empty().then(|| Label {
            name: manifest.name.clone(),
            description: manifest.description.clone(),
            media_name: manifest.media_name.clone(),
            database: manifest.database.clone(),
        });
        backup::refuse_long(header.label.as_ref())?;
        let numbered = self.devices.iter().zip(1..);
        manifest.families =
            numbered.map(|(device, family)| ManifestFamily { family, device: device.to_string() }).collect();
        manifest.media_set_id = media_set_id;
        manifest.tool_version = tool_version.into();
        if let Some(compression) = compression {
            header.codec = (compression.codec().number(), compression.level());
            manifest.codec = compression.to_string();
        }
        Ok(())
    }
}
