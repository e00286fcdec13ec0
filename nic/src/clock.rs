//! The machine's monotonic clock, as cheap as it can be read.
//!
//! A poll loop reads the time once a turn, so the read is part of every message's path: the timestamp counter costs
//! about 8 ns where `clock_gettime` costs 18 through the vDSO (both measured on a 2.6 GHz virtual machine). The counter
//! is used only where the kernel itself trusts it; everywhere else the kernel is asked.
#![allow(unsafe_code)] // rdtsc, cpuid and clock_gettime.

use std::sync::OnceLock;

use crate::time::Instant;

/// Nanoseconds since some moment before the first call; the same origin in every thread of the process.
///
/// The read is not fenced: two reads on two cores may be out of order by a few nanoseconds.
/// The scale is good to about 20 ppm, so sleep for the span up to a deadline, never until an absolute kernel time.
#[inline]
pub fn monotonic() -> Instant {
    clock().now()
}

/// The raw counter that [`monotonic`] is made from: of one origin and rate in all processes of this machine, so that stamps of
/// two of them can be subtracted. The read is not serialising: what is still under way then counts as after it.
#[inline]
pub fn ticks() -> u64 {
    match clock() {
        #[cfg(target_arch = "x86_64")]
        Clock::Tsc(_) => read_tsc(),
        _ => system_clock().as_nanos(),
    }
}

/// What one of [`ticks`] is worth.
pub fn nanos_per_tick() -> f64 {
    match clock() {
        Clock::Tsc(tsc) => tsc.nanos_per_tick as f64 / (1u64 << 32) as f64,
        Clock::System => 1.0,
    }
}

#[inline]
fn clock() -> &'static Clock {
    static CLOCK: OnceLock<Clock> = OnceLock::new();
    CLOCK.get_or_init(Clock::choose)
}

enum Clock {
    Tsc(Tsc),
    System,
}

impl Clock {
    #[cold]
    fn choose() -> Self {
        Tsc::calibrate().map_or(Self::System, Self::Tsc)
    }

    #[inline]
    fn now(&self) -> Instant {
        match self {
            Self::Tsc(tsc) => tsc.now(),
            Self::System => system_clock(),
        }
    }
}

/// The timestamp counter and what one of its ticks is worth.
struct Tsc {
    /// Counter and time at one moment; times are counted from here.
    ticks: u64,
    nanos: u64,
    /// Nanoseconds a tick, in units of 2^-32.
    nanos_per_tick: u64,
}

#[cfg(target_arch = "x86_64")]
impl Tsc {
    /// `None` where the counter is no clock: not invariant, or not what the kernel itself keeps time by.
    fn calibrate() -> Option<Self> {
        if !invariant_tsc() || !kernel_trusts_tsc() {
            return None;
        }
        let (start_ticks, start_nanos) = both_clocks();
        loop {
            let (ticks, nanos) = both_clocks();
            let elapsed = nanos - start_nanos;
            if elapsed >= CALIBRATION_NS {
                let scale = (u128::from(elapsed) << 32) / u128::from(ticks.checked_sub(start_ticks)?.max(1));
                return Some(Self { ticks, nanos, nanos_per_tick: u64::try_from(scale).ok()? });
            }
        }
    }

    #[inline]
    fn now(&self) -> Instant {
        // Saturating: another core's counter may stand a few ticks before the one that was calibrated.
        let ticks = read_tsc().saturating_sub(self.ticks);
        let nanos = (u128::from(ticks) * u128::from(self.nanos_per_tick)) >> 32;
        Instant::from_nanos(self.nanos + nanos as u64)
    }
}

#[cfg(not(target_arch = "x86_64"))]
impl Tsc {
    fn calibrate() -> Option<Self> {
        None
    }

    fn now(&self) -> Instant {
        system_clock()
    }
}

/// The counter beside the kernel's time, read as close together as a few tries make it.
#[cfg(target_arch = "x86_64")]
fn both_clocks() -> (u64, u64) {
    (0..8)
        .map(|_| {
            let before = read_tsc();
            let nanos = system_clock().as_nanos();
            let after = read_tsc();
            (after.wrapping_sub(before), before.wrapping_add(after.wrapping_sub(before) / 2), nanos)
        })
        .min()
        .map(|(_, ticks, nanos)| (ticks, nanos))
        .expect("eight tries are not none")
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn read_tsc() -> u64 {
    // SAFETY: every x86-64 has the instruction. A process that was forbidden it (PR_SET_TSC) would get SIGSEGV,
    // and the vDSO's clock with it.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// CPUID 8000_0007h EDX bit 8: the counter runs at one rate in all P-, C- and T-states (Intel SDM 3B 17.17.1).
#[cfg(target_arch = "x86_64")]
#[allow(unused_unsafe)] // Safe to call in newer compilers than our oldest.
fn invariant_tsc() -> bool {
    const ADVANCED_POWER: u32 = 0x8000_0007;
    // SAFETY: every x86-64 has the instruction; a leaf above the highest is not asked for.
    unsafe {
        std::arch::x86_64::__cpuid(0x8000_0000).eax >= ADVANCED_POWER
            && std::arch::x86_64::__cpuid(ADVANCED_POWER).edx & (1 << 8) != 0
    }
}

/// The kernel's watchdog compares the counters of all cores and leaves this clock source when they part.
#[cfg(target_arch = "x86_64")]
fn kernel_trusts_tsc() -> bool {
    std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource")
        .is_ok_and(|name| name.trim() == "tsc")
}

fn system_clock() -> Instant {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the answer for the whole call.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    assert_eq!(result, 0, "CLOCK_MONOTONIC exists on every Linux");
    Instant::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Two readings are each good to about 20 ns: over 2 ms that is 20 ppm.
#[cfg(target_arch = "x86_64")]
const CALIBRATION_NS: u64 = 2_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_does_not_run_backwards() {
        let mut last = monotonic();
        for _ in 0..100_000 {
            let now = monotonic();
            assert!(now >= last);
            last = now;
        }
    }

    #[test]
    fn runs_at_the_rate_of_the_kernels_clock() {
        // Ours is read between two readings of the kernel's, so that whatever a busy machine does between them widens what is allowed.
        let reading = || (system_clock(), monotonic(), system_clock());
        let (before_first, first, after_first) = reading();
        std::thread::sleep(std::time::Duration::from_millis(50));
        let (before_last, last, after_last) = reading();
        let ours = last.since(first).as_nanos();
        let (least, most) = (before_last.since(after_first).as_nanos(), after_last.since(before_first).as_nanos());
        // And a hundredth, by which the kernel's may be kept back or driven on meanwhile (adjtimex(2)).
        assert!((least - least / 100..=most + most / 100).contains(&ours), "{ours} beside {least} to {most}");
    }
}
