//! The description of a set: the streams in its header, and its manifest.

use std::collections::HashMap;

use fullbore_core::device::Device;
use fullbore_core::media::{
    Changes, EngineValue, Manifest, ManifestFamily, ManifestMap, ManifestStream, Position, SetHeader, SetKind,
    StreamRecord,
};
use fullbore_core::pipeline::map_window;
use fullbore_core::source::{Source, Stream};
use fullbore_core::unpack::BaseMap;
use fullbore_core::{Error, Result};
use fullbore_engines::Session;

use super::resolve::Resolved;

/// The streams for the header.
pub(super) fn stream_records(source: &dyn Source, transfer_size: u32, kind: SetKind) -> Vec<StreamRecord> {
    if source.is_open() {
        return Vec::new(); // The manifest has them.
    }
    let mapped = |id| kind == SetKind::Full && !source.is_ordered(id);
    let streams = source.streams().iter();
    let record = |stream: &Stream| StreamRecord {
        id: stream.id,
        layer: 0,
        unit: stream.unit,
        map_window: if mapped(stream.id) { map_window(stream.unit, transfer_size) } else { 0 },
        size: stream.size,
        ordered: source.is_ordered(stream.id),
    };
    streams.map(record).collect()
}

/// The manifest, which is made after everything was read.
pub(super) fn manifest(resolved: &Resolved<'_>, warnings: &[String]) -> Result<Manifest> {
    let Resolved { request, session, set, .. } = resolved;
    let time = |micros: i64| jiff::Timestamp::from_microsecond(micros).map(|time| time.to_string()).unwrap_or_default();
    let (finished_at, facts) = (jiff::Timestamp::now(), session.facts());
    let more = facts.warnings.into_iter().filter(|known| !warnings.contains(known));
    Ok(Manifest {
        schema: 0,
        tool_version: set.tool_version.clone(),
        engine: set.engine.clone(),
        engine_version: facts.library,
        host: fullbore_core::resources::host(),
        database: request.source.name().to_owned(),
        kind: set.kind,
        copy_only: request.copy_only || session.holds_a_part(),
        media_set_id: set.media_set_id,
        backup_set_id: set.backup_set_id,
        base_backup_set_id: set.base_backup_set_id,
        name: request.name.clone(),
        description: request.description.clone(),
        media_name: request.media_name.clone(),
        started_at: time(set.started_at),
        finished_at: finished_at.to_string(),
        codec: request.compression.to_string(),
        block_size: set.block_size,
        transfer_size: set.transfer_size,
        families: manifest_families(&resolved.devices),
        streams: manifest_streams(resolved, session.source())?,
        map: resolved.map_seed.filter(|_| set.kind == SetKind::Full).map(ManifestMap::new),
        changes: if session.source().reported_bytes().is_some() { Changes::Reported } else { Changes::Compared },
        position: position(set, *session, finished_at)?,
        warnings: warnings.iter().cloned().chain(more).collect(),
    })
}

/// Begin and end of the set, in the terms of the engine and in the shared terms.
fn position(set: &SetHeader, session: &dyn Session, finished_at: jiff::Timestamp) -> Result<Position> {
    let last = EngineValue::from(session.position()?);
    let position = Position { first: session.first_position()?.into(), checkpoint: last.clone(), last, log: None };
    let log = fullbore_engines::log_range(&set.engine, set.kind, &position, Some(finished_at.as_microsecond()));
    Ok(Position { log, ..position })
}

fn manifest_families(devices: &[Device]) -> Vec<ManifestFamily> {
    let numbered = devices.iter().zip(1..);
    numbered.map(|(device, family)| ManifestFamily { family, device: device.to_string() }).collect()
}

/// The streams with their names: those of the header, or those that were found in the end.
fn manifest_streams(resolved: &Resolved<'_>, source: &dyn Source) -> Result<Vec<ManifestStream>> {
    let set = &resolved.set;
    let windows: HashMap<u32, u32> = set.streams.iter().map(|stream| (stream.id, stream.map_window)).collect();
    let described = |stream: Stream| ManifestStream {
        id: stream.id,
        name: stream.name,
        layer: 0,
        unit: stream.unit,
        map_window: windows.get(&stream.id).copied().unwrap_or(0),
        size: stream.size,
        ordered: source.is_ordered(stream.id),
        identity: String::new(),
        base: None,
        detail: None,
    };
    let mut streams: Vec<ManifestStream> = source.found()?.into_iter().map(described).collect();
    if set.open {
        // A file that disappeared meanwhile is not kept.
        for stream in streams.iter_mut().filter(|stream| !stream.name.is_empty()) {
            stream.identity = source.identity(stream.id).unwrap_or_default();
            stream.detail = source.detail(stream.id).map(EngineValue::from);
        }
        forget_doubles(&mut streams);
        match resolved.base.map() {
            Some(base) => find_bases(&mut streams, base, source)?,
            None if resolved.map_seed.is_some() => {
                let mapped = streams.iter_mut().filter(|stream| !stream.identity.is_empty());
                mapped.for_each(|stream| stream.map_window = map_window(stream.unit, set.transfer_size));
            }
            None => {}
        }
    }
    Ok(streams)
}

/// Removes an identity that two streams share: both are stored whole, and no differential depends on one of them.
fn forget_doubles(streams: &mut [ManifestStream]) {
    let mut times: HashMap<String, usize> = HashMap::new();
    streams.iter().for_each(|stream| *times.entry(stream.identity.clone()).or_default() += 1);
    let doubles = streams.iter_mut().filter(|stream| times.get(&stream.identity).is_some_and(|&times| times > 1));
    doubles.for_each(|stream| stream.identity.clear());
}

/// The stream of the full for each stream of a differential: its units were compared with it.
fn find_bases(streams: &mut [ManifestStream], base: &BaseMap, source: &dyn Source) -> Result<()> {
    for stream in streams.iter_mut().filter(|stream| !stream.name.is_empty()) {
        let identity = source.identity(stream.id).unwrap_or_default();
        stream.base = base.stream_like(&identity, stream.unit);
        if stream.base.is_some() && stream.identity.is_empty() {
            return Err(Error::refused(
                &stream.name,
                format!("has the same identity `{identity}` as another file, so its file in the full is not known"),
                "take a full (--kind full)",
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_that_two_streams_have_is_none() {
        let stream = |id, identity: &str| ManifestStream {
            id,
            name: String::new(),
            layer: 0,
            unit: 4096,
            map_window: 0,
            size: 0,
            ordered: false,
            identity: identity.into(),
            base: None,
            detail: None,
        };
        let mut streams = [stream(1, "a"), stream(2, "b"), stream(3, "a"), stream(4, ""), stream(5, "")];
        forget_doubles(&mut streams);
        assert_eq!(streams.map(|stream| stream.identity), ["", "b", "", "", ""]);
    }
}
