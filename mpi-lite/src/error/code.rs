//! Error codes: the standard's classes, and what the program adds to them (MPI-4.1 9.5).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard};

use crate::adi::lock;

use super::ErrorClass;

/// What an error handler is told: a class of the standard's, or a class or a code of the program's own, which it has in this process only.
/// Values are those of the standard ABI, the program's behind its `MPI_ERR_LASTCODE`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ErrorCode {
    value: i32,
    /// The same of a class.
    class: i32,
}

/// The longest text: the standard ABI's `MPI_MAX_ERROR_STRING` without C's final zero.
pub const TEXT_MAX: usize = 512 - 1;

/// The standard ABI's `MPI_ERR_LASTCODE`.
const LAST_OF_STANDARD: i32 = 0x3fff;

/// What the program has added. Of the process, not of a job: it may be asked before one begins, and after it has ended.
struct Added {
    all: BTreeMap<i32, Own>,
    /// Is given out once: who keeps one that was removed does not mistake it for another.
    last: i32,
}

struct Own {
    class: i32,
    text: Option<String>,
}

static ADDED: Mutex<Added> = Mutex::new(Added { all: BTreeMap::new(), last: LAST_OF_STANDARD });

impl ErrorCode {
    /// A class of the program's (`MPI_Add_error_class`). `Other` when all numbers are given out.
    pub fn new_class() -> Result<Self, ErrorClass> {
        added().add(None)
    }

    /// A code in this class, which may be one of the standard's (`MPI_Add_error_code`). `Arg` of what is no class.
    pub fn new_code(self) -> Result<Self, ErrorClass> {
        let mut added = added();
        let is_class = self.value == self.class && (self.is_of_standard() || added.all.contains_key(&self.value));
        if is_class { added.add(Some(self.value)) } else { Err(ErrorClass::Arg) }
    }

    /// Says what it means; of the program's only (`MPI_Add_error_string`). `Arg` of a text of more than [`TEXT_MAX`] bytes.
    pub fn set_text(self, text: &str) -> Result<(), ErrorClass> {
        if text.len() > TEXT_MAX {
            return Err(ErrorClass::Arg);
        }
        added().own(self)?.text = Some(text.to_owned());
        Ok(())
    }

    /// Takes back what it means (`MPI_Remove_error_string`). `Arg` if nothing was said.
    pub fn remove_text(self) -> Result<(), ErrorClass> {
        added().own(self)?.text.take().map(drop).ok_or(ErrorClass::Arg)
    }

    /// Takes back the class or code (`MPI_Remove_error_class`, `MPI_Remove_error_code`). `Arg` while it has a text, or a code in it.
    pub fn remove(self) -> Result<(), ErrorClass> {
        let mut added = added();
        let has_text = added.own(self)?.text.is_some();
        let has_codes = added.all.iter().any(|(value, own)| own.class == self.value && *value != self.value);
        if has_text || has_codes {
            return Err(ErrorClass::Arg);
        }
        added.all.remove(&self.value);
        Ok(())
    }

    /// Its class; a class is its own (`MPI_Error_class`).
    pub const fn class(self) -> Self {
        Self { value: self.class, class: self.class }
    }

    /// Its class, if that is one of the standard's.
    pub fn standard(self) -> Option<ErrorClass> {
        ErrorClass::from_abi(self.class)
    }

    /// Its value in the standard ABI.
    pub const fn to_abi(self) -> i32 {
        self.value
    }

    /// What has this value in the standard ABI, of the standard's and of what was added and not removed.
    pub fn from_abi(value: i32) -> Option<Self> {
        if let Some(class) = ErrorClass::from_abi(value) {
            return Some(class.into());
        }
        added().all.get(&value).map(|own| Self { value, class: own.class })
    }

    /// The highest value that was in use so far (`MPI_LASTUSEDCODE`).
    pub fn last_used() -> i32 {
        added().last
    }

    const fn is_of_standard(self) -> bool {
        self.value <= LAST_OF_STANDARD
    }
}

impl ErrorCode {
    /// Its text (`MPI_Error_string`): nothing where the program has said nothing.
    pub fn text(&self) -> String {
        if self.is_of_standard() {
            return self.standard().map_or_else(String::new, |class| class.to_string());
        }
        added().all.get(&self.value).and_then(|own| own.text.clone()).unwrap_or_default()
    }
}

