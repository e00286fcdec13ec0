//! `sidelane lab qemu`: proves drivers on emulated PCI NICs, or runs a command beside one.

use std::ffi::OsString;
use std::fmt::Display;
use std::iter;
use std::time::{Duration, Instant};

use sidelane::qemu::{Binding, Kernel, Model, News, Qemu, QemuError, Spec};
use sidelane::table;

use crate::interrupt::{self, Interrupted};
use crate::lab_command::QemuArgs;
use crate::say;

/// Runs the command line; returns how it ends, as [`interrupt::code_of`] has it.
pub fn run(args: &QemuArgs) -> Result<i32, QemuError> {
    let signals = |error| QemuError::System("watch for signals", error);
    let interrupted = interrupt::end_children_on_signal().map_err(signals)?;
    let outcome = ready(args)
        .and_then(|qemu| if args.command.is_empty() { prove(args, &qemu, &interrupted) } else { run_in(args, &qemu) });
    // Guests and downloads were ended by the signal, and what they did not do is no news.
    if interrupted.is_set() { Ok(interrupted.code()) } else { outcome }
}

/// QEMU with a kernel, which is downloaded if need be.
fn ready(args: &QemuArgs) -> Result<Qemu, QemuError> {
    let kernel = match &args.kernel {
        Some(folder) => Kernel::unpacked(folder)?,
        None => Kernel::cached(|text| tell!("{text}"))?,
    };
    let qemu = Qemu::new(kernel, args.accel)?;
    let how = if qemu.is_accelerated() { "KVM" } else { "emulation (TCG): times are those of the emulator" };
    tell!("guests run by {how}");
    Ok(qemu)
}

/// The user's command in guest A, for each model in turn. The exit code is that of the first one that failed.
fn run_in(args: &QemuArgs, qemu: &Qemu) -> Result<i32, QemuError> {
    let models = if args.model.is_empty() { &[Model::E1000e][..] } else { &args.model };
    for &model in models {
        let spec = Spec { model, binding: args.driver, hosts: args.hosts, nics: args.nics };
        let code = qemu.run(&spec, &args.command, &serve(), limit(args), |news| show(model, &news))?;
        if code != 0 {
            return Ok(code);
        }
    }
    Ok(0)
}

/// The conformance suite in one guest, and a ladder between two, on each model; and the suite on memif without a copy, as a guest has
/// hugepages, which most machines have not.
fn prove(args: &QemuArgs, qemu: &Qemu, interrupted: &Interrupted) -> Result<i32, QemuError> {
    let models = if args.model.is_empty() { &Model::ALL[..] } else { &args.model };
    // One after the other: more guests than cores starve each other until threads of a guest miss each other's time.
    let (nics, suite) = conformance(args.driver);
    let conformance: Vec<Step> =
        models.iter().map(|&model| Step::run(args, qemu, model, 1, nics, suite, |_| {})).collect::<Result<_, _>>()?;
    // Guests for the kernel's drivers have none of DPDK's.
    let has_memif = args.driver != Binding::Kernel && !interrupted.is_set();
    let memif = has_memif.then(|| memif(args, qemu, models[0])).transpose()?;
    let mut table = table::begin();
    table.set_header(["model", "driver", "conformance", "ladder"]);
    let mut failures = Vec::new();
    for (&model, conformance) in models.iter().zip(conformance) {
        say(format_args!("{model}, conformance:\n{}", conformance.lines.join("\n")));
        if interrupted.is_set() {
            break;
        }
        let run = || Step::run(args, qemu, model, 2, 1, &LADDER, |line| say(line));
        let mut ladder = run()?;
        if ladder.failed && !interrupted.is_set() {
            // One lost frame ends a measurement of raw frames, and emulators on an overloaded machine do lose one.
            tell!("{model}: the ladder is tried again");
            ladder = run()?;
        }
        failures.extend(conformance.failure(model, "conformance"));
        failures.extend(ladder.failure(model, "ladder"));
        table.add_row([model.to_string(), args.driver.to_string(), conformance.outcome, ladder.outcome]);
    }
    if let Some(memif) = memif {
        say(format_args!("memif without a copy, conformance:\n{}", memif.lines.join("\n")));
        failures.extend(memif.failure("memif", "conformance"));
        table.add_row(["memif, without a copy", &args.driver.to_string(), &memif.outcome, "-"]);
    }
    say(table);
    // Once more, at the end: what is above may be hundreds of lines away.
    failures.iter().for_each(say);
    Ok(i32::from(!failures.is_empty()))
}

/// The suite on memif in one guest. Fails too where its clients copy.
fn memif(args: &QemuArgs, qemu: &Qemu, model: Model) -> Result<Step, QemuError> {
    let mut step = Step::run(args, qemu, model, 1, 1, &MEMIF, |_| {})?;
    let told = step.lines.iter().filter(|line| line.contains("net_memif, ") && line.contains("without a copy"));
    if !step.failed && told.count() != MEMIF_CLIENTS {
        step.failed = true;
        step.outcome = "failed: not without a copy".to_owned();
    }
    Ok(step)
}

