//! Whole lines out: what ranks write arrives line by line, each with its rank if that is asked for. Or each rank has files of its own.
#![allow(unsafe_code)] // poll(2).

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use super::Failure;

/// Where lines of all ranks go: our standard output, or our standard error.
#[derive(Debug)]
pub struct Sink(Mutex<State>);

#[derive(Debug)]
struct State {
    file: File,
    /// The stream whose line has been begun and not ended, if any.
    open: Option<usize>,
}

impl Sink {
    pub fn new(file: File) -> Self {
        Self(Mutex::new(State { file, open: None }))
    }

    /// Those of our standard output and our standard error. Where both lead to one place, as at a terminal, they are one.
    pub fn pair(output: File, errors: File) -> io::Result<[Arc<Self>; 2]> {
        let place = |file: &File| file.metadata().map(|place| (place.dev(), place.ino()));
        let are_one = place(&output)? == place(&errors)?;
        let output = Arc::new(Self::new(output));
        let errors = if are_one { Arc::clone(&output) } else { Arc::new(Self::new(errors)) };
        Ok([output, errors])
    }

    /// Writes lines of `stream`. If the last one is not ended, the stream may go on with it, or others begin new lines.
    pub fn write(&self, stream: &Stream, text: &[u8]) -> io::Result<()> {
        let mut state = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let Some(last) = text.last() else { return Ok(()) };
        let within = state.open == Some(stream.number);
        if state.open.is_some() && !within {
            write_all(&state.file, b"\n")?;
        }
        state.open = (*last != b'\n').then_some(stream.number);
        write_all(&state.file, &stream.labelled(text, within))
    }
}

