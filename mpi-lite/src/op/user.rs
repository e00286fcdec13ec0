//! Operators of the program's own (`MPI_Op_create`).

use std::fmt;
use std::sync::Arc;

use crate::datatype::Datatype;

/// A function that combines, and whether the operands' order is free. Clones are the same operator.
#[derive(Clone)]
pub struct UserOp {
    function: Arc<Function>,
    commutative: bool,
}

/// Combines all elements: `into[i] = from[i] OP into[i]`.
type Function = dyn Fn(&Datatype, usize, &mut [u8], &[u8]) + Send + Sync;

impl UserOp {
    /// An operator that `function` computes: given a type and a number of elements, it sets `into[i] = from[i] OP into[i]`
    /// for each element of two arrays, `into` and `from`. They are as in memory, each element at its [`Datatype::extent`] from the
    /// one before, and begin where the first element's data does, at [`Datatype::true_lower_bound`].
    ///
    /// It has to be associative, and calls nothing of MPI (MPI-4.1 6.9.5): other threads' calls wait while it runs, and a call of its
    /// own panics. The order of operands is kept unless it is `commutative`.
    ///
    /// If it panics, its rank's call does, too. Where the call goes by memory that all ranks share, it and later ones of its form (that wait,
    /// begun, persistent) fail with `ProcFailed` for the others; messages go on. Else the communicator is revoked for them.
    pub fn new(
        commutative: bool,
        function: impl Fn(&Datatype, usize, &mut [u8], &[u8]) + Send + Sync + 'static,
    ) -> Self {
        Self { function: Arc::new(function), commutative }
    }

    /// As promised to [`Self::new`].
    pub fn is_commutative(&self) -> bool {
        self.commutative
    }

    pub(super) fn call(&self, datatype: &Datatype, count: usize, into: &mut [u8], from: &[u8]) {
        (self.function)(datatype, count, into, from);
    }
}

/// Operators are the same when they are clones of one.
impl PartialEq for UserOp {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.function, &other.function)
    }
}

impl fmt::Debug for UserOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UserOp").field("commutative", &self.commutative).finish_non_exhaustive()
    }
}
