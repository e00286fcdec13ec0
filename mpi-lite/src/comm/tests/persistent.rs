//! Messages that are begun again and again.
#![allow(unsafe_code)] // Raw calls, on memory that the tests own.

use super::*;
use crate::datatype::Predefined;

#[test]
fn a_persistent_message_goes_as_often_as_it_is_begun() {
    job(2, |comm| {
        let (mut data, other) = ([0u32; 4], 1 - comm.rank());
        let (memory, kind) = (data.as_mut_ptr().cast::<u8>(), Predefined::Uint32.into());
        // SAFETY: `data` outlives both, and is touched only while they are inactive.
        let mut message = unsafe {
            if comm.rank() == 0 {
                comm.send_init(Mode::Standard, memory, 4, &kind, other.into(), 3)
            } else {
                comm.recv_init(memory, 4, &kind, other.into(), None)
            }
        };
        assert_eq!(message.wait(), Ok(Status::EMPTY));
        for round in 0..100 {
            // SAFETY: as above.
            let now = unsafe { &mut *memory.cast::<[u32; 4]>() };
            if comm.rank() == 0 {
                *now = [round; 4];
            }
            message.start().unwrap();
            assert_eq!(message.start(), Err(ErrorClass::Request));
            let status = message.wait().unwrap();
            assert!(!message.is_active());
            if comm.rank() == 1 {
                assert_eq!((status.bytes, status.tag, *now), (16, Some(3), [round; 4]));
            }
        }
        comm.barrier().unwrap();
        if comm.rank() == 1 {
            // Active when it is dropped, and no message comes.
            message.start().unwrap();
        }
        drop(message);
        comm.barrier().unwrap();
    });
}
