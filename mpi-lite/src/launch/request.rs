//! What ranks say.

use std::fmt;

use super::line::{Line, Malformed};

/// A line from a rank to its launcher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request<'a> {
    /// The first one over a descriptor: the protocol's version.
    Init {
        /// 1.
        version: u32,
        /// 1.
        subversion: u32,
    },
    /// The first one over a port: who is it that connects?
    InitAck {
        /// What the environment calls `PMI_ID`.
        id: usize,
    },
    /// How long may names, keys and values be?
    GetMaxes,
    /// Which of several programs am I?
    GetAppnum,
    /// How many ranks could there be?
    GetUniverseSize,
    /// What is the key-value space called?
    GetMyKvsname,
    /// Others shall find this.
    Put {
        /// The key-value space.
        space: &'a str,
        /// One word.
        key: &'a str,
        /// One word.
        value: &'a str,
    },
    /// What did others put?
    Get {
        /// The key-value space.
        space: &'a str,
        /// One word.
        key: &'a str,
    },
    /// What did all ranks put, from this one on? Only a launcher that has put `GET_MANY` knows it.
    GetMany {
        /// The key-value space.
        space: &'a str,
        /// Their keys, each of which has the rank's number where this has `*`.
        keys: &'a str,
        /// The first rank.
        from: usize,
    },
    /// Tell me when all are here.
    BarrierIn,
    /// My end will be as it should.
    Finalize,
    /// End everybody. Not answered.
    Abort {
        /// The job's exit code.
        code: i32,
        /// For people; empty where the rank gave none.
        why: &'a str,
    },
    /// Tell me of ranks that end too early. Only `sidelane run --keep-going` knows it.
    WatchRanks,
    /// Publish the name of a service, unpublish it, or look it up.
    Name(NameCommand),
    /// Start more ranks. Goes on for several lines, the last of which is [`Request::SPAWN_END`].
    Spawn,
}

/// What a rank may ask about the names of services (MPI-4.1 11.4.4), which whoever asks may not get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameCommand {
    /// Others shall find a port by this name.
    Publish,
    /// No longer.
    Unpublish,
    /// Which port is it?
    Lookup,
}

impl NameCommand {
    /// Its name in requests is this and `_name`, in replies this and `_result`.
    pub const fn verb(self) -> &'static str {
        match self {
            Self::Publish => "publish",
            Self::Unpublish => "unpublish",
            Self::Lookup => "lookup",
        }
    }
}

/// A key that is there from the start where [`Request::GetMany`] is known.
pub const GET_MANY: &str = "sidelane_get_many";

impl<'a> Request<'a> {
    /// Ends a spawn request.
    pub const SPAWN_END: &'static [u8] = b"endcmd";

    /// Understands a line. `None` when the command is one that we do not know.
    pub fn parse(line: &Line<'a>) -> Result<Option<Self>, Malformed> {
        Ok(Some(match line.name {
            "init" => Self::Init { version: line.number("pmi_version")?, subversion: line.number("pmi_subversion")? },
            "initack" => Self::InitAck { id: line.number("pmiid")? },
            "get_maxes" => Self::GetMaxes,
            "get_appnum" => Self::GetAppnum,
            "get_universe_size" => Self::GetUniverseSize,
            "get_my_kvsname" => Self::GetMyKvsname,
            "put" => Self::Put { space: line.need("kvsname")?, key: line.need("key")?, value: line.need("value")? },
            "get" => Self::Get { space: line.need("kvsname")?, key: line.need("key")? },
            "get_many" => {
                Self::GetMany { space: line.need("kvsname")?, keys: line.need("keys")?, from: line.number("from")? }
            }
            "barrier_in" => Self::BarrierIn,
            "finalize" => Self::Finalize,
            // MPICH gives the code as `exitcode`; some clients give none.
            "abort" => Self::Abort { code: line.number_or("exitcode", 1)?, why: line.get("error_msg").unwrap_or("") },
            "watch_ranks" => Self::WatchRanks,
            "publish_name" => Self::Name(NameCommand::Publish),
            "unpublish_name" => Self::Name(NameCommand::Unpublish),
            "lookup_name" => Self::Name(NameCommand::Lookup),
            "spawn" => Self::Spawn,
            _ => return Ok(None),
        }))
    }
}

/// The line, without its newline. Keys and values have to be words ([`Line::is_word`]).
impl fmt::Display for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Init { version, subversion } => {
                write!(f, "cmd=init pmi_version={version} pmi_subversion={subversion}")
            }
            Self::InitAck { id } => write!(f, "cmd=initack pmiid={id}"),
            Self::GetMaxes => f.write_str("cmd=get_maxes"),
            Self::GetAppnum => f.write_str("cmd=get_appnum"),
            Self::GetUniverseSize => f.write_str("cmd=get_universe_size"),
            Self::GetMyKvsname => f.write_str("cmd=get_my_kvsname"),
            Self::Put { space, key, value } => write!(f, "cmd=put kvsname={space} key={key} value={value}"),
            Self::Get { space, key } => write!(f, "cmd=get kvsname={space} key={key}"),
            Self::GetMany { space, keys, from } => write!(f, "cmd=get_many kvsname={space} keys={keys} from={from}"),
            Self::BarrierIn => f.write_str("cmd=barrier_in"),
            Self::Finalize => f.write_str("cmd=finalize"),
            Self::Abort { code, why: "" } => write!(f, "cmd=abort exitcode={code}"),
            Self::Abort { code, why } => write!(f, "cmd=abort exitcode={code} error_msg={why}"),
            Self::WatchRanks => f.write_str("cmd=watch_ranks"),
            Self::Name(command) => write!(f, "cmd={}_name", command.verb()),
            Self::Spawn => f.write_str("mcmd=spawn"),
        }
    }
}
