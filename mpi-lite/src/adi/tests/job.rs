//! The processes of a job in one thread, on a simulated fabric.
#![allow(unsafe_code)] // Tests lend memory that they own for as long as the job lasts.

use sidelane_nic::mem::{Config as NodeConfig, Fabric, LinkModel};
use sidelane_nic::time::Duration;

use crate::adi::{
    Config, Device, Envelope, Incoming, Limits, Mode, Outgoing, Pattern, Port, Process, Request, Source, Status,
};
use crate::patience::{SUITE_PATIENCE, watch};

pub const CONTEXT: u32 = 5;

pub struct Job {
    pub fabric: Fabric,
    pub devices: Vec<Device>,
    /// What was lent: lives until the job is over.
    outgoing: Vec<Box<[u8]>>,
    incoming: Vec<Box<[u8]>>,
}

/// A receive under way, and which of the job's rooms it fills.
#[derive(Clone, Copy, Debug)]
pub struct Receive {
    pub request: Request,
    pub room: usize,
}

/// Limits that short messages reach.
pub fn small_limits() -> Config {
    let limits = Limits { eager_max: 300, prefix: 100, put_min: 1_000, pull_min: 600 };
    Config { on_host: limits, off_host: limits, credit: 4 << 10, ..Config::default() }
}

impl Job {
    pub fn new(size: usize, config: &Config, seed: u64, link: LinkModel) -> Self {
        Self::on(NodeConfig::default(), size, config, seed, link)
    }

    /// On nodes that are as `node` says.
    pub fn on(node: NodeConfig, size: usize, config: &Config, seed: u64, link: LinkModel) -> Self {
        // What turns without end stands still in virtual time.
        watch(&format!("a simulated job of {size}"), SUITE_PATIENCE);
        let fabric = Fabric::new(seed);
        fabric.set_default_link(link);
        let config = Config {
            endpoint: sidelane_proto::Config { send_fifo: 4 << 10, recv_fifo: 8 << 10, ..config.endpoint },
            ..*config
        };
        let ports: Vec<_> = (0..size)
            .map(|number| {
                let seed = Some((seed ^ 0x5eed) + number as u64);
                let config = Config { endpoint: sidelane_proto::Config { seed, ..config.endpoint }, ..config };
                Port::new(fabric.nic(node), &config).expect("a driver that devices know")
            })
            .collect();
        // Hosts of their own: nobody reads another's memory.
        let hosts = 0..size;
        let processes = hosts
            .zip(&ports)
            .map(|(host, port)| Process::here(&format!("host{host}"), std::slice::from_ref(port)))
            .collect();
        Self::of(fabric, ports, processes, &config)
    }

    /// Of these processes, which have these ports.
    pub fn of(fabric: Fabric, ports: Vec<Port>, processes: Vec<Process>, config: &Config) -> Self {
        let devices = ports.into_iter().zip(0u32..);
        let devices =
            devices.map(|(port, own)| Device::open(own, processes.clone(), vec![port], config).unwrap()).collect();
        Self { fabric, devices, outgoing: Vec::new(), incoming: Vec::new() }
    }

    pub fn pair(config: &Config) -> Self {
        Self::new(2, config, 1, LinkModel::default())
    }

    /// One turn of each, and a microsecond.
    pub fn step(&mut self) {
        for device in &mut self.devices {
            device.progress();
        }
        self.fabric.advance_to(self.fabric.now() + Duration::from_micros(1));
    }

    pub fn steps(&mut self, steps: usize) {
        for _ in 0..steps {
            self.step();
        }
    }

    pub fn send_as(&mut self, from: u32, to: u32, tag: i32, bytes: &[u8], mode: Mode) -> Request {
        let lent = self.lend(bytes);
        self.devices[from as usize].send(to, Envelope::new(CONTEXT, from, tag), lent, mode)
    }

    /// `bytes`, for one send.
    pub fn lend(&mut self, bytes: &[u8]) -> Outgoing {
        self.outgoing.push(bytes.into());
        // SAFETY: the box lives until the job is over, and nobody writes it.
        unsafe { Outgoing::lend(&raw const **self.outgoing.last().unwrap()) }
    }

    pub fn send(&mut self, from: u32, to: u32, tag: i32, bytes: &[u8]) -> Request {
        self.send_as(from, to, tag, bytes, Mode::Standard)
    }

    pub fn room(&mut self, len: usize) -> (usize, Incoming) {
        self.incoming.push(vec![0xee; len].into());
        let lent: *mut [u8] = &raw mut **self.incoming.last_mut().unwrap();
        // SAFETY: the box lives until the job is over, and is read only when the receive is.
        (self.incoming.len() - 1, unsafe { Incoming::lend(lent) })
    }

    pub fn recv(&mut self, at: u32, from: Option<u32>, tag: Option<i32>, len: usize) -> Receive {
        let (room, lent) = self.room(len);
        Receive { request: self.devices[at as usize].recv(pattern(from, tag), lent), room }
    }

    /// Ends a request of process `at`, however long that takes.
    pub fn finish(&mut self, at: u32, request: Request) -> Status {
        for _ in 0..PATIENCE {
            if let Some(status) = self.devices[at as usize].poll(request) {
                return status;
            }
            self.step();
        }
        panic!("{request:?} of process {at} has no end");
    }

    /// Ends a receive: how, and what it received.
    pub fn finish_recv(&mut self, at: u32, receive: Receive) -> (Status, &[u8]) {
        let status = self.finish(at, receive.request);
        (status, &self.incoming[receive.room][..status.bytes])
    }

    pub fn received(&self, receive: Receive) -> &[u8] {
        self.at(receive.room)
    }

    /// What is in a room.
    pub fn at(&self, room: usize) -> &[u8] {
        &self.incoming[room]
    }
}

pub fn pattern(from: Option<u32>, tag: Option<i32>) -> Pattern {
    Pattern { context: CONTEXT, source: from.map(|rank| Source { rank, process: rank }), tag }
}

/// Bytes that tell where they are from.
pub fn bytes(stamp: u32, len: usize) -> Vec<u8> {
    (0..len as u32).map(|at| (at.wrapping_mul(31) ^ stamp.wrapping_mul(7919) ^ at >> 8) as u8).collect()
}

/// Turns until a wait counts as one without end: ten seconds of virtual time, which time-outs of lost frames fit into.
const PATIENCE: usize = 10_000_000;
