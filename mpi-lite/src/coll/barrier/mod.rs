//! Nobody leaves before everybody has come.

mod dissemination;

pub use dissemination::dissemination;
