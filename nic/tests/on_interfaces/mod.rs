//! The conformance suite on interfaces of this namespace, for each driver of such.

use std::fmt;

use sidelane_nic::conformance::{self, Setup};
use sidelane_nic::time::Duration;
use sidelane_nic::{LinkAddr, Nic};

use crate::raw_socket::RawSocket;

/// `open` opens the endpoint of a number on an interface: those of `interfaces`, in this order, with numbers of their own.
pub fn keeps_the_contract<N, E>(interfaces: &'static [&'static str], open: impl Fn(&str, u16) -> Result<N, E>)
where
    N: Nic + Send + 'static,
    E: fmt::Display,
{
    let mut setup = On {
        interfaces,
        open: |interface: &str, endpoint| open(interface, endpoint).map_err(|error| error.to_string()),
    };
    // A skipped suite would be a suite that proves nothing: here it has to open.
    let nics = setup.open(3).unwrap();
    // What a lost tail costs, as it does in the protocol's tests of that (`proto/tests/stories/loss.rs`).
    assert!(nics.iter().all(|nic| nic.caps().rto_floor == Duration::from_millis(1)));
    drop(nics);
    conformance::run(&mut setup).assert_all_passed();
    conformance::run_threads(&mut setup).assert_all_passed();
}

struct On<F> {
    interfaces: &'static [&'static str],
    open: F,
}

impl<N: Nic + 'static, F: Fn(&str, u16) -> Result<N, String>> Setup for On<F> {
    type Nic = N;

    fn open(&mut self, count: usize) -> Result<Vec<N>, String> {
        self.interfaces
            .iter()
            .zip(1..)
            .take(count)
            .map(|(interface, endpoint)| (self.open)(interface, endpoint))
            .collect()
    }

    fn absent(&mut self) -> Option<LinkAddr> {
        Some("02:00:00:00:00:99/9".parse().unwrap())
    }

    fn throw(&mut self, victim: LinkAddr, bytes: &[u8]) -> bool {
        RawSocket::on(self.interfaces[0]).throw(victim, bytes);
        true
    }
}
