//! Several endpoints of one process on one port: what each of them has to itself.

use std::io;

use super::dealer::Dealer;
use super::steered::Steered;

/// How a port's frames find their endpoint.
pub enum Sharing {
    /// The card leads them to a queue of the endpoint's own.
    Steered(Steered),
    /// They come to one queue, and are dealt out.
    Dealt(Box<Dealer>),
}

/// An endpoint's place at its port.
#[derive(Clone, Copy)]
pub struct Place {
    /// Below [`ENDPOINTS_MAX`]. Where the card steers, the number of the queue pair.
    pub number: usize,
    /// The address that its frames are for.
    pub mac: [u8; 6],
}

/// Why an endpoint has no place.
pub enum NoPlace {
    /// Its number is in use.
    Taken,
    /// All places are.
    Full,
    /// The card can steer to no further address.
    Refused(io::Error),
}

impl Sharing {
    /// Gives a place to the endpoint of this number.
    pub fn join(&self, endpoint: u16) -> Result<Place, NoPlace> {
        match self {
            Self::Steered(steered) => steered.join(endpoint),
            Self::Dealt(dealer) => dealer.join(endpoint),
        }
    }

    /// Takes it back. Nobody receives or sends for that endpoint any more.
    pub fn leave(&self, place: Place) {
        match self {
            Self::Steered(steered) => steered.leave(place),
            Self::Dealt(dealer) => dealer.leave(place),
        }
    }
}

/// Most endpoints of one port. A card that steers may have fewer queue pairs, and so fewer places.
pub const ENDPOINTS_MAX: usize = sidelane_dpdk_sys::SL_QUEUES_MAX as usize;
