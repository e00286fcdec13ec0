//! The string that names a driver, and the one place where it picks a type.

use std::cell::OnceCell;
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use crate::mem::{Fabric, MemNic};
use crate::xdp::Preference;
use crate::{Nic, dpdk, mem, shm, udp, uring, xdp};

/// What `--nic` and `SIDELANE_NIC` say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spec {
    /// `uring:INTERFACE[,endpoint=N][,real-frames]`
    Uring {
        /// Name of the interface.
        interface: String,
        /// Which of the interface's endpoints to be. 0 unless it is said.
        endpoint: u16,
        /// No frames larger than every path carries.
        real_frames: bool,
    },
    /// `xdp:INTERFACE[,endpoint=N][,queue=N][,native|generic]`
    Xdp {
        /// Name of the interface.
        interface: String,
        /// Which of the interface's endpoints to be. 0 unless it is said.
        endpoint: u16,
        /// Which of the interface's queues. 0 unless it is said.
        queue: u32,
        /// Where the XDP program shall run.
        prefer: xdp::Preference,
    },
    /// `udp:IP:PORT`
    Udp {
        /// The address to be reached at.
        bind: SocketAddr,
    },
    /// `dpdk:DEVICE[,ARGUMENT..][,endpoint=N][,mtu=N][,shared][,lossy][,eal=ARGUMENTS]`
    Dpdk(dpdk::Config),
    /// `shm:DOMAIN[,endpoint=N]`
    Shm {
        /// Name of the domain.
        domain: String,
        /// Which of its endpoints to be; `None`: the lowest that is free.
        endpoint: Option<u16>,
    },
    /// `mem:`
    Mem,
}

/// What is done with a driver once it is open, for whichever type it has.
///
/// ```no_run
/// use sidelane_nic::Nic;
/// use sidelane_nic::spec::{NicUser, Spec};
///
/// struct Address;
///
/// impl NicUser for Address {
///     type Out = String;
///
///     fn run<N: Nic + 'static>(self, nic: N) -> String {
///         nic.caps().addr.to_string()
///     }
/// }
///
/// let spec: Spec = std::env::args().nth(1).expect("a driver, such as shm:here").parse()?;
/// println!("others reach us at {}", spec.open(Address)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait NicUser {
    /// What comes of it.
    type Out;

    /// Uses the driver.
    fn run<N: Nic + 'static>(self, nic: N) -> Self::Out;

    /// Uses the simulated one, which reaches nobody but this thread.
    fn run_mem(self, nic: MemNic) -> Self::Out
    where
        Self: Sized,
    {
        self.run(nic)
    }
}

impl Spec {
    /// Opens the driver and gives it to `user`. All `mem:` endpoints that one thread opens are nodes of one fabric,
    /// whose frames take no time.
    pub fn open<U: NicUser>(&self, user: U) -> Result<U::Out, OpenError> {
        Ok(match self {
            Self::Uring { interface, endpoint, real_frames } => {
                let config = uring::Config { real_frames: *real_frames, ..uring::Config::new(interface, *endpoint) };
                user.run(uring::Uring::open(&config)?)
            }
            Self::Xdp { interface, endpoint, queue, prefer } => {
                let config = xdp::Config { queue: *queue, prefer: *prefer, ..xdp::Config::new(interface, *endpoint) };
                user.run(xdp::Xdp::open(&config)?)
            }
            Self::Udp { bind } => user.run(udp::Udp::open(&udp::Config::new(*bind))?),
            Self::Dpdk(config) if config.is_pair() => user.run(dpdk::Pair::open(config)?),
            Self::Dpdk(config) => user.run(dpdk::Dpdk::open(config)?),
            Self::Shm { domain, endpoint } => user.run(shm::ShmNic::open(domain, *endpoint)?),
            Self::Mem => user.run_mem(own_fabric().nic(mem::Config::default())),
        })
    }
}

