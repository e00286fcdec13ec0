//! The shim's table as safe functions.
#![allow(unsafe_code)] // Calls through the table.

use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;
use std::sync::{Mutex, PoisonError};

use sidelane_dpdk_sys::{
    LoadError, SL_CACHE_NONE, SL_QUEUES_MAX, load, sl_dpdk, sl_link, sl_mbuf, sl_port_config, sl_port_info, sl_queue,
    sl_state, sl_stats, sl_xstat,
};

use crate::encap::ether;

/// libdpdk in this process.
#[derive(Clone, Copy)]
pub struct Shim(&'static sl_dpdk);

/// A function of the table. The shim fills every entry, and the table's size was compared when it was loaded.
macro_rules! call {
    ($shim:expr, $function:ident($($argument:expr),*)) => {
        $shim.0.$function.expect("the shim fills its table")($($argument),*)
    };
}

impl Shim {
    /// Loads it, if that was not done yet.
    pub fn load() -> Result<Self, LoadError> {
        load().map(Self)
    }

    /// Such as `DPDK 22.11.11`.
    pub fn version(self) -> String {
        // SAFETY: takes nothing and gives a constant C string.
        unsafe { CStr::from_ptr(call!(self, version())) }.to_string_lossy().into_owned()
    }

    /// Where DPDK looks for its drivers.
    pub fn driver_dir(self) -> String {
        // SAFETY: takes nothing and gives a constant C string.
        unsafe { CStr::from_ptr(call!(self, driver_dir())) }.to_string_lossy().into_owned()
    }

    /// Starts the environment. Once a process, whatever comes of it.
    pub fn eal_up(self, arguments: &[String]) -> io::Result<()> {
        let mut words: Vec<*mut c_char> = Vec::new();
        for argument in arguments {
            // The environment keeps pointers into its arguments as long as it lives, which is as long as we do.
            words.push(text(argument)?.into_raw());
        }
        words.push(std::ptr::null_mut());
        let count = arguments.len() as c_int;
        // Kept alive as getopt(3) reorders it.
        let words = Box::leak(words.into_boxed_slice());
        // SAFETY: `words` is an argv: so many C strings, then null, all writable and never freed.
        check(unsafe { call!(self, eal_up(count, words.as_mut_ptr(), Some(on_log))) })
    }

    /// Makes a device known; the number of its port. `pair`: it is the end of one.
    pub fn attach(self, bus: &str, name: &str, arguments: &str, pair: bool) -> io::Result<u16> {
        let (bus, name, arguments) = (text(bus)?, text(name)?, text(arguments)?);
        let (pair, mut port) = (pair.into(), 0);
        // SAFETY: C strings, and a place for the answer, all alive through the call.
        check(unsafe { call!(self, attach(bus.as_ptr(), name.as_ptr(), arguments.as_ptr(), pair, &raw mut port)) })?;
        Ok(port)
    }

    /// Ends a port; nobody may use it any more. `TimedOut`: the other side may, and its pool, for ever.
    pub fn detach(self, port: u16) -> io::Result<()> {
        // SAFETY: DPDK checks the number.
        check(unsafe { call!(self, detach(port)) })
    }

    /// What its device says of itself.
    pub fn port_info(self, port: u16) -> io::Result<PortInfo> {
        // SAFETY: all zeroes is a valid value of this struct of numbers.
        let mut info: sl_port_info = unsafe { std::mem::zeroed() };
        // SAFETY: DPDK checks the number; `info` is a place for the answer.
        check(unsafe { call!(self, port_info(port, &raw mut info)) })?;
        let driver = info.driver.iter().take_while(|byte| **byte != 0).map(|byte| *byte as u8).collect();
        Ok(PortInfo {
            mac: info.mac,
            mtu_max: info.mtu_max,
            queues_max: info.rx_queues_max.min(info.tx_queues_max),
            descriptors_min: [info.rx_descriptors_min, info.tx_descriptors_min],
            numa_node: info.numa_node,
            driver: String::from_utf8(driver).unwrap_or_default(),
        })
    }

    /// Starts a port that is new or stopped; says what was granted.
    pub fn port_start(self, port: u16, pool: &Pool, asked: sl_port_config) -> io::Result<sl_port_config> {
        let mut config = asked;
        // SAFETY: DPDK checks the number; the pool lives, and outlives the port (see `Port`).
        check(unsafe { call!(self, port_start(port, &raw mut config, pool.pool.as_ptr())) })?;
        Ok(config)
    }

    /// Stops a port and starts it again.
    pub fn port_restart(self, port: u16) -> io::Result<()> {
        // SAFETY: DPDK checks the number.
        check(unsafe { call!(self, port_restart(port)) })
    }

    /// Stops a port, to start it with other queues.
    pub fn port_stop(self, port: u16) -> io::Result<()> {
        // SAFETY: DPDK checks the number.
        check(unsafe { call!(self, port_stop(port)) })
    }

    /// Whether the card may steer. Asked before its port is started.
    pub fn has_rules(self, port: u16) -> bool {
        // SAFETY: DPDK checks the number.
        unsafe { call!(self, rules(port)) == 0 }
    }

    /// Leads our frames for `mac` to a receive queue of a started port.
    pub fn rule_add(self, mac: Mac, to: Queue) -> io::Result<Rule> {
        let (mut rule, bytes, own, ethertype) = (std::ptr::null_mut(), mac.bytes.as_ptr(), mac.own, ether::ETHERTYPE);
        // SAFETY: DPDK checks the numbers; six bytes, and a place for the answer, all alive through the call.
        check(unsafe { call!(self, rule_add(to.port, bytes, own.into(), ethertype, to.number, &raw mut rule)) })?;
        let rule = NonNull::new(rule).expect("the shim makes a rule or says why not");
        Ok(Rule { shim: self, port: to.port, mac, rule })
    }

    /// Whether the link is up.
    pub fn link_is_up(self, port: u16) -> bool {
        let mut link = sl_link { up: 0, mbit_per_s: 0 };
        // SAFETY: DPDK checks the number; `link` is a place for the answer.
        unsafe { call!(self, link(port, &raw mut link)) };
        link.up != 0
    }

    /// Whether the device was taken away.
    pub fn is_removed(self, port: u16) -> bool {
        // SAFETY: the number is that of a port that was attached.
        unsafe { call!(self, removed(port)) != 0 }
    }

    /// Whether a memif client waits for its server's answer.
    pub fn is_dialling(self, port: u16) -> bool {
        // SAFETY: takes any number.
        unsafe { call!(self, dialling(port)) != 0 }
    }

    /// Where it is counted how many peers of a port have gone.
    pub fn lives(self, port: u16) -> &'static AtomicU32 {
        // SAFETY: the number is that of a port that was attached. The count is a word that is never freed, and only changed as an
        // atomic one.
        unsafe { AtomicU32::from_ptr(call!(self, lives(port)).cast_mut()) }
    }

    /// Frames that those have left and that were not received yet.
    pub fn left(self, port: u16) -> u32 {
        // SAFETY: the number is that of a port that was attached.
        unsafe { call!(self, left(port)) }
    }

    /// One of the queue pairs of an attached port.
    pub fn queue(self, port: u16, number: u16) -> Queue {
        assert!(u32::from(number) < SL_QUEUES_MAX, "a port has no more than that");
        // SAFETY: the number is that of a port that was attached, which DPDK has no more of than the shim.
        let pair = NonNull::new(unsafe { call!(self, queue(port, number)) }).expect("every queue has one");
        Queue { port, number, pair }
    }

    /// What the device has counted.
    pub fn stats(self, port: u16) -> Option<sl_stats> {
        // SAFETY: all zeroes is a valid value of this struct of numbers.
        let mut stats: sl_stats = unsafe { std::mem::zeroed() };
        // SAFETY: DPDK checks the number; `stats` is a place for the answer.
        check(unsafe { call!(self, stats(port, &raw mut stats)) }).ok()?;
        Some(stats)
    }

    /// How a started port is set, and what is left in its pool.
    pub fn state(self, port: u16, pool: &Pool) -> Option<sl_state> {
        // SAFETY: all zeroes is a valid value of this struct of numbers.
        let mut state: sl_state = unsafe { std::mem::zeroed() };
        // SAFETY: DPDK checks the number; the pool lives; `state` is a place for the answer.
        check(unsafe { call!(self, state(port, pool.pool.as_ptr(), &raw mut state)) }).ok()?;
        Some(state)
    }

    /// The device's own counters by name.
    pub fn extended_stats(self, port: u16) -> Vec<(String, u64)> {
        // SAFETY: all zeroes is a valid value of this struct of numbers.
        let mut list: Vec<sl_xstat> = vec![unsafe { std::mem::zeroed() }; XSTATS_MAX];
        // SAFETY: DPDK checks the number; `list` has as many places as is said.
        let count = unsafe { call!(self, xstats(port, list.as_mut_ptr(), XSTATS_MAX as u32)) };
        list.truncate(usize::try_from(count).unwrap_or(0));
        let name = |stat: &sl_xstat| -> Vec<u8> {
            stat.name.iter().take_while(|byte| **byte != 0).map(|byte| *byte as u8).collect()
        };
        list.iter().map(|stat| (String::from_utf8_lossy(&name(stat)).into_owned(), stat.value)).collect()
    }

    /// Does `work` with a cache: here that is a load and two stores, in the shim's object a call.
    #[inline]
    fn with<T>(self, CacheNumber(cache): CacheNumber, work: impl FnOnce() -> T) -> T {
        let number = NUMBER.get().unwrap_or_else(|| self.find_number());
        // SAFETY: this thread's own word, which nothing borrows, and which lives as long as the thread does.
        let own = unsafe { number.replace(cache) };
        let done = work();
        // SAFETY: as above.
        unsafe { number.write(own) };
        done
    }

    #[cold]
    fn find_number(self) -> NonNull<u32> {
        // SAFETY: takes nothing.
        let number = NonNull::new(unsafe { call!(self, cache_number()) }).expect("every thread has one");
        NUMBER.set(Some(number));
        number
    }

    /// What becomes readable when a frame comes and the interrupt is armed.
    pub fn rx_fd(self, at: Queue) -> Option<c_int> {
        // SAFETY: DPDK checks the numbers.
        let fd = unsafe { call!(self, rx_fd(at.port, at.number)) };
        (fd >= 0).then_some(fd)
    }

    /// Lets a frame wake; one that is there already does not.
    pub fn rx_arm(self, at: Queue) -> io::Result<()> {
        // SAFETY: DPDK checks the numbers.
        check(unsafe { call!(self, rx_arm(at.port, at.number)) })
    }

    /// Lets none wake.
    pub fn rx_disarm(self, at: Queue) {
        // SAFETY: DPDK checks the numbers.
        unsafe { call!(self, rx_disarm(at.port, at.number)) };
    }

    /// Receives into the first places of `frames`; how many. Once more than `life` peers have gone, only what those have left.
    ///
    /// # Safety
    /// The port is started with that queue, and no other thread receives there or uses the cache meanwhile. The frames are the
    /// caller's from then on.
    #[inline]
    pub unsafe fn rx_burst(self, at: &Queue, cache: CacheNumber, frames: &mut [*mut sl_mbuf], life: u32) -> usize {
        let (places, count) = (frames.as_mut_ptr(), frames.len() as u16);
        // SAFETY: so many places; the rest as the caller promises.
        self.with(cache, || unsafe { call!(self, rx_burst(at.pair.as_ptr(), places, count, life)) }).into()
    }

    /// Hands the first frames to the device; how many: none once more than `life` peers have gone. Those are no longer the
    /// caller's.
    ///
    /// # Safety
    /// The port is started with that queue, no other thread sends there or uses the cache meanwhile, and the frames are the
    /// caller's.
    #[inline]
    pub unsafe fn tx_burst(self, at: &Queue, cache: CacheNumber, frames: &mut [*mut sl_mbuf], life: u32) -> usize {
        let (frames, count) = (frames.as_mut_ptr(), frames.len() as u16);
        // SAFETY: so many frames; the rest as the caller promises.
        self.with(cache, || unsafe { call!(self, tx_burst(at.pair.as_ptr(), frames, count, life)) }).into()
    }

    /// Fills `frames` with empty ones. False: the pool has not so many.
    ///
    /// # Safety
    /// No other thread uses the cache meanwhile.
    #[inline]
    pub unsafe fn alloc_frames(self, pool: &Pool, cache: CacheNumber, frames: &mut [*mut sl_mbuf]) -> bool {
        let (frames, count) = (frames.as_mut_ptr(), frames.len() as u32);
        // SAFETY: the pool lives; so many places; the rest as the caller promises.
        self.with(cache, || unsafe { call!(self, alloc_frames(pool.pool.as_ptr(), frames, count)) == 0 })
    }

    /// Gives frames back to their pool.
    ///
    /// # Safety
    /// They are the caller's, and no longer used. No other thread uses the cache meanwhile.
    #[inline]
    pub unsafe fn free_frames(self, cache: CacheNumber, frames: &mut [*mut sl_mbuf]) {
        // SAFETY: as the caller promises.
        self.with(cache, || unsafe { call!(self, free_frames(frames.as_mut_ptr(), frames.len() as u32)) });
    }
}

