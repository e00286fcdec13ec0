//! One measurement at one side: open, learn where the other end is, connect, play.

use std::net::SocketAddr;

use sidelane_nic::mem::{Config, Fabric};
use sidelane_nic::spec::{NicUser, Spec};
use sidelane_nic::time::Duration;
use sidelane_nic::{LinkAddr, Nic};

use super::{Layer, Measurement, Path, Sealing};
use crate::breakdown;
use crate::clock::now_ns;
use crate::pattern::{Outcome, Role, play, play_both};
use crate::study::chang;
use crate::transport::{Am, Broken, Flow, Get, Mpi, Proto, Put, Raw, Smoltcp, Tcp, TcpMode, Udp};

/// Runs `measurement`. `meet` tells the other side where our end is, and returns where theirs is.
pub fn measure(
    measurement: &Measurement,
    meet: impl FnOnce(String) -> Result<String, Broken>,
) -> Result<Outcome, Broken> {
    match &measurement.path {
        Path::Tcp { ip, blocking, congestion, no_delay } => {
            let mode = TcpMode { congestion: congestion.clone(), no_delay: *no_delay };
            if *blocking {
                over_tcp::<true>(measurement, (*ip, 0).into(), &mode, meet)
            } else {
                over_tcp::<false>(measurement, (*ip, 0).into(), &mode, meet)
            }
        }
        Path::Udp { ip } => {
            let socket = Udp::bind(*ip)?;
            let at = socket.local_addr().map_err(|error| Broken::System("getsockname", error))?;
            let peer = address(&meet(at.to_string())?)?;
            let Measurement { role, pattern, .. } = measurement;
            play(pattern, *role, &mut Udp::connect(socket, peer, pattern.size, pattern.flow(*role))?)
        }
        Path::Nic { layer, nic, real_frames } => {
            let mut spec: Spec = nic.parse().map_err(driver)?;
            if let Spec::Uring { real_frames: of_driver, .. } = &mut spec {
                *of_driver |= *real_frames;
            }
            spec.open(OverNic { measurement, layer: *layer, meet }).map_err(driver)?
        }
        Path::Fabric { layer } => {
            meet("fabric".to_owned())?;
            over_fabric(measurement, *layer)
        }
    }
}

fn over_tcp<const BLOCKING: bool>(
    measurement: &Measurement,
    at: SocketAddr,
    mode: &TcpMode,
    meet: impl FnOnce(String) -> Result<String, Broken>,
) -> Result<Outcome, Broken> {
    let Measurement { role, pattern, .. } = measurement;
    let mut transport = match role {
        Role::Responder => {
            let listener = Tcp::<BLOCKING>::listen(at.ip())?;
            let at = listener.local_addr().map_err(|error| Broken::System("getsockname", error))?;
            meet(at.to_string())?;
            Tcp::<BLOCKING>::accept(&listener, pattern.size, mode, now_ns() + pattern.limit_ns)?
        }
        Role::Initiator => {
            let peer = address(&meet(at.to_string())?)?;
            Tcp::connect(peer, pattern.size, mode, now_ns() + pattern.limit_ns)?
        }
    };
    play(pattern, *role, &mut transport)
}

struct OverNic<'a, M> {
    measurement: &'a Measurement,
    layer: Layer,
    meet: M,
}

impl<M: FnOnce(String) -> Result<String, Broken>> NicUser for OverNic<'_, M> {
    type Out = Result<Outcome, Broken>;

    fn run<N: Nic + 'static>(self, nic: N) -> Self::Out {
        let Measurement { role, pattern, .. } = self.measurement;
        if let Layer::Mpi | Layer::MpiWindows | Layer::MpiWith(_) = self.layer {
            let limits = if let Layer::MpiWith(limits) = self.layer { Some(limits) } else { None };
            let (ports, process) = Mpi::begin(nic)?;
            let peer = (self.meet)(process)?;
            let messages = (pattern.size, pattern.flow(*role));
            let mut mpi = Mpi::new(ports, *role, &peer, limits, messages)?;
            if self.layer == Layer::MpiWindows {
                mpi = mpi.in_windows(messages.1);
            }
            return play(pattern, *role, &mut mpi);
        }
        let peer = (self.meet)(nic.caps().addr.to_string())?;
        let peer: LinkAddr = peer.parse().map_err(driver)?;
        match (self.layer, role) {
            (Layer::Raw, _) => play(pattern, *role, &mut Raw::new(nic, peer, pattern.size, pattern.flow(*role))?),
            (Layer::Proto(sealing), Role::Initiator) => {
                let deadline_ns = now_ns() + pattern.limit_ns;
                play(pattern, *role, &mut Proto::connect(nic, sealing, peer, pattern.size, deadline_ns)?)
            }
            (Layer::Proto(sealing), Role::Responder) => {
                let deadline_ns = now_ns() + pattern.limit_ns;
                play(pattern, *role, &mut Proto::accept(nic, sealing, pattern.size, deadline_ns)?)
            }
            (Layer::Am, role) => {
                let (flow, deadline_ns) = (pattern.flow(*role), now_ns() + pattern.limit_ns);
                let mut am = match role {
                    Role::Initiator => Am::connect(nic, peer, pattern.size, flow, deadline_ns)?,
                    Role::Responder => Am::accept(nic, pattern.size, flow, deadline_ns)?,
                };
                play(pattern, *role, &mut am)
            }
            (Layer::Put | Layer::Get, _) => {
                let (size, flow, deadline_ns) = (pattern.size, pattern.flow(*role), now_ns() + pattern.limit_ns);
                let proto = match role {
                    Role::Initiator => Proto::connect(nic, Sealing::None, peer, size, deadline_ns)?,
                    Role::Responder => Proto::accept(nic, Sealing::None, size, deadline_ns)?,
                };
                match self.layer {
                    Layer::Put => play(pattern, *role, &mut Put::new(proto, size, flow)?),
                    _ => play(pattern, *role, &mut Get::new(proto, size, flow)?),
                }
            }
            (Layer::Mpi | Layer::MpiWindows | Layer::MpiWith(_), _) => {
                unreachable!("it meets its peer in words of its own")
            }
            (Layer::AmCosts, role) => chang::costs(nic, peer, *role, pattern),
            (Layer::AmBulk, role) => chang::bulk::play(nic, peer, *role, pattern),
            (Layer::Stamped, _) => breakdown::play(nic, peer, *role, pattern),
            (Layer::StampedAm, _) => breakdown::play_am(nic, peer, *role, pattern),
            (Layer::SmoltcpTcp, _) => {
                let deadline_ns = now_ns() + pattern.limit_ns;
                play(pattern, *role, &mut Smoltcp::new(nic, peer, *role, pattern.size, deadline_ns)?)
            }
        }
    }
}

