//! Members of a job die, and nobody tells the others: whoever waits for them is told in bounded time.
//!
//! | file | what it shows |
//! | --- | --- |
//! | `killed` | real processes on one host, killed by SIGKILL, under a launcher that keeps it to itself |
//! | `windows` | the same of what needs them for a window |
//! | `under_way` | the same in every kind of operation |
//! | `operations` | those kinds, also for the tests of `sidelane run` |
//! | `launcher` | the launcher of all of these |
//! | `crashed` | simulated ones, at each moment of calls that two groups make together |

mod crashed;
#[path = "../programs/fibers.rs"]
mod fibers;
mod killed;
mod launcher;
mod operations;
#[path = "../../../nic/tests/patience/mod.rs"]
mod patience;
mod under_way;
mod windows;