/// What is to be known of a port.
pub struct PortInfo {
    pub mac: [u8; 6],
    /// Largest payload behind the Ethernet header; 65,535 where there is no limit, 0 where the device does not say.
    pub mtu_max: u16,
    /// Queue pairs that it can have.
    pub queues_max: u16,
    /// Fewest descriptors of a queue, to receive and to send.
    pub descriptors_min: [u16; 2],
    pub numa_node: i32,
    pub driver: String,
}

/// A queue pair of a port.
#[derive(Clone, Copy)]
pub struct Queue {
    port: u16,
    number: u16,
    /// The shim's own, which is never freed.
    pair: NonNull<sl_queue>,
}

// SAFETY: a number belongs to no thread; who moves frames by it promises to be alone.
unsafe impl Send for Queue {}
// SAFETY: as above.
unsafe impl Sync for Queue {}

/// An address that frames are led by.
#[derive(Clone, Copy)]
pub struct Mac {
    pub bytes: [u8; 6],
    /// It is the card's own, or else one more.
    pub own: bool,
}

/// Frames for an address go to a queue until this is dropped, which has to be before the port stops.
pub struct Rule {
    shim: Shim,
    port: u16,
    mac: Mac,
    rule: NonNull<c_void>,
}

// SAFETY: a rule belongs to no thread, and this one has one owner.
unsafe impl Send for Rule {}

