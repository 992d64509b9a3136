//! The throughput model: the speed of a path, predicted from its ceilings and a configuration. Pure: no files, no
//! clock.
//!
//! The equations, their reasons and the origin of each parameter are in `docs/MODEL.md`. A [`Path`] is the hardware, a
//! [`Configuration`] is the job. [`predict`] gives the time and the limit, [`interval()`] their uncertainty.
//! [`what_if::rank`] shows what another configuration would change, and [`fit()`] finds parameters from observed times.
//!
//! Units everywhere: bytes, seconds, bytes per second. "Plain" bytes are bytes of the database, "stored" bytes are on
//! media.

mod configuration;
mod fit;
mod interval;
mod linear;
pub mod nominal;
mod parameter;
mod path;
mod predict;
mod requests;
mod stations;
pub mod what_if;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

pub use configuration::{Buffers, Configuration, Direction, ExtraCost};
pub use fit::{Fit, Free, fit};
pub use interval::{Interval, Intervals, SAMPLES, Sample, Uncertain, factors, interval, interval_of, samples};
pub use parameter::{CeilingPart, Parameter};
pub use path::{Access, Burst, Ceiling, CodecCost, Device, FixedCosts, Headroom, Machine, Path, Side};
pub use predict::{Phase, Prediction, Roofline, StageUse, Unpredictable, predict, predict_slowed, roofline};
pub use requests::{Asking, Measured, Requests};
pub use stations::Limit;
