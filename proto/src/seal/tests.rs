//! One direction of a connection, and what somebody in the middle can do to it.

use super::direction::FRAMES_PER_KEY;
use super::*;
use crate::wire::{Header, Kind, PING_LEN, Seq, flags};
use proptest::prelude::*;

const KEY: JobKey = JobKey::from_bytes([7; JobKey::LEN]);
const ALICE: u64 = 0xa11ce;
const BOB: u64 = 0xb0b;

/// A frame of `kind` with `body`, and the tag's place behind it.
fn written(kind: Kind, body: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; FULL_LEN];
    let header =
        Header { kind, flags: flags::TAG, peer: 3, seq: Seq(9), ack: Seq(4), sack: 0, credit: 100, epoch: BOB as u16 };
    header.emit(&mut frame);
    frame.extend_from_slice(body);
    frame.resize(FULL_LEN + body.len() + TAG_LEN, 0);
    frame
}

fn both_ways(protection: Protection) -> (Job, Seal, Seal) {
    let job = Job::new(protection).expect("there is a key");
    let (alice, bob) = (Seal::new(&job, ALICE, BOB), Seal::new(&job, BOB, ALICE));
    (job, alice, bob)
}

fn opened(seal: &mut Seal, job: &Job, frame: &[u8]) -> Result<Vec<u8>, Reject> {
    seal.open(job, frame, true, &mut Vec::new()).map(<[u8]>::to_vec)
}

proptest! {
    #[test]
    fn frame_opens_as_it_was_written(bodies in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 1..40), encrypted: bool) {
        let (job, mut alice, mut bob) = both_ways(if encrypted { Protection::Encrypted(KEY) } else { Protection::Authenticated(KEY) });
        for body in bodies {
            let mut frame = written(Kind::Data, &body);
            let clear = frame[FULL_LEN..FULL_LEN + body.len()].to_vec();
            alice.seal(&job, &mut frame, true);
            // Shorter ones may look the same by chance.
            if body.len() >= 8 {
                prop_assert_eq!(frame[FULL_LEN..FULL_LEN + body.len()] == clear[..], !encrypted);
            }
            let seen = opened(&mut bob, &job, &frame).unwrap();
            prop_assert_eq!(&seen[4..], &written(Kind::Data, &body)[4..FULL_LEN + body.len()]);
            prop_assert_eq!(opened(&mut bob, &job, &frame), Err(Reject::Replay));
        }
    }

    /// What is refused leaves no trace: the frame itself is still taken, once.
    #[test]
    fn altered_frame_is_refused_and_changes_nothing(
        body in proptest::collection::vec(any::<u8>(), 0..100),
        flips in proptest::collection::vec((any::<prop::sample::Index>(), 1u8..), 1..6),
        cut in any::<prop::sample::Index>(),
        encrypted: bool,
    ) {
        let (job, mut alice, mut bob) = both_ways(if encrypted { Protection::Encrypted(KEY) } else { Protection::Authenticated(KEY) });
        let mut frame = written(Kind::Data, &body);
        alice.seal(&job, &mut frame, true);
        for (place, bits) in flips {
            let mut altered = frame.clone();
            altered[place.index(frame.len())] ^= bits;
            prop_assert_eq!(opened(&mut bob, &job, &altered), Err(Reject::Forged));
        }
        let short = &frame[..cut.index(frame.len())];
        prop_assert!(matches!(opened(&mut bob, &job, short), Err(Reject::Forged | Reject::Truncated)));
        prop_assert!(opened(&mut bob, &job, &frame).is_ok());
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
        let (job, _, mut bob) = both_ways(Protection::Encrypted(KEY));
        prop_assert!(opened(&mut bob, &job, &bytes).is_err());
        prop_assert!(job.open_opening(&bytes).is_err());
    }
}

