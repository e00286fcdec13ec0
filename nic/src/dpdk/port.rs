//! A port: a device of DPDK's, from its making to its end.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sidelane_dpdk_sys::{SL_LEFT_MAX, sl_port_config, sl_state, sl_stats};

use super::OpenError;
use super::dealer::{Dealer, INBOX_FRAMES};
use super::device::{Device, Wire, make_way};
use super::eal::{Eal, last_words};
use super::frames::BURST;
use super::knock::{Unheard, knock};
use super::pci::Claim;
use super::pipes::Quiet;
use super::refused::{Lacks, Refused};
use super::sharing::{ENDPOINTS_MAX, Sharing};
use super::socket_file::SocketFile;
use super::steered::Steered;
use super::sys::{Pool, Shim, take_log};
use crate::rights;

/// A started port. Its frames are given back before it ends: whoever holds some holds it too.
pub struct Port {
    pub shim: Shim,
    pub number: u16,
    pub device: Device,
    pub mac: [u8; 6],
    pub driver: String,
    /// Frames that it holds before it drops.
    pub rx_frames: usize,
    /// Its driver wakes sleepers.
    pub wakes: bool,
    /// There from its opening to its end.
    pool: Option<Pool>,
    /// Where it is shared: which endpoint gets which frame.
    pub sharing: Option<Sharing>,
    /// How many of its peers have gone; only a memif's and a pair's are counted.
    pub lives: &'static AtomicU32,
    /// As many as had gone before it was there.
    pub lives_before: u32,
    /// Held while a card is asked something that is not a frame.
    asking: Mutex<()>,
    /// A card's; given back when it is put away.
    claim: Option<Claim>,
    /// A server's.
    file: Option<SocketFile>,
}

impl Port {
    /// Makes the device and starts its port.
    pub fn open(eal: Eal, mut device: Device, shared: bool, claim: Option<Claim>) -> Result<Self, OpenError> {
        if let Some(socket) = &device.socket {
            make_way(socket)?;
        }
        let give_up = Instant::now() + PEER_PATIENCE;
        loop {
            let refused = match Self::try_open(eal, &device, shared) {
                Ok(mut port) if device.wire != Wire::PairClient => {
                    port.claim = claim;
                    return Ok(port);
                }
                Ok(mut port) => {
                    if port.wait_for_server(give_up) {
                        if let Some(socket) = &device.socket_once {
                            // Gone already, if the server has no patience either.
                            let _ = std::fs::remove_file(socket);
                        }
                        return Ok(port);
                    }
                    Refused::at("meeting its server")(io::ErrorKind::NotConnected.into())
                }
                Err(refused) if refused.is_for_lending() && device.is_pair => {
                    device = device.with_copies();
                    continue;
                }
                Err(refused) => refused,
            };
            // The client's end of a pair can't be made before the server's, which may come any moment.
            if device.wire != Wire::PairClient || Instant::now() >= give_up {
                return Err(refused.told(&device, eal));
            }
            std::thread::sleep(PEER_TURN);
        }
    }

    /// Waits for the link of a card, which is trained anew when its port starts: what is sent before is lost. Comes back
    /// without it too, since a cable that is plugged in later is as good.
    pub fn wait_for_link(&self) {
        if self.device.bus != "pci" {
            return;
        }
        let give_up = Instant::now() + LINK_PATIENCE;
        while !self.link_is_up() && Instant::now() < give_up {
            std::thread::sleep(LINK_TURN);
        }
    }

