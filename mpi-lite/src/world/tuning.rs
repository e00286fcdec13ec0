//! Thresholds and the collectives' table as `sidelane tune` has measured them: their file, and which one a job goes by.
//!
//! Rank 0's counts and is told to the others, so that one file on one host is enough. Who was told of another one by
//! [`VARIABLE`] refuses: a job whose ranks disagree on a collective's algorithm waits for ever.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::{Deserialize, Serialize};
use sidelane_nic::spec::Spec;

use crate::adi::{Config, Limits};
use crate::coll::{Table, TableError};

/// What was measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tuning {
    /// Names this form: [`SCHEMA`].
    pub schema: String,
    /// What it was measured on, for readers.
    #[serde(default)]
    pub machine: String,
    /// Where protocols change, by driver (`shm`, `uring`, ...). Drivers that are not there keep what is built in.
    #[serde(default)]
    pub limits: BTreeMap<String, Limits>,
    /// Rules of the collectives' table, in the form of [`Table`]'s lines; without one the table that is built in counts, and without one
    /// of two levels all calls are on one.
    #[serde(default)]
    pub collectives: Vec<String>,
}

/// Why there is no tuning where one was asked for.
#[derive(Debug, thiserror::Error)]
pub enum TuningError {
    /// The file.
    #[error("cannot read the tuning file {}: {source}", file.display())]
    Read {
        /// Which one.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// What it says.
    #[error("the tuning file {} makes no sense: {error}. `sidelane tune` writes a new one", file.display())]
    Sense {
        /// Which one.
        file: PathBuf,
        /// Why.
        error: Nonsense,
    },
}

/// A text that is no tuning.
#[derive(Debug, thiserror::Error)]
pub enum Nonsense {
    /// It has another form.
    #[error(transparent)]
    Form(#[from] serde_json::Error),
    /// It is of another version.
    #[error("its schema is `{0}`, not `{SCHEMA}`")]
    Schema(String),
    /// A rule is none.
    #[error("collectives, {0}")]
    Table(#[from] TableError),
    /// More is sent unasked than a peer has room for.
    #[error("{driver}: at most {most} bytes may go without being asked for")]
    TooMuch {
        /// Whose limits.
        driver: String,
        /// The bound.
        most: usize,
    },
}

impl Tuning {
    /// Measured on `machine`.
    pub fn new(machine: String, limits: BTreeMap<String, Limits>, table: Option<&Table>) -> Self {
        let collectives = table.map(lines).unwrap_or_default();
        Self { schema: SCHEMA.to_owned(), machine, limits, collectives }
    }

    /// Reads a text that is one.
    pub fn parse(text: &str) -> Result<Self, Nonsense> {
        let mut tuning: Self = serde_json::from_str(text)?;
        if tuning.schema == ONE_LEVEL {
            tuning.schema = SCHEMA.to_owned();
            if !tuning.collectives.is_empty() {
                tuning.collectives.splice(..0, lines(&Table::new(Table::two_levels().collect())));
            }
        }
        if tuning.schema != SCHEMA {
            return Err(Nonsense::Schema(tuning.schema));
        }
        let most = Config::default().credit / 2;
        if let Some((driver, _)) = tuning.limits.iter().find(|(_, limits)| limits.eager_max.max(limits.prefix) > most) {
            return Err(Nonsense::TooMuch { driver: driver.clone(), most });
        }
        tuning.parse_table()?;
        Ok(tuning)
    }

    /// Its text, for a file.
    pub fn to_text(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("plain fields, and keys that are strings");
        text.push('\n');
        text
    }

    /// Its text in one line, for a message; equal for equal ones.
    pub(super) fn to_line(&self) -> String {
        serde_json::to_string(self).expect("plain fields, and keys that are strings")
    }

    /// `config` with the limits of the drivers that a process opens.
    pub fn apply(&self, config: &Config, on_host: Option<&Spec>, off_host: Option<&Spec>) -> Config {
        let of = |spec: Option<&Spec>| spec.and_then(|spec| self.limits.get(driver(spec))).copied();
        let off = of(off_host);
        Config {
            on_host: of(on_host).unwrap_or(config.on_host),
            paired: off.unwrap_or(config.paired),
            off_host: off.unwrap_or(config.off_host),
            ..*config
        }
    }

    /// The collectives' table; the one that is built in, where nothing was measured.
    pub fn table(&self) -> Table {
        self.parse_table().unwrap_or_default()
    }

    fn parse_table(&self) -> Result<Table, TableError> {
        if self.collectives.is_empty() { Ok(Table::default()) } else { self.collectives.join("\n").parse() }
    }

    /// Reads a file.
    pub fn read(file: &Path) -> Result<Self, TuningError> {
        let text = fs::read_to_string(file).map_err(|source| TuningError::Read { file: file.to_owned(), source })?;
        Self::parse(&text).map_err(|error| TuningError::Sense { file: file.to_owned(), error })
    }

    /// What this process was told of by [`VARIABLE`]; by rank 0 also what is where `sidelane tune` puts it.
    pub(super) fn find(rank: usize) -> Result<Option<Self>, TuningError> {
        match std::env::var_os(VARIABLE) {
            Some(file) if file.is_empty() => Ok(None),
            Some(file) => Self::read(Path::new(&file)).map(Some),
            None if rank > 0 => Ok(None),
            None => match usual_file().filter(|file| file.exists()) {
                Some(file) => Self::read(&file).map(Some),
                None => Ok(None),
            },
        }
    }
}

/// The rules of a table, without its heading.
fn lines(table: &Table) -> Vec<String> {
    let text = table.to_string();
    let rules = text.lines().filter(|line| !line.starts_with('#'));
    rules.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

/// Names a driver in a tuning, as `sidelane tune --nic` does.
pub fn driver(spec: &Spec) -> &'static str {
    match spec {
        Spec::Uring { .. } => "uring",
        Spec::Xdp { .. } => "xdp",
        Spec::Udp { .. } => "udp",
        Spec::Dpdk(config) => match config.device.split(':').next() {
            Some("memif") => "memif",
            Some("vhost") => "vhost",
            _ => "dpdk",
        },
        Spec::Shm { .. } => "shm",
        Spec::Mem => "mem",
    }
}

/// `$XDG_CONFIG_HOME/sidelane/tuning.json`, or where that is by default; `None` for a user without a home.
pub fn usual_file() -> Option<PathBuf> {
    // Relative ones count as unset (XDG Base Directory Specification).
    let set = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let config = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")))?;
    Some(config.join("sidelane/tuning.json"))
}

/// Equal for texts that are; FNV-1a (Fowler, Noll, Vo), which is the same on every host.
pub(super) fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// The environment's name for a tuning file; empty for none at all.
pub const VARIABLE: &str = "SIDELANE_TUNING";

/// The name of the file's form. It changes when a field changes its meaning or goes away.
pub const SCHEMA: &str = "sidelane-tuning/2";

/// The form before, whose tables had no say in two levels. It is read as if it began with the rules for them that are built in.
const ONE_LEVEL: &str = "sidelane-tuning/1";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coll::{Algorithm, Case, Collective, Rule};

    fn tuning() -> Tuning {
        let rule =
            Rule { collective: Collective::Allreduce, ranks: 2..=4, bytes: 0..=usize::MAX, algorithm: Algorithm::Ring };
        let limits = Limits { eager_max: 1000, prefix: 100, put_min: 2000, pull_min: usize::MAX };
        Tuning::new("a machine".to_owned(), [("uring".to_owned(), limits)].into(), Some(&Table::new(vec![rule])))
    }

    #[test]
    fn drivers_have_the_names_that_tune_writes() {
        for (spec, name) in [
            ("dpdk:memif:pair,server", "memif"),
            ("dpdk:vhost:/run/v.sock", "vhost"),
            ("dpdk:0000:00:04.0", "dpdk"),
            ("dpdk:net_memif0,role=server", "dpdk"),
            ("uring:eth0", "uring"),
        ] {
            assert_eq!(driver(&spec.parse().unwrap()), name, "{spec}");
        }
    }

    #[test]
    fn a_tuning_reads_back_as_it_was_written() {
        let tuning = tuning();
        assert_eq!(Tuning::parse(&tuning.to_text()).unwrap(), tuning);
        assert_eq!(Tuning::parse(&tuning.to_line()).unwrap(), tuning);
        assert!(!tuning.to_text().contains("pull_min"), "never is not a number: {}", tuning.to_text());
        assert_eq!(tuning.table().rules().len(), 1);
    }

    #[test]
    fn limits_are_those_of_the_drivers_that_are_opened() {
        let (shm, uring): (Spec, Spec) = ("shm:x".parse().unwrap(), "uring:x".parse().unwrap());
        let config = Config::default();
        let tuned = tuning().apply(&config, Some(&shm), Some(&uring));
        assert_eq!((tuned.on_host, tuned.paired.eager_max, tuned.off_host.eager_max), (config.on_host, 1000, 1000));
        assert_eq!(tuning().apply(&config, Some(&shm), None).off_host, config.off_host);
    }

    #[test]
    fn without_rules_the_table_is_the_one_that_is_built_in() {
        let none = Tuning { collectives: Vec::new(), ..tuning() };
        let case = Case { collective: Collective::Allreduce, ranks: 3, hosts: 3, bytes: 8, commutative: true };
        assert_eq!(none.table().choose(case), Algorithm::RecursiveDoubling);
        assert_eq!(tuning().table().choose(case), Algorithm::Ring);
    }

    #[test]
    fn a_table_of_the_first_form_leaves_two_levels_as_they_are_built_in() {
        let choose = |tuning: &Tuning, hosts| {
            let case = Case { collective: Collective::Allreduce, ranks: 4, hosts, bytes: 8, commutative: true };
            tuning.table().choose(case)
        };
        let former = Tuning::parse(&tuning().to_text().replace("tuning/2", "tuning/1")).unwrap();
        assert_eq!([2, 4].map(|hosts| choose(&former, hosts)), [Algorithm::TwoLevel, Algorithm::Ring]);
        assert_eq!([2, 4].map(|hosts| choose(&tuning(), hosts)), [Algorithm::Ring, Algorithm::Ring]);
        assert_eq!(Tuning::parse(&former.to_line()).unwrap(), former);
    }

    #[test]
    fn nonsense_is_refused_with_its_reason() {
        let with = |from: &str, to: &str| tuning().to_line().replace(from, to);
        for (text, says) in [
            (String::new(), "EOF"),
            (with("tuning/2", "tuning/9"), "its schema is `sidelane-tuning/9`, not `sidelane-tuning/2`"),
            (with("1000", "900000"), "uring: at most 327680 bytes"),
            (with("\"prefix\"", "\"suffix\""), "unknown field `suffix`"),
            (with("ring\"]", "rung\"]"), "line 1: `rung` is no algorithm of allreduce"),
        ] {
            let error = Tuning::parse(&text).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn texts_that_differ_have_other_hashes() {
        assert_ne!(hash("a"), hash("b"));
        assert_eq!(hash(""), 0xcbf2_9ce4_8422_2325, "the published offset");
    }
}
