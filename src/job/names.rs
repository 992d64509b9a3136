//! Names of families: which devices a backup writes to.

use fullbore_core::device::{Destination, Device};
use fullbore_core::media::{MAX_FAMILIES, SetKind};
use fullbore_core::{Error, Result};

/// The default of `--name-template`. It has an id, because two databases with the same name may be backed up in the
/// same second.
pub const DEFAULT_TEMPLATE: &str = "{database}-{kind}-{time}-{id}-{family}of{families}.bore";
/// Digits of `{id}`.
const ID_DIGITS: usize = 4;

/// The values for a template.
pub(super) struct NameFields<'a> {
    pub database: &'a str,
    pub kind: SetKind,
    /// The time when the backup started.
    pub started: jiff::Timestamp,
    /// The id of the media set.
    pub set_id: &'a str,
}

/// The devices of all families: `stripes` evenly over `to`, with made names in directories and prefixes.
pub(super) fn devices(
    to: &[Device],
    stripes: Option<usize>,
    template: &str,
    fields: &NameFields<'_>,
) -> Result<Vec<Device>> {
    let families = stripes.unwrap_or(to.len());
    check_families(to, families)?;
    let mut devices = Vec::with_capacity(families);
    for family in 1..=families {
        let device = &to[(family - 1) % to.len()];
        let named = match device.place() {
            Destination::Directory(_) | Destination::Prefix { .. } => {
                device.join(&expand(template, fields, family, families)?)
            }
            Destination::File(_) | Destination::Object { .. } | Destination::Null | Destination::Pipe => None,
        };
        devices.push(named.unwrap_or_else(|| device.clone()));
    }
    refuse_twins(&devices)?;
    Ok(devices)
}

/// Refuses a number of families that these places cannot take.
///
/// # Errors
/// A usage error.
pub(super) fn check_families(to: &[Device], families: usize) -> Result<()> {
    if to.is_empty() {
        return Err(Error::usage("--to", "no device was given", "name the destination: --to /mnt/a/"));
    }
    if !(1..=usize::from(MAX_FAMILIES)).contains(&families) {
        return Err(Error::usage(
            "--stripes",
            format!("{families} is not between 1 and {MAX_FAMILIES}"),
            format!("a media set has 1 to {MAX_FAMILIES} families"),
        ));
    }
    if families < to.len() {
        let why = format!("{families} families cannot use {} devices", to.len());
        return Err(Error::usage("--stripes", why, "give at least one stripe per --to, or fewer devices"));
    }
    let discarded = to.iter().filter(|device| matches!(device.place(), Destination::Null)).count();
    if discarded > 0 && discarded < to.len() {
        let why = "a set with a family in nul: can never be restored";
        return Err(Error::usage("--to nul:", why, "give nul: alone, to measure; or real devices only"));
    }
    let single = to.iter().find(|device| !device.holds_many() && *device.place() != Destination::Null);
    if let Some(device) = single.filter(|_| families > to.len()) {
        let why = format!("{families} stripes do not fit: `{device}` is one file and takes one family");
        return Err(Error::usage("--stripes", why, "give directories (ending in /), nul:, or one --to per stripe"));
    }
    if families > 1 && to.iter().any(|device| matches!(device.place(), Destination::Pipe)) {
        return Err(Error::usage("--to -", "a pipe takes one family", "give --to - alone"));
    }
    Ok(())
}

fn refuse_twins(devices: &[Device]) -> Result<()> {
    for (at, device) in devices.iter().enumerate() {
        let Some(identity) = device.identity() else { continue };
        if devices[..at].iter().any(|other| other.identity() == Some(identity.clone())) {
            return Err(Error::usage(
                device.to_string(),
                "two families would be written to it",
                "name each file once; a --name-template for stripes contains {family}",
            ));
        }
    }
    Ok(())
}

fn expand(template: &str, fields: &NameFields<'_>, family: usize, families: usize) -> Result<String> {
    let wrong = |why: String| {
        Error::usage(
            "--name-template",
            why,
            "known are {database}, {kind}, {time}, {date}, {set}, {id}, {family}, {families}",
        )
    };
    let mut name = String::new();
    let mut rest = template;
    while let Some(open) = rest.find('{') {
        name.push_str(&rest[..open]);
        let close = rest[open..]
            .find('}')
            .ok_or_else(|| wrong(format!("`{template}` has an opening brace without a closing one")))?;
        match &rest[open + 1..open + close] {
            "database" => name.push_str(fields.database),
            "kind" => name.push_str(&fields.kind.to_string()),
            "time" => name.push_str(&fields.started.strftime("%Y%m%dT%H%M%SZ").to_string()),
            "date" => name.push_str(&fields.started.strftime("%Y%m%d").to_string()),
            "set" => name.push_str(fields.set_id),
            "id" => name.push_str(digits(fields.set_id)),
            "family" => name.push_str(&family.to_string()),
            "families" => name.push_str(&families.to_string()),
            unknown => return Err(wrong(format!("`{{{unknown}}}` is not known"))),
        }
        rest = &rest[open + close + 1..];
    }
    name.push_str(rest);
    if name.is_empty() || name.contains('/') || name == "." || name == ".." {
        return Err(wrong(format!("`{template}` makes `{name}`, which is not a file name")));
    }
    Ok(name)
}

