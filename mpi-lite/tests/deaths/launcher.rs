//! Starts ranks, answers them by PMI-1, and says nothing of those that die: as `mpiexec.hydra -disable-auto-cleanup`.
#![allow(unsafe_code)] // What is done between fork and exec.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use sidelane_mpi::launch::{Mapping, Server};

/// Runs the test `test` of this program, that others ignore, as `size` ranks, each with these variables; what each printed behind `told: `.
/// `reaps`: whether who dies is waited for at once, or is a zombie until all have ended.
pub fn run(size: usize, test: &str, variables: &[(&str, &str)], reaps: bool) -> Vec<Option<String>> {
    let server = Mutex::new(Server::new("deaths", &Mapping(vec![0; size])));
    let (near, far): (Vec<_>, Vec<_>) = (0..size).map(|_| UnixStream::pair().unwrap()).unzip();
    let ranks: Vec<_> = far.iter().enumerate().map(|(rank, end)| start(rank, size, end, test, variables)).collect();
    drop(far);
    std::thread::scope(|scope| {
        for rank in 0..size {
            let (near, server) = (&near, &server);
            scope.spawn(move || answer(rank, near, server));
        }
        let ends = ranks.into_iter().map(|rank| scope.spawn(move || said(rank, reaps)));
        let ends: Vec<_> = ends.collect();
        let said: Vec<_> = ends.into_iter().map(|end| end.join().unwrap()).collect();
        said.into_iter()
            .map(|(mut rank, said)| {
                rank.wait().unwrap();
                said
            })
            .collect()
    })
}

fn start(rank: usize, size: usize, end: &UnixStream, test: &str, variables: &[(&str, &str)]) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored", "--nocapture", "--quiet"]).stdin(Stdio::null()).stdout(Stdio::piped());
    for (name, _) in
        std::env::vars().filter(|(name, _)| ["PMI", "SLURM", "SIDELANE"].iter().any(|of| name.starts_with(of)))
    {
        command.env_remove(name);
    }
    let fd = end.as_raw_fd();
    let pmi = [("PMI_FD", fd.to_string()), ("PMI_RANK", rank.to_string()), ("PMI_SIZE", size.to_string())];
    command.envs(pmi).envs(variables.iter().copied()).env("SIDELANE_TUNING", "");
    // SAFETY: both take numbers, and may be called between fork and exec. The descriptor is inherited by this child alone.
    unsafe {
        command.pre_exec(move || {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            libc::fcntl(fd, libc::F_SETFD, 0);
            // Ends whoever is told nothing, and says nothing.
            libc::alarm(LIMIT_S);
            Ok(())
        });
    }
    command.spawn().unwrap()
}

/// Answers one rank as long as it is there.
fn answer(rank: usize, near: &[UnixStream], server: &Mutex<Server>) {
    for line in BufReader::new(&near[rank]).split(b'\n').map_while(Result::ok) {
        let mut server = server.lock().unwrap();
        server.handle_line(rank, &line);
        while let Some((to, reply)) = server.poll_reply() {
            // Who is gone hears nothing.
            let _ = (&near[to]).write_all(reply.as_bytes());
        }
        assert_eq!(server.poll_event(), None);
    }
}

/// Several times what the longest part takes.
const LIMIT_S: u32 = 60;

fn said(mut rank: Child, reaps: bool) -> (Child, Option<String>) {
    let lines = BufReader::new(rank.stdout.take().unwrap()).lines().map_while(Result::ok);
    let said = lines.filter_map(|line| line.split_once("told: ").map(|(_, rest)| rest.to_owned())).last();
    if reaps {
        rank.wait().unwrap();
    }
    (rank, said)
}
