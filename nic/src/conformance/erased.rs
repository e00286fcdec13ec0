//! Any driver and any setup behind one type each, so that the cases are compiled once and not for every driver.

use std::io;
use std::ops::DerefMut;
use std::task::Waker;

use super::{Ended, Setup};
use crate::time::Instant;
use crate::{Caps, Counters, Link, LinkAddr, LinkError, Nic, TxSlot};

/// [`Nic`], for trait objects.
pub(super) trait Driver {
    fn is_reliable(&self) -> bool;
    fn caps(&self) -> &Caps;
    fn link(&mut self, to: LinkAddr) -> Result<Link, LinkError>;
    fn link_back(&mut self, to: LinkAddr) -> Result<Link, LinkError>;
    fn confirm(&mut self, link: Link);
    fn unlink(&mut self, link: Link);
    fn rx_burst(&mut self, budget: usize, each: &mut dyn FnMut(&[u8], LinkAddr)) -> usize;
    fn tx_slot(&mut self, link: Link, len: usize) -> Option<Box<dyn Slot + '_>>;
    fn tx_slot_before<'a>(&'a mut self, link: Link, len: usize, tail: &'a [u8]) -> Option<Box<dyn Slot + 'a>>;
    fn flush(&mut self);
    fn wait(&mut self, deadline: Option<Instant>) -> io::Result<()>;
    fn waker(&mut self) -> io::Result<Waker>;
    fn is_gone(&self, link: Link) -> bool;
    fn counters(&self) -> Counters;
    fn diagnosis(&self) -> Option<String>;
    fn now(&self) -> Instant;
}

impl<N: Nic> Driver for N {
    fn is_reliable(&self) -> bool {
        N::RELIABLE
    }

    fn caps(&self) -> &Caps {
        Nic::caps(self)
    }

    fn link(&mut self, to: LinkAddr) -> Result<Link, LinkError> {
        Nic::link(self, to)
    }

    fn link_back(&mut self, to: LinkAddr) -> Result<Link, LinkError> {
        Nic::link_back(self, to)
    }

    fn confirm(&mut self, link: Link) {
        Nic::confirm(self, link);
    }

    fn unlink(&mut self, link: Link) {
        Nic::unlink(self, link);
    }

    fn rx_burst(&mut self, budget: usize, each: &mut dyn FnMut(&[u8], LinkAddr)) -> usize {
        Nic::rx_burst(self, budget, each)
    }

    fn tx_slot(&mut self, link: Link, len: usize) -> Option<Box<dyn Slot + '_>> {
        Nic::tx_slot(self, link, len).map(|slot| Box::new(slot) as Box<dyn Slot + '_>)
    }

    fn tx_slot_before<'a>(&'a mut self, link: Link, len: usize, tail: &'a [u8]) -> Option<Box<dyn Slot + 'a>> {
        Nic::tx_slot_before(self, link, len, tail).map(|slot| Box::new(slot) as Box<dyn Slot + 'a>)
    }

    fn flush(&mut self) {
        Nic::flush(self);
    }

    fn wait(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        Nic::wait(self, deadline)
    }

    fn waker(&mut self) -> io::Result<Waker> {
        Nic::waker(self)
    }

    fn is_gone(&self, link: Link) -> bool {
        Nic::is_gone(self, link)
    }

    fn counters(&self) -> Counters {
        Nic::counters(self)
    }

    fn diagnosis(&self) -> Option<String> {
        Nic::diagnosis(self)
    }

    fn now(&self) -> Instant {
        Nic::now(self)
    }
}

/// [`TxSlot`], for trait objects.
pub(super) trait Slot: DerefMut<Target = [u8]> {
    fn commit(self: Box<Self>);
}

impl<T: TxSlot> Slot for T {
    fn commit(self: Box<Self>) {
        TxSlot::commit(*self);
    }
}

/// [`Setup`], for trait objects. `D` is a driver that threads may pass on, or one that they may not.
pub(super) trait Stage<D: ?Sized> {
    fn is_reliable(&self) -> bool;
    fn open(&mut self, count: usize) -> Result<Vec<Box<D>>, String>;
    fn absent(&mut self) -> Option<LinkAddr>;
    fn may_overtake(&self) -> bool;
    fn ended(&mut self, case: &Ended);
    fn throw(&mut self, victim: LinkAddr, bytes: &[u8]) -> bool;
}

/// A setup, and how its drivers become `D`.
pub(super) struct Erased<'a, S: Setup, D: ?Sized> {
    pub setup: &'a mut S,
    pub erase: fn(S::Nic) -> Box<D>,
}

impl<S: Setup, D: ?Sized> Stage<D> for Erased<'_, S, D> {
    fn is_reliable(&self) -> bool {
        S::Nic::RELIABLE
    }

    fn open(&mut self, count: usize) -> Result<Vec<Box<D>>, String> {
        Ok(self.setup.open(count)?.into_iter().map(self.erase).collect())
    }

    fn absent(&mut self) -> Option<LinkAddr> {
        self.setup.absent()
    }

    fn may_overtake(&self) -> bool {
        self.setup.may_overtake()
    }

    fn ended(&mut self, case: &Ended) {
        self.setup.ended(case);
    }

    fn throw(&mut self, victim: LinkAddr, bytes: &[u8]) -> bool {
        self.setup.throw(victim, bytes)
    }
}