#[test]
fn each_direction_and_each_life_and_each_way_of_protection_has_keys_of_its_own() {
    let (job, mut alice, mut bob) = both_ways(Protection::Encrypted(KEY));
    let sealed = |alice: &mut Seal, job: &Job| {
        let mut frame = written(Kind::Data, b"message");
        alice.seal(job, &mut frame, true);
        frame
    };
    let frame = sealed(&mut alice, &job);
    assert_eq!(opened(&mut alice, &job, &frame), Err(Reject::Forged), "sent back to where it came from");
    let mut later = Seal::new(&job, BOB, ALICE + 1);
    assert_eq!(opened(&mut later, &job, &frame), Err(Reject::Forged), "of an earlier life");
    let (weaker, mut carol, _) = both_ways(Protection::Authenticated(KEY));
    assert_eq!(opened(&mut bob, &job, &sealed(&mut carol, &weaker)), Err(Reject::Forged), "not encrypted");
    // Frames without records are in the clear under either: nothing but the key tells them apart.
    let mut ping = written(Kind::Ping, &[0; PING_LEN]);
    carol.seal(&weaker, &mut ping, false);
    assert_eq!(bob.open(&job, &ping, false, &mut Vec::new()), Err(Reject::Forged), "not encrypted, nor to be");
    let mut hello = written(Kind::Hello, &[5; HELLO_LEN]);
    weaker.seal_opening(&mut hello);
    assert_eq!(job.open_opening(&hello), Err(Reject::Forged), "of who would not encrypt");
    let (other, mut mallory, _) = both_ways(Protection::Encrypted(JobKey::from_bytes([8; JobKey::LEN])));
    assert_eq!(opened(&mut bob, &job, &sealed(&mut mallory, &other)), Err(Reject::Forged), "of another job");
    assert!(opened(&mut bob, &job, &frame).is_ok());
}

/// What another implementation makes of `PROTOCOL.md` (HMAC and HKDF of Python's hashlib, AES-GCM of OpenSSL): labels, the order of what keys
/// follow from, nonces, what is covered. Both ends of this one would agree on others, too.
#[test]
fn frames_are_sealed_as_documented() {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    for (protection, data, hello_tag) in [
        (
            Protection::Encrypted(KEY),
            "050010001080030009000000040000000000000064000b0bd4d9cc28283aeec39e7222373dc7af4617affcebdf7498",
            "7a372e627c40b22333912089f6eb7d80",
        ),
        (
            Protection::Authenticated(KEY),
            "050010001080030009000000040000000000000064000b0b6d65737361676546047bb5f7ca208cfbe255a7c79554aa",
            "df7a80358cfad2dae5578fd25e478c88",
        ),
    ] {
        let (job, mut alice, _) = both_ways(protection);
        // Of the second generation.
        alice.skip(FRAMES_PER_KEY + 5);
        let mut frame = written(Kind::Data, b"message");
        alice.seal(&job, &mut frame, true);
        assert_eq!(hex(&frame), data);
        let mut hello = written(Kind::Hello, &[[5; HELLO_LEN].as_slice(), &[0; 60]].concat());
        job.seal_opening(&mut hello);
        assert_eq!(hex(&hello[hello.len() - TAG_LEN..]), hello_tag);
    }
}

#[test]
fn keys_change_on_the_way_and_late_frames_still_open() {
    let (job, mut alice, mut bob) = both_ways(Protection::Encrypted(KEY));
    let mut frame = written(Kind::Data, b"message");
    let mut late = Vec::new();
    for number in 0..3 * FRAMES_PER_KEY {
        frame[FULL_LEN..].fill(number as u8);
        // Only around a change is anything opened; far between it would be 3 M frames.
        let near = number % FRAMES_PER_KEY < 4 || FRAMES_PER_KEY - number % FRAMES_PER_KEY < 4;
        if !near && number % 500 != 0 {
            alice.skip(1);
            continue;
        }
        alice.seal(&job, &mut frame, true);
        if number % FRAMES_PER_KEY == FRAMES_PER_KEY - 1 {
            late.clone_from(&frame);
            continue;
        }
        let seen = opened(&mut bob, &job, &frame).unwrap();
        assert!(seen[FULL_LEN..].iter().all(|&byte| byte == number as u8), "{number}");
        if number % FRAMES_PER_KEY == 2 && number > 2 {
            assert!(opened(&mut bob, &job, &late).is_ok(), "under the key before");
            assert_eq!(opened(&mut bob, &job, &late), Err(Reject::Replay));
        }
    }
}

