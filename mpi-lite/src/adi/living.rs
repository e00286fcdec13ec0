//! Which processes of this host still run, by what the kernel says of their numbers.
//!
//! Whoever is connected to a process is told of its end by the connection. This is for those that wait without one, such as in memory
//! that a host's ranks share. It is looked at by who has waited for long, now and then.
#![allow(unsafe_code)] // kill(2) that sends nothing.

use std::fs;
use std::os::unix::fs::MetadataExt;

use sidelane_nic::process::Stat;
use sidelane_nic::time::{Duration, Instant};

use super::process::Process;

/// When a process was born, which tells it from all others that its number has been of. Only who sees the same numbers and the same clock
/// can compare it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Birth {
    /// Clock ticks after the machine's (proc(5), `starttime`).
    pub(super) ticks: u64,
    /// Its namespaces of process numbers and of clocks, by their inodes.
    pub(super) numbers: u64,
    pub(super) clock: u64,
}

impl Birth {
    /// This process's. `None` where `/proc` is not there, or shows another namespace's processes.
    pub fn of_this_process() -> Option<Self> {
        let own = std::process::id();
        let named = fs::read_link("/proc/self").ok()?;
        if named.to_str()?.parse() != Ok(own) {
            return None;
        }
        let namespace = |kind: &str| fs::metadata(format!("/proc/self/ns/{kind}")).map(|namespace| namespace.ino());
        // Clocks have namespaces since Linux 5.6.
        let (numbers, clock) = (namespace("pid").ok()?, namespace("time").unwrap_or(0));
        Some(Self { ticks: Stat::of(own)?.started, numbers, clock })
    }

    /// Whether two processes can look after each other.
    pub fn is_comparable(&self, other: &Self) -> bool {
        (self.numbers, self.clock) == (other.numbers, other.clock)
    }
}

impl Process {
    /// Whether this process and `other` can tell if the other one has ended.
    pub(super) fn sees(&self, other: &Self) -> bool {
        let comparable = |(own, other): (Birth, Birth)| own.is_comparable(&other);
        self.host == other.host && self.born.zip(other.born).is_some_and(comparable)
    }

    /// Whether a process has ended that this one sees. Also true of one that nobody has waited for yet (a zombie).
    fn has_ended(&self) -> bool {
        match (Stat::of(self.pid), self.born) {
            (Some(stat), Some(born)) => stat.has_ended || stat.started != born.ticks,
            // Some mounts of /proc hide processes that run.
            _ => !is_in_use(self.pid),
        }
    }
}

