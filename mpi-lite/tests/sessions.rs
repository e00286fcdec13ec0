//! A process's sessions and its world, which are of one job. Alone in this program, as they are of the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use sidelane_mpi::attribute::Keyval;
use sidelane_mpi::comm::{Communicator, ErrorHandler};
use sidelane_mpi::op::Op;
use sidelane_mpi::world::{SELF, Session, WORLD, begin};

fn counts(session: &Session, tag: &str) {
    let all = session.group(WORLD).unwrap();
    let comm = session.communicator(&all, tag, ErrorHandler::Return).unwrap();
    let mut sum = [0];
    comm.allreduce(&[1], &mut sum, &Op::Sum).unwrap();
    assert_eq!((sum, session.group(SELF).unwrap().size()), ([1], 1));
}

#[test]
fn the_job_ends_with_the_last_of_its_sessions_and_its_world() {
    // Without a launcher a job may begin once more.
    for _ in 0..2 {
        let sessions = [false, true].map(|threads| Session::begin(threads).unwrap());
        assert!(!sessions[1].has_threads(), "the first one has begun the job");
        let (job, world) = begin(false).unwrap();
        let (deleted, count) = (Arc::new(AtomicU32::new(0)), |deleted: &AtomicU32| deleted.load(Ordering::Relaxed));
        let told = Arc::clone(&deleted);
        let key = Keyval::new(
            |_, _| Ok(None),
            move |own: &Communicator, _| {
                told.fetch_add(1, Ordering::Relaxed);
                own.barrier()
            },
        );
        world.own().set_attribute(&key, Arc::new(())).unwrap();
        let [first, second] = sessions;
        first.end().unwrap();
        counts(&second, "beside the world");
        assert_eq!(count(&deleted), 0);
        job.end(world).unwrap();
        assert_eq!(count(&deleted), 1);
        counts(&second, "without it");
        let third = Session::begin(false).unwrap();
        second.end().unwrap();
        counts(&third, "the last one");
        third.end().unwrap();
        assert_eq!(count(&deleted), 1);
    }
    let (job, world) = begin(true).unwrap();
    let session = Session::begin(false).unwrap();
    assert!(session.has_threads());
    counts(&session, "of a world's job");
    session.end().unwrap();
    world.barrier().unwrap();
    job.end(world).unwrap();
    drop(begin(false).unwrap());
    Session::begin(false).unwrap().end().unwrap();
}
