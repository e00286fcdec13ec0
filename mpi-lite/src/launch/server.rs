//! The launcher's side of all ranks, without I/O.

use std::collections::{HashMap, VecDeque};
use std::fmt;

use super::abort::BLANK;
use super::line::{LINE_MAX, Line, Malformed};
use super::reply::{Maxes, Reply};
use super::request::{GET_MANY, Request};
use super::shown::Shown;

/// Answers the ranks of one job, which share one key-value space.
///
/// Lines go in by `handle_line`; what they provoke comes out of `poll_reply` and `poll_event`, which are called until
/// they return `None`. Whatever a rank says, the server goes on for the others.
#[derive(Debug)]
pub struct Server {
    name: String,
    values: HashMap<String, String>,
    /// Bytes of all keys and values; at most `SPACE_BYTES_MAX`.
    bytes: usize,
    ranks: Vec<Stage>,
    /// How many of them wait in a barrier.
    waiting: usize,
    /// Ranks that are told of others' ends, and the ranks that have ended too early.
    watchers: Vec<usize>,
    gone: Vec<usize>,
    replies: VecDeque<(usize, String)>,
    events: VecDeque<ServerEvent>,
}

/// What a launcher has to act on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerEvent {
    /// A rank wants the job ended.
    Abort {
        /// Which rank.
        rank: usize,
        /// The exit code that it gave.
        code: i32,
        /// Its reason, if it gave one.
        why: String,
    },
    /// A rank broke the protocol and will get no answer.
    Violation {
        /// Which rank.
        rank: usize,
        /// What was wrong.
        what: Violation,
    },
}

/// What a rank may do wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A line that is none.
    #[error("its line {0}")]
    Malformed(#[from] Malformed),
    /// A command that we do not know.
    #[error("the command `{}` is unknown", Shown(.0))]
    Unknown(String),
    /// A command that has no place there: the first has to be `init`, nothing follows `finalize`.
    #[error("`{0}` came {1}")]
    OutOfPlace(String, &'static str),
}

/// How far a rank is.
///
/// ```text
/// Fresh --init--> Ready --finalize--> Done
///                 |   ^
///                 +-barrier_in-> Waiting, until all are
///                 +-spawn-> Spawning, until its last line
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Fresh,
    Ready,
    Waiting,
    /// Within the lines of a spawn request, number `so_far` of `total` that are answered as one.
    Spawning {
        total: u32,
        so_far: u32,
    },
    Done,
}

impl Server {
    /// A server of as many ranks as `mapping` has. `name` is that of the key-value space, and should be no other job's.
    pub fn new(name: impl Into<String>, mapping: &Mapping) -> Self {
        let name = name.into();
        assert!(Line::is_word(&name) && name.len() <= MAXES.space, "a key-value space's name is a short word");
        let mut server = Self {
            name,
            values: HashMap::new(),
            bytes: 0,
            ranks: vec![Stage::Fresh; mapping.0.len()],
            waiting: 0,
            watchers: Vec::new(),
            gone: Vec::new(),
            replies: VecDeque::new(),
            events: VecDeque::new(),
        };
        server.keep("PMI_process_mapping", &mapping.to_string());
        server.keep(GET_MANY, "1");
        server
    }

    /// Takes in one line of a rank's, with or without its newline.
    pub fn handle_line(&mut self, rank: usize, bytes: &[u8]) {
        if let Stage::Spawning { .. } = self.ranks[rank] {
            return self.handle_spawn_line(rank, bytes);
        }
        let understood = Line::parse(bytes).and_then(|line| Ok((Request::parse(&line)?, line.name)));
        match understood {
            Ok((Some(request), name)) => match self.misplaced(rank, &request) {
                None => self.handle_request(rank, request),
                Some(when) => self.violated(rank, Violation::OutOfPlace(name.to_owned(), when)),
            },
            Ok((None, name)) => self.violated(rank, Violation::Unknown(name.to_owned())),
            Err(malformed) => self.violated(rank, malformed.into()),
        }
    }

    /// The next line, with its newline, that shall be sent, and to which rank.
    pub fn poll_reply(&mut self) -> Option<(usize, String)> {
        self.replies.pop_front()
    }

    /// The next thing to act on.
    pub fn poll_event(&mut self) -> Option<ServerEvent> {
        self.events.pop_front()
    }

