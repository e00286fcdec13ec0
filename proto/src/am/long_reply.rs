//! Long replies: bytes into a region that the requester has published, then the reply's handler there.

use std::collections::VecDeque;

use sidelane_nic::Nic;

use super::replier::Replier;
use super::wire::{Head, Kind, put_whole, record_len};
use super::{ARGS_MAX, ActiveMessages, LongError};
use crate::{PutHow, RemoteKey, RmaError, SendError};

/// To one peer, in order. There are never more than requests whose room is not given back.
#[derive(Debug, Default)]
pub(super) struct LongReplies {
    waiting: VecDeque<LongReply>,
    /// In `waiting`.
    bytes: usize,
    /// Our side is to be closed behind them.
    pub close_after: bool,
}

/// One whose put was not handed over yet: it may have to wait for room, which a handler must not.
#[derive(Debug)]
struct LongReply {
    key: RemoteKey,
    offset: u64,
    bytes: Vec<u8>,
    handler: u8,
    args: [u64; ARGS_MAX],
    words: u8,
    /// What the request allowed for the record, which is free until this is sent.
    room: u16,
    stalled: bool,
}

impl LongReplies {
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// One is always taken, however long.
    const fn has_room(&self, len: usize) -> bool {
        self.bytes == 0 || self.bytes + len <= BYTES_MAX
    }

    fn push(&mut self, reply: LongReply) {
        self.bytes += reply.bytes.len();
        self.waiting.push_back(reply);
    }
}

impl Replier<'_> {
    /// Copies `bytes`, puts them at `offset` of a region of the requester's, and then runs `handler` there with `args`, for which
    /// the request has to allow room. When it runs they are in place. It leaves when the handlers of this poll are done and the
    /// put finds room; long replies to one requester keep their order, and others may pass them.
    ///
    /// A put that the requester refuses is told here by [`crate::Event::OpFailed`]; the handler runs all the same. Errors of the
    /// request as [`Self::reply`] has them; of the put `Bounds`, and `Full` when the system has no memory for the copy, or 16 MiB of
    /// copies for this requester wait already: as many requests as it likes may ask for long replies, and their bytes are held here.
    pub fn reply_long(
        self,
        key: &RemoteKey,
        offset: u64,
        bytes: &[u8],
        handler: u8,
        args: &[u64],
    ) -> Result<(), LongError> {
        self.fits(args.len(), 0)?;
        if !self.peer.open {
            return Err(SendError::NoPeer.into());
        }
        if offset.checked_add(bytes.len() as u64).is_none_or(|end| end > key.region_len()) {
            return Err(RmaError::Bounds.into());
        }
        let replies = &mut self.peer.long_replies;
        if !replies.has_room(bytes.len()) {
            return Err(RmaError::Full.into());
        }
        let mut copy = self.outlets.short.spares.take(bytes.len()).ok_or(RmaError::Full)?;
        copy.extend_from_slice(bytes);
        let mut words = [0; ARGS_MAX];
        words[..args.len()].copy_from_slice(args);
        if replies.is_empty() {
            self.outlets.long.push(self.peer.id.index);
        }
        replies.push(LongReply {
            key: *key,
            offset,
            bytes: copy,
            handler,
            args: words,
            words: args.len() as u8,
            room: self.room,
            stalled: false,
        });
        self.note_reply();
        Ok(())
    }
}

impl<N: Nic, S> ActiveMessages<N, S> {
    /// Hands over the long replies that find room.
    #[cold]
    pub(super) fn send_long_replies(&mut self) {
        let mut replying = std::mem::take(&mut self.replying);
        replying.retain(|index| self.send_long_replies_to(*index));
        self.replying = replying;
    }

    /// Those of one peer, in order. True when some have to wait. A requester that is gone waits for none.
    fn send_long_replies_to(&mut self, index: u16) -> bool {
        let Self { endpoint, peers, counters, .. } = self;
        let Some(peer) = peers.at(index) else { return false };
        let replies = &mut peer.long_replies;
        while let Some(reply) = replies.waiting.front_mut() {
            let (len, bytes) = (reply.bytes.len(), std::mem::take(&mut reply.bytes));
            match endpoint.put_buffer(peer.id, &reply.key, reply.offset, bytes, PutHow::default()) {
                Ok(_) => {
                    let credit = peer.budget.due();
                    let args = &reply.args[..usize::from(reply.words)];
                    let LongReply { handler, words, room, .. } = *reply;
                    let head = Head { kind: Kind::Reply, has_credit: credit.is_some(), words, handler, room };
                    let write = |record: &mut [u8]| put_whole(record, head, credit, args, &[]);
                    if endpoint.send_reserved(peer.id, record_len(credit.is_some(), args.len(), 0), write).is_ok() {
                        peer.budget.on_told(credit);
                        peer.budget.on_replied(room);
                    }
                }
                Err((RmaError::Full, bytes)) => {
                    counters.long_reply_stalls += u64::from(!reply.stalled);
                    reply.stalled = true;
                    reply.bytes = bytes;
                    return true;
                }
                Err(_) => {}
            }
            replies.waiting.pop_front();
            replies.bytes -= len;
        }
        if std::mem::take(&mut replies.close_after) {
            endpoint.close(peer.id);
        }
        false
    }
}

/// Copies that wait for one requester.
const BYTES_MAX: usize = 16 << 20;
