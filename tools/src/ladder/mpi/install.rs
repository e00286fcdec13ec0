//! An installed MPI: which one it is, and a C program of ours compiled by its compiler.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sidelane::{cache, lab};
use sidelane_bench::contender::{collectives, p2p};

use crate::interrupt::Unfinished;

/// An MPI that can be measured.
#[derive(Debug)]
pub struct Installation {
    /// What its rows are called.
    pub name: String,
    /// Which launcher it has.
    pub family: Family,
    /// Its `mpiexec`.
    pub mpiexec: PathBuf,
    /// The program that it runs.
    pub program: PathBuf,
    /// What its commands need to find its other files. What the user has set stays, or stands before it.
    pub environment: Vec<(&'static str, OsString)>,
}

/// What an MPI is to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// The ladder's patterns.
    P2p,
    /// Collective calls.
    Collectives,
}

/// Launchers, by how they are told where ranks shall be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// MPICH's, which MPICH's descendants have too.
    Hydra,
    /// Intel MPI's: MPICH's, but for where its files are.
    IntelHydra,
    /// Open MPI's, from version 5 on.
    Prrte,
}

/// Why an MPI cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    #[error("{} (of --mpi or SIDELANE_MPI) has no bin/{tool} that runs: {source}", prefix.display())]
    Tool { prefix: PathBuf, tool: &'static str, source: io::Error },
    #[error("mpicc of {} (of --mpi or SIDELANE_MPI) has failed:\n{words}", prefix.display())]
    Compiler { prefix: PathBuf, words: String },
    #[error("cannot keep the program that an MPI compiles in {}: {source}", at.display())]
    Cache { at: PathBuf, source: io::Error },
}

impl Installation {
    /// All of `prefixes`, each under a name of its own, to run `program`.
    pub fn find_all(prefixes: &[PathBuf], program: Program) -> Result<Vec<Self>, InstallError> {
        let mut names = HashSet::new();
        let found = prefixes.iter().map(|prefix| {
            let mut one = Self::find(prefix, program)?;
            let plain = one.name.clone();
            let mut number = 1;
            while !names.insert(one.name.clone()) {
                number += 1;
                one.name = format!("{plain}-{number}");
            }
            Ok(one)
        });
        found.collect()
    }

    /// The one below `prefix`, the folder above its `bin`.
    fn find(prefix: &Path, program: Program) -> Result<Self, InstallError> {
        // Its wrappers may look for themselves from wherever they are run.
        let prefix = &fs::canonicalize(prefix).unwrap_or_else(|_| prefix.to_owned());
        let failed = |tool| move |source| InstallError::Tool { prefix: prefix.clone(), tool, source };
        let mpiexec = prefix.join("bin/mpiexec");
        let version = run(Command::new(&mpiexec).arg("--version"), "").map_err(failed("mpiexec"))?;
        let (name, family) = recognise(&version.said);
        let environment =
            if family == Family::IntelHydra { environment(prefix, |name| std::env::var_os(name)) } else { Vec::new() };
        let program = compile(prefix, program, &environment)?;
        Ok(Self { name: name.to_owned(), family, mpiexec, program, environment })
    }
}

/// What Intel's `vars.sh` would set, and the wheels of PyPI have nobody to.
fn environment(prefix: &Path, of_user: impl Fn(&str) -> Option<OsString>) -> Vec<(&'static str, OsString)> {
    let folder_with = |file: &str, folders: [&str; 2]| {
        folders.map(|folder| prefix.join(folder)).into_iter().find(|folder| folder.join(file).exists())
    };
    let mut environment = vec![("I_MPI_ROOT", prefix.into())];
    if let Some(folder) = folder_with("libtcp-fi.so", ["lib", "opt/mpi/libfabric/lib/prov"]) {
        environment.push(("FI_PROVIDER_PATH", folder.into()));
    }
    environment.retain(|(name, _)| of_user(name).is_none());
    if let Some(folder) = folder_with("libfabric.so.1", ["lib", "opt/mpi/libfabric/lib"]) {
        // Behind the user's own: it may be set for anything.
        let mut path = of_user(LIBRARIES).unwrap_or_default();
        if !path.is_empty() {
            path.push(":");
        }
        path.push(folder);
        environment.push((LIBRARIES, path));
    }
    environment
}

/// Where the dynamic linker looks first.
const LIBRARIES: &str = "LD_LIBRARY_PATH";

