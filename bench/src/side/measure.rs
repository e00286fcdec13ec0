//! One measurement at one side: open, learn where the other end is, connect, play.

use std::net::SocketAddr;

use sidelane_nic::fault::{Fault, Faults};
use sidelane_nic::mem::{Config, Fabric, MemNic};
use sidelane_nic::spec::{NicUser, Spec};
use sidelane_nic::time::Duration;
use sidelane_nic::{LinkAddr, Nic};

use super::{Layer, Measurement, Other, Path, Sealing};
use crate::breakdown;
use crate::clock::now_ns;
use crate::pattern::{Outcome, Role, play, play_both};
use crate::study::chang;
use crate::transport::{Am, Broken, Flow, Get, Mpi, Proto, Put, Raw, Smoltcp, Tcp, TcpMode, Transport, Udp};

/// Runs `measurement`, and tells what was seen.
pub fn measure(measurement: &Measurement, other: &Other) -> Result<(), Broken> {
    let outcome = match &measurement.path {
        Path::Tcp { ip, blocking, congestion, no_delay } => {
            let mode = TcpMode { congestion: congestion.clone(), no_delay: *no_delay };
            if *blocking {
                over_tcp::<true>(measurement, (*ip, 0).into(), &mode, other)?
            } else {
                over_tcp::<false>(measurement, (*ip, 0).into(), &mode, other)?
            }
        }
        Path::Udp { ip } => {
            let socket = Udp::bind(*ip)?;
            let at = socket.local_addr().map_err(|error| Broken::System("getsockname", error))?;
            let peer = address(&other.meet(at.to_string())?)?;
            let Measurement { role, pattern, .. } = measurement;
            play(pattern, *role, &mut Udp::connect(socket, peer, pattern.size, pattern.flow(*role))?)?
        }
        Path::Nic { layer, nic, real_frames } => {
            let mut spec: Spec = nic.parse().map_err(Broken::driver)?;
            if let Spec::Uring { real_frames: of_driver, .. } = &mut spec {
                *of_driver |= *real_frames;
            }
            return spec.open(OverNic { measurement, layer: *layer, other }).map_err(Broken::driver)?;
        }
        Path::Fabric { layer } => {
            other.meet("fabric".to_owned())?;
            over_fabric(measurement, *layer)?
        }
    };
    other.part(outcome, &mut || ())
}

fn over_tcp<const BLOCKING: bool>(
    measurement: &Measurement,
    at: SocketAddr,
    mode: &TcpMode,
    other: &Other,
) -> Result<Outcome, Broken> {
    let Measurement { role, pattern, .. } = measurement;
    let mut transport = match role {
        Role::Responder => {
            let listener = Tcp::<BLOCKING>::listen(at.ip())?;
            let at = listener.local_addr().map_err(|error| Broken::System("getsockname", error))?;
            // It comes by itself. What is no address calls the measurement off.
            address(&other.meet(at.to_string())?)?;
            Tcp::<BLOCKING>::accept(&listener, pattern.size, mode, now_ns() + pattern.limit_ns)?
        }
        Role::Initiator => {
            let peer = address(&other.meet(at.to_string())?)?;
            Tcp::connect(peer, pattern.size, mode, now_ns() + pattern.limit_ns)?
        }
    };
    play(pattern, *role, &mut transport)
}

struct OverNic<'a> {
    measurement: &'a Measurement,
    layer: Layer,
    other: &'a Other<'a>,
}

