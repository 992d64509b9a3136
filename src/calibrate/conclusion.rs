//! A profile in five lines: what the machine can do, what a backup reaches here at most, and the next step.

use fullbore_core::codec::Compression;
use fullbore_core::plan::{Knobs, Plan};

use fullbore_core::units::{MIB, counted, on_its_line, show_bytes};
use fullbore_model::estimate::STRIPES_PER_PLACE;
use fullbore_model::plan::{Amount, of_backup};
use fullbore_model::profile::{Access, Asked, BothRound, Cell, EVEN, MeasuredPath, Order, Profile, Use, rate};
use fullbore_model::statistics::median;
use fullbore_model::throughput::{Prediction, predict};

/// Bytes of a backup whose start and end no longer count.
const LARGE: u64 = 1 << 44;
/// Bytes of a part that a backup into a store sends.
const PART: u64 = 16 << 20;

/// The lines.
pub fn conclusion(profile: &Profile) -> Vec<String> {
    let alone = |way, verb: &str, flag: &str| match fastest(profile, way) {
        Some((place, cell)) => format!("  {verb} up to {}", told(place, cell)),
        None => format!("  {verb}: not measured: {flag} PATH"),
    };
    vec![
        alone(Access::Read, "reads", "--read"),
        alone(Access::Write, "writes", "--write"),
        format!("  both at once: {}", both(profile).unwrap_or_else(|| "not measured: --read and --write".into())),
        format!("  codecs: {}", codecs(profile).unwrap_or_else(|| "not measured: --read".into())),
        format!("  {}", at_most(profile)),
    ]
}

/// The fastest sequential reads and writes in MiB/s, and the fastest backup, as far as they are known.
pub fn speeds(profile: &Profile) -> [Option<f64>; 3] {
    let of = |way| fastest(profile, way).map(|(_, cell)| cell.rate() / MIB);
    [of(Access::Read), of(Access::Write), best_backup(profile).map(|(made, _)| made.rate / MIB)]
}

/// The next step.
pub fn next(profile: &Profile) -> String {
    let place = profile.places.iter().find(|place| place.used == Use::Write);
    let named = if profile.name == fullbore_model::profile::DEFAULT {
        String::new()
    } else {
        format!(" --profile {}", profile.name)
    };
    match place {
        Some(place) => {
            let to =
                if place.is_in_store() { place.path.clone() } else { format!("{}/", place.path.trim_end_matches('/')) };
            let to = shlex::try_quote(&to).map_or_else(|_| "PLACE".into(), |quoted| quoted.into_owned());
            format!("next: fullbore advise SOURCE --to {to}{named}")
        }
        None => "next: measure the place of the media too: fullbore calibrate --read PATH --write PATH".into(),
    }
}

/// The fastest sequential cell of a way. Direct ones come before those of the page cache; the place of a database before
/// places of media.
fn fastest(profile: &Profile, way: Access) -> Option<(&MeasuredPath, &Cell)> {
    let cells = profile.places.iter().flat_map(|place| place.cells.iter().map(move |cell| (place, cell)));
    let of_way = cells.filter(|(_, cell)| cell.shape.way == way && cell.shape.order == Order::Sequential);
    let worth = |(place, cell): &(&MeasuredPath, &Cell)| (!place.is_cached(cell), place.used == Use::Read, cell.rate());
    of_way.max_by(|one, other| {
        let (one, other) = (worth(one), worth(other));
        (one.0, one.1).cmp(&(other.0, other.1)).then(one.2.total_cmp(&other.2))
    })
}

fn told(place: &MeasuredPath, cell: &Cell) -> String {
    let shape = &cell.shape;
    let cached = if place.is_cached(cell) { ", through the page cache" } else { "" };
    format!(
        "{:.0} MiB/s: {}, {} blocks, {} in flight, {}{cached}",
        cell.rate() / MIB,
        on_its_line(&place.path),
        show_bytes(shape.block_bytes),
        shape.queue_depth,
        counted(shape.streams, if place.is_in_store() { "object" } else { "file" }),
    )
}

/// The pair of places that moves most while both are used.
fn both(profile: &Profile) -> Option<String> {
    let of = |rounds: &[BothRound], value: fn(&BothRound) -> u64| {
        median(rounds.iter().map(|round| value(round) as f64 / round.seconds)).unwrap_or(0.0) / MIB
    };
    let even = profile.together.iter().filter(|pair| pair.written_per_read == EVEN);
    let rates =
        even.map(|pair| (of(&pair.rounds, |round| round.read_bytes), of(&pair.rounds, |round| round.written_bytes)));
    let (read, written) = rates.max_by(|one, other| (one.0 + one.1).total_cmp(&(other.0 + other.1)))?;
    Some(format!("{read:.0} MiB/s read and {written:.0} MiB/s written"))
}