impl Drop for Rule {
    fn drop(&mut self) {
        let (mac, own) = (self.mac.bytes.as_ptr(), self.mac.own.into());
        // SAFETY: made by `rule_add` on this port, and ended once.
        unsafe { call!(self.shim, rule_remove(self.port, mac, own, self.rule.as_ptr())) };
    }
}

/// Mbufs of one size.
pub struct Pool {
    shim: Shim,
    pool: NonNull<c_void>,
    room: usize,
}

// SAFETY: DPDK's pools may be used by several threads at once.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

impl Pool {
    /// `mbufs` of them with `room` bytes each; `cache` is kept back for each thread.
    pub fn new(shim: Shim, name: &str, mbufs: u32, cache: u32, room: u16, numa_node: i32) -> io::Result<Self> {
        let name = text(name)?;
        let mut error = 0;
        // SAFETY: a C string and a place for the reason, both alive through the call.
        let pool = unsafe { call!(shim, pool_create(name.as_ptr(), mbufs, cache, room, numa_node, &raw mut error)) };
        match NonNull::new(pool) {
            Some(pool) => Ok(Self { shim, pool, room: usize::from(room) }),
            None => Err(io::Error::from_raw_os_error(-error)),
        }
    }

    /// Bytes that a frame may have.
    pub fn room(&self) -> usize {
        self.room
    }