impl NicUser for OverNic<'_> {
    type Out = Result<(), Broken>;

    fn run<N: Nic + 'static>(self, nic: N) -> Self::Out {
        let Measurement { role, pattern, .. } = self.measurement;
        let (role, flow) = (*role, pattern.flow(*role));
        let size = pattern.size;
        if let Layer::Mpi | Layer::MpiWindows | Layer::MpiWith(_) = self.layer {
            let limits = if let Layer::MpiWith(limits) = self.layer { Some(limits) } else { None };
            let (ports, process) = Mpi::begin(nic)?;
            let peer = self.other.meet(process)?;
            let mut mpi = Mpi::new(ports, role, &peer, limits, (size, flow))?;
            if self.layer == Layer::MpiWindows {
                mpi = mpi.in_windows(flow);
            }
            return self.play(&mut mpi);
        }
        let peer = self.other.meet(nic.caps().addr.to_string())?;
        let peer: LinkAddr = peer.parse().map_err(Broken::driver)?;
        let deadline_ns = now_ns() + pattern.limit_ns;
        match self.layer {
            Layer::Raw => self.play(&mut Raw::new(nic, peer, size, flow)?),
            Layer::Proto(sealing) => self.play(&mut self.proto(nic, sealing, peer, deadline_ns)?),
            Layer::ProtoLosing { of_a_million } => {
                let nic = losing(nic, of_a_million, role);
                self.play(&mut self.proto(nic, Sealing::None, peer, deadline_ns)?)
            }
            Layer::Am => self.play(&mut match role {
                Role::Initiator => Am::connect(nic, peer, size, flow, deadline_ns)?,
                Role::Responder => Am::accept(nic, size, flow, deadline_ns)?,
            }),
            Layer::Put => self.play(&mut Put::new(self.proto(nic, Sealing::None, peer, deadline_ns)?, size, flow)?),
            Layer::Get => self.play(&mut Get::new(self.proto(nic, Sealing::None, peer, deadline_ns)?, size, flow)?),
            Layer::SmoltcpTcp => self.play(&mut Smoltcp::new(nic, peer, role, size, deadline_ns)?),
            Layer::Mpi | Layer::MpiWindows | Layer::MpiWith(_) => unreachable!("it meets its peer in words of its own"),
            Layer::AmCosts => self.other.part(chang::costs(nic, peer, role, pattern)?, &mut || ()),
            Layer::AmBulk => self.other.part(chang::bulk::play(nic, peer, role, pattern)?, &mut || ()),
            Layer::Stamped => self.other.part(breakdown::play(nic, peer, role, pattern)?, &mut || ()),
            Layer::StampedAm => self.other.part(breakdown::play_am(nic, peer, role, pattern)?, &mut || ()),
        }
    }

    fn run_mem(self, _nic: MemNic) -> Self::Out {
        Err(Broken::Driver("the simulated driver reaches no other process".to_owned()))
    }
}

impl OverNic<'_> {
    fn proto<N: Nic>(&self, nic: N, sealing: Sealing, peer: LinkAddr, deadline_ns: u64) -> Result<Proto<N>, Broken> {
        let Measurement { role, pattern, .. } = self.measurement;
        match role {
            Role::Initiator => Proto::connect(nic, sealing, peer, pattern.size, deadline_ns),
            Role::Responder => Proto::accept(nic, sealing, pattern.size, deadline_ns),
        }
    }

    /// Plays, and stays open until the other side has played too: what it was sent and has not received yet may be with us,
    /// behind a ring that was full, or would go when we close (what is `lossy` over memif and vhost).
    fn play<T: Transport>(&self, transport: &mut T) -> Result<(), Broken> {
        let Measurement { role, pattern, .. } = self.measurement;
        let outcome = play(pattern, *role, transport)?;
        self.other.part(outcome, &mut || {
            // Whether the other end has closed by now is all the same.
            let _ = transport.make_room().and_then(|()| transport.flush());
        })
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
        Layer::ProtoLosing { of_a_million } => {
            let deadline_ns = now_ns() + pattern.limit_ns;
            let ends = (losing(a, of_a_million, Role::Initiator), losing(b, of_a_million, Role::Responder));
            let (mut a, mut b) = Proto::pair(ends, Sealing::None, at_b, pattern.size, deadline_ns, pass)?;
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

/// Loses what it sends, other frames at each side.
fn losing<N: Nic>(nic: N, of_a_million: u32, role: Role) -> Fault<N> {
    let loss = f64::from(of_a_million) / 1e6;
    Fault::new(nic, Faults { loss, ..Faults::NONE }, if role == Role::Initiator { 1 } else { 2 })
}

fn address(text: &str) -> Result<SocketAddr, Broken> {
    text.parse().map_err(|_| Broken::Driver(format!("`{text}` is no socket address")))
}

/// Virtual time that passes when neither end has anything to do, so that timers fire.
const FABRIC_STEP: Duration = Duration::from_micros(1);
