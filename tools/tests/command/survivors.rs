//! Ranks are killed, and the others make a communicator without them and go on to the right result: the program is
//! `mpi-lite/examples/survivors.rs`.

use crate::run::{job_of, own_stage, said, told};
use crate::stage::{Stage, for_each_user};

#[allow(dead_code, reason = "its `main` is for people")]
#[path = "../../../mpi-lite/examples/survivors.rs"]
mod program;

#[test]
#[ignore = "run as a rank by other tests"]
fn part_of_a_rank() {
    let victims = std::env::var("VICTIMS").unwrap();
    let counted = sidelane_mpi::world::run(|world| program::survive(world, &victims)).unwrap();
    println!("\ntold: {counted}");
}

/// Kills these ranks, one after the other, and looks at the others.
fn survives(stage: &Stage, ranks: u32, victims: &[u32], options: &[&str]) {
    let list = victims.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let (ranks_text, list) = (ranks.to_string(), format!("VICTIMS={list}"));
    let ours = ["-n", &ranks_text, "--keep-going", "--timeout", "60", "-x", &list];
    let arguments = job_of(stage, &[&ours[..], options].concat(), "survivors::part_of_a_rank");
    let output = stage.output(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let (code, _, errors) = told(&output);
    let mut counted = said(&output);
    counted.sort_unstable();
    let others = ranks as usize - victims.len() - 1;
    let living = (0..ranks).filter(|rank| !victims.contains(rank));
    let expected: Vec<_> = living.map(|rank| format!("rank {rank} has counted with {others} others to 300")).collect();
    assert_eq!(counted, expected, "{victims:?} {options:?}: {errors}");
    for victim in victims {
        assert!(errors.contains(&format!("sidelane run: rank {victim} on host ")), "{errors}");
    }
    assert_eq!(errors.matches("was killed by SIGKILL (signal 9); the others go on").count(), victims.len(), "{errors}");
    assert_eq!(code, Some(128 + libc::SIGKILL), "the job tells that it was not whole");
}

#[test]
fn the_others_shrink_and_count_on_after_kills_on_one_host() {
    own_stage(|stage| {
        // The last one; the one that leads agreements, and then the next; all but one.
        for (ranks, victims) in [(4, &[3][..]), (4, &[0, 1]), (3, &[2, 0]), (8, &[5, 2])] {
            survives(stage, ranks, victims, &[]);
        }
    });
}

#[test]
fn the_others_shrink_and_count_on_after_kills_between_hosts() {
    for_each_user(|stage| {
        stage.text(&["lab", "up", "--hosts", "4"]);
        for (ranks, victims) in [(4, &[3][..]), (4, &[0, 1]), (6, &[4, 0])] {
            survives(stage, ranks, victims, &["--hosts", "lab"]);
        }
        survives(stage, 4, &[2], &["--hosts", "lab", "--nic", "udp"]);
        stage.text(&["lab", "down"]);
    });
}
