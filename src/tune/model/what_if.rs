//! What another configuration would change: each differs in one thing, and all are predicted in the same way (`docs/MODEL.md` §6).

use super::configuration::Configuration;
use super::path::Path;
use super::predict::{Prediction, Unpredictable, predict};

/// Times that differ by less are the same: runs of one job do, by as much.
pub const SAME_SPEED: f64 = 0.01;
/// What BUFFERCOUNT is multiplied by in the usual questions.
const BUFFER_FACTORS: [f64; 3] = [0.25, 0.5, 2.0];

/// One thing that is different.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// So many families; buffers stay as they are, shared by all.
    Stripes(u64),
    /// Another codec, by its name in the path.
    Codec(String),
    /// BUFFERCOUNT times so much.
    Buffers(f64),
    /// So many transform threads.
    Workers(u64),
    /// So many readers of the database, or writers to it.
    DatabaseStreams(u64),
    /// So many operations in flight in each family.
    QueueDepth(u64),
    /// MAXTRANSFERSIZE in bytes.
    TransferBytes(f64),
}

impl Change {
    /// `configuration` with this change.
    pub fn of(&self, configuration: &Configuration) -> Configuration {
        let mut changed = configuration.clone();
        match self {
            Self::Stripes(stripes) => changed.stripes = *stripes,
            Self::Codec(name) => changed.codec.clone_from(name),
            Self::Buffers(factor) => changed.buffers = changed.buffers.scaled(*factor),
            Self::Workers(workers) => changed.workers = *workers,
            Self::DatabaseStreams(streams) => changed.database_streams = *streams,
            Self::QueueDepth(depth) => changed.queue_depth = *depth,
            Self::TransferBytes(bytes) => changed.transfer_bytes = *bytes,
        }
        changed
    }
}

/// What a change would bring.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// What is different.
    pub change: Change,
    /// With it.
    pub prediction: Prediction,
    /// Times as fast: 1.31 is 31 % faster.
    pub speed: f64,
    /// Stored bytes with it for one without it: 0.59 is 41 % smaller.
    pub stored: f64,
    /// Bytes of memory more (or, below 0, less).
    pub memory_bytes: f64,
}

/// The usual questions about a configuration.
pub fn usual(path: &Path, now: &Configuration) -> Vec<Change> {
    let mut changes = vec![
        Change::Stripes(now.stripes + 1),
        Change::Stripes(now.stripes * 2),
        Change::Workers(now.workers * 2),
        Change::DatabaseStreams(now.database_streams * 2),
        Change::QueueDepth(now.queue_depth * 2),
    ];
    changes.dedup();
    changes.extend(BUFFER_FACTORS.map(Change::Buffers));
    let others = path.codecs.iter().filter(|codec| codec.name != now.codec);
    changes.extend(others.map(|codec| Change::Codec(codec.name.clone())));
    changes
}

/// Answers, fastest first; of those that are as fast as each other, the one with the least memory first.
///
/// # Errors
/// As [`predict`], of the configuration now or of a changed one.
pub fn rank(path: &Path, now: &Configuration, changes: &[Change]) -> Result<Vec<Answer>, Unpredictable> {
    let before = predict(path, now)?;
    let mut answers = changes
        .iter()
        .map(|change| {
            let prediction = predict(path, &change.of(now))?;
            Ok(Answer {
                change: change.clone(),
                speed: before.seconds / prediction.seconds,
                stored: prediction.stored_bytes / before.stored_bytes,
                memory_bytes: prediction.memory_bytes - before.memory_bytes,
                prediction,
            })
        })
        .collect::<Result<Vec<Answer>, Unpredictable>>()?;
    // In steps of what counts as the same, so that the order is one (near values, compared by a tolerance, are not transitive).
    let step = |answer: &Answer| (answer.speed.ln() / SAME_SPEED).round();
    answers
        .sort_by(|one, other| step(other).total_cmp(&step(one)).then(one.memory_bytes.total_cmp(&other.memory_bytes)));
    Ok(answers)
}
