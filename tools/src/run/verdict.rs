//! How a job ended, what to say of it, and with which exit code.

use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use sidelane_mpi::launch::Shown;
use signal_hook::low_level::signal_name;

use crate::interrupt::code_of;

/// What ended a job before all of its ranks had ended well.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// A rank ended as it should not, and at about the same time these others: one of them may be the reason.
    RankFailed { rank: usize, host: String, how: End, others: Vec<usize> },
    /// A rank asked for the end of all.
    Aborted { rank: usize, host: String, code: i32, why: String },
    /// A rank broke the launcher's protocol.
    Violated { rank: usize, host: String, what: String },
    /// It took longer than it may.
    TimedOut { seconds: f64 },
    /// The user wanted it.
    Interrupted { signal: i32 },
    /// Nobody reads our output any more, as with `| head`.
    Unread,
    /// Our output cannot be written.
    Unwritten(String),
}

/// How a rank ended that should not have ended so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// By a signal, of this number.
    Killed(i32),
    /// With an exit code that is not 0.
    Exited(i32),
    /// With 0, though the others counted on it.
    Early,
    /// With 0 and after `finalize`, though the others wait in a barrier for it.
    Absent,
}

impl End {
    /// `None` when the rank ended well. `counted_on`: it was between `init` and `finalize`.
    pub fn of(status: ExitStatus, counted_on: bool) -> Option<Self> {
        match (status.signal(), status.code()) {
            (Some(signal), _) => Some(Self::Killed(signal)),
            (None, Some(0)) => counted_on.then_some(Self::Early),
            (None, code) => Some(Self::Exited(code.unwrap_or(1))),
        }
    }

    /// Least for who is most to blame: what ended at the same time by itself has mostly ended because of another.
    pub const fn order(self) -> u8 {
        match self {
            Self::Killed(_) => 0,
            Self::Exited(_) => 1,
            Self::Early | Self::Absent => 2,
        }
    }

    /// How long to look for another one to blame, which ended before and is not known yet: a process's connections end sooner
    /// than itself, so others may fail for its death, and be gone, before the news of it comes. A signal is not others' doing.
    pub const fn patience(self) -> Duration {
        match self {
            Self::Killed(_) => Duration::ZERO,
            Self::Exited(_) | Self::Early | Self::Absent => Duration::from_millis(100),
        }
    }
}

impl Verdict {
    /// Of the whole command, as [`code_of`] has it.
    pub fn exit_code(&self) -> i32 {
        match self {
            // Of any signal: what has killed a rank is not Ctrl-C to us.
            Self::RankFailed { how: End::Killed(signal), .. } => 128 + signal,
            Self::RankFailed { how: End::Exited(code), .. } => *code,
            // The kernel keeps 8 bits of a code, and an abort is no success.
            Self::Aborted { code, .. } => Some(code & 0xff).filter(|code| *code != 0).unwrap_or(1),
            Self::RankFailed { how: End::Early | End::Absent, .. } | Self::Violated { .. } | Self::Unwritten(_) => 1,
            // As timeout(1).
            Self::TimedOut { .. } => 124,
            Self::Interrupted { signal } => code_of(*signal),
            Self::Unread => code_of(libc::SIGPIPE),
        }
    }

    /// One line for people; `None` when they know.
    pub fn message(&self) -> Option<String> {
        self.words().map(|what| format!("sidelane run: {what}; the job is ended\n"))
    }

    /// What happened; `None` when people know.
    pub fn words(&self) -> Option<String> {
        Some(match self {
            Self::RankFailed { rank, host, how, others } if others.is_empty() => {
                format!("rank {rank} on host {host} {how}")
            }
            Self::RankFailed { rank, host, how, others } => format!(
                "rank {rank} on host {host} {how}, seen first; {} failed at about the same time, so that any of them may \
                 be the reason",
                ranks(others)
            ),
            Self::Aborted { rank, host, code, why } if why.is_empty() => {
                format!("rank {rank} on host {host} aborted the job with code {code}")
            }
            Self::Aborted { rank, host, code, why } => {
                format!("rank {rank} on host {host} aborted the job with code {code}: {}", Shown(why))
            }
            Self::Violated { rank, host, what } => {
                format!("rank {rank} on host {host} broke the launcher's protocol: {what}")
            }
            Self::TimedOut { seconds } => format!("the job took longer than {seconds} s"),
            Self::Unwritten(why) => format!("the output cannot be written: {why}"),
            Self::Interrupted { .. } | Self::Unread => return None,
        })
    }
}

/// Ranks by their numbers, as far as a line takes them.
fn ranks(numbers: &[usize]) -> String {
    let named: Vec<String> = numbers.iter().take(NAMED_MAX).map(usize::to_string).collect();
    let many = if numbers.len() == 1 { "rank" } else { "ranks" };
    match (named.split_last(), numbers.len().saturating_sub(NAMED_MAX)) {
        (Some((last, rest)), 0) if !rest.is_empty() => format!("{many} {} and {last}", rest.join(", ")),
        (_, 0) => format!("{many} {}", named.join(", ")),
        (_, more) => format!("{many} {} and {more} more", named.join(", ")),
    }
}

/// Who reads a line looks for the first panic then, not for all.
const NAMED_MAX: usize = 8;

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Killed(signal) => match signal_name(*signal) {
                Some(name) => write!(f, "was killed by {name} (signal {signal})"),
                None => write!(f, "was killed by signal {signal}"),
            },
            Self::Exited(code) => write!(f, "ended with exit code {code}"),
            Self::Early => f.write_str("ended without MPI_Finalize, while others count on it"),
            Self::Absent => {
                f.write_str("ended after MPI_Finalize, without the barrier of the launcher's that others wait in")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_that_failed_with_another_are_counted_up_in_one_line() {
        assert_eq!(ranks(&[3]), "rank 3");
        assert_eq!(ranks(&[0, 2]), "ranks 0 and 2");
        assert_eq!(ranks(&[0, 2, 5]), "ranks 0, 2 and 5");
        assert_eq!(ranks(&(1..100).collect::<Vec<_>>()), "ranks 1, 2, 3, 4, 5, 6, 7, 8 and 91 more");
    }
}
