//! For tests of this and other crates: suites for every implementation of a trait, devices in memory, and devices that
//! fail as they are told.

mod codec_conforms;
mod conform;
mod engine_conforms;
mod fault;
mod fault_sink;
mod fault_supply;
mod memory;
mod open_engine_conforms;
mod ordered;
mod plain;

pub use codec_conforms::codec_conforms;
pub use conform::{sink_conforms, supply_conforms};
pub use engine_conforms::{EngineUnderTest, Streams, engine_conforms};
pub use fault::{Fault, FaultPlan};
pub use fault_sink::FaultSink;
pub use fault_supply::FaultSupply;
pub use memory::{MemorySink, MemorySupply, Shelf};
pub use open_engine_conforms::{Files, OpenEngineUnderTest, open_engine_conforms, read_files};
pub use ordered::{OrderedSource, OrderedTarget, TargetBehaviour};
pub use plain::{plain_header, plain_manifest, plain_stream};
