//! What the leaders of two groups tell each other when one of them cannot go on, and that nobody else does.

use super::*;
use crate::comm::agreeing::Key;
use crate::comm::context::{About, Kind, NOTHING, Offer, Topic, all, and};
use crate::op::Op;
use crate::patience::{PATIENCE, until, watch};

/// Runs `each` as every rank: two on one side of a communicator, and one on the other side.
fn job_of_two_and_one(each: impl Fn(Communicator, Communicator) + Sync) {
    job(3, |world| {
        let left = world.rank() < 2;
        let half = world.split(Some(left.into()), 0).unwrap().unwrap();
        let between = half.intercomm(0, &world, if left { 2 } else { 0 }, 0).unwrap();
        each(world, between);
    });
}

/// What leaders agree on for a duplicate.
const AGREE: Topic = Topic { kind: Kind::Creation, tag: 0 };

/// What this process says in a round for a duplicate of `comm`.
fn offer(comm: &Communicator, round: usize) -> Offer {
    let about = [About::Meeting, About::Places][round];
    comm.local().lock().contexts.offer(Key::Call { of: comm.0.id }, about)
}

/// All have come.
fn meet(comm: &Communicator) {
    comm.local().lock().contexts.meet(Key::Call { of: comm.0.id });
}

/// Whether anything is under way there.
fn is_used(comm: &Communicator) -> bool {
    comm.local().lock().device.uses(all(comm.0.id))
}

/// The first round is not the last one; the second is, and nobody waits for a word more.
#[test]
fn a_leader_that_cannot_tell_its_group_refuses_only_who_comes_back() {
    watch("a duplicate that one side cannot have", PATIENCE);
    for last in 0..2 {
        job_of_two_and_one(|world, between| match world.rank() {
            0 => {
                let mut told = world.recv_init(vec![0u8], 1, 0);
                told.start().unwrap();
                assert_eq!(between.dup().map(drop), Err(ErrorClass::Revoked));
                told.wait().unwrap();
                world.recv(&mut [0u8], 2, 0).unwrap();
                until("nothing is under way", || {
                    world.local().lock().turn();
                    !is_used(&between)
                });
            }
            // Its part in the call, until its leader has spoken to the other one.
            1 => {
                let side = between.0.side.as_ref().unwrap();
                for round in 0..=last {
                    let mut said = offer(&between, round);
                    side.allreduce_in_place(&mut said, &Op::Band).unwrap();
                    if round < last {
                        side.broadcast(&mut said, 0).unwrap();
                        meet(&between);
                    }
                }
                world.recv(&mut [0u8], 2, 0).unwrap();
                side.revoke();
                // Behind that, which its leader has heard of when this is over.
                world.ssend(&[0u8], 0, 0).unwrap();
                world.send(&[0u8], 2, 0).unwrap();
            }
            // The other leader.
            _ => {
                let mut there = NOTHING;
                for round in 0..=last {
                    let mut said = offer(&between, round);
                    between.hear(&mut there, 0, AGREE, |_| false).unwrap();
                    if round == last {
                        world.send(&[0u8], 1, 0).unwrap();
                        world.recv(&mut [0u8], 1, 0).unwrap();
                    }
                    between.leave_word(&said, 0, AGREE).unwrap();
                    and(&mut said, &there);
                    assert_eq!([About::Meeting, About::Places][round].found(&said).goes_on(), round == 0);
                    meet(&between);
                }
                if last == 0 {
                    between.leave_word(&offer(&between, 1), 0, AGREE).unwrap();
                    between.hear(&mut there, 0, AGREE, |_| false).unwrap();
                    assert_eq!(there, NOTHING);
                }
                world.send(&[0u8], 0, 0).unwrap();
            }
        });
    }
}

#[test]
fn who_does_not_lead_says_nothing_to_the_other_group() {
    job_of_two_and_one(|world, between| {
        let side = between.0.side.as_ref().unwrap();
        match world.rank() {
            // Its part in the call, but for what it tells, which is too short.
            0 => {
                side.allreduce_in_place(&mut offer(&between, 0), &Op::Band).unwrap();
                let _ = side.broadcast(&mut [0u64], 0);
            }
            1 => {
                between.dup().map(drop).unwrap_err();
                assert!(!is_used(&between));
            }
            _ => {}
        }
    });
}

/// It was not heard.
#[test]
fn a_word_that_is_no_offer_ends_the_call_for_all_of_a_group() {
    watch("a duplicate that another side knows nothing of", PATIENCE);
    job_of_two_and_one(|world, between| {
        if world.rank() == 2 {
            return between.leave_word(&[u64::MAX; size_of::<Offer>() / 8 + 1], 0, AGREE).unwrap();
        }
        let expected = [ErrorClass::Truncate, ErrorClass::ProcFailed][world.rank() as usize];
        assert_eq!(between.dup().map(drop), Err(expected));
    });
}
