//! What a set says of an uploaded object: its facts, and the names of its streams. Anybody may have written it.

use fullbore_core::media::ManifestStream;
use fullbore_engines::{ObjectFacts, object_parts};

/// The facts are JSON up to the first zero byte; each further line is the size and the name of a stream.
pub fn run(input: &[u8]) {
    let mut halves = input.splitn(2, |byte| *byte == 0);
    let json = halves.next().unwrap_or_default();
    if let Some(facts) = serde_json::from_slice(json).ok().and_then(|value| ObjectFacts::of(&value)) {
        assert!((1..=fullbore_engines::KEY_MAX).contains(&facts.key.len()));
        let again = serde_json::to_value(&facts).expect("facts are JSON");
        assert_eq!(ObjectFacts::of(&again), Some(facts.clone()));
        if let Some(media) = &facts.media {
            let missing = media.missing([media]);
            assert!(missing.len() <= usize::from(media.families) && !missing.contains(&media.family));
            assert!(!media.title().is_empty() || media.kind.is_empty());
        }
    }
    let text = String::from_utf8_lossy(halves.next().unwrap_or_default());
    let streams: Vec<ManifestStream> = text.lines().take(100).zip(1..).map(|(line, id)| stream(line, id)).collect();
    let Ok(parts) = object_parts(&streams) else { return };
    let mut at = 0_u64;
    for part in &parts {
        assert_eq!(part.at, at);
        at = at.saturating_add(part.bytes);
        assert!(streams.iter().any(|stream| stream.id == part.stream && !stream.name.is_empty()));
    }
}

fn stream(line: &str, id: u32) -> ManifestStream {
    let (size, name) = line.split_once(' ').unwrap_or(("0", line));
    ManifestStream {
        id,
        name: name.to_owned(),
        layer: 0,
        unit: 4096,
        map_window: 0,
        size: size.parse().unwrap_or(u64::MAX),
        ordered: false,
        identity: String::new(),
        base: None,
        detail: None,
    }
}
