//! Licences and bans of the dependency tree against `deny.toml`, from `cargo metadata`, offline.
//!
//! The file has cargo-deny's form, so that tool reads it too; this reader needs nothing installed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, bail};
use serde_json::Value;

use crate::{cargo, output};

/// What `deny.toml` says.
struct Rules {
    licences: BTreeSet<String>,
    /// Name of a package → the licences allowed for it alone.
    exceptions: BTreeMap<String, BTreeSet<String>>,
    /// Name of a banned package → the reason.
    bans: BTreeMap<String, String>,
}

/// One package of the tree.
struct Package {
    name: String,
    version: String,
    licence: Option<String>,
}

/// Fails with the list of packages that `deny.toml` does not allow; names packages that come in two versions.
pub fn run(root: &Path) -> anyhow::Result<()> {
    let text = fs::read_to_string(root.join("deny.toml")).context("cannot read deny.toml")?;
    let rules = rules(&text)?;
    let arguments =
        "metadata --format-version 1 --offline --locked --all-features --filter-platform x86_64-unknown-linux-gnu";
    let metadata = output(cargo().args(arguments.split(' ')).current_dir(root))
        .context("the dependency tree is read offline: run `cargo fetch --locked` first")?;
    let arguments = "tree --workspace --all-features --offline --locked --target x86_64-unknown-linux-gnu --prefix none --format {p}";
    let tree = output(cargo().args(arguments.split(' ')).current_dir(root))?;
    let packages = packages(&serde_json::from_str(&metadata)?, &built(&tree))?;
    let refused = refused(&rules, &packages);
    for line in &refused {
        println!("{line}");
    }
    for (name, versions) in twice(&packages) {
        println!("licences: note: {name} comes in versions {versions}");
    }
    if !refused.is_empty() {
        bail!("licences: {} packages against deny.toml", refused.len());
    }
    println!("licences: {} packages keep deny.toml", packages.len());
    Ok(())
}

fn rules(text: &str) -> anyhow::Result<Rules> {
    let file: toml::Table = text.parse().context("deny.toml")?;
    let part = |table: &str, key: &str| file.get(table).and_then(|t| t.get(key)).and_then(|v| v.as_array()).cloned();
    let strings =
        |list: &[toml::Value]| list.iter().filter_map(|v| v.as_str().map(str::to_owned)).collect::<BTreeSet<_>>();
    let licences = strings(&part("licenses", "allow").context("deny.toml: no [licenses] allow")?);
    let mut exceptions = BTreeMap::new();
    for exception in part("licenses", "exceptions").unwrap_or_default() {
        let name =
            exception.get("crate").and_then(|v| v.as_str()).context("deny.toml: an exception without `crate`")?;
        let allow =
            exception.get("allow").and_then(|v| v.as_array()).context("deny.toml: an exception without `allow`")?;
        exceptions.insert(name.to_owned(), strings(allow));
    }
    let mut bans = BTreeMap::new();
    for ban in part("bans", "deny").context("deny.toml: no [bans] deny")? {
        let text = |key: &str| ban.get(key).and_then(|v| v.as_str()).unwrap_or_default().to_owned();
        bans.insert(text("crate"), text("reason"));
    }
    Ok(Rules { licences, exceptions, bans })
}

/// Name and version of each package that `cargo tree` prints: `zstd v0.14.3`, and a path or a mark after it.
fn built(tree: &str) -> BTreeSet<(&str, &str)> {
    let package = |line| -> Option<(&str, &str)> {
        let (name, rest) = str::split_once(line, " v")?;
        Some((name, rest.split(' ').next()?))
    };
    tree.lines().filter_map(package).collect()
}

/// The packages that are really built, not all that the lock file knows: the resolution of `cargo metadata` also has
/// packages that a feature would change if another one took them in (`ring?/alloc`), hence `built`.
fn packages(metadata: &Value, built: &BTreeSet<(&str, &str)>) -> anyhow::Result<Vec<Package>> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let nodes = list(&metadata["resolve"]["nodes"]);
    let resolved: BTreeSet<&str> = nodes.iter().filter_map(|node| node["id"].as_str()).collect();
    let mut packages = Vec::new();
    for package in list(&metadata["packages"]) {
        let text = |key: &str| package[key].as_str().map(str::to_owned);
        if package["id"].as_str().is_some_and(|id| resolved.contains(id)) {
            let name = text("name").context("cargo metadata: a package without a name")?;
            let version = text("version").unwrap_or_default();
            if built.contains(&(name.as_str(), version.as_str())) {
                packages.push(Package { name, version, licence: text("license") });
            }
        }
    }
    anyhow::ensure!(!packages.is_empty(), "cargo metadata: no packages");
    Ok(packages)
}

