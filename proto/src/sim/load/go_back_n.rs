//! The simplest reliable sender there is, to compare with: a fixed window, one fixed time-out, and everything again from
//! the first loss on. Its figures are eRPC's defaults (Kalia et al., NSDI 2019): 32 credits, 5 ms. Without congestion control.

use std::collections::HashMap;

use sidelane_nic::mem::MemNic;
use sidelane_nic::time::{Duration, Instant};
use sidelane_nic::{Link, LinkAddr, Nic, TxSlot};

use super::host::Host;

const WINDOW: u32 = 32;
const TIME_OUT: Duration = Duration::from_millis(5);
const DATA: u8 = 1;
const ACK: u8 = 2;
/// Kind, three bytes of nothing, number.
const HEADER: usize = 8;
/// Frames received in one turn.
const BURST: usize = 64;

pub(super) struct GoBackN {
    nic: MemNic,
    outlets: Vec<Outlet>,
    /// By sender: the number that is due, and where acks go.
    due: HashMap<u32, (u32, Link)>,
}

struct Outlet {
    to: u32,
    link: Link,
    len: usize,
    /// Everything before it is acknowledged.
    first: u32,
    next: u32,
    /// When `first` was last sent or moved.
    since: Instant,
}

impl GoBackN {
    pub fn new(nic: MemNic) -> Self {
        Self { nic, outlets: Vec::new(), due: HashMap::new() }
    }
}

impl Host for GoBackN {
    fn dial(&mut self, _from: u32, to: u32, len: usize) {
        let link = self.nic.link(LinkAddr::Mem { node: to }).expect("a node of this fabric");
        self.outlets.push(Outlet { to, link, len, first: 0, next: 0, since: self.nic.now() });
    }

    fn turn(&mut self, _looks: bool, mut taken: impl FnMut(u32, usize)) {
        let now = self.nic.now();
        let mut answers = Vec::new();
        let outlets = &mut self.outlets;
        let due = &mut self.due;
        self.nic.rx_burst(BURST, |frame, from| {
            let LinkAddr::Mem { node } = from else { return };
            let number = u32::from_le_bytes(frame[4..HEADER].try_into().expect("four bytes"));
            if frame[0] == DATA {
                let (due, _) = due.entry(node).or_insert((0, Link(u32::MAX)));
                if number == *due {
                    *due += 1;
                    taken(node, frame.len() - HEADER);
                }
                answers.push((node, *due));
            } else if let Some(outlet) = outlets.iter_mut().find(|outlet| outlet.to == node)
                && number > outlet.first
                && number <= outlet.next
            {
                outlet.first = number;
                outlet.since = now;
            }
        });
        for (node, number) in answers {
            let link = &mut self.due.get_mut(&node).expect("it just sent").1;
            if *link == Link(u32::MAX) {
                *link = self.nic.link(LinkAddr::Mem { node }).expect("a node of this fabric");
            }
            send(&mut self.nic, *link, ACK, number, HEADER);
        }
        for outlet in &mut self.outlets {
            if outlet.first < outlet.next && outlet.since + TIME_OUT <= now {
                outlet.next = outlet.first;
                outlet.since = now;
            }
            while outlet.next - outlet.first < WINDOW
                && send(&mut self.nic, outlet.link, DATA, outlet.next, HEADER + outlet.len)
            {
                if outlet.next == outlet.first {
                    outlet.since = now;
                }
                outlet.next += 1;
            }
        }
        self.nic.flush();
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.outlets.iter().map(|outlet| outlet.since + TIME_OUT).min()
    }
}

/// False when the NIC has no room.
fn send(nic: &mut MemNic, link: Link, kind: u8, number: u32, len: usize) -> bool {
    if nic.tx_slot(link, len).is_none() {
        nic.flush();
    }
    let Some(mut slot) = nic.tx_slot(link, len) else { return false };
    slot[0] = kind;
    slot[4..HEADER].copy_from_slice(&number.to_le_bytes());
    slot.commit();
    true
}
