//! What a connection makes of what opens it, and of what ends it from outside.

use sidelane_nic::time::Instant;

use super::{Conn, Owed, Phase, SILENT_KEEP_ALIVES, TurnContext};
use crate::counters::Reject;
use crate::event::GoneReason;
use crate::in_flight::WINDOW_MAX;
use crate::path::CREDIT_UNIT;
use crate::wire::{Check, Hello, Tokens};

impl Conn {
    /// Takes in a Hello from this peer's address. `seen_len` is the length of its frame.
    pub fn handle_hello(&mut self, now: Instant, hello: &Hello, seen_len: usize) -> Result<(), Reject> {
        match self.phase {
            // Both sides connect at once: each answers on the connection that it has.
            Phase::Connecting { give_up_at, .. } => {
                self.learn(hello, seen_len);
                self.heard_at = now;
                self.phase = Phase::Accepted { asked: true, give_up_at };
                self.owed.remove(Owed::HELLO);
                self.owed.add(Owed::HELLO_ACK);
                Ok(())
            }
            // Our answer was lost, or is late.
            _ if hello.token == self.keys.theirs => {
                self.owed.add(Owed::HELLO_ACK);
                Ok(())
            }
            // Perhaps the peer lives anew; perhaps somebody else wrote this. The peer is asked.
            _ => {
                self.owed.add(Owed::PING);
                Err(Reject::Challenged)
            }
        }
    }

    /// Takes in the answer to our Hello: its echo is our token.
    pub fn handle_hello_ack(&mut self, turn: &mut TurnContext, hello: &Hello) {
        match self.phase {
            Phase::Connecting { .. } => {
                self.learn(hello, hello.seen_len as usize);
                self.open(turn);
                // Without this the peer would learn that its answer arrived only by our first message.
                self.ack.on_request();
            }
            // The echo proves that this peer saw our Hello, which the Hello that we accepted does not prove of its sender.
            Phase::Accepted { asked: true, .. } if hello.token != self.keys.theirs => {
                self.learn(hello, hello.seen_len as usize);
                self.open(turn);
                self.ack.on_request();
            }
            Phase::Accepted { .. } if hello.token == self.keys.theirs => {
                self.open(turn);
                self.ack.on_request();
            }
            // A copy: perhaps the ack of the first was lost.
            Phase::Open | Phase::Closing if hello.token == self.keys.theirs => self.ack.on_request(),
            _ => {}
        }
    }

    /// Takes in a Reset: the peer knows nothing of a connection with these tokens. `fresh` is a token for another try.
    pub fn handle_reset(&mut self, turn: &mut TurnContext, tokens: Tokens, fresh: u64) -> Result<(), Reject> {
        if tokens.to != self.keys.own || tokens.from != self.keys.theirs || self.keys.theirs == 0 {
            return Err(Reject::Epoch);
        }
        // A job's key says that a member wrote it, and not which: whoever brings our frames to another one has it from that. Silence
        // has to bear it out.
        let patience = turn.config.keep_alive.saturating_mul(SILENT_KEEP_ALIVES);
        if turn.job.is_some() && turn.now.since(self.heard_at) < patience {
            self.keys.denied = true;
            return Ok(());
        }
        match self.phase {
            Phase::Accepted { asked: true, give_up_at } => self.begin_anew(turn, give_up_at, fresh),
            _ => self.lost(turn, GoneReason::Restarted),
        }
        Ok(())
    }

    /// The driver knows that the peer cannot be reached any more.
    pub fn handle_link_gone(&mut self, turn: &mut TurnContext) {
        self.lost(turn, GoneReason::LinkGone);
        self.owed.remove(Owed::RESET);
    }

    /// Notes what the peer's Hello says.
    pub(super) fn learn(&mut self, hello: &Hello, proven_len: usize) {
        self.keys.theirs = hello.token;
        self.keys.remote = hello.index;
        self.keys.check_in = Check::between(hello.token, self.keys.own);
        self.keys.check_out = Check::between(self.keys.own, hello.token);
        self.keys.seal = None;
        self.keys.denied = false;
        self.path.learn(hello, proven_len);
        self.limit = u64::from(hello.credit) / CREDIT_UNIT * CREDIT_UNIT;
        self.congestion.open(u32::from(hello.window).clamp(1, WINDOW_MAX));
        self.window = self.congestion.frames();
    }
}
