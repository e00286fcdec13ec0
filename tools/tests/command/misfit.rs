//! Collective calls of ranks on several hosts that do not fit: an error for all, also where only one host's ranks can see why.

use sidelane_mpi::comm::ErrorHandler;
use sidelane_mpi::world;

use crate::run::{job_of, said};
use crate::stage::for_each_user;

#[test]
#[ignore = "run as a rank by other tests"]
fn part_of_a_rank() {
    let error = world::run(|world| {
        world.set_error_handler(ErrorHandler::Return);
        let mut room = vec![0u8; if world.rank() == 3 { 9 } else { 8 }];
        // Ranks of the other host get through this, and so may who has shown its host what it has.
        let _ = world.barrier().and_then(|()| world.broadcast(&mut room, 0));
        loop {
            if let Err(error) = world.barrier() {
                return error;
            }
        }
    });
    println!("\ntold: {}", error.unwrap());
}

#[test]
fn a_length_that_does_not_fit_on_one_host_ends_the_calls_of_all() {
    for_each_user(|stage| {
        stage.text(&["lab", "up", "--hosts", "2"]);
        let options = ["-n", "4", "--hosts", "lab", "--timeout", "60"];
        let arguments = job_of(stage, &options, "misfit::part_of_a_rank");
        let output = stage.output(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(output.status.success() && said(&output).len() == 4, "{output:?}");
        stage.text(&["lab", "down"]);
    });
}
