//! The rank's side.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};

use super::abort::Abort;
use super::arrived::{Arrived, Aside};
use super::inherited;
use super::line::{LINE_MAX, Line, Malformed};
use super::notice::Notice;
use super::reply::{Maxes, Reply};
use super::request::{GET_MANY, Request};
use super::shown::Shown;
use super::watch::Watch;

/// A rank's connection to its launcher. Every call blocks until the launcher has answered.
#[derive(Debug)]
pub struct Client {
    /// A socket of whatever family: reading, writing and closing are the same for all.
    stream: BufReader<UnixStream>,
    rank: usize,
    size: usize,
    space: String,
    maxes: Maxes,
    /// Exchanges so far; each has keys of its own.
    pub(super) exchanges: usize,
    /// Once it is known.
    gets_many: Option<bool>,
    /// What was read and is a [`Watch`]'s, or a [`Notice`]'s.
    aside: Aside,
    /// An answer is yet to come that is a [`Notice`]'s.
    owed: Arc<AtomicBool>,
}

/// Why the launcher was of no help.
#[derive(Debug, thiserror::Error)]
pub enum PmiError {
    /// No connection, or none any more.
    #[error("cannot {0} the launcher: {1}")]
    Io(&'static str, io::Error),
    /// The launcher closed the connection: it ends the job, or has ended itself.
    #[error("the launcher has gone")]
    Gone,
    /// An answer that is none.
    #[error("the launcher's answer `{}` {why}", Shown(.line))]
    Malformed {
        /// What it said.
        line: String,
        /// What is wrong.
        why: Malformed,
    },
    /// An answer to another question.
    #[error("the launcher answered `{request}` with `{}`", Shown(.answer))]
    Unexpected {
        /// What was asked.
        request: String,
        /// What came.
        answer: String,
    },
    /// The launcher said no.
    #[error("the launcher refused `{request}`: {}", Shown(.why))]
    Refused {
        /// What was asked.
        request: String,
        /// Its reason.
        why: String,
    },
    /// A key or a value is not one word, or longer than the launcher takes.
    #[error("`{0}` cannot be put: the launcher takes one word of at most {1} bytes")]
    Unfit(String, usize),
    /// What another rank said is not what our version would have said.
    #[error("rank {0} has said something else than this version of Sidelane would")]
    OtherVersion(usize),
}

impl Client {
    /// Over the descriptor that the launcher left open: a socket, with this inode if the launcher told one.
    pub fn of_descriptor(fd: i32, inode: Option<u64>, rank: usize, size: usize) -> Result<Self, PmiError> {
        let fd = inherited::take(fd, inode).map_err(|error| PmiError::Io("use the descriptor (PMI_FD) to", error))?;
        Self::start(fd.into(), rank, size)
    }

    /// Over TCP; the launcher tells rank and size.
    pub fn of_port(address: &str, id: usize) -> Result<Self, PmiError> {
        let stream = TcpStream::connect(address).map_err(|error| PmiError::Io("connect to", error))?;
        // Lines are short and each one is waited for.
        stream.set_nodelay(true).map_err(|error| PmiError::Io("connect to", error))?;
        let mut stream = BufReader::new(UnixStream::from(OwnedFd::from(stream)));
        write(&mut stream, &Request::InitAck { id })?;
        let mut line = Vec::new();
        let mut told = [None; 3];
        loop {
            match read(&mut stream, &mut line)? {
                Reply::InitAck => {}
                Reply::Set { key, value } => {
                    let at = ["size", "rank", "debug"].iter().position(|known| *known == key).unwrap_or(2);
                    told[at] = value.parse().ok();
                    // Debug is the last one.
                    if at == 2 {
                        break;
                    }
                }
                other => return Err(unexpected(&Request::InitAck { id }, &other)),
            }
        }
        match told {
            [Some(size), Some(rank), _] if rank < size => Self::start(stream.into_inner(), rank, size),
            _ => Err(PmiError::Unexpected { request: "initack".to_owned(), answer: "set".to_owned() }),
        }
    }

