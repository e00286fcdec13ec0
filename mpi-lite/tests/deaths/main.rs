//! Members of a job die, and nobody tells the others: whoever waits for them is told in bounded time.
//!
//! | file | what it shows |
//! | --- | --- |
//! | `killed` | real processes on one host, killed by SIGKILL, under a launcher that keeps it to itself |
//! | `launcher` | that launcher |

mod killed;
mod launcher;
