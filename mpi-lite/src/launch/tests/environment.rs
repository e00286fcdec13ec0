//! What the variables of a rank say.

use std::collections::HashMap;

use super::super::*;

fn keeps_going(variables: &[(&str, &str)]) -> bool {
    let variables: HashMap<_, _> = variables.iter().copied().collect();
    Environment::new(&|name| variables.get(name).map(|value| (*value).to_owned())).keeps_going()
}

fn launcher_of(variables: &[(&str, &str)]) -> Result<Launcher, LaunchError> {
    let variables: HashMap<_, _> = variables.iter().copied().collect();
    Environment::new(&|name| variables.get(name).map(|value| (*value).to_owned())).launcher()
}

#[test]
fn the_environment_says_who_launched() {
    assert_eq!(launcher_of(&[]).unwrap(), Launcher::None { warning: None });
    let pmi = [("PMI_FD", "5"), ("PMI_RANK", "2"), ("PMI_SIZE", "3")];
    assert_eq!(launcher_of(&pmi).unwrap(), Launcher::Descriptor { fd: 5, inode: None, rank: 2, size: 3 });
    let run = [&pmi[..], &[("SIDELANE_PMI_SOCKET", "5,2,3,77"), ("SIDELANE_KEEPS_GOING", "1")]].concat();
    let ours = Launcher::Descriptor { fd: 5, inode: Some(77), rank: 2, size: 3 };
    assert_eq!(launcher_of(&run).unwrap(), ours);
    assert!(keeps_going(&run));
    // Another launcher, started by one of our ranks, has set some anew.
    for set in [("PMI_FD", "6"), ("PMI_RANK", "1"), ("PMI_SIZE", "4"), ("HYDI_CONTROL_FD", "9")] {
        let within = [&run[..], &[set]].concat();
        assert!(matches!(launcher_of(&within), Ok(Launcher::Descriptor { inode: None, .. })), "{set:?}");
        assert!(!keeps_going(&within), "{set:?}");
    }
    let within = [&run[..], &[("PMI_PORT", "h:1"), ("PMI_ID", "4")]].concat();
    assert!(matches!(launcher_of(&within), Ok(Launcher::Port { id: 4, .. })) && !keeps_going(&within));
    let port = Launcher::Port { address: "h:1".to_owned(), id: 4 };
    assert_eq!(launcher_of(&[("PMI_PORT", "h:1"), ("PMI_ID", "4")]).unwrap(), port);
    for set in [&run[..], &within[..]] {
        let alone = [set, &[("SIDELANE_ALONE", "1")]].concat();
        assert_eq!(launcher_of(&alone).unwrap(), Launcher::None { warning: None }, "who says so is believed");
    }
    // Slurm's own variables stand beside those of its plugin pmi2.
    let slurm = [("SLURM_STEP_ID", "0"), ("SLURM_PROCID", "2"), ("SLURM_NTASKS", "3")];
    assert!(matches!(launcher_of(&[&pmi[..], &slurm].concat()), Ok(Launcher::Descriptor { .. })));
    for broken in [("PMI_RANK", "3"), ("PMI_RANK", "x"), ("PMI_RANK", ""), ("PMI_FD", "five")] {
        let variables = [&pmi[..], &[broken]].concat();
        assert!(matches!(launcher_of(&variables), Err(LaunchError::BadEnvironment(_))), "{broken:?}");
    }
}

#[test]
fn silent_singletons_are_refused_with_what_to_type() {
    let cases: [(&[(&str, &str)], &str); 7] = [
        (&[("SLURM_STEP_ID", "0"), ("SLURM_PROCID", "1"), ("SLURM_STEP_NUM_TASKS", "4")], "srun --mpi=pmi2"),
        (&[("SLURM_STEP_ID", "0"), ("SLURM_PROCID", "1"), ("SLURM_NTASKS", "4")], "has started 4 tasks"),
        (&[("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "2"), ("PMIX_RANK", "0")], "mpiexec.hydra"),
        (&[("PMIX_RANK", "0"), ("PMIX_NAMESPACE", "x")], "PMIx"),
        (&[("PALS_RANKID", "0"), ("PMI_RANK", "0"), ("PMI_SIZE", "8"), ("PMIX_RANK", "0")], "PALS has started 8 tasks"),
        (&[("PALS_RANKID", "0"), ("PMI_CONTROL_PORT", "11998")], "mpiexec.hydra"),
        (&[("SLURM_STEP_ID", "0"), ("SLURM_PROCID", "1"), ("SLURM_NTASKS", "4")], "SIDELANE_ALONE=1"),
    ];
    for (variables, says) in cases {
        let text = launcher_of(variables).unwrap_err().to_string();
        assert!(text.contains(says), "{text}");
        let meant = [variables, &[("SIDELANE_ALONE", "1")][..]].concat();
        assert_eq!(launcher_of(&meant).unwrap(), Launcher::None { warning: None });
    }
    // One task is one rank, and so is what a batch script starts by itself.
    let one = [("SLURM_STEP_ID", "0"), ("SLURM_PROCID", "0"), ("SLURM_NTASKS", "1")];
    assert_eq!(launcher_of(&one).unwrap(), Launcher::None { warning: None });
    let one = [("PALS_RANKID", "0"), ("PMI_RANK", "0"), ("PMI_SIZE", "1")];
    assert_eq!(launcher_of(&one).unwrap(), Launcher::None { warning: None });
    let script = [("SLURM_JOB_ID", "1"), ("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4")];
    let Launcher::None { warning: Some(text) } = launcher_of(&script).unwrap() else { panic!() };
    assert!(text.contains("srun --mpi=pmi2"), "{text}");
}
