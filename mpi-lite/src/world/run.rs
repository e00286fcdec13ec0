use crate::comm::Communicator;

use super::{World, WorldError};

/// Takes part in the job that this process was started for with `main`, which gets the communicator of all ranks. Returns
/// when all ranks' have returned. Once in a process, and from one thread.
pub fn run<T>(main: impl FnOnce(&Communicator) -> T) -> Result<T, WorldError> {
    let (job, world) = World::init()?.into_communicator(false);
    let result = main(&world);
    job.finalize(world.into_device())?;
    Ok(result)
}
