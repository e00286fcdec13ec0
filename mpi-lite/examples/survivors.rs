//! Ranks that count together, of which some are killed, and the others go on: `survivors 2,3` kills ranks 2 and 3, one after the
//! other. For launchers that let the others live.
//!
//! `sidelane run --keep-going -n 4 target/release/examples/survivors 2,3`
//!
//! Whoever notices that a rank is gone revokes the communicator, so that nobody waits for somebody who has given up; then all
//! that live make a new one.

use sidelane_mpi::comm::{Communicator, ErrorClass};
use sidelane_mpi::op::Op;
use sidelane_mpi::world;

const ROUNDS: u64 = 300;

fn main() -> Result<(), world::WorldError> {
    let victims = std::env::args().nth(1).unwrap_or_default();
    let counted = world::run(|world| survive(world, &victims))?;
    println!("{counted}");
    Ok(())
}

/// What a rank says that has lived.
pub fn survive(world: &Communicator, victims: &str) -> String {
    let victims: Vec<u32> = victims.split(',').filter_map(|rank| rank.parse().ok()).collect();
    let mut comm = world.clone();
    let mut round = 0;
    while round < ROUNDS {
        // Each victim has a hundred rounds, and then kills itself as nothing else would.
        let due = victims.iter().position(|victim| *victim == world.rank());
        if due.is_some_and(|due| round >= 100 * (due as u64 + 1)) {
            let _ = std::process::Command::new("kill").args(["-9", &std::process::id().to_string()]).status();
        }
        match count(&comm, round) {
            Ok(()) => round += 1,
            Err(ErrorClass::ProcFailed | ErrorClass::Revoked) => {
                comm.revoke();
                comm = comm.shrink().expect("there are ids for thousands of communicators");
                // Some have counted a round that others have not: all go on from the last one.
                let mut last = [round];
                comm.allreduce_in_place(&mut last, &Op::Max).expect("victims die a hundred rounds apart");
                round = last[0];
            }
            Err(other) => panic!("{other}"),
        }
    }
    format!("rank {} has counted with {} others to {round}", world.rank(), comm.size() - 1)
}

/// All are in the same round.
fn count(comm: &Communicator, round: u64) -> Result<(), ErrorClass> {
    let mut sum = [round];
    comm.allreduce_in_place(&mut sum, &Op::Sum)?;
    assert_eq!(sum[0], round * u64::from(comm.size()));
    Ok(())
}