    /// Over a connection on which nothing was said yet.
    pub fn start(stream: UnixStream, rank: usize, size: usize) -> Result<Self, PmiError> {
        assert!(rank < size, "ranks are below the job's size");
        let maxes = Maxes { space: 0, key: 0, value: 0 };
        let (stream, space) = (BufReader::new(stream), String::new());
        let mut client = Self {
            stream,
            rank,
            size,
            space,
            maxes,
            exchanges: 0,
            gets_many: None,
            aside: Arc::default(),
            owed: Arc::default(),
        };
        let init = Request::Init { version: 1, subversion: 1 };
        client.ask(&init, |reply| match reply {
            Reply::ResponseToInit { rc: 0, .. } => Some(Ok(())),
            Reply::ResponseToInit { version, subversion, .. } => {
                Some(Err(format!("it speaks PMI {version}.{subversion}, and we speak 1.1")))
            }
            _ => None,
        })?;
        client.maxes = client.ask(&Request::GetMaxes, |reply| match reply {
            Reply::Maxes(maxes) => Some(Ok(maxes)),
            _ => None,
        })?;
        client.space = client.ask(&Request::GetMyKvsname, |reply| match reply {
            Reply::MyKvsname(name) => Some(Ok(name.to_owned())),
            _ => None,
        })?;
        Ok(client)
    }

    /// Below `size`.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Ranks of the job.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The key-value space's name.
    pub fn space(&self) -> &str {
        &self.space
    }

    /// What keys and values have to keep within.
    pub fn maxes(&self) -> Maxes {
        self.maxes
    }

    /// Which of several programs of one job this is.
    pub fn appnum(&mut self) -> Result<Option<u32>, PmiError> {
        self.ask(&Request::GetAppnum, |reply| match reply {
            Reply::Appnum(number) => Some(Ok(u32::try_from(number).ok())),
            _ => None,
        })
    }

    /// How many ranks the job could have.
    pub fn universe_size(&mut self) -> Result<Option<usize>, PmiError> {
        self.ask(&Request::GetUniverseSize, |reply| match reply {
            Reply::UniverseSize(size) => Some(Ok(usize::try_from(size).ok())),
            _ => None,
        })
    }

    /// Others find `value` behind the next barrier.
    pub fn put(&mut self, key: &str, value: &str) -> Result<(), PmiError> {
        for (word, max) in [(key, self.maxes.key), (value, self.maxes.value)] {
            if !Line::is_word(word) || word.len() > max {
                return Err(PmiError::Unfit(word.to_owned(), max));
            }
        }
        let space = std::mem::take(&mut self.space);
        let outcome = self.ask(&Request::Put { space: &space, key, value }, |reply| match reply {
            Reply::PutResult(outcome) => Some(outcome.map_err(str::to_owned)),
            _ => None,
        });
        self.space = space;
        outcome
    }

    /// What was put before the last barrier; `None` when nothing was.
    pub fn get(&mut self, key: &str) -> Result<Option<String>, PmiError> {
        let space = std::mem::take(&mut self.space);
        let found = self.ask(&Request::Get { space: &space, key }, |reply| match reply {
            Reply::GetResult(found) => Some(Ok(found.ok().map(str::to_owned))),
            _ => None,
        });
        self.space = space;
        found
    }

    /// Whether the launcher answers [`Self::get_many`].
    pub(super) fn gets_many(&mut self) -> Result<bool, PmiError> {
        if self.gets_many.is_none() {
            self.gets_many = Some(self.get(GET_MANY)?.is_some());
        }
        Ok(self.gets_many == Some(true))
    }

    /// What ranks from one on had put before the last barrier, without `;`, under keys that have their number where `keys` has
    /// `*`: as many as the launcher tells at once, and at least one.
    pub(super) fn get_many(&mut self, keys: &str, from: usize) -> Result<Vec<String>, PmiError> {
        let space = std::mem::take(&mut self.space);
        let found = self.ask(&Request::GetMany { space: &space, keys, from }, |reply| match reply {
            Reply::ManyResult(found) => {
                Some(found.map(|values| values.split(';').map(str::to_owned).collect()).map_err(str::to_owned))
            }
            _ => None,
        });
        self.space = space;
        found
    }

    /// Returns when all ranks have called it.
    pub fn barrier(&mut self) -> Result<(), PmiError> {
        self.ask(&Request::BarrierIn, |reply| (reply == Reply::BarrierOut).then_some(Ok(())))
    }

