//! The form of a line: `cmd=NAME key=value key=value`, ended by a newline.

use std::fmt;

/// Longest line that is read. MPICH's own programs read and write up to 1,024 bytes (`PMIU_MAXLINE`), newer ones 64 KiB.
pub const LINE_MAX: usize = 64 << 10;

/// A line that was received, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line<'a> {
    /// The command's name: the value of `cmd`, or of `mcmd`, which begins a request of several lines.
    pub name: &'a str,
    pairs: Vec<(&'a str, &'a str)>,
}

/// A line that is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Bytes that are no text.
    #[error("is not text")]
    NotText,
    /// There is no `cmd=`.
    #[error("names no command")]
    NoCommand,
    /// The command needs a key that the line does not have.
    #[error("lacks `{0}`")]
    Lacks(&'static str),
    /// The key's value is no number.
    #[error("has a `{0}` that is no number")]
    NoNumber(&'static str),
    /// Longer than [`LINE_MAX`].
    #[error("is longer than {LINE_MAX} bytes")]
    TooLong,
}

impl<'a> Line<'a> {
    /// Takes a line apart, with or without its newline. A word without `=` continues the value before it, since launchers
    /// give reasons in words (`msg=key not found`). So does every word behind an abort's `error_msg=`, whatever a rank has said there
    /// (`rank=3 failed`). Of a key that comes twice, the first counts.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        if bytes.len() > LINE_MAX {
            return Err(Malformed::TooLong);
        }
        let text = std::str::from_utf8(bytes).map_err(|_| Malformed::NotText)?;
        let mut pairs: Vec<(&str, &str)> = Vec::new();
        let mut rest = text;
        while !rest.trim_ascii_start().is_empty() {
            rest = rest.trim_ascii_start();
            let word = rest.split_ascii_whitespace().next().expect("there is more than white space");
            let in_reason = matches!(pairs[..], [("cmd", "abort"), .., ("error_msg", _)]);
            let pair = word.split_once('=').filter(|(key, _)| !key.is_empty() && !in_reason);
            match (pair, pairs.last_mut()) {
                (Some(pair), _) => pairs.push(pair),
                (None, Some((_, value))) => {
                    // Both are parts of `text`, and the word is the later one.
                    let from = value.as_ptr() as usize - text.as_ptr() as usize;
                    let to = word.as_ptr() as usize + word.len() - text.as_ptr() as usize;
                    *value = &text[from..to];
                }
                (None, None) => return Err(Malformed::NoCommand),
            }
            rest = &rest[word.len()..];
        }
        match pairs.first() {
            Some(("cmd" | "mcmd", name)) => Ok(Self { name, pairs }),
            _ => Err(Malformed::NoCommand),
        }
    }

    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&'a str> {
        self.pairs.iter().find(|(other, _)| *other == key).map(|(_, value)| *value)
    }

    /// The value of a key that the command needs.
    pub fn need(&self, key: &'static str) -> Result<&'a str, Malformed> {
        self.get(key).ok_or(Malformed::Lacks(key))
    }

    /// The number of a key that the command needs.
    pub fn number<N: std::str::FromStr>(&self, key: &'static str) -> Result<N, Malformed> {
        self.need(key)?.parse().map_err(|_| Malformed::NoNumber(key))
    }

    /// The number of a key that may be missing.
    pub fn number_or<N: std::str::FromStr>(&self, key: &'static str, otherwise: N) -> Result<N, Malformed> {
        if self.get(key).is_some() { self.number(key) } else { Ok(otherwise) }
    }

    /// True for what can be a key or a value: printable ASCII without spaces.
    pub fn is_word(text: &str) -> bool {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
    }
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (key, value)) in self.pairs.iter().enumerate() {
            let space = if at == 0 { "" } else { " " };
            write!(f, "{space}{key}={value}")?;
        }
        Ok(())
    }
}
