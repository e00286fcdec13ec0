//! The `udp` driver on the loopback, and on a veth pair within a network namespace.
#![allow(unsafe_code)] // This process's sockets, by their numbers.

mod contract;
mod inside;
mod links;
#[path = "../namespace/mod.rs"]
mod namespace;
#[path = "../patience/mod.rs"]
mod patience;
#[path = "../polls/mod.rs"]
mod polls;
mod refusals;
mod sockets;
mod stage;

#[test]
fn veth_keeps_the_contract() {
    namespace::run_inside("inside::veth_keeps_the_contract");
}

#[test]
fn a_narrow_path_keeps_no_other_peers_frames_from_leaving_together() {
    namespace::run_inside("inside::a_narrow_path_keeps_no_other_peers_frames_from_leaving_together");
}

#[test]
fn a_socket_that_drains_slowly_is_slept_over_and_loses_nothing() {
    namespace::run_inside("inside::a_socket_that_drains_slowly_is_slept_over_and_loses_nothing");
}

#[test]
fn what_routers_say_of_an_earlier_frame_is_counted_and_costs_no_other() {
    namespace::run_inside("inside::what_routers_say_of_an_earlier_frame_is_counted_and_costs_no_other");
}
