//! Devices over the simulated fabric, in one thread and in virtual time; and over shared memory, a thread each.

mod ends;
mod job;
mod messages;
mod parts;
mod programs;
mod requests;
mod room;
mod shared_copy;
mod shm;
mod steps;
