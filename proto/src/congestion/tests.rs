use super::*;

const SLACK: Slack = Slack { host: micros(6), path: micros(25) };

const fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

/// Before the first round on a path of 10 µs.
fn opened() -> (Congestion, Rtt) {
    let mut congestion = Congestion::new(Some(SLACK));
    congestion.open(256);
    let mut rtt = Rtt::new(micros(100));
    rtt.sample(micros(10));
    (congestion, rtt)
}

/// One round in which every frame took `took`.
fn round(congestion: &mut Congestion, rtt: &mut Rtt, took: Duration) {
    let frames = congestion.frames();
    rtt.sample(took);
    assert!(congestion.on_acked(frames, Some(took)));
    congestion.end_round(rtt, true);
}

#[test]
fn without_a_queue_the_window_opens_and_stays_open() {
    let (mut congestion, mut rtt) = opened();
    let windows: Vec<u32> = (0..6)
        .map(|_| {
            round(&mut congestion, &mut rtt, micros(12));
            congestion.frames()
        })
        .collect();
    assert_eq!(windows, [8, 16, 32, 64, 128, 256]);
}

#[test]
fn without_control_only_time_outs_take_of_the_window_and_rounds_give_it_back() {
    let (mut congestion, mut rtt) = (Congestion::new(None), Rtt::new(micros(100)));
    congestion.open(256);
    for _ in 0..3 {
        congestion.on_timeout();
    }
    assert_eq!(congestion.frames(), 32);
    let windows: Vec<u32> = (0..20)
        .map(|_| {
            round(&mut congestion, &mut rtt, micros(5_000));
            congestion.frames()
        })
        .collect();
    assert_eq!([0, 1, 17, 18, 19].map(|round| windows[round]), [36, 40, 256, 256, 256]);
}

#[test]
fn one_late_frame_is_no_queue() {
    let (mut congestion, mut rtt) = opened();
    assert!(!congestion.on_acked(3, Some(micros(5_000))));
    assert!(congestion.on_acked(1, Some(micros(12))));
    congestion.end_round(&mut rtt, true);
    assert_eq!(congestion.frames(), 8);
}

#[test]
fn one_late_round_is_no_queue_either() {
    let (mut congestion, mut rtt) = opened();
    round(&mut congestion, &mut rtt, micros(12));
    round(&mut congestion, &mut rtt, micros(5_000));
    assert_eq!(congestion.frames(), 8);
    round(&mut congestion, &mut rtt, micros(12));
    assert_eq!(congestion.frames(), 9, "it grows, and doubles no more");
    round(&mut congestion, &mut rtt, micros(5_000));
    assert_eq!(congestion.frames(), 9, "nor is one now and then");
}

/// A window of `frames` that does not double any more, on a path of 10 µs, after rounds that took `micros_each`.
fn after(frames: u32, micros_each: &[u64]) -> f64 {
    let (mut congestion, mut rtt) = opened();
    (congestion.window, congestion.starting) = (frames * ONE, false);
    micros_each.iter().for_each(|&took| round(&mut congestion, &mut rtt, micros(took)));
    f64::from(congestion.window) / f64::from(ONE)
}

#[test]
fn a_window_grows_by_an_eighth_up_to_a_frame_and_a_large_one_by_a_sixteenth() {
    let windows = [1, 4, 12, 64, 250].map(|frames| after(frames, &[12]));
    assert_eq!(windows, [1.1328125, 4.5078125, 13.0, 68.0, 256.0]);
}

#[test]
fn a_queue_takes_as_much_of_the_window_as_it_is_beyond_the_target_and_half_at_most() {
    // The target of 64 frames is 10 + 6 + 25 / 8 µs, and 0.8 * (24 - 19.125) / 24 is 0.1625.
    let cut = after(64, &[24, 24]);
    assert!((cut - 64.0 * (1.0 - 0.1625)).abs() < 0.01, "{cut}");
    assert_eq!(after(64, &[1_000, 1_000]), 32.0);
}

