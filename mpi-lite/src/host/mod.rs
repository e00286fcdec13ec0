//! Collectives of ranks on one host, by memory that they share.
//!
//! Every call has the same course: each rank shows what it gives, waits for those whose it needs, and takes it. What is short is
//! shown by a copy in shared memory; what is long by its address, and is read from where it is, by one copy, while its owner
//! waits. So a call costs each rank a turn on a core, or a few, however many ranks there are: what counts where they are more
//! than cores. (Graham, Shipman, "MPI support for multi-core architectures: optimized shared memory collectives", 2008, and
//! Chakraborty, Subramoni, Panda, "Contention-aware kernel-assisted MPI collectives for multi-/many-core systems", 2017, have
//! much of this.)

mod allgather;
mod allreduce;
mod alltoall;
mod broadcast;
mod futex;
mod gate;
mod gather;
mod reduce;
mod reduce_scatter;
mod scan;
mod scatter;
mod slots;
#[cfg(test)]
mod tests;
mod wait;

use std::io;

use sidelane_nic::share::{Shared, Ticket};

use slots::Slots;

/// What a rank has besides the memory that all share.
pub trait Peers {
    /// Why a call cannot go on, such as that a rank is gone.
    type Error;

    /// Does what others may need of us before they can come. Called again and again by who waits; an error if a member is
    /// gone that `awaits` is true of. One that has done its part may go.
    fn turn(&mut self, awaits: impl Fn(usize) -> bool) -> Result<(), Self::Error>;

    /// Fills `into` from `address` on in the memory of member `member`, which was shown for that. Only called where
    /// [`Host::allow_reads`] was.
    fn read(&mut self, member: usize, address: u64, into: &mut [u8]) -> Result<(), Self::Error>;
}

/// The members' common memory, and our place among them. All members make the same calls in the same order.
///
/// A call that ends with an error has left the others at a gate that will never open: nothing more can be done with this.
#[derive(Debug)]
pub struct Host {
    slots: Slots,
    me: usize,
    size: usize,
    reads: bool,
    /// A call's own: what it shows, and what it has read of others.
    work: Vec<u8>,
    came: Vec<u8>,
}

impl Host {
    /// Made by member 0 of `size`, who tells the others its [`Self::ticket`].
    pub fn create(size: usize) -> io::Result<Self> {
        let shared = Shared::new(Slots::len(size))?;
        wait::decide(&shared, size);
        Ok(Self { slots: Slots::new(shared, 0, size), me: 0, size, reads: false, work: Vec::new(), came: Vec::new() })
    }

    /// What `ticket` leads to, by member `me` of `size`.
    pub fn join(ticket: Ticket, me: usize, size: usize) -> io::Result<Self> {
        assert!(me < size, "a member's number is below their number");
        if ticket.len() != Slots::len(size) as u64 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the memory is for another number of ranks"));
        }
        Ok(Self {
            slots: Slots::new(Shared::of(ticket)?, me, size),
            me,
            size,
            reads: false,
            work: Vec::new(),
            came: Vec::new(),
        })
    }

    /// For the other members.
    pub fn ticket(&self) -> Ticket {
        self.slots.shared().ticket()
    }

    /// Lets long arrays be read out of their owners' memory, from now on, if every member says that it can.
    pub fn allow_reads<P: Peers>(&mut self, can: bool, peers: &mut P) -> Result<(), P::Error> {
        self.slots.show(&[u8::from(can)], peers)?;
        self.slots.await_all(peers)?;
        let mut all = true;
        for member in 0..self.size {
            let mut said = [0];
            self.slots.read(member, 1, 0, &mut said);
            all &= said == [1];
        }
        self.slots.finish();
        self.reads = all;
        Ok(())
    }

    /// Whether calls in which every member shows this many bytes, and as many in all, can be done here.
    pub fn takes(&self, shown: usize) -> bool {
        self.reads || shown <= SHORT
    }

    /// Nobody leaves before everybody has come.
    pub fn barrier<P: Peers>(&mut self, peers: &mut P) -> Result<(), P::Error> {
        self.slots.come();
        self.slots.await_all(peers)?;
        self.slots.finish();
        Ok(())
    }

    /// Shows where `bytes` are.
    fn show_address<P: Peers>(&mut self, bytes: *const [u8], peers: &mut P) -> Result<(), P::Error> {
        self.slots.show(&(bytes.cast::<u8>().expose_provenance() as u64).to_le_bytes(), peers)
    }

    /// Where what `member` has shown is.
    fn address(&self, member: usize) -> u64 {
        let mut address = [0; 8];
        self.slots.read(member, 8, 0, &mut address);
        u64::from_le_bytes(address)
    }
}

/// Blocks up to here are copied through shared memory. Beyond, to wait for the readers of what one has shown and the
/// kernel's copy are cheaper than a second copy (measured: `bench/NOTES.md`).
pub const SHORT: usize = 8 * 1024;

/// As [`SHORT`], where the kernel would be called for each rank's block or part.
pub const SHORT_ALL: usize = slots::SLOT;

/// What is reduced at a time, so that it is in the cache when it is combined.
const PIECE: usize = 32 * 1024;
