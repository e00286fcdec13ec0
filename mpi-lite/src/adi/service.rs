//! What is done for other processes within a device's turns.

use super::device::Device;

/// What this process does for others whenever its device is used: answers to messages of a context that is for that.
pub trait Service: Send {
    /// Part of a turn of the device. True if there was something to do.
    fn turn(&mut self, device: &mut Device) -> bool;
}

impl Device {
    /// From now on a service has its part in every turn, under the number of its context.
    pub fn begin_service(&mut self, context: u32, service: Box<dyn Service>) {
        self.services.push((context, service));
    }

    /// Ends the service of a context. Not to be called by a service.
    pub fn end_service(&mut self, context: u32) -> Option<Box<dyn Service>> {
        let at = self.services.iter().position(|(other, _)| *other == context)?;
        Some(self.services.swap_remove(at).1)
    }

    /// A service that has its part only in a turn in which a message of its context came that no receive waits for, or a process
    /// was lost, or [`Self::call_watch`] was called before. There is one, from the beginning to the end.
    pub fn watch(&mut self, context: u32, watch: Box<dyn Service>) {
        self.engine.watched = context;
        self.watch = Some(watch);
    }

    /// The watch has its part in the next turn.
    pub fn call_watch(&mut self) {
        self.engine.called = true;
    }

    #[cold]
    pub(super) fn serve(&mut self) -> bool {
        let mut moved = false;
        let mut services = std::mem::take(&mut self.services);
        for (_, service) in &mut services {
            moved |= service.turn(self);
        }
        self.services = services;
        self.flush();
        moved
    }

    #[cold]
    pub(super) fn turn_watch(&mut self) -> bool {
        self.engine.called = false;
        let Some(mut watch) = self.watch.take() else { return false };
        let moved = watch.turn(self);
        self.watch = Some(watch);
        self.flush();
        moved
    }
}
