//! The devices and sinks of the families, and the files that must not be overwritten.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use fullbore_core::device::{Destination, Device};
use fullbore_core::media::{FamilyHeader, SetKind};
use fullbore_core::sink::{self, MirrorSink, Sink};
use fullbore_core::store::Stores;
use fullbore_core::{Error, Result, threads};
use fullbore_engines::{Identity, Stems};
use uuid::Uuid;

use super::super::names::{self, DEFAULT_TEMPLATE, NameFields};
use super::super::recover::{self, Ours};
use super::super::space;
use super::Request;
use super::resolve::Resolved;
use crate::report::Report;
use fullbore_repository::discovery;

/// The devices of all families.
pub(super) fn devices(
    request: &Request,
    stripes: Option<usize>,
    database: &Identity,
    media_set_id: Uuid,
) -> Result<Vec<Device>> {
    let (set_id, started) = (media_set_id.to_string(), jiff::Timestamp::now());
    let made = |stem: &str| {
        let fields = NameFields { database: stem, kind: request.kind, started, set_id: &set_id };
        names::devices(&request.to, stripes, template(request), &fields)
    };
    let devices = made(&stem_for(request, database, made)?)?;
    refuse_the_source(&devices, database)?;
    Ok(devices)
}

/// Refuses to write a backup over the database or its side files.
fn refuse_the_source(devices: &[Device], database: &Identity) -> Result<()> {
    match devices.iter().find(|device| is_of_database(database, device)) {
        Some(device) => Err(Error::usage(
            device.to_string(),
            "is the database itself, or one of its files",
            "name another file or directory",
        )),
        None => Ok(()),
    }
}

/// True for the database itself and for its side files; none of these files need exist.
pub fn is_of_database(database: &Identity, device: &Device) -> bool {
    let it = device.identity();
    it.is_some() && database.files.iter().any(|file| Device::file(file.clone()).identity() == it)
}

/// The names that `template` makes for the database at any time, now and in earlier versions.
pub(in crate::job) fn patterns(template: &str, stems: &Stems) -> Vec<glob::Pattern> {
    let mut patterns = names::patterns(template, &stems.now);
    if stems.now != stems.earlier {
        patterns.extend(names::patterns(template, &stems.earlier));
    }
    patterns
}

/// The stem for this run. With `--init`, the stem of an earlier version if families have names with it: these are
/// replaced.
fn stem_for(request: &Request, database: &Identity, made: impl Fn(&str) -> Result<Vec<Device>>) -> Result<String> {
    let Stems { now, earlier } = stems_of(request, database);
    if request.init && now != earlier {
        let stands = |device: &Device| matches!(device.place(), Destination::File(path) if path.exists());
        if made(&earlier)?.iter().any(stands) && !made(&now)?.iter().any(stands) {
            return Ok(earlier);
        }
    }
    Ok(now)
}

fn stems_of(request: &Request, database: &Identity) -> Stems {
    let engine = request.source.scheme();
    fullbore_engines::stems(engine, &database.written)
}

fn template(request: &Request) -> &str {
    request.name_template.as_deref().unwrap_or(DEFAULT_TEMPLATE)
}

/// How recovery recognises leftovers of earlier backups of this database under other names.
fn ours(request: &Request) -> Ours {
    let database = request.source.identity();
    let made = request.to.iter().any(|device| matches!(device.place(), Destination::Directory(_)));
    let patterns = if made { patterns(template(request), &stems_of(request, database)) } else { Vec::new() };
    Ours { database: database.written.clone(), patterns }
}

/// A family that `--init` replaces.
struct Replaced<'a> {
    device: &'a Device,
    header: FamilyHeader,
    /// Where the families of its set were written, by its manifest; empty if not known.
    written_to: Vec<Device>,
}

