//! Whether the tests of DPDK can run here, and how they end where DPDK itself stands still.

use crate::patience::{SUITE_PATIENCE, watch};

/// True, and the reason printed, where there is no libdpdk. Else the test that asks has begun: it ends in time, or the program
/// does, since DPDK's own waits have no limit. Who waits for other tests does so before.
pub fn is_missing() -> bool {
    watch("it", SUITE_PATIENCE);
    sidelane_dpdk_sys::load().inspect_err(|error| println!("skipped: {error}")).is_err()
}
