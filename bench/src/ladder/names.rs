//! What rungs, drivers, patterns and regimes are called: on command lines, in tables and in files.

use std::fmt;
use std::str::FromStr;

use super::{NicKind, Regime, Rung};
use crate::pattern::Kind;

macro_rules! names {
    ($of:ident, $what:literal, $($variant:ident = $name:literal),+) => {
        impl fmt::Display for $of {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(match self { $(Self::$variant => $name),+ })
            }
        }
        impl FromStr for $of {
            type Err = NoSuch;
            fn from_str(text: &str) -> Result<Self, NoSuch> {
                match text {
                    $($name => Ok(Self::$variant),)+
                    _ => Err(NoSuch { what: $what, given: text.to_owned(), known: &[$($name),+] }),
                }
            }
        }
    };
}

names!(
    Rung,
    "rung",
    TcpBlock = "tcp-block",
    TcpPoll = "tcp-poll",
    UdpPoll = "udp-poll",
    SmoltcpTcp = "smoltcp-tcp",
    Raw = "raw",
    Proto = "proto",
    ProtoAuthenticated = "proto-authenticated",
    ProtoEncrypted = "proto-encrypted",
    ProtoLossless = "proto-lossless",
    ProtoLossy = "proto-lossy",
    Am = "am",
    Mpi = "mpi",
    Put = "put",
    Get = "get"
);
names!(
    NicKind,
    "driver",
    Uring = "uring",
    Xdp = "xdp",
    Udp = "udp",
    Shm = "shm",
    Memif = "memif",
    Vhost = "vhost",
    Dpdk = "dpdk",
    Mem = "mem"
);
names!(Kind, "pattern", PingPong = "ping-pong", Flood = "flood", Bandwidth = "bandwidth");
names!(Regime, "regime", DefaultOffloads = "default-offloads", RealFrames = "real-frames", Wire = "wire");

/// A name that stands for nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no {what} `{given}`; there are {}", known.join(", "))]
pub struct NoSuch {
    what: &'static str,
    given: String,
    known: &'static [&'static str],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_reads_back() {
        for rung in Rung::ALL {
            assert_eq!(rung.to_string().parse(), Ok(rung));
            assert_eq!(serde_json::to_value(rung).unwrap(), rung.to_string());
        }
        for regime in [Regime::DefaultOffloads, Regime::RealFrames, Regime::Wire] {
            assert_eq!(serde_json::to_value(regime).unwrap(), regime.to_string());
        }
        for kind in [Kind::PingPong, Kind::Flood, Kind::Bandwidth] {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.to_string());
        }
        let refused = "token-ring".parse::<Rung>().unwrap_err();
        assert!(refused.to_string().contains("tcp-block, tcp-poll"));
    }
}