/// What `--init` replaces: the media set of the old family on each device. Refuses to replace `base`, the set that the
/// new one of this `kind` depends on, and a part of a set.
pub(in crate::job) fn check_replaced(
    init: bool,
    devices: &[Device],
    (base, kind): (Option<Uuid>, SetKind),
    stores: &Stores,
) -> Result<Vec<Option<Uuid>>> {
    if !init {
        return Ok(Vec::new());
    }
    let in_store = |device: &&Device| matches!(device.place(), Destination::Object { .. });
    if let (Some(object), true) = (devices.iter().find(in_store), devices.len() > 1) {
        return Err(Error::usage(
            format!("--init on {object}"),
            "an object store cannot replace several families at once",
            "name a prefix that ends in `/`, so that every backup gets its own names; or write one family",
        ));
    }
    let mut replaced = Vec::new();
    let mut ids = Vec::new();
    for device in devices {
        let old = match device.place() {
            Destination::File(path) => {
                refuse_foreign(path)?;
                look_at_replaced(device, path)
            }
            // The sink refuses an object that is not a family, after it has claimed the key.
            Destination::Object { .. } => {
                discovery::header_on(device, stores)?.map(|header| Replaced { device, header, written_to: Vec::new() })
            }
            Destination::Directory(_) | Destination::Prefix { .. } | Destination::Null | Destination::Pipe => None,
        };
        let id = old.as_ref().map(|old| old.header.set.media_set_id);
        let is_base = |old: &Replaced<'_>| Some(old.header.set.backup_set_id) == base;
        if old.as_ref().is_some_and(is_base) {
            let of_log = kind == SetKind::Log;
            return Err(Error::usage(
                device.to_string(),
                match of_log {
                    true => "is the set that this log set continues, but --init would replace it",
                    false => "is the full of this differential, but --init would replace it",
                },
                "name another file: a set is useless without its base",
            ));
        }
        ids.push(id);
        replaced.extend(old);
    }
    refuse_parts_of_sets(&replaced, devices)?;
    Ok(ids)
}

fn look_at_replaced<'a>(device: &'a Device, path: &Path) -> Option<Replaced<'a>> {
    let look = discovery::look(path)?;
    let header = look.header?;
    // For encrypted media and a damaged family, only the header is known.
    let manifest = look.family.filter(|_| header.set.keys.is_empty()).and_then(|mut family| family.manifest(None).ok());
    let families = manifest.map(|manifest| manifest.families).unwrap_or_default();
    let written_to = families.iter().filter_map(|family| Device::parse(&family.device).ok()).collect();
    Some(Replaced { device, header, written_to })
}

