//! `sidelane nic`: the conformance suite on drivers that a user names.

use std::any::Any;

use sidelane_nic::conformance::{self, Report, Setup};
use sidelane_nic::spec::{NicUser, OpenError, Spec};
use sidelane_nic::{Nic, dpdk, mem, shm, udp, uring, xdp};

use crate::args::NicCommand;
use crate::say;

/// Runs a `nic` command; returns the exit code.
pub fn run(command: &NicCommand) -> i32 {
    let NicCommand::Test { nics } = command;
    let reports = match &nics[0] {
        Spec::Uring { .. } => test_with_threads::<uring::Uring>(nics),
        Spec::Xdp { .. } => test_with_threads::<xdp::Xdp>(nics),
        Spec::Udp { .. } => test_with_threads::<udp::Udp>(nics),
        Spec::Dpdk(_) => test_with_threads::<dpdk::Dpdk>(nics),
        Spec::Shm { .. } => test_with_threads::<shm::ShmNic>(nics),
        Spec::Mem => vec![conformance::run(&mut Named::<mem::MemNic>::new(nics))],
    };
    for report in &reports {
        say(report.to_string().trim_end());
    }
    let count = |what: fn(&conformance::Outcome) -> bool| {
        reports.iter().flat_map(|report| &report.cases).filter(|(_, outcome)| what(outcome)).count()
    };
    let failed = count(|outcome| matches!(outcome, conformance::Outcome::Failed(_)));
    let skipped = count(|outcome| matches!(outcome, conformance::Outcome::Skipped(_)));
    let passed = count(|outcome| *outcome == conformance::Outcome::Passed);
    say(format_args!("{passed} passed, {failed} failed, {skipped} skipped"));
    i32::from(failed > 0 || passed == 0)
}

fn test_with_threads<N: Nic + Send + 'static>(nics: &[Spec]) -> Vec<Report> {
    let mut setup = Named::<N>::new(nics);
    vec![conformance::run(&mut setup), conformance::run_threads(&mut setup)]
}

/// Endpoints that the user has named.
struct Named<'a, N> {
    nics: &'a [Spec],
    kind: std::marker::PhantomData<N>,
}

impl<'a, N> Named<'a, N> {
    fn new(nics: &'a [Spec]) -> Self {
        Self { nics, kind: std::marker::PhantomData }
    }
}

impl<N: Nic + 'static> Setup for Named<'_, N> {
    type Nic = N;

    fn open(&mut self, count: usize) -> Result<Vec<N>, String> {
        if count > self.nics.len() {
            return Err(format!("needs {count} endpoints, and {} were named", self.nics.len()));
        }
        self.nics[..count].iter().map(open).collect()
    }
}

fn open<N: 'static>(spec: &Spec) -> Result<N, String> {
    let opened: Result<Box<dyn Any>, OpenError> = spec.open(Take);
    let nic = opened.map_err(|error| error.to_string())?;
    nic.downcast().map(|nic| *nic).map_err(|_| format!("{spec} is of another kind than the first one"))
}

/// Hands the driver out, whichever it is.
struct Take;

impl NicUser for Take {
    type Out = Box<dyn Any>;

    fn run<N: Nic + 'static>(self, nic: N) -> Self::Out {
        Box::new(nic)
    }
}
