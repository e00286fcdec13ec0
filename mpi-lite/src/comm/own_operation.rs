//! Operations of the program's own among those that are waited for (generalized requests, MPI-4.1 13.2).

use std::sync::{Arc, Mutex};

use crate::adi::{self, Device};

use super::context::ContextIds;
use super::local::Local;
use super::pending::Pending;
use super::running::Run;
use super::{Communicator, Status};

/// Says when such an operation is over, from any thread that may call. Dropped, it says that it was cancelled.
#[derive(Debug)]
pub struct Completion {
    local: Arc<Local>,
    status: Arc<Mutex<Option<Status>>>,
}

/// As turns see it.
struct Own(Arc<Mutex<Option<Status>>>);

impl Communicator {
    /// Begins an operation that the program does, and what says that it is over (`MPI_Grequest_start`). Its status is what that says.
    pub fn begin_own(&self) -> (Pending, Completion) {
        let status = Arc::default();
        let own = Own(Arc::clone(&status));
        let pending = Pending::Running(self.local().lock().begin_run(Box::new(own)));
        (pending, Completion { local: Arc::clone(self.local()), status })
    }
}

impl Completion {
    /// It is over (`MPI_Grequest_complete`).
    pub fn complete(self, status: Status) {
        self.tell(status);
    }

    fn tell(&self, status: Status) {
        adi::lock(&self.status).get_or_insert(status);
        // Another thread may sleep that waits for it.
        drop(self.local.lock());
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        self.tell(Status { cancelled: true, ..Status::EMPTY });
    }
}

impl Run for Own {
    fn turn(&mut self, _: &mut Device, _: &mut ContextIds) -> Option<Status> {
        *adi::lock(&self.0)
    }

    fn context(&self) -> Option<u32> {
        None
    }
}