/// Why a driver could not be opened.
#[derive(thiserror::Error)]
pub enum OpenError {
    /// The interface could not.
    #[error(transparent)]
    Uring(#[from] uring::OpenError),
    /// The interface could not.
    #[error(transparent)]
    Xdp(#[from] xdp::OpenError),
    /// The address could not.
    #[error(transparent)]
    Udp(#[from] udp::OpenError),
    /// The device could not.
    #[error(transparent)]
    Dpdk(#[from] dpdk::OpenError),
    /// The domain could not.
    #[error(transparent)]
    Shm(#[from] shm::OpenError),
}

debug_in_words!(OpenError);

/// A text that names no driver.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// What stands before the colon is no driver.
    #[error(
        "there is no driver `{0}`; write uring:INTERFACE, xdp:INTERFACE, udp:IP:PORT, dpdk:DEVICE, shm:DOMAIN or mem:"
    )]
    NoSuchDriver(String),
    /// The driver needs to be told where.
    #[error("{0} what? write {1}")]
    Nowhere(&'static str, &'static str),
    /// No IP address with a port.
    #[error("`{0}` is no address to bind to; write IP:PORT, such as 10.0.0.1:4000, with port 0 for any that is free")]
    BadAddress(String),
    /// No number of an endpoint.
    #[error("`{0}` is no endpoint; write endpoint=N with a number from 0 to 65535")]
    BadEndpoint(String),
    /// No number of a queue.
    #[error("`{0}` is no queue; write queue=N, with a number that `ethtool -l INTERFACE` shows to be there")]
    BadQueue(String),
    /// No number of bytes.
    #[error("`{0}` is no MTU; write mtu=N with the bytes of a frame behind its Ethernet header, such as mtu=9000")]
    BadMtu(String),
    /// The driver has no such option.
    #[error("{driver} has no option `{option}`; it has {known}")]
    NoSuchOption {
        /// The driver.
        driver: &'static str,
        /// What was written.
        option: String,
        /// What may be.
        known: &'static str,
    },
}

debug_in_words!(SpecError);

impl FromStr for Spec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let (driver, rest) = text.split_once(':').unwrap_or((text, ""));
        let (place, options) = rest.split_once(',').unwrap_or((rest, ""));
        let options = options.split(',').filter(|option| !option.is_empty());
        match driver {
            "uring" => {
                let mut spec = (0, false);
                for option in options {
                    match option.split_once('=') {
                        Some(("endpoint", number)) => spec.0 = endpoint(number)?,
                        None if option == "real-frames" => spec.1 = true,
                        _ => return Err(no_option("uring", option, "endpoint=N and real-frames")),
                    }
                }
                let interface = somewhere("uring", place, "uring:INTERFACE, such as uring:eth0; `ip link` lists them")?;
                Ok(Self::Uring { interface, endpoint: spec.0, real_frames: spec.1 })
            }
            "xdp" => {
                let mut spec = (0, 0, Preference::Fastest);
                for option in options {
                    match option.split_once('=') {
                        Some(("endpoint", number)) => spec.0 = endpoint(number)?,
                        Some(("queue", number)) => {
                            spec.1 = number.parse().map_err(|_| SpecError::BadQueue(number.to_owned()))?;
                        }
                        None if option == "native" => spec.2 = Preference::Native,
                        None if option == "generic" => spec.2 = Preference::Generic,
                        _ => return Err(no_option("xdp", option, "endpoint=N, queue=N, native and generic")),
                    }
                }
                let interface = somewhere("xdp", place, "xdp:INTERFACE, such as xdp:eth0; `ip link` lists them")?;
                Ok(Self::Xdp { interface, endpoint: spec.0, queue: spec.1, prefer: spec.2 })
            }
            "dpdk" => dpdk(rest).map(Self::Dpdk),
            "udp" => {
                no_options("udp", options)?;
                let place = somewhere("udp", place, "udp:IP:PORT with an address of this host")?;
                place.parse().map(|bind| Self::Udp { bind }).map_err(|_| SpecError::BadAddress(place))
            }
            "shm" => {
                let mut number = None;
                for option in options {
                    match option.split_once('=') {
                        Some(("endpoint", text)) => number = Some(endpoint(text)?),
                        _ => return Err(no_option("shm", option, "endpoint=N")),
                    }
                }
                let domain = somewhere("shm", place, "shm:DOMAIN, a name of your choice that all processes use")?;
                Ok(Self::Shm { domain, endpoint: number })
            }
            "mem" => {
                no_options("mem", options)?;
                if place.is_empty() { Ok(Self::Mem) } else { Err(no_option("mem", place, "none")) }
            }
            _ => Err(SpecError::NoSuchDriver(driver.to_owned())),
        }
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uring { interface, endpoint, real_frames } => {
                write!(f, "uring:{interface}")?;
                if *endpoint != 0 {
                    write!(f, ",endpoint={endpoint}")?;
                }
                if *real_frames { f.write_str(",real-frames") } else { Ok(()) }
            }
            Self::Xdp { interface, endpoint, queue, prefer } => {
                write!(f, "xdp:{interface}")?;
                if *endpoint != 0 {
                    write!(f, ",endpoint={endpoint}")?;
                }
                if *queue != 0 {
                    write!(f, ",queue={queue}")?;
                }
                f.write_str(match prefer {
                    Preference::Fastest => "",
                    Preference::Native => ",native",
                    Preference::Generic => ",generic",
                })
            }
            Self::Udp { bind } => write!(f, "udp:{bind}"),
            Self::Dpdk(dpdk::Config { device, endpoint, mtu, shared, lossy, eal }) => {
                write!(f, "dpdk:{device}")?;
                if *endpoint != 0 {
                    write!(f, ",endpoint={endpoint}")?;
                }
                if let Some(mtu) = mtu {
                    write!(f, ",mtu={mtu}")?;
                }
                if *shared {
                    f.write_str(",shared")?;
                }
                if *lossy {
                    f.write_str(",lossy")?;
                }
                eal.as_ref().map_or(Ok(()), |eal| write!(f, ",eal={eal}"))
            }
            Self::Shm { domain, endpoint: None } => write!(f, "shm:{domain}"),
            Self::Shm { domain, endpoint: Some(endpoint) } => write!(f, "shm:{domain},endpoint={endpoint}"),
            Self::Mem => f.write_str("mem:"),
        }
    }
}

