//! The XDP program: which frames of an interface are ours, and whose.
//!
//! Run by the kernel for every frame that the interface receives, before anything else sees it. A frame under our
//! EtherType, to our MAC address, on our queue goes to the AF_XDP socket that its destination endpoint has in the map.
//! All others go on to the kernel as if nothing were there: SSH on the same interface, frames to endpoints that have no
//! socket here (a `uring:` endpoint may have one), frames on other queues.

use std::os::fd::{AsRawFd, BorrowedFd};

use super::bpf::Instruction;
use crate::encap::ether;

/// The program for the interface with this address.
pub fn steering(mac: [u8; 6], queue: u32, sockets: BorrowedFd) -> Vec<Instruction> {
    let [a, b, c, d, e, f] = mac;
    let mut program = Program(Vec::new());
    program.load(WORD, FRAME, CONTEXT, DATA);
    program.load(WORD, END, CONTEXT, DATA_END);
    // Up to and with the destination endpoint. The verifier lets nobody read a frame before its length is tested.
    program.push(MOVE_REGISTER, VALUE, FRAME, 0, 0);
    program.push(ADD, VALUE, 0, 0, ether::DST.end as i32);
    program.push_jump_to_pass(JUMP_IF_GREATER, VALUE, END, 0);

    program.load(HALF, VALUE, FRAME, ETHERTYPE);
    program.push_jump_to_pass(JUMP_UNLESS_EQUAL, VALUE, 0, u16::from_ne_bytes(ether::ETHERTYPE.to_be_bytes()).into());
    program.load(WORD, VALUE, FRAME, 0);
    program.push_jump_to_pass(JUMP_UNLESS_EQUAL_32, VALUE, 0, i32::from_ne_bytes([a, b, c, d]));
    program.load(HALF, VALUE, FRAME, 4);
    program.push_jump_to_pass(JUMP_UNLESS_EQUAL, VALUE, 0, u16::from_ne_bytes([e, f]).into());
    // A socket takes frames from the queue that it is bound to; the kernel would drop others.
    program.load(WORD, VALUE, CONTEXT, RX_QUEUE_INDEX);
    program.push_jump_to_pass(JUMP_UNLESS_EQUAL_32, VALUE, 0, queue as i32);

    program.load(HALF, ARGUMENT_2, FRAME, ether::DST.start as i16);
    program.push(TO_BIG_ENDIAN, ARGUMENT_2, 0, 0, 16);
    program.push(LOAD_CONSTANT_64, ARGUMENT_1, IS_MAP, 0, sockets.as_raw_fd());
    program.push(0, 0, 0, 0, 0);
    // What becomes of a frame that finds no socket (Linux 5.3).
    program.push(MOVE_CONSTANT, ARGUMENT_3, 0, 0, XDP_PASS);
    program.push(CALL, 0, 0, 0, REDIRECT_MAP);
    program.push(EXIT, 0, 0, 0, 0);
    program.finish()
}

struct Program(Vec<Instruction>);

impl Program {
    fn push(&mut self, code: u8, to: u8, from: u8, offset: i16, constant: i32) {
        self.0.push(Instruction { code, registers: registers(to, from), offset, constant });
    }

    fn load(&mut self, size: u8, to: u8, from: u8, offset: i16) {
        self.push(LOAD | size, to, from, offset, 0);
    }

    fn push_jump_to_pass(&mut self, code: u8, value: u8, other: u8, constant: i32) {
        self.push(code, value, other, TO_PASS, constant);
    }

    /// Adds the end that passes a frame on, and leads all jumps there.
    fn finish(mut self) -> Vec<Instruction> {
        let pass = self.0.len();
        for (at, instruction) in self.0.iter_mut().enumerate() {
            if instruction.offset == TO_PASS {
                // Jumps count from the instruction behind this one.
                instruction.offset = (pass - at - 1) as i16;
            }
        }
        self.push(MOVE_CONSTANT, RESULT, 0, 0, XDP_PASS);
        self.push(EXIT, 0, 0, 0, 0);
        self.0
    }
}

const fn registers(to: u8, from: u8) -> u8 {
    if cfg!(target_endian = "little") { to | from << 4 } else { to << 4 | from }
}

/// Stands for the offset to the end until that is known.
const TO_PASS: i16 = i16::MIN;

// Registers.
const RESULT: u8 = 0;
const ARGUMENT_1: u8 = 1;
const CONTEXT: u8 = 1;
const ARGUMENT_2: u8 = 2;
const FRAME: u8 = 2;
const ARGUMENT_3: u8 = 3;
const END: u8 = 3;
const VALUE: u8 = 4;

// struct xdp_md (linux/bpf.h)
const DATA: i16 = 0;
const DATA_END: i16 = 4;
const RX_QUEUE_INDEX: i16 = 16;

/// IEEE 802.3 clause 3.
const ETHERTYPE: i16 = 12;

// Instruction codes (bpf/standardization/instruction-set.rst)
const WORD: u8 = 0x00;
const HALF: u8 = 0x08;
const LOAD: u8 = 0x61;
const LOAD_CONSTANT_64: u8 = 0x18;
const ADD: u8 = 0x07;
const MOVE_CONSTANT: u8 = 0xb7;
const MOVE_REGISTER: u8 = 0xbf;
const TO_BIG_ENDIAN: u8 = 0xdc;
const JUMP_IF_GREATER: u8 = 0x2d;
const JUMP_UNLESS_EQUAL: u8 = 0x55;
const JUMP_UNLESS_EQUAL_32: u8 = 0x56;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
/// BPF_PSEUDO_MAP_FD: the constant is a descriptor of a map.
const IS_MAP: u8 = 1;

// linux/bpf.h
const REDIRECT_MAP: i32 = 51;
const XDP_PASS: i32 = 2;
