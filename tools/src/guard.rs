//! Guards: processes of their own that see to what is left when a command is gone, however it ended.
//!
//! Each learns by the end of its standard input that nobody holds the other end any more.

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::process::{Child, Command, Stdio};

use crate::lab::process;

/// Posts a guard, which this program is with such arguments, out of reach of signals to our process group (Ctrl-C); returns once it is
/// on duty.
pub fn post(arguments: &[impl AsRef<OsStr>], input: impl Into<Stdio>) -> io::Result<Child> {
    let mut command = Command::new("/proc/self/exe");
    command.args(arguments).stdin(input).stdout(Stdio::piped()).stderr(Stdio::null());
    process::in_own_session(&mut command);
    let mut guard = command.spawn()?;
    guard.stdout.take().expect("its output is a pipe").read_exact(&mut [0])?;
    Ok(guard)
}

/// Says that this guard is on duty, which has left its poster's session by [`process::detach`] before.
pub fn on_duty() -> io::Result<()> {
    io::stdout().write_all(b"r")?;
    io::stdout().flush()
}
