//! A port whose card steers: each endpoint has a queue pair of its own, and a MAC address of its own to be found by, which
//! is what the rules of nearly every card can match. No endpoint waits for another.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::sharing::{NoPlace, Place};
use super::sys::{Mac, Rule, Shim};

/// Who has which queue pair.
pub struct Steered {
    shim: Shim,
    port: u16,
    mac: [u8; 6],
    lanes: Mutex<Box<[Option<Lane>]>>,
}

/// An endpoint, and what leads its frames to it.
struct Lane {
    endpoint: u16,
    _rule: Rule,
}

impl Steered {
    /// For a port that is started with so many queues each way. `Err`: its card does not steer as we need it.
    pub fn new(shim: Shim, port: u16, mac: [u8; 6], queues: u16) -> io::Result<Self> {
        let lanes = (0..queues).map(|_| None).collect();
        let steered = Self { shim, port, mac, lanes: Mutex::new(lanes) };
        // That it has rules says little: so one of those to come, of which nothing stays.
        drop(steered.rule(steered.place(usize::from(queues) - 1))?);
        Ok(steered)
    }

    pub fn join(&self, endpoint: u16) -> Result<Place, NoPlace> {
        let mut lanes = self.lanes();
        if lanes.iter().flatten().any(|lane| lane.endpoint == endpoint) {
            return Err(NoPlace::Taken);
        }
        let number = lanes.iter().position(Option::is_none).ok_or(NoPlace::Full)?;
        let place = self.place(number);
        lanes[number] = Some(Lane { endpoint, _rule: self.rule(place).map_err(NoPlace::Refused)? });
        Ok(place)
    }

    /// What still lies in the queue is for a number that the next one there has not.
    pub fn leave(&self, place: Place) {
        self.lanes()[place.number] = None;
    }

    fn place(&self, number: usize) -> Place {
        Place { number, mac: address(self.mac, number as u8) }
    }

    fn rule(&self, place: Place) -> io::Result<Rule> {
        let mac = Mac { bytes: place.mac, own: place.mac == self.mac };
        self.shim.rule_add(mac, self.shim.queue(self.port, place.number as u16))
    }

    fn lanes(&self) -> MutexGuard<'_, Box<[Option<Lane>]>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The address of an endpoint's place behind a card: the card's own for the first, locally administered ones for the others.
/// They differ in the maker's half, since the ports of one card differ in the other.
fn address(card: [u8; 6], number: u8) -> [u8; 6] {
    const LOCAL_BIT: u8 = 0x02;
    let [first, second, rest @ ..] = card;
    let [a, b, c, d] = rest;
    if number == 0 { card } else { [first | LOCAL_BIT, second ^ number, a, b, c, d] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_has_an_address_of_its_own() {
        for card in [[0x3c, 0xfd, 0xfe, 1, 2, 3], [2, 0, 0, 0, 0xa, 0], [2, 7, 0, 0, 0xa, 0]] {
            let all: Vec<_> = (0..8).map(|number| address(card, number)).collect();
            assert_eq!(all[0], card);
            for (number, mac) in all.iter().enumerate() {
                assert!(!all[..number].contains(mac), "{mac:x?}");
                assert_eq!(mac[0] & 1, 0, "{mac:x?} is a group's");
            }
        }
    }
}