/// A set that loses one family is lost, so all its families are replaced at once, or none. A family counts as replaced
/// if its place is among the devices: it is missing, or overwritten here.
fn refuse_parts_of_sets(replaced: &[Replaced<'_>], devices: &[Device]) -> Result<()> {
    let mut sets: BTreeMap<Uuid, Vec<&Replaced<'_>>> = BTreeMap::new();
    for old in replaced {
        sets.entry(old.header.set.media_set_id).or_default().push(old);
    }
    for (id, members) in sets {
        let of = members[0].header.set.families;
        let named: BTreeSet<u16> = members.iter().map(|old| old.header.family).collect();
        let written_to = &members.iter().max_by_key(|old| old.written_to.len()).unwrap_or(&members[0]).written_to;
        let here = |family: u16| {
            let place = written_to.get(usize::from(family) - 1).and_then(Device::identity);
            place.is_some() && devices.iter().any(|device| device.identity() == place)
        };
        let kept: Vec<u16> = (1..=of).filter(|family| !named.contains(family) && !here(*family)).collect();
        if kept.is_empty() {
            continue;
        }
        let list = |family: &u16| match written_to.get(usize::from(*family) - 1) {
            Some(device) => format!("\n    family {family}: `{device}`"),
            None => format!("\n    family {family}"),
        };
        let kept: String = kept.iter().map(list).collect();
        return Err(Error::refused(
            members[0].device.to_string(),
            format!(
                "has family {} of {of} of media set {id}: --init would make the whole set unusable, because it would \
                 not overwrite:{kept}",
                members[0].header.family,
            ),
            "name all its families with --to, or other files; or remove the old set yourself if you do not need it",
        ));
    }
    Ok(())
}

/// Refuses other files: `--init` replaces only families, also damaged ones. A mistyped name must not destroy a file.
fn refuse_foreign(path: &Path) -> Result<()> {
    if !path.is_file() || discovery::begins_like_a_family(path)? {
        return Ok(());
    }
    Err(Error::refused(
        path.display().to_string(),
        "is not a media family, and --init replaces only media families",
        "choose another name, or remove the file yourself",
    ))
}

/// Tidies up after earlier runs, then checks that there is space for the backup. A dry run only counts what would be
/// removed.
pub(super) fn make_room(
    request: &Request,
    devices: &[Device],
    expected: space::Expected,
    report: &mut Report,
) -> Result<()> {
    let recovered = recover::recover(devices, &ours(request), request.dry_run)?;
    report.notes.extend(recovered.notes);
    report.notes.extend(space::check_room(devices, expected, &recovered.freed)?);
    Ok(())
}

/// True for a name from a template that gives each set its own names.
fn is_made_unique(request: &Request, device: &Device) -> bool {
    let made = template(request).contains("{id}") || template(request).contains("{set}");
    made && !request.to.iter().any(|to| to.identity() == device.identity())
}

/// Checks what `--init` replaces, and opens all sinks.
pub(super) fn open(resolved: &Resolved<'_>, stores: &Stores) -> Result<Vec<Box<dyn Sink>>> {
    let request = resolved.request;
    let stands_on = (resolved.base.id(), resolved.set.kind);
    let replaced = check_replaced(request.init, &resolved.devices, stands_on, stores)?;
    let of_mirrors = match &request.mirror {
        Some(mirror) => {
            let mut replaced = Vec::new();
            for devices in resolved.mirrors.chunks(resolved.devices.len().max(1)) {
                replaced.extend(check_replaced(request.init, devices, stands_on, &mirror.stores)?);
            }
            replaced
        }
        None => Vec::new(),
    };
    let options = |device: &Device, old_set_id: Option<String>, stores: &Stores| sink::Options {
        old_set_id,
        init: request.init,
        name_is_unique: is_made_unique(request, device),
        mkdir: request.mkdir,
        expected_size: Some(resolved.expected_per_family).filter(|&bytes| bytes > 0 && !resolved.expected_is_most),
        part_size: resolved.plan.part_size,
        queue_depth: resolved.plan.queue_depth,
        mode: resolved.file_mode,
        stores: stores.clone(),
        ..sink::Options::new(resolved.set.media_set_id.to_string())
    };
    // A sink that is dropped removes what it made.
    let open_one = |at: usize, device: &Device| -> Result<Box<dyn Sink>> {
        let old_id =
            |replaced: &[Option<Uuid>], at: usize| replaced.get(at).and_then(Option::as_ref).map(ToString::to_string);
        let mut all = sink::open(device, options(device, old_id(&replaced, at), stores))?;
        let Some(mirror) = &request.mirror else { return Ok(all) };
        // This family in each mirror.
        let of_family = resolved.mirrors.iter().enumerate().skip(at).step_by(resolved.devices.len().max(1));
        for (at, device) in of_family {
            let options = sink::Options {
                name_is_unique: request.mirrored().is_some_and(|mirrored| is_made_unique(&mirrored, device)),
                ..options(device, old_id(&of_mirrors, at), &mirror.stores)
            };
            all = Box::new(MirrorSink::new(all, sink::open(device, options)?));
        }
        Ok(all)
    };
    if resolved.devices.iter().all(Device::is_in_store) {
        return threads::side_by_side("opening", &resolved.devices, open_one);
    }
    resolved.devices.iter().enumerate().map(|(at, device)| open_one(at, device)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_of_both_names_of_a_server_are_known() {
        let fits = |name: &str| {
            let known = patterns(DEFAULT_TEMPLATE, &fullbore_engines::stems("mariadb", "/tmp/s.sock"));
            known.iter().any(|pattern| pattern.matches(name))
        };
        for start in ["-tmp-s.sock", "mariadb-tmp-s.sock"] {
            assert!(fits(&format!("{start}-full-20261121T100000Z-4455-1of2.bore")), "{start}");
        }
        assert!(!fits("tmp-s.sock-full-20261121T100000Z-4455-1of2.bore"));
    }
}
