//! Hillis, Steele, "Data parallel algorithms", 1986.
//!
//! Cost: ceil(log2 p) (L + 2o + n G).

use crate::coll::{Reduction, Schedule, Span, Team};

/// `output` becomes the combination of the inputs of all up to and with us. In place, `input` is `output`.
pub fn inclusive(schedule: &mut Schedule, team: Team, input: Span, output: Span, _: Reduction) {
    schedule.copy(output, input);
    doubling(schedule, team, output, |_, _| ());
}

/// `output` becomes the combination of the inputs of all before us; number 0 keeps what is there. In place, `input` is
/// `output`.
pub fn exclusive(schedule: &mut Schedule, team: Team, input: Span, output: Span, _: Reduction) {
    let value = schedule.scratch(input.len());
    schedule.copy(value, input);
    let mut any = false;
    doubling(schedule, team, value, |schedule, came| {
        if std::mem::replace(&mut any, true) {
            schedule.combine(output, came);
        } else {
            schedule.copy(output, came);
        }
    });
}

/// The combination of twice as many with every message time; `also` is told where each part from before us came in.
fn doubling(schedule: &mut Schedule, team: Team, value: Span, mut also: impl FnMut(&mut Schedule, Span)) {
    let room = schedule.scratch(value.len());
    let mut distance = 1;
    while distance < team.size {
        if team.me + distance < team.size {
            schedule.send(team.rank(team.me + distance), value);
        }
        if team.me >= distance {
            schedule.receive(team.rank(team.me - distance), room);
            also(schedule, room);
            schedule.combine(value, room);
        }
        schedule.next_round();
        distance *= 2;
    }
}
