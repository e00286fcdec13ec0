//! `sidelane nic`: which NICs there are, and the conformance suite on drivers that a user names.

use std::any::Any;
use std::mem::discriminant;
use std::thread;

use clap::Subcommand;
use sidelane::nic_list::NicList;
use sidelane_nic::conformance::{self, Ended, Outcome, Report, Setup};
use sidelane_nic::spec::{NicUser, OpenError, Spec, SpecError};
use sidelane_nic::{LinkAddr, Nic, dpdk, mem, shm, udp, uring, xdp};

use crate::say;
use crate::variable::{self, VariableError};

/// What can be done with NICs.
#[derive(Debug, Subcommand)]
pub enum NicCommand {
    /// Show the NICs: driver, PCI address, NUMA node, MTU, offloads, XDP, and what to open them as
    List {
        /// Print JSON instead of a table
        #[arg(long)]
        json: bool,
    },
    /// Run the conformance suite: everything that a driver promises, tried on the NICs that are named
    #[command(after_help = TEST_EXAMPLES)]
    Test {
        /// Two or three drivers of one kind that reach each other, as strings; three for all cases
        /// [env: SIDELANE_NICS, with spaces between]
        #[arg(value_name = "DRIVER")]
        nics: Vec<Spec>,
        /// Frames overtake one another on this wire, and that is no fault of the driver's
        #[arg(long)]
        overtaking: bool,
    },
}

const TEST_EXAMPLES: &str = "\
Examples:
  sidelane nic test udp:127.0.0.1:0 udp:127.0.0.1:0 udp:127.0.0.1:0
  sidelane nic test uring:lo,endpoint=1 uring:lo,endpoint=2 uring:lo,endpoint=3
  sidelane nic test uring:eth1 uring:eth2           two interfaces on one cable or switch

Exits with 1 when a promise is broken, and with 2 when the drivers cannot be tested together. Nothing else may use these endpoints meanwhile. Give --overtaking where a wire \
does not keep order: QEMU's queues let new frames pass those that wait for a receiver whose ring was full.";

/// Runs a `nic` command; returns the exit code.
pub fn run(command: &NicCommand) -> i32 {
    match command {
        NicCommand::List { json } => list(*json),
        NicCommand::Test { nics, overtaking } => match named(nics) {
            Ok(nics) => test(&nics, *overtaking),
            Err(error) => {
                tell!("error: {error}");
                2
            }
        },
    }
}

fn list(json: bool) -> i32 {
    match NicList::gather() {
        Ok(list) if json => say(serde_json::to_string(&list).expect("a list has no maps and only finite numbers")),
        Ok(list) => say(list),
        Err(error) => {
            tell!("error: the system does not tell its interfaces: {error}");
            return 1;
        }
    }
    0
}

/// The drivers that were typed, or else those of the variable.
fn named(typed: &[Spec]) -> Result<Vec<Spec>, VariableError> {
    if !typed.is_empty() {
        return Ok(typed.to_vec());
    }
    let split = |text: &str| text.split_whitespace().map(str::parse).collect::<Result<_, SpecError>>();
    Ok(variable::read("SIDELANE_NICS", split)?.unwrap_or_default())
}

/// Why these would tell nothing, where that is known before they are opened.
fn refusal(nics: &[Spec]) -> Option<String> {
    // With one nearly all cases would be skipped, which looks like a success.
    let [first, _, ..] = nics else {
        let named = nics.first().map_or("no driver".to_owned(), |nic| format!("only {nic}"));
        return Some(format!("{named} was named; name two or three drivers of one kind that reach each other"));
    };
    if let [_, _, _, fourth, ..] = nics {
        return Some(format!("{fourth} would not be tested; name two or three drivers"));
    }
    // Sockets and domains have numbers for whoever asks for none.
    let numbered = |nic: &&Spec| matches!(nic, Spec::Uring { .. } | Spec::Xdp { .. });
    let again = |nic: &&Spec| nics.iter().filter(|other| other == nic).count() > 1;
    if let Some(twice) = nics.iter().filter(numbered).find(again) {
        let (Spec::Uring { endpoint, .. } | Spec::Xdp { endpoint, .. }) = twice else {
            unreachable!("only these are looked for")
        };
        let how = match endpoint {
            0 => "write `,endpoint=1` behind one of them".to_owned(),
            number => format!("write another one than {number} for one of them"),
        };
        return Some(format!("{twice} was named twice; two on one interface need numbers of their own: {how}"));
    }
    let kind = discriminant(first);
    if let Some(other) = nics.iter().find(|nic| discriminant(*nic) != kind) {
        return Some(format!("{other} is of another kind than {first}; name two or three drivers of one kind"));
    }
    let domain = |nic: &Spec| if let Spec::Shm { domain, .. } = nic { Some(domain.clone()) } else { None };
    let other = nics.iter().find(|nic| domain(nic) != domain(first));
    other.map(|other| format!("{other} is in another domain than {first}; only endpoints of one reach each other"))
}

