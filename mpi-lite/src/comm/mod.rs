//! Who takes part in a communication, and point-to-point in all its modes.
//!
//! | file | what it knows |
//! | --- | --- |
//! | `communicator` | a group, a context, and what a program hangs on them |
//! | `group`, `cartesian`, `graph` | who is in, and who is whose neighbour |
//! | `typed`, `scope`, `equivalence` | messages of slices: blocking, non-blocking, of which types |
//! | `point` | messages of raw memory: what the typed ones and the C interface stand on |
//! | `exchange` | messages that are sent and received at the same time |
//! | `collectives`, `prepare`, `calls` | collective calls of slices, what is checked of them, and of raw memory |
//! | `in_place` | the same of those whose result takes the place of what is given |
//! | `operand`, `elements`, `side` | with what operators they are called, on what elements, and on what bytes |
//! | `reduce_local` | operators without a call |
//! | `neighborhood`, `counts`, `pieces` | the same of neighbours, of blocks of a length each, and of pieces of a type each |
//! | `collective` | how they are done: by messages or by shared memory |
//! | `create`, `split`, `duplicate`, `agreeing` | new communicators, and how all agree on an id for them |
//! | `compound` | that what fails in parts of a call is told once |
//! | `pending`, `persistent`, `repeated`, `repeated_call`, `running` | what was begun and is not over, or is begun again and again |
//! | `own_operation` | what the program does itself, waited for with others |
//! | `operator` | that operators of the program's own call nothing here |
//! | `partitioned` | messages that are sent by parts, from several threads |
//! | `failure` | going on without processes that are gone |
//! | `lending` | the device, for windows and for simulations |
//! | `local`, `waiting`, `awaited` | this process: its device, and what is under way; waiting for that, of whatever kind it is |
//! | `held`, `sleeper` | its state in a call of one of its threads; which of them sleeps |
//! | `ending` | aborting a job, and what is done first at its end |
//! | `pulse` | telling other hosts that this process lives while it computes |
//! | `context` | what tells communicators' messages apart |
//! | `buffered`, `info`, `status`, `error_handler` | as named |

mod agreeing;
mod awaited;
mod buffered;
mod calls;
pub mod cartesian;
pub mod collective;
mod collectives;
mod communicator;
mod compound;
mod context;
mod counts;
mod create;
mod duplicate;
mod elements;
mod ending;
mod equivalence;
mod error_handler;
mod exchange;
mod failure;
pub mod graph;
mod group;
mod held;
mod in_place;
pub mod info;
mod lending;
mod local;
mod movable;
mod neighborhood;
mod operand;
pub(crate) mod operator;
mod own_operation;
mod partitioned;
mod pending;
mod persistent;
mod pieces;
mod point;
mod prepare;
mod pulse;
mod reduce_local;
mod repeated;
mod repeated_call;
mod running;
mod scope;
mod side;
mod sleeper;
mod split;
mod status;
#[cfg(test)]
mod tests;
mod threads;
mod typed;
mod waiting;

pub use crate::error::{ErrorClass, ErrorCode};
pub use awaited::{Await, Awaited};
pub(crate) use buffered::Room;
pub use buffered::{AUTOMATIC as BUFFER_AUTOMATIC, OVERHEAD as BUFFERED_OVERHEAD};
pub use communicator::{Communicator, Topology};
pub use counts::{Counts, Placed};
pub use duplicate::Duplicate;
pub use elements::Elements;
pub use equivalence::{Equivalence, Locatable, Located};
#[doc(hidden)]
pub use equivalence::{datatype_of_field, datatype_of_fields};
pub use error_handler::{ErrorHandler, HandlerFn};
pub use failure::Agreed;
pub use group::{Comparison, Group, GroupError, Range};
pub use held::Held;
pub use local::Local;
pub use neighborhood::Around;
pub use operand::{Operand, Operator};
pub use own_operation::Completion;
pub use partitioned::{Arrivals, Partitions};
pub use pending::{Pending, Transfer};
pub use persistent::{Persistent, PersistentRef};
pub use pieces::Piece;
pub use point::{Found, Mode};
pub use prepare::Root;
pub use reduce_local::{reduce_local, reduce_local_raw};
pub use repeated::Repeated;
pub use running::Handle;
pub use scope::{Request, Scope};
pub use sidelane_nic::affinity::Part;
pub use status::{Destination, Source, Status};
pub use threads::in_threads;