/// True if `name` contains the id of a media set as a template of a repository writes it, as a separate word.
pub(super) fn contain(name: &str, media_set_id: uuid::Uuid) -> bool {
    let id = media_set_id.to_string();
    name.contains(&id) || name.split(|letter: char| !letter.is_alphanumeric()).any(|word| word == digits(&id))
}

/// The same, but also joined with other text, as in `{database}{id}.bore`.
pub(super) fn may_contain(name: &str, media_set_id: uuid::Uuid) -> bool {
    name.contains(digits(&media_set_id.to_string()))
}

/// The value of `{id}`: the last digits, which are random; the first ones are the time.
fn digits(set_id: &str) -> &str {
    &set_id[set_id.len().saturating_sub(ID_DIGITS)..]
}

/// The names that `template` makes for `database` at any time, as patterns; none if it has no `{database}`.
pub(super) fn patterns(template: &str, database: &str) -> Vec<glob::Pattern> {
    const DATE: &str = "[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]";
    let time = format!("{DATE}T[0-9][0-9][0-9][0-9][0-9][0-9]Z");
    if !template.contains("{database}") {
        return Vec::new();
    }
    let kinds = [SetKind::Full, SetKind::Differential, SetKind::Log];
    let pattern = |kind: SetKind| {
        let text = glob::Pattern::escape(template)
            .replace("{database}", &glob::Pattern::escape(database))
            .replace("{kind}", &kind.to_string())
            .replace("{time}", &time)
            .replace("{date}", DATE)
            .replace("{id}", &"[0-9a-f]".repeat(ID_DIGITS));
        let any = ["{set}", "{family}", "{families}"].iter().fold(text, |text, field| text.replace(field, "*"));
        glob::Pattern::new(&any).ok()
    };
    kinds.into_iter().filter_map(pattern).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn fields() -> NameFields<'static> {
        NameFields {
            database: "app",
            kind: SetKind::Full,
            started: "2026-11-21T10:00:00Z".parse().unwrap(),
            set_id: "0192f0c1-2b3a-7c4d-8e5f-001122334455",
        }
    }

    fn to(names: &[&str]) -> Vec<Device> {
        names.iter().map(|name| Device::parse(name).unwrap()).collect()
    }

    #[test]
    fn stripes_are_spread_evenly_over_the_directories() {
        let devices = devices(&to(&["/mnt/a/", "/mnt/b/"]), Some(4), DEFAULT_TEMPLATE, &fields()).unwrap();
        let names: Vec<_> = devices.iter().map(ToString::to_string).collect();
        assert_eq!(names[0], "/mnt/a/app-full-20261121T100000Z-4455-1of4.bore");
        assert_eq!(names[3], "/mnt/b/app-full-20261121T100000Z-4455-4of4.bore");
    }

    #[test]
    fn patterns_fit_the_names_of_this_database_only() {
        let fit = |database: &str, name: &str| {
            patterns(DEFAULT_TEMPLATE, database).iter().any(|pattern| pattern.matches(name))
        };
        assert!(fit("app", "app-full-20261121T100000Z-4455-1of4.bore"));
        assert!(fit("a[1]*", "a[1]*-differential-20261121T100000Z-0b1c-12of40.bore"));
        assert!(!fit("app", "app-archive-full-20261121T100000Z-4455-1of4.bore"));
        assert!(patterns("{date}-{family}.bore", "app").is_empty());
    }

    #[test]
    fn the_id_of_a_set_is_found_wherever_a_template_puts_it() {
        let id = fields().set_id.parse().unwrap();
        for template in
            [DEFAULT_TEMPLATE, "{database}_{kind}_{time}_{id}_{family}.bore", "{id}.{family}", "{set}{family}"]
        {
            let name = expand(template, &fields(), 1, 2).unwrap();
            assert!(contain(&name, id) && may_contain(&name, id), "{name}");
        }
        for name in ["app4455.bore", "4455a-1of2.bore"] {
            assert!(!contain(name, id) && may_contain(name, id), "{name}");
        }
        assert!(!may_contain("app-445-5.bore", id));
    }

    #[test]
    fn a_family_named_twice_is_refused() {
        assert!(devices(&to(&["/mnt/a.bore", "/mnt/./a.bore"]), None, "x", &fields()).is_err());
        assert!(devices(&to(&["/mnt/a/"]), Some(2), "{database}", &fields()).is_err());
        assert_eq!(devices(&to(&["nul:"]), Some(4), "x", &fields()).unwrap().len(), 4);
    }

    #[test]
    fn a_template_that_makes_no_file_name_is_refused() {
        for template in ["{nonsense}", "{database", "", "a/b", ".."] {
            assert!(devices(&to(&["/mnt/a/"]), None, template, &fields()).is_err(), "{template}");
        }
    }
}
