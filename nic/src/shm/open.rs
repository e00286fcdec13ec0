//! Joining a domain.

use std::collections::HashMap;
use std::io;
use std::thread;

use super::datapath::{PEERS_MAX, ShmNic};
use super::mapping::{BELL_BYTES, Bell, CELL_BYTES, PAIR_BYTES, RING_BYTES, sealed_memory};
use super::ring::LINE_BYTES;
use super::steward::Steward;
use super::sys::{self, Socket};
use crate::time::Duration;
use crate::{Caps, Counters, LinkAddr, memfd, names, rights};

/// Why a domain could not be joined.
#[derive(thiserror::Error)]
pub enum OpenError {
    /// The domain's name is empty, too long, or has other characters than it may.
    #[error("`{0}` cannot name a domain; use 1 to {DOMAIN_LEN_MAX} letters, digits, `.`, `_` or `-`")]
    BadDomain(String),
    /// Another process, or another endpoint of this one, has that number.
    #[error(
        "endpoint {endpoint} of domain `{domain}` is taken by {}; choose another number, or none to get a free one",
        names::process_of(*.stranger)
    )]
    EndpointTaken {
        /// The domain.
        domain: String,
        /// The number.
        endpoint: u16,
        /// The other user whose process it is, where it is known to be another's.
        stranger: Option<u32>,
    },
    /// Every number is in use.
    #[error("all endpoints of domain `{0}` are in use")]
    DomainFull(String),
    /// The system refused.
    #[error("cannot {0}: {1}")]
    System(&'static str, io::Error),
}

debug_in_words!(OpenError);

impl ShmNic {
    /// Joins `domain` as `endpoint`, or as the lowest number that is free. Processes of one user and one network
    /// namespace that name the same domain can reach one another. Nothing is left behind, however the process ends.
    pub fn open(domain: &str, endpoint: Option<u16>) -> Result<Self, OpenError> {
        Self::open_for(domain, endpoint, PEERS_MAX)
    }

    /// As [`Self::open`], for `peers_max` peers at most.
    pub(super) fn open_for(domain: &str, endpoint: Option<u16>, peers_max: usize) -> Result<Self, OpenError> {
        let fine = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if domain.is_empty() || domain.len() > DOMAIN_LEN_MAX || !domain.bytes().all(fine) {
            return Err(OpenError::BadDomain(domain.to_owned()));
        }
        let (endpoint, listener) = match endpoint {
            Some(endpoint) => match claim(domain, endpoint)? {
                Some(listener) => (endpoint, listener),
                None => {
                    let stranger = names::stranger(&socket_name(domain, endpoint));
                    return Err(OpenError::EndpointTaken { domain: domain.to_owned(), endpoint, stranger });
                }
            },
            None => claim_free(domain)?,
        };
        // What is made for each peer, and could be told to nobody then.
        let memory = memfd::check(PAIR_BYTES).and_then(|()| sealed_memory(BELL_BYTES));
        let memory = memory.map_err(|error| OpenError::System("make shared memory", error))?;
        let bell = Bell::map(&memory).map_err(|error| OpenError::System("map shared memory", error))?;
        let (steward, line) = Steward::new((domain.to_owned(), endpoint), listener, (bell.clone(), memory), peers_max)
            .map_err(|error| OpenError::System("make an event descriptor", error))?;
        let steward = thread::Builder::new()
            .name(format!("shm-{endpoint}"))
            .spawn(|| steward.run())
            .map_err(|error| OpenError::System("start the thread that makes connections", error))?;
        Ok(Self {
            caps: caps(endpoint),
            domain: domain.to_owned(),
            endpoint,
            peers_max,
            bell,
            line,
            news_heard: 0,
            news_fresh: false,
            peers: Vec::new(),
            by_endpoint: HashMap::new(),
            published: Vec::new(),
            next_rx: 0,
            successors: Vec::new(),
            leaving: false,
            counters: Counters::default(),
            alarm: None,
            steward: Some(steward),
        })
    }
}

/// The abstract socket of an endpoint. The user is part of it, so that users do not take each other's names.
pub(super) fn socket_name(domain: &str, endpoint: u16) -> String {
    format!("sidelane-shm-{}-{domain}-{endpoint}", rights::own_user())
}

/// `None`: somebody has it.
fn claim(domain: &str, endpoint: u16) -> Result<Option<Socket>, OpenError> {
    match sys::listen(&socket_name(domain, endpoint)) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(None),
        listener => listener.map(Some).map_err(|error| OpenError::System("listen on an abstract socket", error)),
    }
}

fn claim_free(domain: &str) -> Result<(u16, Socket), OpenError> {
    for endpoint in 0..=u16::MAX {
        if let Some(listener) = claim(domain, endpoint)? {
            return Ok((endpoint, listener));
        }
    }
    Err(OpenError::DomainFull(domain.to_owned()))
}

fn caps(endpoint: u16) -> Caps {
    Caps {
        addr: LinkAddr::Shm { endpoint },
        mtu: MTU,
        mtu_safe: MTU,
        // Frames of two lines; nothing is dropped in any case.
        rx_frames: RING_BYTES / LINE_BYTES / 2,
        burst: 64,
        // Nothing is ever lost. A peer that is not scheduled is silent for a few of the kernel's time slices.
        rto_floor: Duration::from_millis(10),
        host_delay: None,
    }
}

/// Longest payload. As long as a message is one frame it needs nobody's leave: up to here that is quicker than asking
/// (`bench/NOTES.md`, 65). Messages have round lengths, and headers.
pub(super) const MTU: usize = CELL_BYTES;

/// A frame must fit beside another, however the end of the ring lies, while the consumer withholds an eighth.
const _: () = assert!(3 * (MTU + LINE_BYTES) < RING_BYTES / 8 * 7);

/// With the user, the number and what stands around them it must fit into the 107 bytes of an abstract name (unix(7)).
const DOMAIN_LEN_MAX: usize = 64;