fn refused(rules: &Rules, packages: &[Package]) -> Vec<String> {
    let mut refused = Vec::new();
    for Package { name, version, licence } in packages {
        if let Some(reason) = rules.bans.get(name) {
            refused.push(format!("{name} {version}: banned: {reason}"));
        }
        let own = rules.exceptions.get(name);
        let allowed = |one: &str| rules.licences.contains(one) || own.is_some_and(|own| own.contains(one));
        match licence {
            None => refused.push(format!("{name} {version}: names no licence")),
            Some(licence) if !satisfied(licence, &allowed) => {
                refused.push(format!("{name} {version}: `{licence}` is not in deny.toml's list"));
            }
            Some(_) => {}
        }
    }
    refused
}

fn twice(packages: &[Package]) -> BTreeMap<&str, String> {
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in packages {
        versions.entry(&package.name).or_default().push(&package.version);
    }
    versions.retain(|_, versions| versions.len() > 1);
    versions.into_iter().map(|(name, versions)| (name, versions.join(" and "))).collect()
}

/// Whether an SPDX expression can be met with the allowed licences. `/` is the old way to write OR.
fn satisfied(expression: &str, allowed: &dyn Fn(&str) -> bool) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    let met = any(&words, &mut at, allowed);
    met && at == words.len()
}

fn any(words: &[&str], at: &mut usize, allowed: &dyn Fn(&str) -> bool) -> bool {
    let mut met = all(words, at, allowed);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        met |= all(words, at, allowed);
    }
    met
}

fn all(words: &[&str], at: &mut usize, allowed: &dyn Fn(&str) -> bool) -> bool {
    let mut met = one(words, at, allowed);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        met &= one(words, at, allowed);
    }
    met
}

fn one(words: &[&str], at: &mut usize, allowed: &dyn Fn(&str) -> bool) -> bool {
    let Some(word) = words.get(*at) else { return false };
    *at += 1;
    if *word == "(" {
        let met = any(words, at, allowed);
        let closed = words.get(*at) == Some(&")");
        *at += 1;
        return met && closed;
    }
    if words.get(*at) == Some(&"WITH") {
        let whole = words[*at - 1..words.len().min(*at + 2)].join(" ");
        *at += 2;
        return allowed(&whole);
    }
    allowed(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_that_is_only_in_the_lock_file_is_not_judged() {
        let tree = "fullbore v0.1.0 (/work)\nzstd v0.14.3\nserde_derive v1.0.2 (proc-macro)\nzstd v0.14.3 (*)\n";
        assert_eq!(built(tree), BTreeSet::from([("fullbore", "0.1.0"), ("serde_derive", "1.0.2"), ("zstd", "0.14.3")]));
        let metadata = serde_json::json!({
            "packages": [{ "id": "a", "name": "zstd", "version": "0.14.3" }, { "id": "b", "name": "ring", "version": "0.17.14" }],
            "resolve": { "nodes": [{ "id": "a" }, { "id": "b" }] },
        });
        let packages = packages(&metadata, &built(tree)).unwrap();
        assert_eq!(packages.iter().map(|package| package.name.as_str()).collect::<Vec<_>>(), ["zstd"]);
    }

    #[test]
    fn an_expression_is_met_as_spdx_says() {
        let allowed = |one: &str| ["MIT", "Apache-2.0", "ISC", "Apache-2.0 WITH LLVM-exception"].contains(&one);
        for good in
            ["MIT", "MIT OR GPL-3.0", "MIT/Unlicense", "ISC AND (Apache-2.0 OR ISC)", "Apache-2.0 WITH LLVM-exception"]
        {
            assert!(satisfied(good, &allowed), "{good}");
        }
        for bad in ["GPL-3.0", "MIT AND GPL-3.0", "", "MIT WITH X", "(MIT", "MIT MIT", "ISC AND (GPL-3.0 OR AGPL-3.0)"]
        {
            assert!(!satisfied(bad, &allowed), "{bad}");
        }
    }

    #[test]
    fn a_banned_package_and_a_foreign_licence_are_refused() {
        let text = "[licenses]\nallow = ['MIT']\nexceptions = [{ crate = 'z', allow = ['Zlib'] }]\n\
                    [bans]\ndeny = [{ crate = 'ring', reason = 'one crypto library' }]\n";
        let package = |name: &str, licence: Option<&str>| Package {
            name: name.into(),
            version: "1.0.0".into(),
            licence: licence.map(str::to_owned),
        };
        let tree = [package("a", Some("MIT")), package("z", Some("Zlib"))];
        assert!(refused(&rules(text).unwrap(), &tree).is_empty());
        let tree = [package("ring", Some("MIT")), package("b", Some("Zlib")), package("c", None)];
        assert_eq!(refused(&rules(text).unwrap(), &tree).len(), 3);
    }
}