/// Two messages under one key and one number would tell whoever listens how they differ, and so much more.
#[test]
fn equal_frames_look_alike_under_no_two_numbers() {
    let numbers = [0, 1, 2, 256, FRAMES_PER_KEY - 1, FRAMES_PER_KEY, 2 * FRAMES_PER_KEY, 1 << 32, (1 << 32) + 1];
    let secrets = numbers.map(|number| {
        let (job, mut alice, _) = both_ways(Protection::Encrypted(KEY));
        alice.skip(number);
        let mut frame = written(Kind::Data, b"the same message");
        alice.seal(&job, &mut frame, true);
        frame.split_off(FULL_LEN)
    });
    for (at, secret) in secrets.iter().enumerate() {
        assert!(secrets[..at].iter().all(|before| before[..16] != secret[..16]), "{}", numbers[at]);
    }
}

/// Nobody who has no key chooses how often one is expanded.
#[test]
fn no_frame_is_taken_that_is_beyond_the_next_key() {
    for (skipped, outcome) in [(FRAMES_PER_KEY, Ok(())), (2 * FRAMES_PER_KEY, Err(Reject::Forged))] {
        let (job, mut alice, mut bob) = both_ways(Protection::Authenticated(KEY));
        alice.skip(skipped);
        let mut frame = written(Kind::Data, b"message");
        alice.seal(&job, &mut frame, true);
        assert_eq!(opened(&mut bob, &job, &frame).map(drop), outcome, "{skipped}");
    }
}

#[test]
fn ping_opens_where_nothing_is_known_of_its_connection_however_many_frames_came_before_it() {
    let tokens = Tokens { from: ALICE, to: BOB };
    let mut body = [0; PING_LEN];
    tokens.emit(&mut body);
    for number in [0, FRAMES_PER_KEY, 2 * FRAMES_PER_KEY, 9 * FRAMES_PER_KEY - 1, (1 << 32) - 1, 1 << 32, 77 << 32 | 5]
    {
        for protection in [Protection::Encrypted(KEY), Protection::Authenticated(KEY)] {
            let (job, mut alice, _) = both_ways(protection);
            alice.skip(number);
            let high = alice.number_high();
            let mut ping = written(Kind::Ping, &body);
            alice.seal(&job, &mut ping, false);
            assert_eq!(job.check_lost_ping(tokens, high, &ping), Ok(()), "{number}");
            assert_eq!(job.check_lost_ping(tokens, high + 1, &ping), Err(Reject::Forged), "{number}");
            let back = Tokens { from: BOB, to: ALICE };
            assert_eq!(job.check_lost_ping(back, high, &ping), Err(Reject::Forged), "{number}");
            ping[FULL_LEN] ^= 1;
            assert_eq!(job.check_lost_ping(tokens, high, &ping), Err(Reject::Forged), "{number}");
        }
    }
}

#[test]
fn opening_frames_are_the_jobs_own() {
    let (job, ..) = both_ways(Protection::Encrypted(KEY));
    for padding in [0, 1, 1000] {
        let mut hello = written(Kind::Hello, &vec![5; HELLO_LEN + padding]);
        job.seal_opening(&mut hello);
        assert_eq!(job.open_opening(&hello), Ok(&hello[..hello.len() - TAG_LEN]));
        for at in [0, FULL_LEN, FULL_LEN + HELLO_LEN - 1, hello.len() - 1] {
            let mut altered = hello.clone();
            altered[at] ^= 1;
            assert_eq!(job.open_opening(&altered), Err(Reject::Forged), "byte {at}");
        }
        // The padding's bytes say nothing; its length, by which the path is measured, does.
        hello.insert(FULL_LEN + HELLO_LEN, 0);
        assert_eq!(job.open_opening(&hello), Err(Reject::Forged), "stretched");
    }
}
