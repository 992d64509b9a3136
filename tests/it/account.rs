//! What a repository is when nobody works on it, read from its files and not by the program under test: nothing in it that no record
//! accounts for, and nothing in a record that is not there. An object of versitygw is a file as well.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde_json::Value;

/// The files right in `folder`, by name; none if it is not there.
pub fn files(folder: &Path) -> BTreeMap<String, u64> {
    let Ok(entries) = fs::read_dir(folder) else { return BTreeMap::new() };
    let entries = entries.map(Result::unwrap).filter(|entry| entry.file_type().unwrap().is_file());
    entries.map(|entry| (entry.file_name().into_string().unwrap(), entry.metadata().unwrap().len())).collect()
}

fn records(places: &[PathBuf], folder: &str) -> BTreeMap<String, Value> {
    let folder = places[0].join(".fullbore").join(folder);
    let read = |name: String| {
        let bytes = fs::read(folder.join(&name)).unwrap();
        let record = serde_json::from_slice(&bytes).unwrap_or_else(|error| panic!("{name} is no record: {error}"));
        (name, record)
    };
    files(&folder).into_keys().filter(|name| name.ends_with(".json")).map(read).collect()
}

fn folders(root: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.is_dir()).collect()
}

/// The first families that stand under their own names: the commit records of sets.
pub fn commit_records(places: &[PathBuf]) -> BTreeSet<String> {
    places.iter().flat_map(|place| files(place).into_keys()).filter(|name| is_commit_record(name)).collect()
}

fn is_commit_record(name: &str) -> bool {
    name.contains("-1of") && name.ends_with(".bore")
}

/// An hour passes for runs that have not ended, whose hosts are dead then, and for records that live for a moment only. How many runs these
/// are.
pub fn let_leases_end(places: &[PathBuf]) -> usize {
    let root = places[0].join(".fullbore");
    let then = SystemTime::now() - Duration::from_secs(7200);
    let age = |path: PathBuf| File::options().write(true).open(path).unwrap().set_modified(then).unwrap();
    for folder in folders(&root) {
        let is_fleeting = |name: &String| folder.ends_with("clock") || name.contains(".unfinished-");
        files(&folder).into_keys().filter(is_fleeting).for_each(|name| age(folder.join(name)));
    }
    files(&root).into_keys().for_each(|name| age(root.join(name)));
    let is_open = |name: &String| {
        let task: Value = serde_json::from_slice(&fs::read(root.join("tasks").join(name)).unwrap()).unwrap_or_default();
        name.ends_with(".json") && task["ended_at"].is_null()
    };
    let open: Vec<String> = files(&root.join("tasks")).into_keys().filter(is_open).collect();
    open.iter().for_each(|name| age(root.join("tasks").join(name)));
    open.len()
}

/// Many weeks pass: nobody remembers runs that have ended, nor what was decided about sets that are gone.
pub fn forget_runs(places: &[PathBuf]) {
    let root = places[0].join(".fullbore");
    files(&root.join("tasks")).into_keys().for_each(|name| fs::remove_file(root.join("tasks").join(name)).unwrap());
    let gone = |name: &String| !root.join("sets").join(name).exists();
    let decisions = files(&root.join("decisions")).into_keys().filter(gone);
    decisions.for_each(|name| fs::remove_file(root.join("decisions").join(name)).unwrap());
}

/// Everything that is wrong with the repository in these places, a sentence each.
pub fn faults(places: &[PathBuf]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut known: BTreeSet<(usize, String)> = BTreeSet::new();
    let sets = records(places, "sets");
    for (record, set) in &sets {
        for family in set["families"].as_array().unwrap() {
            let (place, name) = (family["place"].as_u64().unwrap() as usize, family["name"].as_str().unwrap());
            known.insert((place, name.to_owned()));
            let size = files(&places[place]).get(name).copied();
            if size != family["bytes"].as_u64() {
                wrong.push(format!("{record} names `{name}` of {} bytes, and there are {size:?}", family["bytes"]));
            }
        }
    }
    for (at, place) in places.iter().enumerate() {
        let unknown = files(place).into_keys().filter(|name| !known.contains(&(at, name.clone())));
        wrong.extend(unknown.map(|name| format!("nobody accounts for `{name}`")));
    }
    wrong.extend(records_without_a_cause(places, &sets));
    wrong
}

fn records_without_a_cause(places: &[PathBuf], sets: &BTreeMap<String, Value>) -> Vec<String> {
    let mut wrong = Vec::new();
    let root = places[0].join(".fullbore");
    let tasks: BTreeMap<String, Value> =
        if root.join("tasks").is_dir() { records(places, "tasks") } else { BTreeMap::new() };
    let mut written: BTreeSet<&str> = tasks.values().filter_map(|task| task["writes"].as_str()).collect();
    let given_up = tasks.values().filter_map(|task| task["given_up"].as_array());
    written.extend(given_up.flatten().filter_map(|given_up| given_up["set"].as_str()));
    for (name, task) in &tasks {
        if task["ended_at"].is_null() {
            wrong.push(format!("task {name} has not ended: {task}"));
        }
    }
    for path in folders(&root) {
        let folder = path.file_name().unwrap().to_string_lossy().into_owned();
        for name in files(&path).into_keys() {
            let set = format!("{}.json", name.split('.').next().unwrap());
            let accounted = match &folder[..] {
                _ if !name.ends_with(".json") => false,
                "sets" | "tasks" => true,
                // The decision about a removed set is what a host that wakes up finds, for as long as its run is remembered.
                "decisions" => sets.contains_key(&set) || written.contains(set.trim_end_matches(".json")),
                "verdicts" => sets.contains_key(&set),
                _ => false,
            };
            if !accounted {
                wrong.push(format!("nobody accounts for the record {folder}/{name}"));
            }
        }
    }
    let loose = files(&root).into_keys().filter(|name| !["repository.json", "reserve"].contains(&&name[..]));
    wrong.extend(loose.map(|name| format!("nobody accounts for the record {name}")));
    wrong
}
