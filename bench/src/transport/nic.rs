//! Drivers by name: the one place where a string picks a type.

use sidelane_nic::Nic;

use super::Broken;

/// What is done with a driver once it is open, for whichever type it has.
pub trait Use {
    /// What comes of it.
    type Output;

    /// Uses the driver.
    fn with<N: Nic>(self, nic: N) -> Result<Self::Output, Broken>;
}

/// Opens what `spec` names (`uring:eth0`, `udp:10.0.0.1:0`, `shm:domain`). `real_frames`: none larger than every path carries.
pub fn open<U: Use>(spec: &str, real_frames: bool, user: U) -> Result<U::Output, Broken> {
    let _ = (real_frames, user);
    let (kind, _rest) = spec.split_once(':').unwrap_or((spec, ""));
    Err(Broken::Driver(format!("no driver is called `{kind}`; there are uring, udp and shm")))
}
