//! Long replies: bytes into a region that the requester has published, then the reply's handler there.

use sidelane_nic::Nic;

use super::replier::Replier;
use super::wire::{Head, Kind, put_whole, record_len};
use super::{ARGS_MAX, ActiveMessages, LongError};
use crate::{PeerId, PutHow, RemoteKey, RmaError, SendError};

/// One whose put was not handed over yet: it may have to wait for room, which a handler must not. There are never more than
/// requests whose room is not given back.
#[derive(Debug)]
pub(super) struct LongReply {
    to: PeerId,
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

impl Replier<'_> {
    /// Copies `bytes`, puts them at `offset` of a region of the requester's, and then runs `handler` there with `args`, for which
    /// the request has to allow room. When it runs they are in place. It leaves when the handlers of this poll are done and the
    /// put finds room, so it may come behind the replies to requests that were handled later.
    ///
    /// A put that the requester refuses is told here by [`crate::Event::OpFailed`]; the handler runs all the same. Errors of the
    /// request as [`Self::reply`] has them; of the put `Bounds`, and `Full` when the system has no memory for the copy.
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
        let mut copy = self.outlets.short.spares.take(bytes.len()).ok_or(RmaError::Full)?;
        copy.extend_from_slice(bytes);
        let mut words = [0; ARGS_MAX];
        words[..args.len()].copy_from_slice(args);
        self.outlets.long.push_back(LongReply {
            to: self.peer.id,
            key: *key,
            offset,
            bytes: copy,
            handler,
            args: words,
            words: args.len() as u8,
            room: self.room,
            stalled: false,
        });
        *self.replied = true;
        Ok(())
    }
}

impl<N: Nic, S> ActiveMessages<N, S> {
    /// Hands over the long replies that find room.
    #[cold]
    pub(super) fn send_long_replies(&mut self) {
        for _ in 0..self.long_replies.len() {
            let waiting = self.long_replies.pop_front().and_then(|reply| self.send_long_reply(reply));
            self.long_replies.extend(waiting);
        }
    }

    /// Gives it back when it has to wait. A requester that is gone waits for no reply.
    fn send_long_reply(&mut self, mut reply: LongReply) -> Option<LongReply> {
        let LongReply { to, ref key, offset, handler, words, room, .. } = reply;
        match self.endpoint.put_buffer(to, key, offset, std::mem::take(&mut reply.bytes), PutHow::default()) {
            Err((RmaError::Full, bytes)) => {
                self.counters.long_reply_stalls += u64::from(!reply.stalled);
                return Some(LongReply { bytes, stalled: true, ..reply });
            }
            Err(_) => return None,
            Ok(_) => {}
        }
        let budget = &mut self.peers.get(to)?.budget;
        let credit = budget.due();
        let head = Head { kind: Kind::Reply, has_credit: credit.is_some(), words, handler, room };
        let args = &reply.args[..usize::from(words)];
        let write = |record: &mut [u8]| put_whole(record, head, credit, args, &[]);
        self.endpoint.send_reserved(to, record_len(credit.is_some(), args.len(), 0), write).ok()?;
        budget.on_told(credit);
        budget.on_replied(room);
        None
    }
}
