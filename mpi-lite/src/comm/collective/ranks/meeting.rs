//! How the ranks of a host come to memory that they share, by messages.

use sidelane_nic::share::Ticket;

use super::super::on_host::{Waiting, give_up};
use super::{OF_HOSTS, Ranks, Shared, WAKE_QUEUE, members};
use crate::adi::{Error, Turns, cores_of};
use crate::coll::Call;
use crate::host::{Host, at_once};

impl Ranks {
    /// For calls that wait, and, unless these are parts of calls, for those that do not.
    #[cold]
    pub(super) fn make_host(&mut self, turns: &mut impl Turns) -> Result<(), Error> {
        self.host = Shared::None;
        if self.tags == OF_HOSTS {
            self.host = self.make_memory(turns)?.map_or(Shared::None, |[host]| Shared::Made(host));
        } else if let Some([host, later]) = self.make_memory(turns)? {
            self.host = Shared::Made(host);
            self.queue = Some(self.queue_in(turns, later, WAKE_QUEUE));
        }
        Ok(())
    }

    /// Rank 0 makes the memory and tells the others where; it is used if all have got it.
    pub(super) fn make_memory<const N: usize>(&mut self, turns: &mut impl Turns) -> Result<Option<[Host; N]>, Error> {
        let (rank, size) = (self.rank, self.processes.len());
        let all_of = |each: &mut dyn FnMut(usize) -> Option<Host>| {
            let all: Vec<Host> = (0..N).map_while(each).collect();
            <[Host; N]>::try_from(all).ok()
        };
        let warn = |error: &_| tracing::warn!(%error, "no memory that ranks of this host share for collective calls");
        let made = if rank == 0 {
            let all = turns.device().processes();
            let cores = cores_of(self.processes.iter().map(|process| &all[*process as usize]));
            all_of(&mut |_| Host::create(size, cores).inspect_err(warn).ok())
        } else {
            None
        };
        let mut tickets =
            made.as_ref().map_or([[0; Ticket::LEN]; N], |made| made.each_ref().map(|host| host.ticket().to_bytes()));
        let broadcast = Call::Broadcast { root: 0 };
        self.call_by_messages(turns, broadcast, Some(&[]), tickets.as_flattened_mut(), &mut |_, _| ())?;
        let mut hosts = match made {
            None if rank > 0 => all_of(&mut |at| Host::join(Ticket::from_bytes(tickets[at]), rank, size).ok()),
            made => made,
        };
        let met = self.meet(turns, &mut hosts);
        if let Err(error) = met {
            // Others may have met, and would wait for us there.
            for host in hosts.iter_mut().flatten() {
                let members = members(self.context, rank, &self.processes, &self.whole);
                give_up(host, &mut Waiting::new(turns, members, &mut self.wake), error);
            }
        }
        met.map(|()| hosts)
    }

    /// Finds out whether all have joined, and what they can. If somebody has not, nobody has.
    fn meet<const N: usize>(&mut self, turns: &mut impl Turns, hosts: &mut Option<[Host; N]>) -> Result<(), Error> {
        let (rank, size) = (self.rank, self.processes.len());
        let (mut have, all) = (vec![0; size], Call::Allgather { len: 1 });
        self.call_by_messages(turns, all, Some(&[u8::from(hosts.is_some())]), &mut have, &mut |_, _| ())?;
        if have.contains(&0) {
            *hosts = None;
        }
        let Some(hosts) = hosts else { return Ok(()) };
        // Whether all can read each other's memory: that depends on whose it is (ptrace(2), "dumpable"), so each is looked at by one.
        let word = 0u64;
        let mut words = vec![0; size * 8];
        let address = ((&raw const word).expose_provenance() as u64).to_ne_bytes();
        let all = Call::Allgather { len: 8 };
        self.call_by_messages(turns, all, Some(&address), &mut words, &mut |_, _| ())?;
        let other = (rank + 1) % size;
        let its = u64::from_ne_bytes(std::array::from_fn(|at| words[other * 8 + at]));
        let can = turns.device().read_memory(self.processes[other], its, &mut [0; 8]).is_ok();
        if !can {
            tracing::info!(
                process = self.processes[other],
                "its memory may not be read here (ptrace(2), Yama's ptrace_scope): what is long is copied twice"
            );
        }
        for host in hosts {
            let members = members(self.context, rank, &self.processes, &self.whole);
            at_once(host.allow_reads(can, &mut Waiting::new(turns, members, &mut self.wake)))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::adi::{Config, in_threads};

    #[test]
    fn memory_that_one_could_not_join_is_nobodys() {
        in_threads(3, &Config::default(), |mut device| {
            let own = device.own() as usize;
            let mut ranks = Ranks::new(&device, 5, own, vec![0, 1, 2], Arc::default());
            let mut hosts = (own != 1).then(|| [Host::create(3, 3).unwrap()]);
            assert_eq!(ranks.meet(&mut device, &mut hosts), Ok(()));
            assert!(hosts.is_none());
            device.close(sidelane_nic::time::Duration::from_millis(2_000));
        });
    }
}
