//! The lines of a script: when, what, and the words that follow.

use sidelane_nic::time::Duration;

/// One line that does or expects something.
pub struct Line<'a> {
    pub number: usize,
    pub text: &'a str,
    /// Time since the line before.
    pub after: Duration,
    pub what: &'a str,
    pub words: Vec<&'a str>,
}

pub fn lines(script: &str) -> impl Iterator<Item = Line<'_>> {
    script.lines().enumerate().filter_map(|(at, text)| {
        let said = text.split('#').next().unwrap_or_default();
        let mut words: Vec<&str> = said.split_whitespace().collect();
        let after = match words.first()?.strip_prefix('+') {
            Some(span) => {
                words.remove(0);
                duration(span)
            }
            None => Duration::ZERO,
        };
        assert!(!words.is_empty(), "line {}: {text}: what is to happen?", at + 1);
        let what = words.remove(0);
        Some(Line { number: at + 1, text: text.trim(), after, what, words })
    })
}

/// `250us`, `1ms`, `2.5ms`, `1s`, `7ns`; `0`.
pub fn duration(span: &str) -> Duration {
    let units = [("ns", 1u64), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000), ("", 1)];
    let (number, unit) = units
        .into_iter()
        .find_map(|(name, unit)| Some((span.strip_suffix(name)?, unit)))
        .expect("every word ends in nothing");
    let number: f64 = number.parse().unwrap_or_else(|_| panic!("{span} is no span of time"));
    Duration::from_nanos((number * unit as f64).round() as u64)
}

/// `12`, `0x0c`.
pub fn number(word: &str) -> u64 {
    let parsed = match word.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => word.parse(),
    };
    parsed.unwrap_or_else(|_| panic!("{word} is no number"))
}
