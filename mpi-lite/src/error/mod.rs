//! What kind of error it was: the standard's classes, and classes and codes of the program's own (MPI-4.1 9.4 and 9.5).
//!
//! ```
//! use sidelane_mpi::error::{ErrorClass, ErrorCode};
//!
//! let solver = ErrorCode::new_class()?;
//! let diverged = solver.new_code()?;
//! diverged.set_text("the solver diverged")?;
//! assert_eq!((diverged.class(), diverged.to_string()), (solver, "the solver diverged".to_owned()));
//! # Ok::<(), ErrorClass>(())
//! ```

mod class;
mod code;

pub use class::ErrorClass;
pub use code::{ErrorCode, TEXT_MAX};
