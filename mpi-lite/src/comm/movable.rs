#![allow(unsafe_code)]
//! A device that any thread may use, one at a time. Unsafe, since the type says less than is known of the value: one of the
//! drivers that a port may be is a thread's own.

use std::ops::{Deref, DerefMut};

use sidelane_nic::dpdk::{Dpdk, Pair};
use sidelane_nic::shm::ShmNic;
use sidelane_nic::udp::Udp;
use sidelane_nic::uring::Uring;
use sidelane_nic::xdp::Xdp;
use sidelane_proto::Endpoint;

use crate::adi::{Device, Port};

/// A device without a port on the simulated fabric, or one that stays on its thread.
pub(super) struct Movable(Device);

// SAFETY: of all that a device holds only a simulated port stays with its thread, and `new` refuses that, as does who calls
// `on_its_thread`; the others are asserted below.
unsafe impl Send for Movable {}

const fn is_send<T: Send>() {}
const _: () = {
    is_send::<Endpoint<ShmNic>>();
    is_send::<Endpoint<Uring>>();
    is_send::<Endpoint<Xdp>>();
    is_send::<Endpoint<Udp>>();
    is_send::<Endpoint<Dpdk>>();
    is_send::<Endpoint<Pair>>();
};

impl Movable {
    /// # Panics
    ///
    /// For a simulated port.
    pub fn new(device: Device) -> Self {
        let simulated = device.ports().iter().any(|port| matches!(port, Port::Mem(_)));
        assert!(!simulated, "communicators may be used by any thread, and the simulated fabric may not");
        Self(device)
    }

    /// Any device.
    ///
    /// # Safety
    ///
    /// It is used and dropped on this thread.
    pub unsafe fn on_its_thread(device: Device) -> Self {
        Self(device)
    }

    pub fn into_inner(self) -> Device {
        self.0
    }
}

impl Deref for Movable {
    type Target = Device;

    fn deref(&self) -> &Device {
        &self.0
    }
}

impl DerefMut for Movable {
    fn deref_mut(&mut self) -> &mut Device {
        &mut self.0
    }
}
