use super::team::Team;

/// A team of any size brought to a power of two: of the first members, every second gives what it has to the one before
/// it and stands aside.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fold {
    /// How many stay, the largest power of two in the team's size.
    pub(super) size: usize,
    folded: usize,
    pub(super) role: Role,
}

/// What becomes of us.
#[derive(Clone, Copy, Debug)]
pub(super) enum Role {
    /// We give what we have to this member.
    Aside {
        /// Its number in the team.
        to: usize,
    },
    /// We stay.
    Stays {
        /// Our number among those who stay, in the team's order.
        number: usize,
        /// The member, next to us, that gives us what it has.
        takes_from: Option<usize>,
    },
}

impl Fold {
    pub(super) fn of(team: Team) -> Self {
        let size = 1 << team.size.ilog2();
        let folded = team.size - size;
        let role = if team.me >= 2 * folded {
            Role::Stays { number: team.me - folded, takes_from: None }
        } else if team.me.is_multiple_of(2) {
            Role::Stays { number: team.me / 2, takes_from: Some(team.me + 1) }
        } else {
            Role::Aside { to: team.me - 1 }
        };
        Self { size, folded, role }
    }

    /// The member that is `number` among those who stay. Those from it up to the next one's are its charge.
    pub(super) fn member(&self, number: usize) -> usize {
        if number < self.folded { 2 * number } else { number + self.folded }
    }
}
