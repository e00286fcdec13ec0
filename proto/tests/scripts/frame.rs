//! Frames as words, and words as frames; written from `PROTOCOL.md`, not from the sources, so that it proves the former.

use std::fmt::Write as _;

use crate::active;
use crate::operation::{self, Key};
use crate::script::number;

const KINDS: [&str; 6] = ["Data", "Ack", "Hello", "HelloAck", "Ping", "Reset"];
const FLAGS: [(&str, u8); 4] = [("ACK_NOW", 1), ("DUPLICATE", 2), ("AWAY", 4), ("TAG", 0x80)];
const HEADER: usize = 24;
const OPEN_KEY: u32 = u32::from_le_bytes(*b"SDL1");

/// What both ends of the script's connection know, and what the words leave out.
pub struct Terms {
    /// The endpoint's token, from its latest Hello or HelloAck, and its index.
    pub us: u64,
    pub us_index: u16,
    /// The script's token and index.
    pub them: u64,
    pub them_index: u16,
    /// Number of the script's next Data frame.
    pub seq: u32,
    /// What the script acknowledged last, and granted last.
    pub ack: u32,
    pub credit: u16,
    /// The large message under way to the endpoint, and the one from it: its length, and where it stands.
    incoming: (usize, usize),
    outgoing: (usize, usize),
    /// The endpoint's region.
    pub ours: Key,
    /// Messages are Active Messages.
    pub active: bool,
}

impl Terms {
    pub const fn new(active: bool) -> Self {
        let (them, them_index) = (0x7e57_ab1e_0000_7e57, 5);
        Self {
            us: 0,
            us_index: 0,
            them,
            them_index,
            seq: 0,
            ack: 0,
            credit: 0,
            incoming: (0, 0),
            outgoing: (0, 0),
            ours: Key { region: 0, key: 0 },
            active,
        }
    }

    fn token(&self, word: &str) -> u64 {
        match word {
            "us" => self.us,
            "them" => self.them,
            _ => number(word),
        }
    }

    fn token_word(&self, token: u64) -> String {
        match token {
            0 => "0".into(),
            token if token == self.us => "us".into(),
            token if token == self.them => "them".into(),
            token => format!("{token:#x}"),
        }
    }

    /// The frame that `words` describe: its kind, then fields, flags and records.
    pub fn build(&mut self, words: &[&str]) -> Vec<u8> {
        if words[0] == "raw" {
            return words[1..].iter().map(|byte| u8::from_str_radix(byte, 16).expect("two hex digits")).collect();
        }
        let kind = KINDS.iter().position(|kind| *kind == words[0]).expect("a kind of frame");
        let field = |name: &str| words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        let mut flags = 0;
        let mut body = Vec::new();
        for word in &words[1..] {
            if let Some((_, bit)) = FLAGS.iter().find(|(name, _)| name == word) {
                flags |= bit;
            } else if !word.contains('=') {
                self.put_record(&mut body, word);
            }
        }
        let number_or = |name: &str, value: u64| field(name).map_or(value, number);
        let mut key = OPEN_KEY;
        match kind {
            2 | 3 => {
                // `as=` is somebody else's token: it says Hello, and the script's connection goes on.
                let other = field("as").map(|word| self.token(word));
                self.them = field("token").map_or(self.them, |word| self.token(word));
                let echo = field("echo").map_or(if kind == 3 { self.us } else { 0 }, |word| self.token(word));
                body.extend(other.unwrap_or(self.them).to_le_bytes());
                body.extend(echo.to_le_bytes());
                let fields = [("mtu", 512), ("credit", 65_536), ("ack_delay", 100_000), ("seen_len", 0)];
                for (name, default) in
                    fields.into_iter().chain([("index", 5), ("window", 64), ("message_max", 1 << 20)])
                {
                    let value = number_or(name, default);
                    match name {
                        "index" | "window" => body.extend((value as u16).to_le_bytes()),
                        _ => body.extend((value as u32).to_le_bytes()),
                    }
                    match name {
                        "credit" if other.is_none() => self.credit = (value / 64) as u16,
                        "index" if other.is_none() => self.them_index = value as u16,
                        _ => {}
                    }
                }
            }
            4 | 5 => {
                let tokens = ["from", "to_token"].map(|name| field(name).map(|word| self.token(word)));
                let (from, to) = (tokens[0].unwrap_or(self.them), tokens[1].unwrap_or(self.us));
                body.extend(from.to_le_bytes());
                body.extend(to.to_le_bytes());
                if kind == 4 {
                    key = key_between(from, to);
                }
            }
            _ => key = key_between(self.them, self.us),
        }
        let sequenced = kind < 2 || kind == 4;
        if sequenced {
            self.ack = number_or("ack", self.ack.into()) as u32;
            self.credit = number_or("credit", self.credit.into()) as u16;
        }
        let seq = number_or("seq", if sequenced { self.seq.into() } else { 0 }) as u32;
        if kind == 0 && field("seq").is_none() {
            self.seq += 1;
        }
        let peer = if kind == 2 || kind == 5 { 0xffff } else { self.us_index };
        let epoch = if kind == 2 { 0 } else { self.us as u16 };
        let mut frame = vec![0; 4];
        frame.push(1 << 4 | kind as u8);
        frame.push(flags);
        frame.extend((number_or("peer", peer.into()) as u16).to_le_bytes());
        frame.extend(seq.to_le_bytes());
        frame.extend(if sequenced { self.ack } else { 0 }.to_le_bytes());
        frame.extend((number_or("sack", 0) as u32).to_le_bytes());
        frame.extend(if sequenced { self.credit } else { 0 }.to_le_bytes());
        frame.extend((number_or("epoch", epoch.into()) as u16).to_le_bytes());
        frame.extend(body);
        if let Some(len) = field("len") {
            frame.resize(number(len) as usize, 0);
        }
        for word in words {
            // `@4=0x23`: byte 4 as it should not be.
            if let Some((place, value)) = word.strip_prefix('@').and_then(|word| word.split_once('=')) {
                frame[number(place) as usize] = number(value) as u8;
            }
        }
        if frame.len() >= HEADER {
            let flip = u32::from(field("check") == Some("bad"));
            let check = crc32c(&frame[4..]) ^ key ^ flip;
            frame[..4].copy_from_slice(&check.to_le_bytes());
        }
        frame
    }

