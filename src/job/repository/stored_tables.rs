//! Tables of stored media of another program: their families are read out of their sets, and no file of them is written.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use fullbore_core::cipher::SecretKey;
use fullbore_core::conduct::Conduct;
use fullbore_core::pool::Pool;
use fullbore_core::unpack::MediaSet;
use fullbore_core::{Error, Result};
use fullbore_engines::foreign_set::stored_family::{StoredFamilies, StoredFamilyBytes};
use fullbore_engines::{FOREIGN_HEAD, FamilyBytes, ForeignTables};
use fullbore_repository::discovery;

use super::Setting;
use super::databases::{meant, to_choose_from};
use super::foreign_chain::add_needed;
use super::restore::ChosenChain;
use crate::job::foreign::{ForeignDevices, ForeignObject};
use crate::job::reading::Reading;
use crate::job::restore::{self, Into, Request};
use crate::report::Report;

/// Opens the tables of the chosen database in `scratch`, if its sets hold media of another program.
///
/// # Errors
/// No complete chain is there, a set that it needs is not stored, a set cannot be read, or the tables cannot be opened.
pub fn tables(
    reading: &Reading,
    database: Option<&str>,
    scratch: &Path,
    setting: Setting<'_>,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<Option<Box<dyn ForeignTables>>> {
    let repository = setting.open(conduct)?;
    let inventory = setting.inventory(&repository, conduct, &mut Vec::new())?;
    let database = meant(&repository, &inventory.sets, database);
    let set = reading.choice.set.as_deref();
    let sets = to_choose_from(&inventory.sets, database.as_deref(), set, &repository.name)?;
    let mut chosen = Report::begin("restore");
    let chain = ChosenChain::among(sets, reading, &repository, &mut chosen)?;
    if chain.engine().is_none_or(|engine| fullbore_engines::media_of(&engine).is_none()) {
        return Ok(None);
    }
    let mut request = Request::plain(chain.reading.clone(), Into::Directory(scratch.to_owned()));
    let mut ids = chain.ids();
    ids.extend(add_needed(&mut request, &chain, &inventory.sets, &repository, &mut chosen)?);
    report.warnings.append(&mut chosen.warnings);
    report.engine = chain.engine();
    report.backup_set_id = chain.ids().last().map(ToString::to_string);
    let key = discovery::read_key(reading.key.as_deref())?.map(Arc::new);
    setting.as_reader(&repository, ("export", chain.database(), &ids), conduct, report, |report| {
        let mut devices: Option<ForeignDevices> = None;
        for reading in request.needed.readings.iter().chain(std::iter::once(&request.reading)) {
            for object in objects(reading, key.as_ref(), conduct, report)? {
                match &mut devices {
                    None => devices = Some(ForeignDevices::of_object(object)?),
                    Some(devices) => devices.add(object)?,
                }
            }
        }
        let devices = devices.ok_or_else(|| Error::incomplete("media set", "has no family", "use another set"))?;
        // Alone, media are read up to their newest set.
        let wanted = request.needed.database_set.as_deref().filter(|_| !request.needed.readings.is_empty());
        devices.tables(wanted, scratch, conduct).map(Some)
    })
}

/// The families of a set, as objects that are read at any place.
fn objects(
    reading: &Reading,
    key: Option<&Arc<SecretKey>>,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<Vec<ForeignObject>> {
    let mut discovered = reading.find(key.map(Arc::as_ref), conduct)?;
    let sequence = restore::choose(&mut discovered, &reading.choice)?;
    let chain: Vec<discovery::Found> = sequence.sets.iter().map(|&at| discovered.sets[at].clone()).collect();
    let mut sets = opened(&chain, key)?;
    let families = Arc::new(StoredFamilies::of(&mut sets)?);
    let (Some(last), Some(manifest)) = (chain.last(), sets.last().and_then(MediaSet::manifest)) else {
        return Ok(Vec::new());
    };
    let id = manifest.backup_set_id;
    // The pages are checked when their rows are read.
    let damage = fullbore_engines::damaged_at_source(&manifest.engine, &manifest.position.last.value());
    report.warnings.extend(damage.map(|said| format!("backup set {id}: {said}")));
    report.media_set_id = Some(last.media_set_id.to_string());
    let mut objects = Vec::new();
    for ((name, bytes), number) in families.names().into_iter().zip(0_usize..) {
        let (families, chain, key) = (Arc::clone(&families), chain.clone(), key.cloned());
        let open = move |conduct: &Conduct| -> Result<Box<dyn FamilyBytes>> {
            let sets = opened(&chain, key.as_ref())?;
            Ok(Box::new(StoredFamilyBytes::new(&families, number, sets, conduct)?))
        };
        // Families of two sets may have one name.
        let object = ForeignObject::new(format!("{name} of backup set {id}"), bytes, Arc::new(open));
        let mut head = Vec::new();
        let read = object.open(&Conduct::default())?.take(FOREIGN_HEAD as u64).read_to_end(&mut head);
        read.map_err(|error| Error::of_read(&object.name, error))?;
        objects.push(object.with_head(head));
    }
    Ok(objects)
}

/// The sets of a chain, for reads of single blocks.
fn opened(chain: &[discovery::Found], key: Option<&Arc<SecretKey>>) -> Result<Vec<MediaSet>> {
    let pool = Pool::new(0, 4096)?;
    chain.iter().map(|found| discovery::open_set(found, &pool, 1, key.map(Arc::as_ref))).collect()
}
