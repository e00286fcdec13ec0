//! One-sided operations: a thin layer on the protocol's, which make them requests.

use std::collections::HashMap;

use sidelane_proto::{Op, OpError, Region, RemoteKey, RmaError};

use super::device::Device;
use super::engine::Engine;
use super::lists::Key;
use super::memory::{Incoming, Outgoing};
use super::peer::Way;
use super::port::Port;
use super::request::{Error, Request, State};

/// Memory that other processes may reach, by a key of each port.
#[derive(Debug)]
pub struct Window {
    ports: Vec<(Region, RemoteKey)>,
}

/// Operations under way.
#[derive(Debug, Default)]
pub(super) struct OneSided {
    /// Puts by port, which are asked whether they are done.
    puts: Vec<(usize, Op, u32)>,
    /// Gets and atomics by port, which are told.
    answers: HashMap<(usize, Op), u32>,
}

/// What a word is changed by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Change {
    Add(u64),
    Swap { expected: u64, new: u64 },
}

impl Window {
    /// Lets whoever has a key reach `memory`.
    pub(super) fn open(ports: &mut [Port], memory: Incoming) -> Self {
        Self { ports: ports.iter_mut().map(|port| port.share(memory)).collect() }
    }

    /// By which port's key `process` reaches it.
    pub(super) fn key(&self, way: Way) -> Option<RemoteKey> {
        let Way::Port { port, .. } = way else { return None };
        self.ports.get(port).map(|(_, key)| *key)
    }

    pub(super) fn close(self, ports: &mut [Port]) {
        for (port, (region, _)) in ports.iter_mut().zip(self.ports) {
            port.unregister(region);
        }
    }
}

impl Device {
    /// Lets other processes reach `memory` by keys, until [`Self::unregister`]. It stays lent so long; its owner may read and
    /// write it between two calls.
    pub fn register(&mut self, memory: Incoming) -> Window {
        Window::open(&mut self.ports, memory)
    }

    /// The key by which `process` reaches a window of ours, for a message. `None` for this process itself, which needs none.
    pub fn key(&self, window: &Window, process: u32) -> Option<RemoteKey> {
        window.key(self.engine.peers[process as usize].way)
    }

    /// Ends a window.
    pub fn unregister(&mut self, window: Window) {
        window.close(&mut self.ports);
    }

    /// Writes `bytes` at `offset` of a window of process `to`. Over when they are there. Operations and messages to one process:
    /// see [`sidelane_proto::Endpoint`]; a message comes after the puts before it.
    pub fn put(&mut self, to: u32, key: &RemoteKey, offset: u64, bytes: Outgoing) -> Result<Request, RmaError> {
        self.engine.put_window(&mut self.ports, to, key, offset, bytes)
    }

    /// Reads as many bytes as `room` has from `offset` of a window of process `from`.
    pub fn get(&mut self, from: u32, key: &RemoteKey, offset: u64, room: Incoming) -> Result<Request, RmaError> {
        self.engine.get_window(&mut self.ports, from, key, offset, room)
    }

    /// Adds to the 64-bit word at `offset`, which is a multiple of 8; what it was before goes to `room`, little-endian.
    pub fn fetch_add(
        &mut self,
        to: u32,
        key: &RemoteKey,
        offset: u64,
        value: u64,
        room: Incoming,
    ) -> Result<Request, RmaError> {
        self.engine.change_window(&mut self.ports, to, key, offset, Change::Add(value), room)
    }

    /// As [`Self::fetch_add`]: writes `new` if the word is `expected`.
    pub fn compare_swap(
        &mut self,
        to: u32,
        key: &RemoteKey,
        offset: u64,
        (expected, new): (u64, u64),
        room: Incoming,
    ) -> Result<Request, RmaError> {
        self.engine.change_window(&mut self.ports, to, key, offset, Change::Swap { expected, new }, room)
    }
}

impl Engine {
    /// Puts `bytes` at `offset` of what `key` opens at process `to`.
    pub fn put_window(
        &mut self,
        ports: &mut [Port],
        to: u32,
        key: &RemoteKey,
        offset: u64,
        bytes: Outgoing,
    ) -> Result<Request, RmaError> {
        let (port, id) = self.reach(ports, to)?;
        let (op, region) = if bytes.len() <= COPIED_MAX {
            (ports[port].put_copied(id, key, offset, bytes)?, None)
        } else {
            let (op, region) = ports[port].put_from(id, key, offset, bytes)?;
            (op, Some(region))
        };
        let request = self.begin_one_sided(to, bytes, Incoming::EMPTY, region);
        self.one_sided.puts.push((port, op, request.index));
        ports[port].flush();
        Ok(request)
    }

