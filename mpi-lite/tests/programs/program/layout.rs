//! Derived datatypes beside what the standard says that they are: where each element stands.

use sidelane_mpi::datatype::{Datatype, Order, Predefined};
use sidelane_nic::rng::Rng;

/// A datatype made of one predefined type only, and the model of it.
#[derive(Debug, Clone)]
pub struct Layout {
    pub datatype: Datatype,
    /// Where the elements of one are, in their order.
    places: Vec<usize>,
    lower: usize,
    upper: usize,
    element: usize,
    /// Its bounds were set: those of what is beside it in a structure count no more (MPI-4.1 5.1.6).
    marked: bool,
}

impl Layout {
    /// Elements one after another.
    pub fn plain(kind: Predefined) -> Self {
        let size = kind.extent();
        Self { datatype: kind.into(), places: vec![0], lower: 0, upper: size, element: size, marked: false }
    }

    /// A random one, in which nothing overlaps.
    pub fn random(rng: &mut Rng, kind: Predefined) -> Self {
        let mut layout = Self::plain(kind);
        for _ in 0..rng.below(4) {
            layout = layout.wrapped(rng);
            if layout.places.len() > ELEMENTS_MAX {
                break;
            }
        }
        let told = (layout.datatype.lower_bound(), layout.datatype.extent(), layout.datatype.size());
        assert_eq!(told, (layout.lower as isize, layout.extent() as isize, layout.places.len() * layout.element));
        layout
    }

    /// Elements of one.
    pub fn elements(&self) -> usize {
        self.places.len()
    }

    /// Bytes of data of `count`.
    pub fn bytes(&self, count: usize) -> usize {
        count * self.places.len() * self.element
    }

    /// Bytes of memory for `count`, with some that are nobody's behind.
    pub fn memory(&self, count: usize) -> usize {
        self.upper + count.saturating_sub(1) * self.extent() + 16
    }

    /// Bytes from one to the next.
    pub fn extent(&self) -> usize {
        self.upper - self.lower
    }

    /// How many have room for so many elements.
    pub fn count_for(&self, elements: usize) -> usize {
        elements.div_ceil(self.places.len())
    }

    /// Puts packed elements where they belong, from the one at `from` on.
    pub fn put(&self, memory: &mut [u8], from: usize, packed: &[u8]) {
        for (number, element) in packed.chunks(self.element).enumerate() {
            let number = from + number;
            let at = number / self.places.len() * self.extent() + self.places[number % self.places.len()];
            memory[at..at + element.len()].copy_from_slice(element);
        }
    }

    /// Whether packed elements are where they belong, from the one at `from` on.
    pub fn holds(&self, memory: &[u8], from: usize, packed: &[u8]) -> bool {
        packed.chunks(self.element).enumerate().all(|(number, element)| {
            let number = from + number;
            let at = number / self.places.len() * self.extent() + self.places[number % self.places.len()];
            memory[at..at + element.len()] == *element
        })
    }

    /// Memory of `count` in which packed elements stand; what is theirs of the rest is `gaps`.
    pub fn memory_of(&self, count: usize, packed: &[u8], gaps: u8) -> Vec<u8> {
        let mut memory = vec![gaps; self.memory(count)];
        self.put(&mut memory, 0, packed);
        memory
    }

