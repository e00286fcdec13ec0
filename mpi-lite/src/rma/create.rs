//! How windows begin: all ranks call the same of these at the same time, and each returns when all have.
#![allow(unsafe_code)] // Windows are made of memory that is given by address.

use std::sync::{Arc, Mutex};

use sidelane_nic::share::{Shared, Ticket};

use crate::adi::{Device, Turns};
use crate::coll::Call;
use crate::comm::collective::Ranks;

use super::direct::Mapped;
use super::exposure::{Exposure, Serving};
use super::members::Members;
use super::memory::Regions;
use super::window::{Flavor, Window};
use super::{RmaError, lock};

impl Window {
    /// Shows memory of the caller's, whose displacements are `unit` bytes (`MPI_Win_create`).
    ///
    /// # Safety
    /// The memory stays where it is until [`Self::free`] has returned, and is not borrowed while this process is in a call that
    /// takes the device.
    pub unsafe fn create(
        turns: &mut impl Turns,
        members: Members,
        memory: *mut [u8],
        unit: u64,
    ) -> Result<Self, RmaError> {
        // SAFETY: passed on: the service that has the regions ends when the window is freed.
        let regions = unsafe { Regions::of(memory, unit) };
        Self::serve(turns, members, regions, None, Mapped::default(), Flavor::Create)
    }

    /// Shows memory of its own, of `len` bytes that are zero: [`Self::memory`]. Ranks of one host put and get there by plain
    /// copies (`MPI_Win_allocate`).
    pub fn allocate(turns: &mut impl Turns, members: Members, len: usize, unit: u64) -> Result<Self, RmaError> {
        Self::allocate_as(turns, members, (len, unit), Flavor::Allocate)
    }

    /// As [`Self::allocate`], of ranks that are all on one host, which may use each other's memory as their own:
    /// [`Self::share`]. Each part begins where the one before ends (`MPI_Win_allocate_shared`).
    pub fn allocate_shared(turns: &mut impl Turns, members: Members, len: usize, unit: u64) -> Result<Self, RmaError> {
        Self::allocate_as(turns, members, (len, unit), Flavor::Shared)
    }

    /// Shows nothing until it is attached; displacements are addresses at the target (`MPI_Win_create_dynamic`).
    pub fn dynamic(turns: &mut impl Turns, members: Members) -> Result<Self, RmaError> {
        Self::serve(turns, members, Regions::dynamic(), None, Mapped::default(), Flavor::Dynamic)
    }

    /// Shows more memory in a dynamic window. Its displacement is its address (`MPI_Win_attach`).
    ///
    /// # Safety
    /// As for [`Self::create`], until it is detached or the window is freed.
    pub unsafe fn attach(&self, memory: *mut [u8]) -> Result<(), RmaError> {
        if self.flavor != Flavor::Dynamic {
            return Err(RmaError::Flavor);
        }
        // SAFETY: passed on.
        unsafe { lock(&self.exposure).regions.attach(memory) }
    }

    /// Hides what was attached from this address on, and waits until nothing of it is on its way from here or to here any more. Nobody
    /// accesses it, which is for the caller to see to (`MPI_Win_detach`).
    pub fn detach(&self, turns: &mut impl Turns, start: *const u8) -> Result<(), RmaError> {
        if self.flavor != Flavor::Dynamic {
            return Err(RmaError::Flavor);
        }
        let memory = lock(&self.exposure).regions.detach(start)?;
        turns.wait_until(|_| (!lock(&self.exposure).uses(&memory)).then_some(()));
        Ok(())
    }

    /// This process's part of a window that was allocated. It is there until the window is freed.
    pub fn memory(&self) -> Option<*mut [u8]> {
        self.state().mapped.share(self.rank()).map(|(memory, _)| memory)
    }

    /// Another rank's part of a shared window, and its unit (`MPI_Win_shared_query`).
    pub fn share(&self, rank: usize) -> Option<(*mut [u8], u64)> {
        self.state().mapped.share(rank).filter(|_| self.flavor == Flavor::Shared)
    }