    /// Whether the mbuf is one of these.
    #[inline]
    pub fn is_of(&self, mbuf: &sl_mbuf) -> bool {
        mbuf.pool == self.pool.as_ptr()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: made by `pool_create`. Who owns frames of it holds it too (`Port`), so none is out.
        unsafe { call!(self.shim, pool_free(self.pool.as_ptr())) };
    }
}

/// Mbufs of a pool that are kept back for one endpoint, so that it seldom touches what all share. Not for a thread, as DPDK has it:
/// what is kept back for one that does not come again is lost.
pub struct Cache {
    shim: Shim,
    pool: NonNull<c_void>,
    number: CacheNumber,
}

thread_local! {
    /// Where DPDK has this thread's number, once it was asked for.
    static NUMBER: Cell<Option<NonNull<u32>>> = const { Cell::new(None) };
}

/// What DPDK finds it by.
#[derive(Clone, Copy)]
pub struct CacheNumber(u32);

// SAFETY: a cache belongs to no thread, and this one has one owner.
unsafe impl Send for Cache {}

impl Cache {
    /// One of `pool`, which has to outlive it.
    pub fn new(shim: Shim, pool: &Pool) -> Self {
        // SAFETY: takes nothing; the environment is up, since there is a pool.
        let number = CacheNumber(unsafe { call!(shim, cache_take()) });
        Self { shim, pool: pool.pool, number }
    }

