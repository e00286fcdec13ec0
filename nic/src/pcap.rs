//! A driver that wraps a driver and writes down what passes, as pcapng for Wireshark and tcpdump.
//!
//! Format: draft-ietf-opsawg-pcapng. One section, one interface; each frame is an Enhanced Packet Block with its
//! direction, and with both addresses as a comment. Frames between Ethernet addresses get the header that they have on
//! the wire; of others the payload is written, as LINKTYPE_USER0.

use std::collections::HashMap;
use std::io::{self, Write};
use std::ops::{Deref, DerefMut};
use std::time::SystemTime;

use crate::encap::ether;
use crate::time::Instant;
use crate::{Link, LinkAddr, LinkError, Nic, TxSlot, forward};

/// Writes every frame that passes a driver, both ways, to `out`. Sent frames are written when they are committed.
///
/// An error in writing ends the capture, not the traffic; [`Capture::finish`] tells of it.
pub struct Capture<N: Nic, W: Write> {
    nic: N,
    /// Where each link goes to.
    peers: HashMap<Link, LinkAddr>,
    log: Log<W>,
}

/// How the driver's time zero is written down.
#[derive(Clone, Copy, Debug)]
pub enum Origin {
    /// As now minus the driver's present time: for drivers on the machine's clock.
    Wall,
    /// As 1970: for a simulated fabric, whose runs are to be compared.
    Zero,
}

struct Log<W> {
    /// The error that ended it.
    out: Result<W, io::Error>,
    own: LinkAddr,
    /// Nanoseconds since 1970 of the driver's time zero.
    origin_ns: u64,
    /// One block, put together.
    block: Vec<u8>,
}

struct Slot<'a, S, W: Write> {
    slot: S,
    log: &'a mut Log<W>,
    to: LinkAddr,
    now: Instant,
}

#[derive(Clone, Copy)]
enum Direction {
    In = 1,
    Out = 2,
}

impl<N: Nic, W: Write> Capture<N, W> {
    /// Wraps `nic`. `out` gets many small writes: buffer it. Links that `nic` has already lend no slots here: ask for them
    /// again, which gives the same ones.
    pub fn new(nic: N, out: W, origin: Origin) -> Self {
        let origin_ns = match origin {
            Origin::Zero => 0,
            Origin::Wall => {
                let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                (since_1970.as_nanos() as u64).saturating_sub(nic.now().as_nanos())
            }
        };
        let mut log = Log { out: Ok(out), own: nic.caps().addr, origin_ns, block: Vec::new() };
        log.begin();
        Self { nic, peers: HashMap::new(), log }
    }

    /// Ends the capture. The error is the first that writing met.
    pub fn finish(self) -> (N, io::Result<W>) {
        let out = self.log.out.and_then(|mut out| out.flush().map(|()| out));
        (self.nic, out)
    }

    /// The driver within.
    pub fn inner(&self) -> &N {
        &self.nic
    }
}

impl<N: Nic, W: Write> Nic for Capture<N, W> {
    const RELIABLE: bool = N::RELIABLE;
    const NAME: &'static str = N::NAME;

    forward!(nic: caps, confirm, has_unread, flush, wait, waker, is_gone, counters, diagnosis, now);

    fn link(&mut self, to: LinkAddr) -> Result<Link, LinkError> {
        let link = self.nic.link(to)?;
        self.peers.insert(link, to);
        Ok(link)
    }

    fn link_back(&mut self, to: LinkAddr) -> Result<Link, LinkError> {
        let link = self.nic.link_back(to)?;
        self.peers.insert(link, to);
        Ok(link)
    }

    fn unlink(&mut self, link: Link) {
        self.peers.remove(&link);
        self.nic.unlink(link);
    }

    fn rx_burst(&mut self, budget: usize, mut each: impl FnMut(&[u8], LinkAddr)) -> usize {
        let (log, now) = (&mut self.log, self.nic.now());
        self.nic.rx_burst(budget, |frame, from| {
            log.frame(now, Direction::In, from, frame);
            each(frame, from);
        })
    }

    fn tx_slot(&mut self, link: Link, len: usize) -> Option<impl TxSlot + '_> {
        let (now, to) = (self.nic.now(), *self.peers.get(&link)?);
        let log = &mut self.log;
        self.nic.tx_slot(link, len).map(|slot| Slot { slot, log, to, now })
    }
}

impl<S: TxSlot, W: Write> TxSlot for Slot<'_, S, W> {
    fn commit(self) {
        self.log.frame(self.now, Direction::Out, self.to, &self.slot);
        self.slot.commit();
    }
}

impl<S: TxSlot, W: Write> Deref for Slot<'_, S, W> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.slot
    }
}

