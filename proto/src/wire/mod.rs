//! The wire format, version 1. `PROTOCOL.md` says in words what stands here in offsets.

#[cfg(any(test, fuzzing))]
mod again;
mod check;
mod crc;
#[cfg(target_arch = "x86_64")]
mod fold;
mod header;
mod hello;
mod operation;
mod record;
mod seq;

#[cfg(fuzzing)]
pub use again::read_and_write;
pub(crate) use check::{Check, Tail};
pub(crate) use crc::crc32c;
pub(crate) use header::{FULL_LEN, Header, Kind, NUMBER, PLAIN_LEN, PlainHeader, flags};
pub(crate) use hello::{HELLO_LEN, Hello, PING_LEN, Tokens};
pub(crate) use operation::{
    ANSWER_LEN, Change, Operation, Operations, PUT_LEN, Target, is_operations, lone_put, operation_len, put_answer,
    put_flags, put_put, split_messages,
};
pub(crate) use record::{
    FIRST_LEN, RECORD_LEN, Record, Records, is_lone_message, is_whole_messages, message_word, more_len, put_close,
    put_first, put_message, put_message_of_two, put_more,
};
pub(crate) use seq::Seq;

/// The version that this code speaks; the upper four bits of a frame's first byte.
pub const VERSION: u8 = 1;

/// Peer index of a frame whose receiver has not told its own yet.
pub(crate) const NO_PEER: u16 = u16::MAX;

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}
