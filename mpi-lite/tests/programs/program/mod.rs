//! Random MPI programs: lists of steps that all ranks know, since all make them of the same seed. What each rank has to have
//! after a step follows from the seed too, as if all ranks' calls had been made one after another.
//!
//! | file | what it knows |
//! | --- | --- |
//! | `members` | who is in a communicator, and how its calls name ranks |
//! | `around` | who is around whom in a grid or a graph |
//! | `birth` | making more communicators of those that there are |
//! | `kind` | making some of those that are on one host, or a part of it |
//! | `exchange` | messages: every mode, receive, wildcard and probe |
//! | `swap` | a message that is sent and one that is received, in one call |
//! | `parts` | messages that are sent and received by parts |
//! | `collective` | data that goes from ranks to ranks or from group to group, blocking or not |
//! | `pieces` | the same of a datatype for each rank or neighbour |
//! | `reduction` | data that is combined on the way |
//! | `operators` | by what: operators and the elements that they know |
//! | `buffers` | the memory of a collective call, and how it has to look afterwards |
//! | `repeated` | persistent messages and collective calls, round after round |
//! | `epoch` | one-sided: puts, gets and accumulates between fences and under locks |
//! | `atomics` | one-sided: what fetches and changes at once, each operation waited for by itself, between start and complete |
//! | `layout` | derived datatypes, and where their elements are |

mod around;
mod atomics;
mod birth;
mod buffers;
mod collective;
mod epoch;
mod exchange;
mod kind;
mod layout;
mod members;
mod operators;
mod parts;
mod pieces;
mod reduction;
mod repeated;
mod swap;

use std::fmt;
use std::io::Write as _;

use sidelane_mpi::comm::Communicator;
use sidelane_nic::rng::Rng;

use atomics::Atomics;
use birth::Birth;
use buffers::Open;
use collective::Collective;
use epoch::Epoch;
use exchange::Exchange;
use kind::Kind;
use layout::shuffle;
use members::Members;
use parts::Parts;
use pieces::Pieces;
use reduction::Reduction;
use repeated::Repeated;
use swap::Swap;

/// A program for all ranks.
#[derive(Debug)]
pub struct Program {
    pub seed: u64,
    pub ranks: u32,
    steps: Vec<Step>,
}

/// What all members of a communicator do.
#[derive(Debug)]
enum Step {
    Exchange(Exchange),
    Swap(Swap),
    Collective(Collective),
    Pieces(Pieces),
    Reduction(Reduction),
    Repeated(Repeated),
    Parts(Parts),
    Epoch(Epoch),
    Atomics(Atomics),
    Birth(Birth),
    Kind(Kind),
    /// The communicator of this number is given up.
    Death(usize),
    /// Waits for all collective calls that were begun.
    Settle,
}

/// How long messages are, in bytes: a few lengths around which something changes, and the longest.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    pub around: &'static [usize],
    pub most: usize,
}

/// One rank while it runs a program.
struct Rank<'a> {
    process: u32,
    host: u64,
    /// By number; `None` where this rank is no member, or no more.
    comms: Vec<Option<Communicator>>,
    open: Vec<Open>,
    /// For what ranks may do each in its own way.
    rng: Rng,
    /// Lets the others run.
    rest: &'a dyn Fn(),
}

impl Program {
    pub fn new(seed: u64, scale: Scale, ranks: Option<u32>) -> Self {
        let mut rng = Rng::new(seed);
        // Few ranks are as good as many, and quicker.
        let most = if rng.chance(0.2) { 17 } else { 6 };
        let drawn = 1 + rng.below(most) as u32;
        let ranks = ranks.unwrap_or(drawn);
        let mut family = vec![Members::world(ranks)];
        let count = 4 + rng.below(20);
        let steps = (0..count).map(|number| Step::random(&mut rng, &mut family, number, scale)).collect();
        Self { seed, ranks, steps }
    }

    /// Every collective call, blocking and not, of all ranks.
    pub fn of_collectives(seed: u64, scale: Scale, ranks: u32) -> Self {
        let mut rng = Rng::new(seed);
        let mut family = vec![Members::world(ranks)];
        let mut steps = vec![Step::Birth(Birth::grid_of_all(&mut family))];
        steps.extend(Collective::each(&mut rng, 1, &family[1], scale).into_iter().map(Step::Collective));
        steps.extend(Pieces::each(&mut rng, 1, &family[1], scale).into_iter().map(Step::Pieces));
        steps.extend(Reduction::each(&mut rng, 0, &family[0], scale).into_iter().map(Step::Reduction));
        Self { seed, ranks, steps }
    }

    /// Runs it as this rank, on a host of this number. `rest` is called by who asks again and again.
    pub fn run(&self, world: &Communicator, host: u64, rest: &dyn Fn()) {
        let process = world.rank();
        let rng = Rng::new(self.seed.wrapping_mul(31) ^ u64::from(process));
        world.attach_buffer(BUFFERED).unwrap();
        let mut rank = Rank { process, host, comms: vec![Some(world.clone())], open: Vec::new(), rng, rest };
        for (number, step) in self.steps.iter().enumerate() {
            let _at = At { seed: self.seed, number, step };
            step.run(&mut rank);
        }
        rank.settle();
        world.barrier().unwrap();
        assert_eq!(world.detach_buffer(), Ok(BUFFERED));
    }
}

