//! Any transport behind one type, so that a pattern is compiled once for all of them.

use super::{Broken, Transport};

/// A transport whose calls go through a table: each takes a nanosecond or two more.
pub struct Erased<'a>(&'a mut dyn Object);

impl<'a> Erased<'a> {
    /// The same transport.
    pub fn new<T: Transport>(transport: &'a mut T) -> Self {
        Self(transport)
    }
}

/// [`Transport`], as far as a table can hold it.
trait Object {
    fn is_blocking(&self) -> bool;
    fn send(&mut self, message: &[u8]) -> Result<bool, Broken>;
    fn flush(&mut self) -> Result<(), Broken>;
    fn recv(&mut self, budget: usize, into: &mut [u8], each: &mut dyn FnMut(&[u8])) -> Result<usize, Broken>;
    fn unanswered_max(&self) -> usize;
    fn finish(&mut self, deadline_ns: u64) -> Result<(), Broken>;
    fn relax(&self);
}

impl<T: Transport> Object for T {
    fn is_blocking(&self) -> bool {
        Transport::is_blocking(self)
    }

    fn send(&mut self, message: &[u8]) -> Result<bool, Broken> {
        Transport::send(self, message)
    }

    fn flush(&mut self) -> Result<(), Broken> {
        Transport::flush(self)
    }

    fn recv(&mut self, budget: usize, into: &mut [u8], each: &mut dyn FnMut(&[u8])) -> Result<usize, Broken> {
        Transport::recv(self, budget, into, each)
    }

    fn unanswered_max(&self) -> usize {
        Transport::unanswered_max(self)
    }

    fn finish(&mut self, deadline_ns: u64) -> Result<(), Broken> {
        Transport::finish(self, deadline_ns)
    }

    fn relax(&self) {
        Transport::relax(self);
    }
}

impl Transport for Erased<'_> {
    fn is_blocking(&self) -> bool {
        self.0.is_blocking()
    }

    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<bool, Broken> {
        self.0.send(message)
    }

    fn flush(&mut self) -> Result<(), Broken> {
        self.0.flush()
    }

    #[inline]
    fn recv(&mut self, budget: usize, into: &mut [u8], mut each: impl FnMut(&[u8])) -> Result<usize, Broken> {
        self.0.recv(budget, into, &mut each)
    }

    fn unanswered_max(&self) -> usize {
        self.0.unanswered_max()
    }

    fn finish(&mut self, deadline_ns: u64) -> Result<(), Broken> {
        self.0.finish(deadline_ns)
    }

    fn relax(&self) {
        self.0.relax();
    }
}