/// The codecs on the most threads, the fastest first.
fn codecs(profile: &Profile) -> Option<String> {
    let most = profile.codecs.iter().map(|cell| cell.threads).max()?;
    let widest = profile.codecs.iter().filter(|cell| cell.threads == most);
    let mut rates: Vec<_> = widest.filter_map(|cell| Some((rate(&cell.pack)? / MIB, cell))).collect();
    rates.sort_by(|one, other| other.0.total_cmp(&one.0));
    let told = rates
        .iter()
        .map(|(rate, cell)| format!("{} {rate:.0} MiB/s ({:.0} % stored)", cell.codec, 100.0 * cell.stored_share));
    Some(format!("{} on {}", told.collect::<Vec<_>>().join(", "), counted(most, "thread")))
}

fn at_most(profile: &Profile) -> String {
    match best_backup(profile) {
        Some((made, codec)) => {
            let (rate, limit) = (made.rate / MIB, made.limit.name());
            format!(
                "a backup here reaches at most {rate:.0} MiB/s of the database, with --compression {codec}; limit: {limit}"
            )
        }
        None => "how fast a backup is here: not known without --read and --write".into(),
    }
}

/// The fastest backup of the first place that was read into all places that were written, as the model predicts it.
fn best_backup(profile: &Profile) -> Option<(Prediction, Compression)> {
    let of = |used| profile.places.iter().filter(move |place| place.used == used).map(|place| place.path.as_str());
    let (read, media): (&str, Vec<&str>) = (of(Use::Read).next()?, of(Use::Write).collect());
    if media.is_empty() {
        return None;
    }
    let in_store = profile.places.iter().any(|place| place.used == Use::Write && place.is_in_store());
    let part = if in_store { PART } else { 0 };
    let predicted = |compression: Compression, stripes: usize| {
        let plan = Plan::backup_in_parts(&Knobs::default(), stripes, compression, false, part).ok()?;
        let asked = Asked { database: &[read], media: &media, transfer_bytes: u64::from(plan.transfer_size) };
        let job = of_backup(&plan, compression, false, Amount::of(LARGE));
        Some((predict(&profile.path(&asked).path, &job).ok()?, compression))
    };
    let names = profile.codecs.iter().map(|cell| cell.codec.as_str());
    let codecs: std::collections::BTreeSet<&str> = names.chain(["none"]).collect();
    let codecs = codecs.into_iter().filter_map(|name| name.parse::<Compression>().ok());
    let jobs = codecs.flat_map(|codec| STRIPES_PER_PLACE.map(|stripes| (codec, stripes * media.len())));
    let made = jobs.filter_map(|(codec, stripes)| predicted(codec, stripes));
    made.max_by(|one, other| one.0.rate.total_cmp(&other.0.rate))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullbore_model::profile::{AccessPattern, Round, Settings};

    fn place(path: &str, used: Use, cells: &[(Access, bool, u64)]) -> MeasuredPath {
        let cell = |(way, direct, mib): &(Access, bool, u64)| {
            let (order, block_bytes) = (Order::Sequential, 1 << 20);
            let shape = AccessPattern { way: *way, order, block_bytes, queue_depth: 4, streams: 2, direct: *direct };
            Cell { shape, rounds: vec![Round::of(mib << 20, 1.0)] }
        };
        let cells = cells.iter().map(cell).collect();
        MeasuredPath { path: path.into(), used, device: Some(1), bytes: 1 << 30, cells }
    }

    fn profile(places: Vec<MeasuredPath>) -> Profile {
        let settings = Settings { seconds: 1.0, space_bytes: None, throttle_bytes_per_s: None };
        Profile { places, ..Profile::begin("default", settings) }
    }

    #[test]
    fn the_lines_name_the_fastest_direct_cell_of_the_database_and_of_the_media() {
        let made = profile(vec![
            place("/data/app.db", Use::Read, &[(Access::Read, true, 900), (Access::Read, false, 9000)]),
            place("/mnt/a b", Use::Write, &[(Access::Write, true, 400), (Access::Read, true, 1200)]),
        ]);
        let lines = conclusion(&made);
        assert_eq!(lines.len(), 5);
        assert_eq!(lines[0], "  reads up to 900 MiB/s: /data/app.db, 1.0 MiB blocks, 4 in flight, 2 files");
        assert!(lines[1].starts_with("  writes up to 400 MiB/s: /mnt/a b, "), "{}", lines[1]);
        assert_eq!(next(&made), "next: fullbore advise SOURCE --to '/mnt/a b/'");
    }

    #[test]
    fn an_unmeasured_place_is_named_with_its_flag() {
        let lines = conclusion(&profile(Vec::new()));
        assert_eq!(lines[0], "  reads: not measured: --read PATH");
        assert!(lines[4].contains("not known without --read and --write"), "{lines:?}");
        assert!(next(&profile(Vec::new())).contains("fullbore calibrate --read PATH --write PATH"));
    }
}
