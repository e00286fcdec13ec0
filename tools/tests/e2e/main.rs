//! Whole processes over real drivers: what arrives is what was sent, whatever befalls frames, processes and hosts.
//!
//! Each test makes its own lab, which goes with it. Where the machine allows none, the test says so and passes.
//! `cargo test -p sidelane --test e2e -- --ignored --nocapture` runs the long variants.

mod attack;
mod death;
mod exactly_once;
mod growth;
mod ordinary_user;
mod party;
#[path = "../../../nic/tests/patience/mod.rs"]
mod patience;
mod stage;
mod stat;
