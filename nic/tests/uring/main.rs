//! The `uring` driver on real interfaces of the kernel: veth pairs, a bridge, the loopback.

mod contract;
mod foreign;
#[path = "../frames/mod.rs"]
mod frames;
mod interface;
#[path = "../interface_gone/mod.rs"]
mod interface_gone;
#[macro_use]
#[path = "../namespace/mod.rs"]
mod namespace;
#[path = "../on_interfaces/mod.rs"]
mod on_interfaces;
mod order;
#[path = "../patience/mod.rs"]
mod patience;
mod placing;
#[allow(dead_code, reason = "some of it is for tests of another driver")]
#[path = "../raw_socket/mod.rs"]
mod raw_socket;
mod stage;
mod trains;

inside_a_namespace! {
    contract {
        veth_keeps_the_contract
        real_frames_on_veth_keep_the_contract
        trains_on_veth_keep_the_contract
        bridge_keeps_the_contract
        loopback_keeps_the_contract
    }
    trains {
        trains_and_lone_frames_come_in_the_order_of_sending
        readers_rest_behind_trains_alone_and_miss_nothing
        trains_cross_a_bridge
        peers_that_read_no_trains_get_none
        who_comes_after_one_that_read_trains_is_asked_anew
        an_answer_that_lay_unread_while_its_peer_went_is_too_old
        a_flood_of_probes_is_answered_at_a_rate_and_honest_peers_beside_it
        trains_are_not_merged_again_where_that_is_on
    }
    order {
        frames_of_both_rings_come_in_the_order_of_sending
        short_frames_that_come_alone_and_many_at_once_are_whole
        short_frames_that_follow_large_ones_come_after_them
    }
    placing {
        every_other_full_frame_is_fetched_and_all_come_in_the_order_of_sending
        a_stream_one_way_is_fetched_no_more_until_as_much_comes_back
        after_1_mib_one_way_a_packet_lies_in_one_piece
        a_frame_is_fetched_after_the_interface_was_down
        a_packet_that_is_shorter_than_it_says_is_dropped
        no_packet_takes_the_place_of_one_that_was_in_hand_at_a_panic
        packets_that_were_cut_on_the_way_are_not_put_together_again
        packets_that_are_to_be_fetched_wake_and_fill_a_ring_of_their_own
    }
    foreign {
        foreign_protocols_are_not_seen
        others_frames_are_not_seen_and_put_the_filter_back
    }
    interface {
        open_errors_say_what_to_do
        ports_of_a_bridge_are_refused_and_the_bridge_is_named
        full_rings_drop_and_count
        removed_interface_is_gone
        a_dropped_endpoint_leaves_no_socket
        an_interface_that_goes_while_somebody_sleeps_is_missed
        who_was_told_that_its_interface_is_gone_sleeps_again
        interface_that_was_down_carries_frames_again
        a_burst_after_the_interface_was_down_arrives_whole
        lost_offload_fails_large_frames_only
        what_the_other_end_drops_is_tried_for_a_moment_and_slept_over
        mtu_follows_the_interface
        an_interface_that_is_too_narrow_is_refused_with_the_least_mtu
        addresses_are_their_interfaces_whatever_their_labels
        addresses_are_all_told_while_others_go
    }
}
