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
    for output in &outputs {
        let line = output.line()?.ok_or_else(|| io::Error::other("a rank could not begin"))?;
        all.extend([&line, "\n"]);
    }
    for rank in &mut ranks.0 {
        // It stays open: its end is the end of a rank.
        rank.stdin.as_mut().expect("piped above").write_all(all.as_bytes())?;
    }
    while let Some(line) = outputs[0].line()? {
        let taken = line.parse().map_err(|_| io::Error::other("a rank has said what cannot be understood"))?;
        if !each(taken) {
            return Ok(());
        }
    }
    match ranks.end_of_first()? {
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(io::Error::other(format!("rank 0 ended with {status}"))),
        None => Err(io::Error::other("rank 0 has said all and does not end")),
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

    /// The next one; `None` at the end.
    fn line(&self) -> io::Result<Option<String>> {
        match self.0.recv_timeout(SILENCE_MAX) {
            Ok(line) => line.map(Some),
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => {
                Err(io::Error::new(io::ErrorKind::TimedOut, format!("a rank was silent for {SILENCE_MAX:?}")))
            }
        }
    }
}

/// Processes that end with this.
struct Started(Vec<Child>);

impl Started {
    /// How the first one ends; `None`: not soon.
    fn end_of_first(&mut self) -> io::Result<Option<ExitStatus>> {
        let until = Instant::now() + ENDS_WITHIN;
        loop {
            match self.0[0].try_wait()? {
                None if Instant::now() < until => std::thread::sleep(LOOK_EVERY),
                ended => return Ok(ended),
            }
        }
    }
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
/// Nothing is measured any more.
const LOOK_EVERY: Duration = Duration::from_millis(5);
