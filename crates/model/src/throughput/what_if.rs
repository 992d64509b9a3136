//! What another configuration would change: each differs in one setting, and all are predicted in the same way
//! (`docs/MODEL.md` §6).

use super::configuration::Configuration;
use super::path::Path;
use super::predict::{Prediction, Unpredictable, predict};

/// Times that differ by less count as the same: runs of one job differ by as much.
pub const SAME_SPEED: f64 = 0.01;
/// The factors of BUFFERCOUNT in the usual questions.
const BUFFER_FACTORS: [f64; 3] = [0.25, 0.5, 2.0];

/// One changed setting.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// This many families; the number of buffers stays the same, shared by all.
    Stripes(u64),
    /// Another codec, by its name in the path.
    Codec(String),
    /// BUFFERCOUNT times this factor.
    Buffers(f64),
    /// This many transform threads.
    Workers(u64),
    /// This many readers of the database, or writers to it.
    DatabaseStreams(u64),
    /// This many operations in flight in each family.
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

/// The effect of a change.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The change.
    pub change: Change,
    /// The prediction with the change.
    pub prediction: Prediction,
    /// Factor of the speed: 1.31 is 31 % faster.
    pub speed: f64,
    /// Factor of the stored bytes: 0.59 is 41 % smaller.
    pub stored: f64,
    /// Additional bytes of memory; below 0: fewer.
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

/// Answers, fastest first; among equally fast ones, the one with the least memory first.
///
/// # Errors
/// As [`predict`], for the present configuration or a changed one.
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
    // In steps of equal speed, so that the order is transitive. A comparison of near values by a tolerance is not.
    let step = |answer: &Answer| (answer.speed.ln() / SAME_SPEED).round();
    answers
        .sort_by(|one, other| step(other).total_cmp(&step(one)).then(one.memory_bytes.total_cmp(&other.memory_bytes)));
    Ok(answers)
}
