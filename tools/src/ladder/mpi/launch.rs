//! One launch: two ranks of the program on the hosts of a lab, or on one of them.

use std::cell::RefCell;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use sidelane::lab::Lab;
use sidelane_bench::contender::{Contender, p2p};
use sidelane_bench::ladder::Regime;
use sidelane_bench::pattern::{Outcome, Pattern};

use super::super::place::cores;
use super::install::{Family, Installation, last_lines};

/// The labs of a run, by regime.
pub type Stages = RefCell<Vec<(Regime, Lab)>>;

/// An MPI on its hosts.
pub struct Launch<'a> {
    installation: &'a Installation,
    stages: &'a Stages,
    /// Both ranks on host A, where shared memory is what is compared.
    alone: bool,
    version: Option<String>,
}

impl<'a> Launch<'a> {
    /// `stages` must hold a lab for each regime by the time of the first launch.
    pub fn new(installation: &'a Installation, stages: &'a Stages, alone: bool) -> Self {
        Self { installation, stages, alone, version: None }
    }

    /// The command for one launch. It is killed with all that it has started when this thread ends.
    fn command(&self, lab: &Lab, patterns: &[Pattern]) -> io::Result<Command> {
        let (a, b) = (lab.host(0), lab.host(1));
        let (first, second) = (a.address().ip.to_string(), b.address().ip.to_string());
        let mut command = if self.alone {
            let mut command = alone(lab);
            self.installation.launcher_alone(lab, false, &mut command);
            command
        } else {
            let mut command = host(lab, &second);
            command
                .stdin(b.namespace()?)
                .arg(&self.installation.mpiexec)
                .envs(self.installation.environment.iter().cloned());
            command
        };
        match self.installation.family {
            _ if self.alone => {}
            Family::Hydra | Family::IntelHydra => {
                command.args([
                    "-launcher",
                    "ssh",
                    "-launcher-exec",
                    SSH,
                    "-localhost",
                    &first,
                    "-iface",
                    a.interface(),
                ]);
                command.args(["-hosts", &format!("{first},{second}"), "-ppn", "1"]);
                // Both hosts are one machine after all, and an MPI that finds that out takes shared memory.
                for (name, value) in [
                    ("MPIR_CVAR_CH4_NETMOD", "ofi"),
                    ("FI_PROVIDER", "tcp"),
                    ("FI_TCP_IFACE", a.interface()),
                    ("UCX_TLS", "tcp,self"),
                    ("UCX_NET_DEVICES", a.interface()),
                ] {
                    if std::env::var_os(name).is_none() {
                        command.env(name, value);
                    }
                }
            }
            Family::Prrte => {
                prrte(lab, false, &mut command);
                let hosts = format!("{HOST_A}:1,{second}:1");
                command.args(["--prtemca", "plm_ssh_agent", SSH, "-H", &hosts, "--map-by", "node"]);
                command.args(["--mca", "pml", "ob1", "--mca", "btl", "tcp,self"]);
                command.args(["--mca", "btl_tcp_if_include", a.interface()]);
            }
        }
        command.args(["-n", "2"]).arg(&self.installation.program).args(p2p::arguments(patterns, cores()));
        Ok(command)
    }
}

impl Contender for Launch<'_> {
    fn name(&self) -> &str {
        &self.installation.name
    }

    fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    fn play(&mut self, regime: Regime, patterns: &[Pattern]) -> Result<Vec<Outcome>, String> {
        let stages = self.stages.borrow();
        let (_, lab) = stages.iter().find(|(one, _)| *one == regime).ok_or("it has no lab")?;
        let mut command = self.command(lab, patterns).map_err(|error| error.to_string())?;
        let report = output_of(&mut command, p2p::limit(patterns), |output| p2p::read(output, patterns))?;
        let [first, second] = &report.hosts;
        // Two on one host measure another wire than the one that is asked for.
        if (first == second) != self.alone {
            return Err(format!("its launcher has put the ranks on {first} and {second}"));
        }
        self.version = Some(report.library);
        Ok(report.outcomes)
    }
}

