//! Active Messages on the simulated fabric in virtual time.

mod calls;
mod flood;
mod hostile;
mod long_replies;
mod page;
mod world;