impl<S: TxSlot, W: Write> DerefMut for Slot<'_, S, W> {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.slot
    }
}

impl<W: Write> Log<W> {
    /// The section and its one interface.
    fn begin(&mut self) {
        self.block(SECTION_HEADER, |body| {
            body.extend(BYTE_ORDER.to_le_bytes());
            // Version 1.0; length of the section unknown.
            body.extend([1, 0, 0, 0]);
            body.extend([0xff; 8]);
        });
        let link_type = if let LinkAddr::Ether { .. } = self.own { LINKTYPE_ETHERNET } else { LINKTYPE_USER0 };
        let name = self.own.to_string();
        self.block(INTERFACE_DESCRIPTION, |body| {
            body.extend(link_type.to_le_bytes());
            // Reserved; frames are not cut.
            body.extend([0; 6]);
            option(body, IF_NAME, name.as_bytes());
            option(body, IF_TSRESOL, &[NANOSECONDS]);
            option(body, OPT_END, &[]);
        });
    }

    fn frame(&mut self, now: Instant, direction: Direction, peer: LinkAddr, payload: &[u8]) {
        if self.out.is_err() {
            return;
        }
        let own = self.own;
        let (from, to) = if let Direction::In = direction { (peer, own) } else { (own, peer) };
        let header = match (from, to) {
            (LinkAddr::Ether { mac: src_mac, endpoint: src }, LinkAddr::Ether { mac: dst_mac, endpoint: dst }) => {
                Some(ether::Header { dst_mac, src_mac, dst, src, len: payload.len() as u16 }.emit())
            }
            _ => None,
        };
        let header = header.as_ref().map_or(&[][..], |header| header);
        let time = self.origin_ns.wrapping_add(now.as_nanos());
        self.block(ENHANCED_PACKET, |body| {
            let len = (header.len() + payload.len()) as u32;
            // The interface's number, then the time in two halves, then the length as captured and as it was.
            for word in [0, (time >> 32) as u32, time as u32, len, len] {
                body.extend(word.to_le_bytes());
            }
            body.extend_from_slice(header);
            body.extend_from_slice(payload);
            pad(body);
            option(body, EPB_FLAGS, &(direction as u32).to_le_bytes());
            option(body, OPT_COMMENT, format!("{from} > {to}").as_bytes());
            option(body, OPT_END, &[]);
        });
    }

    /// Writes a block: type, length, body, length.
    fn block(&mut self, kind: u32, write: impl FnOnce(&mut Vec<u8>)) {
        let Ok(out) = &mut self.out else { return };
        self.block.clear();
        self.block.extend(kind.to_le_bytes());
        self.block.extend([0; 4]);
        write(&mut self.block);
        let len = (self.block.len() as u32 + 4).to_le_bytes();
        self.block[4..8].copy_from_slice(&len);
        self.block.extend(len);
        if let Err(error) = out.write_all(&self.block) {
            self.out = Err(error);
        }
    }
}

/// Appends an option: code, length, value, padding.
fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    body.extend(code.to_le_bytes());
    body.extend((value.len() as u16).to_le_bytes());
    body.extend_from_slice(value);
    pad(body);
}

/// Blocks start at a multiple of four, so what is one within the block is one in the file.
fn pad(body: &mut Vec<u8>) {
    body.resize(body.len().next_multiple_of(4), 0);
}

// draft-ietf-opsawg-pcapng, sections 4.1 to 4.3 and 3.5.
const SECTION_HEADER: u32 = 0x0A0D_0D0A;
const BYTE_ORDER: u32 = 0x1A2B_3C4D;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const OPT_END: u16 = 0;
const OPT_COMMENT: u16 = 1;
const IF_NAME: u16 = 2;
const IF_TSRESOL: u16 = 9;
const EPB_FLAGS: u16 = 2;
const NANOSECONDS: u8 = 9;

