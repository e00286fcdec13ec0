//! The same pattern at every layer of the stack, beside kernel TCP and UDP, interleaved in one run.
//!
//! [`ladder::run`] spawns two sides ([`side::main`]), orders one measurement after another, and makes a [`report::Report`] of
//! what they saw. A measurement is a [`pattern`] over a [`transport`].

#![deny(unsafe_code)]

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

pub mod breakdown;
mod buffer;
pub mod clock;
pub mod collectives;
pub mod contender;
pub mod idle;
pub mod ladder;
pub mod machine;
pub mod pace;
mod page;
pub mod pattern;
pub mod remote;
pub mod report;
pub mod side;
pub mod stats;
pub mod study;
pub mod transport;
pub mod tune;
