//! Seeded faults: what may befall a frame, and a wrapper that lets it befall the frames of any driver.

mod faults;

pub use faults::Faults;
pub(crate) use faults::Lateness;
