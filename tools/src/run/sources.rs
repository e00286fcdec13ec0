//! What wakes a job's loop: threads that hear what ranks say and write, and signals for this command.

use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::thread;

use sidelane_mpi::launch::LINE_MAX;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

use super::output::{Sink, Stream};
use crate::interrupt::{is_ignored, unblock};

/// What wakes the loop.
pub enum Event {
    /// A rank said something to its launcher.
    Line { rank: usize, line: Vec<u8> },
    /// A rank closed its connection.
    Closed { rank: usize },
    /// Our output cannot be written.
    Unwritten(io::Error),
    /// A stream of a rank's, or a line of our own, has come to its end, and what could be written of it was.
    Drained,
    /// A signal for this command.
    Signal(i32),
}

/// Reads a rank's lines in a thread.
pub fn listen(sender: SyncSender<Event>, rank: usize, pmi: UnixStream) -> io::Result<()> {
    spawn(format!("pmi-{rank}"), move || {
        let mut pmi = BufReader::new(pmi);
        loop {
            let mut line = Vec::new();
            // One byte more than a line may have, so that the server sees that it is too long.
            let read = pmi.by_ref().take(LINE_MAX as u64 + 1).read_until(b'\n', &mut line);
            // What lacks its end is the rest of a rank that has died: it could say another thing than was meant.
            let is_cut = !line.ends_with(b"\n") && line.len() <= LINE_MAX;
            if read.is_err() || is_cut || sender.send(Event::Line { rank, line }).is_err() {
                break;
            }
        }
        let _ = sender.send(Event::Closed { rank });
    })
}

/// Copies a rank's stream in a thread.
pub fn route(
    sender: SyncSender<Event>,
    mut from: impl Read + Send + 'static,
    stream: Stream,
    sink: Arc<Sink>,
) -> io::Result<()> {
    spawn(format!("out-{}", stream.number), move || {
        if let Err(error) = stream.route(&mut from, &sink) {
            let _ = sender.send(Event::Unwritten(error));
            // The rank must not wait for somebody to read it, until it is ended.
            let _ = io::copy(&mut from, &mut io::sink());
        }
        let _ = sender.send(Event::Drained);
    })
}

/// Writes a line of our own in a thread.
pub fn say(sender: SyncSender<Event>, line: String, sink: Arc<Sink>) -> io::Result<()> {
    spawn("own-words".to_owned(), move || {
        // Nobody misses it who does not read it.
        let _ = sink.write(&Stream { number: OWN, label: String::new(), eager: false }, line.as_bytes());
        let _ = sender.send(Event::Drained);
    })
}

/// Hands on the signals that a job cares for. SIGCONT is none (`stop` looks at it): the ranks, in groups of their own, were stopped only if we have
/// done so, and then whoever has lets them go on; who handled it, too, would tell them twice.
pub fn watch_signals(sender: SyncSender<Event>) -> io::Result<()> {
    // By nohup(1), and by shells that know no jobs. The ranks inherit that.
    let not_ignored = [SIGHUP, SIGTSTP].into_iter().filter(|signal| !is_ignored(*signal));
    let ours: Vec<i32> = [SIGCHLD, SIGINT, SIGTERM, SIGUSR1, SIGUSR2].into_iter().chain(not_ignored).collect();
    let mut signals = Signals::new(&ours)?;
    unblock(&ours);
    spawn("signals".to_owned(), move || {
        for signal in signals.forever() {
            if sender.send(Event::Signal(signal)).is_err() {
                return;
            }
        }
    })
}

fn spawn(name: String, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name).stack_size(STACK).spawn(work).map(drop)
}

/// The number of no rank's stream.
const OWN: usize = usize::MAX;

/// A thread that copies lines needs little.
const STACK: usize = 128 << 10;
