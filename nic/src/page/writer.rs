//! The side that counts.

use std::fmt::Write as _;
use std::io;
use std::sync::atomic::Ordering;

use super::memory::Memory;
use super::{seqlock, view};

/// One value of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Lower-case letters, digits, `_`, `-` and `.`.
    pub name: &'static str,
    /// True of what only grows.
    pub counts: bool,
}

/// A page that this process shows. Written by one thread.
pub struct Page {
    memory: Memory,
    values: usize,
}

impl Page {
    /// A page for `fields`, all zero, with `facts` that never change. Costs a descriptor and a page of memory.
    pub fn new(fields: &[Field], facts: &[(&str, &str)]) -> io::Result<Self> {
        let mut text = String::new();
        for Field { name, counts } in fields {
            debug_assert!(view::is_name(name), "{name}");
            let _ = writeln!(text, "{} {name}", if *counts { "counter" } else { "gauge" });
        }
        for (name, fact) in facts {
            let _ = writeln!(text, "fact {name} {}", fact.replace(char::is_control, " "));
        }
        let text_words = text.len().div_ceil(8);
        let memory = Memory::new(view::VALUES_AT + fields.len() + text_words)?;
        let words = memory.words();
        for (word, value) in [
            (view::VERSION_AT, view::VERSION),
            (view::PID_AT, u64::from(std::process::id())),
            (view::COUNT_AT, fields.len() as u64),
            (view::TEXT_LEN_AT, text.len() as u64),
        ] {
            words[word].store(value, Ordering::Relaxed);
        }
        for (word, bytes) in words[view::VALUES_AT + fields.len()..].iter().zip(text.as_bytes().chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_ne_bytes(whole), Ordering::Relaxed);
        }
        // Last, so that whoever sees it sees the rest: pairs with the Acquire in `View::new`.
        words[view::MAGIC_AT].store(view::MAGIC, Ordering::Release);
        Ok(Self { memory, values: fields.len() })
    }

    /// Shows `values`, one for each field, in their order.
    pub fn publish(&mut self, values: &[u64]) {
        assert_eq!(values.len(), self.values, "one value a field");
        let words = self.memory.words();
        seqlock::write(&words[view::TURN_AT], &words[view::VALUES_AT..], values);
    }

    /// The same page as a reader sees it.
    #[cfg(test)]
    pub(super) fn memory(&self) -> &Memory {
        &self.memory
    }
}
