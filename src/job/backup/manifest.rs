//! What a set says of itself: the streams in its header, and its manifest.

use fullbore_core::Result;
use fullbore_core::device::Device;
use fullbore_core::media::{
    Manifest, ManifestFamily, ManifestMap, ManifestStream, Position, SetHeader, SetKind, StreamRecord,
};
use fullbore_core::pipeline::map_window;
use fullbore_core::source::{Source, Stream};
use fullbore_engines::Session;

use super::{Prepared, Request, database_of};

/// The streams, as the header has them.
pub(super) fn stream_records(source: &dyn Source, transfer_size: u32, kind: SetKind) -> Vec<StreamRecord> {
    if source.is_open() {
        return Vec::new(); // The manifest will have them.
    }
    let window = |unit| if kind == SetKind::Full { map_window(unit, transfer_size) } else { 0 };
    let streams = source.streams().iter();
    let record = |stream: &Stream| StreamRecord {
        id: stream.id,
        layer: 0,
        unit: stream.unit,
        map_window: window(stream.unit),
        size: stream.size,
    };
    streams.map(record).collect()
}

/// The manifest, written when everything is read.
pub(super) fn manifest(
    request: &Request,
    prepared: &Prepared,
    session: &dyn Session,
    warnings: &[String],
) -> Result<Manifest> {
    let set = &prepared.set;
    let time = |micros: i64| jiff::Timestamp::from_microsecond(micros).map(|time| time.to_string()).unwrap_or_default();
    let position = session.position()?;
    let facts = session.facts();
    let more = facts.warnings.into_iter().filter(|known| !warnings.contains(known));
    Ok(Manifest {
        schema: 0,
        tool_version: set.tool_version.clone(),
        engine: set.engine.clone(),
        engine_version: facts.library,
        host: crate::job::host(),
        database: database_of(&request.source),
        kind: set.kind,
        copy_only: request.copy_only,
        media_set_id: set.media_set_id,
        backup_set_id: set.backup_set_id,
        base_backup_set_id: set.base_backup_set_id,
        name: request.name.clone(),
        description: request.description.clone(),
        started_at: time(set.started_at),
        finished_at: jiff::Timestamp::now().to_string(),
        codec: request.compression.to_string(),
        block_size: set.block_size,
        transfer_size: set.transfer_size,
        families: manifest_families(&prepared.devices),
        streams: manifest_streams(set, session.source()),
        map: prepared.map_seed.filter(|_| set.kind == SetKind::Full).map(ManifestMap::new),
        position: Position { first: position.clone(), checkpoint: position.clone(), last: position },
        warnings: warnings.iter().cloned().chain(more).collect(),
    })
}

fn manifest_families(devices: &[Device]) -> Vec<ManifestFamily> {
    let numbered = devices.iter().zip(1..);
    numbered.map(|(device, family)| ManifestFamily { family, device: device.to_string() }).collect()
}

/// The streams with their names: as the header has them, or as they were found in the end.
fn manifest_streams(set: &SetHeader, source: &dyn Source) -> Vec<ManifestStream> {
    let map_window = |id: u16| set.streams.iter().find(|stream| stream.id == id).map_or(0, |stream| stream.map_window);
    let described = |stream: Stream| ManifestStream {
        id: stream.id,
        name: stream.name,
        layer: 0,
        unit: stream.unit,
        map_window: map_window(stream.id),
        size: stream.size,
    };
    source.found().into_iter().map(described).collect()
}