    fn put_record(&mut self, body: &mut Vec<u8>, word: &str) {
        let (name, inner) = word.split_once('(').unwrap_or((word, ")"));
        let inner = inner.trim_end_matches(')');
        match name {
            "Message" => {
                let len = number(inner) as usize;
                put(body, 1, len);
                body.extend((0..len).map(|at| content(len, at)));
            }
            "First" => {
                let (part, total) = inner.split_once('/').expect("First(PART/TOTAL)");
                let (part, total) = (number(part) as usize, number(total) as usize);
                put(body, 2, part);
                body.extend((total as u32).to_le_bytes());
                body.extend((0..part).map(|at| content(total, at)));
                self.incoming = (total, part);
            }
            "More" => {
                let part = number(inner) as usize;
                let (total, from) = self.incoming;
                put(body, 3, part);
                body.extend((from..from + part).map(|at| content(total, at)));
                self.incoming.1 += part;
            }
            "Close" => put(body, 4, 0),
            _ if operation::put(body, name, inner, self.ours) => {}
            _ if self.active => {
                let message = active::build(name, inner).unwrap_or_else(|| panic!("{word} is no Active Message"));
                put(body, 1, message.len());
                body.extend(message);
            }
            _ => panic!("{word} is neither a field, nor a flag, nor a record"),
        }
    }

    /// A frame of the endpoint's, in words: all of them.
    pub fn read(&mut self, to: u32, frame: &[u8]) -> Vec<String> {
        if frame.len() < HEADER || frame[4] >> 4 != 1 {
            return vec![format!("{frame:02x?}")];
        }
        let kind = usize::from(frame[4] & 15);
        let mut words = vec![KINDS.get(kind).copied().unwrap_or("?").to_string()];
        let body = &frame[HEADER..];
        words.push(format!("to={to}"));
        words.push(format!("len={}", frame.len()));
        words.push(format!("peer={}", u16_at(frame, 6)));
        let mut key = OPEN_KEY;
        match kind {
            2 | 3 => {
                let token = u64_at(body, 0);
                words.push(format!("token={}", if token == self.us { "us" } else { "fresh" }));
                self.us = token;
                self.us_index = u16_at(body, 32);
                words.push(format!("echo={}", self.token_word(u64_at(body, 8))));
                for (name, at) in
                    [("mtu", 16), ("credit", 20), ("ack_delay", 24), ("seen_len", 28), ("message_max", 36)]
                {
                    words.push(format!("{name}={}", u32_at(body, at)));
                }
                words.push(format!("index={}", u16_at(body, 32)));
                words.push(format!("window={}", u16_at(body, 34)));
                words.push(format!(
                    "padding={}",
                    if body[40..].iter().all(|byte| *byte == 0) { "zero" } else { "dirt" }
                ));
            }
            4 | 5 => {
                let (from, to) = (u64_at(body, 0), u64_at(body, 8));
                words.push(format!("from={} to_token={}", self.token_word(from), self.token_word(to)));
                if kind == 4 {
                    key = key_between(from, to);
                }
            }
            _ => key = key_between(self.us, self.them),
        }
        if kind < 2 || kind == 4 {
            words.push(format!("seq={}", u32_at(frame, 8)));
            words.push(format!("ack={}", u32_at(frame, 12)));
            words.push(format!("sack={:#b}", u32_at(frame, 16)));
            words.push(format!("credit={}", u16_at(frame, 20)));
        }
        let epoch = u16_at(frame, 22);
        words.push(format!("epoch={}", if epoch == self.them as u16 { "them".into() } else { epoch.to_string() }));
        let check = crc32c(&frame[4..]) ^ key == u32_at(frame, 0);
        words.push(format!("check={}", if check { "good" } else { "bad" }));
        words.extend(FLAGS.iter().filter(|(_, bit)| frame[5] & bit != 0).map(|(name, _)| name.to_string()));
        if kind == 0 {
            self.read_records(body, &mut words);
        }
        words.iter().flat_map(|word| word.split(' ')).map(String::from).collect()
    }

