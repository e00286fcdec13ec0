//! Agreements of devices on the simulated fabric, of which some crash at random times. A failure names its seed.

use std::sync::{Arc, Mutex};

use sidelane_nic::fault::Faults;
use sidelane_nic::mem::{Config as NodeConfig, Fabric, LinkModel};
use sidelane_nic::time::Duration;

use super::agreement::Random;
use crate::adi::{Config, Device, Port, Process, lock};
use crate::comm::failure::agreement::Verdict;
use crate::comm::failure::record::Name;
use crate::comm::failure::watch::{Failures, Watch};

struct Job {
    fabric: Fabric,
    devices: Vec<Device>,
    failures: Vec<Arc<Mutex<Failures>>>,
    crashed: Vec<bool>,
    name: Name,
}

/// Of the communicator.
const POINT: u32 = 8;

impl Job {
    fn new(size: usize, seed: u64, link: LinkModel) -> Self {
        let fabric = Fabric::new(seed);
        fabric.set_default_link(link);
        let mut config = Config::default();
        config.endpoint.keep_alive = Duration::from_millis(5);
        config.endpoint.connect_timeout = Duration::from_millis(20);
        let ports: Vec<_> = (0..size as u64)
            .map(|number| {
                config.endpoint.seed = Some(seed ^ number << 32);
                Port::new(fabric.nic(NodeConfig::default()), &config).unwrap()
            })
            .collect();
        let here = |(host, port): (usize, &Port)| Process::here(&format!("host{host}"), std::slice::from_ref(port));
        let processes: Vec<_> = ports.iter().enumerate().map(here).collect();
        let members: Vec<u32> = (0..size as u32).collect();
        let name = Name::of(2, &members);
        let (mut devices, mut all) = (Vec::new(), Vec::new());
        for (own, port) in (0..).zip(ports) {
            let mut device = Device::open(own, processes.clone(), vec![port], &config).unwrap();
            let failures = Arc::new(Mutex::new(Failures::new(own, 99)));
            device.watch(99, Box::new(Watch(Arc::clone(&failures))));
            lock(&failures).add(&mut device, name, members.clone().into(), POINT..POINT + 4, None);
            devices.push(device);
            all.push(failures);
        }
        Self { fabric, devices, failures: all, crashed: vec![false; size], name }
    }

    fn living(&self) -> impl Iterator<Item = usize> + use<> {
        (0..self.devices.len()).filter(|own| !self.crashed[*own]).collect::<Vec<_>>().into_iter()
    }

    fn step(&mut self) {
        for own in self.living() {
            self.devices[own].progress();
        }
        self.fabric.advance_to(self.fabric.now() + Duration::from_micros(1));
    }

    fn begin(&mut self, own: usize, value: u64) -> u32 {
        lock(&self.failures[own]).begin(&mut self.devices[own], self.name, vec![value])
    }

    fn poll(&self, own: usize, number: u32) -> Option<Verdict> {
        lock(&self.failures[own]).poll(self.name, number)
    }
}

/// Steps of a microsecond: noticing a silent process takes 20 ms, and leads may die one after the other.
const PATIENCE: usize = 300_000;

fn play(seed: u64) {
    let mut random = Random(seed);
    let size = 2 + random.below(5);
    let loss = [0.0, 0.05][random.below(2)];
    let link = LinkModel { faults: Faults { loss, ..Faults::default() }, ..LinkModel::default() };
    let mut job = Job::new(size, seed, link);
    // Crashes are so early that they meet the words of the agreements, which take some microseconds each.
    let crashes: Vec<_> = (0..random.below(size)).map(|_| (random.below(60), random.below(size))).collect();
    let mut now = 0;
    for round in 1..=3 {
        let mut begun = vec![None; size];
        let mut verdicts: Vec<Option<Verdict>> = vec![None; size];
        let late: Vec<_> = (0..size).map(|_| now + random.below(30)).collect();
        let end = now + PATIENCE;
        while job.living().any(|own| verdicts[own].is_none()) {
            for (_, victim) in crashes.iter().filter(|(at, _)| *at == now) {
                if !std::mem::replace(&mut job.crashed[*victim], true) {
                    job.fabric.crash(*victim as u32);
                }
            }
            for own in job.living() {
                if begun[own].is_none() && now >= late[own] {
                    begun[own] = Some(job.begin(own, !(1 << own)));
                    assert_eq!(begun[own], Some(round));
                }
                if let (Some(number), None) = (begun[own], &verdicts[own]) {
                    verdicts[own] = job.poll(own, number);
                }
            }
            job.step();
            now += 1;
            assert!(now < end, "seed {seed}: of {verdicts:?} some wait for ever");
        }
        let mut given = verdicts.iter().flatten();
        if let Some(first) = given.next() {
            assert!(given.all(|verdict| verdict == first), "seed {seed}: {verdicts:?}");
            for own in job.living() {
                assert!(first.alive.has(own) && first.value[0] >> own & 1 == 0, "seed {seed}: {own} and {first:?}");
            }
        }
    }
}

