//! Whose messages wait to be received: peers take turns.

use crate::conn::Conn;
use crate::queue::PeerQueue;

/// Peers with messages, or a close, in their FIFOs. Each gives some before the next one's turn.
#[derive(Debug)]
pub(crate) struct Ready {
    peers: PeerQueue,
    /// How many the front one may still give.
    left: u32,
}

impl Ready {
    /// Nobody.
    pub const fn new() -> Self {
        Self { peers: PeerQueue::new(), left: TURNS }
    }

    /// True when no message waits.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.peers.is_empty()
    }

    /// Whose turn it is.
    #[inline]
    pub fn front(&self) -> Option<u16> {
        self.peers.front()
    }

    /// How many messages it may give.
    #[inline]
    pub const fn left(&self) -> u32 {
        self.left
    }

    /// Puts a peer at the end if a message of its has come.
    #[inline]
    pub fn note(&mut self, conn: &mut Conn) {
        if conn.has_message() && !conn.ready {
            conn.ready = true;
            self.peers.push_back(conn.id.index);
        }
    }

    /// The front one, which is `conn`, has given `taken` of those that it may.
    #[inline]
    pub fn on_taken(&mut self, taken: u32, conn: &mut Conn) {
        self.left -= taken;
        conn.ready = conn.has_message();
        if !conn.ready || self.left == 0 {
            self.end_turn();
            if conn.ready {
                self.peers.push_back(conn.id.index);
            }
        }
    }

    /// The front one's turn is over.
    #[inline]
    pub fn end_turn(&mut self) {
        self.left = TURNS;
        self.peers.pop_front();
    }
}

/// Messages that one peer gives before the next one's turn.
const TURNS: u32 = 64;
