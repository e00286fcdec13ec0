//! Another process, as this one sees it: the way there, its credit, and what waits to be said to it.

use std::collections::VecDeque;

use sidelane_nic::LinkAddr;
use sidelane_nic::share::{Shared, Ticket};
use sidelane_proto::{PeerId, RemoteKey};

use super::config::Limits;
use super::credit::Credit;
use super::parts::Incomplete;
use super::record::{Note, Share};
use super::request::Request;

/// State kept for each process of the job.
#[derive(Debug)]
pub(super) struct Peer {
    pub way: Way,
    /// Once there is a connection.
    pub id: Option<PeerId>,
    pub gone: bool,
    pub limits: Limits,
    pub credit: Credit,
    /// What cannot be sent yet, in order. Bounded by requests here and there: each has one item at a time.
    pub waiting: VecDeque<Item>,
    /// In the engine's list of those with something waiting.
    pub stirred: bool,
    /// What it has may be read straight from its memory: as long as the system has not said otherwise.
    pub pull: Pull,
    /// Its board, as it was told last ([`super::shared_copy`]).
    pub board: Option<(Ticket, Shared)>,
    /// Longest message that goes as one record, as far as is known: 0 until there is a connection, and longer ones ask
    /// `Engine::learn_whole_max`.
    pub whole_max: usize,
    /// Its message of which parts are missing.
    pub incomplete: Option<Incomplete>,
}

/// How a process is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    /// It is this process.
    Own,
    /// By which port, and where.
    Port { port: usize, addr: LinkAddr },
    /// No port reaches it.
    None,
}

/// Whether a process's memory can be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pull {
    /// Its mark has not been read.
    Untried,
    Works,
    /// It is elsewhere, or the system forbids it.
    Never,
}

/// Something to be said to a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Item {
    /// A message of ours: whole, or announced.
    Send(Request),
    /// The next parts of a message of ours. It stands first, and waits there: nothing comes between two parts.
    Parts(Request),
    /// Its message, which its request `send` is for, was matched by our receive.
    Accept { receive: Request, send: u64 },
    /// Its message is read by our receive, and it may write some of it.
    Share(Share),
    /// The next parts of a message of ours.
    Stream(Request),
    /// The rest of a message of ours, by `key` into the room of `receive`.
    Put { send: Request, receive: u64, at: usize, len: usize, key: RemoteKey },
    /// Something about a request.
    Note { note: Note, request: u64 },
    /// Credit, if nothing else has brought it.
    Credit,
}