fn test(nics: &[Spec], overtaking: bool) -> i32 {
    if let Some(why) = refusal(nics) {
        tell!("error: {why}");
        return 2;
    }
    // What cannot be opened at all would only be a reason to skip case after case.
    match nics.iter().map(|nic| nic.open(Take)).collect::<Result<Vec<_>, _>>() {
        Ok(opened) => {
            for (spec, nic) in nics.iter().zip(&opened) {
                let pair = nic.downcast_ref::<dpdk::Pair>().map(|pair| &**pair);
                if let Some(nic) = nic.downcast_ref::<dpdk::Dpdk>().or(pair) {
                    say(format_args!("{spec}: {}", nic.about()));
                }
            }
        }
        Err(reason) => {
            tell!("error: {reason}");
            return 1;
        }
    }
    let reports = match &nics[0] {
        Spec::Uring { .. } => test_with_threads::<uring::Uring>(nics, overtaking),
        Spec::Xdp { .. } => test_with_threads::<xdp::Xdp>(nics, overtaking),
        Spec::Udp { .. } => test_with_threads::<udp::Udp>(nics, overtaking),
        Spec::Dpdk(config) if config.is_pair() => test_with_threads::<dpdk::Pair>(nics, overtaking),
        Spec::Dpdk(_) => test_with_threads::<dpdk::Dpdk>(nics, overtaking),
        Spec::Shm { .. } => test_with_threads::<shm::ShmNic>(nics, overtaking),
        Spec::Mem => {
            vec![conformance::run(&mut Named::<mem::MemNic> { nics, overtaking, open: open_in_turn })]
        }
    };
    let count = |what: fn(&Outcome) -> bool| {
        reports.iter().flat_map(|report| &report.cases).filter(|case| what(&case.outcome)).count()
    };
    let failed = count(Outcome::has_failed);
    let skipped = count(|outcome| matches!(outcome, Outcome::Skipped(_)));
    let passed = count(|outcome| *outcome == Outcome::Passed);
    say(format_args!("{passed} passed, {failed} failed, {skipped} skipped"));
    i32::from(failed > 0 || passed == 0)
}

fn test_with_threads<N: Nic + Send + 'static>(nics: &[Spec], overtaking: bool) -> Vec<Report> {
    let mut setup = Named::<N> { nics, overtaking, open: open_at_once };
    let mut reports = vec![conformance::run(&mut setup)];
    if reports[0].frames_arrive() {
        reports.push(conformance::run_threads(&mut setup));
    }
    reports
}

/// Endpoints that the user has named.
struct Named<'a, N> {
    nics: &'a [Spec],
    overtaking: bool,
    open: fn(&[Spec]) -> Result<Vec<N>, String>,
}

impl<N: Nic + 'static> Setup for Named<'_, N> {
    type Nic = N;

    fn open(&mut self, count: usize) -> Result<Vec<N>, String> {
        if count > self.nics.len() {
            return Err(format!("needs {count} endpoints, and {} were named", self.nics.len()));
        }
        (self.open)(&self.nics[..count])
    }

    fn absent(&mut self) -> Option<LinkAddr> {
        // A locally administered address, at which nobody on the wire is.
        matches!(self.nics[0], Spec::Uring { .. } | Spec::Xdp { .. } | Spec::Dpdk(_))
            .then_some(LinkAddr::Ether { mac: [2, 0x53, 0x4c, 0xff, 0xff, 0xff], endpoint: 0xffff })
    }

    fn may_overtake(&self) -> bool {
        self.overtaking
    }

    fn ended(&mut self, case: &Ended) {
        say(case);
    }
}

/// The links of all cards come up in the same seconds.
fn open_at_once<N: Send + 'static>(nics: &[Spec]) -> Result<Vec<N>, String> {
    thread::scope(|scope| {
        let opening: Vec<_> = nics.iter().map(|spec| scope.spawn(|| open(spec))).collect();
        opening.into_iter().map(|one| one.join().unwrap_or_else(|_| Err("opening it panicked".into()))).collect()
    })
}

fn open_in_turn<N: 'static>(nics: &[Spec]) -> Result<Vec<N>, String> {
    nics.iter().map(open).collect()
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
