//! A barrier of more processes than cores, by messages (dissemination: each tells one other in each of log2 rounds), with
//! several kinds of patience. Threads are the processes.
//!
//! `cargo run --release -p sidelane-mpi --example crowd -- 16`

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Instant;

use sidelane_mpi::adi::{
    Config, Device, Envelope, Incoming, Mode, Outgoing, Patience, Pattern, Port, Process, Source, host_identity,
};

const BARRIERS: u32 = 500;
const ROUNDS: usize = 5;

fn main() {
    let ranks: u32 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(16);
    println!("{ranks} processes; us a barrier, median of {ROUNDS} rounds");
    let kinds =
        [(0, 0), (0, 20), (0, 200), (20, 0), (20, 20), (20, 200), (20, 2_000), (200, 20), (200, 200), (2_000, 100)];
    for (spin, yields) in kinds {
        let mut rounds: Vec<_> = (0..ROUNDS).map(|_| round(ranks, Patience { spin, yields })).collect();
        rounds.sort_by(f64::total_cmp);
        println!("spin {spin:>5}, yield {yields:>5}: {:>8.1}", rounds[ROUNDS / 2]);
    }
}

fn round(ranks: u32, patience: Patience) -> f64 {
    let config = Config { patience, patience_crowded: patience, ..Config::default() };
    let (tell, told) = channel::<(u32, String)>();
    thread::scope(|scope| {
        let (config, mut all) = (&config, Vec::new());
        let sides: Vec<_> = (0..ranks)
            .map(|own| {
                let (to_it, from_main) = channel();
                all.push(to_it);
                let tell = tell.clone();
                scope.spawn(move || side(own, config, &tell, &from_main))
            })
            .collect();
        let mut processes: Vec<_> = (0..ranks).map(|_| told.recv().expect("each process")).collect();
        processes.sort_unstable_by_key(|(own, _)| *own);
        let processes: Vec<Process> = processes.iter().map(|(_, text)| text.parse().expect("a process")).collect();
        all.iter().for_each(|to_it| to_it.send(processes.clone()).expect("each process"));
        sides.into_iter().map(|side| side.join().expect("each process")).fold(0.0, f64::max)
    })
}

fn side(own: u32, config: &Config, tell: &Sender<(u32, String)>, told: &Receiver<Vec<Process>>) -> f64 {
    let spec = format!("shm:crowd-{}", std::process::id()).parse().expect("a driver");
    let ports = vec![Port::open(&spec, config).expect("the driver opens")];
    tell.send((own, Process::here(&host_identity(), &ports).to_string())).expect("main");
    let mut device = Device::open(own, told.recv().expect("main"), ports, config).expect("all reach each other");
    for _ in 0..10 {
        barrier(&mut device);
    }
    let begin = Instant::now();
    for _ in 0..BARRIERS {
        barrier(&mut device);
    }
    let taken = begin.elapsed().as_nanos() as f64 / 1_000.0 / f64::from(BARRIERS);
    device.close(sidelane_nic::time::Duration::from_millis(1_000));
    taken
}

fn barrier(device: &mut Device) {
    let (own, ranks) = (device.own(), device.processes().len() as u32);
    let (mut distance, mut tag) = (1, 0);
    while distance < ranks {
        let (to, from) = ((own + distance) % ranks, (own + ranks - distance) % ranks);
        let source = Some(Source { rank: from, process: from });
        let receive = device.recv(Pattern { context: 0, source, tag: Some(tag) }, Incoming::EMPTY);
        let send = device.send(to, Envelope::new(0, own, tag), Outgoing::EMPTY, Mode::Standard);
        device.wait(send);
        device.wait(receive);
        (distance, tag) = (distance * 2, tag + 1);
    }
}
