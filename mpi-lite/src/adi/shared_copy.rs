//! Long messages between processes of one host: read straight from the sender's memory, by pieces ([`crate::both_ends`]), of which a sender
//! that is there writes some straight into the receiver's.
//!
//! ```text
//! sender                                        receiver
//! Announce with an address                  -->  matched
//!                      <-- Share with an address and a place on the board
//! writes the last piece, the one before ..       reads the first piece, the second ..
//!                      <-- Taken                 when all are there
//! ```
//! The board is memory of the receiver's that its senders map: a line for each message, with the two words of its pieces.

use sidelane_nic::share::{Shared, Ticket};

use super::engine::{Engine, Stuck};
use super::peer::Item;
use super::port::Port;
use super::pull;
use super::record::{self, Announce, Note, Share};
use super::request::{Error, Request, State, Status};
use crate::both_ends::{Cut, Pieces};

/// All messages of a device that both ends copy.
#[derive(Debug, Default)]
pub(super) struct SharedCopies {
    board: Board,
    reads: Vec<Read>,
    gives: Vec<Give>,
}

/// One that comes.
#[derive(Clone, Copy, Debug)]
struct Read {
    /// In state [`State::Copying`].
    request: u32,
    send: u64,
    /// Where the sender has the bytes, where they go in the room, and how many they are.
    address: u64,
    at: usize,
    len: usize,
    place: Place,
    /// With what it ends once nothing is written there any more, if that is not that all is there.
    error: Option<Error>,
}

/// One that goes.
#[derive(Clone, Copy, Debug)]
struct Give {
    process: u32,
    send: Request,
    share: Share,
}

/// A line of a board, for one message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub line: u8,
    /// Which of all messages of that line.
    pub number: u16,
}

/// Words of ours that senders see.
#[derive(Debug, Default)]
struct Board {
    /// From the first message on, and what leads there.
    shared: Option<(Shared, Ticket)>,
    /// Lines that are in use, a bit each; all of them where there is no memory for the board.
    used: u32,
    number: u16,
}

impl Board {
    fn take_line(&mut self) -> Option<Place> {
        if self.shared.is_none() && self.used == 0 {
            self.shared = Shared::new(BOARD_LEN).ok().map(|shared| {
                let ticket = shared.ticket();
                (shared, ticket)
            });
            self.used = if self.shared.is_some() { 0 } else { u32::MAX };
        }
        let line = self.used.trailing_ones();
        self.used |= 1u32.checked_shl(line)?;
        self.number = self.number.wrapping_add(1);
        Some(Place { line: line as u8, number: self.number })
    }

    const fn free_line(&mut self, place: Place) {
        self.used &= !(1 << place.line);
    }

    fn pieces(&self, place: Place, len: usize) -> Option<Pieces<'_>> {
        self.shared.as_ref().map(|(shared, _)| pieces(shared, place, len))
    }
}

fn pieces(board: &Shared, place: Place, len: usize) -> Pieces<'_> {
    let line = usize::from(place.line) * LINE;
    Pieces::new([board.word(line), board.word(line + 4)], place.number, Cut::of(len))
}

impl SharedCopies {
    /// Whether any message is copied.
    #[inline]
    pub const fn are_under_way(&self) -> bool {
        !self.reads.is_empty() || !self.gives.is_empty()
    }

    /// Those of the only message that comes.
    #[cfg(test)]
    pub fn first_pieces(&self) -> Pieces<'_> {
        self.board.pieces(self.reads[0].place, self.reads[0].len).unwrap()
    }

    /// Ends one that comes: the sender takes no piece any more, and when those are there that it has taken, or it is, it is over.
    pub fn end(&mut self, request: u32, error: Error) {
        if let Some(read) = self.reads.iter_mut().find(|read| read.request == request) {
            read.error = Some(error);
            if let Some(pieces) = self.board.pieces(read.place, read.len) {
                pieces.close();
            }
        }
    }
}

impl Engine {
    /// Begins to copy the `missing` last bytes of a message that was announced, together with its sender. False where that cannot be, or is
    /// not worth the asking.
    pub fn share_copy(&mut self, request: u32, announce: Announce, missing: usize) -> bool {
        let slot = self.requests.at(request);
        let process = slot.process;
        let state = &mut self.peers[process as usize].pull;
        let worth = missing >= SHARED_MIN && announce.address != 0 && self.single_copy;
        if !worth || !pull::works(state, &self.processes[process as usize]) {
            return false;
        }
        let Some(place) = self.copies.board.take_line() else { return false };
        let Some(pieces) = self.copies.board.pieces(place, missing) else { return false };
        pieces.open();
        slot.state = State::Copying;
        let (send, at, room) = (announce.send, slot.status.bytes - missing, slot.incoming.address());
        let read = Read { request, send, address: announce.address, at, len: missing, place, error: None };
        self.copies.reads.push(read);
        let share = Share { send, room: room + at as u64, at: at as u64, want: missing as u64, place };
        self.say(process, Item::Share(share));
        true
    }

    /// Lets a sender write some of what we read.
    pub fn ask_to_share(&mut self, ports: &mut [Port], to: u32, share: Share) -> Result<(), Stuck> {
        let Some((_, ticket)) = &self.copies.board.shared else { return Ok(()) };
        let ticket = *ticket;
        self.emit(ports, to, |credit| record::share(credit, share, ticket), &[])
    }

