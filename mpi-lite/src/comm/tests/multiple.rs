//! Several threads of each rank call at the same time.

use super::*;
use crate::op::Op;

const THREADS: u32 = 4;

#[test]
fn threads_of_one_rank_do_not_wait_for_each_other() {
    in_threads(2, &Config::default(), true, |comm| {
        let own: Vec<Communicator> = (0..THREADS).map(|_| comm.dup().unwrap()).collect();
        std::thread::scope(|scope| {
            for (thread, mine) in (0..THREADS).zip(&own) {
                let comm = &comm;
                scope.spawn(move || {
                    let other = 1 - comm.rank();
                    for round in 0..200u32 {
                        // Each thread waits for its own messages, which those of the other rank send in their own time.
                        let (sent, mut got) = ([round, thread], [0; 2]);
                        let tag = thread as i32;
                        comm.sendrecv(&sent, other, tag, &mut got, other, tag).unwrap();
                        assert_eq!(got, sent);
                        let mut sum = [round + comm.rank()];
                        mine.allreduce_in_place(&mut sum, &Op::Sum).unwrap();
                        assert_eq!(sum, [2 * round + 1]);
                    }
                    // All threads make new communicators of their own at once.
                    for _ in 0..5 {
                        mine.dup().unwrap().barrier().unwrap();
                    }
                });
            }
        });
    });
}
