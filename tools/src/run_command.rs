//! `sidelane run`: starts the ranks of a job and answers for them.

use std::ffi::OsString;
use std::num::NonZero;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use sidelane::lab::keeper::USUAL_NAME;
use sidelane_nic::spec::Spec;
use sidelane_proto::{JobKey, Protection};

use crate::args::Seconds;
use crate::lab_command::lab_name;
use crate::run::{self, Bind, Failure, JobSpec, LabHosts, MACHINES};
use crate::variable;

/// A program, and how many ranks of it where.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// How many ranks (also: -np)
    #[arg(short = 'n', long = "ranks", value_name = "N", value_parser = ranks)]
    pub ranks: NonZero<usize>,
    /// Spread the ranks over these hosts of a kept lab: `lab` or another lab's name for all of its hosts; A,C for some of
    /// the lab named `lab`; trio:A,C for some of another one [default: all ranks on this host]
    #[arg(long, value_name = "HOSTS")]
    pub hosts: Option<LabHosts>,
    /// The driver for ranks on other hosts: uring, xdp or udp on the interface that leads to them, or a driver as a string:
    /// uring:eth1 [default: the ranks choose] [env: SIDELANE_NIC]
    #[arg(long, value_name = "DRIVER", value_parser = nic)]
    pub nic: Option<String>,
    /// Protect frames between hosts by a key that is made for this job: nobody else on the network can take part or change
    /// anything, nor read messages if they are encrypted
    #[arg(long, value_enum, value_name = "HOW")]
    pub protect: Option<ProtectArg>,
    /// Whether each rank gets a core of its own, of those that this command may run on: with `taskset -c 4-7` before it, of
    /// these [default: core when there are as many cores as ranks, else none]
    #[arg(long, value_enum, value_name = "HOW")]
    pub bind: Option<Bind>,
    /// Which rank reads this command's standard input. From a terminal all that is typed is taken for it, wanted or not, unless
    /// this command is in the background
    #[arg(long, value_enum, value_name = "RANK", default_value = "0")]
    pub stdin: StdinArg,
    /// Put the rank before each line of output
    #[arg(short = 'l', long)]
    pub label: bool,
    /// Have each rank write into files of its own in this folder, RANK.out and RANK.err; those of before are overwritten
    #[arg(long, value_name = "DIR", conflicts_with = "label")]
    pub output: Option<PathBuf>,
    /// The folder in which the ranks begin, and from which a relative path of the program counts [default: this one]
    #[arg(long, value_name = "DIR")]
    pub wdir: Option<PathBuf>,
    /// End the job after that time, with exit code 124, also when only its output still waits to be read
    #[arg(long, value_name = "SECONDS")]
    pub timeout: Option<Seconds>,
    /// Do not end the job when a rank fails: the others see errors in what needs it, and end by themselves
    #[arg(long)]
    pub keep_going: bool,
    /// Set a variable of the ranks' environment, which is otherwise this command's
    #[arg(short = 'x', long = "env", value_name = "NAME[=VALUE]", value_parser = variable)]
    pub env: Vec<(String, Option<String>)>,
    /// The program and its arguments. Options before it are this command's; behind `--` all words are the program's
    #[arg(trailing_var_arg = true, required = true, value_name = "PROGRAM")]
    pub command: Vec<OsString>,
}

pub const EXAMPLES: &str = "\
Examples:
  sidelane run -n 4 ./program --its-own options
  sidelane run -n 4 -l hostname                  each line of output with its rank
  sidelane run -n 2 --nic udp -x RUST_LOG=debug ./program
  sidelane run -n 4 --wdir case7 --output case7/logs ../program
  sidelane lab up --hosts 3
  sidelane run -n 6 --hosts lab ./program        two ranks on each host of the lab
  sidelane run -n 2 --hosts A,C ./program        one on A, one on C
  taskset -c 0-3 sidelane run -n 4 ./program &   two jobs at once, which else would both
  taskset -c 4-7 sidelane run -n 4 ./program     have their ranks on the first four cores

