//! The attacker's two hands: one watches what the victim receives, the other throws forgeries at it.

use std::io::{self, Read, Write};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::time::{Duration, Instant};

use clap::Args;
use sidelane_nic::LinkAddr;

use super::forge::{Forge, Kind, Target};
use super::line::{Flooded, Line};
use super::packet_socket::PacketSocket;

/// What the attacker does.
#[derive(Debug, Clone, Args)]
pub struct FloodArgs {
    /// Interface to send from
    #[arg(long)]
    pub interface: String,
    /// The victim, MAC/ENDPOINT
    #[arg(long)]
    pub to: LinkAddr,
    /// In whose name, MAC/ENDPOINT
    #[arg(long)]
    pub from: LinkAddr,
    /// Frames to make
    #[arg(long)]
    pub count: u64,
    /// Frames a second at most; as fast as can be otherwise
    #[arg(long)]
    pub rate: Option<u64>,
    /// What forgeries are drawn from
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// What the watcher does.
#[derive(Debug, Clone, Args)]
pub struct SniffArgs {
    /// Interface to watch
    #[arg(long)]
    pub interface: String,
}

/// Throws forgeries. Live frames to make them from come in on standard input, as [`sniff`] writes them; it waits for the
/// victim's first.
pub fn flood(args: &FloodArgs, out: &mut impl Write) -> Result<Flooded, String> {
    let target = target(args)?;
    let socket = PacketSocket::open(&args.interface).and_then(PacketSocket::with_vnet_header);
    let socket = socket.map_err(|error| format!("packet socket on {}: {error}", args.interface))?;
    let mut forge = Forge::new(args.seed, target);
    let live = live_frames();
    let mut done = Flooded::default();
    let mut frame = Vec::new();
    let mut kinds = [0u64; Kind::Damaged as usize + 1];
    // The first one is empty: somebody watches.
    let _ = live.recv();
    Line::Ready { at: args.from.to_string() }.write(out).map_err(|error| error.to_string())?;
    while forge.seen() == 0 {
        forge.capture(&live.recv().map_err(|_| "the watcher is gone")?);
    }
    let started = Instant::now();
    while done.sent + done.refused < args.count {
        live.try_iter().take(BURST as usize).for_each(|frame| forge.capture(&frame));
        for _ in 0..BURST.min(args.count - done.sent - done.refused) {
            let kind = forge.forge(&mut frame);
            match socket.send(&frame) {
                Ok(()) => {}
                // The kernel itself refuses what is no super-packet, and has no room at times.
                Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOBUFS | libc::ENOMEM)) => {
                    done.refused += 1;
                    continue;
                }
                Err(error) => return Err(format!("sending a forged frame: {error}")),
            }
            done.sent += 1;
            kinds[kind as usize] += 1;
            if kind.is_addressed() {
                done.addressed += 1;
            } else {
                done.perhaps += 1;
            }
        }
        if let Some(rate) = args.rate {
            let due = started + Duration::from_nanos((done.sent + done.refused) * 1_000_000_000 / rate.max(1));
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
        }
    }
    done.captured = forge.seen();
    done.kinds = KINDS.into_iter().map(|kind| (format!("{kind:?}"), kinds[kind as usize])).collect();
    Ok(done)
}

/// Writes every frame that the interface receives, length first, until nobody reads any more.
pub fn sniff(args: &SniffArgs, out: &mut impl Write) -> io::Result<()> {
    let socket = PacketSocket::open(&args.interface)?;
    let mut record = vec![0; LEN_LEN + SNAP_LEN];
    // Says that it watches, before whoever started it goes on.
    out.write_all(&0u32.to_le_bytes())?;
    out.flush()?;
    loop {
        let len = socket.receive(&mut record[LEN_LEN..])?;
        record[..LEN_LEN].copy_from_slice(&(len as u32).to_le_bytes());
        out.write_all(&record[..LEN_LEN + len])?;
        out.flush()?;
    }
}

fn target(args: &FloodArgs) -> Result<Target, String> {
    match (args.to, args.from) {
        (LinkAddr::Ether { mac: dst_mac, endpoint: dst }, LinkAddr::Ether { mac: src_mac, endpoint: src }) => {
            Ok(Target { dst_mac, dst, src_mac, src })
        }
        _ => Err("only endpoints behind Ethernet interfaces can be flooded".to_owned()),
    }
}

/// A thread reads them, so that a slow watcher does not hold the flood.
fn live_frames() -> Receiver<Vec<u8>> {
    let (found, frames) = mpsc::sync_channel(CAPTURES_WAITING);
    std::thread::spawn(move || read_frames(&mut io::stdin().lock(), &found));
    frames
}

fn read_frames(input: &mut impl Read, found: &SyncSender<Vec<u8>>) {
    let mut len = [0; LEN_LEN];
    while input.read_exact(&mut len).is_ok() {
        let mut frame = vec![0; u32::from_le_bytes(len) as usize];
        // What there is no room for is not needed: the flood has enough to work with.
        let over = input.read_exact(&mut frame).is_err()
            || matches!(found.try_send(frame), Err(mpsc::TrySendError::Disconnected(_)));
        if over {
            return;
        }
    }
}

const KINDS: [Kind; 7] =
    [Kind::Noise, Kind::Payload, Kind::Replayed, Kind::Renamed, Kind::Flipped, Kind::Cut, Kind::Damaged];
/// Frames sent before captures are looked at and the rate is held.
const BURST: u64 = 32;
const LEN_LEN: usize = 4;
/// Longer than every frame of a veth.
const SNAP_LEN: usize = 1 << 17;
/// Live frames between the reader and the flood; the oldest are kept, since the first ones open connections.
const CAPTURES_WAITING: usize = 4096;
