use std::process::Stdio;

use super::*;

/// The lab, or `None` where this machine forbids one; the reason is printed.
fn lab(spec: LabSpec) -> Option<Lab> {
    match Lab::build(&spec) {
        Ok(lab) => Some(lab),
        Err(LabError::Forbidden(reason)) => {
            println!("skipped: {reason}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn output(command: &mut Command) -> String {
    let output = command.stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn nonsense_is_refused_before_anything_is_made() {
    for hosts in [0, 1, 27] {
        assert!(matches!(Lab::build(&LabSpec { hosts, ..LabSpec::default() }), Err(LabError::Hosts(_))));
    }
    for mtu in [0, 67, 65_536] {
        assert!(matches!(Lab::build(&LabSpec { mtu, ..LabSpec::default() }), Err(LabError::Mtu(_))));
    }
}

#[test]
fn each_host_sees_its_own_interfaces_only() {
    let Some(lab) = lab(LabSpec { mtu: 9000, ..LabSpec::default() }) else { return };
    for host in lab.hosts() {
        // /proc/net follows the network namespace of the reader, sysfs that of whoever mounted it.
        let devices = output(host.command("cat").arg("/proc/net/dev"));
        let names: Vec<&str> = devices.lines().skip(2).filter_map(|line| line.trim().split(':').next()).collect();
        assert_eq!(names, ["lo", INTERFACE]);
        let table = output(host.command("cat").arg("/proc/net/arp"));
        let other = lab.hosts().iter().find(|other| other.name() != host.name()).unwrap();
        assert!(table.contains(&other.address().mac_text()), "{table}");
        let ipv6 = output(host.command("cat").arg("/proc/net/if_inet6"));
        assert_eq!(ipv6, "");
    }
}

#[test]
fn offloads_are_on_unless_real_frames_are_wanted() {
    for (hosts, real_frames) in [(2, false), (2, true), (3, true)] {
        let Some(lab) = lab(LabSpec { hosts, real_frames, ..LabSpec::default() }) else { return };
        for host in lab.hosts() {
            let offloads = host.offloads();
            let Offloads { tso, gso, gro, tx_checksum } = offloads;
            if real_frames {
                assert!(!tso && !gso && !gro && !tx_checksum, "{offloads:?}");
            } else {
                assert!(tso && gso && tx_checksum, "{offloads:?}");
            }
        }
    }
}

#[test]
fn a_pinned_command_runs_on_its_core_alone() {
    let Some(lab) = lab(LabSpec::default()) else { return };
    let status = output(lab.host(1).pinned_command("cat", 0).arg("/proc/self/status"));
    assert!(status.contains("Cpus_allowed_list:\t0\n"), "{status}");
}

#[test]
fn a_command_that_cannot_start_says_so() {
    let Some(lab) = lab(LabSpec::default()) else { return };
    let error = lab.host(0).command("/no/such/program").spawn().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
}
