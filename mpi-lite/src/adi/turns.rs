//! A process that waits in a call, and what else goes on in it meanwhile.

use super::device::Device;
use super::idle::Idle;
use super::request::{Request, Status};

/// Who waits with a device, in a loop of turns.
pub trait Turns {
    /// The way to the others.
    fn device(&mut self) -> &mut Device;

    /// One turn of everything that is under way here. True if anything moved.
    fn turn(&mut self) -> bool;

    /// What is done after a turn that did not bring what is waited for; `moved` is what it has said.
    #[inline]
    fn pass(&mut self, moved: bool, idle: &mut Idle) {
        let device = self.device();
        if moved {
            device.go_on(idle);
        } else {
            device.idle(idle);
        }
    }

    /// Takes turns until `found` finds something.
    #[inline]
    fn wait_until<T>(&mut self, mut found: impl FnMut(&mut Self) -> Option<T>) -> T {
        self.device().flush();
        let mut idle = Idle::new();
        loop {
            if let Some(it) = found(self) {
                return it;
            }
            let moved = self.turn();
            self.pass(moved, &mut idle);
        }
    }

    /// Waits until a request is over, and frees it.
    #[inline]
    fn wait_for(&mut self, request: Request) -> Status {
        self.wait_until(|turns| turns.device().poll(request))
    }
}

/// Nothing else is under way.
impl Turns for Device {
    #[inline]
    fn device(&mut self) -> &mut Device {
        self
    }

    #[inline]
    fn turn(&mut self) -> bool {
        self.progress()
    }
}