// tcpdump.org/linktypes.html
const LINKTYPE_ETHERNET: u16 = 1;
const LINKTYPE_USER0: u16 = 147;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::{Config, Fabric};
    use crate::time::Duration;

    /// The blocks of a file: type, and body without both lengths.
    fn blocks(mut file: &[u8]) -> Vec<(u32, Vec<u8>)> {
        let word = |bytes: &[u8]| u32::from_le_bytes(bytes[..4].try_into().unwrap());
        let mut blocks = Vec::new();
        while !file.is_empty() {
            let len = word(&file[4..]) as usize;
            assert_eq!((len % 4, word(&file[len - 4..])), (0, len as u32));
            blocks.push((word(file), file[8..len - 4].to_vec()));
            file = &file[len..];
        }
        blocks
    }

    #[test]
    fn frames_of_both_ways_are_written_with_their_time_and_direction() {
        let fabric = Fabric::new(0);
        let mut a = Capture::new(fabric.nic(Config::default()), Vec::new(), Origin::Zero);
        let mut b = fabric.nic(Config::default());
        let (to_b, to_a) = (a.link(b.caps().addr).unwrap(), b.link(a.caps().addr).unwrap());
        for (time, dropped) in [(5, false), (6, true)] {
            fabric.advance_to(Instant::from_nanos(time));
            let mut slot = a.tx_slot(to_b, 5).unwrap();
            slot.copy_from_slice(b"hello");
            if !dropped {
                slot.commit();
            }
        }
        a.flush();
        fabric.advance_to(Instant::from_nanos(1 << 33) + Duration::from_nanos(7));
        let mut slot = b.tx_slot(to_a, 3).unwrap();
        slot.copy_from_slice(b"hey");
        slot.commit();
        b.flush();
        let mut shown = Vec::new();
        assert_eq!(a.rx_burst(8, |frame, _| shown.extend_from_slice(frame)), 1);
        assert_eq!(shown, b"hey");

        let (_, file) = a.finish();
        let blocks = blocks(&file.unwrap());
        assert_eq!(blocks.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), [SECTION_HEADER, 1, 6, 6]);
        assert_eq!(blocks[0].1, *b"\x4d\x3c\x2b\x1a\x01\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff");
        // Linktype 147 without a limit; its name, that times are nanoseconds, and the options' end.
        assert_eq!(blocks[1].1, *b"\x93\0\0\0\0\0\0\0\x02\0\x05\0mem/0\0\0\0\x09\0\x01\0\x09\0\0\0\0\0\0\0");
        let words = |block: &[u8]| -> Vec<u32> {
            block[..20].chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
        };
        let (sent, received) = (&blocks[2].1, &blocks[3].1);
        assert_eq!((words(sent), &sent[20..28]), (vec![0, 0, 5, 5, 5], &b"hello\0\0\0"[..]));
        assert_eq!((words(received), &received[20..24]), (vec![0, 2, 7, 3, 3], &b"hey\0"[..]));
        assert_eq!((sent[32], received[28]), (Direction::Out as u8, Direction::In as u8));
        assert!(sent.windows(13).any(|text| text == b"mem/0 > mem/1"));
        assert!(received.windows(13).any(|text| text == b"mem/1 > mem/0"));
    }

    #[test]
    fn frames_between_ethernet_addresses_have_the_header_of_the_wire() {
        let end = |n| LinkAddr::Ether { mac: [2, 0, 0, 0, 0, n], endpoint: u16::from(n) };
        let mut log = Log { out: Ok(Vec::new()), own: end(1), origin_ns: 0, block: Vec::new() };
        log.begin();
        log.frame(Instant::ZERO, Direction::In, end(2), b"payload");
        let blocks = blocks(log.out.as_ref().unwrap());
        assert_eq!(blocks[1].1[..2], LINKTYPE_ETHERNET.to_le_bytes());
        let (header, payload) = ether::Header::parse(&blocks[2].1[20..]).unwrap();
        assert_eq!((header.src, header.dst, payload), (2, 1, &b"payload"[..]));
    }

    #[test]
    fn a_full_disk_ends_the_capture_and_not_the_traffic() {
        let fabric = Fabric::new(0);
        let mut room = [0; 100];
        let mut a = Capture::new(fabric.nic(Config::default()), &mut room[..], Origin::Wall);
        let mut b = fabric.nic(Config::default());
        let link = a.link(b.caps().addr).unwrap();
        for _ in 0..10 {
            a.tx_slot(link, 50).unwrap().commit();
        }
        a.flush();
        assert_eq!(b.rx_burst(64, |_, _| {}), 10);
        assert_eq!(a.finish().1.unwrap_err().kind(), io::ErrorKind::WriteZero);
    }

    #[test]
    fn a_link_back_is_captured_and_a_link_that_is_forgotten_lends_nothing() {
        let fabric = Fabric::new(0);
        let mut a = Capture::new(fabric.nic(Config::default()), Vec::new(), Origin::Zero);
        let link = a.link_back(fabric.nic(Config::default()).caps().addr).unwrap();
        a.tx_slot(link, 1).unwrap().commit();
        a.unlink(link);
        assert!(a.tx_slot(link, 1).is_none());
        let (_, file) = a.finish();
        assert_eq!(blocks(&file.unwrap()).len(), 3, "the section, its interface, and the frame");
    }

    #[test]
    fn what_is_finished_is_written() {
        let out = io::BufWriter::with_capacity(1 << 20, Vec::new());
        let (_, out) = Capture::new(Fabric::new(0).nic(Config::default()), out, Origin::Zero).finish();
        assert_eq!(blocks(out.unwrap().get_ref()).len(), 2);
    }
}
