//! Teams of any size for algorithms that want a power of two.

use super::{Schedule, Span, Team};

/// A team of any size brought to a power of two: of the first members, every second gives what it has to the one before
/// it and stands aside.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fold {
    /// How many stay, the largest power of two in the team's size.
    pub(super) size: usize,
    folded: usize,
    role: Role,
}

/// What becomes of us.
#[derive(Clone, Copy, Debug)]
enum Role {
    /// We give what we have to this member.
    Aside {
        /// Its number in the team.
        to: usize,
    },
    Stays(Staying),
}

/// Who stays.
#[derive(Clone, Copy, Debug)]
pub(super) struct Staying {
    /// Our number among those who stay, in the team's order.
    pub(super) number: usize,
    /// The member, next to us, that gives us what it has.
    pub(super) takes_from: Option<usize>,
}

impl Fold {
    pub(super) fn of(team: Team) -> Self {
        let size = 1 << team.size.ilog2();
        let folded = team.size - size;
        let role = if team.me >= 2 * folded {
            Role::Stays(Staying { number: team.me - folded, takes_from: None })
        } else if team.me.is_multiple_of(2) {
            Role::Stays(Staying { number: team.me / 2, takes_from: Some(team.me + 1) })
        } else {
            Role::Aside { to: team.me - 1 }
        };
        Self { size, folded, role }
    }

    /// Who we are among those who stay. `None` if we stand aside: all that is ours to do is in the schedule then, to give `input` and
    /// to receive the result, where there is one for us.
    pub(super) fn enter(
        &self,
        schedule: &mut Schedule,
        team: Team,
        input: Span,
        result: Option<Span>,
    ) -> Option<Staying> {
        let to = match self.role {
            Role::Stays(staying) => return Some(staying),
            Role::Aside { to } => team.rank(to),
        };
        schedule.send(to, input);
        schedule.next_round();
        if let Some(result) = result {
            schedule.receive(to, result);
            schedule.next_round();
        }
        None
    }

    /// The member that is `number` among those who stay. Those from it up to the next one's are its charge.
    pub(super) fn member(&self, number: usize) -> usize {
        if number < self.folded { 2 * number } else { number + self.folded }
    }
}

impl Staying {
    /// Combines `value` with what we are given, in whichever order.
    pub(super) fn take_in(self, schedule: &mut Schedule, team: Team, value: Span) {
        if let Some(member) = self.takes_from {
            let came = schedule.scratch(value.len());
            schedule.receive(team.rank(member), came);
            schedule.combine(value, came);
        }
    }
}
