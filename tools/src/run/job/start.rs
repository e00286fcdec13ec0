//! A job's begin: all ranks are started, and heard.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Instant;

use sidelane::lab::process;
use sidelane_mpi::launch::{ALONE, KEEPS_GOING, Mapping, OF_OTHERS, Server};

use super::{Ending, Job, Member, State};
use crate::run::descriptors;
use crate::run::guard::Guard;
use crate::run::input::{self, Input};
use crate::run::output::{self, Sink, Stream};
use crate::run::place::Places;
use crate::run::rank::{self, Rank};
use crate::run::verdict::Verdict;
use crate::run::{Failure, JobSpec, job_name, sources, stop};

impl Job {
    /// Starts all ranks, unless something ends the job before. On failure nothing of those that were started is left.
    pub fn start(spec: JobSpec, places: &Places) -> Result<Self, Failure> {
        let system = |what| move |error| Failure::System(what, error);
        let (sender, events) = sync_channel(EVENTS_MAX);
        let stop = stop::Wanted::watch().map_err(system("watch for signals"))?;
        sources::watch_signals(sender.clone()).map_err(system("watch for signals"))?;
        rank::adopt_orphans().map_err(system("adopt what ranks leave behind"))?;
        let descriptors = descriptors::raise_limit().map_err(system("ask for descriptors"))?;
        let guard = Guard::post().map_err(system("guard the job"))?;
        let others = process::descendants();
        let own = |stream: io::Result<std::os::fd::OwnedFd>| stream.map(File::from).map_err(system("use the output"));
        let streams = [io::stdout().as_fd(), io::stderr().as_fd()].map(|stream| own(stream.try_clone_to_owned()));
        let [output, errors] = streams;
        let [output, errors] = Sink::pair(output?, errors?).map_err(system("use the output"))?;
        let nodes = places.ranks.iter().map(|place| place.node).collect();
        let mut job = Self {
            descriptors,
            ranks: Vec::new(),
            server: Server::new(job_name(), &Mapping(nodes)),
            guard,
            others,
            stop,
            events,
            sender,
            errors,
            streams: 0,
            is_one_left: false,
            out_of_time: spec.timeout.map(|timeout| Instant::now() + timeout),
            ending: Ending::No,
            signalled: None,
            verdict: None,
            survived: None,
            blame: None,
            spec,
        };
        match job.start_ranks(places, &output) {
            Ok(()) => Ok(job),
            Err(failure) => {
                job.give_up();
                Err(failure)
            }
        }
    }

    fn start_ranks(&mut self, places: &Places, output: &Arc<Sink>) -> Result<(), Failure> {
        let input = if self.spec.stdin { Input::find() } else { Input::Nothing };
        for rank in 0..places.ranks.len() {
            if self.ends_early() {
                break;
            }
            self.start_rank(rank, places, input)?;
        }
        // A fork copies all that this process has mapped, stacks too: threads come when all ranks are there.
        (0..self.ranks.len()).try_for_each(|rank| self.hear_rank(rank, input, output))
    }

    /// Handles what has happened while ranks are started; true when the next one is not needed any more. What the others have said
    /// is still to be heard, and their ends to be judged.
    fn ends_early(&mut self) -> bool {
        while let Ok(event) = self.events.try_recv() {
            self.handle(event);
        }
        if let Ending::Interrupted(signal) = self.ending {
            // They may wait for those that do not come any more.
            self.end_for(Verdict::Interrupted { signal });
        }
        self.end_if_time_is_up(Instant::now());
        let failed = |member: &Member| matches!(member.state, State::Ended { status, .. } if !status.success());
        self.is_ending() || !self.spec.keep_going && self.ranks.iter().any(failed)
    }

    /// Starts a rank; `input` is that of rank 0.
    fn start_rank(&mut self, rank: usize, places: &Places, input: Input) -> Result<(), Failure> {
        let place = &places.ranks[rank];
        let mut command = places.command(rank, &self.spec.program)?;
        command.args(&self.spec.arguments);
        self.descriptors.restore_in(&mut command);
        // A launcher that has started us, and what it told us, is not the ranks' launcher, and they are asked to be together.
        for name in OF_OTHERS.iter().chain(&[KEEPS_GOING, ALONE]) {
            command.env_remove(name);
        }
        // As hydra calls them; programs use them to choose a device.
        command.env("MPI_LOCALRANKID", place.local_rank.to_string());
        command.env("MPI_LOCALNRANKS", place.local_size.to_string());
        if self.spec.keep_going {
            command.env(KEEPS_GOING, "1");
        }
        command.envs(self.spec.protection.map(|protection| ("SIDELANE_PROTECTION", protection.to_text())));
        command.envs(self.spec.nic.iter().map(|nic| ("SIDELANE_NIC", nic)));
        command.envs(self.spec.variables.iter().map(|(name, value)| (name, value)));
        if let Some(folder) = &self.spec.folder {
            command.current_dir(folder);
        }
        let input = if rank == 0 { input } else { Input::Nothing };
        let [stdout, stderr] = match &self.spec.output {
            None => [Stdio::piped(), Stdio::piped()],
            Some(folder) => output::own_files(folder, rank)?,
        };
        let started = Rank::start(command, rank, places.ranks.len(), [input.stdio(), stdout, stderr]);
        let started = started.map_err(|error| Failure::Start {
            program: self.spec.program.to_string_lossy().into_owned(),
            folder: self.spec.folder.clone().unwrap_or_default(),
            host: place.host.clone(),
            error,
        })?;
        self.guard.watch(started.pid).map_err(|error| Failure::System("tell the guard", error))?;
        let host = place.host.clone();
        self.ranks.push(Member { rank: started, host, heard_out: None, guarded: true, state: State::Running });
        Ok(())
    }

    /// From now on its words and streams are heard.
    fn hear_rank(&mut self, rank: usize, input: Input, output: &Arc<Sink>) -> Result<(), Failure> {
        let system = |error| Failure::System("start a thread", error);
        let ranks = self.ranks.len();
        let started = &mut self.ranks[rank].rank;
        let child = &mut started.child;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let pmi = started.pmi.hear().map_err(system)?;
        if let Some(to) = stdin {
            input::feed(to).map_err(system)?;
        }
        sources::listen(self.sender.clone(), rank, pmi).map_err(system)?;
        let eager = rank == 0 && input == Input::FromTerminal;
        let label = if self.spec.label { format!("[{rank}] ") } else { String::new() };
        let stream = |number| Stream { number, label: label.clone(), eager };
        // Each of their lines has its own label, if there are labels. Else what a rank writes stands as it would without us.
        let of_errors = if self.spec.label { ranks + rank } else { rank };
        if let Some(from) = stdout {
            self.route(from, stream(rank), Arc::clone(output)).map_err(system)?;
        }
        if let Some(from) = stderr {
            self.route(from, stream(of_errors), Arc::clone(&self.errors)).map_err(system)?;
        }
        Ok(())
    }

    fn route(&mut self, from: impl Read + Send + 'static, stream: Stream, sink: Arc<Sink>) -> io::Result<()> {
        sources::route(self.sender.clone(), from, stream, sink)?;
        self.streams += 1;
        Ok(())
    }
}

/// Ranks talk only when they begin and end, so a short queue is enough; when it is full, they wait.
const EVENTS_MAX: usize = 1024;