Rank 0 reads this command's standard input (`--stdin none` if that is not wanted), the others read nothing. Lines of \
output come whole (of more than 1 MiB in pieces), in the order in which the ranks finish them. More ranks than cores are fine.

The exit code is 0 when all ranks ended well, else that of the rank that failed first: its own, or 128 and the number \
of the signal that killed it. What Ctrl-C ends is killed by SIGINT, which a shell reports as 130. A rank that fails \
ends the job, and a line on standard error names it: any exit code but 0, a signal, or an end between MPI_Init and \
MPI_Finalize. With --keep-going the others go on, unless it aborts or they wait for it in MPI_Init; the exit code is \
the same.

Ctrl-C and SIGTERM go to all ranks, which may take their time to clean up; the second one kills them. SIGUSR1 and \
SIGUSR2 are theirs, too, and Ctrl-Z stops them all where a shell can let them go on. Whatever the ranks have started \
ends with the job, also when this command is killed, but for what has left its rank's process group.

--protect hands its key to the ranks as SIDELANE_PROTECTION; with another launcher set that for all of them:
  SIDELANE_PROTECTION=encrypted:$(openssl rand -hex 32) mpiexec.hydra -n 4 ./program
Between machines mpiexec.hydra sends variables, and so the key, unencrypted: there let a script on each machine set \
it from a file.

Read by the ranks, whichever launcher starts them:
  SIDELANE_VERBOSE=1         each tells by which drivers it reaches the others and why, and where
                             it was tuned; 0: none does, else rank 0 does where there was a choice
  SIDELANE_TUNING=FILE       what `sidelane tune` has measured, instead of its usual file; empty:
                             what is built in
  SIDELANE_SILENCE=SECONDS   after which a rank on another host counts as gone [default: 2]
  SIDELANE_ALONE=1           it is a job of its own, whatever launcher or rank started it

Ranks speak PMI-1 with this command, as MPICH's do; so `mpiexec.hydra -n 4 ./program` (Debian: mpich) and, under \
Slurm, `srun --mpi=pmi2 ./program` start them too, across machines.";

/// As it is written.
impl FromStr for LabHosts {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_host = |name: &str| name.len() == 1 && name.bytes().all(|byte| byte.is_ascii_uppercase());
        let (lab, hosts) = match text.split_once(':') {
            Some((lab, hosts)) => (lab, Some(hosts)),
            None if text.split(',').all(is_host) => (USUAL_NAME, Some(text)),
            None => (text, None),
        };
        let hosts: Vec<String> = hosts.into_iter().flat_map(|hosts| hosts.split(',')).map(str::to_owned).collect();
        if lab_name(lab).is_err() || !hosts.iter().all(|host| is_host(host)) {
            return Err(format!(
                "a lab's name (lab), hosts of the lab named `lab` (A,C), or both (trio:A,C); {MACHINES}"
            ));
        }
        if let Some(twice) = hosts.iter().enumerate().find_map(|(at, host)| hosts[..at].contains(host).then_some(host))
        {
            return Err(format!(
                "`{twice}` is named twice; ranks are spread over different hosts, the same number on each"
            ));
        }
        Ok(Self { lab: lab.to_owned(), hosts })
    }
}

