//! Active Messages on the simulated fabric in virtual time.

mod calls;
mod credit;
mod flood;
mod hostile;
mod long_replies;
mod page;
#[path = "../../../nic/tests/patience/mod.rs"]
mod patience;
#[path = "../rma/reliable_nic.rs"]
mod reliable_nic;
#[path = "../virtual_time/mod.rs"]
mod virtual_time;
mod world;
