//! Why there is no emulated machine, with what helps.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why guests could not be made, or did not do what they should.
#[derive(Debug, thiserror::Error)]
pub enum QemuError {
    /// A program or file that the lab is made of is not here.
    #[error("{what} is missing; install it: sudo apt-get install {package}")]
    Missing {
        /// What.
        what: String,
        /// The Debian package that has it.
        package: &'static str,
    },
    /// There is no kernel for the guests.
    #[error(
        "no kernel for the guests: {0}. Unpack a Debian package linux-image-*-amd64 and name the folder with --kernel"
    )]
    NoKernel(String),
    /// A file could not be used.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The system refused.
    #[error("cannot {0}: {1}")]
    System(&'static str, io::Error),
    /// A program that was needed failed.
    #[error("{0} failed: {1}")]
    Program(String, String),
    /// A guest ended before its command did.
    #[error("guest {host} ended early: {reason}\n{log}")]
    Died {
        /// A or B.
        host: char,
        /// How.
        reason: String,
        /// The end of its kernel's log.
        log: String,
    },
    /// The command took too long.
    #[error(
        "not done after {0:?}, and ended; allow more with --timeout, or, where KVM runs the guests, try --accel tcg\n{1}"
    )]
    Late(Duration, String),
}

impl QemuError {
    /// For `map_err` on what is done with `path`.
    pub(super) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }
}