/// As [`Write::write_all`], but waits for readers also where somebody who shares the file with us has made it non-blocking.
fn write_all(mut file: &File, mut text: &[u8]) -> io::Result<()> {
    while !text.is_empty() {
        match file.write(text) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => text = &text[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => wait_for_room(file),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Also returns when nobody reads any more. Whatever it returns for, the next write tells.
fn wait_for_room(file: &File) {
    let mut polled = libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
    // SAFETY: One pollfd, alive during the call.
    unsafe { libc::poll(&raw mut polled, 1, -1) };
}

/// One rank's stream on its way to a sink.
#[derive(Debug)]
pub struct Stream {
    /// Its number among the sink's streams.
    pub number: usize,
    /// What each line begins with.
    pub label: String,
    /// A line that is not ended is shown at once: somebody at a terminal is being asked.
    pub eager: bool,
}

impl Stream {
    /// Copies `from` to its end, or until the sink refuses.
    pub fn route(&self, from: &mut impl Read, sink: &Sink) -> io::Result<()> {
        let mut buffer = vec![0; READ_LEN];
        let mut waiting = Vec::new();
        loop {
            let count = match from.read(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // A stream that cannot be read any more has ended.
                outcome => outcome.unwrap_or(0),
            };
            waiting.extend_from_slice(&buffer[..count]);
            let whole = waiting.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            let at_once = self.eager || count == 0 || waiting.len() - whole > LINE_MAX;
            let ready = if at_once { waiting.len() } else { whole };
            if ready > 0 {
                sink.write(self, &waiting[..ready])?;
                waiting.drain(..ready);
            }
            if count == 0 {
                return Ok(());
            }
        }
    }

    /// `within`: the line that `text` begins with has been begun already.
    fn labelled(&self, text: &[u8], mut within: bool) -> Vec<u8> {
        if self.label.is_empty() {
            return text.to_vec();
        }
        let mut out = Vec::with_capacity(text.len() + self.label.len() * 8);
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            if !within {
                out.extend_from_slice(self.label.as_bytes());
            }
            out.extend_from_slice(line);
            within = false;
        }
        out
    }
}

/// What a rank's output and its errors go to, in `folder`, without us. What was there before is gone.
pub fn own_files(folder: &Path, rank: usize) -> Result<[Stdio; 2], Failure> {
    let file = |ending: &str| {
        let path = folder.join(format!("{rank}.{ending}"));
        File::create(&path).map(Stdio::from).map_err(|error| Failure::File { path, error })
    };
    Ok([file("out")?, file("err")?])
}

/// A pipe holds 64 KiB (pipe(7)).
const READ_LEN: usize = 64 << 10;

/// A longer line is shown in pieces: nothing is kept without bound.
const LINE_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use std::io::Seek;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::thread;

    use super::*;

    /// What comes out when each stream's pieces are read in that order.
    fn routed(streams: &[(&[&[u8]], &Stream)]) -> Vec<u8> {
        let mut file = tempfile::tempfile().unwrap();
        let sink = Sink::new(file.try_clone().unwrap());
        for (pieces, stream) in streams {
            stream.route(&mut Pieces(pieces), &sink).unwrap();
        }
        let mut out = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut out).unwrap();
        out
    }

    /// A reader that returns each piece by itself.
    struct Pieces<'a>(&'a [&'a [u8]]);

    impl Read for Pieces<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let Some((first, rest)) = self.0.split_first() else { return Ok(0) };
            buffer[..first.len()].copy_from_slice(first);
            self.0 = rest;
            Ok(first.len())
        }
    }

    fn stream(number: usize, label: &str) -> Stream {
        Stream { number, label: label.to_owned(), eager: false }
    }

    #[test]
    fn lines_get_their_label_wherever_they_are_cut() {
        let out = routed(&[(&[b"on", b"e\ntwo\n\nthr", b"ee\n"], &stream(0, "[7] "))]);
        assert_eq!(out, b"[7] one\n[7] two\n[7] \n[7] three\n");
        let eager = Stream { eager: true, ..stream(0, "[7] ") };
        assert_eq!(routed(&[(&[b"na", b"me: ", b"x\n"], &eager)]), b"[7] name: x\n");
    }

    #[test]
    fn a_last_line_without_an_end_is_not_glued_to_the_next_streams() {
        let out = routed(&[(&[b"a\nb"], &stream(0, "")), (&[b"c\n"], &stream(1, "")), (&[b"d"], &stream(2, ""))]);
        assert_eq!(out, b"a\nb\nc\nd");
    }

    #[test]
    fn a_line_that_goes_on_after_another_streams_gets_its_label_again() {
        let mut file = tempfile::tempfile().unwrap();
        let sink = Sink::new(file.try_clone().unwrap());
        let (asking, other) = (stream(0, "[0] "), stream(1, "[1] "));
        for (stream, text) in [(&asking, "name: "), (&other, "done\n"), (&asking, "x"), (&asking, "y\n")] {
            sink.write(stream, text.as_bytes()).unwrap();
        }
        let mut out = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut out).unwrap();
        assert_eq!(out, "[0] name: \n[1] done\n[0] xy\n");
    }

    #[test]
    fn readers_of_an_output_that_was_made_non_blocking_are_waited_for() {
        let (mut reader, writer) = UnixStream::pair().unwrap();
        writer.set_nonblocking(true).unwrap();
        let sink = Sink::new(OwnedFd::from(writer).into());
        let text = b"line\n".repeat(1 << 20);
        let wanted = text.len();
        let writing = thread::spawn(move || sink.write(&stream(0, ""), &text));
        let mut read = Vec::new();
        reader.read_to_end(&mut read).unwrap();
        writing.join().unwrap().unwrap();
        assert_eq!(read.len(), wanted);
    }

    #[test]
    fn a_line_without_end_is_shown_in_pieces_and_nothing_is_lost() {
        let piece = [b'x'; 60_000];
        let pieces: Vec<&[u8]> = vec![&piece; 50];
        assert_eq!(routed(&[(&pieces, &stream(0, ""))]).len(), 3_000_000);
    }

    #[test]
    fn lines_of_many_streams_stay_whole() {
        let mut file = tempfile::tempfile().unwrap();
        let sink = Arc::new(Sink::new(file.try_clone().unwrap()));
        let streams = (0..8usize).map(|number| {
            let sink = Arc::clone(&sink);
            thread::spawn(move || {
                let line = format!("{number}").repeat(100 + number) + "\n";
                let text = line.repeat(500);
                let pieces: Vec<&[u8]> = text.as_bytes().chunks(77).collect();
                stream(number, "").route(&mut Pieces(&pieces), &sink).unwrap();
            })
        });
        streams.collect::<Vec<_>>().into_iter().for_each(|stream| stream.join().unwrap());
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text.lines().count(), 4000);
        for line in text.lines() {
            let number = line[..1].parse::<usize>().unwrap();
            assert_eq!(line, line[..1].repeat(100 + number));
        }
    }
}
