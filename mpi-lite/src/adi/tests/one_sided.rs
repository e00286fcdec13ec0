//! Operations on another process's memory.

use super::job::{Job, bytes, small_limits};
use crate::adi::Error;
use sidelane_nic::time::Duration;

#[test]
fn a_window_is_written_read_and_changed() {
    for len in [8, 3_000, 100_000] {
        let mut job = Job::pair(&small_limits());
        let (there, lent) = job.room(len);
        let window = job.devices[1].register(lent);
        let key = job.devices[1].key(&window, 0).unwrap();
        assert_eq!(job.devices[1].key(&window, 1), None);
        let message = job.lend(&bytes(3, len));
        let put = job.devices[0].put(1, &key, 0, message).unwrap();
        assert_eq!(job.finish(0, put).error, None);
        assert_eq!(job.at(there), bytes(3, len));
        let (here, lent) = job.room(len);
        let get = job.devices[0].get(1, &key, 0, lent).unwrap();
        let status = job.finish(0, get);
        assert_eq!((status.error, status.bytes), (None, len));
        assert_eq!(job.at(here), bytes(3, len));
        let word = u64::from_le_bytes(*job.at(there).first_chunk().unwrap());
        let (before, lent) = job.room(8);
        let add = job.devices[0].fetch_add(1, &key, 0, 5, lent).unwrap();
        assert_eq!(job.finish(0, add).error, None);
        assert_eq!(job.at(before), word.to_le_bytes());
        let swap = job.devices[0].compare_swap(1, &key, 0, (word.wrapping_add(5), 1), lent).unwrap();
        job.finish(0, swap);
        assert_eq!(job.at(there)[..8], 1u64.to_le_bytes());
        job.devices[1].unregister(window);
        let late = job.devices[0].get(1, &key, 0, lent).unwrap();
        assert_eq!(job.finish(0, late).error, Some(Error::NoAccess));
    }
}

#[test]
fn operations_fail_when_their_process_is_gone() {
    let mut config = small_limits();
    config.endpoint.keep_alive = Duration::from_millis(5);
    let mut job = Job::pair(&config);
    let (_, lent) = job.room(3_000_000);
    let window = job.devices[1].register(lent);
    let key = job.devices[1].key(&window, 0).unwrap();
    let message = job.lend(&bytes(3, 3_000_000));
    let put = job.devices[0].put(1, &key, 0, message).unwrap();
    let (_, lent) = job.room(8);
    let get = job.devices[0].get(1, &key, 0, lent).unwrap();
    job.steps(20);
    job.fabric.crash(1);
    for request in [put, get] {
        assert_eq!(job.finish(0, request).error, Some(Error::ProcFailed));
    }
}