/// Whether a process has this number.
fn is_in_use(pid: u32) -> bool {
    // SAFETY: takes numbers; signal 0 is sent to nobody.
    let there = unsafe { libc::kill(pid as libc::pid_t, 0) } == 0;
    // To send it to another user's is forbidden, but not in vain.
    there || std::io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

/// This host's processes that are looked after, each in its turn.
#[derive(Debug)]
pub(super) struct Living {
    watched: Vec<u32>,
    /// Where in `watched` the next look begins.
    next: usize,
    /// When that is.
    due: Instant,
    /// Those that the last looks have found ended, and when.
    ended: Vec<(u32, Instant)>,
}

impl Living {
    /// Those that `own` sees, of a device that is opened at `now`. Each process begins with those behind it, so that together they
    /// have soon looked at all.
    pub fn new(own: u32, processes: &[Process], now: Instant) -> Self {
        let (before, behind) = processes.split_at(own as usize);
        let here = &processes[own as usize];
        let numbered = |first: u32, part: &[Process]| {
            let seen = part.iter().zip(first..).filter(|(other, number)| *number != own && here.sees(other));
            seen.map(|(_, number)| number).collect::<Vec<_>>()
        };
        let watched = [numbered(own, behind), numbered(0, before)].concat();
        Self { watched, next: 0, due: now + PAUSE, ended: Vec::new() }
    }

    /// Looks at some, if it is time to; then, who is gone. They were found ended by a look before: what they had sent, and whom
    /// they had connected to, has come since, as their devices' threads here need a moment for.
    pub fn look(&mut self, now: Instant, processes: &[Process]) -> Option<Vec<u32>> {
        if now < self.due {
            return None;
        }
        let looks = self.watched.len().div_ceil(AT_ONCE).max(1);
        self.due = now + Duration::from_nanos(PAUSE.as_nanos() / looks as u64).max(PAUSE_MIN);
        let (gone, ended) = self.ended.drain(..).partition(|(_, since)| now.since(*since) >= SETTLED);
        self.ended = ended;
        for _ in 0..self.watched.len().min(AT_ONCE) {
            self.next %= self.watched.len();
            let number = self.watched[self.next];
            if processes[number as usize].has_ended() {
                self.watched.swap_remove(self.next);
                self.ended.push((number, now));
                if self.watched.is_empty() {
                    break;
                }
            } else {
                self.next += 1;
            }
        }
        let gone: Vec<(u32, Instant)> = gone;
        Some(gone.into_iter().map(|(number, _)| number).collect())
    }

    /// A process has ended, as something else tells: it is gone for the first look when that has settled.
    pub fn note_ended(&mut self, process: u32, now: Instant) {
        if self.ended.iter().all(|(known, _)| *known != process) {
            self.ended.push((process, now));
        }
    }
}

/// Between two looks at the same process: a death is known after twice as long, half of the silence after which one on another
/// host counts as gone.
const PAUSE: Duration = Duration::from_millis(400);

/// How many are looked at at once, 6 us each, so that nobody else waits for that; of many, looks follow each other sooner.
const AT_ONCE: usize = 8;
const PAUSE_MIN: Duration = Duration::from_millis(50);

/// Between a process's end and the last that is taken in of it: many times what a thread waits for a core on a busy machine.
const SETTLED: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn at_ms(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    /// A process of this host that waits until its input ends.
    fn waiter() -> std::process::Child {
        Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
    }

    fn process(child: &std::process::Child) -> Process {
        let here = Process::here("here", &[]);
        let ticks = Stat::of(child.id()).unwrap().started;
        Process { pid: child.id(), born: here.born.map(|born| Birth { ticks, ..born }), ..here }
    }

    #[test]
    fn a_process_that_runs_has_not_ended_and_one_that_nobody_has_waited_for_has() {
        let mut child = waiter();
        let there = process(&child);
        assert!(Process::here("here", &[]).sees(&there) && !there.has_ended());
        child.kill().unwrap();
        // A zombie once it has closed its input, or soon after.
        crate::patience::until("it has ended", || there.has_ended());
        assert!(is_in_use(child.id()), "it is a zombie");
        child.wait().unwrap();
        assert!(there.has_ended());
    }

    #[test]
    fn another_process_of_the_same_number_is_not_taken_for_it() {
        let mut child = waiter();
        let there = process(&child);
        let before = Process { born: there.born.map(|born| Birth { ticks: born.ticks - 1, ..born }), ..there };
        assert!(before.has_ended());
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn nobody_is_taken_for_dead_whose_number_means_another_process_here() {
        let here = Process::here("here", &[]);
        let born = here.born.unwrap();
        let elsewhere = [
            Some(Birth { numbers: born.numbers + 1, ..born }),
            Some(Birth { clock: born.clock + 1, ..born }),
            // Its own /proc shows others.
            None,
        ];
        let elsewhere = elsewhere.map(|born| Process { pid: u32::MAX / 4, born, ..here.clone() });
        assert!(elsewhere.iter().all(|process| !here.sees(process) && !process.sees(&here)));
        let on_another_host = Process { host: "there".to_owned(), ..here.clone() };
        let processes = [&[here][..], &elsewhere, &[on_another_host]].concat();
        let mut living = Living::new(0, &processes, at_ms(0));
        for ms in (400..4_000).step_by(100) {
            assert!(living.look(at_ms(ms), &processes).unwrap_or_default().is_empty());
        }
    }

    #[test]
    fn the_ended_are_told_of_once_and_a_while_after_they_were_seen() {
        let here = Process::here("here", &[]);
        let dead = Process { born: here.born.map(|born| Birth { ticks: born.ticks + 1, ..born }), ..here.clone() };
        for size in [2, 3, 9, 40] {
            let mut processes = vec![here.clone(); size];
            processes[size - 1] = dead.clone();
            let mut living = Living::new(0, &processes, at_ms(0));
            let told: Vec<_> =
                (0..2_000).filter(|ms| living.look(at_ms(*ms), &processes) == Some(vec![size as u32 - 1])).collect();
            assert!(told.len() == 1 && (650..=1_200).contains(&told[0]), "{size}: {told:?}");
        }
    }

    #[test]
    fn looks_at_many_processes_are_spread() {
        let here = Process::here("here", &[]);
        let processes = vec![here; 65];
        let mut living = Living::new(3, &processes, at_ms(0));
        assert_eq!((living.watched.len(), living.watched[0], living.watched[63]), (64, 4, 2));
        let looks: Vec<_> = (0..=800).filter(|ms| living.look(at_ms(*ms), &processes).is_some()).collect();
        assert_eq!(looks[..3], [400, 450, 500]);
        assert_eq!(living.look(at_ms(800), &processes), None, "not due");
    }
}
