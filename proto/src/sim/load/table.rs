//! The loads that are kept an eye on, and their table.

use std::fmt::Write as _;

use sidelane_nic::time::Duration;

use super::{Load, Sender, Shape, trouble};

const BASE: Load = Load {
    name: "",
    shape: Shape::ManyToOne(2),
    // One frame of 1500 bytes with both headers.
    message: 1472,
    rate: 10_000_000_000,
    first_rate: 10_000_000_000,
    // A shallow switch: what 10 Gbit/s carry in 300 µs.
    queue: 375_000,
    delay: Duration::from_micros(5),
    loss: 0.0,
    flap: Duration::ZERO,
    jump: Duration::ZERO,
    restart: false,
    slow: Duration::ZERO,
    slice: Duration::ZERO,
    span: Duration::from_millis(20),
};

/// Linux gives a process about so long where others wait for its core (kernel/sched/fair.c, `sysctl_sched_base_slice`: 0.7 ms
/// for one processor, 2.8 ms for eight and more).
const BUSY: Duration = Duration::from_millis(3);
/// 25 turns of two such hosts.
const LONG: Duration = Duration::from_millis(150);

/// Everything in the table.
pub const LOADS: [Load; 17] = [
    Load { name: "1 to 1", shape: Shape::ManyToOne(1), ..BASE },
    Load { name: "2 to 1", ..BASE },
    Load { name: "16 to 1", shape: Shape::ManyToOne(16), ..BASE },
    Load { name: "128 to 1", shape: Shape::ManyToOne(128), ..BASE },
    Load { name: "256 to 1", shape: Shape::ManyToOne(256), ..BASE },
    Load { name: "128 to 1, queue of 64 kB", shape: Shape::ManyToOne(128), queue: 64_000, ..BASE },
    Load { name: "all to all, 16 nodes", shape: Shape::AllToAll(16), ..BASE },
    Load { name: "16 to 1, one of 1 Gbit/s", shape: Shape::ManyToOne(16), first_rate: 1_000_000_000, ..BASE },
    Load { name: "2 to 1, 100 µs away", delay: Duration::from_micros(100), ..BASE },
    Load { name: "1 to 1, 0.1 % lost", shape: Shape::ManyToOne(1), loss: 0.001, ..BASE },
    Load { name: "16 to 1, 0.1 % lost", shape: Shape::ManyToOne(16), loss: 0.001, ..BASE },
    Load { name: "16 to 1, slow receiver", shape: Shape::ManyToOne(16), slow: Duration::from_millis(10), ..BASE },
    Load { name: "16 to 1, a link flaps", shape: Shape::ManyToOne(16), flap: Duration::from_millis(2), ..BASE },
    Load { name: "16 to 1, all asleep", shape: Shape::ManyToOne(16), jump: Duration::from_millis(2), ..BASE },
    Load { name: "1 to 1, busy hosts", shape: Shape::ManyToOne(1), slice: BUSY, span: LONG, ..BASE },
    Load { name: "16 to 1, busy hosts", shape: Shape::ManyToOne(16), slice: BUSY, span: LONG, ..BASE },
    Load { name: "16 to 1, one restarts", shape: Shape::ManyToOne(16), restart: true, ..BASE },
];

/// The loads whose names contain `part`, with all senders, as text. The same each time.
pub fn table(part: &str) -> String {
    let mut table = String::from(
        "10 Gbit/s, 5 µs one way, a queue of 375 kB (300 µs) before each downlink, messages of 1472 B, 20 ms; unless it says \
         otherwise.\nGoodput: payload as a share of the line rate (95.7 % is all there is). Queue: wait before the downlink.\n\
         Busy hosts: nodes of even and of odd number run by turns, 3 ms each, for 150 ms; sender and receiver never together in the first.\n\n",
    );
    let _ = writeln!(
        table,
        "{:<26}{:<16}{:>9}{:>12}{:>12}{:>8}{:>9}",
        "load", "sender", "goodput", "queue p50", "queue p99", "Jain", "lost"
    );
    for load in LOADS.into_iter().filter(|load| load.name.contains(part)) {
        for (sender, name) in
            [(Sender::Ours, "sidelane"), (Sender::Uncontrolled, "no control"), (Sender::GoBackN, "go-back-N")]
        {
            let measured = load.play(sender);
            let _ = writeln!(
                table,
                "{:<26}{:<16}{:>7.1} %{:>9.1} µs{:>9.1} µs{:>8.3}{:>7.2} %",
                if sender == Sender::Ours { load.name } else { "" },
                name,
                100.0 * measured.goodput,
                measured.queue_p50.as_nanos() as f64 / 1e3,
                measured.queue_p99.as_nanos() as f64 / 1e3,
                measured.fairness,
                100.0 * measured.lost
            );
        }
    }
    table += "\nOf nodes that stand still, whose clocks leap, or that come late; at 1 Gbit/s where others go on meanwhile. Again: from its \
              end until a\nmessage of every sender had come that was sent since. Gone: connections that ended, counted at both sides. Goodput and \
              Jain's index: of the 20 ms\n\
              from its end on (100 ms after 5 s), so also of the time in which not all are back.\n\n";
    let _ = writeln!(table, "{:<38}{:>12}{:>7}{:>11}{:>8}", "trouble", "again", "gone", "goodput", "Jain");
    table + &trouble::table(&BASE, part)
}
