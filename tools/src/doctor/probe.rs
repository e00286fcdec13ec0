//! Opens a driver as a program would, and lets it go.

use sidelane_nic::spec::{NicUser, OpenError, Spec};
use sidelane_nic::{Nic, dpdk};

/// The hidden subcommand: exit code 0 when the driver that `text` names opens in the namespace it was started in. Of DPDK, by the name
/// alone, when it starts.
pub fn main(text: &str) -> i32 {
    let opened = || {
        let spec = text.parse::<Spec>().map_err(|error| error.to_string())?;
        open(&spec).map_err(|error| error.to_string())
    };
    let outcome = if text == DPDK { dpdk::try_start().map_err(|error| error.to_string()) } else { opened() };
    match outcome {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("{error}");
            1
        }
    }
}

/// Names DPDK, and none of its devices.
pub const DPDK: &str = "dpdk";

/// Opens `spec` and closes it, or says why not.
pub fn open(spec: &Spec) -> Result<(), OpenError> {
    struct LetGo;
    impl NicUser for LetGo {
        type Out = ();
        fn run<N: Nic + 'static>(self, _nic: N) {}
    }
    spec.open(LetGo)
}
