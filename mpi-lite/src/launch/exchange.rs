//! Everybody tells everybody a text, however long: each puts it, in words that fit, and gets the others'.

use super::client::{Client, PmiError};
use super::reply::Maxes;

/// Tells all ranks `text` and returns everybody's, by rank.
pub fn all(client: &mut Client, text: &str) -> Result<Vec<String>, PmiError> {
    let round = client.exchanges;
    client.exchanges += 1;
    let own = client.rank();
    let parts = split(text, part_max(client.space(), client.maxes()));
    for (number, part) in parts.iter().enumerate() {
        // The first part tells how many there are.
        let part = if number == 0 { format!("{}:{part}", parts.len()) } else { part.clone() };
        client.put(&key(round, own, number), &part)?;
    }
    client.barrier()?;
    let mut told = Vec::new();
    if client.gets_many()? {
        // Many at a time: a question for each would be as many as ranks, from each rank, and one launcher answers all.
        while told.len() < client.size() {
            told.extend(client.get_many(&key(round, "*", 0), told.len())?);
        }
    } else {
        for rank in 0..client.size() {
            told.push(client.get(&key(round, rank, 0))?.ok_or(PmiError::OtherVersion(rank))?);
        }
    }
    told.into_iter().enumerate().map(|(rank, first)| whole(client, round, rank, &first)).collect()
}

/// What `rank` has put, of which the first part is known.
fn whole(client: &mut Client, round: usize, rank: usize, first: &str) -> Result<String, PmiError> {
    let strange = || PmiError::OtherVersion(rank);
    let (count, first) = first.split_once(':').ok_or_else(strange)?;
    let count: usize = count.parse().map_err(|_| strange())?;
    let mut escaped = first.to_owned();
    for number in 1..count {
        escaped += &client.get(&key(round, rank, number))?.ok_or_else(strange)?;
    }
    unescape(&escaped).ok_or_else(strange)
}

fn key(round: usize, rank: impl std::fmt::Display, part: usize) -> String {
    format!("sidelane-{round}-{rank}-{part}")
}

/// Longest part of a value: with the command before it, it has to fit a line of MPICH's and Slurm's launchers.
fn part_max(space: &str, maxes: Maxes) -> usize {
    let before = format!("cmd=put kvsname={space} key= value=\n").len().saturating_add(maxes.key);
    let room = OTHERS_LINE_MAX.saturating_sub(before).min(maxes.value);
    // A launcher that takes less than this takes nothing that could be told.
    room.saturating_sub(COUNT_MAX).max(16)
}

/// `PMIU_MAXLINE` of MPICH and `MAX_READLINE` of Slurm's plugin pmi2, which count the zero that ends a string in C.
const OTHERS_LINE_MAX: usize = 1023;

/// The number of parts and its colon.
const COUNT_MAX: usize = 8;

/// `text` in words of at most `max` bytes. At least one, which may be empty.
fn split(text: &str, max: usize) -> Vec<String> {
    let escaped = escape(text);
    let parts: Vec<String> =
        escaped.as_bytes().chunks(max).map(|part| String::from_utf8_lossy(part).into_owned()).collect();
    if parts.is_empty() { vec![String::new()] } else { parts }
}

/// ASCII without white space or `;`: other bytes as `%` and two digits. Launchers take values apart at spaces, and many of them at `;`.
fn escape(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'%' | b'=' | b';' | b'"' | b'\'' | b'\\' | 0..=b' ' | 127.. => out += &format!("%{byte:02x}"),
            _ => out.push(byte as char),
        }
    }
    out
}

fn unescape(text: &str) -> Option<String> {
    let mut out = Vec::new();
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => {
                let digits = [bytes.next()?, bytes.next()?];
                out.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
            }
            _ => out.push(byte),
        }
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parts_have_a_length_whatever_the_launcher_says_to_take() {
        for (key, value, most) in [(64, 1024, 917), (64, 100, 92), (usize::MAX, usize::MAX, 16), (0, 0, 16)] {
            assert_eq!(part_max("kvs_1", Maxes { space: 256, key, value }), most);
        }
    }

    proptest! {
        #[test]
        fn every_text_survives_in_words(text in ".*", max in 16usize..200) {
            let parts = split(&text, max);
            prop_assert!(parts.iter().all(|part| part.len() <= max));
            prop_assert!(parts.iter().all(|part| part.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'=' && byte != b';')));
            prop_assert_eq!(unescape(&parts.concat()), Some(text));
        }

        #[test]
        fn nonsense_is_no_text(text in "[%0-9a-fx]*") {
            let _ = unescape(&text);
        }
    }
}
