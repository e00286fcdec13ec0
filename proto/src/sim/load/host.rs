//! A node under load: it always has something to send, and checks what it gets.

use std::collections::HashMap;

use sidelane_nic::LinkAddr;
use sidelane_nic::mem::MemNic;
use sidelane_nic::time::Instant;

use super::clocked::Clocked;
use crate::{Config, Counters, Endpoint, Event, PeerId};

/// What sends and receives in a load.
pub(super) trait Host {
    /// Sends messages of `len` bytes to `to` from now on.
    fn dial(&mut self, from: u32, to: u32, len: usize);
    /// One turn of its loop. `looks`: its user takes messages, and `taken` is told from whom and how long each is.
    fn turn(&mut self, looks: bool, taken: impl FnMut(u32, usize));
    fn next_timeout(&self) -> Option<Instant>;
}

/// A node with an [`Endpoint`].
pub(super) struct Ours {
    endpoint: Endpoint<Clocked>,
    outlets: Vec<Outlet>,
    /// By connection: the message that is due.
    due: HashMap<PeerId, u64>,
    /// By sender: its newest connection.
    newest: HashMap<u32, PeerId>,
    /// It sends no more.
    stopped: bool,
    /// Connections that ended.
    pub gone: u64,
}

struct Outlet {
    peer: PeerId,
    next: u64,
    message: Vec<u8>,
    to: u32,
}

impl Ours {
    pub fn new(nic: MemNic, seed: u64, congestion_control: bool) -> Self {
        Self::on(Clocked::new(nic), seed, congestion_control)
    }

    pub fn on(nic: Clocked, seed: u64, congestion_control: bool) -> Self {
        let config = Config {
            send_fifo: 400 << 10,
            recv_fifo: 400 << 10,
            congestion_control,
            seed: Some(seed),
            ..Config::default()
        };
        Self {
            endpoint: Endpoint::new(nic, config),
            outlets: Vec::new(),
            due: HashMap::new(),
            newest: HashMap::new(),
            stopped: false,
            gone: 0,
        }
    }

    pub fn leap(&mut self, nanos: i64) {
        self.endpoint.nic_mut().leap(nanos);
    }

    pub fn stop(&mut self) {
        self.stopped = true;
    }

    pub fn counters(&self) -> &Counters {
        self.endpoint.counters()
    }

    /// Everything that was sent is acknowledged.
    pub fn is_settled(&mut self) -> bool {
        self.outlets.iter().all(|outlet| self.endpoint.is_settled(outlet.peer))
    }

    /// Messages sent on the present connection.
    pub fn sent_to(&self, to: u32) -> u64 {
        self.outlets.iter().find(|outlet| outlet.to == to).map_or(0, |outlet| outlet.next)
    }

    /// Messages that came on the newest connection.
    pub fn got_from(&self, from: u32) -> u64 {
        self.newest.get(&from).map_or(0, |peer| self.due[peer])
    }
}

impl Host for Ours {
    fn dial(&mut self, from: u32, to: u32, len: usize) {
        let peer = self.endpoint.connect(LinkAddr::Mem { node: to }).expect("the table has room");
        let mut message = vec![0; len.max(HEAD)];
        message[..4].copy_from_slice(&from.to_le_bytes());
        self.outlets.push(Outlet { peer, next: 0, message, to });
    }

    fn turn(&mut self, looks: bool, mut taken: impl FnMut(u32, usize)) {
        let Self { endpoint, outlets, due, newest, stopped, gone } = self;
        for Outlet { peer, next, message, .. } in outlets.iter_mut().filter(|_| !*stopped) {
            message[8..16].copy_from_slice(&next.to_le_bytes());
            while endpoint.send(*peer, message).is_ok() {
                *next += 1;
                message[8..16].copy_from_slice(&next.to_le_bytes());
            }
        }
        endpoint.poll();
        while looks
            && let Some((peer, from, number, len)) = endpoint.recv(|peer, message| {
                let number = u64::from_le_bytes(message[8..16].try_into().expect("eight bytes"));
                (peer, u32::from_le_bytes(message[..4].try_into().expect("four bytes")), number, message.len())
            })
        {
            let due = due.entry(peer).or_default();
            assert_eq!(number, *due, "from {from}");
            if number == 0 {
                newest.insert(from, peer);
            }
            *due += 1;
            taken(from, len);
        }
        while let Some(event) = endpoint.poll_event() {
            let Event::Gone { peer, .. } = event else { continue };
            *gone += 1;
            for outlet in outlets.iter_mut().filter(|outlet| outlet.peer == peer) {
                outlet.peer = endpoint.connect(LinkAddr::Mem { node: outlet.to }).expect("the table has room");
                outlet.next = 0;
            }
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        let nic = self.endpoint.nic();
        let timeout = self.endpoint.poll_timeout().map(|timeout| nic.fabric_time(timeout));
        timeout.into_iter().chain(nic.next_frame()).min()
    }
}

const HEAD: usize = 16;
