//! Checks that every number of a loaded profile is within bounds, before it is used.

use std::ops::RangeInclusive;

use fullbore_core::codec::Compression;

use super::{Profile, Round, VERSION};

/// Places, cells of one place, rounds of one cell, codecs, notes: far more than a run makes.
const PLACES: usize = 256;
const CELLS: usize = 4096;
const ROUNDS: usize = 1000;
/// Bytes of one operation: from the least alignment to the largest part of an object.
const BLOCK: RangeInclusive<u64> = 512..=1 << 30;
/// Operations in flight, streams, threads, processors.
const COUNT: RangeInclusive<u64> = 1..=65_536;
/// Seconds of a round or of a run: from a microsecond to eleven days.
const SECONDS: RangeInclusive<f64> = 1e-6..=1e6;
/// Bytes per second beyond any memory.
const RATE: RangeInclusive<f64> = 1e-3..=1e15;
/// Bytes of files, space, samples.
const BYTES: u64 = 1 << 60;
/// Bytes of a text.
const TEXT: usize = 64 << 10;
/// Stored bytes for a plain byte: a codec that gains nothing stores blocks as they are, with their heads.
const SHARE: RangeInclusive<f64> = 1e-6..=1.1;

/// The first value that is out of bounds.
pub(super) fn breach(profile: &Profile) -> Option<String> {
    check(profile).err()
}

fn check(profile: &Profile) -> Result<(), String> {
    let Profile { places, together, codecs, checksums, ciphers, job_costs, machine, settings, .. } = profile;
    whole("version", profile.version, VERSION..=VERSION)?;
    whole("machine.cores", machine.cores, COUNT)?;
    let texts = [&profile.tool_version, &profile.name, &profile.made_at];
    let texts = texts.into_iter().chain([&machine.host_id, &machine.host, &machine.cpu_model, &machine.kernel]);
    let texts = texts.chain(&profile.notes).chain(places.iter().map(|place| &place.path));
    many("text", texts.map(String::len).max().unwrap_or(0), TEXT)?;
    number("settings.seconds", settings.seconds, SECONDS)?;
    whole("settings.throttle_bytes_per_s", settings.throttle_bytes_per_s.unwrap_or(1), 1..=BYTES)?;
    whole("settings.space_bytes", settings.space_bytes.unwrap_or(0), 0..=BYTES)?;
    whole("sample_bytes", profile.sample_bytes, 0..=BYTES)?;
    let lists = [places.len(), together.len(), codecs.len(), checksums.len(), ciphers.len(), job_costs.len()];
    let lists = lists.into_iter().chain([profile.notes.len()]);
    many("list", lists.max().unwrap_or(0), PLACES)?;
    let last = (places.len() as u64).saturating_sub(1);
    for place in places {
        whole("places.bytes", place.bytes, 0..=BYTES)?;
        many("places.cells", place.cells.len(), CELLS)?;
        for cell in &place.cells {
            whole("block_bytes", cell.shape.block_bytes, BLOCK)?;
            whole("queue_depth", cell.shape.queue_depth, COUNT)?;
            whole("streams", cell.shape.streams, COUNT)?;
            rounds(&cell.rounds)?;
        }
    }
    for pair in together {
        whole("together.read", pair.read as u64, 0..=last)?;
        whole("together.written", pair.written as u64, 0..=last)?;
        whole("block_bytes", pair.block_bytes, BLOCK)?;
        whole("queue_depth", pair.queue_depth, COUNT)?;
        many("together.rounds", pair.rounds.len(), ROUNDS)?;
        for round in &pair.rounds {
            number("seconds", round.seconds, SECONDS)?;
            number("read_alone", round.read_alone, RATE)?;
            number("written_alone", round.written_alone, RATE)?;
            whole("read_bytes", round.read_bytes, 0..=BYTES)?;
            whole("written_bytes", round.written_bytes, 0..=BYTES)?;
        }
    }
    for cell in codecs {
        cell.codec.parse::<Compression>().map_err(|_| format!("codec `{}` is not known", cell.codec))?;
        whole("threads", cell.threads, COUNT)?;
        number("stored_share", cell.stored_share, SHARE)?;
        number("stored_share_error", cell.stored_share_error, 0.0..=1.0)?;
        whole("context_bytes", cell.context_bytes, 0..=BYTES)?;
        rounds(&cell.pack)?;
        rounds(&cell.unpack)?;
    }
    for cell in checksums.iter().chain(ciphers) {
        whole("threads", cell.threads, COUNT)?;
        rounds(&cell.rounds)?;
    }
    many("hand_overs", profile.hand_overs.len(), ROUNDS)?;
    for round in &profile.hand_overs {
        whole("hand_overs.buffers", round.buffers, 1..=BYTES)?;
        number("hand_overs.cpu_seconds", round.cpu_seconds, 0.0..=*SECONDS.end())?;
    }
    for cost in job_costs {
        whole("job_costs.media", cost.media as u64, 0..=last)?;
        whole("job_costs.database", cost.database as u64, 0..=last)?;
        whole("job_costs.plain_bytes", cost.plain_bytes, 1..=BYTES)?;
        for of_direction in [&cost.backup_s, &cost.restore_s] {
            many("job_costs", of_direction.len(), ROUNDS)?;
            of_direction.iter().try_for_each(|seconds| number("job_costs", *seconds, SECONDS))?;
        }
    }
    Ok(())
}

fn rounds(rounds: &[Round]) -> Result<(), String> {
    many("rounds", rounds.len(), ROUNDS)?;
    for round in rounds {
        whole("bytes", round.bytes, 1..=BYTES)?;
        number("seconds", round.seconds, SECONDS)?;
        number("bytes / seconds", round.rate(), RATE)?;
        number("sync_seconds", round.sync_seconds, 0.0..=round.seconds)?;
        if let Some(moving) = round.moving_seconds {
            number("moving_seconds", moving, *SECONDS.start()..=round.seconds)?;
            number("bytes / moving_seconds", round.moving_rate(), RATE)?;
        }
        number("cpu_seconds", round.cpu_seconds, 0.0..=*SECONDS.end())?;
    }
    Ok(())
}

fn whole(what: &str, value: u64, bounds: RangeInclusive<u64>) -> Result<(), String> {
    if bounds.contains(&value) {
        return Ok(());
    }
    Err(format!("`{what}` is {value}, but must be from {} to {}", bounds.start(), bounds.end()))
}

fn number(what: &str, value: f64, bounds: RangeInclusive<f64>) -> Result<(), String> {
    if bounds.contains(&value) {
        return Ok(());
    }
    Err(format!("`{what}` is {value}, but must be from {} to {}", bounds.start(), bounds.end()))
}

fn many(what: &str, count: usize, most: usize) -> Result<(), String> {
    if count <= most { Ok(()) } else { Err(format!("a {what} has {count} entries or bytes, more than {most}")) }
}
