//! Agreement of processes of which some may die: all that get a verdict get the same one, also those that die after it.
//!
//! It knows no network. Whoever holds it brings what others say ([`Agreement::handle`]) and who is gone ([`Agreement::lose`]),
//! and delivers what it wants said.
//!
//! ```text
//! member                                          lead: the lowest rank that is alive
//!                     <-- Call                     to whoever has not said anything yet
//! Offer, or Locked    -->                          until all that are alive have spoken
//!                     <-- Propose                  of what was locked last; if nothing was, all offers combined by "and"
//! Accept              -->                          the member has locked the proposal
//!                     <-- Agreed                   when all that are alive have locked it
//! ```
//! When the lead dies, the next one asks again. Why nobody gets another verdict: one is given only when all that are alive have
//! locked it, so whoever leads later hears of it from everybody, and proposes the same. Whoever has gone over to a later lead
//! hears an earlier one no more. This is the consensus of Chandra and Toueg (J. ACM 43(2), 1996, section 6.1) for detectors that make no
//! mistakes, with the locks that make it uniform; four messages a member, in two round trips. The tree of Herault et al. (SC'15) would
//! save the lead messages, not the processes turns, and costs states.
//!
//! What it needs of the world: messages between two live processes arrive, in order; who is called gone is gone and says nothing that is
//! heard later; and whoever is waited for and is gone will be called so.

use super::ranks::Ranks;

/// One process's part in one agreement.
#[derive(Debug, Clone)]
pub struct Agreement {
    own: usize,
    alive: Ranks,
    stage: Stage,
    /// The lead that has our state, or us.
    heard_by: Option<usize>,
    /// What others have told us as their lead. Some do so before we know that we are.
    told: Vec<Option<Told>>,
    /// Who has locked what we propose.
    accepted: Ranks,
}

/// What all get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Who was alive, as far as was known.
    pub alive: Ranks,
    /// What was offered, combined by "and": by all in `alive`, and maybe by others.
    pub value: Vec<u64>,
}

/// What processes say to each other. Each word comes with who is alive, as far as its speaker knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Word {
    Call,
    Offer(Vec<u64>),
    /// What was proposed by an earlier lead, and by whom.
    Locked(usize, Verdict),
    Propose(Verdict),
    Accept,
    Agreed(Verdict),
}

impl Word {
    const fn verdict(&self) -> Option<&Verdict> {
        match self {
            Self::Locked(_, verdict) | Self::Propose(verdict) | Self::Agreed(verdict) => Some(verdict),
            Self::Call | Self::Offer(_) | Self::Accept => None,
        }
    }
}

/// How far it is here.
///
/// ```text
/// Absent --our offer--> Offered --proposal--> Locked --all have locked it--> Agreed
///                                             ^    | proposal of a later lead
///                                             +----+
/// ```
/// Whoever hears of the verdict has it, from whatever stage.
#[derive(Debug, Clone)]
enum Stage {
    /// This process has not come to it.
    Absent,
    Offered(Vec<u64>),
    Locked(usize, Verdict),
    Agreed(Verdict),
}

#[derive(Debug, Clone)]
enum Told {
    Offer(Vec<u64>),
    Locked(usize, Verdict),
}

/// What is to be said, and to which rank.
pub type Out = Vec<(usize, Word)>;

impl Agreement {
    /// Rank `own` among `size` of which `alive` are not known to be gone.
    pub fn new(own: usize, size: usize, alive: Ranks) -> Self {
        let accepted = Ranks::none(size);
        Self { own, alive, stage: Stage::Absent, heard_by: None, told: vec![None; size], accepted }
    }

    /// Who is alive, as far as this process knows: goes along with every word.
    pub const fn alive(&self) -> &Ranks {
        &self.alive
    }

    /// What this process offers, as many words as all others.
    pub fn offer(&mut self, value: Vec<u64>, out: &mut Out) {
        if matches!(self.stage, Stage::Absent) {
            self.stage = Stage::Offered(value);
            self.step(out);
        }
    }

    /// What was agreed, once it was.
    pub const fn verdict(&self) -> Option<&Verdict> {
        match &self.stage {
            Stage::Agreed(verdict) => Some(verdict),
            _ => None,
        }
    }

