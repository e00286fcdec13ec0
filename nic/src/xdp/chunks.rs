//! One endpoint's chunks: which are free to send from, which wait to be given back, and the exchange with the rings that
//! all endpoints of the queue share.
//!
//! ```text
//! to send:  free --take--> in the transmit ring --kernel--> completion ring --exchange--> free
//! to come:  fill ring --kernel--> receive ring --shown--> held --exchange--> fill ring
//! ```

use super::ring::Ring;
use super::shared::{BATCH, Guard, HARDWARE_SHARE, RX_CHUNKS, RX_SHARE, Shared, TX_CHUNKS};

/// The account of one endpoint.
pub struct Chunks {
    shared: Shared,
    fill: Ring<u64>,
    completion: Ring<u64>,
    place: u32,
    /// Ours to send from; the last one goes first, since it is the hottest in the cache.
    free: Vec<u16>,
    /// Which of ours are in the transmit ring or with the kernel: what comes back twice is counted once.
    away: [bool; TX_CHUNKS],
    /// Chunks of frames that were shown, on their way back to the fill ring. Has room for all there are.
    held: Vec<u64>,
}

impl Chunks {
    /// The chunks of place `place`, all free, and a share of those for frames to come. `members` with us.
    pub fn new(
        shared: Shared,
        fill: Ring<u64>,
        completion: Ring<u64>,
        place: u32,
        members: u32,
        zero_copy: bool,
    ) -> Option<Self> {
        let mut account = shared.lock()?;
        account.last_place = place;
        account.returned[place as usize].take();
        let wanted = members * RX_SHARE + if zero_copy { HARDWARE_SHARE } else { 0 };
        give_out(&mut account, &shared, &fill, wanted);
        drop(account);
        Some(Self {
            shared,
            fill,
            completion,
            place,
            free: (0..TX_CHUNKS as u16).rev().collect(),
            away: [false; TX_CHUNKS],
            held: Vec::with_capacity(RX_CHUNKS as usize),
        })
    }

    /// The memory.
    #[inline]
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// The chunk that is to be sent from next, if one is free. It stays free until [`Chunks::take`].
    #[inline]
    pub fn next_free(&self) -> Option<u64> {
        self.free.last().map(|number| self.shared.tx_chunk(self.place, *number))
    }

    /// Takes the chunk that [`Chunks::next_free`] named. It comes back when the kernel has sent it.
    #[inline]
    pub fn take(&mut self) {
        if let Some(number) = self.free.pop() {
            self.away[usize::from(number)] = true;
        }
    }

    /// Takes a chunk back that the kernel will never send.
    pub fn put_back(&mut self, address: u64) {
        if let Some((place, number)) = self.shared.owner(address)
            && place == self.place
        {
            restore(&mut self.free, &mut self.away, number);
        }
    }

    /// True when so few are free that a look for those that came back is worth its price.
    #[inline]
    pub fn is_short(&self) -> bool {
        self.free.len() < TX_CHUNKS - 2 * BATCH as usize
    }

    /// Keeps the chunk of a received frame until the next exchange.
    #[inline]
    pub fn hold(&mut self, address: u64) {
        if self.held.len() < self.held.capacity() {
            self.held.push(address);
        }
    }

    /// True when enough chunks wait to be given back.
    #[inline]
    pub fn holds_a_batch(&self) -> bool {
        self.held.len() >= BATCH as usize
    }

    /// True when all chunks of received frames are given back.
    pub fn holds_nothing(&self) -> bool {
        self.held.is_empty()
    }

    /// True when the kernel has nowhere to put a frame to come.
    #[inline]
    pub fn is_dry(&self) -> bool {
        self.fill.filled() == 0
    }

    /// True when the fill ring's reader has to be told of what [`Chunks::exchange`] put there.
    #[inline]
    pub fn fill_needs_wakeup(&self) -> bool {
        self.fill.needs_wakeup()
    }

    /// Gives chunks back for frames to come, and collects those that were sent. Does nothing when another endpoint is
    /// at it: then it is done the next time.
    pub fn exchange(&mut self) {
        let Self { shared, fill, completion, place, free, away, held } = self;
        let Some(mut account) = shared.try_lock() else { return };
        collect(&mut account, shared, completion, *place, free, away);
        let (at, room) = (fill.producer(), fill.len() - fill.filled());
        let count = (held.len() as u32).min(room);
        let kept = held.len() - count as usize;
        for (index, address) in (0..count).zip(&held[kept..]) {
            fill.write(at.wrapping_add(index), *address);
        }
        held.truncate(kept);
        fill.set_producer(at.wrapping_add(count));
        if fill.filled() < BATCH {
            let more = account.given_out.saturating_add(2 * BATCH);
            give_out(&mut account, shared, fill, more);
        }
    }
}

/// Empties the completion ring: ours become free, those of others are put where they look.
fn collect(
    account: &mut Guard,
    shared: &Shared,
    completion: &Ring<u64>,
    own_place: u32,
    free: &mut Vec<u16>,
    away: &mut [bool; TX_CHUNKS],
) {
    for number in account.returned[own_place as usize].take() {
        restore(free, away, *number);
    }
    let from = completion.consumer();
    let count = completion.filled();
    for index in 0..count {
        let Some((place, number)) = shared.owner(completion.read(from.wrapping_add(index))) else { continue };
        if place == own_place {
            restore(free, away, number);
        } else {
            account.returned[place as usize].push(number);
        }
    }
    completion.set_consumer(from.wrapping_add(count));
}

/// A chunk that is away becomes free. One that is not was sent by the last owner of our place.
#[inline]
fn restore(free: &mut Vec<u16>, away: &mut [bool; TX_CHUNKS], number: u16) {
    if let Some(away) = away.get_mut(usize::from(number))
        && std::mem::take(away)
    {
        free.push(number);
    }
}

/// Puts chunks that were never in the fill ring there, until `wanted` were given out or there are no more.
fn give_out(account: &mut Guard, shared: &Shared, fill: &Ring<u64>, wanted: u32) {
    let (from, at) = (account.given_out, fill.producer());
    let room = fill.len() - fill.filled();
    let count = wanted.min(RX_CHUNKS).saturating_sub(from).min(room);
    for index in 0..count {
        fill.write(at.wrapping_add(index), shared.rx_chunk(from + index));
    }
    account.given_out = from + count;
    fill.set_producer(at.wrapping_add(count));
}