    /// Asks to be told of ranks that end too early; the answer is where the news come.
    pub fn watch_ranks(&mut self) -> Result<Watch, PmiError> {
        self.ask(&Request::WatchRanks, |reply| (reply == Reply::Watching).then_some(Ok(())))?;
        let stream = self.stream.get_ref().try_clone().map_err(|error| PmiError::Io("watch ranks by", error))?;
        Ok(Watch::new(stream, Arc::clone(&self.aside)))
    }

    /// What asks who is gone at MPICH's signal.
    pub(super) fn notice(&self) -> Result<Notice, PmiError> {
        let stream = self.stream.get_ref().try_clone().map_err(|error| PmiError::Io("watch ranks by", error))?;
        Ok(Notice::new(Arrived::new(stream, Arc::clone(&self.aside)), &self.space, Arc::clone(&self.owed)))
    }

    /// Says that this rank's end, from now on, is as it should be.
    pub fn finalize(mut self) -> Result<(), PmiError> {
        self.ask(&Request::Finalize, |reply| (reply == Reply::FinalizeAck).then_some(Ok(())))
    }

    /// A way to ask for the job's end.
    pub fn to_abort(&self) -> Result<Abort, PmiError> {
        Abort::by(self.stream.get_ref()).map_err(|error| PmiError::Io("keep a way to", error))
    }

    /// Sends a request and gives the answer to `take`, which returns `None` for an answer to another question.
    fn ask<T>(
        &mut self,
        request: &Request<'_>,
        take: impl FnOnce(Reply<'_>) -> Option<Result<T, String>>,
    ) -> Result<T, PmiError> {
        write(&mut self.stream, request)?;
        let mut line = Vec::new();
        loop {
            match read(&mut self.stream, &mut line)? {
                Reply::RankGone { .. } => {}
                Reply::GetResult(_) if self.owed.swap(false, Ordering::Relaxed) => {}
                _ => break,
            }
            self.set_aside(&line);
        }
        // What has come behind the answer is news, of which the last may be on its way.
        let mut news = Vec::new();
        while !self.stream.buffer().is_empty() {
            let read = self.stream.read_until(b'\n', &mut news);
            read.map_err(|error| PmiError::Io("read from", error))?;
        }
        self.set_aside(&news);
        let reply = parse(&line)?;
        match take(reply.clone()) {
            Some(Ok(value)) => Ok(value),
            Some(Err(why)) => Err(PmiError::Refused { request: request.to_string(), why }),
            None => Err(unexpected(request, &reply)),
        }
    }

    fn set_aside(&self, lines: &[u8]) {
        self.aside.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(lines);
    }
}

fn write(stream: &mut BufReader<UnixStream>, request: &Request<'_>) -> Result<(), PmiError> {
    stream.get_mut().write_all(format!("{request}\n").as_bytes()).map_err(|error| PmiError::Io("write to", error))
}

/// Reads one answer into `line`.
fn read<'a>(stream: &mut BufReader<UnixStream>, line: &'a mut Vec<u8>) -> Result<Reply<'a>, PmiError> {
    line.clear();
    // One more than the longest, so that a line that is too long is told from one that just fits.
    let outcome = stream.by_ref().take(LINE_MAX as u64 + 1).read_until(b'\n', line);
    match outcome {
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Err(PmiError::Gone),
        Err(error) => return Err(PmiError::Io("read from", error)),
        Ok(_) if line.len() <= LINE_MAX && !line.ends_with(b"\n") => return Err(PmiError::Gone),
        Ok(_) => {}
    }
    parse(line)
}

fn parse(line: &[u8]) -> Result<Reply<'_>, PmiError> {
    let malformed = |why| PmiError::Malformed { line: String::from_utf8_lossy(line).trim_end().to_owned(), why };
    let parsed = Line::parse(line).and_then(|parsed| Reply::parse(&parsed)).map_err(malformed)?;
    parsed.ok_or_else(|| malformed(Malformed::NoCommand))
}

fn unexpected(request: &Request<'_>, answer: &Reply<'_>) -> PmiError {
    PmiError::Unexpected { request: request.to_string(), answer: answer.to_string() }
}
