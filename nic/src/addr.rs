//! Link addresses: where a frame goes to or comes from, in its driver's terms.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

/// The address of one endpoint on a link. Its text form is what `--nic`'s peers are written as.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum LinkAddr {
    /// An endpoint behind an Ethernet interface (`uring`): `02:00:00:00:0a:01/7`.
    Ether {
        /// Address of the interface.
        mac: [u8; 6],
        /// Which of the interface's endpoints; frames are steered to it by the driver's filter.
        endpoint: u16,
    },
    /// A UDP socket (`udp`): `10.0.0.1:4000`.
    Udp(SocketAddr),
    /// An endpoint of a shared-memory domain (`shm`): `shm/3`.
    Shm {
        /// Number of the endpoint within its domain.
        endpoint: u16,
    },
    /// A node of a simulated fabric (`mem`): `mem/5`.
    Mem {
        /// Number of the node.
        node: u32,
    },
}

/// A text that is no link address.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no link address; write `MAC/ENDPOINT` (02:00:00:00:0a:01/7), `IP:PORT`, `shm/N` or `mem/N`")]
pub struct AddrError(pub String);

debug_in_words!(AddrError);

impl fmt::Display for LinkAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ether { mac: [a, b, c, d, e, g], endpoint } => {
                write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}/{endpoint}")
            }
            Self::Udp(addr) => addr.fmt(f),
            Self::Shm { endpoint } => write!(f, "shm/{endpoint}"),
            Self::Mem { node } => write!(f, "mem/{node}"),
        }
    }
}

impl FromStr for LinkAddr {
    type Err = AddrError;

    fn from_str(text: &str) -> Result<Self, AddrError> {
        let refused = || AddrError(text.to_owned());
        if let Some(endpoint) = text.strip_prefix("shm/") {
            return Ok(Self::Shm { endpoint: endpoint.parse().map_err(|_| refused())? });
        }
        if let Some(node) = text.strip_prefix("mem/") {
            return Ok(Self::Mem { node: node.parse().map_err(|_| refused())? });
        }
        if let Some((mac, endpoint)) = text.split_once('/') {
            return Ok(Self::Ether {
                mac: parse_mac(mac).ok_or_else(refused)?,
                endpoint: endpoint.parse().map_err(|_| refused())?,
            });
        }
        text.parse().map(Self::Udp).map_err(|_| refused())
    }
}

/// Reads `02:00:00:00:0a:01`.
pub fn parse_mac(text: &str) -> Option<[u8; 6]> {
    let mut mac = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut mac {
        *byte = u8::from_str_radix(parts.next()?, 16).ok()?;
    }
    parts.next().is_none().then_some(mac)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_kind_of_address_reads_back_as_it_was_written() {
        for text in ["02:00:00:00:0a:01/7", "10.0.0.1:4000", "[::1]:9", "shm/3", "mem/5"] {
            assert_eq!(text.parse::<LinkAddr>().unwrap().to_string(), text);
        }
    }

    proptest! {
        #[test]
        fn whatever_is_read_reads_back_as_it_was_written(
            text in "(shm|mem|([0-9a-f]{1,2}:){5}[0-9A-F]{2})/[0-9]{1,10}|([0-9]{1,3}\\.){3}[0-9]{1,3}:[0-9]{1,5}|\\[[0-9a-f:.%]{2,9}\\]:[0-9]{1,5}",
        ) {
            if let Ok(addr) = text.parse::<LinkAddr>() {
                prop_assert_eq!(addr.to_string().parse(), Ok(addr));
            }
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "shm/", "shm/70000", "02:00:00:00:0a/7", "02:00:00:00:0a:01:05/7", "10.0.0.1", "mem/x"] {
            assert!(text.parse::<LinkAddr>().is_err(), "{text}");
        }
    }
}
