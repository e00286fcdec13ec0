//! The fabric as its user holds it: make nodes, set links, move time.

use std::cell::RefCell;
use std::rc::Rc;

use super::state::{FabricCounters, State};
use super::{LineModel, MemNic};
use crate::fault::Faults;
use crate::time::{Duration, Instant};

/// A simulated network. A clone is another handle on the same one. Used by one thread. Node numbers from [`NODES_MAX`] on
/// panic.
#[derive(Clone)]
pub struct Fabric {
    pub(super) state: Rc<RefCell<State>>,
}

/// What a node's NIC can do.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Largest payload that it sends and receives, in bytes.
    pub mtu: usize,
    /// What it claims that every path carries ([`crate::Caps::mtu_safe`]).
    pub mtu_safe: usize,
    /// Frames that wait for being received; more are dropped and counted.
    pub rx_frames: usize,
    /// Frames that may be committed between two flushes.
    pub tx_frames: usize,
    /// What it claims as [`crate::Caps::rto_floor`].
    pub rto_floor: Duration,
}

/// What happens to frames from one node to another. The default carries everything at once and unharmed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinkModel {
    /// Rate of the link, and the queue before it; what does not fit is dropped.
    pub line: LineModel,
    /// Time that a frame takes from end to end, beside the lines it waits for.
    pub delay: Duration,
    /// Largest payload that passes; larger frames vanish. `None`: any.
    pub mtu: Option<usize>,
    /// What goes wrong.
    pub faults: Faults,
}

impl Fabric {
    /// An empty fabric at time zero, with fault-free links that take no time. All chance comes from `seed`.
    pub fn new(seed: u64) -> Self {
        Self { state: Rc::new(RefCell::new(State::new(seed))) }
    }

    /// A NIC at the next free node number.
    pub fn nic(&self, config: Config) -> MemNic {
        let node = self.state.borrow().next_node();
        self.nic_at(node, config)
    }

    /// A NIC at a given node number. Whoever was there before has crashed; frames on their way
    /// to or from it still arrive.
    pub fn nic_at(&self, node: u32, config: Config) -> MemNic {
        let life = self.state.borrow_mut().bring_up(node, config);
        MemNic::new(self.clone(), node, life, config)
    }

    /// The present time.
    pub fn now(&self) -> Instant {
        self.state.borrow().now()
    }

    /// When a frame that is on its way now comes to its receiver or into a switch: the next time at which anything
    /// can change by itself. `None` when nothing is on its way. Frames that wait to be received are not counted.
    pub fn next_arrival(&self) -> Option<Instant> {
        self.state.borrow().next_arrival()
    }

    /// Moves time on, and every frame that is due by then. An earlier time changes nothing.
    pub fn advance_to(&self, time: Instant) {
        self.state.borrow_mut().advance_to(time);
    }

    /// How long a frame that came to `node` now would wait for those before it on its downlink.
    pub fn downlink_wait(&self, node: u32) -> Duration {
        self.state.borrow().downlink_wait(node)
    }

    /// Sets how frames travel between all pairs that no [`Fabric::set_link`] speaks of.
    pub fn set_default_link(&self, model: LinkModel) {
        self.state.borrow_mut().set_default_link(model);
    }

    /// Sets how frames travel from one node to another (not back), beginning with the next one sent.
    pub fn set_link(&self, from: u32, to: u32, model: LinkModel) {
        self.state.borrow_mut().set_link(from, to, model);
    }

    /// Limits what a node sends, to whomever. A full queue lends no transmit buffers.
    pub fn set_uplink(&self, node: u32, model: LineModel) {
        self.state.borrow_mut().set_uplink(node, model);
    }

    /// Limits what comes to a node, from whomever. A full queue drops.
    pub fn set_downlink(&self, node: u32, model: LineModel) {
        self.state.borrow_mut().set_downlink(node, model);
    }

    /// Loses everything that is sent between two nodes, either way, until `until`.
    pub fn partition(&self, a: u32, b: u32, until: Instant) {
        self.state.borrow_mut().partition(a, b, until);
    }

    /// Ends the life of a node: what waits for it is lost, its NIC neither sends nor receives from now on. What it had
    /// sent is still on its way. [`Fabric::nic_at`] starts it anew.
    pub fn crash(&self, node: u32) {
        self.state.borrow_mut().crash(node);
    }

    /// From now on, who waits calls `others` with its node and its deadline, and time stays as it is: others get to run, and
    /// whoever runs them moves time. `wait` returns when `others` does.
    pub fn on_wait(&self, others: impl Fn(u32, Option<Instant>) + 'static) {
        self.state.borrow_mut().others = Some(Rc::new(others));
    }

    /// Whether frames wait for being received by a node.
    pub fn has_received(&self, node: u32) -> bool {
        self.state.borrow().has_received(node)
    }

    /// What has happened to all frames so far.
    pub fn counters(&self) -> FabricCounters {
        self.state.borrow().counters
    }
}

impl Default for Config {
    fn default() -> Self {
        Self { mtu: 1500, mtu_safe: 1500, rx_frames: 1024, tx_frames: 64, rto_floor: Duration::from_micros(100) }
    }
}

/// Nodes are an array, so that no frame needs a look-up; this bounds what a mistyped number can allocate.
pub const NODES_MAX: u32 = 1 << 16;
