//! Memory that two processes of one host share: one makes it and tells its [`Ticket`], the other maps it by that.
//!
//! For what is put into a peer's memory by one copy. Whoever has the ticket, and the right to look into the maker's process,
//! can read and write all of the memory for as long as it keeps its mapping; the maker's end does not take it away.

mod memory;

pub use memory::Shared;

/// By which another process finds the memory: for a message of the user's own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticket {
    process: u32,
    descriptor: u32,
    /// Tells it apart from whatever else this descriptor may have become.
    inode: u64,
    len: u64,
}

impl Ticket {
    /// Bytes of [`Self::to_bytes`].
    pub const LEN: usize = 24;

    /// Bytes of the memory it leads to.
    pub fn len(self) -> u64 {
        self.len
    }

    /// True of no memory at all.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// For a message.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&self.process.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.descriptor.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.inode.to_le_bytes());
        bytes[16..].copy_from_slice(&self.len.to_le_bytes());
        bytes
    }

    /// From a message. Any bytes make a ticket; one that leads nowhere is refused by [`Shared::of`].
    pub fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        let four = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let eight = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        Self { process: four(0), descriptor: four(4), inode: eight(8), len: eight(16) }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::MetadataExt;
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::memfd;

    #[test]
    fn what_one_mapping_writes_the_other_reads() {
        let made = Shared::new(10_000).unwrap();
        let ticket = Ticket::from_bytes(made.ticket().to_bytes());
        let mapped = Shared::of(ticket).unwrap();
        mapped.write(9_000, b"across the end of a page");
        let mut found = [0; 24];
        made.read(9_000, &mut found);
        assert_eq!(&found, b"across the end of a page");
        drop(made);
        mapped.read(9_000, &mut found);
        assert_eq!(&found, b"across the end of a page", "its maker's end does not take it away");
        assert_eq!(mapped.len(), 10_000);
    }

    #[test]
    fn lazy_memory_takes_pages_as_they_are_used_and_no_descriptor_once_it_is_closed() {
        let resident = || {
            let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
            statm.split_whitespace().nth(2).unwrap().parse::<usize>().unwrap() * 4096
        };
        let before = resident();
        let mut made = Shared::lazy(64 << 20).unwrap();
        let mapped = Shared::of_lazy(made.ticket()).unwrap();
        made.close();
        assert!(Shared::of_lazy(made.ticket()).is_err());
        mapped.write(40 << 20, b"a page");
        let mut found = [0; 6];
        made.read(40 << 20, &mut found);
        assert_eq!(&found, b"a page");
        assert!(resident() < before + (32 << 20));
    }

    #[test]
    fn a_word_is_the_same_on_both_sides() {
        let made = Shared::new(100).unwrap();
        let mapped = Shared::of(made.ticket()).unwrap();
        made.word(96).store(7, Ordering::Release);
        assert_eq!(mapped.word(96).fetch_add(1, Ordering::AcqRel), 7);
        let mut bytes = [0; 4];
        made.read(96, &mut bytes);
        assert_eq!(u32::from_ne_bytes(bytes), 8);
    }

    #[test]
    fn a_ticket_that_leads_elsewhere_is_refused() {
        let made = Shared::new(4096).unwrap();
        let good = made.ticket();
        for wrong in [
            Ticket { inode: good.inode ^ 1, ..good },
            Ticket { descriptor: 0, ..good },
            Ticket { process: u32::MAX, ..good },
            Ticket { len: 4097, ..good },
            Ticket { len: 0, ..good },
        ] {
            assert!(Shared::of(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn memory_whose_size_may_change_is_refused() {
        let file = memfd::create(c"unsealed", 4096).unwrap();
        let (process, descriptor) = (std::process::id(), file.as_raw_fd() as u32);
        let ticket = Ticket { process, descriptor, inode: file.metadata().unwrap().ino(), len: 4096 };
        assert_eq!(Shared::of(ticket).unwrap_err().kind(), std::io::ErrorKind::InvalidData);
        memfd::seal(&file, 0).unwrap();
        assert_eq!(Shared::of(ticket).unwrap().len(), 4096);
    }

    #[test]
    #[should_panic(expected = "within the memory")]
    fn nothing_is_read_before_the_beginning() {
        // An end that overflows would be within.
        Shared::new(100).unwrap().read(usize::MAX - 3, &mut [0; 8]);
    }

    #[test]
    #[should_panic(expected = "a word is aligned")]
    fn no_word_lies_across_two() {
        Shared::new(100).unwrap().word(2);
    }

    #[test]
    #[should_panic(expected = "within the memory")]
    fn nothing_is_written_beyond_the_end() {
        Shared::new(100).unwrap().write(93, &[0; 8]);
    }
}
