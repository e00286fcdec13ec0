//! The side that looks. What it reads may be anybody's: nothing in it is believed before it is checked.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use super::memory::Memory;
use super::seqlock;

/// Another process's page, mapped.
pub struct View {
    memory: Memory,
    layout: Layout,
}

/// What stands in a page once and for all.
pub(super) struct Layout {
    pid: u32,
    fields: Vec<(Kind, String)>,
    facts: Vec<(String, String)>,
}

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// May fall.
    Gauge,
    /// Of a newer version's kind.
    Other,
}

/// One value with its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// What it counts.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// How much.
    pub value: u64,
}

/// The values of a page at one moment.
pub type Reading = Vec<Value>;

/// Why a page cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    /// It could not be mapped.
    #[error("{0}")]
    System(#[from] io::Error),
    /// It is no page, or none yet.
    #[error("no page of counters")]
    NoPage,
    /// It is of a layout that this version does not know.
    #[error("a page of layout {0}, and this version reads {VERSION}")]
    Version(u64),
}

impl View {
    /// Maps the page behind `file`.
    pub fn new(file: File) -> Result<Self, ViewError> {
        let memory = Memory::of(file)?;
        let layout = Layout::read(memory.words())?;
        Ok(Self { memory, layout })
    }

    /// The process id that the page's process has within its own namespace.
    pub fn pid(&self) -> u32 {
        self.layout.pid
    }

    /// What never changes: names and texts.
    pub fn facts(&self) -> &[(String, String)] {
        &self.layout.facts
    }

    /// The fact of this name.
    pub fn fact(&self, name: &str) -> Option<&str> {
        self.layout.fact(name)
    }

    /// The values, all of one moment. `None`: they were being written at each of some tries, because the process is
    /// stopped in the middle of it.
    pub fn read(&self) -> Option<Reading> {
        self.layout.values(self.memory.words())
    }
}

impl Layout {
    pub(super) fn read(words: &[AtomicU64]) -> Result<Self, ViewError> {
        if words.len() < VALUES_AT {
            return Err(ViewError::NoPage);
        }
        // Pairs with the Release in `Page::new`.
        if words[MAGIC_AT].load(Ordering::Acquire) != MAGIC {
            return Err(ViewError::NoPage);
        }
        let word = |at: usize| words[at].load(Ordering::Relaxed);
        if word(VERSION_AT) != VERSION {
            return Err(ViewError::Version(word(VERSION_AT)));
        }
        let room = words.len() - VALUES_AT;
        let count = usize::try_from(word(COUNT_AT)).ok().filter(|count| *count <= room).ok_or(ViewError::NoPage)?;
        let text = usize::try_from(word(TEXT_LEN_AT)).ok().filter(|len| len.div_ceil(8) <= room - count);
        let text_len = text.ok_or(ViewError::NoPage)?;
        let bytes = words[VALUES_AT + count..].iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes());
        let text = String::from_utf8(bytes.take(text_len).collect()).map_err(|_| ViewError::NoPage)?;
        let (mut fields, mut facts) = (Vec::new(), Vec::new());
        for line in text.lines() {
            let (kind, rest) = line.split_once(' ').ok_or(ViewError::NoPage)?;
            let (name, fact) = rest.split_once(' ').unwrap_or((rest, ""));
            // Names and facts end up on somebody's terminal.
            if !is_name(name) || fact.contains(char::is_control) {
                return Err(ViewError::NoPage);
            }
            match kind {
                "fact" => facts.push((name.to_owned(), fact.to_owned())),
                "counter" => fields.push((Kind::Counter, name.to_owned())),
                "gauge" => fields.push((Kind::Gauge, name.to_owned())),
                _ => fields.push((Kind::Other, name.to_owned())),
            }
        }
        let pid = u32::try_from(word(PID_AT)).map_err(|_| ViewError::NoPage)?;
        if fields.len() == count { Ok(Self { pid, fields, facts }) } else { Err(ViewError::NoPage) }
    }

    pub(super) fn fact(&self, name: &str) -> Option<&str> {
        self.facts.iter().find(|(known, _)| known == name).map(|(_, text)| text.as_str())
    }

    pub(super) fn values(&self, words: &[AtomicU64]) -> Option<Reading> {
        let cells = &words[VALUES_AT..VALUES_AT + self.fields.len()];
        let values = (0..TRIES).find_map(|_| {
            seqlock::read(&words[TURN_AT], cells).or_else(|| {
                std::thread::yield_now();
                None
            })
        })?;
        let fields = self.fields.iter().zip(values);
        Some(fields.map(|((kind, name), value)| Value { name: name.clone(), kind: *kind, value }).collect())
    }
}

/// True of what names a value.
pub(super) fn is_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-.".contains(&byte);
    !name.is_empty() && name.len() <= NAME_MAX && name.bytes().all(fits)
}

pub(super) const MAGIC: u64 = u64::from_ne_bytes(*b"SIDELANE");
/// The layout that this code reads and writes.
pub(super) const VERSION: u64 = 1;
pub(super) const MAGIC_AT: usize = 0;
pub(super) const VERSION_AT: usize = 1;
pub(super) const PID_AT: usize = 2;
pub(super) const COUNT_AT: usize = 3;
pub(super) const TEXT_LEN_AT: usize = 4;
pub(super) const TURN_AT: usize = 5;
pub(super) const VALUES_AT: usize = 8;
const NAME_MAX: usize = 64;
/// A writer needs some 50 ns every ten milliseconds, unless it is preempted there.
const TRIES: u32 = 1000;
