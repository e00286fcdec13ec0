//! Socket filters: programs in classic BPF that the kernel runs before a frame takes a place in a socket (linux/filter.h,
//! networking/filter.rst). Ours accept what passes all of some tests.

use libc::sock_filter;

/// A load of `size` (`BPF_B`, `BPF_H`, `BPF_W`) from offset `at` that has to give `equals`. A load past the frame's end rejects the frame.
pub(crate) struct Test {
    pub size: u32,
    pub at: u32,
    pub equals: u32,
}

/// Accepts frames that pass all of `tests`.
pub(crate) fn all_of(tests: &[Test]) -> Vec<sock_filter> {
    let reject = 2 * tests.len() + 1;
    let mut program = Vec::with_capacity(reject + 1);
    for test in tests {
        program.push(instruction(libc::BPF_LD | test.size | libc::BPF_ABS, test.at, 0));
        // Jumps count from the instruction behind this one.
        let to_reject = (reject - program.len() - 1) as u8;
        program.push(instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, test.equals, to_reject));
    }
    program.push(instruction(libc::BPF_RET | libc::BPF_K, WHOLE_FRAME, 0));
    program.push(instruction(libc::BPF_RET | libc::BPF_K, 0, 0));
    program
}

fn instruction(code: u32, k: u32, otherwise: u8) -> sock_filter {
    sock_filter { code: code as u16, jt: 0, jf: otherwise, k }
}

/// A filter returns how many bytes to keep; more than any frame has keeps it whole.
const WHOLE_FRAME: u32 = 0x4_0000;
