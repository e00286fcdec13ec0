//! `sidelane ladder serve`: machine B of a ladder between two.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{ExitStatus, Stdio};

use sidelane_bench::ladder::NicKind;
use sidelane_bench::remote::{self, Greeting};
use sidelane_nic::spec::Spec;

use super::Failure;
use super::args::ServeArgs;
use super::peer::{kind_on_a_network, last_core_but};
use super::place::{own_command, own_side};
use crate::{interrupt, variable};

/// Serves one ladder after another until a signal ends it; returns how that is, as [`interrupt::code_of`] has it.
pub fn serve(args: &ServeArgs) -> Result<i32, Failure> {
    let nic = match &args.nic {
        Some(nic) => nic.clone(),
        None => variable::read("SIDELANE_NIC", str::parse)?.ok_or(Failure::NothingToServe)?,
    };
    let interrupted = interrupt::end_children_on_signal().map_err(Failure::Signals)?;
    match try_out(&nic) {
        _ if interrupted.is_set() => return Ok(interrupted.code()),
        tried => tried?,
    }
    let listener = TcpListener::bind(args.listen).map_err(|error| Failure::Listen(args.listen, error))?;
    let at = listener.local_addr().map_err(|error| Failure::Listen(args.listen, error))?;
    let core = args.core.unwrap_or_else(|| last_core_but(None));
    tell!("serving {nic} on core {core}, at {at}");
    loop {
        let (connection, peer) = match listener.accept() {
            Ok(accepted) => accepted,
            // Whoever was about to connect is gone again (accept(2)).
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
            Err(error) => return Err(Failure::Listen(args.listen, error)),
        };
        tell!("{peer}: a ladder begins");
        let ended = attend(connection, &Greeting::new(nic.to_string(), core));
        if interrupted.is_set() {
            return Ok(interrupted.code());
        }
        match ended {
            Ok(status) if status.success() => tell!("{peer}: the ladder has ended"),
            Ok(status) => tell!("{peer}: the side ended with {status}"),
            // Whoever has gone away again: the next one is served.
            Err(error) => tell!("{}", Failure::Serve(peer, error)),
        }
    }
}

/// Opens the driver once, in a process of its own: what is wrong with it is told here, and not to whoever comes to measure.
fn try_out(nic: &Spec) -> Result<(), Failure> {
    // A card's link would go down and come up again, which takes seconds each time.
    if kind_on_a_network(nic)? == NicKind::Dpdk {
        return Ok(());
    }
    let refused = |reason: String| Failure::NoDriver { nic: nic.clone(), reason };
    let output = own_command().and_then(|mut own| own.args(["probe", &nic.to_string()]).stdin(Stdio::null()).output());
    let output = output.map_err(|error| refused(error.to_string()))?;
    if output.status.success() {
        Ok(())
    } else {
        Err(refused(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
    }
}

/// Gives the connection to a side of its own, so that whatever a measurement leaves behind goes with it.
fn attend(mut connection: TcpStream, greeting: &Greeting) -> io::Result<ExitStatus> {
    greeting.send(&mut connection)?;
    remote::await_order(&connection)?;
    let orders = Stdio::from(OwnedFd::from(connection.try_clone()?));
    let answers = Stdio::from(OwnedFd::from(connection));
    own_side()?.stdin(orders).stdout(answers).status()
}
