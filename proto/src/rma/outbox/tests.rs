//! How large puts are cut, and when they are over.

use super::*;
use crate::wire::Operations;

const TO: Target = Target { region: 0, key: 1, offset: 1_000 };

/// Frames of at most `room` bytes that carry a put of 100 bytes, of which `rest` shall be a record: the puts in each by offset,
/// length and flags.
fn frames(outbox: &mut Outbox, rest: usize, backwards: bool, room: usize) -> Vec<Vec<(u64, usize, u8)>> {
    let regions = Regions::default();
    let bytes: Vec<u8> = (0..100).collect();
    let (source, cut) = (Source::Buffer(bytes.clone()), Cut { len: 100, rest, backwards });
    outbox.push_put((TO, put_flags::DONE, 0), source, cut, &regions).unwrap();
    let mut frames = Vec::new();
    while let Some(span) = outbox.next_span(room) {
        let mut body = vec![0; span.body_len()];
        outbox.write(span, &mut body, &regions);
        outbox.advance(span);
        let puts = Operations::new(&body).map(|operation| {
            let Ok(Operation::Put { to, flags, bytes: there }) = operation else { panic!("{operation:?}") };
            let offset = to.offset - TO.offset;
            assert_eq!(there, &bytes[offset as usize..][..there.len()]);
            (offset, there.len(), flags)
        });
        frames.push(puts.collect());
    }
    frames
}

const LAST: u8 = put_flags::DONE | put_flags::LAST;

#[test]
fn the_rest_of_a_put_is_a_record_where_there_is_room_for_one() {
    for (capacity, held) in [(200, MARKER_LEN + PUT_LEN + 30), (PUT_LEN + 30, MARKER_LEN)] {
        let mut outbox = Outbox::new(capacity, 200);
        let forwards = frames(&mut outbox, 30, false, PUT_LEN + 35);
        assert_eq!(forwards, [[(0, 35, 0)], [(35, 35, 0)], [(70, 30, LAST)]]);
        assert_eq!(outbox.ring.used(), held);
        let mut outbox = Outbox::new(capacity, 200);
        let backwards = frames(&mut outbox, 30, true, PUT_LEN + 35);
        assert_eq!(backwards, [[(65, 35, 0)], [(30, 35, 0)], [(0, 30, LAST)]]);
        assert_eq!(outbox.ring.used(), held);
    }
}

#[test]
fn a_put_is_over_with_the_bytes_that_went_last() {
    for (backwards, offsets) in [(false, [0, 40, 80]), (true, [60, 20, 0])] {
        let mut outbox = Outbox::new(300, 300);
        let sent = frames(&mut outbox, 0, backwards, PUT_LEN + 40);
        assert_eq!(sent, [[(offsets[0], 40, 0)], [(offsets[1], 40, 0)], [(offsets[2], 20, LAST)]]);
        for (offset, len) in offsets.into_iter().zip([40, 40, 20]) {
            assert!(outbox.needs_source_of(0));
            let part = OpSpan::Part { number: 0, front: PUT_LEN as u8, offset: offset as usize, len };
            outbox.release(part, &mut Regions::default(), &mut Spares::default(), &mut VecDeque::new());
        }
        assert!(outbox.is_empty() && !outbox.needs_source_of(0));
    }
}

#[test]
fn what_was_copied_counts_until_it_is_acknowledged() {
    for (rest, backwards, offset) in [(0, false, 0), (0, true, 0), (30, false, 0), (30, true, 30)] {
        let mut outbox = Outbox::new(300, 300);
        frames(&mut outbox, rest, backwards, 200);
        assert_eq!(outbox.copied, 100 - rest);
        let part = OpSpan::Part { number: 0, front: PUT_LEN as u8, offset, len: 100 - rest };
        outbox.release(part, &mut Regions::default(), &mut Spares::default(), &mut VecDeque::new());
        assert_eq!(outbox.copied, 0);
    }
}
