//! The same stories for an endpoint that its user polls and for one that an engine drives; and what only an engine does.
//! Real drivers and real time: an engine is a thread.

mod alone;
mod am;
mod face;
mod stories;
