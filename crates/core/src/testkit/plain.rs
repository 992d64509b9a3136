//! Headers and manifests of sets that a test writes itself. A test overrides what it is about: `Manifest { map, ..plain_manifest(…) }`.

use uuid::Uuid;

use crate::cipher::CipherId;
use crate::media::{Changes, FORMAT_VERSION, Manifest, ManifestFamily, ManifestStream, Position, SetHeader, SetKind};
use crate::source::Stream;

/// The header of a closed full without streams, keys, window or label. `transfer_size` is in bytes.
pub fn plain_header(engine: &str, families: u16, transfer_size: u32) -> SetHeader {
    SetHeader {
        format_version: FORMAT_VERSION,
        media_set_id: Uuid::now_v7(),
        backup_set_id: Uuid::now_v7(),
        families,
        cipher: CipherId::None,
        kind: SetKind::Full,
        block_size: 4096,
        transfer_size,
        window: 0,
        codec: (1, 0),
        started_at: 0,
        engine: engine.into(),
        tool_version: "0".into(),
        base_backup_set_id: None,
        keys: Vec::new(),
        streams: Vec::new(),
        open: false,
        label: None,
    }
}

/// The manifest of a set with these streams: no page map, no names, and no device is named.
pub fn plain_manifest(set: &SetHeader, streams: Vec<ManifestStream>) -> Manifest {
    Manifest {
        schema: 0,
        tool_version: set.tool_version.clone(),
        engine: set.engine.clone(),
        engine_version: "1".into(),
        host: String::new(),
        database: String::new(),
        kind: set.kind,
        copy_only: false,
        media_set_id: set.media_set_id,
        backup_set_id: set.backup_set_id,
        base_backup_set_id: set.base_backup_set_id,
        name: String::new(),
        description: String::new(),
        media_name: String::new(),
        started_at: String::new(),
        finished_at: String::new(),
        codec: String::new(),
        block_size: set.block_size,
        transfer_size: set.transfer_size,
        families: (1..=set.families).map(|family| ManifestFamily { family, device: String::new() }).collect(),
        streams,
        map: None,
        changes: Changes::Compared,
        position: Position::default(),
        warnings: Vec::new(),
    }
}

/// A stream in any order, without a page map, an identity or a base.
pub fn plain_stream(stream: &Stream) -> ManifestStream {
    ManifestStream {
        id: stream.id,
        name: stream.name.clone(),
        layer: 0,
        unit: stream.unit,
        map_window: 0,
        size: stream.size,
        ordered: false,
        identity: String::new(),
        base: None,
        detail: None,
    }
}
