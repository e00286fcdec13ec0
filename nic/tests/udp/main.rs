//! The `udp` driver on the loopback, and on a veth pair within a network namespace.
#![allow(unsafe_code)] // This process's sockets, by their numbers.

mod contract;
mod links;
#[macro_use]
#[path = "../namespace/mod.rs"]
mod namespace;
mod namespaced;
#[path = "../patience/mod.rs"]
mod patience;
#[path = "../polls/mod.rs"]
mod polls;
mod refusals;
mod sockets;
mod stage;

inside_a_namespace! {
    namespaced {
        veth_keeps_the_contract
        a_narrow_path_keeps_no_other_peers_frames_from_leaving_together
        a_socket_that_drains_slowly_is_slept_over_and_loses_nothing
        what_routers_say_of_an_earlier_frame_is_counted_and_costs_no_other
    }
}
