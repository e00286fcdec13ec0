//! What Active Messages know of one peer.

use super::budget::Budget;
use super::long_reply::LongReplies;
use crate::PeerId;

/// One connected peer, from its `Connected` until its place in the table is another's.
#[derive(Debug)]
pub(super) struct Peer {
    pub id: PeerId,
    /// False once either side has closed.
    pub open: bool,
    /// It is in the list of those to be told.
    pub owing: bool,
    /// Longest record that fits a frame.
    pub record_max: usize,
    /// A request was accepted for it, by an engine, that never could be sent.
    pub lost: bool,
    /// [`Budget::sent`] when we last asked.
    pub asked_at: Option<u64>,
    pub budget: Budget,
    pub long_replies: LongReplies,
}

impl Peer {
    /// It has just connected, and is owed the word of its credit.
    pub fn new(id: PeerId, reserve: usize, record_max: usize) -> Self {
        Self {
            id,
            open: true,
            owing: true,
            record_max,
            lost: false,
            asked_at: None,
            budget: Budget::new(reserve, record_max),
            long_replies: LongReplies::default(),
        }
    }
}

/// Peers by their index.
#[derive(Debug, Default)]
pub(super) struct Peers {
    entries: Vec<Option<Peer>>,
}

impl Peers {
    /// The peer that `id` names, if it is still that one.
    #[inline]
    pub fn get(&mut self, id: PeerId) -> Option<&mut Peer> {
        self.at(id.index).filter(|peer| peer.id == id)
    }

    /// As [`Self::get`], to look at.
    pub fn seen(&self, id: PeerId) -> Option<&Peer> {
        self.entries.get(usize::from(id.index))?.as_ref().filter(|peer| peer.id == id)
    }

    /// The peer at `index`.
    #[inline]
    pub fn at(&mut self, index: u16) -> Option<&mut Peer> {
        self.entries.get_mut(usize::from(index))?.as_mut()
    }

    /// A new peer takes the place of the one before it.
    pub fn insert(&mut self, peer: Peer) {
        let index = usize::from(peer.id.index);
        if self.entries.len() <= index {
            self.entries.resize_with(index + 1, || None);
        }
        self.entries[index] = Some(peer);
    }
}