    /// A receiver reads a message of ours, and lets us write some of it.
    pub fn handle_share(&mut self, process: u32, share: Share, ticket: Ticket) {
        let send = Request::from_bits(share.send);
        let slot = self.requests.get(send).filter(|slot| slot.process == process);
        let Some(slot) = slot.filter(|slot| matches!(slot.state, State::Announced { .. })) else {
            self.counters.stale += 1;
            return;
        };
        let end = share.at.checked_add(share.want);
        let fits = share.want > 0 && end.is_some_and(|end| end <= slot.outgoing.len() as u64);
        if !fits || usize::from(share.place.line) >= LINES || ticket.len() != BOARD_LEN as u64 {
            self.counters.malformed += 1;
            return;
        }
        // It is asked once, and of who is elsewhere nothing is opened: else the receiver reads all by itself.
        let is_known = self.copies.gives.iter().any(|give| give.send == send);
        if is_known || !self.single_copy || pull::may_push(&self.processes[process as usize]).is_err() {
            return;
        }
        let peer = &mut self.peers[process as usize];
        if peer.board.as_ref().is_none_or(|(known, _)| *known != ticket) {
            peer.board = Shared::of(ticket).ok().map(|mut board| {
                board.close();
                (ticket, board)
            });
        }
        if peer.board.is_some() {
            self.copies.gives.push(Give { process, send, share });
        }
    }

    /// The next piece of each message that both ends copy. True if there are any.
    #[cold]
    pub fn copy_pieces(&mut self) -> bool {
        for index in (0..self.copies.reads.len()).rev() {
            if self.read_piece(index) {
                let read = self.copies.reads.swap_remove(index);
                self.end_read(read);
            }
        }
        for index in (0..self.copies.gives.len()).rev() {
            if !self.give_piece(self.copies.gives[index]) {
                self.copies.gives.swap_remove(index);
            }
        }
        true
    }

    /// True when it is over: nobody writes to its room any more.
    fn read_piece(&mut self, index: usize) -> bool {
        let SharedCopies { board, reads, .. } = &mut self.copies;
        let read = &mut reads[index];
        let Some(pieces) = board.pieces(read.place, read.len) else { return true };
        let slot = self.requests.at(read.request);
        let (peer, process) = (&mut self.peers[slot.process as usize], &self.processes[slot.process as usize]);
        if read.error.is_none()
            && let Some(piece) = pieces.take_front()
        {
            let (from, mut room) = (read.address + piece.start as u64, slot.incoming);
            if let Err(error) = pull::pull(&mut peer.pull, process, from, &mut room.bytes_mut()[read.at..][piece]) {
                pieces.close();
                read.error = Some(error);
            }
            return !pieces.are_left() && pieces.are_there();
        }
        if pieces.are_there() {
            return true;
        }
        // The sender is in the middle of a piece. It is waited for, unless it has ended there.
        if read.error.is_some() && pull::may_push(process).is_err() {
            return true;
        }
        std::thread::yield_now();
        false
    }

    fn end_read(&mut self, Read { request, send, len, place, mut error, .. }: Read) {
        let given_up = self.copies.board.pieces(place, len).is_none_or(|pieces| pieces.is_given_up());
        self.copies.board.free_line(place);
        let slot = self.requests.at(request);
        let (process, status) = (slot.process, slot.status);
        if given_up {
            error = error.or(Some(Error::NoAccess));
        }
        match error {
            None => {
                self.counters.pulled += 1;
                self.say(process, Item::Note { note: Note::Taken, request: send });
                self.requests.complete(request, status);
            }
            // Memory that only its owner reaches: it goes another way.
            Some(Error::NoAccess) if !self.peers[process as usize].gone => {
                slot.state = State::Receiving { missing: len, region: None };
                let receive = self.requests.handle(request);
                self.say(process, Item::Accept { receive, send });
            }
            Some(error) => {
                // It waits for an answer all the same.
                self.say(process, Item::Note { note: Note::Refused, request: send });
                let error = if error == Error::NoAccess { Error::ProcFailed } else { error };
                self.requests.complete(request, Status::failed(error));
            }
        }
    }

    /// False when there is none any more.
    fn give_piece(&mut self, Give { process, send, share }: Give) -> bool {
        let slot = self.requests.get(send).filter(|slot| matches!(slot.state, State::Announced { .. }));
        let (Some(slot), Some((_, board))) = (slot, &self.peers[process as usize].board) else { return false };
        let pieces = pieces(board, share.place, share.want as usize);
        let Some(piece) = pieces.take_back() else { return false };
        let to = share.room + piece.start as u64;
        let bytes = &slot.outgoing.bytes()[share.at as usize..][piece];
        let written = pull::push(&self.processes[process as usize], to, bytes).is_ok();
        if written {
            pieces.put();
            self.counters.given += 1;
        } else {
            pieces.give_up();
        }
        written
    }

    /// Ends what is copied, before its memory is its user's again. True when nobody writes to that any more.
    pub fn end_copies(&mut self) -> bool {
        self.copies.gives.clear();
        let reads: Vec<u32> = self.copies.reads.iter().map(|read| read.request).collect();
        reads.into_iter().for_each(|request| self.copies.end(request, Error::ProcFailed));
        self.copy_pieces();
        self.copies.reads.is_empty()
    }
}

/// Lines of a board: more messages at a time are put.
const LINES: usize = 32;
const LINE: usize = 64;
const BOARD_LEN: usize = LINES * LINE;
/// Least that is shared: less is read in one piece.
const SHARED_MIN: usize = 32 << 10;
