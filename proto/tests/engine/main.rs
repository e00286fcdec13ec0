//! The same stories for endpoints that their user polls, that engines drive, and that one engine drives; and what only an engine does.
//! Real drivers and real time: an engine is a thread.

mod alone;
mod am;
mod before_sleep;
mod ends;
#[macro_use]
mod face;
mod one_sided;
#[path = "../../../nic/tests/patience/mod.rs"]
mod patience;
mod stories;
mod together;

/// Bytes of the longest message that an engine's ring keeps, behind eight of its own.
const KEPT_MAX: usize = sidelane_nic::shm::lane::RECORD_MAX - 8;