    /// True from a rank's `init` to its `finalize`: the others count on it, so its end is a failure, whatever its exit code.
    pub fn is_counted_on(&self, rank: usize) -> bool {
        !matches!(self.ranks[rank], Stage::Fresh | Stage::Done)
    }

    /// True while others are in a barrier that can end only when this rank comes to it.
    pub fn is_waited_for(&self, rank: usize) -> bool {
        self.waiting > 0 && self.ranks[rank] != Stage::Waiting
    }

    /// True once the rank has said `finalize`.
    pub fn is_done(&self, rank: usize) -> bool {
        self.ranks[rank] == Stage::Done
    }

    /// A rank has ended that others count on: those are told that watch.
    pub fn handle_gone(&mut self, gone: usize) {
        self.gone.push(gone);
        self.watchers.retain(|rank| *rank != gone);
        for at in 0..self.watchers.len() {
            self.reply(self.watchers[at], &Reply::RankGone { rank: gone });
        }
    }

    fn handle_request(&mut self, rank: usize, request: Request<'_>) {
        match request {
            Request::Init { version, .. } => {
                // MPICH's client has no version below 1.1, and a rank that wants 2.0 is told that there is none.
                let rc = if version == 1 { 0 } else { -1 };
                if rc == 0 {
                    self.ranks[rank] = Stage::Ready;
                }
                self.reply(rank, &Reply::ResponseToInit { version: 1, subversion: 1, rc });
            }
            Request::InitAck { .. } => {
                self.violated(rank, Violation::OutOfPlace("initack".to_owned(), "over a descriptor"));
            }
            Request::GetMaxes => self.reply(rank, &Reply::Maxes(MAXES)),
            Request::GetAppnum => self.reply(rank, &Reply::Appnum(0)),
            Request::GetUniverseSize => self.reply(rank, &Reply::UniverseSize(self.ranks.len() as i32)),
            Request::GetMyKvsname => {
                let line = Reply::MyKvsname(&self.name).to_string();
                self.replies.push_back((rank, line + "\n"));
            }
            Request::Put { space, key, value } => {
                let outcome = self.put(space, key, value);
                self.reply(rank, &Reply::PutResult(outcome));
            }
            Request::Get { space, key } => {
                let found = self.values.get(key).filter(|_| space == self.name);
                let line = Reply::GetResult(found.map(String::as_str).ok_or("key_not_found")).to_string();
                self.replies.push_back((rank, line + "\n"));
            }
            Request::GetMany { space, keys, from } => {
                let found = self.many(space, keys, from);
                let line = Reply::ManyResult(found.as_deref().map_err(|why| *why)).to_string();
                self.replies.push_back((rank, line + "\n"));
            }
            Request::BarrierIn => {
                self.ranks[rank] = Stage::Waiting;
                self.waiting += 1;
                // All means all: one that has finalized is missed for ever, as in other launchers.
                if self.waiting == self.ranks.len() {
                    self.waiting = 0;
                    self.ranks.fill(Stage::Ready);
                    (0..self.ranks.len()).for_each(|rank| self.reply(rank, &Reply::BarrierOut));
                }
            }
            Request::WatchRanks => {
                self.watchers.push(rank);
                self.reply(rank, &Reply::Watching);
                for at in 0..self.gone.len() {
                    self.reply(rank, &Reply::RankGone { rank: self.gone[at] });
                }
            }
            Request::Finalize => {
                self.ranks[rank] = Stage::Done;
                self.watchers.retain(|watcher| *watcher != rank);
                self.reply(rank, &Reply::FinalizeAck);
            }
            Request::Abort { code, why } => {
                self.events.push_back(ServerEvent::Abort { rank, code, why: why.replace(BLANK, " ") });
            }
            Request::Name(command) => self.reply(rank, &Reply::NameRefused(command)),
            Request::Spawn => self.ranks[rank] = Stage::Spawning { total: 1, so_far: 1 },
        }
    }

