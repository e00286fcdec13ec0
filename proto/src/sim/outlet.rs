//! What a node of a scenario sends to another one.

use sidelane_nic::LinkAddr;
use sidelane_nic::mem::MemNic;
use sidelane_nic::rng::Rng;

use super::one_sided::Operations;
use super::oracle::{Stream, message};
use crate::{Endpoint, PeerId, SendError};

/// What a node still has to send to another one.
pub(super) struct Outlet {
    pub to: u32,
    pub peer: PeerId,
    pub stream: Stream,
    pub next: u32,
    /// Messages of this stream.
    pub count: u32,
    pub waiting: Option<Vec<u8>>,
    pub operations: Operations,
    /// The endpoint said that the peer answered.
    pub connected: bool,
    pub over: bool,
}

/// Connects, for `count` messages.
pub(super) fn open(
    endpoint: &mut Endpoint<MemNic>,
    from: u32,
    to: u32,
    next_stream: &mut u32,
    count: u32,
    operations: Operations,
) -> Outlet {
    let peer = endpoint.connect(LinkAddr::Mem { node: to }).expect("the table has room");
    let stream = Stream { from, to, number: *next_stream };
    *next_stream += 1;
    Outlet { to, peer, stream, next: 0, count, waiting: None, operations, connected: false, over: false }
}

/// Connects anew, for half as many messages as `old` had.
pub(super) fn reopen(
    endpoint: &mut Endpoint<MemNic>,
    from: u32,
    old: &Outlet,
    next_stream: &mut u32,
    lives: &[u32],
) -> Outlet {
    let operations = Operations::new(from, old.to, lives[old.to as usize], old.operations.left());
    let mut new = open(endpoint, from, old.to, next_stream, old.count / 2, operations);
    new.over = new.count == 0;
    new
}

/// Gives the endpoint what it takes of an outlet's messages.
pub(super) fn feed(
    endpoint: &mut Endpoint<MemNic>,
    outlet: &mut Outlet,
    rng: &mut Rng,
    longest: usize,
    mut lend: impl FnMut(&Outlet),
) -> bool {
    let mut fed = false;
    while !outlet.over && outlet.next < outlet.count {
        let bytes = outlet.waiting.take().unwrap_or_else(|| {
            let len = if rng.chance(0.7) { rng.below(64) as usize } else { rng.below(longest as u64 + 1) as usize };
            message(outlet.stream, outlet.next, len)
        });
        let lent = bytes.len() > 1000 && rng.chance(0.5);
        let taken = if lent {
            endpoint.send_owned(outlet.peer, bytes).map_err(|refused| (refused.reason, refused.buffer))
        } else {
            endpoint.send(outlet.peer, &bytes).map_err(|reason| (reason, bytes))
        };
        match taken {
            Ok(()) => {
                if lent {
                    lend(outlet);
                }
                outlet.next += 1;
                fed = true;
            }
            Err((SendError::Full, bytes)) => {
                outlet.waiting = Some(bytes);
                break;
            }
            // Its end is in an event that is still to be read.
            Err((SendError::NoPeer, _)) => break,
            Err((SendError::TooLong, _)) => unreachable!("messages are far below the limit"),
        }
    }
    fed
}
