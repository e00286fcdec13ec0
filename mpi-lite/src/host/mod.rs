//! Collectives of ranks on one host, by memory that they share.
//!
//! Every call has the same course: each rank shows what it gives, waits for those whose it needs, and takes it. What is short is
//! shown by a copy in shared memory; what is long by its address, and is read from where it is, by one copy, while its owner
//! waits, or, of what many read or one reads of many, copies some of it too. So a call costs each rank a turn on a core, or a few, however many ranks there are: what counts where they are more
//! than cores. (Graham, Shipman, "MPI support for multi-core architectures: optimized shared memory collectives", 2008, and
//! Chakraborty, Subramoni, Panda, "Contention-aware kernel-assisted MPI collectives for multi-/many-core systems", 2017, have
//! much of this.)
//!
//! A call is a future. Of a rank that waits ([`Peers::WAITS`]) it is over when it was polled once, as [`at_once`] does; of others it
//! is pending until the members that it needs have come.
//!
//! Each says what it was called with, so that ranks whose calls do not fit notice; and a rank whose call fails says so, and all
//! others' fail.

mod allgather;
mod allreduce;
mod alltoall;
mod broadcast;
mod few;
mod gate;
mod gather;
mod neighbor;
mod ready;
mod reduce;
mod reduce_scatter;
mod scan;
mod scatter;
mod shared_copy;
mod sleepers;
mod slots;
mod table;
#[cfg(test)]
mod tests;
mod wait;

use std::io;
use std::num::NonZeroU32;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use sidelane_nic::share::{Shared, Ticket};

use crate::membarrier;

use slots::Slots;
pub use wait::YIELDS;

/// What a rank has besides the memory that all share.
pub trait Peers {
    /// Why a call cannot go on, such as that a rank is gone.
    type Error;

    /// Whether a call waits for other members, so that it is never pending.
    const WAITS: bool;

    /// How often a call looks for what it waits for, where each rank has a core, before it ends with [`Self::not_yet`]: one of a rank
    /// that will make it again. `None`: for as long as it takes.
    const LOOKS: Option<u32> = None;

    /// What a call ends with that has looked [`Self::LOOKS`] times. What it shows is shown.
    fn not_yet(&mut self) -> Self::Error {
        unreachable!("a call waits for as long as it takes")
    }

    /// Does what others may need of us before they can come. Called again and again while a call waits or is pending. True if
    /// somebody came for something; an error if a member is gone that `awaits` is true of. One that has done its part may go.
    fn turn(&mut self, awaits: impl Fn(usize) -> bool) -> Result<bool, Self::Error>;

    /// Sleeps until there may be something to do, such as a member's [`Self::wake`], or for a while.
    fn sleep(&mut self);

    /// Whether who polls a pending call may sleep before it polls again. Only asked for where calls don't wait.
    fn may_sleep(&self) -> bool;

    /// It may: from now on a member's [`Self::wake`] wakes us.
    fn doze(&mut self);

    /// After [`Self::sleep`] or [`Self::doze`]: whether a member wakes us, or has already.
    fn slept(&mut self, woken: bool);

    /// Wakes a member that sleeps.
    fn wake(&mut self, member: usize);

    /// Fills `into` from `address` on in the memory of member `member`, which was shown for that. Only called where
    /// [`Host::allow_reads`] was.
    fn read(&mut self, member: usize, address: u64, into: &mut [u8]) -> Result<(), Self::Error>;

    /// Asked before a call's first [`Self::write`] to a member: an error if it is gone.
    fn may_write(&mut self, member: usize) -> Result<(), Self::Error>;

    /// Writes `bytes` to `address` in the memory of member `member`, which waits for them. As [`Self::read`].
    fn write(&mut self, member: usize, address: u64, bytes: &[u8]) -> Result<(), Self::Error>;

    /// An error as a number, for the other members: at least [`DIFFER`].
    fn code(error: &Self::Error) -> NonZeroU32;

    /// What a number of another's stands for. [`DIFFER`]: members were called with what does not fit.
    fn error(code: NonZeroU32) -> Self::Error;
}

/// Makes a call of a rank that waits.
#[inline]
pub fn at_once<F: Future>(call: F) -> F::Output {
    match pin!(call).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => unreachable!("a call that waits is never pending"),
    }
}

/// Members' calls do not fit.
pub const DIFFER: NonZeroU32 = NonZeroU32::MIN;

/// The members' common memory, and our place among them. All members make the same calls in the same order, each with arrays of its own
/// that fit its call (`coll::Call::fits`).
///
/// A call that ends with an error has left the others waiting: then [`Self::fail`] is to be called, and nothing more can be
/// done with this.
#[derive(Debug)]
pub struct Host {
    slots: Slots,
    me: usize,
    size: usize,
    reads: bool,
    /// Blocks up to here are copied through shared memory.
    short: usize,
    /// And those up to here of which every member reads all or a part: see [`COMMON`].
    common: usize,
    /// A call's own: what it shows, and what it has read of others.
    work: Vec<u8>,
    came: Vec<u8>,
}

