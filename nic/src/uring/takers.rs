//! Which peers get trains: those that read them, at the end of a path that carries them.
//!
//! Nothing in a peer's ordinary frames tells. Who has super-packets instead, or no veth, or is no `uring` at all, never sees a
//! piece of a train, and neither does who is behind something that eats IP. So a peer that a train would go to is asked by a
//! probe, which is a train itself, and gets trains while it answers; the answer is another one. Frames meanwhile go one by one.
//!
//! ```text
//! unknown --a train would go--> asked --answer--> taker --ANSWER_LASTS without another--> asked
//! ```
//!
//! A taker is asked on and on: what is opened in its place may be of another kind. So an answer counts from when its probe was sent, which
//! is the probe's number, however long it lay unread: its peer may have gone meanwhile.

use std::collections::HashMap;

use crate::link_table::LINKS_MAX;
use crate::time::{Duration, Instant};

/// What is known of the peers that trains would go to.
#[derive(Debug, Default)]
pub struct Takers {
    /// At most [`PEERS_MAX`].
    peers: HashMap<Peer, Asked>,
}

/// An interface's address, and the endpoint behind it.
pub type Peer = ([u8; 6], u16);

#[derive(Debug)]
struct Asked {
    at: Instant,
    /// When the last probe that was answered was sent.
    answered: Option<Instant>,
}

/// What becomes of a train to a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// It goes; otherwise its frames go one by one.
    pub goes: bool,
    /// The peer is to be asked, now.
    pub ask: bool,
}

impl Takers {
    /// Judges a train to `peer`.
    pub fn judge(&mut self, peer: Peer, now: Instant) -> Verdict {
        let Some(asked) = self.peers.get_mut(&peer) else {
            if self.peers.len() == PEERS_MAX {
                // Most of them have no link any more. Whoever has one is asked again.
                self.peers.clear();
            }
            self.peers.insert(peer, Asked { at: now, answered: None });
            return Verdict { goes: false, ask: true };
        };
        let ask = now.since(asked.at) >= ASK_AFTER;
        if ask {
            asked.at = now;
        }
        Verdict { goes: asked.answered.is_some_and(|at| now.since(at) < ANSWER_LASTS), ask }
    }

    /// `peer` says that the probe that was sent at `sent` got to it. Whoever was not asked says that in vain, and so does who answers what
    /// is still to be asked. It need not be the last probe: an answer may take longer than until the next.
    pub fn on_answer(&mut self, peer: Peer, sent: Instant) {
        if let Some(asked) = self.peers.get_mut(&peer)
            && sent <= asked.at
        {
            asked.answered = asked.answered.max(Some(sent));
        }
    }
}

/// Seldom enough that it costs a stream nothing: a probe takes as long as a frame or two, of some ten thousand. Bursts that are further
/// apart have one each, behind their frames.
const ASK_AFTER: Duration = Duration::from_millis(10);
/// Ten probes or answers in a row are not lost by chance, and the layers above bear a silence of this length.
const ANSWER_LASTS: Duration = Duration::from_millis(100);
const PEERS_MAX: usize = LINKS_MAX;

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: Peer = ([2; 6], 1);
    const OTHER: Peer = ([2; 6], 2);

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(1_000_000_000) + Duration::from_millis(millis)
    }

    fn verdict(goes: bool, ask: bool) -> Verdict {
        Verdict { goes, ask }
    }

    #[test]
    fn who_does_not_answer_is_asked_now_and_then_and_gets_no_trains() {
        let mut takers = Takers::default();
        for asked in [0, 10, 20, 1_000] {
            assert_eq!(takers.judge(PEER, at(asked)), verdict(false, true));
            assert_eq!(takers.judge(PEER, at(asked + 9)), verdict(false, false));
        }
    }

    #[test]
    fn who_answers_gets_trains_for_a_while_and_is_asked_on() {
        let mut takers = Takers::default();
        takers.judge(PEER, at(0));
        takers.on_answer(PEER, at(0));
        assert_eq!(takers.judge(PEER, at(2)), verdict(true, false));
        assert_eq!(takers.judge(PEER, at(99)), verdict(true, true));
        assert_eq!(takers.judge(PEER, at(100)), verdict(false, false), "it has not answered again");
        takers.on_answer(PEER, at(99));
        assert_eq!(takers.judge(PEER, at(103)), verdict(true, false));
        assert_eq!(takers.judge(OTHER, at(103)), verdict(false, true), "each answers for itself");
    }

    #[test]
    fn an_answer_that_lay_unread_is_as_old_as_its_probe() {
        let mut takers = Takers::default();
        (0..=10).for_each(|turn| assert!(takers.judge(PEER, at(turn * 10)).ask));
        takers.on_answer(PEER, at(0));
        assert_eq!(takers.judge(PEER, at(101)), verdict(false, false));
        takers.on_answer(PEER, at(90));
        takers.on_answer(PEER, at(20));
        assert!(takers.judge(PEER, at(189)).goes, "nor does an older one count for more than a later one");
        assert!(!takers.judge(PEER, at(190)).goes);
    }

    #[test]
    fn what_is_still_to_be_asked_is_answered_in_vain() {
        let mut takers = Takers::default();
        takers.judge(PEER, at(0));
        takers.on_answer(PEER, at(1));
        takers.on_answer(PEER, Instant::FAR_FUTURE);
        assert!(!takers.judge(PEER, at(1)).goes);
    }

    #[test]
    fn who_was_not_asked_answers_in_vain() {
        let mut takers = Takers::default();
        takers.on_answer(PEER, at(0));
        assert_eq!(takers.judge(PEER, at(1)), verdict(false, true));
    }

    #[test]
    fn however_many_peers_there_were_few_are_kept() {
        let mut takers = Takers::default();
        for number in 0..=PEERS_MAX as u32 {
            assert!(takers.judge(([2; 6].map(|byte| byte ^ (number >> 16) as u8), number as u16), at(0)).ask);
            assert!(takers.peers.len() <= PEERS_MAX);
        }
    }
}
