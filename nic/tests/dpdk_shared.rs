//! Several endpoints of one process on one DPDK device. Where there is no libdpdk, each test says so and passes.

mod libdpdk;
#[allow(dead_code)] // Interfaces other than our own.
mod namespace;
mod patience;

use std::sync::atomic::{AtomicUsize, Ordering};

use sidelane_nic::conformance::{self, Setup};
use sidelane_nic::dpdk::{Config, Dpdk, OpenError};
use sidelane_nic::{LinkAddr, Nic, TxSlot};

use namespace::{ip, run_inside};
use patience::until;

fn shared(device: &str, endpoint: u16) -> Result<Dpdk, OpenError> {
    Dpdk::open(&Config { endpoint, shared: true, ..Config::new(device) })
}

#[test]
fn places_are_given_once_and_given_again() {
    if libdpdk::is_missing() {
        return;
    }
    let open = |endpoint| shared("net_null_places", endpoint);
    let mut all: Vec<Dpdk> = (1..=8).map(|endpoint| open(endpoint).unwrap()).collect();
    let refusal = |endpoint| open(endpoint).err().expect("a refusal").to_string();
    assert!(refusal(9).starts_with("all places of net_null_places are taken"), "{}", refusal(9));
    drop(all.remove(3));
    assert!(refusal(5).contains("endpoint 5 on net_null_places is taken"), "{}", refusal(5));
    assert_eq!(open(9).unwrap().caps().addr.to_string().rsplit('/').next(), Some("9"));
    let alone = Dpdk::open(&Config::new("net_null_places"));
    assert!(matches!(alone, Err(OpenError::InUse(_))));
}

/// Every endpoint of one end floods every one of the other, each on a thread of its own, until all have heard of all. What
/// arrives is for who gets it, in the order of sending, and what does not is counted.
#[test]
fn threads_at_one_device_get_their_own_frames_in_order() {
    const NUMBERS: [u16; 3] = [1, 2, 3];
    const FRAMES: u64 = 20_000;
    if libdpdk::is_missing() {
        return;
    }
    let name = format!("memif:sidelane-threads-{}", std::process::id());
    let end = |device: &str| NUMBERS.map(|endpoint| shared(device, endpoint).unwrap());
    let (left, right) = (end(&format!("{name},server")), end(&name));
    until("the two meet", || left[0].link_is_up() && right[0].link_is_up());
    let addrs = right.each_ref().map(|nic| nic.caps().addr);
    let (sending, sent, seen) = (AtomicUsize::new(NUMBERS.len()), AtomicUsize::new(0), AtomicUsize::new(0));
    let (heard_all, all_quiet) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        // Kept open until all has come: with a memif's end goes what its ring holds.
        let senders = left.map(|mut nic| {
            let (sending, sent, heard_all) = (&sending, &sent, &heard_all);
            scope.spawn(move || {
                let links = addrs.map(|to| nic.link(to).unwrap());
                let mut number: u64 = 0;
                until("every receiver has heard of every sender", || {
                    // Whoever does not run for a while may lose all frames of a sender.
                    for _ in 0..FRAMES {
                        for (link, to) in links.into_iter().zip(NUMBERS) {
                            until("a slot comes free", || {
                                let Some(mut slot) = nic.tx_slot(link, 10) else { return false };
                                slot[..8].copy_from_slice(&number.to_le_bytes());
                                slot[8..].copy_from_slice(&to.to_le_bytes());
                                slot.commit();
                                true
                            });
                        }
                        nic.flush();
                        number += 1;
                    }
                    heard_all.load(Ordering::Relaxed) == NUMBERS.len()
                });
                // What the device did not take goes with a later call.
                until("the device takes the last frames", || {
                    nic.flush();
                    nic.counters().tx_frames == number * NUMBERS.len() as u64
                });
                sent.fetch_add(nic.counters().tx_frames as usize, Ordering::Relaxed);
                sending.fetch_sub(1, Ordering::Release);
                nic
            })
        });
        let receivers = right.into_iter().zip(NUMBERS).map(|(mut nic, own)| {
            let (sending, seen, heard_all, all_quiet) = (&sending, &seen, &heard_all, &all_quiet);
            scope.spawn(move || {
                let mut next = [0; NUMBERS.len()];
                let mut unheard = NUMBERS.len();
                let mut take = || {
                    nic.rx_burst(32, |frame, from| {
                        let LinkAddr::Ether { endpoint, .. } = from else { unreachable!() };
                        let next = &mut next[usize::from(endpoint) - 1];
                        let number = u64::from_le_bytes(frame[..8].try_into().unwrap());
                        assert!(number >= *next, "{number} of {from} came after {next}");
                        assert_eq!(frame[8..], own.to_le_bytes());
                        if *next == 0 {
                            unheard -= 1;
                            heard_all.fetch_add(usize::from(unheard == 0), Ordering::Relaxed);
                        }
                        *next = number + 1;
                    })
                };
                until("every sender has ended", || {
                    while take() > 0 {}
                    sending.load(Ordering::Acquire) == 0
                });
                let mut quiet = 0;
                while quiet < QUIET_TURNS {
                    quiet = if take() == 0 { quiet + 1 } else { 0 };
                    std::thread::yield_now();
                }
                // Another one may have received for us and not have put it away yet, however long we look.
                all_quiet.fetch_add(1, Ordering::AcqRel);
                until("no other one receives any more", || all_quiet.load(Ordering::Acquire) == NUMBERS.len());
                while take() > 0 {}
                let counters = nic.counters();
                assert_eq!(counters.rx_foreign, 0);
                seen.fetch_add((counters.rx_frames + counters.rx_dropped) as usize, Ordering::Relaxed);
            })
        });
        receivers.collect::<Vec<_>>().into_iter().for_each(|receiver| receiver.join().unwrap());
        senders.into_iter().for_each(|sender| drop(sender.join().unwrap()));
    });
    assert_eq!(sent.into_inner(), seen.into_inner());
}

