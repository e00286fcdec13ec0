//! Whether the tests of DPDK can run here.

/// True, and the reason printed, where there is no libdpdk.
pub fn is_missing() -> bool {
    sidelane_dpdk_sys::load().inspect_err(|error| println!("skipped: {error}")).is_err()
}
