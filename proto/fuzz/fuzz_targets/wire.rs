//! Any bytes, read as a frame by every parser: nothing may panic, and what can be read is written again as it was.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|frame: &[u8]| sidelane_proto::read_and_write(frame));
