//! The parts of the command `sidelane` that other programs and tests use too.

#![deny(unsafe_code)]

pub mod doctor;
pub mod lab;
pub mod soak;