impl Host {
    /// Made by member 0 of `size`, who have so many cores between them, and are told its [`Self::ticket`] by it.
    pub fn create(size: usize, cores: usize) -> io::Result<Self> {
        let shared = Shared::lazy(Slots::len(size))?;
        wait::decide(&shared, size, cores);
        Ok(Self::of(shared, 0, size))
    }

    /// What `ticket` leads to, by member `me` of `size`.
    pub fn join(ticket: Ticket, me: usize, size: usize) -> io::Result<Self> {
        assert!(me < size, "a member's number is below their number");
        if ticket.len() != Slots::len(size) as u64 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the memory is for another number of ranks"));
        }
        let mut shared = Shared::of_lazy(ticket)?;
        shared.close();
        Ok(Self::of(shared, me, size))
    }

    fn of(shared: Shared, me: usize, size: usize) -> Self {
        let slots = Slots::new(shared, me, size);
        let common = common_max(size).min(slots.ground.spare * COMMON);
        Self { slots, me, size, reads: false, short: SHORT_ALL, common, work: Vec::new(), came: Vec::new() }
    }

    /// Which member we are.
    pub fn me(&self) -> usize {
        self.me
    }

    /// For the other members.
    pub fn ticket(&self) -> Ticket {
        self.slots.ground.shared.ticket()
    }

    /// All members have joined: lets long arrays be read out of their owners' memory, from now on, if every member says that it
    /// can.
    pub async fn allow_reads<P: Peers>(&mut self, can: bool, peers: &mut P) -> Result<(), P::Error> {
        let what = What::new(What::READS, 0);
        let light = membarrier::register();
        self.slots.show(what, &[u8::from(can), u8::from(light)], peers).await?;
        self.slots.await_all(peers).await?;
        self.slots.ground.shared.close();
        let mut all = [true; 2];
        for member in 0..self.size {
            let mut said = [0; 2];
            self.slots.check::<P>(member, what, 2)?;
            self.slots.read(member, 2, 0, &mut said);
            all = [all[0] && said[0] == 1, all[1] && said[1] == 1];
        }
        self.slots.finish(peers);
        // Whoever sleeps before it knows that all can waits only for who does not know it either.
        [self.reads, self.slots.ground.light] = all;
        if self.reads && !self.slots.ground.is_crowded() {
            self.short = SHORT;
        }
        Ok(())
    }

    /// Which calls can be done here: as all members find alike.
    pub fn limits(&self) -> Limits {
        Limits { reads: self.reads, short: self.short, size: self.size }
    }

    /// Ends this and all later calls of all members with an error.
    pub fn fail(&self, code: NonZeroU32) {
        self.slots.ground.fail(code);
    }

    /// Wakes those who sleep, after [`Self::fail`].
    pub fn tell<P: Peers>(&self, peers: &mut P) {
        self.slots.ground.tell(peers);
    }

    /// What a member has failed with.
    #[inline]
    pub fn failure(&self) -> Option<NonZeroU32> {
        self.slots.ground.failure()
    }

    /// Nobody leaves before everybody has come.
    pub async fn barrier<P: Peers>(&mut self, peers: &mut P) -> Result<(), P::Error> {
        let what = What::new(What::BARRIER, 0);
        if !self.slots.show_now(what, &[], peers) {
            self.slots.show(what, &[], peers).await?;
        }
        self.slots.await_all(peers).await?;
        self.slots.finish(peers);
        Ok(())
    }

    /// Blocks up to here that every member reads are copied through shared memory.
    fn short_common(&self) -> usize {
        self.short.max(self.common)
    }

    /// Those up to here of which every member reads its part. Between two that is one call of the kernel, as of a block.
    fn short_parted(&self) -> usize {
        if self.size == 2 { self.short } else { SHORT_ALL }
    }

    /// Arrays up to here of which every member combines all or a part.
    fn short_combined(&self) -> usize {
        SHORT_ALL.max(self.common.min(common_max(self.size) / 2))
    }

    /// Shows `bytes`, copied if they are no more than `most`, or somewhat more and copies are quick; else true, and they are to stay
    /// until they are taken.
    async fn offer<P: Peers>(
        &mut self,
        what: What,
        bytes: &[u8],
        most: usize,
        peers: &mut P,
    ) -> Result<bool, P::Error> {
        if bytes.len() <= most {
            self.slots.show(what, bytes, peers).await?;
        } else if bytes.len() <= SHORT_ALL && self.slots.shall_copy() {
            self.slots.show(what.copied(), bytes, peers).await?;
        } else {
            self.slots.show_address(what, bytes, peers).await?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Fills `into` from `at` on of the `shown` bytes that `member` offers.
    #[inline]
    fn take<P: Peers>(
        &self,
        what: What,
        member: usize,
        (shown, at): (usize, usize),
        into: &mut [u8],
        most: usize,
        peers: &mut P,
    ) -> Result<(), P::Error> {
        if shown <= most {
            self.slots.check::<P>(member, what, shown)?;
            self.slots.read(member, shown, at, into);
            return Ok(());
        }
        if shown <= SHORT_ALL && self.slots.check::<P>(member, what.copied(), shown).is_ok() {
            self.slots.read_timed(member, shown, at, into);
            return Ok(());
        }
        self.slots.check::<P>(member, what, shown)?;
        peers.read(member, self.slots.address(member) + at as u64, into)
    }

    /// Whether what was given is as long as what is to be filled.
    #[inline]
    fn fits<P: Peers>(&self, given: usize, room: usize) -> Result<(), P::Error> {
        if given == room { Ok(()) } else { Err(P::error(DIFFER)) }
    }
}

/// Which calls the members' common memory takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    reads: bool,
    short: usize,
    size: usize,
}