    /// Waits until the link is up. A client that was turned away, as its server was not ready, has to come again, and DPDK's
    /// does not by itself.
    fn wait_for_server(&mut self, give_up: Instant) -> bool {
        let mut redial = Instant::now() + REDIAL;
        loop {
            // Before the link: one that ends between both looks is counted.
            self.lives_before = self.peers_gone();
            if self.link_is_up() {
                return true;
            }
            // Another server is another device's.
            if Instant::now() >= give_up || self.device.is_vhost_client() {
                return false;
            }
            // A server that is late has the connection, and would take its end for that of a peer.
            if Instant::now() >= redial && !self.shim.is_dialling(self.number) {
                let _turn = control();
                // Refused while nobody listens: the next time then.
                let _ = self.shim.port_restart(self.number);
                redial = Instant::now() + REDIAL;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn try_open(eal: Eal, device: &Device, shared: bool) -> Result<Self, Refused> {
        let finding = Refused::at("finding its server");
        if let Some(socket) = &device.own_users {
            if !is_own_users(socket) {
                return Err(finding(io::ErrorKind::NotFound.into()));
            }
            // As long by itself, however late: one that is there answers or hangs up.
            knock(socket, Instant::now() + PEER_PATIENCE).map_err(|Unheard { error, process }| {
                let lacks = (error.kind() == io::ErrorKind::TimedOut).then_some(Lacks::Answer(process));
                Refused { lacks, ..finding(error) }
            })?;
        }
        // The log is one for the whole process.
        let _turn = control();
        take_log();
        Self::make(eal, device, shared).map_err(|refused| Refused { log: last_words(&take_log()), ..refused })
    }

    fn make(eal: Eal, device: &Device, shared: bool) -> Result<Self, Refused> {
        let shim = eal.shim;
        let number =
            shim.attach(device.bus, &device.name, &device.args, device.is_pair).map_err(Refused::at("attaching it"))?;
        let lives = shim.lives(number);
        let lives_before = lives.load(Ordering::Acquire);
        // From here on it has to be put away.
        let mut attached = Attached { shim, number, device, pool: None };
        let info = shim.port_info(number).map_err(Refused::at("asking for its properties"))?;
        if device.sets_mtu && device.mtu > info.mtu_max && info.mtu_max > 0 {
            let error = io::ErrorKind::InvalidInput.into();
            let lacks = Some(Lacks::Mtu(info.mtu_max));
            return Err(Refused { step: "setting its MTU", error, lacks, log: String::new() });
        }
        let queues_max = device.queues_max(&info.driver, info.queues_max);
        let mbufs = mbufs(device, info.descriptors_min, shared.then_some(queues_max));
        let room = device.mbuf_room();
        let pool = Pool::new(shim, &format!("sl-{number}"), mbufs, CACHE, room, info.numa_node).map_err(|error| {
            let mib = (u64::from(mbufs) * (u64::from(room) + ROOM_COST)) >> 20;
            let lacks = (error.kind() == io::ErrorKind::OutOfMemory).then_some(Lacks::Memory(mib, info.numa_node));
            Refused { step: "allocating packet buffers", error, lacks, log: String::new() }
        })?;
        let pool = attached.pool.insert(pool);
        let mac = if info.mac == [0; 6] { made_up(number) } else { info.mac };
        let start = Start { shim, number, device, pool, mac, queues_max };
        let (granted, sharing) =
            if shared { start.shared() } else { start.alone() }.map_err(Refused::at("starting it"))?;
        if let Some(socket) = device.socket.as_ref().filter(|_| device.is_pair) {
            // vhost's library lets everybody in who may write there.
            match std::fs::set_permissions(socket, Permissions::from_mode(0o600)) {
                // A client has come already, and removed the name (`once`).
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                set => set.map_err(Refused::at("keeping others out"))?,
            }
        }
        let pool = attached.pool.take();
        std::mem::forget(attached);
        Ok(Self {
            shim,
            number,
            device: device.clone(),
            mac,
            driver: info.driver,
            rx_frames: match device.wire {
                _ if matches!(sharing, Some(Sharing::Dealt(_))) => {
                    INBOX_FRAMES.min(usize::from(granted.rx_descriptors))
                }
                Wire::PairServer | Wire::PairClient => PAIR_FRAMES,
                Wire::Network => usize::from(granted.rx_descriptors.min(device.descriptors)),
            },
            wakes: granted.rx_interrupt != 0,
            pool,
            sharing,
            lives,
            lives_before,
            asking: Mutex::default(),
            claim: None,
            file: device.socket.as_deref().map(SocketFile::of),
        })
    }

    /// Where its frames come from.
    #[inline]
    pub fn pool(&self) -> &Pool {
        self.pool.as_ref().expect("taken only when the port ends")
    }

    /// True while frames can go out.
    pub fn link_is_up(&self) -> bool {
        // A card that is not there does not answer, and drivers wait for that, the one of e1000 for a second.
        if self.shim.is_removed(self.number) {
            return false;
        }
        let _turn = self.ask();
        self.shim.link_is_up(self.number)
    }

    /// Has a peer that is gone counted, where only the link tells of it.
    pub fn look_for_the_end(&self) {
        if self.device.link_tells_of_the_end() {
            self.link_is_up();
        }
    }

    /// Peers that have gone since DPDK was started.
    #[inline]
    pub fn peers_gone(&self) -> u32 {
        // Pairs with the Release in `lives_after_handler`: what the last one left is there.
        self.lives.load(Ordering::Acquire)
    }

    /// What the device has counted.
    pub fn stats(&self) -> Option<sl_stats> {
        let _turn = self.ask();
        self.shim.stats(self.number)
    }

    /// How it is set, and what is left of its packet buffers.
    pub fn state(&self) -> Option<sl_state> {
        let _turn = self.ask();
        self.shim.state(self.number, self.pool())
    }

    /// All that it counts by name.
    pub fn extended_stats(&self) -> Vec<(String, u64)> {
        let _turn = self.ask();
        self.shim.extended_stats(self.number)
    }

    /// A card has one register to ask its line by (82574 datasheet: MDIC), and counters that forget what was read:
    /// two endpoints' questions would get each other's answers. A pair is asked on the way of frames, and has neither.
    fn ask(&self) -> Option<MutexGuard<'_, ()>> {
        (self.device.bus == "pci").then(|| self.asking.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        // Frames in the inboxes are the pool's, which ends after this.
        self.sharing = None;
        let _turn = control();
        let (shim, number, device, pool) = (self.shim, self.number, &self.device, self.pool.take());
        let end = move || put_away(shim, number, device, pool);
        match self.file.take() {
            Some(file) => file.end_with(end),
            None => end(),
        }
        drop(self.claim.take());
    }
}

/// A socket's file is there, and our own user's.
fn is_own_users(socket: &Path) -> bool {
    std::fs::metadata(socket).is_ok_and(|there| there.uid() == rights::own_user())
}

/// A port that is about to start.
struct Start<'a> {
    shim: Shim,
    number: u16,
    device: &'a Device,
    pool: &'a Pool,
    mac: [u8; 6],
    queues_max: u16,
}

impl Start<'_> {
    /// For one endpoint.
    fn alone(&self) -> io::Result<(sl_port_config, Option<Sharing>)> {
        Ok((self.with(1, 1, self.device.wakes())?, None))
    }

    /// For several.
    fn shared(&self) -> io::Result<(sl_port_config, Option<Sharing>)> {
        let most = self.queues_max;
        if most > 1
            && self.shim.has_rules(self.number)
            && let Ok(granted) = self.with(most, most, self.device.wakes())
        {
            match Steered::new(self.shim, self.number, self.mac, most) {
                Ok(steered) => return Ok((granted, Some(Sharing::Steered(steered)))),
                Err(error) => {
                    tracing::debug!(target: "dpdk", "{} steers nothing: {error}", self.device.name);
                    self.shim.port_stop(self.number)?;
                }
            }
        }
        // Whoever receives for others can't wake them. Some devices have as many queues one way as the other.
        let granted = self.with(1, most, false).or_else(|_| self.with(1, 1, false))?;
        let dealer = Dealer::new(self.shim, self.number, self.mac, granted.tx_queues);
        Ok((granted, Some(Sharing::Dealt(Box::new(dealer)))))
    }

    fn with(&self, rx_queues: u16, tx_queues: u16, interrupt: bool) -> io::Result<sl_port_config> {
        let asked = sl_port_config {
            mtu: if self.device.sets_mtu { self.device.mtu } else { 0 },
            rx_queues,
            tx_queues,
            rx_descriptors: self.device.descriptors,
            tx_descriptors: self.device.descriptors,
            rx_interrupt: interrupt.into(),
            lends: self.device.is_zero_copy().into(),
        };
        self.shim.port_start(self.number, self.pool, asked)
    }
}

/// Some virtual devices have no address. Nobody else needs to know that we made one up.
fn made_up(number: u16) -> [u8; 6] {
    let [high, low] = number.to_be_bytes();
    [2, b's', b'l', 0, high, low]
}

/// A device that is put away again unless it becomes a port.
struct Attached<'a> {
    shim: Shim,
    number: u16,
    device: &'a Device,
    pool: Option<Pool>,
}

