//! One-sided operations in virtual time: each test one behaviour that `PROTOCOL.md` promises, and storms of faults under
//! an oracle.

mod closes;
mod company;
mod full_ring;
mod pair;
#[path = "../../../nic/tests/patience/mod.rs"]
mod patience;
mod reliable_nic;
mod stories;
mod storm;
#[path = "../virtual_time/mod.rs"]
mod virtual_time;
