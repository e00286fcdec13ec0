//! The `xdp` driver on real interfaces of the kernel: veth pairs, a bridge, the loopback. As root; who is not is told so.

mod contract;
#[path = "../frames/mod.rs"]
mod frames;
mod interface;
#[path = "../interface_gone/mod.rs"]
mod interface_gone;
mod kernel;
mod limits;
#[macro_use]
#[path = "../namespace/mod.rs"]
mod namespace;
#[path = "../on_interfaces/mod.rs"]
mod on_interfaces;
#[path = "../patience/mod.rs"]
mod patience;
mod ping;
#[allow(dead_code, reason = "some of it is for tests of another driver")]
#[path = "../raw_socket/mod.rs"]
mod raw_socket;
mod sharing;
mod stage;

inside_a_namespace! {
    if crate::stage::may_open();
    contract {
        veth_keeps_the_contract
        native_mode_keeps_the_contract
        bridge_keeps_the_contract
        loopback_keeps_the_contract
    }
    interface {
        open_errors_say_what_to_do
        queues_are_chosen
        bursts_of_the_uring_driver_come_whole
        full_rings_drop_and_count
        removed_interface_is_gone
        an_interface_that_goes_while_somebody_sleeps_is_missed
        who_was_told_that_its_interface_is_gone_sleeps_again
        interface_that_was_down_carries_frames_again
        mtu_follows_the_interface_as_far_as_chunks_go
        the_mtu_is_the_same_wherever_the_program_runs
        an_interface_that_is_too_narrow_is_refused_with_the_least_mtu
    }
    limits {
        a_limit_of_locked_memory_is_raised_where_that_is_allowed
        whoever_may_lock_too_little_memory_is_told_how_much_it_takes
    }
    sharing {
        uring_and_xdp_share_an_interface
        the_first_endpoint_may_leave_first
        killed_endpoints_leave_nothing_behind
        endpoints_come_and_go_without_end
        names_that_another_user_takes_keep_nobody_out
    }
    kernel {
        foreign_frames_are_the_kernels
        the_kernel_goes_on_pinging_and_streaming
    }
}
