//! Which receive takes which message (MPI-4.1 3.5): both queues, whatever they hold.

use super::envelope::Envelope;
use super::lists::Class;
use super::posted::Posted;
use super::unexpected::{Found, Unexpected};

/// Receives that wait for messages, and messages that wait for receives; never two that match.
#[derive(Debug)]
pub(super) struct Matching<T> {
    pub posted: Posted,
    pub unexpected: Unexpected<T>,
}

impl<T> Default for Matching<T> {
    fn default() -> Self {
        Self { posted: Posted::default(), unexpected: Unexpected::default() }
    }
}

impl<T> Matching<T> {
    /// A message has arrived: the receive that takes it. If there is none, [`Unexpected::push`] must follow.
    #[inline]
    pub fn arrive(&mut self, key: Envelope) -> Option<u32> {
        self.posted.take(key)
    }

    /// A receive is posted: the message that it takes. If there is none, the receive waits.
    #[inline]
    pub fn post(&mut self, key: Envelope, class: Class, request: u32) -> Option<Found> {
        let found = self.unexpected.find(key, class);
        if found.is_none() {
            self.posted.post(key, class, request);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What a program does, and what a list of all that waits makes of it.
    #[derive(Debug, Clone)]
    enum Step {
        Arrive { context: u32, source: u32, tag: i32 },
        Post { context: u32, source: Option<u32>, tag: Option<i32> },
        Probe { context: u32, source: Option<u32>, tag: Option<i32> },
        SetAside { context: u32, source: Option<u32>, tag: Option<i32> },
        Cancel { which: usize },
    }

    fn step() -> impl Strategy<Value = Step> {
        let source = || prop_oneof![3 => (0..3u32).prop_map(Some), 1 => Just(None)];
        let tag = || prop_oneof![3 => (-1..2i32).prop_map(Some), 1 => Just(None)];
        let pattern = || (0..2u32, source(), tag());
        prop_oneof![
            6 => (0..2u32, 0..3u32, -1..2i32).prop_map(|(context, source, tag)| Step::Arrive { context, source, tag }),
            6 => pattern().prop_map(|(context, source, tag)| Step::Post { context, source, tag }),
            1 => pattern().prop_map(|(context, source, tag)| Step::Probe { context, source, tag }),
            1 => pattern().prop_map(|(context, source, tag)| Step::SetAside { context, source, tag }),
            1 => any::<usize>().prop_map(|which| Step::Cancel { which }),
        ]
    }

    type Pattern = (u32, Option<u32>, Option<i32>);

    fn matches((context, source, tag): Pattern, key: Envelope) -> bool {
        context == key.context() && source.is_none_or(|s| s == key.source()) && tag.is_none_or(|t| t == key.tag())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn queues_match_as_a_list_does(steps in proptest::collection::vec(step(), 0..120)) {
            let mut matching = Matching::default();
            let (mut receives, mut messages) = (Vec::<(Pattern, u32)>::new(), Vec::<(Envelope, usize)>::new());
            let mut free: Vec<u32> = (0..200).rev().collect();
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Arrive { context, source, tag } => {
                        let key = Envelope::new(context, source, tag);
                        let expected = receives.iter().position(|(pattern, _)| matches(*pattern, key));
                        let taken = matching.arrive(key);
                        prop_assert_eq!(taken, expected.map(|at| receives[at].1));
                        match expected {
                            Some(at) => free.push(receives.remove(at).1),
                            None => {
                                messages.push((key, number));
                                matching.unexpected.push(key, number);
                            }
                        }
                    }
                    Step::Post { context, source, tag } => {
                        let Some(request) = free.pop() else { continue };
                        let (key, class) = Envelope::of_receive(context, source, tag);
                        let expected = messages.iter().position(|(key, _)| matches((context, source, tag), *key));
                        let found = matching.post(key, class, request);
                        let taken = found.and_then(|found| matching.unexpected.take(found));
                        prop_assert_eq!(taken, expected.map(|at| messages[at]));
                        match expected {
                            Some(at) => {
                                messages.remove(at);
                                free.push(request);
                            }
                            None => receives.push(((context, source, tag), request)),
                        }
                    }
                    Step::Probe { context, source, tag } => {
                        let (key, class) = Envelope::of_receive(context, source, tag);
                        let expected = messages.iter().find(|(key, _)| matches((context, source, tag), *key));
                        let found = matching.unexpected.find(key, class);
                        let seen = found.and_then(|found| matching.unexpected.get(found).map(|(key, n)| (key, *n)));
                        prop_assert_eq!(seen, expected.copied());
                    }
                    Step::SetAside { context, source, tag } => {
                        let (key, class) = Envelope::of_receive(context, source, tag);
                        let Some(found) = matching.unexpected.find(key, class) else { continue };
                        matching.unexpected.set_aside(found);
                        let at = messages.iter().position(|(key, _)| matches((context, source, tag), *key)).unwrap();
                        prop_assert_eq!(matching.unexpected.take(found), Some(messages.remove(at)));
                        prop_assert_eq!(matching.unexpected.take(found), None);
                    }
                    Step::Cancel { which } => {
                        if receives.is_empty() { continue }
                        let ((context, source, tag), request) = receives.remove(which % receives.len());
                        let (key, class) = Envelope::of_receive(context, source, tag);
                        matching.posted.remove(key, class, request);
                        free.push(request);
                    }
                }
                prop_assert_eq!(matching.unexpected.len(), messages.len());
            }
        }
    }

    #[test]
    fn thousands_of_lists_are_found_again() {
        let mut matching = Matching::default();
        for tag in 0..10_000 {
            matching.unexpected.push(Envelope::new(1, tag as u32 % 7, tag), tag);
        }
        for tag in (0..10_000).rev() {
            let (key, class) = Envelope::of_receive(1, (tag % 2 == 0).then_some(tag as u32 % 7), Some(tag));
            let found = matching.post(key, class, 0).unwrap();
            assert_eq!(matching.unexpected.take(found).unwrap().1, tag);
        }
        assert_eq!(matching.unexpected.len(), 0);
    }
}
