//! All bodies attract all others: each rank has some of them, and everybody's positions go round the ranks while they compute.
//!
//! `cargo build --release --example n_body -p sidelane-mpi`, and then `sidelane run -n 4 target/release/examples/n_body`.

use sidelane_mpi::comm::{Communicator, ErrorClass};
use sidelane_mpi::op::Op;
use sidelane_mpi::world::{self, WorldError};

fn main() -> Result<(), WorldError> {
    world::run_or_abort(n_body)
}

/// Bodies in all.
const BODIES: usize = 480;
const STEPS: usize = 20;
/// Time of a step, and what keeps close encounters finite.
const STEP: f64 = 1e-3;
const SOFTENING: f64 = 1e-2;

type Vector = [f64; 3];

/// Rank 0 says how much they move in the end.
pub fn n_body(comm: &Communicator) -> Result<(), ErrorClass> {
    let (rank, size) = (comm.rank() as usize, comm.size() as usize);
    let own = rank * BODIES / size..(rank + 1) * BODIES / size;
    // A spiral, the same on any number of ranks.
    let mut positions: Vec<Vector> = own.clone().map(|body| place(body as f64)).collect();
    let mut velocities = vec![[0.0; 3]; own.len()];
    let most = BODIES.div_ceil(size);
    let (next, before) = ((rank + 1) % size, (rank + size - 1) % size);

    for _ in 0..STEPS {
        let mut forces = vec![[0.0; 3]; own.len()];
        let mut guests = positions.clone();
        for _ in 0..size {
            let mut coming = vec![[0.0; 3]; most];
            // The next guests come while we compute with these.
            let received = comm.scope(|scope| {
                let receive = scope.recv(&mut coming, before as u32, 0)?;
                scope.send(&guests, next as u32, 0)?;
                for (force, position) in forces.iter_mut().zip(&positions) {
                    guests.iter().for_each(|guest| attract(force, position, guest));
                }
                receive.wait()
            })?;
            coming.truncate(received.bytes / size_of::<Vector>());
            guests = coming;
        }
        for ((position, velocity), force) in positions.iter_mut().zip(&mut velocities).zip(&forces) {
            for axis in 0..3 {
                velocity[axis] += force[axis] * STEP;
                position[axis] += velocity[axis] * STEP;
            }
        }
    }

    // Whatever the forces, they add up to none, and the centre stays where it was.
    let sum =
        |vectors: &[Vector]| vectors.iter().fold([0.0; 3], |all, each| [0, 1, 2].map(|axis| all[axis] + each[axis]));
    let (momentum, energy) = (sum(&velocities), velocities.iter().flatten().map(|speed| speed * speed / 2.0).sum());
    let mut totals = [momentum[0], momentum[1], momentum[2], energy];
    comm.allreduce_in_place(&mut totals, &Op::Sum)?;
    if rank == 0 {
        println!("{BODIES} bodies on {size} ranks, {STEPS} steps: kinetic energy {:.9}", totals[3]);
        assert!(totals[..3].iter().all(|momentum| momentum.abs() < 1e-9), "momentum is kept: {totals:?}");
    }
    Ok(())
}

fn place(body: f64) -> Vector {
    let (radius, turn) = ((body / BODIES as f64).sqrt(), body * 2.4);
    [radius * turn.cos(), radius * turn.sin(), body / BODIES as f64 - 0.5]
}

fn attract(force: &mut Vector, here: &Vector, there: &Vector) {
    let between = [0, 1, 2].map(|axis| there[axis] - here[axis]);
    let square = between.iter().map(|part| part * part).sum::<f64>() + SOFTENING;
    let strength = 1.0 / (BODIES as f64 * square * square.sqrt());
    (0..3).for_each(|axis| force[axis] += between[axis] * strength);
}