impl From<ErrorClass> for ErrorCode {
    fn from(class: ErrorClass) -> Self {
        Self { value: class as i32, class: class as i32 }
    }
}

impl PartialEq<ErrorClass> for ErrorCode {
    fn eq(&self, class: &ErrorClass) -> bool {
        self.value == *class as i32
    }
}

/// Its text, or where the program has said nothing its numbers.
impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.text() {
            text if text.is_empty() => fmt::Debug::fmt(self, f),
            text => f.write_str(&text),
        }
    }
}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.standard() {
            Some(class) if self.is_of_standard() => class.fmt(f),
            _ => write!(f, "{} of class {}", self.value, self.class),
        }
    }
}

impl std::error::Error for ErrorCode {}

impl Added {
    fn add(&mut self, class: Option<i32>) -> Result<ErrorCode, ErrorClass> {
        let value = self.last.checked_add(1).ok_or(ErrorClass::Other)?;
        let class = class.unwrap_or(value);
        self.last = value;
        self.all.insert(value, Own { class, text: None });
        Ok(ErrorCode { value, class })
    }

    fn own(&mut self, code: ErrorCode) -> Result<&mut Own, ErrorClass> {
        self.all.get_mut(&code.value).ok_or(ErrorClass::Arg)
    }
}

fn added() -> MutexGuard<'static, Added> {
    lock(&ADDED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_in_classes_of_the_standards_and_of_the_programs() {
        let class = ErrorCode::new_class().unwrap();
        let (own, other) = (class.new_code().unwrap(), ErrorCode::from(ErrorClass::Io).new_code().unwrap());
        assert_eq!([class, own, other].map(ErrorCode::class), [class, class, ErrorClass::Io.into()]);
        assert_eq!([own.standard(), other.standard()], [None, Some(ErrorClass::Io)]);
        assert!(class.to_abi() > LAST_OF_STANDARD && ErrorCode::last_used() >= other.to_abi());
        assert_eq!([class, own, other].map(|code| ErrorCode::from_abi(code.to_abi())), [class, own, other].map(Some));
        assert_eq!((own.new_code(), ErrorCode::from_abi(0)), (Err(ErrorClass::Arg), None));
        assert!(other != ErrorClass::Io && other.class() == ErrorClass::Io);
    }

    #[test]
    fn all_standard_classes_have_a_text_that_has_room_and_keeps_it() {
        for class in ErrorClass::ALL {
            let code = ErrorCode::from_abi(*class as i32).unwrap();
            assert_eq!((code, code.to_string()), ((*class).into(), class.to_string()));
            assert!((1..=TEXT_MAX).contains(&code.to_string().len()));
            assert_eq!([code.set_text("mine"), code.remove_text(), code.remove()], [Err(ErrorClass::Arg); 3]);
        }
    }

    #[test]
    fn what_was_added_is_removed_from_the_text_to_the_class_and_never_comes_again() {
        let class = ErrorCode::new_class().unwrap();
        let code = class.new_code().unwrap();
        assert!(code.to_string().ends_with(&format!("of class {}", code.class)));
        assert_eq!((code.text().as_str(), code.remove_text()), ("", Err(ErrorClass::Arg)));
        assert_eq!(code.set_text(&"x".repeat(TEXT_MAX + 1)), Err(ErrorClass::Arg));
        assert_eq!(["one", "two"].map(|text| code.set_text(text)), [Ok(()); 2]);
        assert_eq!(code.to_string(), "two");
        assert_eq!([class.remove(), code.remove()], [Err(ErrorClass::Arg); 2]);
        assert_eq!([code.remove_text(), code.remove(), class.remove()], [Ok(()); 3]);
        assert_eq!([class.remove(), code.set_text("late"), class.new_code().map(drop)], [Err(ErrorClass::Arg); 3]);
        assert_eq!([class, code].map(|code| ErrorCode::from_abi(code.to_abi())), [None; 2]);
        assert!(ErrorCode::new_class().unwrap().to_abi() > code.to_abi());
    }
}
