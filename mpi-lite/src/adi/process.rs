//! Who the processes of a job are: what each tells the others before they can talk.
#![allow(unsafe_code)] // gethostname(2).

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::str::FromStr;
use std::sync::LazyLock;

use sidelane_nic::{LinkAddr, affinity};

use super::living::Birth;
use super::port::Port;

/// One process of a job. Its text form has no blanks, `=` or `;`, so that any launcher can carry it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Process {
    /// What tells hosts apart: equal for processes that reach each other through shared memory.
    pub host: String,
    /// Its number on that host.
    pub pid: u32,
    /// Which of all processes that have that number; unknown where `/proc` does not tell.
    pub(super) born: Option<Birth>,
    /// Where in its memory `mark` stands: who reads another value there has another process before him.
    pub(super) mark_at: u64,
    pub(super) mark: u64,
    /// The cores that it was allowed when it came, a bit each.
    pub(super) cores: Vec<u64>,
    /// Where it is reached, one address for each of its ports.
    pub links: Vec<LinkAddr>,
}

impl Process {
    /// This process, with these ports, on the host that is called `host` ([`host_identity`] knows a name).
    pub fn here(host: &str, ports: &[Port]) -> Self {
        static MARK: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(std::process::id()));
        let mark: &'static u64 = &MARK;
        Self {
            host: host.chars().map(|c| if c.is_ascii_alphanumeric() || "._-:".contains(c) { c } else { '_' }).collect(),
            pid: std::process::id(),
            born: Birth::of_this_process(),
            mark_at: std::ptr::from_ref(mark).expose_provenance() as u64,
            mark: *mark,
            cores: bits(affinity::cores()),
            links: ports.iter().map(Port::addr).collect(),
        }
    }
}

/// How many cores these processes have between them, which are on one host: fewer than it has, where something confines them.
pub fn cores_of<'a>(processes: impl Iterator<Item = &'a Process>) -> usize {
    let mut all = Vec::new();
    for cores in processes.map(|process| &process.cores) {
        all.resize(all.len().max(cores.len()), 0);
        all.iter_mut().zip(cores).for_each(|(all, cores)| *all |= cores);
    }
    all.into_iter().map(u64::count_ones).sum::<u32>().max(1) as usize
}

fn bits(cores: Vec<usize>) -> Vec<u64> {
    let mut bits = vec![0; cores.iter().max().map_or(0, |most| most / 64 + 1)];
    cores.into_iter().for_each(|core| bits[core / 64] |= 1 << (core % 64));
    bits
}

/// What processes share that reach each other through shared memory: the running kernel, and the network namespace, in
/// which the names of shared-memory domains are.
pub fn host_identity() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok();
    let namespace = std::fs::read_link("/proc/self/ns/net").unwrap_or_default();
    identity(boot.as_deref().map(str::trim), &namespace.to_string_lossy(), node_name)
}

/// `boot` tells running kernels apart. Some sandboxes hide it, and a namespace's number is the same on many machines.
fn identity(boot: Option<&str>, namespace: &str, node: impl FnOnce() -> String) -> String {
    let digits: String = namespace.chars().filter(char::is_ascii_digit).collect();
    let kernel = boot.filter(|boot| !boot.is_empty()).map_or_else(node, str::to_owned);
    format!("{kernel}.{digits}")
}

/// What this machine calls itself.
fn node_name() -> String {
    let mut name = [0u8; 256];
    // SAFETY: the kernel's answer goes into `name`, whose last byte stays zero.
    unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) };
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    String::from_utf8_lossy(&name[..end]).into_owned()
}

/// A text that describes no process.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{0}` describes no process; HOST,PID,BIRTH,PLACE,MARK,CORES,ADDRESS.. was expected")]
pub struct ProcessError(pub String);

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{},", self.host, self.pid)?;
        match self.born {
            Some(Birth { ticks, numbers, clock }) => write!(f, "{ticks:x}.{numbers:x}.{clock:x}")?,
            None => write!(f, "-")?,
        }
        write!(f, ",{:x},{:x},", self.mark_at, self.mark)?;
        self.cores
            .iter()
            .enumerate()
            .try_for_each(|(at, bits)| write!(f, "{}{bits:x}", if at > 0 { "." } else { "" }))?;
        self.links.iter().try_for_each(|link| write!(f, ",{link}"))
    }
}