    fn read_records(&mut self, mut body: &[u8], words: &mut Vec<String>) {
        while body.len() >= 4 {
            if let Some((word, len)) = operation::read(body) {
                words.push(word);
                body = &body[len..];
                continue;
            }
            let len = usize::from(u16_at(body, 2));
            let header = if body[0] == 2 { 8 } else { 4 };
            let Some(payload) = body.get(header..header + len) else { break };
            if self.active && body[0] == 1 {
                words.push(active::read(payload));
                body = &body[header + len..];
                continue;
            }
            let (mut word, total, from) = match body[0] {
                1 => (format!("Message({len}"), len, 0),
                2 => {
                    let total = u32_at(body, 4) as usize;
                    self.outgoing = (total, len);
                    (format!("First({len}/{total}"), total, 0)
                }
                3 => {
                    let (total, from) = self.outgoing;
                    self.outgoing.1 += len;
                    (format!("More({len}"), total, from)
                }
                4 => ("Close".to_string(), 0, 0),
                kind => (format!("Record{kind}({len}"), 0, 0),
            };
            if !payload.iter().enumerate().all(|(at, byte)| *byte == content(total, from + at)) {
                word.push_str(",altered");
            }
            if body[0] != 4 {
                word.push(')');
            }
            words.push(word);
            body = &body[header + len..];
        }
        if !body.is_empty() {
            let mut rest = String::from("rest=");
            body.iter().for_each(|byte| write!(rest, "{byte:02x}").expect("a String takes all"));
            words.push(rest);
        }
    }
}

/// True if `expected` describes the frame that `words` are: each field that it names, all flags and records, and of
/// what it leaves out, what is usual.
pub fn matches(expected: &[&str], words: &[String], terms: &Terms) -> bool {
    let value = |name: &str| words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    let named = |name: &str| expected.iter().any(|word| word.split('=').next() == Some(name));
    let is_field = |word: &str| word.contains('=');
    let usual = [
        ("to", "1".to_string()),
        ("sack", "0b0".to_string()),
        ("check", "good".to_string()),
        ("padding", "zero".to_string()),
        ("rest", String::new()),
    ];
    let own = ["Data", "Ack", "Ping"].contains(&words[0].as_str());
    let own_terms = [("peer", terms.them_index.to_string()), ("epoch", "them".to_string())];
    let usual = usual.into_iter().chain(own_terms.into_iter().filter(|_| own));
    usual.into_iter().all(|(name, usual)| named(name) || value(name).is_none_or(|value| value == usual))
        && expected.iter().filter(|word| is_field(word)).all(|word| words.iter().any(|said| said == word))
        && expected.iter().filter(|word| !is_field(word)).eq(words.iter().filter(|word| !is_field(word)))
}

/// Byte `at` of a message of `len` bytes: any message is known by its length.
pub fn content(len: usize, at: usize) -> u8 {
    (len.wrapping_mul(31) + at.wrapping_mul(7) + at / 256) as u8
}

fn put(body: &mut Vec<u8>, kind: u8, len: usize) {
    body.extend([kind, 0]);
    body.extend((len as u16).to_le_bytes());
}

fn key_between(from: u64, to: u64) -> u32 {
    let mixed = from.rotate_left(23).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ to.wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
    (mixed ^ mixed >> 32) as u32
}

/// CRC-32C bit by bit (RFC 3720, 12.1).
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 })
    })
}

pub fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
