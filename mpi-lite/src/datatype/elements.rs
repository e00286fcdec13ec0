//! Which numbers stand where: a type's map as the standard defines it, with its repetitions kept symbolic.

use std::sync::Arc;

use super::Predefined;

/// Predefined types and their displacements, in the order of the type map. Lives beside the layout, which merges runs and
/// so forgets what they hold.
#[derive(Debug, Clone)]
pub(super) enum Elements {
    None,
    One(Predefined),
    Repeat { count: usize, stride: isize, body: Arc<Elements> },
    Sequence(Arc<[(isize, Elements)]>),
}

impl Elements {
    /// Calls `each` with every element and its displacement, as long as that returns true; returns whether all did.
    pub fn visit(&self, at: isize, each: &mut impl FnMut(Predefined, isize) -> bool) -> bool {
        match self {
            Self::None => true,
            Self::One(kind) => each(*kind, at),
            Self::Repeat { count, stride, body } => {
                (0..*count).all(|index| body.visit(at + index as isize * stride, each))
            }
            Self::Sequence(parts) => parts.iter().all(|(place, part)| part.visit(at + place, each)),
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        match self {
            Self::None => 0,
            Self::One(_) => 1,
            Self::Repeat { count, body, .. } => count * body.count(),
            Self::Sequence(parts) => parts.iter().map(|(_, part)| part.count()).sum(),
        }
    }

    /// The type of all elements, when it is one.
    pub fn single(&self) -> Option<Predefined> {
        match self {
            Self::None => None,
            Self::One(kind) => Some(*kind),
            Self::Repeat { body, .. } => body.single(),
            Self::Sequence(parts) => {
                let mut kinds = parts.iter().map(|(_, part)| part.single());
                let first = kinds.next()??;
                kinds.all(|kind| kind == Some(first)).then_some(first)
            }
        }
    }

    /// What `of` says of each, in all.
    pub fn sum(&self, of: fn(Predefined) -> usize) -> usize {
        match self {
            Self::None => 0,
            Self::One(kind) => of(*kind),
            Self::Repeat { count, body, .. } => count * body.sum(of),
            Self::Sequence(parts) => parts.iter().map(|(_, part)| part.sum(of)).sum(),
        }
    }
}
