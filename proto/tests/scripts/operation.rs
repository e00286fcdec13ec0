//! Records of one-sided operations, as words and as bytes.

use crate::frame::{u16_at, u32_at, u64_at};
use crate::script::number;

/// A key as the wire has it: the region's index, and the key.
#[derive(Clone, Copy, Default)]
pub struct Key {
    pub region: u32,
    pub key: u64,
}

/// The script's own region, of a MiB, which the endpoint's user knows.
pub const THEIRS: Key = Key { region: 3, key: 0x6b65_795f_6f66_5f69 };
pub const THEIR_LEN: u64 = 1 << 20;

const FLAGS: [(&str, u8); 4] = [("last", 1), ("signal", 2), ("ordered", 4), ("done", 8)];

/// Byte `at` of any region, as whoever puts there writes it.
pub fn byte(at: u64) -> u8 {
    (at.wrapping_mul(11) + at / 251) as u8 | 1
}

/// Appends the record that `word` says; false when it is none of these. `ours` is the endpoint's region.
pub fn put(body: &mut Vec<u8>, name: &str, inner: &str, ours: Key) -> bool {
    let fields: Vec<&str> = inner.split(',').filter(|field| !field.is_empty()).collect();
    let value = |at: usize| fields.get(at).map_or(0, |field| number(field));
    let flags: u8 = FLAGS.iter().filter(|(name, _)| fields.contains(name)).map(|(_, bit)| bit).sum();
    // `otherkey`: as somebody would write who has to guess.
    let key = ours.key ^ u64::from(fields.contains(&"otherkey"));
    let place = |body: &mut Vec<u8>| {
        body.extend(ours.region.to_le_bytes());
        body.extend(key.to_le_bytes());
        body.extend(value(0).to_le_bytes());
    };
    let front = |body: &mut Vec<u8>, kind: u8, flags: u8, len: u64| {
        body.extend([kind, flags]);
        body.extend((len as u16).to_le_bytes());
    };
    match name {
        "Put" => {
            front(body, 16, flags, value(1));
            place(body);
            body.extend((value(0)..value(0) + value(1)).map(byte));
        }
        "Get" => {
            front(body, 17, 0, 0);
            place(body);
            body.extend((value(1) as u32).to_le_bytes());
        }
        "Add" | "Swap" => {
            front(body, 18, u8::from(name == "Swap"), 0);
            place(body);
            body.extend(value(if name == "Swap" { 2 } else { 1 }).to_le_bytes());
            body.extend(if name == "Swap" { value(1) } else { 0 }.to_le_bytes());
        }
        "Answer" => {
            front(body, 19, flags, value(2));
            body.extend((value(0) as u32).to_le_bytes());
            body.extend((value(1) as u32).to_le_bytes());
            body.extend((value(1)..value(1) + value(2)).map(byte));
        }
        "Fetched" => {
            front(body, 20, 0, 0);
            body.extend((value(0) as u32).to_le_bytes());
            body.extend(value(1).to_le_bytes());
        }
        "Done" => {
            front(body, 21, 0, 0);
            body.extend((value(0) as u32).to_le_bytes());
        }
        "Refused" => {
            front(body, 22, value(2) as u8, 0);
            body.extend((value(0) as u32).to_le_bytes());
            body.extend((value(1) as u32).to_le_bytes());
        }
        _ => return false,
    }
    true
}

/// The record at the front of `body` as a word, and its length; `None` when it is none of these.
pub fn read(body: &[u8]) -> Option<(String, usize)> {
    let header = match body[0] {
        16 => 24,
        17 => 28,
        18 => 40,
        19 => 12,
        20 => 16,
        21 => 8,
        22 => 12,
        _ => return None,
    };
    let len = header + usize::from(u16_at(body, 2));
    let record = body.get(..len)?;
    let payload = &record[header..];
    let flags: String =
        FLAGS.iter().filter(|(_, bit)| record[1] & bit != 0).map(|(name, _)| format!(",{name}")).collect();
    let altered = |first: u64| {
        let whole = payload.iter().zip(first..).all(|(found, at)| *found == byte(at));
        if whole { "" } else { ",altered" }
    };
    let key = if body[0] <= 18 && (u32_at(record, 4), u64_at(record, 8)) != (THEIRS.region, THEIRS.key) {
        ",otherkey"
    } else {
        ""
    };
    let place = || u64_at(record, 16);
    let number = || u32_at(record, 4);
    let word = match body[0] {
        16 => format!("Put({},{}{flags}{}{key})", place(), payload.len(), altered(place())),
        17 => format!("Get({},{}{key})", place(), u32_at(record, 24)),
        18 if record[1] == 0 => format!("Add({},{}{key})", place(), u64_at(record, 24)),
        18 => format!("Swap({},{},{}{key})", place(), u64_at(record, 32), u64_at(record, 24)),
        19 => {
            let offset = u32_at(record, 8);
            format!("Answer({},{offset},{}{flags}{})", number(), payload.len(), altered(offset.into()))
        }
        20 => format!("Fetched({},{})", number(), u64_at(record, 8)),
        21 => format!("Done({})", number()),
        _ => format!("Refused({},{},{})", number(), u32_at(record, 8), record[1]),
    };
    Some((word, len))
}
