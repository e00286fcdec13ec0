//! The rules of `PROTOCOL.md` as scripts: frames in, frames out, and when, as in packetdrill. One endpoint on a driver
//! that holds nothing but what the script says, in virtual time. `README.md` beside the scripts explains their language.

mod active;
mod frame;
mod nic;
mod operation;
mod script;
mod stage;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts")
}

macro_rules! scripts {
    ($($name:ident)*) => {
        const NAMES: &[&str] = &[$(stringify!($name)),*];
        $(#[test]
        fn $name() {
            // Whole frames; their headers, and what is more if it is called for; and the header of a put too.
            for head in [None, Some(24), Some(48)] {
                stage::play(&folder(), stringify!($name), head);
            }
        })*
    };
}

scripts! {
    accept
    ack_at_a_quarter_of_the_window
    ack_delayed
    ack_piggybacked
    active_credit
    active_full
    active_open
    active_refused
    active_reply
    atomic
    away
    away_while_connecting
    back_off
    busy_host
    busy_host_with_a_backlog
    close
    close_behind_an_answer
    close_by_the_peer
    coalescing
    credit_exhausted
    credit_reopened
    dialled_and_given_up
    dialling_each_other
    direct_path
    duplicate
    early_and_malformed
    epoch
    fence
    first_window
    fragments
    fragments_in
    get
    get_in
    handshake
    hello_again
    keep_alive
    lingering
    link_gone
    missing_after_an_absence
    ping
    overtaken_ack
    path_narrow
    put
    put_and_message
    put_and_message_in
    put_backwards
    put_by_pieces
    put_that_fills
    put_that_fills_backwards
    put_early
    put_in
    put_long_and_message
    put_refused
    rack_tolerates_reordering
    rejected
    reset
    rest_lost
    restarted_peer
    sack
    silent_peer
    tail_loss_probe
    time_out_of_who_was_away
    too_long
    unconfirmed
    unproven_limit
    window_full
}

#[test]
fn every_script_is_played_and_named_in_the_protocol() {
    let there: BTreeSet<String> = std::fs::read_dir(folder())
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().into_string().unwrap().strip_suffix(".script").map(String::from))
        .collect();
    assert_eq!(there, NAMES.iter().map(|name| String::from(*name)).collect());
    let protocol = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("PROTOCOL.md")).unwrap();
    for name in NAMES {
        assert!(protocol.contains(&format!("`{name}`")), "PROTOCOL.md names no script {name}");
    }
}
