//! Frames with tags.

use super::*;

/// One that both sides began, with a key, and that key.
fn sealed(called: bool) -> (Stage, Job) {
    let mut stage = Stage::with(called, Config { protection: PROTECTION, ..Config::default() });
    stage.conn.ask(stage.turn.now, &stage.turn.config);
    (stage, Job::new(PROTECTION).expect("there is a key"))
}

/// What comes of the first frame of the peer with `token`, to the connection of ours with `epoch`.
fn open(stage: &mut Stage, job: &Job, token: u64, epoch: u64) -> Result<(), Reject> {
    let header = Header {
        kind: Kind::Ack,
        flags: flags::TAG,
        peer: 0,
        seq: Seq(0),
        ack: Seq(0),
        sack: 0,
        credit: 0,
        epoch: epoch as u16,
    };
    let mut frame = vec![0; FULL_LEN + TAG_LEN];
    header.emit(&mut frame);
    Seal::new(job, token, US).seal(job, &mut frame, false);
    stage.conn.open_sealed(job, &header, &frame, &mut Vec::new()).map(drop)
}

#[test]
fn sealed_frames_are_opened_with_the_keys_of_one_life() {
    let (mut stage, job) = sealed(false);
    assert_eq!(open(&mut stage, &job, THEM, US), Err(Reject::NoPeer), "before there is an answer");
    let (mut stage, job) = sealed(true);
    assert_eq!(open(&mut stage, &job, THEM, US + 1), Err(Reject::Epoch));
    assert_eq!(open(&mut stage, &job, THEM, US), Ok(()));
    let (conn, turn) = stage.turn();
    conn.handle_hello_ack(turn, &hello(STRANGER, US));
    assert_eq!(open(&mut stage, &job, THEM, US), Err(Reject::Forged));
    assert_eq!(open(&mut stage, &job, STRANGER, US), Ok(()));
}

/// Somebody of the job has denied the connection; silence bears it out, and a sign of life refutes it.
#[test]
fn a_denial_is_void_when_the_peer_is_heard_or_is_another_one() {
    for (heard, answers, end) in [(false, THEM, "Restarted"), (true, THEM, "Silent"), (false, STRANGER, "Silent")] {
        let (mut stage, job) = sealed(true);
        let (conn, turn) = stage.turn();
        conn.handle_reset(turn, Tokens { from: THEM, to: US }, STRANGER).expect("it may be true");
        if heard {
            open(&mut stage, &job, THEM, US).expect("it is the peer's");
        }
        let (conn, turn) = stage.turn();
        conn.handle_hello_ack(turn, &hello(answers, US));
        for _ in 0..5 {
            stage.pass(stage.turn.config.keep_alive).expect("it takes its time");
        }
        assert_eq!(stage.told(), format!("Connected, Gone({end})"), "{heard} {answers:x}");
    }
}
