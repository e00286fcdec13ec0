//! Reads any bytes, and writes again what was read: for the fuzzer, and for tests.

use super::{
    FIRST_LEN, FULL_LEN, HELLO_LEN, Header, Hello, Kind, Operation, Operations, PING_LEN, PLAIN_LEN, PlainHeader,
    RECORD_LEN, Record, Records, Tokens, is_operations, put_close, put_first, put_message, put_more, split_messages,
};

/// Reads `frame` by every parser. What can be read has to come out the same when it is written again, but for what nobody
/// reads: the check, reserved bytes, padding. Panics where it does not.
pub fn read_and_write(frame: &[u8]) {
    if let Ok(header) = Header::parse(frame, false) {
        let mut again = [0; FULL_LEN];
        header.emit(&mut again);
        assert_eq!(again[4..], frame[4..FULL_LEN], "{header:?}");
        read_body(header.kind, &frame[FULL_LEN..]);
    }
    if let Ok(header) = PlainHeader::parse(frame) {
        let mut again = [0; PLAIN_LEN];
        header.emit(&mut again);
        assert_eq!(again, frame[..PLAIN_LEN], "{header:?}");
        read_body(header.kind, &frame[PLAIN_LEN..]);
    }
}

fn read_body(kind: Kind, body: &[u8]) {
    match kind {
        Kind::Data if is_operations(body) => {
            let Ok((operations, messages)) = split_messages(body) else { return };
            read_operations(operations);
            read_records(messages);
        }
        Kind::Data => read_records(body),
        Kind::Ack => {}
        Kind::Hello | Kind::HelloAck => {
            let Ok(hello) = Hello::parse(body) else { return };
            let mut again = [0; HELLO_LEN];
            hello.emit(&mut again);
            assert_eq!(again, body[..HELLO_LEN], "{hello:?}");
        }
        Kind::Ping | Kind::Reset => {
            let Ok(tokens) = Tokens::parse(body) else { return };
            let mut again = [0; PING_LEN];
            tokens.emit(&mut again);
            assert_eq!(again, body, "{tokens:?}");
        }
    }
}

fn read_operations(body: &[u8]) {
    let mut at = 0;
    for operation in Operations::new(body) {
        let Ok(operation) = operation else { return };
        let mut again = vec![0; operation.len()];
        operation.emit(&mut again);
        let written = &body[at..at + again.len()];
        // Flags that nobody knows are not kept, nor those of records that have none.
        if !matches!(operation, Operation::Put { .. } | Operation::Refused { .. } | Operation::Atomic { .. }) {
            again[1] = written[1];
        }
        assert_eq!(again, written, "{operation:?} at {at}");
        at += again.len();
    }
    assert_eq!(at, body.len(), "operations fill a body that can be read");
}

fn read_records(body: &[u8]) {
    let mut at = 0;
    for record in Records::new(body) {
        let Ok(record) = record else { return };
        let mut again;
        match record {
            Record::Message(message) => {
                again = vec![0; RECORD_LEN + message.len()];
                put_message(&mut again, message);
            }
            Record::First { total, part } => {
                again = vec![0; FIRST_LEN];
                put_first(&mut again, part.len() as u16, total);
                again.extend(part);
            }
            Record::More(part) => {
                again = vec![0; RECORD_LEN];
                put_more(&mut again, part.len() as u16);
                again.extend(part);
            }
            Record::Close => {
                again = vec![0; RECORD_LEN];
                put_close(&mut again);
            }
        }
        again[1] = body[at + 1];
        assert_eq!(again, body[at..at + again.len()], "{record:?} at {at}");
        at += again.len();
    }
    assert_eq!(at, body.len(), "records fill a body that can be read");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::VERSION;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_can_be_read_is_written_as_it_was(kind in 0u8..6, plain: bool, mut frame in proptest::collection::vec(any::<u8>(), 24..96)) {
            let at = if plain { 0 } else { 4 };
            frame[at] = VERSION << 4 | kind;
            frame[at + 1] &= 0x7f;
            read_and_write(&frame);
        }

        #[test]
        fn operations_are_written_as_they_were(kind in 16u8..23, rest in proptest::collection::vec(any::<u8>(), 40..80)) {
            let mut frame = vec![0; PLAIN_LEN];
            frame[0] = VERSION << 4;
            frame.extend([kind, rest[0] % 5, rest[1] % 30, 0]);
            frame.extend(&rest[2..]);
            read_and_write(&frame);
        }

        #[test]
        fn records_are_written_as_they_were(lens in proptest::collection::vec((1u8..5, 0usize..40), 0..8)) {
            let mut frame = vec![0; PLAIN_LEN];
            frame[0] = VERSION << 4;
            for (kind, len) in lens {
                let len = if kind == 4 { 0 } else { len };
                frame.extend([kind, 0, len as u8, 0]);
                frame.extend(std::iter::repeat_n(7, len + if kind == 2 { 4 } else { 0 }));
            }
            read_and_write(&frame);
        }
    }
}
