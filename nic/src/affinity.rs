//! One thread, one core.

#![allow(unsafe_code)] // sched_setaffinity has no safe form in std.

use std::io;
use std::path::{Path, PathBuf};

/// Cores that this process may run on, in ascending order.
pub fn cores() -> Vec<usize> {
    let mut set = NO_CORES;
    // SAFETY: The kernel writes at most the size given, which is that of `set`.
    let result = unsafe { libc::sched_getaffinity(0, size_of_val(&set), set.as_mut_ptr().cast()) };
    if result < 0 {
        return vec![0];
    }
    (0..CORES_MAX).filter(|core| set[core / WORD_BITS] >> (core % WORD_BITS) & 1 != 0).collect()
}

/// What sched_setaffinity(2) takes: a bit for each core. Longer than `cpu_set_t`, whose 1,024 the kernel refuses where there may be more.
type CoreSet = [libc::c_ulong; CORES_MAX / WORD_BITS];

const NO_CORES: CoreSet = [0; CORES_MAX / WORD_BITS];
const WORD_BITS: usize = libc::c_ulong::BITS as usize;
/// The largest `NR_CPUS` that Linux is built for (arch/x86/Kconfig, arch/powerpc/Kconfig).
const CORES_MAX: usize = 8192;

/// The same, but neighbours of one physical core (hyperthreads) not before each physical core has been named once: whoever
/// takes the first few shares as little as can be.
pub fn cores_apart() -> Vec<usize> {
    apart(&cores(), |core| {
        let file = format!("/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list");
        members(&std::fs::read_to_string(file).unwrap_or_default()).collect()
    })
}

/// `siblings` of a core are all on its physical core, itself among them.
fn apart(cores: &[usize], siblings: impl Fn(usize) -> Vec<usize>) -> Vec<usize> {
    let before = |core: usize| siblings(core).iter().filter(|other| **other < core && cores.contains(other)).count();
    let mut apart = cores.to_vec();
    apart.sort_by_cached_key(|core| before(*core));
    apart
}

/// What some of a machine's cores share, from the largest to the smallest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Memory that is near to all of them.
    NumaNode,
    /// What is in one socket.
    Package,
    /// The cache behind which memory is.
    LastLevelCache,
    /// Hyperthreads of one core.
    PhysicalCore,
    /// One of those.
    HardwareThread,
}

impl Part {
    /// In order.
    pub const ALL: [Self; 5] =
        [Self::NumaNode, Self::Package, Self::LastLevelCache, Self::PhysicalCore, Self::HardwareThread];

    /// Its cores, of which `core` is one, in ascending order. `None` where the system does not tell.
    fn of(self, core: usize) -> Option<Vec<usize>> {
        let folder = PathBuf::from(format!("/sys/devices/system/cpu/cpu{core}"));
        let list = match self {
            Self::NumaNode => entries(&folder, "node").next()?.join("cpulist"),
            Self::Package => folder.join("topology/package_cpus_list"),
            Self::LastLevelCache => {
                let level =
                    |cache: &PathBuf| std::fs::read_to_string(cache.join("level")).ok()?.trim().parse::<u32>().ok();
                entries(&folder.join("cache"), "index").max_by_key(level)?.join("shared_cpu_list")
            }
            Self::PhysicalCore => folder.join("topology/thread_siblings_list"),
            Self::HardwareThread => return Some(vec![core]),
        };
        Some(members(&std::fs::read_to_string(list).ok()?).collect())
    }

    /// The first core of the one that all of `cores` are in, which tells it from others of this kind. `None` if they are in several, or
    /// the system does not tell.
    pub fn around(self, cores: &[usize]) -> Option<usize> {
        let all = self.of(*cores.first()?)?;
        cores.iter().all(|core| all.contains(core)).then(|| all[0])
    }
}

fn entries(folder: &Path, prefix: &str) -> impl Iterator<Item = PathBuf> {
    let all = std::fs::read_dir(folder).into_iter().flatten().flatten();
    all.filter(move |entry| entry.file_name().to_string_lossy().starts_with(prefix)).map(|entry| entry.path())
}

/// How many cores the machine runs on, whether this thread may use them or not; 1 where the system does not tell.
pub fn online() -> usize {
    let ranges = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    members(&ranges).count().max(1)
}

/// Members of a kernel's list of numbers: `0-3,6` (Documentation/admin-guide/cputopology.rst).
fn members(ranges: &str) -> impl Iterator<Item = usize> {
    ranges
        .trim()
        .split(',')
        .filter_map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            Some(first.parse().ok()?..=last.parse().ok()?)
        })
        .flatten()
}

