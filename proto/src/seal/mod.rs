//! Authenticated frames: a key that a job's processes share, and what keeps everybody else out.
//!
//! A protected frame is the frame of [`crate::wire`] with TAG set, a running number in the place of its check, and 16
//! bytes of tag behind it. Connections' frames are sealed by AES-128-GCM (NIST SP 800-38D), each direction of each life
//! of a connection under keys of its own; the frames that open a connection carry an HMAC (RFC 2104). `PROTOCOL.md` has
//! the rules.

mod direction;
mod key;
mod replay;

use ring::{hkdf, hmac};

pub use key::{JobKey, KeyError, Protection, ProtectionError};

use crate::counters::Reject;
use crate::wire::{FULL_LEN, HELLO_LEN, Tokens};
use direction::{Incoming, Outgoing};

/// Bytes that a protected frame is longer.
pub(crate) const TAG_LEN: usize = 16;

/// What follows from the job's key, for all connections.
#[derive(Debug)]
pub(crate) struct Job {
    /// Keys of connections are expanded from it (RFC 5869).
    secret: hkdf::Prk,
    /// Of frames that belong to no connection yet.
    opening: hmac::Key,
    encrypts: bool,
}

/// Both directions of one connection.
#[derive(Debug)]
pub(crate) struct Seal {
    outgoing: Outgoing,
    incoming: Incoming,
}

impl Job {
    /// What `protection` asks for; `None` if it needs no key.
    pub fn new(protection: Protection) -> Option<Self> {
        let (key, encrypts) = match protection {
            Protection::Checked => return None,
            Protection::Authenticated(key) => (key, false),
            Protection::Encrypted(key) => (key, true),
        };
        // The two ways of protection share no key, so that nobody can turn one into the other.
        let label: &[u8] = if encrypts { b"sidelane 1 encrypted" } else { b"sidelane 1 authenticated" };
        let secret = hkdf::Salt::new(hkdf::HKDF_SHA256, label).extract(key.bytes());
        let opening = secret.expand(&[b"opening"], hmac::HMAC_SHA256).expect("one hash long").into();
        Some(Self { secret, opening, encrypts })
    }

    /// Writes the tag of a Hello, HelloAck or Reset, whose last [`TAG_LEN`] bytes are its place.
    pub fn seal_opening(&self, frame: &mut [u8]) {
        let at = frame.len() - TAG_LEN;
        let tag = hmac::sign(&self.opening, &opening_digest(&frame[..at]));
        frame[at..].copy_from_slice(&tag.as_ref()[..TAG_LEN]);
    }

    /// A Hello, HelloAck or Reset without its tag, if somebody wrote it who has the job's key.
    pub fn open_opening<'a>(&self, frame: &'a [u8]) -> Result<&'a [u8], Reject> {
        let (frame, tag) = split_tag(frame)?;
        let right = hmac::sign(&self.opening, &opening_digest(frame));
        // In constant time, though the tag of an opening frame says nothing about others.
        let differ = right.as_ref().iter().zip(tag).fold(0, |bits, (right, tag)| bits | (right ^ tag));
        if differ == 0 { Ok(frame) } else { Err(Reject::Forged) }
    }

    /// Whether a Ping to a connection that is not here is what the peer of such a connection would write. `high` is what it says
    /// is the upper half of its number.
    pub fn check_lost_ping(&self, tokens: Tokens, high: u32, frame: &[u8]) -> Result<(), Reject> {
        direction::check_alone(self, tokens, high, frame)
    }
}

impl Seal {
    /// Of the connection in which we are `own` and the peer is `theirs`.
    pub fn new(job: &Job, own: u64, theirs: u64) -> Self {
        Self {
            outgoing: Outgoing::new(job, Tokens { from: own, to: theirs }),
            incoming: Incoming::new(job, Tokens { from: theirs, to: own }),
        }
    }

    /// Numbers a written frame, encrypts its records if that is asked for, and writes the tag into its last [`TAG_LEN`]
    /// bytes.
    pub fn seal(&mut self, job: &Job, frame: &mut [u8], has_records: bool) {
        self.outgoing.seal(job, frame, has_records);
    }

    /// Upper half of the next frame's number. Who knows nothing of the connection has to be told, to find the key.
    pub fn number_high(&self) -> u32 {
        self.outgoing.number_high()
    }

    /// Uses up numbers.
    #[cfg(test)]
    pub fn skip(&mut self, frames: u64) {
        self.outgoing.skip(frames);
    }

    /// The frame as it was before [`Self::seal`], without its tag. `scratch` is memory for its records.
    pub fn open<'a>(
        &mut self,
        job: &Job,
        frame: &'a [u8],
        has_records: bool,
        scratch: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], Reject> {
        self.incoming.open(job, frame, has_records, scratch)
    }
}

/// What the tag of an opening frame covers: the header, the body, and how long its padding is.
fn opening_digest(frame: &[u8]) -> [u8; FULL_LEN + HELLO_LEN + 4] {
    let mut digest = [0; FULL_LEN + HELLO_LEN + 4];
    let covered = frame.len().min(FULL_LEN + HELLO_LEN);
    digest[..covered].copy_from_slice(&frame[..covered]);
    digest[FULL_LEN + HELLO_LEN..].copy_from_slice(&(frame.len() as u32).to_le_bytes());
    digest
}

/// A frame and its tag. What is too short for both is refused.
fn split_tag(frame: &[u8]) -> Result<(&[u8], &[u8; TAG_LEN]), Reject> {
    frame.split_last_chunk().filter(|(frame, _)| frame.len() >= FULL_LEN).ok_or(Reject::Truncated)
}

#[cfg(test)]
mod tests;