    fn wrapped(&self, rng: &mut Rng) -> Self {
        let (of, extent, element) = (&self.datatype, self.extent(), self.element);
        let mut up_to = |most: u64| 1 + rng.below(most) as usize;
        match up_to(9) {
            1 => {
                let count = up_to(4);
                self.made(Datatype::contiguous(count, of), (0..count).map(|at| at * extent))
            }
            2 => {
                let (count, block, gap) = (up_to(3), up_to(2), up_to(3) - 1);
                let stride = block + gap;
                let places = (0..count).flat_map(|at| (0..block).map(move |next| (at * stride + next) * extent));
                self.made(Datatype::vector(count, block, stride as isize, of), places)
            }
            3 => {
                let (count, gap) = (up_to(4), up_to(3) - 1);
                let stride = extent + gap * element;
                self.made(Datatype::hvector(count, 1, stride as isize, of), (0..count).map(|at| at * stride))
            }
            4 => {
                let mut starts: Vec<usize> = (0..up_to(3)).map(|at| at * 3).collect();
                shuffle(rng, &mut starts);
                let lengths: Vec<usize> = starts.iter().map(|_| 1 + rng.below(3) as usize).collect();
                let displacements: Vec<isize> = starts.iter().map(|start| *start as isize).collect();
                let places =
                    starts.iter().zip(&lengths).flat_map(|(start, len)| (*start..start + len).map(|at| at * extent));
                self.made(Datatype::indexed(&lengths, &displacements, of), places)
            }
            5 => {
                let gap = up_to(3) - 1;
                let mut starts: Vec<usize> = (0..up_to(4)).map(|at| at * (extent + gap * element)).collect();
                shuffle(rng, &mut starts);
                let displacements: Vec<isize> = starts.iter().map(|start| *start as isize).collect();
                self.made(Datatype::hindexed_block(1, &displacements, of), starts.iter().copied())
            }
            6 if !self.marked => {
                // Two of these, and an element by itself before or behind them.
                let before = rng.chance(0.5);
                let alone = Self::plain(self.datatype.element_kind().expect("of one predefined type"));
                let (two_at, one_at) = if before { (element * 2, 0) } else { (0, self.upper + extent + element) };
                let of = [self.datatype.clone(), alone.datatype.clone()];
                let made = Datatype::structure(&[2, 1], &[two_at as isize, one_at as isize], &of);
                let mut both = self.made(made, [two_at, two_at + extent]);
                both.places.push(one_at);
                (both.lower, both.upper) = (both.lower.min(one_at), both.upper.max(one_at + element));
                both
            }
            7 => {
                let pad = up_to(3) * element;
                let datatype = of.resized(self.lower as isize, (extent + pad) as isize).unwrap();
                Self { datatype, upper: self.upper + pad, marked: true, ..self.clone() }
            }
            8 => {
                let (sizes, parts) = ([up_to(3) + 1, up_to(3) + 1], [1, 2]);
                let starts = [rng.below(sizes[0] as u64) as usize, rng.below(sizes[1] as u64 - 1) as usize];
                let made = Datatype::subarray(&sizes, &parts, &starts, Order::C, of);
                let first = starts[0] * sizes[1] + starts[1];
                let mut part = self.made(made, [first * extent, (first + 1) * extent]);
                (part.lower, part.upper, part.marked) = (0, sizes[0] * sizes[1] * extent, true);
                part
            }
            _ => Self { datatype: of.dup().unwrap(), ..self.clone() },
        }
    }

    /// Copies of this one at these places.
    fn made<E: std::fmt::Debug>(&self, datatype: Result<Datatype, E>, at: impl IntoIterator<Item = usize>) -> Self {
        let at: Vec<usize> = at.into_iter().collect();
        let places = at.iter().flat_map(|at| self.places.iter().map(move |place| at + place)).collect();
        let (first, last) = (at.iter().min().expect("one at least"), at.iter().max().expect("one at least"));
        let (lower, upper) = (self.lower + first, self.upper + last);
        Self { datatype: datatype.unwrap(), places, lower, upper, ..self.clone() }
    }
}

/// Any order.
pub fn shuffle<T>(rng: &mut Rng, items: &mut [T]) {
    for at in (1..items.len()).rev() {
        items.swap(at, rng.below(at as u64 + 1) as usize);
    }
}

/// One of them.
pub fn pick<'a, T>(rng: &mut Rng, items: &'a [T]) -> &'a T {
    &items[rng.below(items.len() as u64) as usize]
}

/// Beyond, types are not wrapped again.
const ELEMENTS_MAX: usize = 12;