/// Reads what stands behind `dpdk:`. What is none of our options is the device's own.
fn dpdk(text: &str) -> Result<dpdk::Config, SpecError> {
    // DPDK's own arguments have commas too, so these are the rest of the text.
    let (text, eal) = match text.split_once(",eal=") {
        Some((text, eal)) => (text, Some(eal.to_owned())),
        None => (text, None),
    };
    let mut config = dpdk::Config { eal, ..dpdk::Config::new("") };
    for option in text.split(',') {
        match option.split_once('=') {
            Some(("endpoint", number)) => config.endpoint = endpoint(number)?,
            Some(("mtu", bytes)) => {
                config.mtu = Some(bytes.parse().map_err(|_| SpecError::BadMtu(bytes.to_owned()))?);
            }
            None if option == "shared" => config.shared = true,
            None if option == "lossy" => config.lossy = true,
            _ if config.device.is_empty() => config.device.push_str(option),
            _ => config.device.extend([",", option]),
        }
    }
    config.device = somewhere("dpdk", &config.device, "dpdk:0000:00:04.0, dpdk:memif:NAME or dpdk:vhost:PATH")?;
    Ok(config)
}

fn own_fabric() -> Fabric {
    thread_local!(static FABRIC: OnceCell<Fabric> = const { OnceCell::new() });
    FABRIC.with(|fabric| fabric.get_or_init(|| Fabric::new(0)).clone())
}

fn somewhere(driver: &'static str, place: &str, example: &'static str) -> Result<String, SpecError> {
    if place.is_empty() { Err(SpecError::Nowhere(driver, example)) } else { Ok(place.to_owned()) }
}

fn endpoint(number: &str) -> Result<u16, SpecError> {
    number.parse().map_err(|_| SpecError::BadEndpoint(number.to_owned()))
}

fn no_options<'a>(driver: &'static str, mut options: impl Iterator<Item = &'a str>) -> Result<(), SpecError> {
    options.next().map_or(Ok(()), |option| Err(no_option(driver, option, "none")))
}

