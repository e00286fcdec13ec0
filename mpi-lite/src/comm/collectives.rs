#![allow(unsafe_code)]
//! Collective calls on slices, each in three forms: one that waits, one that begins it in a scope, and one to be begun again and
//! again. Unsafe within, since the raw calls are.

use crate::op::Op;

use super::prepare::Root;
use super::repeated::Repeated;
use super::scope::{Request, Scope};
use super::{Communicator, Counts, Equivalence, ErrorClass, Piece};

/// For each call: its name and that of its persistent form, what prepares it, and its arguments: what a rank gives; what it gets; others.
macro_rules! collectives {
    ($(
        $(#[$doc:meta])*
        $name:ident, $init:ident, $prepare:ident ($($given:ident)?; $($room:ident)?; $($arg:ident: $kind:ty),*);
    )*) => {
        impl Communicator {
            $(
                $(#[$doc])*
                pub fn $name<T: Equivalence>(
                    &self, $($given: &[T],)? $($room: &mut [T],)? $($arg: $kind),*
                ) -> Result<(), ErrorClass> {
                    self.$prepare::<T, _>($($given,)? $($room,)? $($arg,)* |it| {
                        // SAFETY: what is lent is borrowed until this returns, and the call is over then.
                        unsafe { self.call(it) }
                    })
                }

                #[doc = concat!("[`Self::", stringify!($name), "`], to be begun again and again (MPI-4.1 6.13).")]
                pub fn $init<T: Equivalence>(
                    &self, $($given: Vec<T>,)? $(mut $room: Vec<T>,)? $($arg: $kind),*
                ) -> Result<Repeated<T>, ErrorClass> {
                    let call = self.$prepare::<T, _>($(&$given,)? $(&mut $room,)? $($arg,)* |it| {
                        // SAFETY: `Repeated` keeps what is lent, where it is, until no call is under way any more.
                        unsafe { self.call_init(it) }
                    })?;
                    let (given, room) = (Vec::<T>::new(), Vec::<T>::new());
                    $(let given = { drop(given); $given };)?
                    $(let room = { drop(room); $room };)?
                    Ok(Repeated::new(call, given, room))
                }
            )*
        }

        impl<'scope> Scope<'scope, '_> {
            $(
                #[doc = concat!("Begins [`Communicator::", stringify!($name), "`]. What it gets is seen after the scope.")]
                pub fn $name<T: Equivalence>(
                    &'scope self, $($given: &'scope [T],)? $($room: &'scope mut [T],)? $($arg: $kind),*
                ) -> Result<Request<'scope>, ErrorClass> {
                    let comm = self.communicator();
                    let begun = comm.$prepare::<T, _>($($given,)? $($room,)? $($arg,)* |it| {
                        // SAFETY: what is lent is borrowed for as long as the scope, at whose end the call is over.
                        unsafe { comm.start_call_of(it) }
                    });
                    Ok(self.add(begun?))
                }
            )*
        }
    };
}

