//! Environment variables that stand for options. A command that has the option reads the variable where the option was not
//! typed, nor one that excludes it; no other command looks at it. An empty one is as one that is not set.

use std::env;
use std::fmt::Display;

/// A variable that says what its option must not.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}={value}: {reason}")]
pub struct VariableError {
    name: &'static str,
    value: String,
    reason: String,
}

/// What the variable `name` says, if anything.
pub fn read<T, E: Display>(
    name: &'static str,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Result<Option<T>, VariableError> {
    let Some(value) = env::var_os(name).filter(|value| !value.is_empty()) else { return Ok(None) };
    let failed = |value: &str, reason: String| VariableError { name, value: value.to_owned(), reason };
    let Some(text) = value.to_str() else { return Err(failed(&value.to_string_lossy(), "is no UTF-8".to_owned())) };
    parse(text).map(Some).map_err(|error| failed(text, error.to_string()))
}
