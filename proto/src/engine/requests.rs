//! Requests of Active Messages from the application's threads.

use sidelane_nic::Nic;

use super::Ended;
use super::driven::WithState;
use super::port::Port;
use super::sender::Sender;
use super::shared::Shared;
use crate::am::wire::{keep_request, record_len};
use crate::am::{ARGS_MAX, ReplyRoom};
use crate::{PeerId, SendError};

impl<N: Nic + Send + 'static, S: Send + 'static> Port<WithState<N, S>> {
    /// As [`crate::am::ActiveMessages::request`]. `Full`: too much is on its way to this peer, or in the engine's ring. One that is
    /// longer, or asks for more room, than the peer turns out to take ends the connection, if it was ordered before the peer
    /// had told; later it is `TooLong`.
    #[inline]
    pub fn request(
        &mut self,
        to: PeerId,
        handler: u8,
        args: &[u64],
        payload: &[u8],
        reply: ReplyRoom,
    ) -> Result<(), SendError> {
        let len = checked_len(&self.shared, to, args, payload, reply)?;
        self.keep(to, len, |record| keep_request(record, handler, args, payload, reply))
    }

    /// Whether the handlers of all requests that were made here have run at `peer`, as far as it has told; asks it to tell. One that is gone
    /// tells no more: what it had not told stays false. Waits for the engine's answer.
    pub fn is_handled(&mut self, peer: PeerId) -> Result<bool, Ended> {
        if !self.is_taken(peer) {
            self.flush();
            return self.alive().map(|()| false);
        }
        self.call(move |on| {
            // A full FIFO is asked again with the next call.
            let _ = on.am.ask(peer);
            on.am.is_all_handled(peer)
        })
    }
}

impl<N: Nic + Send + 'static, S: Send + 'static> Sender<WithState<N, S>> {
    /// As [`Port::request`].
    pub fn request(
        &self,
        to: PeerId,
        handler: u8,
        args: &[u64],
        payload: &[u8],
        reply: ReplyRoom,
    ) -> Result<(), SendError> {
        let len = checked_len(&self.shared, to, args, payload, reply)?;
        self.keep(to, len, |record| keep_request(record, handler, args, payload, reply))
    }
}

/// The length of a request's record, unless it is too long by itself.
#[inline]
fn checked_len<D>(
    shared: &Shared<D>,
    to: PeerId,
    args: &[u64],
    payload: &[u8],
    reply: ReplyRoom,
) -> Result<usize, SendError> {
    let gauge = shared.gauge(to).ok_or(SendError::NoPeer)?;
    gauge.check(to, 0)?;
    gauge.check_room(reply)?;
    // A record's length has 16 bits.
    if args.len() > ARGS_MAX || payload.len() > usize::from(u16::MAX) - record_len(true, ARGS_MAX, 0) {
        return Err(SendError::TooLong);
    }
    Ok(record_len(false, args.len(), payload.len()))
}