/// The command line, with `-np` of `run` as it is called here: other launchers have both. Which is behind the program is the
/// program's: `-n` stands before that always, or there is no job.
pub fn with_np(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = words.collect();
    let ranks = |word: &OsString| {
        let word = word.to_string_lossy();
        // The only short option without a value is `-l`, behind whose letter another one may stand.
        let short = word.strip_prefix('-').is_some_and(|letters| letters.trim_start_matches('l').starts_with('n'));
        short || word.starts_with("--ranks") || word == "--"
    };
    if words.get(1).is_some_and(|command| command == "run")
        && let Some(word) = words.iter_mut().skip(2).find(|word| ranks(word))
        && word == "-np"
    {
        *word = "-n".into();
    }
    words
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ProtectArg {
    /// What others write, change or repeat is dropped
    Authenticated,
    /// Messages are encrypted, too; their sizes and times can be seen
    Encrypted,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum StdinArg {
    /// The first one
    #[value(name = "0")]
    First,
    /// None: it is left to others, such as `| less`
    None,
}

/// Runs the job; returns how it ends, as [`code_of`](crate::interrupt::code_of) has it.
pub fn run(args: RunArgs) -> i32 {
    start(args).unwrap_or_else(|failure| {
        tell!("error: {failure}");
        failure.exit_code()
    })
}

fn start(args: RunArgs) -> Result<i32, Failure> {
    let (program, arguments) = args.command.split_first().expect("the command line requires a program");
    let words: Vec<OsString> = std::env::args_os().collect();
    if !is_behind_dashes(&words, &args.command) && names_another_program(arguments) {
        return Err(Failure::Programs);
    }
    run::run(JobSpec {
        ranks: args.ranks.get(),
        hosts: args.hosts,
        nic: args.nic.map_or_else(|| variable::read("SIDELANE_NIC", nic), |typed| Ok(Some(typed)))?,
        protection: args.protect.map(|how| match how {
            ProtectArg::Authenticated => Protection::Authenticated(JobKey::random()),
            ProtectArg::Encrypted => Protection::Encrypted(JobKey::random()),
        }),
        bind: args.bind,
        stdin: args.stdin == StdinArg::First,
        label: args.label,
        timeout: args.timeout.map(|seconds| seconds.0),
        keep_going: args.keep_going,
        folder: args.wdir,
        output: args.output,
        variables: args.env.into_iter().filter_map(|(name, value)| Some((name, value?))).collect(),
        program: program.clone(),
        arguments: arguments.to_vec(),
    })
}

/// Whether `words`, the whole command line, have `--` before the program: all that is behind it is the program's.
fn is_behind_dashes(words: &[OsString], command: &[OsString]) -> bool {
    words.strip_suffix(command).and_then(<[_]>::last).is_some_and(|word| word == "--")
}

/// `: -n 3 ./worker` in a command line of mpiexec's. A `:` alone is many programs' argument.
fn names_another_program(arguments: &[OsString]) -> bool {
    let is_number = |word: &OsString| word.to_str().is_some_and(|word| word.parse::<usize>().is_ok());
    arguments.windows(3).any(|words| words[0] == ":" && (words[1] == "-n" || words[1] == "-np") && is_number(&words[2]))
}

fn ranks(text: &str) -> Result<NonZero<usize>, String> {
    let ranks = text.parse().ok().filter(|ranks: &NonZero<usize>| ranks.get() <= RANKS_MAX);
    ranks.ok_or_else(|| format!("1 to {RANKS_MAX} ranks"))
}

/// More than a host has descriptors for, and few enough that a slip of the finger does not take all of its memory.
const RANKS_MAX: usize = 1 << 16;

/// A driver, or the kind of one.
fn nic(text: &str) -> Result<String, String> {
    if ["uring", "xdp", "udp"].contains(&text) {
        return Ok(text.to_owned());
    }
    let refused = |error| format!("{error}. uring, xdp or udp alone is on the interface that leads to the other hosts");
    text.parse::<Spec>().map_err(refused).map(|_| text.to_owned())
}

/// A name alone is inherited anyway, but users of other launchers write it.
fn variable(text: &str) -> Result<(String, Option<String>), String> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (text, None),
    };
    if name.is_empty() || name.contains('\0') {
        Err("NAME or NAME=VALUE".to_owned())
    } else {
        Ok((name.to_owned(), value))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    #[test]
    fn hosts_are_a_labs_or_some_of_them() {
        let read = |text: &str| text.parse::<LabHosts>().map(|arg| (arg.lab, arg.hosts.concat()));
        let is = |lab: &str, hosts: &str| Ok((lab.to_owned(), hosts.to_owned()));
        assert_eq!(read("lab"), is("lab", ""));
        assert_eq!(read("trio"), is("trio", ""));
        assert_eq!(read("A,C"), is("lab", "AC"));
        assert_eq!(read("trio:A,B"), is("trio", "AB"));
        for bad in ["", ":A", "trio:", "trio:a", "trio:A,,B", "../x", "a/b:A", "node1,node2", "A,C,A", "trio:A,A"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn np_is_n_before_the_program_only() {
        let of = |line: &str| {
            let words = with_np(line.split(' ').map(OsString::from));
            words.into_iter().map(|word| word.into_string().unwrap()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(of("sidelane run -np 4 ./a -np 2"), "sidelane run -n 4 ./a -np 2");
        assert_eq!(of("sidelane run -l --hosts lab -np 4 ./a"), "sidelane run -l --hosts lab -n 4 ./a");
        for same in [
            "sidelane run -n 4 ./a -np 2",
            "sidelane run -ln 4 ./a -np 2",
            "sidelane run -n4 ./a -np 2",
            "sidelane run --ranks=4 ./a -np 2",
            "sidelane run -- ./a -np 2",
            "sidelane lab run -- ./a -np 2",
        ] {
            assert_eq!(of(same), same);
        }
    }

    #[test]
    fn options_before_the_program_are_ours_however_they_are_written() {
        let read = |line: &str| {
            let cli = Cli::try_parse_from(with_np(line.split(' ').map(OsString::from)));
            cli.map(|cli| match cli.command {
                Some(Command::Run(args)) => {
                    let command: Vec<_> = args.command.iter().map(|word| word.to_string_lossy()).collect();
                    (args.ranks.get(), args.env, command.join(" "))
                }
                other => panic!("{other:?}"),
            })
        };
        for line in ["-n4", "-n=4", "-n 4", "-np 4", "-ln4", "-ln 4", "--ranks=4"] {
            assert_eq!(
                read(&format!("sidelane run {line} ./a -n5 --lable")).unwrap(),
                (4, vec![], "./a -n5 --lable".into())
            );
        }
        let set = vec![("A".to_owned(), Some("b".to_owned()))];
        assert_eq!(read("sidelane run -n 1 -xA=b ./a").unwrap(), (1, set, "./a".into()));
        assert_eq!(read("sidelane run -n 1 -- --lable -v").unwrap().2, "--lable -v");
        for wrong in ["--lable", "--host", "--tiemout", "--np", "-v"] {
            for line in [format!("{wrong} 5 -n 2 ./a"), format!("-n 2 {wrong} ./a")] {
                let text = read(&format!("sidelane run {line}")).unwrap_err().to_string();
                assert!(text.contains(&format!("unexpected argument '{wrong}' found")), "{line}: {text}");
            }
        }
    }

    #[test]
    fn another_program_is_known_by_its_number_of_ranks() {
        let is = |line: &str| names_another_program(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert!(is("in : -n 3 ./worker") && is(": -np 3 ./worker"));
        assert!(!is("-c :") && !is("-d : -f 1") && !is(": -n") && !is("-n 3 : x"));
    }

    #[test]
    fn what_is_behind_dashes_is_the_programs() {
        let is = |line: &str, program: &str| {
            let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
            is_behind_dashes(&words(line), &words(program))
        };
        assert!(is("sidelane run -n 2 -- ./a : -n 3", "./a : -n 3"));
        assert!(!is("sidelane run -n 2 ./a -- : -n 3", "./a -- : -n 3"));
        assert!(!is("sidelane run -n 2 ./a : -n 3", "./a : -n 3"));
    }
}
