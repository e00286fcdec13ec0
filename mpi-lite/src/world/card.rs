//! What a process tells the others before anything is open.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use sidelane_nic::{parse_mac, rights};

use super::networks;
use super::tuning::{self, Tuning};
use crate::adi;

/// Where a process is, and by which networks it could be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Card {
    /// Equal for processes that reach each other through shared memory.
    pub host: String,
    /// The job's name as far as its processes can agree on one: that of rank 0 counts.
    pub job: String,
    /// Whose it is, which is part of the names by which it is found there.
    pub user: u32,
    /// This process may send raw frames.
    pub raw: bool,
    /// Of how its frames are protected ([`sidelane_proto::Protection::fingerprint`]).
    pub protection: u64,
    /// What it goes by, as far as it was told.
    pub tuning: Told,
    /// The networks that its host is in.
    pub nets: Vec<Net>,
}

/// What a process says of the tuning that it was told of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// Of none.
    Nothing,
    /// The hash of its line.
    Hash(u64),
    /// Its line: said by rank 0, for all.
    Whole(String),
}

/// One network that a host is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Net {
    /// The interface's name.
    pub interface: String,
    /// The host's address in it.
    pub ip: IpAddr,
    /// Length of the network's prefix.
    pub prefix: u8,
    /// The interface's address; `None` for one that carries no Ethernet frames.
    pub mac: Option<[u8; 6]>,
    /// Largest packet.
    pub mtu: usize,
}

/// A text that is no card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoCard;

impl Card {
    /// This process's, which has rank `rank`, and was told of `protection` and `tuning`.
    pub fn of_this_process(rank: usize, protection: u64, tuning: Option<&Tuning>) -> Self {
        let line = tuning.map(Tuning::to_line);
        Self {
            tuning: match line {
                None => Told::Nothing,
                Some(line) if rank == 0 => Told::Whole(line),
                Some(line) => Told::Hash(tuning::hash(&line)),
            },
            protection,
            host: adi::host_identity(),
            job: networks::random_name(),
            user: rights::own_user(),
            raw: networks::may_send_raw(),
            nets: networks::all(),
        }
    }
}

impl Told {
    /// The hash of whatever it is.
    pub fn hash(&self) -> Option<u64> {
        match self {
            Self::Nothing => None,
            Self::Hash(hash) => Some(*hash),
            Self::Whole(line) => Some(tuning::hash(line)),
        }
    }
}

impl Net {
    /// The network's own address: equal for its members.
    pub fn network(&self) -> (IpAddr, u8) {
        let masked = match self.ip {
            IpAddr::V4(ip) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix.min(32))).unwrap_or(0);
                IpAddr::V4((u32::from(ip) & mask).into())
            }
            IpAddr::V6(ip) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix.min(128))).unwrap_or(0);
                IpAddr::V6((u128::from(ip) & mask).into())
            }
        };
        (masked, self.prefix)
    }
}

impl fmt::Display for Card {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let raw = if self.raw { "raw" } else { "-" };
        write!(f, "{VERSION} {} {} {} {raw} {:x}", self.host, self.job, self.user, self.protection)?;
        match &self.tuning {
            Told::Nothing => write!(f, "\n-")?,
            Told::Hash(hash) => write!(f, "\n{hash:x}")?,
            Told::Whole(line) => write!(f, "\n{line}")?,
        }
        self.nets.iter().try_for_each(|net| {
            write!(f, "\n{} {} {} {}", net.interface, net.ip, net.prefix, net.mtu)?;
            let Some(mac) = net.mac else { return Ok(()) };
            f.write_str(" ")?;
            mac.iter().enumerate().try_for_each(|(at, byte)| write!(f, "{}{byte:02x}", if at == 0 { "" } else { ":" }))
        })
    }
}

impl FromStr for Card {
    type Err = NoCard;

    fn from_str(text: &str) -> Result<Self, NoCard> {
        let mut lines = text.lines();
        let mut words = lines.next().unwrap_or("").split(' ');
        if words.next() != Some(VERSION) {
            return Err(NoCard);
        }
        let mut word = || words.next().ok_or(NoCard);
        let (host, job, user, raw) = (word()?, word()?, word()?.parse().map_err(|_| NoCard)?, word()?);
        let protection = u64::from_str_radix(words.next().ok_or(NoCard)?, 16).map_err(|_| NoCard)?;
        let tuning = match lines.next().ok_or(NoCard)? {
            "-" => Told::Nothing,
            line if line.starts_with('{') => Told::Whole(line.to_owned()),
            hash => Told::Hash(u64::from_str_radix(hash, 16).map_err(|_| NoCard)?),
        };
        let nets = lines.map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let (&[interface, ip, prefix, mtu], mac) = words.split_first_chunk().ok_or(NoCard)?;
            Ok(Net {
                interface: interface.to_owned(),
                ip: ip.parse().map_err(|_| NoCard)?,
                prefix: prefix.parse().map_err(|_| NoCard)?,
                mtu: mtu.parse().map_err(|_| NoCard)?,
                mac: mac.first().map(|text| parse_mac(text).ok_or(NoCard)).transpose()?,
            })
        });
        let nets = nets.collect::<Result<_, NoCard>>()?;
        Ok(Self { host: host.to_owned(), job: job.to_owned(), user, raw: raw == "raw", protection, tuning, nets })
    }
}

/// Processes of one job are of one version.
const VERSION: &str = concat!("sidelane-", env!("CARGO_PKG_VERSION"));
