//! Which sets of a repository are of one database. Two machines may each have a database of the same name: then the
//! name of a local database (a file, or a server on the machine) gets the host before it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::Path;

use fullbore_core::{Error, Result};
use uuid::Uuid;

use fullbore_core::units::{counted, on_its_line};
use fullbore_engines::without_password;
use fullbore_repository::Repository;
use fullbore_repository::format::SetRecord;
use fullbore_repository::hidden::is_local_name;
use fullbore_repository::ids;
use fullbore_repository::inventory::StoredSet;

/// The names of databases, if some have the same one.
pub(super) struct Names<'a> {
    /// Engine and database of sets that come from several machines.
    shared: BTreeSet<(&'a str, &'a str)>,
}

impl<'a> Names<'a> {
    /// Looks at all sets of a repository.
    pub fn of(sets: &'a [StoredSet]) -> Self {
        let mut hosts: BTreeMap<(&str, &str), BTreeSet<&str>> = BTreeMap::new();
        // The media of an unfinished set do not say on which host it was made.
        for record in sets.iter().map(|set| &set.record).filter(|record| is_local(record) && !record.host.is_empty()) {
            hosts.entry((&record.engine, &record.database)).or_default().insert(&record.host);
        }
        Self { shared: hosts.into_iter().filter(|(_, hosts)| hosts.len() > 1).map(|(name, _)| name).collect() }
    }

    /// `/data/app.db`; `HOST:/data/app.db` if several machines have one.
    pub fn name(&self, record: &SetRecord) -> String {
        match self.shared.contains(&(&record.engine[..], &record.database[..])) && !record.host.is_empty() {
            true => format!("{}:{}", record.host, record.database),
            false => record.database.clone(),
        }
    }
}

/// True for a name that means another database on another machine: a file, a socket, a server on the machine itself.
fn is_local(record: &SetRecord) -> bool {
    let is_file = fullbore_engines::named(&record.engine).is_some_and(|engine| !engine.is_server());
    !record.database.is_empty() && (is_file || is_local_name(&record.database))
}

/// The sets of the database that has this name on this machine: a new set may continue them.
pub(super) fn here<'a>(sets: &'a [StoredSet], engine: &str, database: &str) -> Vec<&'a StoredSet> {
    let host = fullbore_core::resources::host();
    let ours = |record: &SetRecord| !is_local(record) || record.host == host || record.host.is_empty();
    let is_it = |set: &&StoredSet| set.record.engine == engine && set.record.database == database && ours(&set.record);
    sets.iter().filter(is_it).collect()
}

/// Why this machine has no sets of that name, if only other machines have some.
pub(super) fn elsewhere(sets: &[StoredSet], engine: &str, database: &str) -> Option<String> {
    let of_it = |set: &&StoredSet| set.record.engine == engine && set.record.database == database;
    let hosts: BTreeSet<&str> = sets.iter().filter(of_it).map(|set| &set.record.host[..]).collect();
    let here = fullbore_core::resources::host();
    // With sets of this machine, the reason is another one.
    let is_elsewhere = !hosts.contains(here.as_str());
    let shown: Vec<String> = hosts.into_iter().map(on_its_line).collect();
    (!shown.is_empty() && is_elsewhere).then(|| {
        let others = shown.join(", ");
        format!(
            "this machine is `{here}`, but sets of that name are from {others}; if it is the same database, set \
             FULLBORE_HOST"
        )
    })
}

/// The name that the records of the repository use for a given name: if they hide names its digest, with the same
/// `HOST:` before it.
pub(super) fn meant(repository: &Repository, sets: &[StoredSet], wanted: Option<&str>) -> Option<String> {
    let wanted = wanted?;
    if is_known(sets, wanted) {
        return Some(wanted.to_owned());
    }
    let hosts: BTreeSet<&str> = sets.iter().map(|set| &set.record.host[..]).filter(|host| !host.is_empty()).collect();
    let of_host = |host: &&str| {
        let database = wanted.strip_prefix(*host)?.strip_prefix(':')?;
        Some(format!("{host}:{}", repository.named(database)))
    };
    let mut digests = std::iter::once(repository.named(wanted)).chain(hosts.iter().filter_map(of_host));
    // If no digest fits, messages show the name as it was given. A URL may have a password.
    Some(digests.find(|digest| is_known(sets, digest)).unwrap_or_else(|| without_password(wanted)))
}

/// True when a set is of a database of this name, or of a file with this name.
pub(super) fn is_known(sets: &[StoredSet], wanted: &str) -> bool {
    let names = Names::of(sets);
    sets.iter().any(|set| is_called(set, wanted) || names.name(&set.record) == wanted)
}

fn is_called(set: &StoredSet, wanted: &str) -> bool {
    is_named(&set.record.database, wanted) || is_called_with_host(set, wanted)
}

