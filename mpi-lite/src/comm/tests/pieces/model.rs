//! Pieces of random types with equal signatures on both sides, and what is where when they were exchanged.
#![allow(unsafe_code)] // Pieces begin before the memory in which their data is.

use sidelane_nic::rng::Rng;

use crate::comm::Piece;
use crate::datatype::{Datatype, Predefined};

/// What is sent from one rank to another: numbers of one kind, or so many pairs of two.
#[derive(Debug, Clone, Copy)]
pub(super) struct Signature {
    kind: Option<Predefined>,
    count: usize,
}

impl Signature {
    pub(super) fn random(rng: &mut Rng) -> Self {
        let kind = *pick(rng, &[Some(Predefined::Byte), Some(Predefined::Int16), Some(Predefined::Double), None]);
        // The longest are read out of their owners' memory, or go by a rendezvous.
        let count = *pick(rng, &[0, 0, 1, 2, 6, 12, 60, 3_600]);
        Self { kind, count }
    }

    /// A type and how many of it have this signature: `at` its first byte the piece's data begins.
    fn shape(self, rng: &mut Rng) -> (Datatype, usize) {
        let of = self.unit(rng);
        if self.count == 0 {
            return (Datatype::contiguous(0, &of).unwrap(), rng.below(3) as usize);
        }
        let each = *pick(rng, &[1, 2, 3, 4, 6, 12]);
        let each = if self.count.is_multiple_of(each) { each } else { 1 };
        let extent = of.extent();
        let datatype = match rng.below(6) {
            0 => Datatype::contiguous(each, &of),
            1 => Datatype::vector(each, 1, 2, &of),
            // Backwards in memory, and the last one not where its bounds are.
            2 => {
                let places: Vec<isize> = (0..each as isize).rev().map(|at| (2 * at + 1) * extent).collect();
                Datatype::hindexed_block(1, &places, &of)
            }
            3 => Datatype::structure(&[each], &[3 * extent], std::slice::from_ref(&of)),
            4 => Datatype::contiguous(each, &of).map(|all| all.resized(-extent, extent * (each as isize + 3)).unwrap()),
            _ => Ok(of),
        };
        let datatype = datatype.unwrap();
        let count = self.count * self.bytes() / datatype.size();
        (datatype, count)
    }

    fn unit(self, rng: &mut Rng) -> Datatype {
        let Some(kind) = self.kind else {
            // The same two numbers, in another order in memory, with or without a gap.
            let places = *pick(rng, &[[0, 8], [8, 0], [0, 4], [20, 3]]);
            return Datatype::structure(&[1, 1], &places, &[Predefined::Int32.into(), Predefined::Double.into()])
                .unwrap();
        };
        kind.into()
    }

    fn bytes(self) -> usize {
        self.kind.map_or(12, Predefined::size)
    }
}

pub(super) fn pick<'a, T>(rng: &mut Rng, items: &'a [T]) -> &'a T {
    &items[rng.below(items.len() as u64) as usize]
}

/// A random number generator for what two ranks have to know alike.
pub(super) fn known(seed: u64, words: [u64; 3]) -> Rng {
    Rng::new(words.iter().fold(seed, |seed, word| Rng::new(seed ^ word.wrapping_mul(0x9e37_79b9)).next_u64()))
}

/// Pieces of these signatures anywhere in one memory, with gaps, and the memory's length.
fn placed(rng: &mut Rng, signatures: impl IntoIterator<Item = Signature>) -> (Vec<Piece>, usize) {
    let shapes: Vec<_> = signatures.into_iter().map(|signature| signature.shape(rng)).collect();
    let mut order: Vec<usize> = (0..shapes.len()).collect();
    for at in (1..order.len()).rev() {
        order.swap(at, rng.below(at as u64 + 1) as usize);
    }
    let (mut pieces, mut end) = (vec![Piece::none(); shapes.len()], 0);
    for index in order {
        let (datatype, count) = &shapes[index];
        let (low, high) = datatype.span(*count).unwrap();
        end += rng.below(9) as isize;
        pieces[index] = Piece::new(end - low, *count, datatype);
        end += high - low;
    }
    (pieces, end as usize)
}