impl Limits {
    /// How many members there are.
    pub fn size(self) -> usize {
        self.size
    }

    /// Those in which every member shows this many bytes, and as many in all.
    pub fn take(self, shown: usize) -> bool {
        self.reads || shown <= self.short
    }

    /// Those in which nobody knows what others show.
    pub fn take_varying(self) -> bool {
        self.reads && table::fits(self.size)
    }

    /// Of those in which nobody knows what others show, the ones in which this member shows few bytes: `count` blocks of `len`
    /// bytes together.
    #[inline]
    pub fn are_few(self, count: usize, len: usize) -> bool {
        self.reads && table::is_few(count, len)
    }

    /// Those with so many neighbours, as many for all.
    pub fn take_neighbors(self, count: usize) -> bool {
        self.reads && table::fits(count)
    }
}

/// What a member was called with, as far as all were called with the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct What {
    call: u32,
    /// The root, or something else that tells calls apart.
    detail: u32,
}

impl What {
    const READS: u32 = 1;
    const BROADCAST: u32 = 2;
    const REDUCE: u32 = 3;
    const ALLREDUCE: u32 = 4;
    const REDUCE_SCATTER: u32 = 5;
    const SCAN: u32 = 6;
    const GATHER: u32 = 7;
    const SCATTER: u32 = 8;
    const ALLGATHER: u32 = 9;
    const ALLTOALL: u32 = 10;
    const NEIGHBORS: u32 = 11;
    const BARRIER: u32 = 12;

    const fn new(call: u32, detail: usize) -> Self {
        Self { call, detail: detail as u32 }
    }

    /// The same, of an array so long that it may be shown by its address too.
    const fn copied(self) -> Self {
        Self { call: self.call | 1 << 24, ..self }
    }

    /// The same, of blocks for several readers, which are shown in this form.
    const fn blocks(self, form: table::Form) -> Self {
        Self { call: self.call | 1 << 8 | (form as u32) << 16, ..self }
    }

    /// Whether all wait for others within the call, so that nobody runs ahead.
    #[inline]
    const fn is_mutual(self) -> bool {
        let call = self.call & 0xff;
        matches!(
            call,
            Self::READS
                | Self::ALLREDUCE
                | Self::REDUCE_SCATTER
                | Self::ALLGATHER
                | Self::ALLTOALL
                | Self::NEIGHBORS
                | Self::BARRIER
        )
    }

    #[inline]
    fn to_bytes(self) -> [u8; 8] {
        (u64::from(self.call) << 32 | u64::from(self.detail)).to_ne_bytes()
    }
}

/// The most that a small slot takes: what calls show that are made without a future.
pub const FEW: usize = 2 * 1024 + 64;

/// Blocks up to here are copied through shared memory where each rank has a core and can read the others' memory. Beyond, to wait for
/// the readers of what one has shown and the kernel's copy are cheaper than a second copy (measured: `bench/NOTES.md` 63), unless it
/// is a quick one (`slots/near.rs`).
const SHORT: usize = 4 * 1024;

/// As [`SHORT`], where the kernel would be called for each rank's block or part, where readers have to get a core first, or where
/// they cannot read.
const SHORT_ALL: usize = 16 * 1024;

/// As both, of what every rank reads, for each rank more than there are cores. To be read from is to wait until all have had a core,
/// and while they are switched so much is copied a second time, from one core's cache to a far one's (`bench/NOTES.md` 51).
const COMMON: usize = 14 * 1024;

/// The most of that with `size` ranks: what all show together stays in the caches.
const fn common_max(size: usize) -> usize {
    const TOGETHER: usize = 4 << 20;
    const MOST: usize = 512 << 10;
    let share = TOGETHER / size;
    if share < MOST { share } else { MOST }
}

/// Elements of `element` bytes that have `most` bytes together, or one.
fn whole(element: usize, most: usize) -> usize {
    (most / element).max(1) * element
}

/// What is reduced at a time, so that it is in the cache when it is combined.
const PIECE: usize = 256 * 1024;
