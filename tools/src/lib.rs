//! The parts of the command `sidelane` that other programs and tests use too.

#![deny(unsafe_code)]

pub mod cache;
pub mod doctor;
pub mod guard;
pub mod lab;
pub mod nic_list;
#[cfg(test)]
#[path = "../../nic/tests/patience/mod.rs"]
mod patience;
mod private;
pub mod qemu;
pub mod soak;
pub mod stat;
pub mod table;

/// The project's README: its example has to compile.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
