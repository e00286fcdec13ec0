//! The secret that the processes of a job share, and what it is used for.

use std::fmt;
use std::str::FromStr;

use ring::rand::{SecureRandom, SystemRandom};

/// What protects an endpoint's frames against others on the network. Both sides need the same.
///
/// Drivers that are reliable themselves ([`sidelane_nic::Nic::RELIABLE`]: `shm` and memif pairs) carry frames between processes of one user
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

impl Protection {
    /// True if frames carry a tag.
    pub const fn has_key(self) -> bool {
        !matches!(self, Self::Checked)
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
}
