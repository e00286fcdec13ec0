//! With programs and launchers that others have made.

use std::process::Command;

use super::{own_stage, said_in, shells, told};

/// The other way round than in `mpi-lite/tests/launchers`: our launcher, and ranks that others have made.
#[test]
fn programs_of_mpich_run() {
    let library = "/usr/lib/x86_64-linux-gnu/libmpich.so.12";
    if !std::path::Path::new(library).exists() {
        println!("skipped: MPICH is not installed (Debian: libmpich12)");
        return;
    }
    own_stage(|stage| {
        let folder = tempfile::tempdir().unwrap();
        let (source, program) = (folder.path().join("sum.c"), folder.path().join("sum"));
        std::fs::write(&source, SUM).unwrap();
        assert!(Command::new("cc").arg("-o").args([&program, &source]).arg(library).status().unwrap().success());
        let output = stage.output(&["run", "-n", "4", "--timeout", "60", program.to_str().unwrap()]);
        let (code, lines, errors) = told(&output);
        let mut lines: Vec<_> = lines.lines().collect();
        lines.sort_unstable();
        assert_eq!((code, errors.as_str()), (Some(0), ""));
        assert_eq!(lines, ["0/4 sum 10", "1/4 sum 10", "2/4 sum 10", "3/4 sum 10"]);
    });
}

/// Without MPICH's header: MPI_COMM_WORLD, MPI_INT and MPI_SUM are these numbers in its ABI.
const SUM: &str = r#"
#include <stdio.h>
int MPI_Init(int *, char ***), MPI_Comm_rank(int, int *), MPI_Comm_size(int, int *), MPI_Finalize(void);
int MPI_Allreduce(const void *, void *, int, int, int, int);
int main(void) {
    int rank, size, one, sum = 0;
    MPI_Init(0, 0);
    MPI_Comm_rank(0x44000000, &rank);
    MPI_Comm_size(0x44000000, &size);
    one = rank + 1;
    MPI_Allreduce(&one, &sum, 1, 0x4c000405, 0x58000003, 0x44000000);
    printf("%d/%d sum %d\n", rank, size, sum);
    return MPI_Finalize();
}
"#;

/// A job within a job: MPICH's launcher, and its ranks, have all that a rank of ours was told, and are not taken for that one.
#[test]
fn a_rank_starts_a_job_of_another_launcher() {
    if std::process::Command::new("mpiexec.hydra").arg("--version").output().is_err() {
        println!("skipped: mpiexec.hydra is not installed (Debian: mpich)");
        return;
    }
    own_stage(|stage| {
        let test = [&stage.test_program(), "--exact", "run::part_of_a_rank", "--ignored", "--nocapture", "--quiet"];
        for how in ["mpiexec.hydra -n 2", "mpiexec.hydra -pmi-port -n 2"] {
            let within = format!("PART=exchange exec {how} {}", test.join(" "));
            // The same rank of as many ranks, and one that has to go on without others.
            for options in [&["-n", "2"][..], &["-n", "1", "--keep-going"]] {
                let (code, lines, errors) = shells(stage, &[options, &["--timeout", "60"]].concat(), &within);
                let mut said: Vec<_> = lines.lines().filter_map(said_in).collect();
                said.sort_unstable();
                let each = if options[1] == "2" { 2 } else { 1 };
                let expected = [["0/2 0,1"].repeat(each), ["1/2 0,1"].repeat(each)].concat();
                assert_eq!((code, said), (Some(0), expected), "{how} {options:?}: {lines}{errors}");
            }
        }
    });
}