impl FromStr for Process {
    type Err = ProcessError;

    fn from_str(text: &str) -> Result<Self, ProcessError> {
        let refused = || ProcessError(text.to_owned());
        let number = |part: Option<&str>| u64::from_str_radix(part?, 16).ok();
        let mut parts = text.split(',');
        let host = parts.next().filter(|host| !host.is_empty()).ok_or_else(refused)?.to_owned();
        let pid = parts.next().and_then(|pid| pid.parse().ok()).ok_or_else(refused)?;
        let born = match parts.next().ok_or_else(refused)? {
            "-" => None,
            born => {
                let [ticks, numbers, clock] = {
                    let mut parts = born.splitn(3, '.');
                    [(); 3].map(|()| number(parts.next()))
                };
                let born =
                    ticks.zip(numbers).zip(clock).map(|((ticks, numbers), clock)| Birth { ticks, numbers, clock });
                Some(born.ok_or_else(refused)?)
            }
        };
        let mark_at = number(parts.next()).ok_or_else(refused)?;
        let mark = number(parts.next()).ok_or_else(refused)?;
        let cores = parts.next().ok_or_else(refused)?.split('.').map(|bits| number(Some(bits)));
        let cores = cores.collect::<Option<_>>().ok_or_else(refused)?;
        let links = parts.map(str::parse).collect::<Result<_, _>>().map_err(|_| refused())?;
        Ok(Self { host, pid, born, mark_at, mark, cores, links })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_reads_back_as_it_was_written() {
        let links = ["shm/3", "02:00:00:00:0a:01/7", "[::1]:9"].map(|text| text.parse().unwrap());
        let process = Process { links: links.to_vec(), ..Process::here(&host_identity(), &[]) };
        assert!(process.born.is_some());
        for process in [Process { born: None, ..process.clone() }, process] {
            let text = process.to_string();
            assert_eq!(text.parse(), Ok(process));
            assert!(!text.contains([' ', '=', ';', '\n']));
        }
    }

    #[test]
    fn processes_have_the_cores_of_all_of_them() {
        let of = |cores: &[usize]| Process { cores: bits(cores.to_vec()), ..Process::here("here", &[]) };
        let count = |all: &[Process]| cores_of(all.iter());
        assert_eq!(count(&[of(&[0, 1]), of(&[1, 130]), of(&[64])]), 4);
        assert_eq!((count(&[of(&[5]), of(&[5])]), count(&[])), (1, 1));
        assert_eq!(count(&[Process::here("here", &[])]), affinity::cores().len());
    }

    #[test]
    fn hosts_that_hide_their_boot_are_told_apart_by_their_names() {
        let of = |boot, node: &str| identity(boot, "net:[4026531840]", || node.to_owned());
        for hidden in [None, Some("")] {
            assert_ne!(of(hidden, "a"), of(hidden, "b"));
            assert_eq!(of(hidden, "a"), of(hidden, "a"));
        }
        assert_eq!(of(Some("1-2"), "a"), "1-2.4026531840");
        assert!(!node_name().is_empty());
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "host",
            "host,x,-,0,0,3",
            "host,1,-,0",
            "host,1,-,0,0",
            "host,1,-,0,0,",
            "host,1,-,0,0,x",
            "host,1,-,0,0,3,nowhere",
            ",1,-,0,0,3",
            "host,1,5.6,0,0,3",
            "host,1,,0,0,3",
        ] {
            assert!(text.parse::<Process>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_host_with_an_odd_name_still_makes_a_text() {
        let process = Process::here("my host,=;", &[]);
        assert_eq!(process.to_string().parse(), Ok(process));
    }
}
