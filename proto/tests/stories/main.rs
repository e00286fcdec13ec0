//! Stories: endpoints on the simulated fabric in virtual time, each test one behaviour that `PROTOCOL.md` promises.

mod close;
mod cost;
mod counts;
mod flow;
mod hostile;
mod life;
mod loss;
#[path = "../../../nic/tests/patience/mod.rs"]
mod patience;
mod sealed;
mod sizes;
mod tap;
#[path = "../virtual_time/mod.rs"]
mod virtual_time;
mod world;
