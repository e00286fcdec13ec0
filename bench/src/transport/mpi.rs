//! MPI's point-to-point over a driver, as a program uses it: non-blocking sends and receives of one tag, a window of each.
#![allow(unsafe_code)] // Sends and receives lend memory; all of it is the transport's own.

use std::collections::VecDeque;

use sidelane_mpi::adi::{
    Config, Device, Envelope, Incoming, Limits, Mode, Outgoing, Pattern, Port, Process, Request, Source, host_identity,
};
use sidelane_nic::Nic;
use sidelane_nic::time::Duration;

use super::proto::{LINGER_NS, config as endpoint_config};
use super::{Broken, Flow, Transport};
use crate::clock::now_ns;
use crate::pattern::Role;
use crate::side::Sealing;

/// One of two processes.
pub struct Mpi {
    device: Device,
    other: u32,
    /// What every send sends; written only while none is under way.
    outgoing: Box<[u8]>,
    sends: VecDeque<Request>,
    /// Where receives put messages: the front one belongs to the oldest receive.
    rooms: VecDeque<Box<[u8]>>,
    receives: VecDeque<Request>,
    size: usize,
    window: usize,
}

impl Mpi {
    /// A port for this end, and what the other end has to know of it.
    pub fn begin<N: Nic + 'static>(nic: N) -> Result<(Vec<Port>, String), Broken> {
        let port = Port::new(nic, &config(None))
            .ok_or_else(|| Broken::Driver("mpi does not run on this driver".to_owned()))?;
        let ports = vec![port];
        let process = Process::here(&host_identity(), &ports).to_string();
        Ok((ports, process))
    }

    /// The end of `role`, whose other end is `peer`, with other limits than those that are built in if they are given.
    pub fn new(
        ports: Vec<Port>,
        role: Role,
        peer: &str,
        limits: Option<Limits>,
        (size, flow): (usize, Flow),
    ) -> Result<Self, Broken> {
        let own = Process::here(&host_identity(), &ports);
        let peer = peer.parse().map_err(|error| Broken::Driver(format!("{error}")))?;
        let (number, processes) = match role {
            Role::Initiator => (0, vec![own, peer]),
            Role::Responder => (1, vec![peer, own]),
        };
        let device = Device::open(number, processes, ports, &config(limits))
            .map_err(|error| Broken::Driver(error.to_string()))?;
        let window = window(size, flow);
        let mut mpi = Self {
            device,
            other: 1 - number,
            outgoing: vec![0x5a; size].into(),
            sends: VecDeque::with_capacity(WINDOW),
            rooms: VecDeque::new(),
            receives: VecDeque::new(),
            size,
            window,
        };
        for _ in 0..window {
            mpi.post(vec![0; size].into());
        }
        Ok(mpi)
    }

    /// Both ends within one thread.
    pub fn pair<N: Nic + 'static>((a, b): (N, N), size: usize, flow: Flow) -> Result<(Self, Self), Broken> {
        let ((ports_a, a), (ports_b, b)) = (Self::begin(a)?, Self::begin(b)?);
        let a_is = Self::new(ports_a, Role::Initiator, &b, None, (size, flow))?;
        Ok((a_is, Self::new(ports_b, Role::Responder, &a, None, (size, flow))?))
    }

    #[inline]
    fn post(&mut self, mut room: Box<[u8]>) {
        // SAFETY: the box stays in `rooms` until its receive is over, and is not touched before.
        let lent = unsafe { Incoming::lend(&raw mut *room) };
        let source = Some(Source { rank: self.other, process: self.other });
        self.rooms.push_back(room);
        self.receives.push_back(self.device.recv(Pattern { context: CONTEXT, source, tag: Some(TAG) }, lent));
    }

    /// Ends sends that are over. Returns how many are not.
    #[inline]
    fn reap(&mut self) -> Result<usize, Broken> {
        while let Some(request) = self.sends.front() {
            let Some(status) = self.device.poll(*request) else { break };
            self.sends.pop_front();
            if let Some(error) = status.error {
                return Err(Broken::Driver(error.to_string()));
            }
        }
        Ok(self.sends.len())
    }

    #[inline]
    fn take(&mut self, budget: usize, each: &mut impl FnMut(&[u8])) -> Result<usize, Broken> {
        let mut messages = 0;
        while messages < budget
            && let Some(request) = self.receives.front()
            && let Some(status) = self.device.poll(*request)
        {
            self.receives.pop_front();
            let Some(room) = self.rooms.pop_front() else { break };
            if status.error.is_some() {
                return Err(Broken::PeerGone);
            }
            if status.bytes != self.size {
                return Err(Broken::Length { got: status.bytes, expected: self.size });
            }
            each(&room);
            self.post(room);
            messages += 1;
        }
        Ok(messages)
    }
}

impl Transport for Mpi {
    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<bool, Broken> {
        let changes = message[0] != self.outgoing[0];
        let window = self.window;
        if (changes || self.sends.len() == window) && self.reap()? > if changes { 0 } else { window - 1 } {
            return Ok(false);
        }
        if changes {
            self.outgoing[0] = message[0];
        }
        let envelope = Envelope { context: CONTEXT, source: self.device.own(), tag: TAG };
        // SAFETY: `outgoing` lives as long as the device, and is written only when no send is under way.
        let lent = unsafe { Outgoing::lend(&raw const *self.outgoing) };
        self.sends.push_back(self.device.send(self.other, envelope, lent, Mode::Standard));
        Ok(true)
    }

    #[inline]
    fn flush(&mut self) -> Result<(), Broken> {
        self.device.flush();
        self.reap()?;
        Ok(())
    }

    #[inline]
    fn recv(&mut self, budget: usize, _into: &mut [u8], mut each: impl FnMut(&[u8])) -> Result<usize, Broken> {
        let waiting = self.take(budget, &mut each)?;
        if waiting > 0 {
            return Ok(waiting);
        }
        self.device.progress();
        self.take(budget, &mut each)
    }

    fn finish(&mut self, deadline_ns: u64) -> Result<(), Broken> {
        let limit = deadline_ns.saturating_sub(now_ns()).min(LINGER_NS);
        let end = now_ns() + limit;
        while self.reap()? > 0 && now_ns() < end {
            self.device.progress();
        }
        self.device.close(Duration::from_nanos(limit));
        Ok(())
    }
}

fn config(limits: Option<Limits>) -> Config {
    let usual = Config::default();
    Config {
        on_host: limits.unwrap_or(usual.on_host),
        off_host: limits.unwrap_or(usual.off_host),
        endpoint: sidelane_proto::Config { keep_alive: endpoint_config(Sealing::None).keep_alive, ..usual.endpoint },
        ..usual
    }
}

/// Messages of `size` bytes that are under way at once, and rooms for them.
const fn window(size: usize, flow: Flow) -> usize {
    match flow {
        Flow::Alternating => 1,
        Flow::Outward | Flow::Inward if size > LONG => WINDOW_LONG,
        Flow::Outward | Flow::Inward => WINDOW,
    }
}

const CONTEXT: u32 = 1;
const TAG: i32 = 1;
/// osu_mbw_mr's window.
const WINDOW: usize = 64;
/// Of longer messages fewer are sent and received at once, so that their rooms stay in the cache, and soon end.
const LONG: usize = 64 << 10;
const WINDOW_LONG: usize = 4;