/// Looks at an empty device until it counts as empty.
const QUIET_TURNS: usize = 1_000;

#[test]
fn taps_on_a_bridge_keep_the_contract() {
    if !libdpdk::is_missing() {
        run_inside("inside_taps_on_a_bridge_keep_the_contract");
    }
}

#[test]
#[ignore = "needs a network namespace: the test of the same name outside runs it in one"]
fn inside_taps_on_a_bridge_keep_the_contract() {
    ip("link add hub type bridge mcast_snooping 0");
    quiet("hub");
    ip("link set hub up");
    if let Err(error) = Dpdk::open(&Config::new("net_tap_try,iface=try")) {
        // Where there is no /dev/net/tun.
        return println!("skipped: {error}");
    }
    drop(Taps.open(3).unwrap());
    conformance::run(&mut Taps).assert_passed();
    conformance::run_threads(&mut Taps).assert_passed();
    let [_, first, second] = <[Dpdk; 3]>::try_from(Taps.open(3).unwrap()).ok().unwrap();
    let mac = |nic: &Dpdk| nic.caps().addr.to_string().split('/').next().unwrap().to_owned();
    // Where the kernel has no rules for taps (multiq, flower, skbedit), frames are dealt out behind one address.
    assert_eq!(mac(&first) != mac(&second), first.about().contains("steers"));
    let gone = mac(&second);
    drop(second);
    assert_eq!(mac(&shared("net_tap_b,iface=tapB", 9).unwrap()), gone);
}

/// Without an address of IPv6, and thus without a word of its own.
fn quiet(interface: &str) {
    ip(&format!("link set {interface} addrgenmode none"));
}

/// One endpoint alone on one interface, the others together on another.
struct Taps;

impl Setup for Taps {
    type Nic = Dpdk;

    fn open(&mut self, count: usize) -> Result<Vec<Dpdk>, String> {
        let alone = Dpdk::open(&Config { endpoint: 1, ..Config::new("net_tap_a,iface=tapA") });
        let together = (2..=count as u16).map(|endpoint| shared("net_tap_b,iface=tapB", endpoint));
        let opened: Result<Vec<Dpdk>, OpenError> = std::iter::once(alone).chain(together).collect();
        let opened = opened.map_err(|error| error.to_string())?;
        println!("{}", opened[opened.len() - 1].about());
        for (interface, mac) in [("tapA", "02:00:00:00:01:01"), ("tapB", "02:00:00:00:01:02")].into_iter().take(count) {
            quiet(interface);
            // A bridge keeps what is for the address of a port's interface, and that address was the endpoint's.
            ip(&format!("link set {interface} address {mac}"));
            ip(&format!("link set {interface} master hub up"));
        }
        Ok(opened)
    }

    fn absent(&mut self) -> Option<LinkAddr> {
        Some("02:00:00:00:00:99/9".parse().unwrap())
    }
}
