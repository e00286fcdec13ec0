//! Drivers by name: the one place where a string picks a type.

use std::fmt::Display;

use sidelane_nic::{Nic, udp, uring};

use super::Broken;

/// What is done with a driver once it is open, for whichever type it has.
pub trait Use {
    /// What comes of it.
    type Output;

    /// Uses the driver.
    fn with<N: Nic>(self, nic: N) -> Result<Self::Output, Broken>;
}

/// Opens what `spec` names: `uring:<interface>` or `udp:<address>`. `real_frames`: none larger than every path carries.
pub fn open<U: Use>(spec: &str, real_frames: bool, user: U) -> Result<U::Output, Broken> {
    let (kind, at) = spec.split_once(':').unwrap_or((spec, ""));
    match kind {
        "uring" => {
            let config = uring::Config { real_frames, ..uring::Config::new(at, ENDPOINT) };
            user.with(uring::Uring::open(&config).map_err(refused)?)
        }
        "udp" => {
            let at = at.parse().map_err(|error| refused(format!("`{at}` is no address with a port: {error}")))?;
            // Its frames never exceed the MTU; trains of them are cut by the kernel, as the regime has it.
            let config = udp::Config::new(at);
            user.with(udp::Udp::open(&config).map_err(refused)?)
        }
        _ => Err(refused(format!("no driver is called `{kind}`; there are uring and udp"))),
    }
}

fn refused(error: impl Display) -> Broken {
    Broken::Driver(error.to_string())
}

/// Both sides have an interface of their own, so any number will do.
const ENDPOINT: u16 = 1;
