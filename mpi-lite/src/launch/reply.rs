//! What launchers say.

use std::fmt;

use super::line::{Line, Malformed};
use super::request::NameCommand;

/// A line from a launcher to a rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply<'a> {
    /// To [`super::Request::Init`].
    ResponseToInit {
        /// The launcher's version.
        version: u32,
        /// The launcher's subversion.
        subversion: u32,
        /// 0, unless the versions do not fit.
        rc: i32,
    },
    /// To [`super::Request::InitAck`]. Followed by [`Reply::Set`] of size, rank and debug.
    InitAck,
    /// What an environment variable would have told.
    Set {
        /// `size`, `rank` or `debug`.
        key: &'a str,
        /// A number.
        value: &'a str,
    },
    /// To [`super::Request::GetMaxes`].
    Maxes(Maxes),
    /// To [`super::Request::GetAppnum`]; negative when the launcher does not know.
    Appnum(i32),
    /// To [`super::Request::GetUniverseSize`]; negative when the launcher does not know.
    UniverseSize(i32),
    /// To [`super::Request::GetMyKvsname`].
    MyKvsname(&'a str),
    /// To [`super::Request::Put`].
    PutResult(Result<(), &'a str>),
    /// To [`super::Request::Get`].
    GetResult(Result<&'a str, &'a str>),
    /// To [`super::Request::GetMany`]: at least one value, as many as fit a line, with a `;` between two.
    ManyResult(Result<&'a str, &'a str>),
    /// To [`super::Request::BarrierIn`], when all ranks have said it.
    BarrierOut,
    /// To [`super::Request::Finalize`].
    FinalizeAck,
    /// To [`super::Request::WatchRanks`].
    Watching,
    /// Unasked, to who watches: a rank has ended that others count on.
    RankGone {
        /// Which.
        rank: usize,
    },
    /// To [`super::Request::Name`]: none of it is done.
    NameRefused(NameCommand),
    /// To [`super::Request::Spawn`].
    SpawnResult(Result<(), &'a str>),
}

/// What keys and values have to keep within, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Maxes {
    /// The longest name of a key-value space.
    pub space: usize,
    /// The longest key.
    pub key: usize,
    /// The longest value.
    pub value: usize,
}

impl<'a> Reply<'a> {
    /// Understands a line. `None` when the command is one that we do not know.
    pub fn parse(line: &Line<'a>) -> Result<Option<Self>, Malformed> {
        // 0 is success everywhere, and not every launcher says it everywhere.
        let rc: i32 = line.number_or("rc", 0)?;
        let outcome = || if rc == 0 { Ok(()) } else { Err(line.get("msg").unwrap_or("no reason given")) };
        Ok(Some(match line.name {
            "response_to_init" => Self::ResponseToInit {
                version: line.number_or("pmi_version", 1)?,
                subversion: line.number_or("pmi_subversion", 1)?,
                rc,
            },
            "initack" => Self::InitAck,
            "set" => {
                let keys = ["size", "rank", "debug"].into_iter();
                let mut found = keys.filter_map(|key| line.get(key).map(|value| Self::Set { key, value }));
                found.next().ok_or(Malformed::Lacks("size"))?
            }
            "maxes" => Self::Maxes(Maxes {
                space: line.number("kvsname_max")?,
                key: line.number("keylen_max")?,
                value: line.number("vallen_max")?,
            }),
            "appnum" => Self::Appnum(line.number("appnum")?),
            "universe_size" => Self::UniverseSize(line.number("size")?),
            "my_kvsname" => Self::MyKvsname(line.need("kvsname")?),
            "put_result" => Self::PutResult(outcome()),
            "get_result" => match outcome() {
                Ok(()) => Self::GetResult(Ok(line.need("value")?)),
                Err(why) => Self::GetResult(Err(why)),
            },
            "many_result" => match outcome() {
                Ok(()) => Self::ManyResult(Ok(line.need("values")?)),
                Err(why) => Self::ManyResult(Err(why)),
            },
            "barrier_out" => Self::BarrierOut,
            "finalize_ack" => Self::FinalizeAck,
            "watching" => Self::Watching,
            "rank_gone" => Self::RankGone { rank: line.number("rank")? },
            "publish_result" => Self::NameRefused(NameCommand::Publish),
            "unpublish_result" => Self::NameRefused(NameCommand::Unpublish),
            "lookup_result" => Self::NameRefused(NameCommand::Lookup),
            "spawn_result" => Self::SpawnResult(outcome()),
            _ => return Ok(None),
        }))
    }
}

/// The line, without its newline.
impl fmt::Display for Reply<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ResponseToInit { version, subversion, rc } => {
                write!(f, "cmd=response_to_init pmi_version={version} pmi_subversion={subversion} rc={rc}")
            }
            Self::InitAck => f.write_str("cmd=initack"),
            Self::Set { key, value } => write!(f, "cmd=set {key}={value}"),
            Self::Maxes(Maxes { space, key, value }) => {
                write!(f, "cmd=maxes kvsname_max={space} keylen_max={key} vallen_max={value}")
            }
            Self::Appnum(number) => write!(f, "cmd=appnum appnum={number}"),
            Self::UniverseSize(size) => write!(f, "cmd=universe_size size={size}"),
            Self::MyKvsname(name) => write!(f, "cmd=my_kvsname kvsname={name}"),
            Self::PutResult(outcome) => write!(f, "cmd=put_result {}", Outcome(*outcome)),
            Self::GetResult(Ok(value)) => write!(f, "cmd=get_result rc=0 msg=success value={value}"),
            Self::GetResult(Err(why)) => write!(f, "cmd=get_result rc=-1 msg={why} value=unknown"),
            Self::ManyResult(Ok(values)) => write!(f, "cmd=many_result rc=0 values={values}"),
            Self::ManyResult(Err(why)) => write!(f, "cmd=many_result rc=-1 msg={why}"),
            Self::BarrierOut => f.write_str("cmd=barrier_out"),
            Self::FinalizeAck => f.write_str("cmd=finalize_ack"),
            Self::Watching => f.write_str("cmd=watching"),
            Self::RankGone { rank } => write!(f, "cmd=rank_gone rank={rank}"),
            // Clients up to MPICH 3 look at `info` alone, later ones at `rc`.
            Self::NameRefused(command) => {
                write!(f, "cmd={}_result info=fail rc=-1 msg=name_publishing_is_not_supported", command.verb())
            }
            Self::SpawnResult(outcome) => write!(f, "cmd=spawn_result {}", Outcome(*outcome)),
        }
    }
}

struct Outcome<'a>(Result<(), &'a str>);

impl fmt::Display for Outcome<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Ok(()) => f.write_str("rc=0 msg=success"),
            Err(why) => write!(f, "rc=-1 msg={why}"),
        }
    }
}