impl Drop for Attached<'_> {
    fn drop(&mut self) {
        put_away(self.shim, self.number, self.device, self.pool.take());
    }
}

/// Ends a device, and after it the pool that it has frames of.
fn put_away(shim: Shim, number: u16, device: &Device, pool: Option<Pool>) {
    if let Err(error) = shim.detach(number) {
        tracing::debug!(target: "dpdk", "{} did not end well: {error}", device.name);
        if error.kind() == io::ErrorKind::TimedOut {
            // Lent to a server that is stopped, for as long as this process lives.
            std::mem::forget(pool);
            return;
        }
    }
    drop(pool);
}

/// Returns when a port that is being closed is closed.
pub fn wait_for_closing() {
    drop(control());
}

/// One at a time: DPDK's lists of devices have no lock of their own.
fn control() -> (Quiet, MutexGuard<'static, ()>) {
    static CONTROL: Mutex<()> = Mutex::new(());
    let turn = CONTROL.lock().unwrap_or_else(PoisonError::into_inner);
    (Quiet::begin(), turn)
}

/// Mbufs of a port, so that none of its owners ever waits for another. `least`: descriptors that it insists on, to receive and to
/// send. `shared`: by endpoints with so many queue pairs.
fn mbufs(device: &Device, least: [u16; 2], shared: Option<u16>) -> u32 {
    // AF_XDP's driver fills rings of its own, whatever was asked for (rte_eth_af_xdp.c, ETH_AF_XDP_DFLT_NUM_DESCS).
    let asked = if device.name.starts_with("net_af_xdp") { 2048 } else { device.descriptors };
    let [rx, tx] = least.map(|least| u32::from(least.max(asked)));
    let queues = u32::from(shared.unwrap_or(1));
    // In the hands of the device, to be filled: that of vmxnet3 has two rings of so many.
    let mut sum = queues * 2 * rx;
    // In the hands of the device, to be sent. It gives them back when more is sent, so without one more it never would.
    sum += queues * tx;
    // Received and being shown; empty, to be lent, or staged.
    sum += 2 * BURST as u32;
    // Cached by the endpoint. DPDK fills a cache up to one and a half of its size (rte_mempool.h, CACHE_FLUSHTHRESH_MULTIPLIER).
    sum += CACHE + CACHE / 2;
    if shared.is_some() {
        // Received and kept for others; the other endpoints' own, and what they cache.
        sum += ENDPOINTS_MAX as u32 * (INBOX_FRAMES as u32 + 2 * BURST as u32 + CACHE + CACHE / 2);
    }
    if device.is_pair {
        // Taken out of the ring of a peer that goes, and of the burst that does it.
        sum += SL_LEFT_MAX + BURST as u32;
    }
    assert!(sum > 2 * CACHE, "a pool is larger than what caches may keep of it");
    sum
}

