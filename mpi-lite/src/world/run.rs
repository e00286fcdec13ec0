use std::fmt::Display;

use sidelane_nic::time::Duration;

use crate::adi::Config;
use crate::comm::Communicator;
use crate::launch::Launch;

use super::{Job, World, WorldError, session};

/// Takes part in the job that this process was started for with `main`, which gets the communicator of all ranks. Returns
/// when all ranks' have returned. Once in a process; only the thread that calls it may communicate ([`run_with_threads`]).
///
/// What `main` has begun it has waited for. A request that is asked about afterwards, or dropped, as one that `main` returns, ends the
/// process ([`std::process::abort`]): its memory may still be written to.
///
/// With `SIDELANE_PROTECTION`, alike for all ranks, frames between hosts are [`sidelane_proto::Protection::Authenticated`] or
/// `Encrypted`.
///
/// A rank on another host that is not heard of for two seconds counts as gone; `SIDELANE_SILENCE` names another time, in
/// seconds, alike for all ranks.
pub fn run<T>(main: impl FnOnce(&Communicator) -> T) -> Result<T, WorldError> {
    run_as(false, main)
}

/// As [`run`], in all ranks of the job: several threads of a process may call at the same time (`MPI_THREAD_MULTIPLE`, MPI-4.1
/// 11.6.2). They end their calls before `main` returns: it is waited for one that waits, and what is asked about afterwards ends the process, as
/// [`run`] has it. Of those that wait for long one sleeps, and another one's call wakes it.
pub fn run_with_threads<T>(main: impl FnOnce(&Communicator) -> T) -> Result<T, WorldError> {
    run_as(true, main)
}

/// As [`run`], with a `main` that may fail: its error is told, and ends the job with exit code 1 ([`Communicator::abort`]). By [`run`] it is
/// returned only when all ranks' `main`s have, of which some may wait for this one.
pub fn run_or_abort<T, E: Display>(main: impl FnOnce(&Communicator) -> Result<T, E>) -> Result<T, WorldError> {
    run(|world| main(world).unwrap_or_else(|error| world.abort(1, &error.to_string())))
}

/// Begins what [`run`] is, or with `threads` [`run_with_threads`], for who ends it by [`Job::end`] (`MPI_Init_thread`). Of a job that a
/// [`Session`](super::Session) has begun, which has said whether there are threads.
pub fn begin(threads: bool) -> Result<(Job, Communicator), WorldError> {
    session::world_of(|| begin_alone(threads))
}

/// The same in a process in which nobody else has begun a job.
pub(super) fn begin_alone(threads: bool) -> Result<(Job, Communicator), WorldError> {
    let silence = silence(std::env::var("SIDELANE_SILENCE").ok())?;
    let config = Config::default().noticing_silence(silence);
    let (job, world) = World::of(Launch::find()?, &config)?.into_communicator(threads);
    Ok((job, world.with_pulse()))
}

impl Job {
    /// Ends what [`begin`] has begun, as [`run`] does when its `main` returns (`MPI_Finalize`): `world` is of all ranks, and nothing is called on it
    /// or on what was made of it afterwards. With [sessions](super::Session) open, the last of them ends the job.
    pub fn end(self, world: Communicator) -> Result<(), WorldError> {
        session::end_of_world(self, world)
    }
}

fn run_as<T>(threads: bool, main: impl FnOnce(&Communicator) -> T) -> Result<T, WorldError> {
    let (job, world) = begin(threads)?;
    let result = main(&world);
    job.end(world)?;
    Ok(result)
}

fn silence(told: Option<String>) -> Result<Duration, WorldError> {
    let Some(told) = told else { return Ok(SILENCE) };
    let seconds = told.parse::<f64>().ok().filter(|seconds| (0.1..=1e6).contains(seconds));
    seconds.map(|seconds| Duration::from_nanos((seconds * 1e9) as u64)).ok_or(WorldError::Silence(told))
}

/// Twenty beats of a process that computes (`comm`'s pulse); longer than a machine with many more ranks than cores lets one of them wait.
const SILENCE: Duration = Duration::from_millis(2_000);

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::attribute::Keyval;
    use crate::op::Op;

    #[test]
    fn a_job_of_one_begins_and_ends_by_a_call_each() {
        let (job, world) = begin(false).unwrap();
        let deleted = Arc::new(AtomicBool::new(false));
        let key = Keyval::new(|_, _| Ok(None), {
            let deleted = Arc::clone(&deleted);
            move |own: &Communicator, _| {
                deleted.store(true, Ordering::Relaxed);
                own.barrier()
            }
        });
        world.own().set_attribute(&key, Arc::new(())).unwrap();
        let mut sum = [0];
        world.allreduce(&[world.rank() + 3], &mut sum, &Op::Sum).unwrap();
        assert_eq!((job.size(), sum), (1, [3]));
        job.end(world).unwrap();
        assert!(deleted.load(Ordering::Relaxed));
    }

    #[test]
    fn a_time_is_seconds_and_nonsense_is_refused() {
        let of = |text: &str| silence(Some(text.to_owned())).ok();
        assert_eq!((silence(None).ok(), of("0.5")), (Some(SILENCE), Some(Duration::from_millis(500))));
        for text in ["", "soon", "0", "-1", "inf", "NaN", "1e9"] {
            assert_eq!(of(text), None, "{text}");
        }
    }
}
