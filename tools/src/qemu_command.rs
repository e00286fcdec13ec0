//! `sidelane lab qemu`: proves drivers on emulated PCI NICs, or runs a command beside one.

use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use comfy_table::Table;
use comfy_table::presets::UTF8_FULL_CONDENSED;
use sidelane::qemu::{Kernel, Model, News, Qemu, QemuError, Spec};

use crate::args::QemuArgs;
use crate::interrupt;
use crate::say;

/// Runs the command line; returns the exit code.
pub fn run(args: &QemuArgs) -> Result<i32, QemuError> {
    let signals = |error| QemuError::System("watch for signals", error);
    let interrupted = interrupt::end_children_on_signal().map_err(signals)?;
    let kernel = match &args.kernel {
        Some(folder) => Kernel::unpacked(folder)?,
        None => Kernel::cached(|text| eprintln!("{text}"))?,
    };
    let qemu = Qemu::new(kernel, args.accel)?;
    let how = if qemu.is_accelerated() { "KVM" } else { "emulation (TCG): times are those of the emulator" };
    eprintln!("guests run by {how}");
    let outcome = if args.command.is_empty() { prove(args, &qemu, &interrupted) } else { run_in(args, &qemu) };
    // The guests were ended by the signal, and what they did not do is no news.
    if interrupted.load(Ordering::Relaxed) { Ok(interrupt::INTERRUPTED) } else { outcome }
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

/// The conformance suite in one guest, and a ladder between two, on each model.
fn prove(args: &QemuArgs, qemu: &Qemu, interrupted: &AtomicBool) -> Result<i32, QemuError> {
    let models = if args.model.is_empty() { &Model::ALL[..] } else { &args.model };
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_header(["model", "driver", "conformance", "ladder", "seconds"]);
    let mut failed = false;
    for &model in models {
        let began = Instant::now();
        let mut step = |hosts, nics, command: &[&str]| {
            let spec = Spec { model, binding: args.driver, hosts, nics };
            let command = words(command);
            let outcome = qemu.run(&spec, &command, &serve(), limit(args), |news| show(model, &news));
            let text = match &outcome {
                _ if interrupted.load(Ordering::Relaxed) => return Ok(String::new()),
                Ok(0) => "passed".to_owned(),
                Ok(code) => format!("failed with {code}"),
                // What is missing for one is missing for all.
                Err(QemuError::Missing { .. } | QemuError::NoKernel(_)) => return outcome.map(|_| String::new()),
                Err(error) => {
                    eprintln!("{model}: {error}");
                    "failed".to_owned()
                }
            };
            failed |= !matches!(outcome, Ok(0));
            Ok(text)
        };
        let conformance = step(1, ENDPOINTS, &CONFORMANCE)?;
        let ladder = step(2, 1, &LADDER)?;
        let seconds = format!("{:.0}", began.elapsed().as_secs_f64());
        table.add_row([model.to_string(), args.driver.to_string(), conformance, ladder, seconds]);
    }
    say(table);
    Ok(i32::from(failed))
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
        News::Stage(host, text) => eprintln!("{model}, {host}: {text}"),
        News::Line(text) => say(text),
        News::Beside(text) => tracing::info!(%model, "B: {text}"),
    }
}

/// Some cases of the suite need three.
const ENDPOINTS: usize = 3;
/// The NICs come from SIDELANE_NICS. QEMU delivers a frame at once when the receiver can take it, also when older ones
/// still wait in its queue (net/queue.c, qemu_net_queue_send), so frames overtake once a ring was full.
const CONFORMANCE: [&str; 4] = ["sidelane", "nic", "test", "--overtaking"];
/// The driver and the peer come from SIDELANE_NIC and SIDELANE_PEER. One round: an emulator's times are no figures, and
/// every measurement opens its NICs anew.
const LADDER: [&str; 7] = ["sidelane", "ladder", "--quick", "--rounds", "1", "--rungs", "tcp-poll,raw,proto"];
