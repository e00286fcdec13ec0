//! The secret that the processes of a job share, and what it is used for.

use std::fmt;
use std::str::FromStr;

use ring::rand::{SecureRandom, SystemRandom};

/// What protects an endpoint's frames against others on the network. Both sides need the same.
///
/// Drivers that are reliable themselves ([`sidelane_nic::Nic::RELIABLE`]: `shm` and pairs of `dpdk`) carry frames between processes of one user
/// only, and nothing protects them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Protection {
    /// A check: against damage, and against strangers who do not see the traffic.
    #[default]
    Checked,
    /// A tag: frames that somebody else wrote, changed or repeated are dropped. What they say can be read.
    Authenticated(JobKey),
    /// A tag, and encrypted messages. Headers, sizes and times can be seen.
    Encrypted(JobKey),
}

/// A secret of 256 bits that the processes of one job share. Whoever has it can be a peer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct JobKey([u8; Self::LEN]);

/// Why a text is no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a job key is {} hexadecimal digits, as `openssl rand -hex {}` prints them", 2 * JobKey::LEN, JobKey::LEN)]
pub struct KeyError;

/// Why a text names no protection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("write checked, authenticated:KEY or encrypted:KEY; {KeyError}")]
pub struct ProtectionError;

impl Protection {
    /// True if frames carry a tag.
    pub const fn has_key(self) -> bool {
        !matches!(self, Self::Checked)
    }

    /// What reads back as this, secret and all: for the job's other processes, and for nobody else.
    pub fn to_text(&self) -> String {
        let (kind, key) = match self {
            Self::Checked => return "checked".to_owned(),
            Self::Authenticated(key) => ("authenticated", key),
            Self::Encrypted(key) => ("encrypted", key),
        };
        let digits: String = key.bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{kind}:{digits}")
    }

    /// Differs, for all that can be expected, where the kind or the key does, and tells nobody the key: for processes that see
    /// whether they have been told the same. 0 without a key.
    pub fn fingerprint(&self) -> u64 {
        let (kind, key) = match self {
            Self::Checked => return 0,
            Self::Authenticated(key) => (b'a', key),
            Self::Encrypted(key) => (b'e', key),
        };
        let mut hash = ring::digest::Context::new(&ring::digest::SHA256);
        hash.update(b"sidelane fingerprint");
        hash.update(&[kind]);
        hash.update(key.bytes());
        u64::from_le_bytes(*hash.finish().as_ref().first_chunk().expect("a hash has 32 bytes"))
    }
}

impl FromStr for Protection {
    type Err = ProtectionError;

    /// Reads `checked`, `authenticated:KEY` or `encrypted:KEY`.
    fn from_str(text: &str) -> Result<Self, ProtectionError> {
        let (kind, key) = text.split_once(':').unwrap_or((text, ""));
        match (kind, key.parse()) {
            ("checked", _) if key.is_empty() => Ok(Self::Checked),
            ("authenticated", Ok(key)) => Ok(Self::Authenticated(key)),
            ("encrypted", Ok(key)) => Ok(Self::Encrypted(key)),
            _ => Err(ProtectionError),
        }
    }
}

impl JobKey {
    /// Bytes of a key.
    pub const LEN: usize = 32;

    /// A key that was made elsewhere; every bit of it should be left to chance.
    pub const fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        Self(bytes)
    }

    /// A new key, of the system's random numbers.
    ///
    /// # Panics
    /// If the system has none.
    pub fn random() -> Self {
        let mut bytes = [0; Self::LEN];
        SystemRandom::new().fill(&mut bytes).expect("the system has random numbers");
        Self(bytes)
    }

    /// 64 bits of the system's random numbers.
    pub(crate) fn random_token() -> u64 {
        let mut bytes = [0; 8];
        SystemRandom::new().fill(&mut bytes).expect("the system has random numbers");
        u64::from_ne_bytes(bytes)
    }

    /// The secret itself, to be handed to the job's other processes.
    pub const fn bytes(&self) -> &[u8; Self::LEN] {
        &self.0
    }
}

impl FromStr for JobKey {
    type Err = KeyError;

    /// Reads [`Self::LEN`] bytes in hexadecimal; white space around them is ignored.
    fn from_str(text: &str) -> Result<Self, KeyError> {
        let text = text.trim().as_bytes();
        let mut bytes = [0; Self::LEN];
        if text.len() != 2 * Self::LEN {
            return Err(KeyError);
        }
        for (byte, digits) in bytes.iter_mut().zip(text.chunks_exact(2)) {
            let digit = |at: usize| char::from(digits[at]).to_digit(16).ok_or(KeyError);
            *byte = (digit(0)? << 4 | digit(1)?) as u8;
        }
        Ok(Self(bytes))
    }
}

/// Says nothing of the secret, since settings end up in logs.
impl fmt::Debug for JobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JobKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_reads_back_from_hexadecimal_and_never_shows_in_logs() {
        let key = JobKey::random();
        let text: String = key.bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(format!("  {text}\n").parse(), Ok(key));
        assert_eq!(text[1..].parse::<JobKey>(), Err(KeyError));
        assert_eq!(format!("{text}00").parse::<JobKey>(), Err(KeyError));
        assert_eq!(text.replace(&text[..1], "g").parse::<JobKey>(), Err(KeyError));
        assert_eq!(format!("{:?}", Protection::Encrypted(key)), "Encrypted(JobKey(..))");
    }

    #[test]
    fn no_key_and_no_token_comes_twice() {
        let zero = JobKey::from_bytes([0; JobKey::LEN]);
        let (one, other) = (JobKey::random(), JobKey::random());
        assert!(one != other && one != zero && other != zero);
        let (one, other) = (JobKey::random_token(), JobKey::random_token());
        assert!(one != other && one != 0 && other != 0);
    }

    #[test]
    fn a_protection_reads_back_and_another_one_has_another_fingerprint() {
        let (key, other) = (JobKey::from_bytes([7; 32]), JobKey::from_bytes([8; 32]));
        let all = [
            (Protection::Checked, "checked".to_owned()),
            (Protection::Authenticated(key), format!("authenticated:{}", "07".repeat(32))),
            (Protection::Encrypted(key), format!("encrypted:{}", "07".repeat(32))),
            (Protection::Encrypted(other), format!("encrypted:{}", "08".repeat(32))),
        ];
        for (at, (protection, text)) in all.iter().enumerate() {
            assert_eq!((text.parse(), protection.to_text()), (Ok(*protection), text.clone()));
            assert!(all[..at].iter().all(|(before, _)| before.fingerprint() != protection.fingerprint()), "{text}");
        }
        assert_eq!(Protection::Checked.fingerprint(), 0);
        for text in ["", "none", "encrypted", "encrypted:", "encrypted:07", &format!("checked:{}", "07".repeat(32))] {
            assert_eq!(text.parse::<Protection>(), Err(ProtectionError), "{text}");
        }
    }
}
