//! Frames that nobody who follows the rules sends.

use sidelane_nic::encap::{ether, gso};
use sidelane_nic::rng::Rng;

/// Makes frames for one victim out of nothing and out of live frames.
pub struct Forge {
    rng: Rng,
    target: Target,
    /// The first frames that were seen, which opened connections.
    openings: Vec<Captured>,
    /// The latest others.
    latest: Vec<Captured>,
    seen: u64,
}

/// Who is attacked, and in whose name.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The victim's interface.
    pub dst_mac: [u8; 6],
    /// The victim's endpoint.
    pub dst: u16,
    /// The victim's peer.
    pub src_mac: [u8; 6],
    /// Its endpoint.
    pub src: u16,
}

/// What was done to make a frame.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// Random bytes behind the victim's address.
    Noise,
    /// A sound encapsulation around random bytes, every other time with a first byte of our version.
    Payload,
    /// A live frame once more.
    Replayed,
    /// A live frame in the name of another endpoint.
    Renamed,
    /// A live frame with up to eight bits of its payload turned.
    Flipped,
    /// A live frame's beginning, with a length that is right.
    Cut,
    /// A live frame with up to eight bits turned anywhere, encapsulation included.
    Damaged,
}

/// A live frame's payload, and who sent it.
struct Captured {
    src: u16,
    payload: Vec<u8>,
}

impl Kind {
    /// The victim's filter lets it pass for certain.
    pub fn is_addressed(self) -> bool {
        !matches!(self, Self::Noise | Self::Damaged)
    }
}

impl Forge {
    /// The same seed, and the same captured frames, give the same forgeries.
    pub fn new(seed: u64, target: Target) -> Self {
        Self { rng: Rng::new(seed), target, openings: Vec::new(), latest: Vec::new(), seen: 0 }
    }

    /// Live frames to the victim that it has seen.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// Takes note of a live frame, from its Ethernet header on, if it is for the victim.
    pub fn capture(&mut self, frame: &[u8]) {
        let Some((src, payload)) = self.parse(frame) else { return };
        let captured = Captured { src, payload: payload.to_vec() };
        self.seen += 1;
        if self.openings.len() < OPENINGS_MAX {
            self.openings.push(captured);
        } else if self.latest.len() < LATEST_MAX {
            self.latest.push(captured);
        } else {
            self.latest[(self.seen % LATEST_MAX as u64) as usize] = captured;
        }
    }

    /// Writes a frame with its virtio-net header into `out`.
    pub fn forge(&mut self, out: &mut Vec<u8>) -> Kind {
        out.clear();
        let kind = match self.rng.below(8) {
            0 => Kind::Noise,
            1 | 2 => Kind::Payload,
            _ if self.seen == 0 => Kind::Payload,
            3 => Kind::Replayed,
            4 => Kind::Renamed,
            5 => Kind::Flipped,
            6 => Kind::Cut,
            _ => Kind::Damaged,
        };
        match kind {
            Kind::Noise => self.noise(out),
            Kind::Payload => self.random_payload(out),
            _ => self.mutate(kind, out),
        }
        kind
    }

    fn noise(&mut self, out: &mut Vec<u8>) {
        out.resize(gso::VNET_LEN, 0);
        let len = ether::HEADER_LEN + self.rng.below(FRAME_MAX as u64) as usize;
        let start = out.len();
        out.resize(start + len, 0);
        let frame = &mut out[start..];
        self.rng.fill(frame);
        frame[..6].copy_from_slice(&self.target.dst_mac);
        if self.rng.chance(0.8) {
            frame[12..14].copy_from_slice(&ether::ETHERTYPE.to_be_bytes());
        }
        if self.rng.chance(0.8) {
            frame[14..16].copy_from_slice(&self.target.dst.to_be_bytes());
        }
    }

    fn random_payload(&mut self, out: &mut Vec<u8>) {
        let len = self.rng.below(FRAME_MAX as u64) as usize;
        let mut payload = vec![0; len];
        self.rng.fill(&mut payload);
        if let Some(first) = payload.first_mut()
            && self.rng.chance(0.5)
        {
            *first = sidelane_proto::VERSION << 4 | *first & 7;
        }
        self.wrap(self.target.src, &payload, out);
    }

    fn mutate(&mut self, kind: Kind, out: &mut Vec<u8>) {
        let from = if self.latest.is_empty() || self.rng.chance(0.1) { &self.openings } else { &self.latest };
        let captured = &from[self.rng.below(from.len() as u64) as usize];
        let mut payload = captured.payload.clone();
        let mut src = captured.src;
        match kind {
            Kind::Renamed => src = self.rng.next_u64() as u16,
            Kind::Flipped => flip(&mut self.rng, &mut payload),
            Kind::Cut => payload.truncate(self.rng.below(payload.len() as u64) as usize),
            _ => {}
        }
        self.wrap(src, &payload, out);
        if kind == Kind::Damaged {
            flip(&mut self.rng, &mut out[gso::VNET_LEN..]);
        }
    }