/// The name and the launcher of an MPI whose mpiexec says this of itself.
fn recognise(version: &str) -> (&'static str, Family) {
    let known = [
        ("Open MPI", "openmpi", Family::Prrte),
        ("OpenRTE", "openmpi", Family::Prrte),
        ("PRRTE", "openmpi", Family::Prrte),
        ("Intel(R) MPI", "intel-mpi", Family::IntelHydra),
        ("HYDRA", "mpich", Family::Hydra),
    ];
    let found = known.into_iter().find(|(word, ..)| version.contains(word));
    found.map_or(("other-mpi", Family::Hydra), |(_, name, family)| (name, family))
}

/// Has the program compiled; one file an installation is kept, and overwritten each time, since compiling takes no longer than
/// finding out whether it must be done.
fn compile(prefix: &Path, program: Program, environment: &[(&str, OsString)]) -> Result<PathBuf, InstallError> {
    let (name, source) = match program {
        Program::P2p => ("p2p", p2p::SOURCE),
        Program::Collectives => ("collectives", collectives::SOURCE),
    };
    let folder = cache::folder().map_err(|source| InstallError::Cache { at: std::env::temp_dir(), source })?;
    let kept = |source| InstallError::Cache { at: folder.clone(), source };
    let mut hasher = DefaultHasher::new();
    prefix.hash(&mut hasher);
    let program = folder.join(format!("{name}-{:016x}", hasher.finish()));
    let part = Unfinished::new(program.with_extension(format!("{}.part", std::process::id())));
    let mut command = Command::new(prefix.join("bin/mpicc"));
    command.args(["-O2", "-x", "c", "-", "-o"]).arg(part.path()).envs(environment.iter().cloned());
    let outcome = run(&mut command, source).map_err(|source| InstallError::Tool {
        prefix: prefix.to_owned(),
        tool: "mpicc",
        source,
    });
    outcome.and_then(|done| match done.succeeded {
        true => fs::rename(part.path(), &program).map_err(kept).map(|()| program),
        false => Err(InstallError::Compiler { prefix: prefix.to_owned(), words: last_lines(&done.said) }),
    })
}

struct Done {
    succeeded: bool,
    said: String,
}

/// Runs `command` to its end, which neither outlives us nor asks anybody anything.
fn run(command: &mut Command, input: &str) -> io::Result<Done> {
    lab::tie(command);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut to = child.stdin.take().expect("its input is a pipe");
    // One that does not read says why not in its output.
    let _ = to.write_all(input.as_bytes());
    drop(to);
    let output = child.wait_with_output()?;
    let said = [output.stdout, output.stderr].concat();
    Ok(Done { succeeded: output.status.success(), said: String::from_utf8_lossy(&said).into_owned() })
}

/// The end of what a program has said, where the reason usually is.
pub(super) fn last_lines(said: &str) -> String {
    let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(LINES_MAX)..].join("\n")
}

const LINES_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_user_has_set_stays_or_stands_before_it() {
        let prefix = tempfile::tempdir().unwrap();
        let lib = prefix.path().join("lib");
        fs::create_dir(&lib).unwrap();
        ["libtcp-fi.so", "libfabric.so.1"].iter().for_each(|file| fs::write(lib.join(file), "").unwrap());
        let environment = |own: &[(&str, &str)]| {
            let of_user = |name: &str| own.iter().find(|each| each.0 == name).map(|each| each.1.into());
            environment(prefix.path(), of_user).into_iter().collect::<std::collections::HashMap<_, _>>()
        };
        for own in [&[][..], &[(LIBRARIES, "")]] {
            let all = environment(own);
            assert_eq!(all["I_MPI_ROOT"], prefix.path());
            assert_eq!((&*all["FI_PROVIDER_PATH"], &*all[LIBRARIES]), (lib.as_os_str(), lib.as_os_str()));
        }
        let all = environment(&[("I_MPI_ROOT", "/opt"), (LIBRARIES, "/a:/b")]);
        assert!(!all.contains_key("I_MPI_ROOT"));
        assert_eq!(all[LIBRARIES].to_str().unwrap(), format!("/a:/b:{}", lib.display()));
    }

    #[test]
    fn launchers_are_known_by_what_they_say() {
        for (said, name, family) in [
            ("mpiexec (Open MPI) 5.0.11\n", "openmpi", Family::Prrte),
            ("HYDRA build details:\n    Version:      5.0.2\n", "mpich", Family::Hydra),
            ("Intel(R) MPI Library for Linux* OS, Version 2021.18\n", "intel-mpi", Family::IntelHydra),
            ("what", "other-mpi", Family::Hydra),
        ] {
            assert_eq!(recognise(said), (name, family));
        }
    }

    #[test]
    fn of_a_long_complaint_the_end_is_kept() {
        let said: String = (0..20).map(|line| format!("line {line}\n\n")).collect();
        let kept = last_lines(&said);
        assert!(kept.starts_with("line 12\n") && kept.ends_with("line 19"), "{kept}");
    }
}
