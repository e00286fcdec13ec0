//! Requests of Active Messages from the application's threads.

use sidelane_nic::Nic;

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
    shared.gauge(to).ok_or(SendError::NoPeer)?.check_room(reply)?;
    // A record's length has 16 bits.
    if args.len() > ARGS_MAX || payload.len() > usize::from(u16::MAX) - record_len(true, ARGS_MAX, 0) {
        return Err(SendError::TooLong);
    }
    Ok(record_len(false, args.len(), payload.len()))
}