fn random_bytes(rng: &mut Rng, len: usize) -> Vec<u8> {
    (0..len).map(|_| rng.next_u64() as u8).collect()
}

pub(super) fn pack(memory: &[u8], piece: &Piece) -> Vec<u8> {
    let mut packed = vec![0; piece.datatype.pack_size(piece.count).unwrap()];
    assert_within(memory, piece);
    // SAFETY: all data is within the memory, as it was just found.
    unsafe { piece.datatype.pack_raw(memory.as_ptr().wrapping_offset(piece.at), piece.count, 0, &mut packed) };
    packed
}

pub(super) fn unpack(memory: &mut [u8], piece: &Piece, packed: &[u8]) {
    assert_eq!(piece.datatype.pack_size(piece.count), Ok(packed.len()), "as long on both sides");
    assert_within(memory, piece);
    // SAFETY: all data is within the memory, as it was just found.
    unsafe { piece.datatype.unpack_raw(memory.as_mut_ptr().wrapping_offset(piece.at), piece.count, 0, packed) };
}

fn assert_within(memory: &[u8], piece: &Piece) {
    let (low, high) = piece.datatype.span(piece.count).unwrap();
    assert!(low == high || piece.at + low >= 0 && piece.at + high <= memory.len() as isize, "{piece:?}");
}

/// One rank's part in a call: all can compute everybody's.
pub(super) struct Part {
    pub(super) to: Vec<Piece>,
    pub(super) given: Vec<u8>,
    pub(super) from: Vec<Piece>,
    pub(super) room: Vec<u8>,
}

impl Part {
    /// Rank `rank`'s, where `sends` and `gets` say what each block's is.
    pub(super) fn new(seed: u64, rank: u32, sends: &[Signature], gets: &[Signature]) -> Self {
        let mut rng = known(seed, [rank.into(), 77, 77]);
        let (to, len) = placed(&mut rng, sends.iter().copied());
        let given = random_bytes(&mut rng, len);
        let (from, len) = placed(&mut rng, gets.iter().copied());
        Self { to, given, from, room: random_bytes(&mut rng, len) }
    }

    pub(super) fn of_all(seed: u64, rank: u32, size: u32) -> Self {
        let between = |from: u32, to: u32| Signature::random(&mut known(seed, [from.into(), to.into(), 0]));
        let [sends, gets]: [Vec<_>; 2] = [
            (0..size).map(|other| between(rank, other)).collect(),
            (0..size).map(|other| between(other, rank)).collect(),
        ];
        Self::new(seed, rank, &sends, &gets)
    }

    /// As if it had been called, in place: then what two ranks have for each other is of the same signature.
    pub(super) fn in_place(seed: u64, rank: u32, size: u32) -> Self {
        let between = |one: u32, other: u32| {
            Signature::random(&mut known(seed, [one.min(other).into(), one.max(other).into(), 1]))
        };
        let both: Vec<_> = (0..size).map(|other| between(rank, other)).collect();
        Self::new(seed, rank, &[], &both)
    }
}

/// What rank `rank` is to have after an alltoall.
pub(super) fn exchanged(seed: u64, rank: u32, size: u32) -> Vec<u8> {
    let own = Part::of_all(seed, rank, size);
    let mut room = own.room;
    for other in 0..size {
        let its = Part::of_all(seed, other, size);
        unpack(&mut room, &own.from[other as usize], &pack(&its.given, &its.to[rank as usize]));
    }
    room
}

/// The same in place.
pub(super) fn exchanged_in_place(seed: u64, rank: u32, size: u32) -> Vec<u8> {
    let own = Part::in_place(seed, rank, size);
    let mut room = own.room.clone();
    for other in 0..size {
        let its = Part::in_place(seed, other, size);
        unpack(&mut room, &own.from[other as usize], &pack(&its.room, &its.from[rank as usize]));
    }
    room
}
