//! Counters where other processes can read them: one page of shared memory an endpoint, without a name in any file system.
//!
//! The page is a memfd that its process keeps open. Whoever may look into the process (the same user, or root) finds it
//! among the descriptors in `/proc`, across network namespaces, and maps it for reading: [`running`]. With the process it
//! is gone, however that ended.
//!
//! Words of 64 bits, in the machine's byte order:
//!
//! | word | content |
//! | --- | --- |
//! | 0 | the bytes `SIDELANE` |
//! | 1 | version of this layout; more counters are no new version |
//! | 2 | process id, as the process itself sees it |
//! | 3 | number of values |
//! | 4 | bytes of text |
//! | 5 | odd while values are written; another number after each time |
//! | 8.. | values |
//! | behind them | the text |
//!
//! Text is lines of words. `counter NAME` and `gauge NAME` each have a value, in order; a gauge may fall. `fact NAME TEXT` has
//! none. So a reader knows the names of a writer that is newer than itself; lines that it does not know have a value.

#[cfg(not(loom))]
mod find;
#[cfg(not(loom))]
mod memory;
#[cfg(all(loom, test))]
mod models;
mod seqlock;
#[cfg(all(not(loom), test))]
mod tests;
#[cfg(not(loom))]
mod view;

#[cfg(not(loom))]
pub use find::{Running, running};
#[cfg(not(loom))]
pub use view::{Kind, Reading, Value, View, ViewError};
#[cfg(not(loom))]
pub use writer::{Field, Page};

#[cfg(not(loom))]
mod writer;
