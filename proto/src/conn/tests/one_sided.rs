//! One-sided operations.

use super::*;

/// What it says of operations, in one frame or several.
fn operations(stage: &mut Stage) -> Vec<String> {
    let (mut said, mut frame) = (Vec::new(), vec![0; 512]);
    let (conn, turn) = stage.turn();
    while let Some(plan) = conn.poll_transmit(turn, false) {
        let len = Conn::frame_len(plan, false);
        conn.emit(turn, plan, &mut frame[..len], false);
        if Kind::of(&frame) == Kind::Data {
            said.extend(
                Operations::new(&frame[FULL_LEN..len]).map(|operation| format!("{:?}", operation.expect("sound"))),
            );
        }
    }
    said
}

/// A region of 64 bytes of ours that the peer may read and write.
fn region(stage: &mut Stage) -> (Region, Target) {
    let regions = &mut stage.turn.rma.regions;
    let region = regions.register(Memory::Owned(vec![0; 64]));
    regions.publish(region, 5, Rights::READ | Rights::WRITE, None).expect("it is there");
    (region, Target { region: 0, key: 5, offset: 0 })
}

/// The peer's next frame, with these.
fn ask(stage: &mut Stage, asked: &[Operation<'_>]) {
    let mut body = Vec::new();
    for operation in asked {
        let at = body.len();
        body.resize(at + operation.len(), 0);
        operation.emit(&mut body[at..]);
    }
    // As the router does it.
    stage.turn.counters.frames_received += 1;
    stage.arrive(Kind::Data, 0, &body).expect("it is sound");
    stage.seq += 1;
}

#[test]
fn a_put_of_which_a_part_is_refused_signals_nothing_and_says_why_first() {
    let mut stage = in_phase("Open");
    let (region, to) = region(&mut stage);
    let put = |to, flags| Operation::Put { to, flags, bytes: &[1; 8] };
    let (last, wrong) = (put_flags::LAST, Target { key: 6, ..to });
    ask(&mut stage, &[put(to.plus(60), 0), put(to, last | put_flags::SIGNAL)]);
    ask(&mut stage, &[put(to.plus(60), 0), put(wrong, last)]);
    ask(&mut stage, &[put(to, last), put(wrong, last), put(to.plus(60), last)]);
    assert_eq!(stage.turn.rma.regions.signals(region), Some(0));
    assert_eq!(
        operations(&mut stage),
        [
            "Refused { op: 0, count: 2, why: Bounds }",
            "Refused { op: 3, count: 1, why: NoRegion }",
            "Refused { op: 4, count: 1, why: Bounds }",
        ]
    );
    ask(&mut stage, &[put(wrong, last), put(to, last), put(wrong, last)]);
    let apart = ["Refused { op: 5, count: 1, why: NoRegion }", "Refused { op: 7, count: 1, why: NoRegion }"];
    assert_eq!(operations(&mut stage), apart);
}

/// Nothing is answered behind our Close.
#[test]
fn what_is_answered_or_cannot_be_needs_its_memory_no_more() {
    for (phase, answers) in [("Open", 2), ("Closing", 0)] {
        let mut stage = in_phase(phase);
        let (region, to) = region(&mut stage);
        let flags = put_flags::LAST | put_flags::DONE;
        ask(&mut stage, &[Operation::Get { from: to, len: 8 }, Operation::Put { to, flags, bytes: &[1; 8] }]);
        let (conn, turn) = stage.turn();
        conn.push_done(turn);
        assert_eq!(operations(&mut stage).len(), answers, "{phase}");
        let (turn, mut events) = (&mut stage.turn, VecDeque::new());
        assert!(turn.rma.regions.unregister(region, &mut events));
        assert!(matches!(events.front(), Some(Event::Unregistered { .. })), "{phase}");
    }
}

/// A get of ours into it, and one of the peer's out of it that is too long to be copied.
#[test]
fn a_connection_that_ends_needs_no_memory_any_more() {
    let mut stage = in_phase("Open");
    let (region, to) = region(&mut stage);
    let (conn, turn) = stage.turn();
    let index = turn.rma.regions.hold(region, 0, 64).expect("it is there");
    conn.one_sided(&turn.config).get(to, index, 0, 64).expect("there is room");
    ask(&mut stage, &[Operation::Get { from: to, len: 64 }]);
    let (conn, turn) = stage.turn();
    let mut events = VecDeque::new();
    assert!(turn.rma.regions.unregister(region, &mut events) && events.is_empty(), "both are under way");
    conn.handle_link_gone(turn);
    let told = stage.told();
    assert!(told.contains("OpFailed") && told.contains("Unregistered"), "{told}");
}
