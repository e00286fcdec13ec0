//! Turns to transmit: each connection's plan becomes a frame in the driver's memory.

use sidelane_nic::{Nic, TxSlot};

use super::{BURST, Endpoint};
use crate::conn::{Conn, Plan, TurnContext};
use crate::hint::seldom;
use crate::wire::Tail;

impl<N: Nic> Endpoint<N> {
    /// Lets every connection that may have something to transmit do so, each a burst at the most.
    pub(super) fn transmit(&mut self) {
        let mut committed = std::mem::take(&mut self.committed);
        for _ in 0..self.router.active.len() {
            let Some(index) = self.router.active.pop_front() else { break };
            let at_once = !committed && self.router.active.is_empty();
            let Some((conn, turn)) = self.router.conn_turn(index) else { continue };
            // A lone message has left already (`bench/NOTES.md`, "Instructions per 8 B message").
            let is_done = N::RELIABLE && !conn.wants_to_transmit();
            let verdict = if is_done { Transmitted::NOTHING } else { transmit_one(&mut self.nic, conn, turn, at_once) };
            committed |= verdict.committed;
            conn.queued = verdict.more;
            if let Some(next) = conn.take_timeout_change() {
                self.router.peers.note_due(index, next);
            }
            if verdict.more {
                self.has_more |= !verdict.nic_full;
                self.router.active.push_back(index);
            }
            if seldom(verdict.nic_full) {
                self.router.turn.counters.nic_full += 1;
                // What fills the queue may be what an earlier flush could not hand on.
                committed = true;
                // Where each peer has a ring of its own, that of the next one need not be full.
                if !N::RELIABLE {
                    break;
                }
            }
        }
        if committed {
            self.nic.flush();
        }
        if !N::RELIABLE {
            self.router.catch_up();
        }
    }
}

/// What came of one connection's turn to transmit.
struct Transmitted {
    committed: bool,
    more: bool,
    nic_full: bool,
}

impl Transmitted {
    const NOTHING: Self = Self { committed: false, more: false, nic_full: false };
}

/// `at_once`: its first frame, if that is a run, waits for no others.
#[inline]
fn transmit_one<N: Nic>(nic: &mut N, conn: &mut Conn, turn: &mut TurnContext, mut at_once: bool) -> Transmitted {
    let mut committed = false;
    for _ in 0..BURST {
        if let Some((at, len)) = conn.poll_run(N::RELIABLE)
            && write_whole(nic, conn, turn, len, |conn, turn, frame| conn.write_run(turn, at, frame, N::RELIABLE))
        {
            // Mostly it is the only one: it leaves at once, and the rest is done while it is on its way.
            if std::mem::take(&mut at_once) {
                nic.flush();
            } else {
                committed = true;
            }
            conn.remember_run(turn, at, len, N::RELIABLE);
            if !conn.wants_to_transmit() {
                return Transmitted { committed, more: false, nic_full: false };
            }
            continue;
        }
        let Some(plan) = conn.poll_transmit(turn, N::RELIABLE) else {
            return Transmitted { committed, more: false, nic_full: false };
        };
        if write_frame(nic, conn, turn, plan) {
            (committed, at_once) = (true, false);
            if !conn.wants_to_transmit() {
                return Transmitted { committed, more: false, nic_full: false };
            }
            continue;
        }
        if !committed {
            return Transmitted { committed, more: true, nic_full: true };
        }
        nic.flush();
        committed = false;
    }
    Transmitted { committed, more: true, nic_full: false }
}

/// Writes a frame of `len` bytes as `write` does, and its tag. False when the driver has no slot.
#[inline]
fn write_whole<N: Nic>(
    nic: &mut N,
    conn: &mut Conn,
    turn: &mut TurnContext,
    len: usize,
    write: impl FnOnce(&mut Conn, &mut TurnContext, &mut [u8]),
) -> bool {
    let Some(mut slot) = nic.tx_slot(conn.link, len + turn.tag_len()) else { return false };
    write(conn, turn, &mut slot[..len]);
    if let Some(job) = &turn.job {
        conn.seal(job, &mut slot);
    }
    slot.commit();
    true
}

/// False when the driver has no slot.
#[inline]
fn write_frame<N: Nic>(nic: &mut N, conn: &mut Conn, turn: &mut TurnContext, plan: Plan) -> bool {
    if !N::RELIABLE && turn.job.is_none() {
        if let Some((number, part)) = plan.part() {
            let message = conn.take_large(number);
            let sent = write_before(nic, conn, turn, plan, &message[part]);
            conn.put_large(number, message);
            return sent;
        }
        if let Some(span) = plan.operations()
            && span.bulk_len() > 0
            && let Some((memory, at)) = conn.take_source(turn, span)
        {
            let sent = write_before(nic, conn, turn, plan, &memory.bytes()[at..at + span.bulk_len()]);
            conn.put_source(turn, span, memory);
            return sent;
        }
    }
    let len = Conn::frame_len(plan, N::RELIABLE);
    write_whole(nic, conn, turn, len, |conn, turn, frame| conn.emit(turn, plan, frame, N::RELIABLE))
}

/// Writes the frame whose last bytes are `tail`: sent from where they are if the driver can, or else copied. False when the driver
/// has no slot.
fn write_before<N: Nic>(nic: &mut N, conn: &mut Conn, turn: &mut TurnContext, plan: Plan, tail: &[u8]) -> bool {
    let len = Conn::frame_len(plan, false);
    if tail.len() >= IN_PLACE_MIN
        && let Some(mut slot) = nic.tx_slot_before(conn.link, len - tail.len(), tail)
    {
        conn.emit_before(turn, plan, &mut slot, Tail::Elsewhere(tail));
        slot.commit();
        return true;
    }
    let Some(mut slot) = nic.tx_slot(conn.link, len) else { return false };
    conn.emit_before(turn, plan, &mut slot, Tail::Copied(tail));
    slot.commit();
    true
}

/// Shorter parts are copied: a send of several parts takes 100 ns longer than one of one, about what copying 4 KiB takes.
const IN_PLACE_MIN: usize = 4096;
