//! Error classes (MPI-4.1 9.4).

use std::fmt;

use crate::adi;

macro_rules! classes {
    ($($variant:ident = $abi:literal, $name:literal, $text:literal;)*) => {
        /// What kind of error it was. Discriminants are the values of the standard ABI (`mpi.h` of the MPI Forum's
        /// `mpi-abi-stubs`).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(i32)]
        #[allow(missing_docs, reason = "said by `Display`, and named by `name` as in the standard")]
        pub enum ErrorClass {
            $($variant = $abi,)*
        }

        impl ErrorClass {
            /// All of them, in the order of their values.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The standard's name.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            const fn text(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }
    };
}

classes! {
    Buffer = 1, "MPI_ERR_BUFFER", "the buffer is no valid one";
    Count = 2, "MPI_ERR_COUNT", "the count is no valid one";
    Type = 3, "MPI_ERR_TYPE", "the datatype is no valid one";
    Tag = 4, "MPI_ERR_TAG", "the tag is no valid one";
    Comm = 5, "MPI_ERR_COMM", "the communicator is no valid one";
    Rank = 6, "MPI_ERR_RANK", "there is no such rank";
    Request = 7, "MPI_ERR_REQUEST", "the request is no valid one";
    Root = 8, "MPI_ERR_ROOT", "there is no such root";
    Group = 9, "MPI_ERR_GROUP", "the group is no valid one";
    Op = 10, "MPI_ERR_OP", "the operator is not defined for this";
    Topology = 11, "MPI_ERR_TOPOLOGY", "the communicator has no such topology";
    Dims = 12, "MPI_ERR_DIMS", "the dimensions are no valid ones";
    Arg = 13, "MPI_ERR_ARG", "an argument is no valid one";
    Unknown = 14, "MPI_ERR_UNKNOWN", "an unknown error";
    Truncate = 15, "MPI_ERR_TRUNCATE", "the message is longer than the buffer";
    Other = 16, "MPI_ERR_OTHER", "an error without a class of its own";
    Intern = 17, "MPI_ERR_INTERN", "an error within this library";
    Pending = 18, "MPI_ERR_PENDING", "neither failed nor complete";
    InStatus = 19, "MPI_ERR_IN_STATUS", "the error is in the status";
    Access = 20, "MPI_ERR_ACCESS", "permission denied";
    Amode = 21, "MPI_ERR_AMODE", "the file's mode is no valid one";
    Assert = 22, "MPI_ERR_ASSERT", "the assertion is no valid one";
    BadFile = 23, "MPI_ERR_BAD_FILE", "the file's name is no valid one";
    Base = 24, "MPI_ERR_BASE", "the memory was not given out here";
    Conversion = 25, "MPI_ERR_CONVERSION", "data could not be converted";
    Disp = 26, "MPI_ERR_DISP", "the displacement is no valid one";
    DupDatarep = 27, "MPI_ERR_DUP_DATAREP", "the data representation is defined already";
    FileExists = 28, "MPI_ERR_FILE_EXISTS", "the file exists";
    FileInUse = 29, "MPI_ERR_FILE_IN_USE", "the file is in use";
    File = 30, "MPI_ERR_FILE", "the file handle is no valid one";
    InfoKey = 31, "MPI_ERR_INFO_KEY", "the key is too long or empty";
    InfoNokey = 32, "MPI_ERR_INFO_NOKEY", "there is no such key";
    InfoValue = 33, "MPI_ERR_INFO_VALUE", "the value is too long";
    Info = 34, "MPI_ERR_INFO", "the info object is no valid one";
    Io = 35, "MPI_ERR_IO", "an input or output error";
    Keyval = 36, "MPI_ERR_KEYVAL", "the attribute key is no valid one";
    Locktype = 37, "MPI_ERR_LOCKTYPE", "the kind of lock is no valid one";
    Name = 38, "MPI_ERR_NAME", "the service was not published";
    NoMem = 39, "MPI_ERR_NO_MEM", "no memory left";
    NotSame = 40, "MPI_ERR_NOT_SAME", "an argument differs between processes";
    NoSpace = 41, "MPI_ERR_NO_SPACE", "no space left";
    NoSuchFile = 42, "MPI_ERR_NO_SUCH_FILE", "there is no such file";
    Port = 43, "MPI_ERR_PORT", "the port is no valid one";
    Quota = 44, "MPI_ERR_QUOTA", "quota exceeded";
    ReadOnly = 45, "MPI_ERR_READ_ONLY", "the file or file system is read-only";
    RmaAttach = 46, "MPI_ERR_RMA_ATTACH", "the memory can't be attached";
    RmaConflict = 47, "MPI_ERR_RMA_CONFLICT", "accesses to a window conflict";
    RmaRange = 48, "MPI_ERR_RMA_RANGE", "the target's memory is not in the window";
    RmaShared = 49, "MPI_ERR_RMA_SHARED", "the memory can't be shared";
    RmaSync = 50, "MPI_ERR_RMA_SYNC", "the window is not in the right epoch for this";
    Service = 51, "MPI_ERR_SERVICE", "the service is not published";
    Size = 52, "MPI_ERR_SIZE", "the size is no valid one";
    Spawn = 53, "MPI_ERR_SPAWN", "processes could not be started";
    UnsupportedDatarep = 54, "MPI_ERR_UNSUPPORTED_DATAREP", "the data representation is not supported";
    UnsupportedOperation = 55, "MPI_ERR_UNSUPPORTED_OPERATION", "the operation is not supported";
    Win = 56, "MPI_ERR_WIN", "the window is no valid one";
    RmaFlavor = 57, "MPI_ERR_RMA_FLAVOR", "the window is of the wrong kind for this";
    ProcAborted = 58, "MPI_ERR_PROC_ABORTED", "the peer aborted";
    ValueTooLarge = 59, "MPI_ERR_VALUE_TOO_LARGE", "the value does not fit its type";
    Session = 60, "MPI_ERR_SESSION", "the session is no valid one";
    Errhandler = 61, "MPI_ERR_ERRHANDLER", "the error handler is no valid one";
    // User-level failure mitigation is in no standard yet: values are ours, at the end of those left to implementations.
    ProcFailed = 0x3ff0, "MPIX_ERR_PROC_FAILED", "the other process is gone";
    ProcFailedPending = 0x3ff1, "MPIX_ERR_PROC_FAILED_PENDING", "another process is gone, which may be the one that is waited for";
    Revoked = 0x3ff2, "MPIX_ERR_REVOKED", "the communicator was revoked";
}

impl ErrorClass {
    /// The class of this value in the standard ABI.
    pub fn from_abi(value: i32) -> Option<Self> {
        Self::ALL.iter().copied().find(|class| *class as i32 == value)
    }
}

impl fmt::Display for ErrorClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name(), self.text())
    }
}

impl std::error::Error for ErrorClass {}

impl From<adi::Error> for ErrorClass {
    fn from(error: adi::Error) -> Self {
        match error {
            adi::Error::Truncated => Self::Truncate,
            adi::Error::ProcFailed => Self::ProcFailed,
            // Of collective calls, which read others' buffers: windows have errors of their own.
            adi::Error::NoAccess => Self::Buffer,
            adi::Error::Revoked => Self::Revoked,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_the_abi_without_a_gap() {
        assert!(ErrorClass::ALL[..61].iter().map(|class| *class as i32).eq(1..=61));
        assert_eq!(ErrorClass::from_abi(15), Some(ErrorClass::Truncate));
        assert_eq!(ErrorClass::from_abi(0), None);
    }
}