/// A run of the guests, and what came of it.
struct Step {
    lines: Vec<String>,
    outcome: String,
    failed: bool,
}

impl Step {
    fn run(
        args: &QemuArgs,
        qemu: &Qemu,
        model: Model,
        hosts: usize,
        nics: usize,
        command: &[&str],
        mut line: impl FnMut(&str),
    ) -> Result<Self, QemuError> {
        let began = Instant::now();
        let spec = Spec { model, binding: args.driver, hosts, nics };
        let mut lines = Vec::new();
        let result = qemu.run(&spec, &words(command), &serve(), limit(args), |news| match news {
            News::Line(text) => {
                line(text);
                lines.push(text.to_owned());
            }
            news => show(model, &news),
        });
        let seconds = began.elapsed().as_secs();
        let (outcome, failed) = match result {
            Ok(0) => (format!("passed in {seconds} s"), false),
            Ok(code) => (format!("failed with {code}"), true),
            // What is missing for one is missing for all.
            Err(error @ (QemuError::Missing { .. } | QemuError::NoKernel(_))) => return Err(error),
            Err(error) => {
                let text = format!("error: {model}: {error}");
                line(&text);
                lines.extend(text.lines().map(str::to_owned));
                ("failed".to_owned(), true)
            }
        };
        Ok(Self { lines, outcome, failed })
    }

    /// What is to be said of it at the end, if it failed.
    fn failure(&self, of: impl Display, what: &str) -> Vec<String> {
        if !self.failed {
            return Vec::new();
        }
        let reasons = self.reasons().into_iter().map(|line| format!("    {line}"));
        iter::once(format!("{of}, {what}, {}:", self.outcome)).chain(reasons).collect()
    }

    /// The lines that say what failed; where none does, the last ones.
    fn reasons(&self) -> Vec<&str> {
        let tells = |line: &&str| ["FAILED", "error", "panicked"].iter().any(|word| line.contains(word));
        let told: Vec<&str> = self.lines.iter().map(String::as_str).filter(tells).take(REASONS_MAX).collect();
        if told.is_empty() { last(&self.lines) } else { told }
    }
}

fn last(lines: &[String]) -> Vec<&str> {
    lines[lines.len().saturating_sub(REASONS_MAX)..].iter().map(String::as_str).collect()
}

/// What guest B does, unless it is alone.
fn serve() -> Vec<OsString> {
    words(&["sidelane", "ladder", "serve"])
}

fn words(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

fn limit(args: &QemuArgs) -> Duration {
    Duration::from_secs(args.timeout)
}

fn show(model: Model, news: &News<'_>) {
    match news {
        News::Stage(host, text) => tell!("{model}, {host}: {text}"),
        News::Line(text) => say(text),
        News::Beside(text) => tracing::info!(%model, "B: {text}"),
    }
}

/// Lines about one failure: those of all models fit a screen.
const REASONS_MAX: usize = 6;

/// The suite with three endpoints, which some cases need: on how many NICs, and its command.
fn conformance(binding: Binding) -> (usize, &'static [&'static str]) {
    match binding {
        // The interfaces' names come from SIDELANE_NICS.
        Binding::Kernel => (3, &CONFORMANCE[..4]),
        // Two endpoints share the second NIC.
        Binding::Uio | Binding::Vfio => (2, &CONFORMANCE),
    }
}

/// The last two are clients, which share a device: only a client can do without a copy.
const MEMIF: [&str; 6] = [
    "sidelane",
    "nic",
    "test",
    "dpdk:memif:guest,server,lossy",
    "dpdk:memif:guest,zero-copy=yes,lossy,endpoint=1,shared",
    "dpdk:memif:guest,zero-copy=yes,lossy,endpoint=2,shared",
];
const MEMIF_CLIENTS: usize = 2;

/// QEMU delivers a frame at once when the receiver can take it, also when older ones
/// still wait in its queue (net/queue.c, qemu_net_queue_send), so frames overtake once a ring was full.
const CONFORMANCE: [&str; 7] = [
    "sidelane",
    "nic",
    "test",
    "--overtaking",
    "dpdk:0000:00:04.0",
    "dpdk:0000:00:05.0,endpoint=1,shared",
    "dpdk:0000:00:05.0,endpoint=2,shared",
];
/// The driver and the peer come from SIDELANE_NIC and SIDELANE_PEER. One round: an emulator's times are no figures, and
/// every measurement opens its NICs anew. No floods: emulated wires lose frames of one, and bare frames are not sent again.
const LADDER: [&str; 8] =
    ["sidelane", "ladder", "--rounds", "1", "--rungs", "tcp-poll,raw,proto", "--patterns", "ping-pong"];
