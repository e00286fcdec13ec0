//! Seeded faults: what may befall a frame, and a wrapper that lets it befall the frames of any driver.

mod datapath;
mod faults;

pub use datapath::{Fault, FaultCounters};
pub use faults::Faults;
pub(crate) use faults::Lateness;
