//! Starts the ranks of a measurement, and hears what they find.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::str::FromStr;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Starts a rank of a measurement for each command, which has to come to [`super::rank`], and hands `each` what they find.
/// `each` may call it off by returning false.
pub fn measure<T: FromStr>(commands: Vec<Command>, mut each: impl FnMut(T) -> bool) -> io::Result<()> {
    let mut ranks = Started(Vec::new());
    for mut command in commands {
        ranks.0.push(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?);
    }
    let outputs: Vec<_> = ranks.0.iter_mut().filter_map(|rank| rank.stdout.take()).map(Said::of).collect();
    let mut all = String::new();
    for (rank, output) in outputs.iter().enumerate() {
        let Some(line) = ranks.line(output)? else { return Err(ranks.ended(rank)?) };
        all.extend([&line, "\n"]);
    }
    for rank in &mut ranks.0 {
        // It stays open: its end is the end of a rank.
        rank.stdin.as_mut().expect("piped above").write_all(all.as_bytes())?;
    }
    while let Some(line) = ranks.line(&outputs[0])? {
        let taken = line.parse().map_err(|_| io::Error::other("a rank has said what cannot be understood"))?;
        if !each(taken) {
            return Ok(());
        }
    }
    match ranks.end_of(0)? {
        Some(status) if status.success() => Ok(()),
        _ => Err(ranks.ended(0)?),
    }
}

/// The lines that a process says.
struct Said(Receiver<io::Result<String>>);

impl Said {
    fn of(output: ChildStdout) -> Self {
        let (said, lines) = mpsc::channel();
        // Ends with the process's output.
        std::thread::spawn(move || BufReader::new(output).lines().try_for_each(|line| said.send(line)));
        Self(lines)
    }
}

/// Processes that end with this.
struct Started(Vec<Child>);

impl Started {
    /// The next line of one of them; `None` at its end. Who is silent may wait for one that has died.
    fn line(&mut self, output: &Said) -> io::Result<Option<String>> {
        let until = Instant::now() + SILENCE_MAX;
        loop {
            match output.0.recv_timeout(LOOK_FOR_DEAD_EVERY) {
                Ok(line) => return line.map(Some),
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) => {
                    if let Some((rank, status)) = self.failed()? {
                        return Err(ended_with(rank, status));
                    }
                    if Instant::now() >= until {
                        let text = format!("a rank was silent for {SILENCE_MAX:?}");
                        return Err(io::Error::new(io::ErrorKind::TimedOut, text));
                    }
                }
            }
        }
    }

    /// Who has failed: who was killed, where others have ended because of it.
    fn failed(&mut self) -> io::Result<Option<(usize, ExitStatus)>> {
        let mut failed = None;
        for (rank, process) in self.0.iter_mut().enumerate() {
            match process.try_wait()? {
                Some(status) if status.code().is_none() => return Ok(Some((rank, status))),
                Some(status) if !status.success() => failed = failed.or(Some((rank, status))),
                _ => {}
            }
        }
        Ok(failed)
    }

    /// What is said of a rank that has said less than it should.
    fn ended(&mut self, rank: usize) -> io::Result<io::Error> {
        Ok(match (self.end_of(rank)?, self.failed()?) {
            (_, Some((failed, status))) => ended_with(failed, status),
            (Some(status), None) => ended_with(rank, status),
            (None, None) => io::Error::other(format!("rank {rank} says nothing more and does not end")),
        })
    }

    /// How one ends; `None`: not soon.
    fn end_of(&mut self, rank: usize) -> io::Result<Option<ExitStatus>> {
        let until = Instant::now() + ENDS_WITHIN;
        loop {
            match self.0[rank].try_wait()? {
                None if Instant::now() < until => std::thread::sleep(LOOK_EVERY),
                ended => return Ok(ended),
            }
        }
    }
}

fn ended_with(rank: usize, status: ExitStatus) -> io::Error {
    io::Error::other(format!("rank {rank} ended with {status}"))
}

impl Drop for Started {
    fn drop(&mut self) {
        for rank in &mut self.0 {
            // Already dead is as good.
            let _ = rank.kill();
            let _ = rank.wait();
        }
    }
}

/// Above what a case takes: mostly a tenth of a second, and half a minute with calls of just below 100 ms.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// A rank that has said all closes its device within a second.
const ENDS_WITHIN: Duration = Duration::from_secs(10);
/// Seldom beside what is measured: a case says a line within less, mostly.
const LOOK_FOR_DEAD_EVERY: Duration = Duration::from_millis(500);
/// Nothing is measured any more.
const LOOK_EVERY: Duration = Duration::from_millis(5);
