//! Opens a driver as a program would, and lets it go.

use sidelane_nic::Nic;
use sidelane_nic::spec::{NicUser, OpenError, Spec};

/// The hidden subcommand: exit code 0 when the driver that `text` names opens in the namespace it was started in.
pub fn main(text: &str) -> i32 {
    let outcome = text.parse::<Spec>().map_err(|error| error.to_string());
    let outcome = outcome.and_then(|spec| open(&spec).map_err(|error| error.to_string()));
    match outcome {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("{error}");
            1
        }
    }
}

/// Opens `spec` and closes it, or says why not.
pub fn open(spec: &Spec) -> Result<(), OpenError> {
    struct LetGo;
    impl NicUser for LetGo {
        type Out = ();
        fn run<N: Nic + 'static>(self, _nic: N) {}
    }
    spec.open(LetGo)
}