    /// Puts the encapsulation before a payload that its length calls for.
    fn wrap(&self, src: u16, payload: &[u8], out: &mut Vec<u8>) {
        let Target { dst_mac, dst, src_mac, .. } = self.target;
        let len = payload.len() as u16;
        if payload.len() <= FRAME_MAX {
            out.resize(gso::VNET_LEN, 0);
            out.extend_from_slice(&ether::Header { dst_mac, src_mac, dst, src, len }.emit());
        } else {
            out.extend_from_slice(&gso::Header { dst_mac, src_mac, dst, src, len }.emit(SEGMENT));
        }
        out.extend_from_slice(payload);
    }

    /// The sender and payload of a live frame to the victim.
    fn parse<'a>(&self, frame: &'a [u8]) -> Option<(u16, &'a [u8])> {
        let is_ours = |mac, dst| mac == self.target.dst_mac && dst == self.target.dst;
        if let Ok((header, payload)) = ether::Header::parse(frame) {
            return is_ours(header.dst_mac, header.dst).then_some((header.src, payload));
        }
        // A sniffer's socket shows super-packets without their virtio-net header.
        let vnet = super_packet_mark();
        let (header, payload) = gso::Header::parse(&vnet, frame).ok()?;
        is_ours(header.dst_mac, header.dst).then_some((header.src, payload))
    }
}

fn super_packet_mark() -> [u8; gso::VNET_LEN] {
    let header = gso::Header { dst_mac: [0; 6], src_mac: [0; 6], dst: 0, src: 0, len: 0 }.emit(SEGMENT);
    let mut mark = [0; gso::VNET_LEN];
    mark.copy_from_slice(&header[..gso::VNET_LEN]);
    mark
}

fn flip(rng: &mut Rng, bytes: &mut [u8]) {
    if bytes.is_empty() {
        return;
    }
    for _ in 0..=rng.below(8) {
        let bit = rng.below(bytes.len() as u64 * 8);
        bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
    }
}

/// Payload that fits Ethernet's MTU of 1500 behind our encapsulation.
const FRAME_MAX: usize = 1500 - ether::MTU_COST;
/// MTU 1500 less the headers of IP and TCP.
const SEGMENT: u16 = 1460;
/// Hellos and what follows them.
const OPENINGS_MAX: usize = 16;
/// Frames of the last moments: old enough that some lie behind the receiver's window, new enough that some don't.
const LATEST_MAX: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: Target = Target { dst_mac: [2, 0, 0, 0, 0, 2], dst: 1, src_mac: [2, 0, 0, 0, 0, 1], src: 7 };

    fn live(payload: &[u8]) -> Vec<u8> {
        let Target { dst_mac, dst, src_mac, src } = TARGET;
        let header = ether::Header { dst_mac, src_mac, dst, src, len: payload.len() as u16 };
        [&header.emit()[..], payload].concat()
    }

    #[test]
    fn without_live_frames_only_random_ones_are_made() {
        let (mut forge, mut out) = (Forge::new(1, TARGET), Vec::new());
        for _ in 0..1000 {
            assert!(matches!(forge.forge(&mut out), Kind::Noise | Kind::Payload));
        }
    }

    #[test]
    fn every_kind_is_made_from_live_frames_and_addressed_ones_parse() {
        let (mut forge, mut out) = (Forge::new(1, TARGET), Vec::new());
        forge.capture(b"not for us");
        assert_eq!(forge.seen(), 0);
        forge.capture(&live(b"some payload"));
        let mut kinds = std::collections::BTreeSet::new();
        for _ in 0..1000 {
            let kind = forge.forge(&mut out);
            kinds.insert(kind);
            if kind.is_addressed() {
                let (header, _) = ether::Header::parse(&out[gso::VNET_LEN..]).unwrap();
                assert_eq!((header.dst_mac, header.dst), (TARGET.dst_mac, TARGET.dst));
            }
            match kind {
                Kind::Replayed => assert_eq!(out[gso::VNET_LEN..], live(b"some payload")),
                // An even number of flips may meet at one bit; eight never hide the whole.
                Kind::Cut => assert!(out.len() < gso::VNET_LEN + live(b"some payload").len()),
                _ => {}
            }
        }
        assert_eq!(kinds.len(), 7);
    }

    #[test]
    fn large_payloads_travel_as_super_packets() {
        let mut forge = Forge::new(1, TARGET);
        let mut out = Vec::new();
        forge.wrap(7, &[5; 9000], &mut out);
        forge.capture(&out[gso::VNET_LEN..]);
        assert_eq!((forge.seen(), forge.openings[0].payload.len()), (1, 9000));
    }
}