/// Bytes that an mbuf takes beside its room: its own two cache lines, DPDK's headroom, and the pool's header (rte_mbuf_core.h,
/// rte_config.h, rte_mempool.h).
const ROOM_COST: u64 = 128 + 128 + 64;

/// Mbufs that an endpoint keeps back from the pool's shared ring: 8 bursts, so that the ring is touched once in 4 to 8.
const CACHE: u32 = 256;

/// As long as DPDK's own examples wait (check_all_ports_link_status: 9 s).
const LINK_PATIENCE: Duration = Duration::from_secs(9);
/// Copper takes 2 to 3 s at 1 Gbit/s (IEEE 802.3, 28.3.2), and a look at some cards is a conversation with another chip.
const LINK_TURN: Duration = Duration::from_millis(20);

/// Such a ring never drops: its sender finds it full, and waits. The number only bounds what waits.
const PAIR_FRAMES: usize = 1024;

/// Two processes that are started together are ready within a second of one another, on a loaded machine too.
const PEER_PATIENCE: Duration = Duration::from_millis(2_500);
const PEER_TURN: Duration = Duration::from_millis(20);
/// A server that listens answers a client within a few milliseconds.
const REDIAL: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    #[test]
    fn a_device_that_insists_on_longer_rings_has_frames_for_them() {
        let device = Device::read(&Config::new("00:04.0"), 0).unwrap();
        // As that of Google's cloud does (gve_ethdev.c), and vmxnet3's where it sends.
        for [rx, tx] in [[1024, 1024], [128, 512]] {
            let own = 2 * BURST as u32 + CACHE + CACHE / 2;
            assert!(mbufs(&device, [rx, tx], None) >= u32::from(rx) + u32::from(tx) + own, "{rx}, {tx}");
        }
        assert_eq!(mbufs(&device, [64, 64], None), mbufs(&device, [0, 0], None));
    }
}