    /// A rank is gone.
    pub fn lose(&mut self, rank: usize, out: &mut Out) {
        if rank != self.own && self.alive.has(rank) {
            self.alive.remove(rank);
            self.step(out);
        }
    }

    /// Takes in what a rank has said, who knew these to be alive. What makes no sense changes nothing.
    pub fn handle(&mut self, from: usize, alive: &Ranks, word: Word, out: &mut Out) {
        if from == self.own
            || !self.alive.has(from)
            || word.verdict().is_some_and(|verdict| !verdict.alive.has(self.own))
        {
            return;
        }
        for rank in 0..self.told.len() {
            if rank != self.own && rank != from && !alive.has(rank) {
                self.alive.remove(rank);
            }
        }
        if let (Stage::Agreed(verdict), Word::Call | Word::Offer(_) | Word::Locked(..) | Word::Propose(_)) =
            (&self.stage, &word)
        {
            return out.push((from, Word::Agreed(verdict.clone())));
        }
        match word {
            Word::Call => {}
            Word::Offer(value) => self.told[from] = Some(Told::Offer(value)),
            Word::Locked(by, verdict) => self.told[from] = Some(Told::Locked(by, verdict)),
            Word::Propose(verdict) if self.lead() == from => {
                self.stage = Stage::Locked(from, verdict);
                out.push((from, Word::Accept));
            }
            // Of a lead that was overtaken.
            Word::Propose(_) => {}
            Word::Accept => self.accepted.insert(from),
            Word::Agreed(verdict) => self.agree(verdict, out),
        }
        self.step(out);
    }

    fn lead(&self) -> usize {
        self.alive.first().unwrap_or(self.own)
    }

    /// Does what follows from what is known.
    fn step(&mut self, out: &mut Out) {
        let word = match &self.stage {
            Stage::Absent | Stage::Agreed(_) => return,
            Stage::Offered(value) => Word::Offer(value.clone()),
            Stage::Locked(by, verdict) => Word::Locked(*by, verdict.clone()),
        };
        let lead = self.lead();
        if lead != self.own {
            if self.heard_by.replace(lead) != Some(lead) {
                out.push((lead, word));
            }
            return;
        }
        if self.heard_by.replace(lead) != Some(lead) {
            let silent = self.others().filter(|rank| self.told[*rank].is_none());
            out.extend(silent.map(|rank| (rank, Word::Call)));
        }
        if !matches!(self.stage, Stage::Locked(by, _) if by == self.own) {
            if !self.others().all(|rank| self.told[rank].is_some()) {
                return;
            }
            let verdict = self.proposal();
            out.extend(self.others().map(|rank| (rank, Word::Propose(verdict.clone()))));
            self.stage = Stage::Locked(self.own, verdict);
        }
        if self.others().all(|rank| self.accepted.has(rank))
            && let Stage::Locked(_, verdict) = &self.stage
        {
            let verdict = verdict.clone();
            self.agree(verdict, out);
        }
    }

    /// What was locked last among all that have spoken; without any, everything offered.
    fn proposal(&self) -> Verdict {
        let mut locked = match &self.stage {
            Stage::Locked(by, verdict) => Some((*by, verdict)),
            _ => None,
        };
        let mut value = match &self.stage {
            Stage::Offered(value) => value.clone(),
            _ => Vec::new(),
        };
        for told in self.told.iter().flatten() {
            match told {
                Told::Offer(other) => value.iter_mut().zip(other).for_each(|(into, other)| *into &= other),
                Told::Locked(by, verdict) if locked.is_none_or(|(last, _)| last < *by) => locked = Some((*by, verdict)),
                Told::Locked(..) => {}
            }
        }
        locked.map_or_else(|| Verdict { alive: self.alive.clone(), value }, |(_, verdict)| verdict.clone())
    }

    fn agree(&mut self, verdict: Verdict, out: &mut Out) {
        if self.lead() == self.own {
            out.extend(self.others().map(|rank| (rank, Word::Agreed(verdict.clone()))));
        }
        self.stage = Stage::Agreed(verdict);
    }

    fn others(&self) -> impl Iterator<Item = usize> + '_ {
        self.alive.iter().filter(|rank| *rank != self.own)
    }
}
