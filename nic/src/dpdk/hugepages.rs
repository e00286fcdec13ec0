//! Whether there are hugepages for DPDK, found out without its environment: that is started once a process, with them or
//! without, and does not start where it is promised some that it then does not get.
#![allow(unsafe_code)] // Memory is mapped to see whether it can be.

use std::fs;
use std::ptr;

/// Bytes in hugepages that nobody uses or has reserved.
pub fn free() -> u64 {
    sizes().iter().map(Size::free).sum()
}

/// True when this process can have enough of one size. It is tried, since the numbers know nothing of a control group's limit nor
/// of the memory nodes that it may use. Takes as long as the kernel takes to clear them: for 64 MiB some 20 ms.
pub fn suffice() -> bool {
    let needed = |page: u64| NEEDED.next_multiple_of(page);
    // Smaller ones first, as the environment prefers what leaves less over.
    sizes().iter().any(|size| size.free() >= needed(size.page) && can_have(size.page, needed(size.page)))
}

/// What makes so many more of 2 MiB, on that memory node if the machine has several.
pub fn command_for_more(mib: u64, node: Option<u32>) -> String {
    let file = match node {
        Some(node) => format!("/sys/devices/system/node/node{node}/hugepages/hugepages-2048kB/nr_hugepages"),
        None => "/proc/sys/vm/nr_hugepages".to_owned(),
    };
    let now: u64 = fs::read_to_string(&file).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    format!("echo {} | sudo tee {file}", now + mib.div_ceil(2))
}

/// A size of hugepages, with how many there are.
#[derive(Debug, PartialEq, Eq)]
struct Size {
    /// Bytes.
    page: u64,
    free: u64,
    /// Of the free ones: promised to who has mapped them.
    reserved: u64,
}

impl Size {
    /// Bytes.
    fn free(&self) -> u64 {
        self.page * self.free.saturating_sub(self.reserved)
    }
}

/// From the smallest on (Documentation/admin-guide/mm/hugetlbpage.rst).
fn sizes() -> Vec<Size> {
    let folders = fs::read_dir("/sys/kernel/mm/hugepages").into_iter().flatten().flatten();
    let size = |folder: fs::DirEntry| {
        let count = |file| -> Option<u64> { fs::read_to_string(folder.path().join(file)).ok()?.trim().parse().ok() };
        let page = page(folder.file_name().to_str()?)?;
        Some(Size { page, free: count("free_hugepages")?, reserved: count("resv_hugepages").unwrap_or(0) })
    };
    let mut sizes: Vec<Size> = folders.filter_map(size).collect();
    sizes.sort_by_key(|size| size.page);
    sizes
}

/// `hugepages-2048kB` are 2 MiB large.
fn page(folder: &str) -> Option<u64> {
    let kib: u64 = folder.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
    kib.checked_mul(1024).filter(|page| page.is_power_of_two())
}

/// Whether `bytes` in pages of this size can be had now. They are given back.
fn can_have(page: u64, bytes: u64) -> bool {
    let len = bytes as usize;
    // The kernel takes the size's logarithm (mmap(2)). Populated by the kernel, as who touches a page that a control group refuses is
    // ended by SIGBUS.
    let size = (page.trailing_zeros() as libc::c_int) << libc::MAP_HUGE_SHIFT;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB | libc::MAP_POPULATE | size;
    // SAFETY: A new mapping, at a place of the kernel's choice.
    let at = unsafe { libc::mmap(ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    if at == libc::MAP_FAILED {
        return false;
    }
    // That it could not populate all, mmap(2) does not say. Of larger base pages fewer bytes are written, and the rest stays as it is.
    let mut present = vec![PRESENT; len.div_ceil(BASE_PAGE_MIN)];
    // SAFETY: Of the mapping above, with a byte of `present` for each of its base pages, which are not smaller.
    let told = unsafe { libc::mincore(at, len, present.as_mut_ptr()) };
    // SAFETY: The mapping above, which nothing refers to.
    unsafe { libc::munmap(at, len) };
    told == 0 && present.iter().all(|byte| byte & PRESENT != 0)
}

/// Less, and a port with its packet buffers would not fit.
pub const NEEDED: u64 = 64 << 20;
/// What mincore(2) says of a base page that is there.
const PRESENT: u8 = 1;
/// Linux has no smaller ones.
const BASE_PAGE_MIN: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_from_their_names() {
        assert_eq!(page("hugepages-2048kB"), Some(2 << 20));
        assert_eq!(page("hugepages-1048576kB"), Some(1 << 30));
        for other in ["hugepages-2048", "2048kB", "hugepages-kB", "hugepages-3kB", "hugepages-18446744073709551615kB"] {
            assert_eq!(page(other), None, "{other}");
        }
    }

    #[test]
    fn what_others_have_reserved_is_not_free() {
        let free = |free, reserved| Size { page: 2 << 20, free, reserved }.free();
        assert_eq!((free(64, 0), free(64, 60), free(64, 64)), (128 << 20, 8 << 20, 0));
        // Between the two questions a mapping came.
        assert_eq!(free(3, 4), 0);
    }

    #[test]
    fn more_than_there_are_cannot_be_had() {
        for Size { page, .. } in sizes() {
            assert!(!can_have(page, 1 << 46), "{page}");
        }
        assert!(!can_have(1 << 13, NEEDED), "no processor has hugepages of 8 KiB");
    }
}
