//! One direction of a connection: keys that follow from the job's secret, and frames under them.

use ring::aead::{AES_128_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

use super::replay::ReplayWindow;
use super::{Job, TAG_LEN, split_tag};
use crate::counters::Reject;
use crate::wire::{FULL_LEN, NUMBER, Tokens};

/// Frames on their way out.
#[derive(Debug)]
pub(super) struct Outgoing {
    tokens: Tokens,
    /// Number of the next frame. Never used twice under one key.
    next: u64,
    key: Key,
}

/// Frames that come in.
#[derive(Debug)]
pub(super) struct Incoming {
    tokens: Tokens,
    window: ReplayWindow,
    /// Of the newest frame's generation and of the one before, which late frames are of.
    keys: [Option<Key>; 2],
}

/// A key, and which frames are under it: those whose number divided by [`FRAMES_PER_KEY`] is `generation`.
#[derive(Debug)]
struct Key {
    generation: u64,
    key: LessSafeKey,
}

impl Key {
    fn new(job: &Job, tokens: Tokens, generation: u64) -> Self {
        let (from, to) = (tokens.from.to_le_bytes(), tokens.to.to_le_bytes());
        let generation_bytes = generation.to_le_bytes();
        let info = [&b"connection"[..], &from, &to, &generation_bytes];
        let key = job.secret.expand(&info, &AES_128_GCM).expect("a key is shorter than a hash's limit");
        Self { generation, key: LessSafeKey::new(UnboundKey::from(key)) }
    }
}

impl Outgoing {
    pub fn new(job: &Job, tokens: Tokens) -> Self {
        Self { tokens, next: 0, key: Key::new(job, tokens, 0) }
    }

    /// Uses up numbers.
    #[cfg(test)]
    pub fn skip(&mut self, frames: u64) {
        self.next += frames;
    }

    /// Upper half of the next number.
    pub const fn number_high(&self) -> u32 {
        (self.next >> 32) as u32
    }

    #[inline]
    pub fn seal(&mut self, job: &Job, frame: &mut [u8], has_records: bool) {
        let number = self.next;
        self.next += 1;
        if number / FRAMES_PER_KEY != self.key.generation {
            self.key = Key::new(job, self.tokens, number / FRAMES_PER_KEY);
        }
        frame[NUMBER].copy_from_slice(&(number as u32).to_le_bytes());
        let (frame, tag) = frame.split_last_chunk_mut::<TAG_LEN>().expect("the tag has its place");
        let (clear, secret) = frame.split_at_mut(clear_len(job, frame.len(), has_records));
        let sealed = self.key.key.seal_in_place_separate_tag(nonce(number), Aad::from(clear), secret);
        tag.copy_from_slice(sealed.expect("a frame is shorter than the cipher's limit").as_ref());
    }
}

impl Incoming {
    pub fn new(job: &Job, tokens: Tokens) -> Self {
        Self { tokens, window: ReplayWindow::new(), keys: [Some(Key::new(job, tokens, 0)), None] }
    }

    #[inline]
    pub fn open<'a>(
        &mut self,
        job: &Job,
        sealed: &'a [u8],
        has_records: bool,
        scratch: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], Reject> {
        let (frame, tag) = split_tag(sealed)?;
        let low = frame[NUMBER].try_into().expect("four bytes");
        let number = self.window.expand(u32::from_le_bytes(low));
        if !self.window.is_new(number) {
            return Err(Reject::Replay);
        }
        let generation = number / FRAMES_PER_KEY;
        let place = (generation % 2) as usize;
        let mut fresh = None;
        let key = match &self.keys[place] {
            Some(key) if key.generation == generation => key,
            // Only the next generation may follow: a forger cannot make us expand keys at his pleasure beyond this one.
            _ if self.keys[1 - place].as_ref().is_some_and(|key| key.generation + 1 == generation) => {
                fresh.insert(Key::new(job, self.tokens, generation))
            }
            _ => return Err(Reject::Forged),
        };
        let clear = clear_len(job, frame.len(), has_records);
        let opened = if clear == frame.len() {
            key.key.open_in_place(nonce(number), Aad::from(frame), &mut tag.clone()).map(|_| frame)
        } else {
            scratch.clear();
            scratch.extend_from_slice(sealed);
            let (header, secret) = scratch.split_at_mut(clear);
            let opened = key.key.open_in_place(nonce(number), Aad::from(header), secret).map(drop);
            opened.map(|()| &scratch[..frame.len()])
        };
        let opened = opened.map_err(|_| Reject::Forged)?;
        self.window.take(number);
        if fresh.is_some() {
            self.keys[place] = fresh;
        }
        Ok(opened)
    }
}

/// Whether a frame without secrets was sealed in the direction of `tokens`, told by nothing but the frame: its number ends with what
/// stands in it, and begins with `high`. It may have come before.
pub(super) fn check_alone(job: &Job, tokens: Tokens, high: u32, sealed: &[u8]) -> Result<(), Reject> {
    let (frame, tag) = split_tag(sealed)?;
    let low = frame[NUMBER].try_into().expect("four bytes");
    let number = u64::from(high) << 32 | u64::from(u32::from_le_bytes(low));
    let Key { key, .. } = Key::new(job, tokens, number / FRAMES_PER_KEY);
    let mut tag = *tag;
    key.open_in_place(nonce(number), Aad::from(frame), &mut tag).map(drop).map_err(|_| Reject::Forged)
}

/// Bytes at a frame's front that everybody may read: the header, and the body unless it is records that are encrypted. (A Ping's
/// tokens are what its receiver finds the key by.)
#[inline]
fn clear_len(job: &Job, len: usize, has_records: bool) -> usize {
    if job.encrypts && has_records { FULL_LEN } else { len }
}

/// 96 bits, of which a direction's frames under one key use 64 (NIST SP 800-38D, 8.2.1).
#[inline]
fn nonce(number: u64) -> Nonce {
    let mut bytes = [0; NONCE_LEN];
    bytes[NONCE_LEN - 8..].copy_from_slice(&number.to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}

/// RFC 9001 (6.6) allows 2^23 packets of up to 2^16 bytes under one key of this cipher. Expanding one takes a microsecond.
pub(super) const FRAMES_PER_KEY: u64 = 1 << 20;
