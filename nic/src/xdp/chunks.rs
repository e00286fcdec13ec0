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

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::os::fd::{AsFd, OwnedFd};

    use super::super::shared::Shape;
    use super::super::sys;
    use super::*;

    /// What the members of a queue share, and the kernel's side of its rings.
    struct Queue {
        memories: [OwnedFd; 3],
        shared: Shared,
        fill: Ring<u64>,
        completion: Ring<u64>,
    }

    impl Queue {
        fn new() -> Self {
            let shape = Shape::new(1514, false);
            let memories = [shape.memory_len(), 4096, 4096].map(|len| sys::shared_memory(len).unwrap());
            let shared = Shared::create(memories[0].as_fd(), shape).unwrap();
            let [fill, completion] = [1, 2].map(|ring: usize| Ring::within(memories[ring].as_fd(), RING));
            Self { memories, shared, fill, completion }
        }

        fn member(&self, place: u32) -> Chunks {
            let shared = Shared::join(self.memories[0].as_fd()).unwrap().unwrap();
            let [fill, completion] = [1, 2].map(|ring: usize| Ring::within(self.memories[ring].as_fd(), RING));
            Chunks::new(shared, fill, completion, place, 1, false).unwrap()
        }

        /// Takes so many chunks for frames.
        fn take(&self, count: u32) -> Vec<u64> {
            let from = self.fill.consumer();
            let taken = (0..count).map(|index| self.fill.read(from.wrapping_add(index))).collect();
            self.fill.set_consumer(from.wrapping_add(count));
            taken
        }

        /// Has sent these.
        fn complete(&self, addresses: &[u64]) {
            let at = self.completion.producer();
            for (index, address) in (0..).zip(addresses) {
                self.completion.write(at.wrapping_add(index), *address);
            }
            self.completion.set_producer(at.wrapping_add(addresses.len() as u32));
        }
    }

    fn take(member: &mut Chunks) -> u64 {
        let address = member.next_free().unwrap();
        member.take();
        address
    }

    const RING: u32 = 128;

    #[test]
    fn a_chunk_that_was_sent_is_its_member_s_again_once_whoever_finds_it() {
        let queue = Queue::new();
        let [mut a, mut b] = [0, 1].map(|place| queue.member(place));
        let [of_a, of_b] = [take(&mut a), take(&mut b)];
        queue.complete(&[of_b, of_a, of_a]);
        a.exchange();
        assert_eq!((a.free.len(), b.free.len(), queue.completion.filled()), (TX_CHUNKS, TX_CHUNKS - 1, 0));
        b.exchange();
        assert_eq!((b.free.len(), take(&mut b)), (TX_CHUNKS, of_b));
        // What others have is not taken back for it.
        b.put_back(of_a);
        assert_eq!(b.free.len(), TX_CHUNKS - 1);
        b.put_back(of_b);
        assert_eq!(b.free.len(), TX_CHUNKS);
    }

    #[test]
    fn what_comes_back_for_the_last_owner_of_a_place_is_not_the_next_one_s() {
        let queue = Queue::new();
        let (mut gone, mut other) = (queue.member(0), queue.member(1));
        queue.complete(&[take(&mut gone)]);
        other.exchange();
        drop(gone);
        let mut next = queue.member(0);
        take(&mut next);
        next.exchange();
        assert_eq!(next.free.len(), TX_CHUNKS - 1, "it is in the ring");
    }

    #[test]
    fn chunks_wait_while_the_fill_ring_has_no_room_for_them() {
        let queue = Queue::new();
        let mut member = queue.member(0);
        assert_eq!(queue.fill.filled(), RING);
        for address in queue.take(10) {
            member.hold(address);
        }
        member.exchange();
        assert!(member.holds_nothing() && queue.fill.filled() == RING);
        let before = queue.fill.producer();
        (0..10).for_each(|number| member.hold(queue.shared.rx_chunk(number)));
        member.exchange();
        assert_eq!((member.held.len(), queue.fill.producer()), (10, before));
        queue.take(4);
        member.exchange();
        assert_eq!((member.held.len(), queue.fill.producer()), (6, before + 4));
        let room = member.held.capacity();
        (0..=room).for_each(|_| member.hold(0));
        assert_eq!(member.held.capacity(), room, "nothing is allocated");
    }

    #[test]
    fn a_fill_ring_that_runs_dry_is_filled_until_every_chunk_was_given_out_once() {
        let queue = Queue::new();
        let mut member = queue.member(0);
        let mut given = HashSet::new();
        loop {
            let taken = queue.take(queue.fill.filled());
            if taken.is_empty() {
                break;
            }
            assert!(taken.into_iter().all(|address| given.insert(address)), "one of them twice");
            member.exchange();
        }
        assert!(
            given.len() == RX_CHUNKS as usize && given.iter().all(|address| queue.shared.owner(*address).is_none())
        );
    }
}