    /// Gets the bytes at `offset` of what `key` opens at process `from`.
    pub fn get_window(
        &mut self,
        ports: &mut [Port],
        from: u32,
        key: &RemoteKey,
        offset: u64,
        room: Incoming,
    ) -> Result<Request, RmaError> {
        let (port, id) = self.reach(ports, from)?;
        let (op, region) = ports[port].get(id, key, offset, room)?;
        let request = self.begin_one_sided(from, Outgoing::EMPTY, room, Some(region));
        self.requests.at(request.index).status.bytes = room.len();
        self.one_sided.answers.insert((port, op), request.index);
        ports[port].flush();
        Ok(request)
    }

    /// Changes the word at `offset`; what it was before goes to `room`, as far as it has room.
    pub fn change_window(
        &mut self,
        ports: &mut [Port],
        to: u32,
        key: &RemoteKey,
        offset: u64,
        change: Change,
        room: Incoming,
    ) -> Result<Request, RmaError> {
        let (port, id) = self.reach(ports, to)?;
        let op = match change {
            Change::Add(value) => ports[port].fetch_add(id, key, offset, value)?,
            Change::Swap { expected, new } => ports[port].compare_swap(id, key, offset, expected, new)?,
        };
        let request = self.begin_one_sided(to, Outgoing::EMPTY, room, None);
        self.one_sided.answers.insert((port, op), request.index);
        ports[port].flush();
        Ok(request)
    }

    fn begin_one_sided(&mut self, to: u32, bytes: Outgoing, room: Incoming, region: Option<Region>) -> Request {
        let request = self.requests.begin(to, NO_KEY, bytes, room);
        self.requests.at(request.index).state = State::OneSided { region };
        request
    }

    /// Ends puts that are in place.
    #[cold]
    pub fn end_puts(&mut self, ports: &mut [Port]) {
        let mut puts = std::mem::take(&mut self.one_sided.puts);
        puts.retain(|(port, op, request)| {
            let done = ports[*port].is_done(*op);
            if done {
                self.end_one_sided(&mut ports[*port], *port, *request, None);
            }
            !done
        });
        self.one_sided.puts = puts;
    }

    pub fn has_puts(&self) -> bool {
        !self.one_sided.puts.is_empty()
    }

    /// A get is over.
    pub fn on_got(&mut self, port: &mut Port, at: usize, op: Op) {
        if let Some(request) = self.one_sided.answers.remove(&(at, op)) {
            self.end_one_sided(port, at, request, None);
        }
    }

    /// An atomic is over.
    pub fn on_fetched(&mut self, port: &mut Port, at: usize, op: Op, value: u64) {
        let Some(request) = self.one_sided.answers.remove(&(at, op)) else { return };
        let slot = self.requests.at(request);
        let room = slot.incoming.bytes_mut();
        let len = room.len().min(8);
        room[..len].copy_from_slice(&value.to_le_bytes()[..len]);
        slot.status.bytes = len;
        self.end_one_sided(port, at, request, None);
    }

    /// An operation has failed.
    pub fn on_op_failed(&mut self, port: &mut Port, at: usize, op: Op, why: OpError) {
        let error = if why == OpError::PeerGone { Error::ProcFailed } else { Error::NoAccess };
        let put = self.one_sided.puts.iter().position(|put| (put.0, put.1) == (at, op));
        let request = match put {
            Some(put) => Some(self.one_sided.puts.swap_remove(put).2),
            None => self.one_sided.answers.remove(&(at, op)),
        };
        if let Some(request) = request {
            self.end_one_sided(port, at, request, Some(error));
        }
    }

    /// Ends an operation as soon as its memory is free.
    fn end_one_sided(&mut self, port: &mut Port, at: usize, request: u32, error: Option<Error>) {
        let slot = self.requests.at(request);
        let State::OneSided { region } = slot.state else { return };
        slot.status.error = error;
        let status = slot.status;
        match region {
            Some(region) => {
                slot.state = State::Putting { region };
                self.putting.insert((at, region), request);
                port.unregister(region);
            }
            None => self.requests.complete(request, status),
        }
    }

    /// The port and peer by which a process is reached.
    fn reach(&mut self, ports: &mut [Port], process: u32) -> Result<(usize, sidelane_proto::PeerId), RmaError> {
        let Way::Port { port, .. } = self.peers[process as usize].way else { return Err(RmaError::NoPeer) };
        if self.peers[process as usize].id.is_none() {
            self.connect(ports, process).map_err(|_| RmaError::NoPeer)?;
        }
        self.peers[process as usize].id.map(|id| (port, id)).ok_or(RmaError::NoPeer)
    }
}

/// Of what is not matched.
const NO_KEY: Key = Key { context: u32::MAX, source: 0, tag: 0 };
/// Shorter puts are copied: then their memory needs no region.
const COPIED_MAX: usize = 4 << 10;