    pub fn number(&self) -> CacheNumber {
        self.number
    }
}

impl CacheNumber {
    /// That of no cache: good for any thread.
    pub const NONE: Self = Self(SL_CACHE_NONE);
}

impl Drop for Cache {
    fn drop(&mut self) {
        // SAFETY: the pool lives, the number came from `cache_take`, and nobody uses it any more.
        unsafe { call!(self.shim, cache_give_back(self.pool.as_ptr(), self.number.0)) };
    }
}

/// What DPDK has said since somebody last asked: at most the last [`LOG_MAX`] bytes.
pub fn take_log() -> String {
    std::mem::take(&mut LOG.lock().unwrap_or_else(PoisonError::into_inner))
}

static LOG: Mutex<String> = Mutex::new(String::new());

/// Called by DPDK on whichever thread has something to say. Never on the hot path.
extern "C" fn on_log(words: *const c_char, len: u64) {
    // SAFETY: the shim passes what its stream was given to write: so many readable bytes.
    let bytes = unsafe { std::slice::from_raw_parts(words.cast::<u8>(), len as usize) };
    let words = String::from_utf8_lossy(bytes);
    for line in words.lines().filter(|line| !line.is_empty()) {
        tracing::debug!(target: "dpdk", "{line}");
    }
    let mut log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
    log.push_str(&words);
    if log.len() > LOG_MAX {
        let cut = (log.len() - LOG_MAX..log.len()).find(|at| log.is_char_boundary(*at)).unwrap_or(0);
        log.drain(..cut);
    }
}

fn text(words: &str) -> io::Result<CString> {
    CString::new(words).map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a zero byte in a text for DPDK"))
}

/// A result of the shim's: a negative errno, or fine.
fn check(result: c_int) -> io::Result<()> {
    match result {
        // Most drivers' word for any failure. Who is told that he has no permission looks in the wrong place.
        -1 => Err(io::Error::other("no reason given, or no permission (-1)")),
        ..-1 => Err(io::Error::from_raw_os_error(-result)),
        0.. => Ok(()),
    }
}

/// Ten screens of log.
const LOG_MAX: usize = 16 << 10;

/// Counters that are shown at most: more than any device of DPDK 22.11 has with one queue pair (ice: 150).
const XSTATS_MAX: usize = 512;
