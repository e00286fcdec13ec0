//! Drivers by name: the one place where a string picks a type.

use sidelane_nic::{Nic, uring};

use super::Broken;

/// What is done with a driver once it is open, for whichever type it has.
pub trait Use {
    /// What comes of it.
    type Output;

    /// Uses the driver.
    fn with<N: Nic>(self, nic: N) -> Result<Self::Output, Broken>;
}

/// Opens what `spec` names: `uring:<interface>`. `real_frames`: none larger than every path carries.
pub fn open<U: Use>(spec: &str, real_frames: bool, user: U) -> Result<U::Output, Broken> {
    let (kind, at) = spec.split_once(':').unwrap_or((spec, ""));
    match kind {
        "uring" => {
            let config = uring::Config { real_frames, ..uring::Config::new(at, ENDPOINT) };
            user.with(uring::Uring::open(&config).map_err(|error| Broken::Driver(error.to_string()))?)
        }
        _ => Err(Broken::Driver(format!("no driver is called `{kind}`; there is uring"))),
    }
}

/// Both sides have an interface of their own, so any number will do.
const ENDPOINT: u16 = 1;