fn no_option(driver: &'static str, option: &str, known: &'static str) -> SpecError {
    SpecError::NoSuchOption { driver, option: option.to_owned(), known }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{LinkAddr, TxSlot};

    #[test]
    fn every_driver_reads_back_as_it_was_written() {
        for text in [
            "uring:eth0",
            "uring:vA,endpoint=7",
            "uring:vA,endpoint=7,real-frames",
            "xdp:eth0",
            "xdp:eth0,endpoint=7,queue=2,native",
            "xdp:vA,generic",
            "udp:10.0.0.1:4000",
            "udp:[::1]:0",
            "dpdk:0000:00:04.0",
            "dpdk:memif:job,server,mtu=9000",
            "dpdk:memif:job,lossy",
            "dpdk:net_memif0,role=server,socket=/run/x,endpoint=3,shared,eal=-l 0,1 --log-level=8",
            "shm:job.1",
            "shm:job,endpoint=0",
            "mem:",
        ] {
            assert_eq!(text.parse::<Spec>().unwrap().to_string(), text);
        }
        assert_eq!("mem".parse(), Ok(Spec::Mem));
        let Ok(Spec::Uring { endpoint, real_frames, .. }) = "uring:a,real-frames,endpoint=3".parse() else { panic!() };
        assert_eq!((endpoint, real_frames), (3, true));
        // What is no option of ours is the device's.
        let Ok(Spec::Dpdk(config)) = "dpdk:net_memif0,lossy,role=server,shared".parse() else { panic!() };
        assert_eq!((config.device.as_str(), config.lossy, config.shared), ("net_memif0,role=server", true, true));
    }

    proptest! {
        #[test]
        fn whatever_is_read_reads_back_as_it_was_written(
            driver in "uring|xdp|udp|dpdk|shm|mem",
            place in "|eth0|10\\.0\\.0\\.1:[0-9]{1,5}|\\[fe80::1(%2)?\\]:80|[a-z0-9:.=]{1,12}",
            options in "(,|,endpoint=[0-9]{1,5}|,queue=[0-9]|,mtu=[0-9]{2,4}|,native|,generic|,real-frames|,shared|,lossy|,eal=[a-z ,=]{0,9}|,[a-z=]{0,5}){0,4}",
        ) {
            if let Ok(spec) = format!("{driver}:{place}{options}").parse::<Spec>() {
                prop_assert_eq!(spec.to_string().parse(), Ok(spec));
            }
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_what_would_be_right() {
        for (text, says) in [
            ("", "there is no driver ``; write uring:INTERFACE"),
            ("tcp:1", "there is no driver `tcp`"),
            ("uring", "uring what? write uring:INTERFACE"),
            ("uring:,real-frames", "uring what?"),
            ("uring:a,fast", "uring has no option `fast`; it has endpoint=N and real-frames"),
            ("uring:a,endpoint=x", "`x` is no endpoint; write endpoint=N"),
            ("uring:a,endpoint=70000", "from 0 to 65535"),
            ("xdp:", "xdp what? write xdp:INTERFACE"),
            ("xdp:a,queue=-1", "`-1` is no queue"),
            ("xdp:a,real-frames", "xdp has no option `real-frames`; it has endpoint=N, queue=N, native and generic"),
            ("dpdk:", "dpdk what? write dpdk:0000:00:04.0"),
            ("dpdk:shared,endpoint=3", "dpdk what? write dpdk:0000:00:04.0"),
            ("dpdk:memif:x,mtu=many", "`many` is no MTU"),
            ("udp:", "udp what? write udp:IP:PORT"),
            ("udp:10.0.0.1", "`10.0.0.1` is no address to bind to"),
            ("udp:10.0.0.1:1,endpoint=2", "udp has no option `endpoint=2`; it has none"),
            ("shm:", "shm what? write shm:DOMAIN"),
            ("shm:a,size=3", "shm has no option `size=3`; it has endpoint=N"),
            ("mem:x", "mem has no option `x`"),
            ("mem:,x", "mem has no option `x`"),
        ] {
            let error = text.parse::<Spec>().unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    /// Sends a frame to an address, and tells its own.
    struct Greet(LinkAddr);

    impl NicUser for Greet {
        type Out = LinkAddr;

        fn run<N: Nic + 'static>(self, mut nic: N) -> LinkAddr {
            let link = nic.link(self.0).unwrap();
            if let Some(slot) = nic.tx_slot(link, 4) {
                slot.commit();
            }
            nic.flush();
            nic.caps().addr
        }
    }

    #[test]
    fn a_spec_opens_its_driver() {
        let at = |spec: &str, to: &str| spec.parse::<Spec>().unwrap().open(Greet(to.parse().unwrap()));
        assert_eq!(at("mem:", "mem/3").unwrap().to_string(), "mem/0");
        let shm = format!("shm:spec-test-{},endpoint=5", std::process::id());
        assert_eq!(at(&shm, "shm/6").unwrap().to_string(), "shm/5");
        assert!(matches!(at("udp:127.0.0.1:0", "127.0.0.1:9").unwrap(), LinkAddr::Udp(_)));
        assert!(matches!(at("uring:no-such-if", "shm/1"), Err(OpenError::Uring(_))));
    }

    #[test]
    fn a_main_that_returns_an_error_says_what_to_type() {
        let error = "eth0".parse::<Spec>().unwrap_err();
        assert_eq!(format!("{error:?}"), error.to_string());
        let error = OpenError::from(shm::OpenError::BadDomain(String::new()));
        assert!(format!("{error:?}").contains("use 1 to "), "{error:?}");
    }
}
