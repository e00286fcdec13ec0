//! What a message costs while 1, 100 and 10,000 receives, or messages, wait that have nothing to do with it: a process with
//! itself, so that nothing but matching and one copy of 8 bytes is counted.
//!
//! ```text
//! cargo run --release -p sidelane-mpi --example matching                     nanoseconds
//! cargo run --release -p sidelane-mpi --example matching -- --instructions   instructions; needs valgrind
//! ```
//!
//! The second one runs itself under `valgrind --tool=callgrind --toggle-collect='*exchange*'`, twice for each figure; the
//! difference is free of everything that happens once.

use std::process::{Command, ExitCode};
use std::time::Instant;

use sidelane_mpi::adi::{Config, Device, Envelope, Incoming, Mode, Outgoing, Pattern, Process, Request, Source};

const MESSAGES: u32 = 1_000_000;
const ROUNDS: usize = 7;
/// How many wait.
const COUNTS: [i32; 3] = [1, 100, 10_000];

/// What waits while a message is sent and received.
#[derive(Clone, Copy)]
pub enum Waiting {
    /// With other tags.
    Receives,
    /// Of which every second one takes any source.
    OpenReceives,
    /// With other tags.
    Messages,
    /// And the receive takes any source.
    MessagesForAnybody,
}

/// What is measured.
pub const CASES: [(&str, Waiting); 4] = [
    ("receives", Waiting::Receives),
    ("receives, half of them open", Waiting::OpenReceives),
    ("messages", Waiting::Messages),
    ("messages; any source is taken", Waiting::MessagesForAnybody),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [] => table("ns", |case, count| {
            let mut rounds: Vec<_> = (0..ROUNDS).map(|_| nanoseconds(case, count, MESSAGES)).collect();
            rounds.sort_by(f64::total_cmp);
            Some(rounds[ROUNDS / 2])
        }),
        ["--instructions"] => table("instructions", instructions),
        [case, count, messages] => {
            let number = |text: &str| text.parse().expect("a number");
            let (mut device, mut room) = crowd(number(case), number(count) as i32);
            exchange(&mut device, &mut room, CASES[number(case)].1, number(messages) as u32);
            ExitCode::SUCCESS
        }
        _ => ExitCode::FAILURE,
    }
}

fn table(unit: &str, figure: impl Fn(usize, i32) -> Option<f64>) -> ExitCode {
    let heading = format!("{unit} a message, while there wait:");
    println!("{heading:<44}{:>10}{:>10}{:>10}", COUNTS[0], COUNTS[1], COUNTS[2]);
    for (case, (name, _)) in CASES.iter().enumerate() {
        print!("{name:<44}");
        for count in COUNTS {
            let Some(figure) = figure(case, count) else {
                eprintln!("valgrind counted nothing; is it there? (Debian: apt install valgrind)");
                return ExitCode::FAILURE;
            };
            print!("{figure:>10.1}");
        }
        println!();
    }
    ExitCode::SUCCESS
}

/// Of one of so many messages, while `count` of a case wait.
pub fn nanoseconds(case: usize, count: i32, messages: u32) -> f64 {
    let (mut device, mut room) = crowd(case, count);
    // The first receive from anybody looks at all that waits.
    exchange(&mut device, &mut room, CASES[case].1, 1);
    let begin = Instant::now();
    exchange(&mut device, &mut room, CASES[case].1, messages);
    begin.elapsed().as_nanos() as f64 / f64::from(messages)
}

fn instructions(case: usize, count: i32) -> Option<f64> {
    const FEW: u32 = 2_000;
    const MANY: u32 = 12_000;
    let counted = |messages: u32| {
        let output = Command::new("valgrind")
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=*exchange*"])
            .arg(std::env::current_exe().ok()?)
            .args([case.to_string(), count.to_string(), messages.to_string()])
            .output()
            .ok()?;
        let said = String::from_utf8(output.stderr).ok()?;
        said.lines().find_map(|line| line.split_once("Collected :")?.1.trim().parse::<u64>().ok())
    };
    Some((counted(MANY)? - counted(FEW)?) as f64 / f64::from(MANY - FEW))
}

/// A process with whom `count` receives or messages wait.
fn crowd(case: usize, count: i32) -> (Device, [u8; 8]) {
    let mut device = Device::open(0, vec![Process::here("host", &[])], vec![], &config()).expect("one process");
    for tag in 1..=count {
        match CASES[case].1 {
            Waiting::Receives => recv(&mut device, Some(0), tag, &mut []),
            Waiting::OpenReceives => recv(&mut device, (tag % 2 == 0).then_some(0), tag, &mut []),
            Waiting::Messages | Waiting::MessagesForAnybody => send(&mut device, tag),
        };
    }
    (device, [0; 8])
}

#[inline(never)]
fn exchange(device: &mut Device, room: &mut [u8; 8], waiting: Waiting, messages: u32) {
    let source = if matches!(waiting, Waiting::MessagesForAnybody) { None } else { Some(0) };
    for _ in 0..messages {
        let request = if matches!(waiting, Waiting::Receives | Waiting::OpenReceives) {
            let request = recv(device, source, 0, room);
            send(device, 0);
            request
        } else {
            send(device, 0);
            recv(device, source, 0, room)
        };
        assert_eq!(device.poll(request).map(|status| status.bytes), Some(8));
    }
}

fn recv(device: &mut Device, source: Option<u32>, tag: i32, room: &mut [u8]) -> Request {
    let source = source.map(|rank| Source { rank, process: 0 });
    // SAFETY: `room` outlives the receive: those that wait are never matched and have none, all others end in `exchange`.
    let room = unsafe { Incoming::lend(room) };
    device.recv(Pattern { context: 1, source, tag: Some(tag) }, room)
}

fn send(device: &mut Device, tag: i32) -> Request {
    // SAFETY: a constant.
    let bytes = unsafe { Outgoing::lend(b"8 bytes.") };
    device.send(0, Envelope::new(1, 0, tag), bytes, Mode::Standard)
}

/// No bound on what waits: this is about what is there.
fn config() -> Config {
    Config { credit: 4 << 20, ..Config::default() }
}