/// True if a database has this name, or if its file has it, with or without the extension.
pub(super) fn is_named(database: &str, wanted: &str) -> bool {
    let path = Path::new(database);
    database == wanted || [path.file_name(), path.file_stem()].contains(&Some(wanted.as_ref()))
}

/// `HOST:/data/app.db`, also if no other machine has this database.
fn is_called_with_host(set: &StoredSet, wanted: &str) -> bool {
    let (host, database) = (&set.record.host[..], &set.record.database[..]);
    let of_host = wanted.strip_prefix(host).and_then(|rest| rest.strip_prefix(':'));
    is_local(&set.record) && !host.is_empty() && of_host == Some(database)
}

/// A line of a list of databases.
fn line(engine: &str, name: &str, sets: usize, repository: &str) -> String {
    let engine = on_its_line(engine);
    match name {
        "" => {
            let sets = counted(sets as u64, "set");
            format!(
                "\n    {engine}: {sets} with an encrypted name (`fullbore catalog rebuild --repo {repository} --key KEYFILE`)"
            )
        }
        _ => format!("\n    {engine} `{}`", on_its_line(name)),
    }
}

/// The sets of one database: of the database with this name, or of the only one whose file has this name. Without a
/// name, of the only database.
///
/// # Errors
/// No database fits, or more than one.
pub(super) fn of_database<'a>(
    sets: &'a [StoredSet],
    wanted: Option<&str>,
    repository: &str,
) -> Result<Vec<&'a StoredSet>> {
    let names = Names::of(sets);
    let mut known: BTreeMap<(&str, String), Vec<&StoredSet>> = BTreeMap::new();
    for set in sets {
        known.entry((&set.record.engine, names.name(&set.record))).or_default().push(set);
    }
    let fits = |sets: &[&StoredSet]| match wanted {
        None => true,
        Some(wanted) => sets.iter().any(|set| is_called(set, wanted)),
    };
    let shown =
        || known.iter().map(|((engine, name), sets)| line(engine, name, sets.len(), repository)).collect::<String>();
    let is_exact = |((_, name), sets): &(&(&str, String), &Vec<&StoredSet>)| {
        wanted.is_some_and(|wanted| wanted == name || sets.iter().any(|set| is_called_with_host(set, wanted)))
    };
    let exact = known.iter().any(|of| is_exact(&of));
    let fitting = known.iter().filter(|of| if exact { is_exact(of) } else { fits(of.1) });
    let fitting: Vec<&Vec<&StoredSet>> = fitting.map(|(_, sets)| sets).collect();
    let thing = wanted.map_or_else(|| format!("--repo {repository}"), |name| format!("--database {name}"));
    match fitting[..] {
        [of] => Ok(of.clone()),
        [] if known.is_empty() => {
            Err(Error::usage(thing, "the repository holds no backup set", "back up into it first"))
        }
        [] => {
            Err(Error::usage(thing, format!("is not in the repository, which holds:{}", shown()), "name one of these"))
        }
        _ => Err(Error::refused(
            thing,
            format!("the repository has several databases:{}", shown()),
            "name one with --database",
        )),
    }
}

/// The sets to choose from: those of the named database. Without a name, those of the database of `set` (as in `--set`)
/// and the sets that these depend on, of whichever database. Without both, those of the only database.
///
/// # Errors
/// Those of [`of_database`].
pub(super) fn to_choose_from<'a>(
    sets: &'a [StoredSet],
    wanted: Option<&str>,
    set: Option<&str>,
    repository: &str,
) -> Result<Vec<&'a StoredSet>> {
    let (None, Some(part)) = (wanted, set) else { return of_database(sets, wanted, repository) };
    let is_it =
        |set: &&StoredSet| ids::fits(set.record.backup_set_id, part) || ids::fits(set.record.media_set_id, part);
    let named: Vec<&StoredSet> = sets.iter().filter(is_it).collect();
    // The choice among all sets then fails with the reason: no set fits, or several.
    let [named] = named[..] else { return Ok(sets.iter().collect()) };
    let names = Names::of(sets);
    let database = |set: &StoredSet| (set.record.engine.clone(), names.name(&set.record));
    let by_id: HashMap<Uuid, &StoredSet> = sets.iter().map(|set| (set.record.backup_set_id, set)).collect();
    let mut meant: HashSet<Uuid> = HashSet::new();
    for set in sets.iter().filter(|set| database(set) == database(named)) {
        let mut next = Some(set);
        while let Some(at) = next.filter(|at| meant.insert(at.record.backup_set_id)) {
            next = at.record.base.and_then(|base| by_id.get(&base).copied());
        }
    }
    Ok(sets.iter().filter(|set| meant.contains(&set.record.backup_set_id)).collect())
}
