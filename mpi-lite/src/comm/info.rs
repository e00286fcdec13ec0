//! Hints: ordered pairs of strings (MPI-4.1 10).

/// Keys and values, in the order in which keys were first set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Info(Vec<(String, String)>);

/// Why a pair was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InfoError {
    /// The key is empty or too long (`MPI_ERR_INFO_KEY`).
    #[error("a key has 1 to {} bytes", KEY_MAX)]
    Key,
    /// The value is too long (`MPI_ERR_INFO_VALUE`).
    #[error("a value has at most {} bytes", VALUE_MAX)]
    Value,
    /// There is no such key (`MPI_ERR_INFO_NOKEY`).
    #[error("no such key")]
    NoKey,
}

/// The longest key: the standard ABI's `MPI_MAX_INFO_KEY` without C's final zero.
pub const KEY_MAX: usize = 256 - 1;
/// The longest value: the standard ABI's `MPI_MAX_INFO_VAL` without C's final zero.
pub const VALUE_MAX: usize = 1024 - 1;

impl Info {
    /// No hints.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a key, which keeps its place if it is known.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), InfoError> {
        if key.is_empty() || key.len() > KEY_MAX {
            return Err(InfoError::Key);
        }
        if value.len() > VALUE_MAX {
            return Err(InfoError::Value);
        }
        match self.0.iter_mut().find(|(known, _)| known == key) {
            Some((_, old)) => *old = value.to_owned(),
            None => self.0.push((key.to_owned(), value.to_owned())),
        }
        Ok(())
    }

    /// Sets all of another's keys.
    pub(super) fn merge(&mut self, other: &Self) {
        for (key, value) in other.iter() {
            self.set(key, value).expect("it fits there");
        }
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == key).map(|(_, value)| &value[..])
    }

    /// Takes a key out.
    pub fn delete(&mut self, key: &str) -> Result<(), InfoError> {
        let at = self.0.iter().position(|(known, _)| known == key).ok_or(InfoError::NoKey)?;
        self.0.remove(at);
        Ok(())
    }

    /// All pairs.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&key[..], &value[..]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_keep_the_order_in_which_they_came() {
        let mut info = Info::new();
        for (key, value) in [("b", "1"), ("a", "2"), ("c", "3"), ("b", "4")] {
            info.set(key, value).unwrap();
        }
        assert_eq!(info.delete("a"), Ok(()));
        assert_eq!(info.delete("a"), Err(InfoError::NoKey));
        assert_eq!(info.iter().collect::<Vec<_>>(), [("b", "4"), ("c", "3")]);
        assert_eq!((info.get("b"), info.get("a")), (Some("4"), None));
    }

    #[test]
    fn what_the_abi_has_no_room_for_is_refused() {
        let mut info = Info::new();
        let long = "x".repeat(VALUE_MAX + 1);
        assert_eq!(info.set(&long[..KEY_MAX], &long[1..]), Ok(()));
        assert_eq!(info.set(&long[..KEY_MAX + 1], ""), Err(InfoError::Key));
        assert_eq!(info.set("", ""), Err(InfoError::Key));
        assert_eq!(info.set("key", &long), Err(InfoError::Value));
        assert_eq!(info.iter().len(), 1);
    }
}