collectives! {
    /// `data` of the root to all.
    broadcast, broadcast_init, prepare_broadcast (; data; root: impl Into<Root>);

    /// Everybody's `data` combined, element by element, into the root's `result`. Only the root's has to have room.
    reduce, reduce_init, prepare_reduce (data; result; op: &Op, root: impl Into<Root>);

    /// Everybody's `data` combined, element by element, into everybody's `result`. Between two groups each gets that of the
    /// other one.
    allreduce, allreduce_init, prepare_allreduce (data; result; op: &Op);

    /// As `reduce`, with the result in the place of the root's data. That of the others stays.
    reduce_in_place, reduce_in_place_init, prepare_reduce_in_place (; data; op: &Op, root: impl Into<Root>);

    /// As `allreduce`, with the result in the place of the data.
    allreduce_in_place, allreduce_in_place_init, prepare_allreduce_in_place (; data; op: &Op);

    /// The `data` of all ranks up to this one combined.
    scan, scan_init, prepare_scan (data; result; op: &Op);

    /// The `data` of all ranks below this one combined. That of rank 0 stays as it is.
    exscan, exscan_init, prepare_exscan (data; result; op: &Op);

    /// As `scan`, with the result in the place of the data.
    scan_in_place, scan_in_place_init, prepare_scan_in_place (; data; op: &Op);

    /// As `exscan`, with the result in the place of the data.
    exscan_in_place, exscan_in_place_init, prepare_exscan_in_place (; data; op: &Op);

    /// Everybody's `data` combined, of which each rank gets its block: as many elements as its `result` has, which is the
    /// same everywhere.
    reduce_scatter_block, reduce_scatter_block_init, prepare_reduce_scatter_block (data; result; op: &Op);

    /// Everybody's `data` combined, of which rank `r` gets `counts[r]` elements. Between two groups each gets what the other one
    /// gives, cut into its own ranks' blocks.
    reduce_scatter, reduce_scatter_init, prepare_reduce_scatter (data; result; counts: &[usize], op: &Op);

    /// As `reduce_scatter_block`, of a block for each rank, with the result at the front of the data. What is behind it has no value then.
    reduce_scatter_block_in_place, reduce_scatter_block_in_place_init,
        prepare_reduce_scatter_block_in_place (; data; op: &Op);

    /// As `reduce_scatter`, with the result at the front of the data. What is behind it has no value then.
    reduce_scatter_in_place, reduce_scatter_in_place_init,
        prepare_reduce_scatter_in_place (; data; counts: &[usize], op: &Op);

    /// Everybody's `data`, by rank, to the root's `all`, which has room for as much of each.
    gather, gather_init, prepare_gather (data; all; root: impl Into<Root>);

    /// As `gather`, `counts[r]` elements of rank `r`, one block after the other, or where [`Placed`](super::Placed) has them; so in all calls
    /// that take [`Counts`]. Only the root's `counts` and `all` count.
    gather_varying, gather_varying_init,
        prepare_gather_varying (data; all; counts: &(impl Counts + ?Sized), root: impl Into<Root>);

    /// As `gather`, of which the root's `data` is all, with its own block in its place. That of the others stays.
    gather_in_place, gather_in_place_init, prepare_gather_in_place (; data; root: impl Into<Root>);

    /// As `gather_varying`, of which the root's `data` is all, with its own block in its place. That of the others stays.
    gather_varying_in_place, gather_varying_in_place_init,
        prepare_gather_varying_in_place (; data; counts: &(impl Counts + ?Sized), root: impl Into<Root>);

    /// A block of the root's `all` to each rank's `data`, which is as long everywhere.
    scatter, scatter_init, prepare_scatter (all; data; root: impl Into<Root>);

    /// As `scatter`, `counts[r]` elements to rank `r`. Only the root's `counts` and `all` count.
    scatter_varying, scatter_varying_init,
        prepare_scatter_varying (all; data; counts: &(impl Counts + ?Sized), root: impl Into<Root>);

    /// As `scatter`, of which the root's `data` is all, and stays, with its own block.
    scatter_in_place, scatter_in_place_init, prepare_scatter_in_place (; data; root: impl Into<Root>);

    /// As `scatter_varying`, of which the root's `data` is all, and stays, with its own block.
    scatter_varying_in_place, scatter_varying_in_place_init,
        prepare_scatter_varying_in_place (; data; counts: &(impl Counts + ?Sized), root: impl Into<Root>);

    /// Everybody's `data`, by rank, to everybody's `all`.
    allgather, allgather_init, prepare_allgather (data; all;);

    /// As `allgather`, `counts[r]` elements of rank `r`.
    allgather_varying, allgather_varying_init, prepare_allgather_varying (data; all; counts: &(impl Counts + ?Sized));

    /// As `allgather`, of this rank's block of `all`.
    allgather_in_place, allgather_in_place_init, prepare_allgather_in_place (; all;);

    /// As `allgather_varying`, of this rank's block of `all`.
    allgather_varying_in_place, allgather_varying_in_place_init,
        prepare_allgather_varying_in_place (; all; counts: &(impl Counts + ?Sized));

    /// Block `r` of `data` to rank `r`, and what rank `r` has for us to block `r` of `all`.
    alltoall, alltoall_init, prepare_alltoall (data; all;);

    /// As `alltoall`, `to[r]` elements to rank `r` and `from[r]` of it, one block after the other.
    alltoall_varying, alltoall_varying_init,
        prepare_alltoall_varying (data; all; to: &(impl Counts + ?Sized), from: &(impl Counts + ?Sized));

    /// As `alltoall`, with what comes in the place of what goes.
    alltoall_in_place, alltoall_in_place_init, prepare_alltoall_in_place (; data;);

    /// As `alltoall_varying`, with what comes in the place of what goes: as much from each rank as to it.
    alltoall_varying_in_place, alltoall_varying_in_place_init,
        prepare_alltoall_varying_in_place (; data; counts: &(impl Counts + ?Sized));

    /// As `alltoall`, a piece of `data` to each rank and a piece of `all` for what it has for us, each of a datatype of its own
    /// (`MPI_Alltoallw`). What goes from one rank to another has as many bytes on both sides, and of the same kinds; of `all`
    /// only the pieces' data is written.
    ///
    /// Any bytes of the slices may be of a piece: `Type` for elements with bytes that are no data, `Buffer` for pieces that are
    /// not within their slice.
    alltoall_pieces, alltoall_pieces_init, prepare_alltoall_pieces (data; all; to: &[Piece], from: &[Piece]);

    /// As `alltoall_pieces`, with what comes in the place of what goes.
    alltoall_pieces_in_place, alltoall_pieces_in_place_init, prepare_alltoall_pieces_in_place (; data; pieces: &[Piece]);

    /// `data` to each neighbour, and of each as much into `all`. The blocks of neighbours beyond a grid's border stay as they
    /// are.
    neighbor_allgather, neighbor_allgather_init, prepare_neighbor_allgather (data; all;);

    /// A block of `data` to each neighbour, and as much of each into `all`. The blocks of neighbours beyond a grid's border
    /// stay as they are.
    neighbor_alltoall, neighbor_alltoall_init, prepare_neighbor_alltoall (data; all;);

    /// As `neighbor_allgather`, `from[i]` elements of the i-th of those we receive from, one block after the other.
    neighbor_allgather_varying, neighbor_allgather_varying_init,
        prepare_neighbor_allgather_varying (data; all; from: &(impl Counts + ?Sized));

    /// As `neighbor_alltoall`, `to[i]` elements to the i-th of those we send to, and `from[i]` of the i-th of those we receive
    /// from, one block after the other.
    neighbor_alltoall_varying, neighbor_alltoall_varying_init,
        prepare_neighbor_alltoall_varying (data; all; to: &(impl Counts + ?Sized), from: &(impl Counts + ?Sized));

    /// As `neighbor_alltoall`, of pieces as `alltoall_pieces` has them (`MPI_Neighbor_alltoallw`).
    neighbor_alltoall_pieces, neighbor_alltoall_pieces_init,
        prepare_neighbor_alltoall_pieces (data; all; to: &[Piece], from: &[Piece]);
}

impl Communicator {
    /// Returns when all ranks have called it; between two groups, when all of the other one have.
    pub fn barrier(&self) -> Result<(), ErrorClass> {
        // SAFETY: there is no memory.
        self.prepare_barrier(|it| unsafe { self.call(it) })
    }

    /// A barrier to be begun again and again.
    pub fn barrier_init(&self) -> Result<Repeated<u8>, ErrorClass> {
        // SAFETY: there is no memory.
        let call = self.prepare_barrier(|it| unsafe { self.call_init(it) })?;
        Ok(Repeated::new(call, Vec::new(), Vec::new()))
    }
}

impl<'scope> Scope<'scope, '_> {
    /// Begins a barrier.
    pub fn barrier(&'scope self) -> Result<Request<'scope>, ErrorClass> {
        let comm = self.communicator();
        // SAFETY: there is no memory.
        Ok(self.add(comm.prepare_barrier(|it| unsafe { comm.start_call_of(it) })?))
    }
}