/// Keeps the calling thread on `core`, if there is such a one. Allocates nothing, so that a process may call it between fork and exec.
pub fn pin_to(core: usize) -> io::Result<()> {
    let mut set = NO_CORES;
    *set.get_mut(core / WORD_BITS).ok_or(io::ErrorKind::InvalidInput)? |= 1 << (core % WORD_BITS);
    // SAFETY: The kernel reads the size given, which is that of `set`.
    if unsafe { libc::sched_setaffinity(0, size_of_val(&set), set.as_ptr().cast()) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_lists_are_named() {
        let of = |text| members(text).collect::<Vec<_>>();
        assert_eq!(of("0-3,6,8-9\n"), [0, 1, 2, 3, 6, 8, 9]);
        assert_eq!((of("0"), of(""), of("2-1")), (vec![0], vec![], vec![]));
        assert!(online() >= cores().len());
    }

    #[test]
    fn physical_cores_come_before_second_threads_of_one() {
        // Threads of a core have neighbouring numbers on many virtual machines, and distant ones on most others.
        let neighbours = |core: usize| vec![core & !1, core | 1];
        assert_eq!(apart(&[0, 1, 2, 3], neighbours), [0, 2, 1, 3]);
        assert_eq!(apart(&[1, 2, 3], neighbours), [1, 2, 3], "core 0 is not ours");
        assert_eq!(apart(&[0, 1, 2, 3], |core| vec![core % 2, core % 2 + 2]), [0, 1, 2, 3]);
        assert_eq!(apart(&[4, 7], |_| Vec::new()), [4, 7], "where the system tells nothing");
        let mut all = cores_apart();
        all.sort_unstable();
        assert_eq!(all, cores());
    }

    #[test]
    fn every_core_is_in_one_part_of_each_kind() {
        let all = cores();
        for part in Part::ALL {
            // Not every system tells of caches and nodes, but it does so of all cores or of none.
            assert!(all.iter().all(|core| part.of(*core).is_some() == part.of(all[0]).is_some()), "{part:?}");
            for core in &all {
                let Some(sharers) = part.of(*core) else { continue };
                assert!(sharers.is_sorted() && sharers.contains(core), "{part:?} of {core}: {sharers:?}");
                assert_eq!(part.around(&[*core]), sharers.first().copied());
                assert_eq!(part.around(&sharers), sharers.first().copied());
            }
        }
        if let (Some(core), Some(package)) = (Part::PhysicalCore.of(all[0]), Part::Package.of(all[0])) {
            assert!(core.iter().all(|core| package.contains(core)), "{core:?} {package:?}");
        }
        assert_eq!(Part::HardwareThread.around(&all), (all.len() == 1).then_some(all[0]));
        assert_eq!(Part::Package.around(&[]), None);
        assert_eq!(Part::Package.around(&[1 << 20]), None, "there is no such core");
    }

    /// Has the kernel refuse sets of fewer than 4,096 cores to this thread, as it does where it may have so many.
    fn may_have_many_cores() -> bool {
        let step = |code, yes, no, k| libc::sock_filter { code: code as u16, jt: yes, jf: no, k };
        let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
        // The call's number, and the low half of its second argument (linux/seccomp.h).
        let length_at = 24 + if cfg!(target_endian = "little") { 0 } else { 4 };
        let filter = [
            step(load, 0, 0, 0),
            step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 3, libc::SYS_sched_getaffinity as u32),
            step(load, 0, 0, length_at),
            step(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 1, 0, 4096 / 8),
            step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EINVAL as u32),
            step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
        ];
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
        // SAFETY: The kernel copies the program, which outlives the call.
        unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
        }
    }

    #[test]
    fn cores_are_told_where_there_may_be_thousands() {
        let all = cores();
        let told = std::thread::spawn(|| may_have_many_cores().then(cores)).join().unwrap();
        match told {
            Some(told) => assert_eq!(told, all),
            None => println!("skipped: wants CONFIG_SECCOMP_FILTER"),
        }
    }

    #[test]
    fn a_pinned_thread_has_one_core() {
        std::thread::spawn(|| {
            let core = *cores().last().expect("a thread runs somewhere");
            pin_to(core).unwrap();
            assert_eq!(cores(), [core]);
            assert!(pin_to(usize::MAX).is_err());
        })
        .join()
        .unwrap();
    }
}