    fn put(&mut self, space: &str, key: &str, value: &str) -> Result<(), &'static str> {
        let bytes = key.len() + value.len();
        if space != self.name {
            return Err("no_such_space");
        }
        if key.len() > MAXES.key || value.len() > MAXES.value {
            return Err("too_long");
        }
        if self.bytes + bytes > SPACE_BYTES_MAX {
            return Err("space_is_full");
        }
        self.keep(key, value);
        Ok(())
    }

    fn keep(&mut self, key: &str, value: &str) {
        self.bytes += key.len() + value.len();
        if let Some(before) = self.values.insert(key.to_owned(), value.to_owned()) {
            self.bytes -= key.len() + before.len();
        }
    }

    /// What ranks from one on have put, as far as it fits a line.
    fn many(&self, space: &str, keys: &str, from: usize) -> Result<String, &'static str> {
        let (before, after) = keys.split_once('*').filter(|_| space == self.name).ok_or("no_such_space")?;
        let mut values = String::new();
        for rank in from..self.ranks.len() {
            let value = self.values.get(&format!("{before}{rank}{after}")).ok_or("key_not_found")?;
            if rank > from {
                values.push(';');
            }
            values += value;
            if values.len() > MANY_MAX {
                break;
            }
        }
        if values.is_empty() { Err("key_not_found") } else { Ok(values) }
    }

    /// When a request comes that must not come now.
    fn misplaced(&self, rank: usize, request: &Request<'_>) -> Option<&'static str> {
        match (self.ranks[rank], request) {
            (_, Request::Abort { .. }) => None,
            (Stage::Fresh, Request::Init { .. } | Request::InitAck { .. }) => None,
            (Stage::Fresh, _) => Some("before `init`"),
            (Stage::Ready, Request::Init { .. }) => Some(SECOND_PROGRAM),
            (Stage::Ready, _) => None,
            (Stage::Waiting, _) => Some("within a barrier"),
            (Stage::Done, Request::Init { .. }) => Some(SECOND_PROGRAM),
            (Stage::Done, _) => Some("after `finalize`"),
            (Stage::Spawning { .. }, _) => unreachable!("lines of a spawn request are no requests"),
        }
    }

    /// Reads on to the end of a spawn request, of which there are `totspawns`, and refuses them all.
    fn handle_spawn_line(&mut self, rank: usize, bytes: &[u8]) {
        let Stage::Spawning { total, so_far } = &mut self.ranks[rank] else { unreachable!("the caller has looked") };
        let line = bytes.trim_ascii();
        if line == Request::SPAWN_END {
            let last = *so_far >= *total;
            self.ranks[rank] = Stage::Ready;
            if last {
                self.reply(rank, &Reply::SpawnResult(Err("spawning_is_not_supported")));
            }
            return;
        }
        let number = |digits: &[u8]| std::str::from_utf8(digits).ok().and_then(|text| text.parse().ok()).unwrap_or(1);
        if let Some(digits) = line.strip_prefix(b"totspawns=") {
            *total = number(digits);
        } else if let Some(digits) = line.strip_prefix(b"spawnssofar=") {
            *so_far = number(digits);
        }
    }

    fn reply(&mut self, rank: usize, reply: &Reply<'_>) {
        self.replies.push_back((rank, format!("{reply}\n")));
    }

    fn violated(&mut self, rank: usize, what: Violation) {
        self.events.push_back(ServerEvent::Violation { rank, what });
    }
}

/// Mostly a script, which runs one program after another.
const SECOND_PROGRAM: &str = "a second time: a rank is one MPI program; start another one as a job of its own";

/// As MPICH's launcher has them (hydra, `PMI_MAXKVSLEN`, `PMI_MAXKEYLEN`, `PMI_MAXVALLEN`).
const MAXES: Maxes = Maxes { space: 256, key: 64, value: 1024 };

/// Values in one line: with one more it is half as long as the longest.
const MANY_MAX: usize = LINE_MAX / 2 - MAXES.value - 64;

/// Ten thousand ranks with some KiB each; a rank that puts without end gets a refusal, not the launcher's memory.
const SPACE_BYTES_MAX: usize = 64 << 20;

/// Which node each rank is on, by rank. Its text form is the value that MPICH's ranks look up as `PMI_process_mapping`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping(pub Vec<usize>);

impl fmt::Display for Mapping {
    /// `(vector,(first node,nodes,ranks on each),...)`: runs of nodes that follow one another and have as many ranks.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut blocks: Vec<(usize, usize, usize)> = Vec::new();
        for ranks in self.0.chunk_by(|a, b| a == b) {
            match blocks.last_mut() {
                Some((first, nodes, each)) if *first + *nodes == ranks[0] && *each == ranks.len() => *nodes += 1,
                _ => blocks.push((ranks[0], 1, ranks.len())),
            }
        }
        f.write_str("(vector")?;
        blocks.iter().try_for_each(|(first, nodes, each)| write!(f, ",({first},{nodes},{each})"))?;
        f.write_str(")")
    }
}