#[test]
fn the_smaller_a_window_the_longer_the_queue_that_may_stand() {
    for (frames, allowed) in [(1, 41), (4, 28), (64, 19)] {
        let frames_before = f64::from(frames);
        assert!(after(frames, &[allowed, allowed]) > frames_before, "{frames}");
        assert!(after(frames, &[allowed + 1, allowed + 1]) < frames_before, "{frames}");
    }
}

#[test]
fn the_pause_makes_up_for_what_the_window_lacks_of_a_frame() {
    let (mut congestion, mut rtt) = opened();
    assert_eq!(congestion.pause(&rtt), None);
    rtt.sample(micros(10));
    congestion.window = ONE;
    assert_eq!(congestion.pause(&rtt), None, "nothing is missing");
    congestion.window = ONE / 4;
    assert_eq!(congestion.pause(&rtt), Some(micros(30)));
}

#[test]
fn a_standing_queue_shrinks_the_window_below_one_frame_and_then_it_pauses() {
    let (mut congestion, mut rtt) = opened();
    for micros in [50, 100, 200, 150, 220, 90, 150] {
        round(&mut congestion, &mut rtt, Duration::from_micros(micros));
    }
    assert_eq!(congestion.frames(), 1);
    let pause = congestion.pause(&rtt).expect("less than a frame");
    assert!(pause > micros(200), "{pause:?} {congestion:?}");
}

#[test]
fn ends_that_are_away_for_long_make_no_pause_of_seconds() {
    let (mut congestion, mut rtt) = opened();
    for millis in [60, 90, 70, 110, 50, 80, 60, 100, 70, 120, 60, 90] {
        round(&mut congestion, &mut rtt, Duration::from_millis(millis));
    }
    assert_eq!(congestion.pause(&rtt), Some(PAUSE_MAX), "{congestion:?}");
}

/// As frames do in the socket of a receiver that takes them one by one: however many fly, the window opens.
#[test]
fn what_waits_at_the_ends_is_no_queue() {
    for (host, frames) in [(micros(500), 256), (micros(6), 1)] {
        let (_, mut rtt) = opened();
        let mut congestion = Congestion::new(Some(Slack { host, ..SLACK }));
        congestion.open(256);
        for _ in 0..30 {
            let took = micros(10 + 2 * u64::from(congestion.frames()).min(200) + 60);
            round(&mut congestion, &mut rtt, took);
        }
        assert_eq!(congestion.frames() == 256, frames == 256, "{host:?}: {congestion:?}");
    }
}

/// One round in which a host was away.
fn round_away(congestion: &mut Congestion, rtt: &mut Rtt) {
    let frames = congestion.frames();
    assert!(congestion.on_acked(frames, None));
    congestion.end_round(rtt, true);
}

#[test]
fn a_host_that_was_away_is_no_queue_and_losses_count_all_the_same() {
    let (mut congestion, mut rtt) = opened();
    let mut windows = [0; 4];
    for (away, window) in windows.iter_mut().enumerate() {
        congestion.on_lost(if away == 2 { 8 } else { 0 });
        round_away(&mut congestion, &mut rtt);
        *window = congestion.frames();
    }
    assert_eq!(windows, [8, 16, 8, 9]);
    // What was measured beside it is believed.
    assert!(!congestion.on_acked(1, None));
    for _ in 0..3 {
        round(&mut congestion, &mut rtt, micros(500));
    }
    assert!(congestion.frames() < 8, "{congestion:?}");
}

