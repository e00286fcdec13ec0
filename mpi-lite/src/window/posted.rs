//! When others may access this process's part, after post and until they complete (MPI-4.1 12.5.2).

use crate::comm::{Equivalence, ErrorClass};

use super::Window;

/// This process's part is others' to access, until they are done. It may start accesses of its own meanwhile.
///
/// Dropped before that, it stays so: the part cannot be posted again.
#[must_use = "it is to be waited for"]
#[derive(Debug)]
pub struct Posted<'w, T: Equivalence> {
    window: &'w Window<T>,
}

impl<T: Equivalence> Window<T> {
    /// Lets ranks access this process's part, who [start](Self::start) an epoch for it (`MPI_Win_post`). Does not wait.
    pub fn post(&self, to: &[u32]) -> Result<Posted<'_, T>, ErrorClass> {
        let ranks: Vec<usize> = to.iter().map(|rank| *rank as usize).collect();
        self.call(|raw, turns| raw.post(turns, &ranks))?;
        Ok(Posted { window: self })
    }
}

impl<T: Equivalence> Posted<'_, T> {
    /// Waits until all of them have completed their epochs (`MPI_Win_wait`): what they have put is there. Once one of them is gone, the others
    /// are not waited for either.
    pub fn wait(self) -> Result<(), ErrorClass> {
        self.window.call(|raw, turns| raw.wait_exposed(turns))
    }

    /// As [`Self::wait`] if they have; `Some` of itself if they have not (`MPI_Win_test`).
    pub fn test(self) -> Result<Option<Self>, ErrorClass> {
        let over = self.window.call(|raw, turns| raw.test_exposed(turns))?;
        Ok((!over).then_some(self))
    }
}