impl Step {
    fn random(rng: &mut Rng, family: &mut Vec<Members>, number: u64, scale: Scale) -> Self {
        let living = |rng: &mut Rng, family: &[Members]| {
            let living: Vec<usize> = (0..family.len()).filter(|at| family[*at].lives).collect();
            *layout::pick(rng, &living)
        };
        let at = living(rng, family);
        let stamp = rng.next_u64();
        let one_group = family[at].is_one_group();
        match rng.below(29) {
            0..7 => Self::Exchange(Exchange::random(rng, at, &family[at], number, stamp, scale)),
            7..11 => Self::Collective(Collective::random(rng, at, &family[at], stamp, scale)),
            11..14 => Self::Reduction(Reduction::random(rng, at, &family[at], stamp, scale)),
            14 if one_group => Self::Epoch(Epoch::random(rng, at, &family[at], stamp)),
            15 if one_group => Self::Atomics(Atomics::random(rng, at, &family[at], stamp)),
            16 if at > 0 => {
                family[at].lives = false;
                Self::Death(at)
            }
            17 => Self::Settle,
            18..20 if one_group => Self::Pieces(Pieces::random(rng, at, &family[at], stamp, scale)),
            20..22 => Self::Repeated(Repeated::random(rng, at, &family[at], stamp, scale)),
            22 => Self::Parts(Parts::random(rng, at, &family[at], number, stamp, scale)),
            23..25 => Self::Swap(Swap::random(rng, at, &family[at], number, stamp, scale)),
            25 if one_group => Self::Kind(Kind::random(rng, at, &family[at])),
            _ => Birth::random(rng, at, family, number).map_or(Self::Settle, Self::Birth),
        }
    }

    fn run(&self, rank: &mut Rank) {
        match self {
            Self::Exchange(exchange) => exchange.run(rank),
            Self::Swap(swap) => swap.run(rank),
            Self::Collective(collective) => collective.run(rank),
            Self::Pieces(pieces) => pieces.run(rank),
            Self::Reduction(reduction) => reduction.run(rank),
            Self::Repeated(repeated) => repeated.run(rank),
            Self::Parts(parts) => parts.run(rank),
            Self::Epoch(epoch) => epoch.run(rank),
            Self::Atomics(atomics) => atomics.run(rank),
            Self::Birth(birth) => birth.run(rank),
            Self::Kind(kind) => kind.run(rank),
            Self::Death(comm) => {
                // What is under way there keeps its number.
                if let Some(comm) = rank.comms[*comm].take() {
                    comm.free().unwrap();
                }
            }
            Self::Settle => rank.settle(),
        }
    }
}

impl Rank<'_> {
    /// Waits for the calls that were begun, in any order, and looks at what they brought.
    fn settle(&mut self) {
        let mut open = std::mem::take(&mut self.open);
        shuffle(&mut self.rng, &mut open);
        for call in open {
            call.wait(self);
        }
    }
}

/// Says in which step of which program a rank panicked.
struct At<'a> {
    seed: u64,
    number: usize,
    step: &'a Step,
}

impl Drop for At<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // Not by `eprintln`: a test harness keeps that, and loses it where a rank that panics ends the process.
            let _ = writeln!(std::io::stderr(), "PROGRAM_SEED={}, in step {}: {:?}", self.seed, self.number, self.step);
        }
    }
}

/// Where bytes are not as they should be.
struct Differ<'a>(&'a str, &'a [u8], &'a [u8]);

impl fmt::Display for Differ<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(what, is, should) = self;
        let wrong: Vec<usize> = (0..is.len().min(should.len())).filter(|at| is[*at] != should[*at]).collect();
        write!(f, "{what}: {} of {} bytes are wrong, the first at {:?}", wrong.len(), is.len(), wrong.first())
    }
}

impl Scale {
    /// Short programs for networks whose limits are low.
    pub const LOW: Self = Self { around: &[0, 20, 100, 300, 1_000], most: 5_000 };
    /// Beyond the usual limits of shared memory and of networks.
    pub const USUAL: Self = Self { around: &[0, 20, 1_500, 14 << 10, 16 << 10, 60 << 10], most: 200_000 };

    fn length(self, rng: &mut Rng) -> usize {
        let around = *layout::pick(rng, self.around);
        match rng.below(8) {
            0 => rng.below(self.most as u64) as usize,
            _ => (around + rng.below(20) as usize).saturating_sub(10),
        }
    }
}

/// Packed bytes that tell where they are from.
fn bytes(stamp: u64, len: usize) -> Vec<u8> {
    (0..len.div_ceil(8) as u64)
        .flat_map(|word| mixed(stamp ^ word.wrapping_mul(SPREAD)).to_le_bytes())
        .take(len)
        .collect()
}

/// A stamp of a part of what another stamp is for.
const fn part(stamp: u64, first: u64, second: u64) -> u64 {
    mixed(stamp ^ mixed(first ^ mixed(second ^ SPREAD)))
}

/// The finalizer of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
const fn mixed(word: u64) -> u64 {
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// What no program reaches: it is a count, and not taken up.
const BUFFERED: usize = 1 << 30;

/// What stands where nothing is to be written.
const UNTOUCHED: u8 = 0xee;