#[test]
fn a_time_out_of_a_host_that_was_away_is_taken_back_and_another_is_not() {
    let (mut congestion, mut rtt) = opened();
    round(&mut congestion, &mut rtt, micros(12));
    congestion.on_timeout();
    congestion.on_timeout();
    assert_eq!(congestion.frames(), 2);
    assert!(congestion.on_host_away());
    assert_eq!(congestion.frames(), 8);
    round_away(&mut congestion, &mut rtt);
    assert_eq!(congestion.frames(), 16, "it doubles as before");
    congestion.on_timeout();
    round(&mut congestion, &mut rtt, micros(12));
    assert!(!congestion.on_host_away(), "of a round that is over");
    assert_eq!(congestion.frames(), 9);
}

#[test]
fn a_round_that_did_not_use_its_window_changes_nothing() {
    let (mut congestion, mut rtt) = opened();
    assert!(congestion.on_acked(4, Some(micros(5_000))));
    congestion.end_round(&mut rtt, false);
    assert_eq!(congestion.frames(), 4);
}

#[test]
fn one_loss_is_damage_and_many_are_congestion() {
    let (mut congestion, mut rtt) = opened();
    congestion.on_lost(1);
    round(&mut congestion, &mut rtt, micros(12));
    assert_eq!(congestion.frames(), 8);
    congestion.on_lost(4);
    round(&mut congestion, &mut rtt, micros(12));
    assert_eq!(congestion.frames(), 4);
    for (lost, window) in [(4, 68), (5, 32)] {
        congestion.window = 64 * ONE;
        congestion.on_lost(lost);
        round(&mut congestion, &mut rtt, micros(12));
        assert_eq!(congestion.frames(), window, "{lost} of 64");
    }
}

/// Whoever shares a queue sees its delay: the smaller window gains on the larger one.
#[test]
fn unequal_windows_become_equal() {
    let (mut one, mut rtt_of_one) = opened();
    let (mut other, mut rtt_of_other) = opened();
    (one.window, other.window) = (100 * ONE, ONE);
    (one.starting, other.starting) = (false, false);
    for _ in 0..2_000 {
        // Frames of 1.2 µs on a path of 10 µs.
        let took = micros(10 + u64::from((one.window + other.window) / ONE).saturating_sub(8) * 12 / 10);
        round(&mut one, &mut rtt_of_one, took);
        round(&mut other, &mut rtt_of_other, took);
    }
    let (one, other) = (f64::from(one.window), f64::from(other.window));
    assert!((0.7..1.4).contains(&(one / other)), "{one} beside {other}");
}

#[test]
fn a_long_path_is_found_out() {
    let (mut congestion, _) = opened();
    let mut rtt = Rtt::new(micros(100));
    let windows: Vec<u32> = (0..14)
        .map(|_| {
            round(&mut congestion, &mut rtt, micros(1_000));
            congestion.frames()
        })
        .collect();
    assert_eq!(windows, [4, 2, 1, 1, 1, 1, 2, 4, 8, 16, 32, 64, 128, 256], "{congestion:?}");
}

/// A delay that is not always the same is a queue, however long it stands.
#[test]
fn a_long_queue_is_no_long_path() {
    let (mut congestion, _) = opened();
    let mut rtt = Rtt::new(micros(100));
    for _ in 0..10 {
        for took in [1_000, 1_000, 1_000, 1_000, 1_100] {
            round(&mut congestion, &mut rtt, micros(took));
        }
    }
    assert_eq!(congestion.frames(), 1, "{congestion:?}");
}

#[test]
fn a_path_that_became_long_is_found_out_when_hardly_anything_is_sent() {
    let (mut congestion, mut rtt) = opened();
    for _ in 0..40 {
        round(&mut congestion, &mut rtt, micros(1_000));
    }
    assert_eq!(congestion.frames(), 256, "{congestion:?}");
}

#[test]
fn switched_off_it_takes_what_the_peer_gives() {
    let mut congestion = Congestion::new(None);
    congestion.open(256);
    let mut rtt = Rtt::new(micros(100));
    round(&mut congestion, &mut rtt, micros(10));
    round(&mut congestion, &mut rtt, micros(10_000));
    assert_eq!((congestion.frames(), congestion.pause(&rtt)), (256, None));
}
