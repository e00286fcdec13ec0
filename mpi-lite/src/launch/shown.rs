//! What ranks say, for people to read at a terminal.

use std::fmt::{self, Write};

/// The beginning of a text, in one line. What a terminal would obey instead of showing it (escape sequences, line ends, changes of
/// direction) is written as Rust's literals have it.
#[derive(Debug, Clone, Copy)]
pub struct Shown<'a>(pub &'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(self.0, SHOWN_MAX, f)
    }
}

/// The same of a text that says what to do, whose end matters: all of it, but for what nobody would read.
#[derive(Debug, Clone, Copy)]
pub struct ShownWhole<'a>(pub &'a str);

impl fmt::Display for ShownWhole<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(self.0, WHOLE_MAX, f)
    }
}

fn show(text: &str, most: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut rest = text.chars();
    for char in rest.by_ref().take(most) {
        match char {
            '\'' | '"' | '\\' => f.write_char(char)?,
            char => char.escape_debug().try_for_each(|char| f.write_char(char))?,
        }
    }
    if rest.next().is_some() { f.write_str("...") } else { Ok(()) }
}

/// Three lines of a terminal: more than any reason that somebody wrote to be read.
const SHOWN_MAX: usize = 240;
/// The commands that mend something, and a driver's last words.
const WHOLE_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_is_told_nothing_and_people_the_beginning() {
        let shown = |text: &str| Shown(text).to_string();
        assert_eq!(shown("can't open \"é.dat\" \\o/"), "can't open \"é.dat\" \\o/");
        assert_eq!(shown("\x1b[31mRED\x1b[2J\x07\r\n"), "\\u{1b}[31mRED\\u{1b}[2J\\u{7}\\r\\n");
        assert_eq!(shown("\u{9b}2J \u{202e}"), "\\u{9b}2J \\u{202e}");
        assert_eq!(shown(&"x".repeat(SHOWN_MAX)), "x".repeat(SHOWN_MAX));
        assert_eq!(shown(&"é".repeat(60_000)), "é".repeat(SHOWN_MAX) + "...");
        assert_eq!(ShownWhole(&("\n".repeat(SHOWN_MAX) + "x")).to_string(), "\\n".repeat(SHOWN_MAX) + "x");
    }
}