    /// Memory for the ranks of each host, made by the first of them, in which each has a part.
    fn allocate_as(
        turns: &mut impl Turns,
        members: Members,
        (len, unit): (usize, u64),
        flavor: Flavor,
    ) -> Result<Self, RmaError> {
        let mut ranks = ranks(turns.device(), &members);
        let mut all = vec![[0; 16]; members.size()];
        let mine = [(len as u64).to_le_bytes(), unit.to_le_bytes()].concat();
        tell(turns, &mut ranks, &mine, all.as_flattened_mut())?;
        let on_host: Vec<_> = members.processes.iter().map(|process| turns.device().is_on_host(*process)).collect();
        let mut end = Some(0usize);
        let parts = all.iter().zip(&on_host).map(|(said, on_host)| {
            let (len, unit) = said.split_at(8);
            let number = |bytes: &[u8]| u64::from_le_bytes(std::array::from_fn(|i| bytes[i]));
            let (at, len, unit) = (end?, usize::try_from(number(len)).ok()?, number(unit));
            if !on_host {
                return None;
            }
            // A shared window is one array (MPI-4.1 12.2.3); elsewhere no two ranks write the same cache line.
            let room = if flavor == Flavor::Shared { Some(len) } else { len.checked_next_multiple_of(LINE) };
            end = room.and_then(|room| at.checked_add(room));
            Some((at, len, unit))
        });
        let parts: Vec<_> = parts.collect();
        let first = on_host.iter().position(|on_host| *on_host) == Some(members.rank);
        let made = end.filter(|_| first).and_then(memory_of);
        let ticket = made.as_ref().map_or([0; Ticket::LEN], |memory| memory.ticket().to_bytes());
        let mut tickets = vec![[0; Ticket::LEN]; members.size()];
        tell(turns, &mut ranks, &ticket, tickets.as_flattened_mut())?;
        let first = on_host.iter().position(|on_host| *on_host).unwrap_or(members.rank);
        let memory = made.or_else(|| Shared::of(Ticket::from_bytes(tickets[first])).ok());
        let memory = memory.filter(|memory| end.is_some_and(|end| end <= memory.len()));
        let mut mapped = vec![0; members.size()];
        tell(turns, &mut ranks, &[u8::from(memory.is_some())], &mut mapped)?;
        let of_all = |among: &dyn Fn(usize) -> bool| (0..mapped.len()).all(|rank| !among(rank) || mapped[rank] == 1);
        if flavor == Flavor::Shared && !(on_host.iter().all(|on_host| *on_host) && of_all(&|_| true)) {
            return Err(RmaError::Shared);
        }
        let (memory, parts) = match memory.filter(|_| of_all(&|rank| on_host[rank])) {
            Some(memory) => (Some(memory), parts),
            // Memory of our own, that nobody else maps. All of the host take theirs, and it has to be enough for all.
            None => {
                let alone = (0..members.size()).map(|rank| (rank == members.rank).then_some((0, len, unit)));
                let enough = end.is_some_and(Shared::could_be);
                (Some(len).filter(|_| enough).and_then(memory_of), alone.collect())
            }
        };
        if mapped.contains(&0) {
            // Nobody waits for one that has no memory of its own either.
            tell(turns, &mut ranks, &[u8::from(memory.is_some())], &mut mapped)?;
        }
        let memory = memory.filter(|_| !mapped.contains(&0)).ok_or(RmaError::NoMemory)?;
        let mapped = Mapped::new(&memory, parts.into_iter());
        let (own, _) =
            mapped.share(members.rank).unwrap_or((std::ptr::slice_from_raw_parts_mut(std::ptr::null_mut(), 0), 1));
        // SAFETY: the exposure, which has the regions, keeps the mapping as well.
        let regions = unsafe { Regions::of(own, unit) };
        Self::serve(turns, members, regions, Some(memory), mapped, flavor)
    }

    fn serve(
        turns: &mut impl Turns,
        members: Members,
        regions: Regions,
        memory: Option<Shared>,
        mapped: Mapped,
        flavor: Flavor,
    ) -> Result<Self, RmaError> {
        let exposure = Arc::new(Mutex::new(Exposure::new(members.clone(), regions, memory)));
        let service = Box::new(Serving(Arc::clone(&exposure)));
        turns.device().begin_service(members.contexts.requests, service);
        let ranks = ranks(turns.device(), &members);
        let window = Self::new(members, exposure, ranks, mapped, flavor);
        // Nobody asks before everybody serves.
        let met = window.barrier(turns);
        if met.is_err() {
            // Who has come through the barrier may ask, and has perhaps; the caller has its memory back.
            window.end(turns, false);
        }
        met.map(|()| window)
    }
}

fn ranks(device: &Device, members: &Members) -> Ranks {
    let processes = members.processes.to_vec();
    // Who waits in shared memory has few turns of the device, and others want to be served.
    Ranks::new(device, members.contexts.collective, members.rank, processes, Arc::default()).without_shared_memory()
}

/// Some, also of no bytes.
fn memory_of(len: usize) -> Option<Shared> {
    let made = Shared::new(len.max(1));
    made.inspect_err(|error| tracing::warn!(len, %error, "no memory for a window")).ok()
}

/// Tells all ranks, and hears all.
fn tell(turns: &mut impl Turns, ranks: &mut Ranks, mine: &[u8], all: &mut [u8]) -> Result<(), RmaError> {
    let call = Call::Allgather { len: mine.len() };
    Ok(ranks.call(turns, call, Some(mine), all, &mut |_, _| ())?)
}

/// Two cache lines of 64 bytes, which processors fetch in pairs.
const LINE: usize = 128;