/// Both ends in this thread, over a wire that costs nothing: what is left is the software.
fn over_fabric(measurement: &Measurement, layer: Layer) -> Result<Outcome, Broken> {
    let pattern = &measurement.pattern;
    let fabric = Fabric::new(0);
    let (a, b) = (fabric.nic(Config::default()), fabric.nic(Config::default()));
    let (at_a, at_b) = (a.caps().addr, b.caps().addr);
    let pass = || fabric.advance_to(fabric.now() + FABRIC_STEP);
    match layer {
        Layer::Raw => {
            let mut a = Raw::new(a, at_b, pattern.size, pattern.flow(Role::Initiator))?;
            let mut b = Raw::new(b, at_a, pattern.size, pattern.flow(Role::Responder))?;
            play_both(pattern, &mut a, &mut b, pass)
        }
        Layer::Proto(sealing) => {
            let deadline_ns = now_ns() + pattern.limit_ns;
            let (mut a, mut b) = Proto::pair((a, b), sealing, at_b, pattern.size, deadline_ns, pass)?;
            play_both(pattern, &mut a, &mut b, pass)
        }
        Layer::Am => {
            let (flow, deadline_ns) = (pattern.flow(Role::Initiator), now_ns() + pattern.limit_ns);
            let (mut a, mut b) = Am::pair((a, b), at_b, pattern.size, flow, deadline_ns, pass)?;
            play_both(pattern, &mut a, &mut b, pass)
        }
        Layer::Mpi | Layer::MpiWindows => {
            let (mut a, mut b) = Mpi::pair((a, b), pattern.size, pattern.flow(Role::Initiator))?;
            if layer == Layer::MpiWindows {
                (a, b) = (a.in_windows(Flow::Outward), b.in_windows(Flow::Inward));
            }
            play_both(pattern, &mut a, &mut b, pass)
        }
        Layer::Put | Layer::Get => {
            let size = pattern.size;
            let flows = [Role::Initiator, Role::Responder].map(|role| pattern.flow(role));
            let deadline_ns = now_ns() + pattern.limit_ns;
            let (a, b) = Proto::pair((a, b), Sealing::None, at_b, size, deadline_ns, pass)?;
            if layer == Layer::Put {
                play_both(pattern, &mut Put::new(a, size, flows[0])?, &mut Put::new(b, size, flows[1])?, pass)
            } else {
                play_both(pattern, &mut Get::new(a, size, flows[0])?, &mut Get::new(b, size, flows[1])?, pass)
            }
        }
        Layer::AmCosts | Layer::AmBulk => Err(Broken::Driver("the study is one of two processes".to_owned())),
        Layer::MpiWith(_) => Err(Broken::Driver("limits are measured between two processes".to_owned())),
        Layer::Stamped | Layer::StampedAm => {
            Err(Broken::Driver("stamps are of real time, and the fabric has none".to_owned()))
        }
        Layer::SmoltcpTcp => Err(Broken::Driver("smoltcp does not run on the fabric".to_owned())),
    }
}

fn driver(error: impl std::fmt::Display) -> Broken {
    Broken::Driver(error.to_string())
}

fn address(text: &str) -> Result<SocketAddr, Broken> {
    text.parse().map_err(|_| Broken::Driver(format!("`{text}` is no socket address")))
}

/// Virtual time that passes when neither end has anything to do, so that timers fire.
const FABRIC_STEP: Duration = Duration::from_micros(1);