impl Installation {
    /// Its launcher, behind what [`alone`] makes, with each rank on a core if it is `bound`; the number of ranks and the program are
    /// still to be said.
    pub fn launcher_alone(&self, lab: &Lab, bound: bool, command: &mut Command) {
        command.arg(&self.mpiexec).envs(self.environment.iter().cloned());
        match self.family {
            Family::Hydra | Family::IntelHydra => {
                command.args(["-launcher", "fork", "-localhost", &lab.host(0).address().ip.to_string()]);
                if bound {
                    command.args(["-bind-to", "core"]);
                }
            }
            Family::Prrte => prrte(lab, bound, command),
        }
    }
}

fn prrte(lab: &Lab, bound: bool, command: &mut Command) {
    // More ranks than cores are asked for, where they are.
    command.args([
        "--bind-to",
        if bound { "core" } else { "none" },
        "--oversubscribe",
        "--prtemca",
        "prte_if_include",
        lab.host(0).interface(),
    ]);
    // It refuses to run as root, who it is at least within a lab.
    for name in ["OMPI_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT"] {
        command.env(name, "1").env(format!("{name}_CONFIRM"), "1");
    }
}

/// A command on host A, which is alone. It is killed with all that it has started when this thread ends.
pub fn alone(lab: &Lab) -> Command {
    let mut command = host(lab, "alone");
    command.stdin(Stdio::null());
    command
}

fn host(lab: &Lab, other: &str) -> Command {
    let own = lab.host(0).address().ip.to_string();
    let mut command = lab.host(0).command("unshare");
    // The end of a PID namespace's first process is the end of all of them.
    command.args(["--pid", "--fork", "--kill-child", "--uts", "--ipc", "--mount"]);
    command.args(["sh", "-c", HOST, "host", &own, other]);
    command
}

/// What `read` makes of a launcher's output, whose ranks end themselves within `limit`.
pub fn output_of<T>(
    command: &mut Command,
    limit: Duration,
    read: impl FnOnce(&str) -> Result<T, String>,
) -> Result<T, String> {
    let limit = limit + SPARE;
    let Ended { status, output, errors } =
        run(command, limit).map_err(|error| format!("cannot run {}: {error}", command.get_program().display()))?;
    let complaint = |what: String| match last_lines(&errors) {
        words if words.is_empty() => what,
        words => format!("{what}; its last words:\n{words}"),
    };
    match status {
        None => Err(complaint(format!("no end within {limit:?}"))),
        Some(status) if !status.success() => Err(complaint(format!("its launcher ended with {status}"))),
        Some(_) => read(&output).map_err(complaint),
    }
}

struct Ended {
    /// `None`: it was killed, since it took too long.
    status: Option<ExitStatus>,
    output: String,
    errors: String,
}

/// Runs `command` to its end, or to the end of `limit`. Nothing of it runs afterwards.
fn run(command: &mut Command, limit: Duration) -> io::Result<Ended> {
    // Out of the terminal's foreground group: a Ctrl-C reaches us alone.
    let mut child = command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let all_of = |mut from: Box<dyn Read + Send>| {
        let (whole, text) = mpsc::channel();
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = from.read_to_end(&mut bytes);
            let _ = whole.send(String::from_utf8_lossy(&bytes).into_owned());
        });
        text
    };
    let output = all_of(Box::new(child.stdout.take().expect("its output is a pipe")));
    let errors = all_of(Box::new(child.stderr.take().expect("its errors are a pipe")));
    // Both end when the last process that writes to them does.
    let in_time = output.recv_timeout(limit);
    if in_time.is_err() {
        child.kill()?;
    }
    let status = child.wait()?;
    Ok(Ended {
        status: in_time.is_ok().then_some(status),
        output: in_time.or_else(|_| output.recv()).unwrap_or_default(),
        errors: errors.recv().unwrap_or_default(),
    })
}

/// Makes a host of a network namespace, as far as MPIs look.
const HOST: &str = include_str!("host.sh");
/// What that calls host A, and its ssh.
const HOST_A: &str = "sidelane-a";
const SSH: &str = "/dev/shm/ssh";
/// Ranks end themselves before that; launchers follow.
const SPARE: Duration = Duration::from_secs(5);