#[test]
fn devices_agree_whoever_crashes() {
    match std::env::var("ULFM_SEED") {
        Ok(seed) => play(seed.parse().expect("a number")),
        Err(_) => (0..60).for_each(play),
    }
}

/// Who has the verdict is asked for it by who has not.
#[test]
fn a_verdict_that_the_lead_could_not_tell_all_is_told_by_who_has_heard_it() {
    for cut_after in 0..40 {
        let mut job = Job::new(3, cut_after, LinkModel::default());
        let number = [0, 1, 2].map(|own| job.begin(own, !(1 << own)))[0];
        (0..cut_after).for_each(|_| job.step());
        let never = job.fabric.now() + Duration::from_millis(1_000_000);
        job.fabric.partition(0, 2, never);
        for _ in 0..100 {
            job.step();
            job.poll(1, number);
        }
        job.fabric.crash(0);
        job.crashed[0] = true;
        let mut verdict = None;
        for _ in 0..PATIENCE / 100 {
            (0..100).for_each(|_| job.step());
            verdict = job.poll(2, number);
            if verdict.is_some() {
                break;
            }
        }
        assert!(verdict.is_some() && verdict == job.poll(1, number), "{cut_after}: {verdict:?}");
    }
}

#[test]
fn all_hear_of_a_revocation_also_when_its_author_dies() {
    let mut heard = Vec::new();
    for crash_after in 0..12 {
        let mut job = Job::new(4, crash_after, LinkModel::default());
        lock(&job.failures[3]).revoke(&mut job.devices[3], job.name);
        // Two are cut off from the author: the others tell them.
        let never = job.fabric.now() + Duration::from_millis(1_000_000);
        job.fabric.partition(3, 1, never);
        job.fabric.partition(3, 2, never);
        (0..crash_after).for_each(|_| job.step());
        job.fabric.crash(3);
        job.crashed[3] = true;
        (0..500).for_each(|_| job.step());
        let revoked: Vec<_> = (0..3).map(|own| job.devices[own].is_revoked(POINT + 1)).collect();
        assert!(revoked.iter().all(|other| *other == revoked[0]), "{crash_after}: {revoked:?}");
        heard.push(revoked[0]);
    }
    assert!(!heard[0] && heard[11], "telling the first one takes some microseconds: {heard:?}");
}

#[test]
fn what_was_said_of_a_communicator_that_is_not_there_yet_is_heard_when_it_is() {
    let mut job = Job::new(2, 1, LinkModel::default());
    let later = Name::of(3, &[0, 1]);
    lock(&job.failures[0]).add(&mut job.devices[0], later, Box::new([0, 1]), 12..16, None);
    let number = lock(&job.failures[0]).begin(&mut job.devices[0], later, vec![3]);
    lock(&job.failures[0]).revoke(&mut job.devices[0], later);
    (0..100).for_each(|_| job.step());
    assert!(!job.devices[1].is_revoked(12));
    lock(&job.failures[1]).add(&mut job.devices[1], later, Box::new([0, 1]), 12..16, None);
    assert!(job.devices[1].is_revoked(12));
    lock(&job.failures[1]).begin(&mut job.devices[1], later, vec![6]);
    (0..100).for_each(|_| job.step());
    let verdicts = [0, 1].map(|own: usize| lock(&job.failures[own]).poll(later, number).unwrap());
    assert!(verdicts.iter().all(|verdict| verdict.value == [2]));
    assert!(!lock(&job.failures[1]).forget(later), "its id is not used again");
}
