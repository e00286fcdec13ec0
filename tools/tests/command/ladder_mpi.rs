//! Other MPIs in the ladder: a false one, so that no MPI is needed, and real ones where `SIDELANE_TEST_MPI` names their prefixes.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::Value;

use crate::stage::{Stage, as_a_shell_has_it, for_each_user, signal, write_program};

/// Takes the source, and makes of it a script that says what the program would.
const MPICC: &str = r##"#!/bin/sh
grep -q MPI_Isend || { echo "this is no program for an MPI" >&2; exit 1; }
while [ "$1" != -o ]; do shift; done
cat >"$2" <<'END'
#!/bin/sh
[ "$3" -ge 20 ] || exit 1
[ "$(cat /proc/sys/net/ipv4/tcp_congestion_control)" = reno ] || exit 1
shift 5
echo "{\"library\":\"False MPI 5\",\"hosts\":[\"$(hostname)\",\"$SECOND\"]}"
for one; do
    tail="\"kind\":\"${one%:*}\",\"size\":${one#*:}}"
    case $one in
    ping-pong:*) echo "{\"half_rtt_ns\":{\"min\":1,\"p50\":50000.5,\"p99\":60000,\"p999\":70000,\"n\":5},$tail" ;;
    *) echo "{\"msgs_per_s\":2000,$tail" ;;
    esac
done
END
chmod +x "$2"
"##;

/// Looks whether its hosts are what they should be, and runs the script.
const MPIEXEC: &str = r#"#!/bin/sh
[ "$1" = --version ] && { echo "HYDRA build details:"; exit; }
complain() { echo "mpiexec: $*" >&2; exit 1; }
[ "$(hostname)" = sidelane-a ] || complain "the host is called $(hostname)"
touch /dev/shm/left-behind-SIDELANE
while [ "$1" != -n ]; do
    [ "$1" = -launcher-exec ] && ssh=$2
    shift
done
shift 2
export SECOND=sidelane-a
if [ -n "$ssh" ]; then
    here=$("$ssh" -x -l root 10.79.0.1 'echo "$(hostname) $(ls /dev/shm/left-behind*)"')
    [ "$here" = "sidelane-a /dev/shm/left-behind-SIDELANE" ] || complain "this host is $here"
    nowhere=$("$ssh" 10.79.0.3 hostname 2>&1) && complain "there is a third host: $nowhere"
    there=$("$ssh" -x 10.79.0.2 'echo "$(hostname) $(readlink /proc/self/ns/net) $(ls /dev/shm)"') || complain "no ssh"
    [ "${there%% *}" = sidelane-b ] || complain "the other host is $there"
    case $there in *"$(readlink /proc/self/ns/net)"*|*left-behind*) complain "one host is both: $there" ;; esac
    SECOND=$("$ssh" someone@10.79.0.2 hostname)
fi
exec "$@"
"#;

/// Makes a prefix of two scripts.
fn prefix(stage: &Stage, mpicc: &str, mpiexec: &str) -> String {
    let prefix = stage.runtime().join("false mpi");
    fs::create_dir_all(prefix.join("bin")).unwrap();
    for (name, text) in [("mpicc", mpicc), ("mpiexec", mpiexec)] {
        write_program(&prefix.join("bin").join(name), text);
    }
    prefix.to_str().unwrap().to_owned()
}

fn ladder(stage: &Stage, prefix: &str, arguments: &[&str]) -> Command {
    let short = ["ladder", "--quick", "--rounds", "1", "--rungs", "mpi", "--mpi", prefix];
    let mut command = stage.sidelane(&[&short[..], arguments].concat());
    command.env("XDG_CACHE_HOME", stage.runtime().join("cache"));
    command
}

fn nothing_in_shared_memory() {
    assert!(!Path::new("/dev/shm/left-behind-SIDELANE").exists());
}

#[test]
fn another_mpi_stands_beside_the_rungs() {
    for_each_user(|stage| {
        let prefix = prefix(stage, MPICC, MPIEXEC);
        let json = stage.runtime().join("out.json").to_str().unwrap().to_owned();
        for (nic, regimes) in [("uring", &["default-offloads", "real-frames"][..]), ("shm", &["default-offloads"])] {
            let output = ladder(stage, &prefix, &["--nic", nic, "--json", &json]).output().unwrap();
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{errors}");
            let table = String::from_utf8(output.stdout).unwrap();
            assert!(table.contains("mpich: False MPI 5") && table.contains("50.0 µs"), "{table}");
            let report: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
            let rows = report["rungs"].as_array().unwrap();
            let theirs: Vec<_> = rows.iter().filter(|row| row["name"] == "mpich").collect();
            assert_eq!(theirs.iter().map(|row| &row["regime"]).collect::<Vec<_>>(), regimes);
            assert_eq!(theirs[0]["half_rtt_ns"]["p50"], 50_000.5);
            assert_eq!(theirs[0]["gbit_per_s"], 2000.0 * 8.0 * 1_048_576.0 / 1e9);
        }
        nothing_in_shared_memory();
    });
}

/// As Debian's services have it, with a home that nobody can make.
#[test]
fn a_user_without_a_home_has_other_mpis_too() {
    let stage = Stage::own_user();
    if !stage.has_labs() {
        return;
    }
    let prefix = prefix(&stage, MPICC, MPIEXEC);
    let mut command = ladder(&stage, &prefix, &["--nic", "shm", "--patterns", "ping-pong"]);
    let output = command.env("XDG_CACHE_HOME", "/proc/nonexistent").env("TMPDIR", stage.runtime()).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert_eq!(errors.matches("cannot make /proc/nonexistent/sidelane: ").count(), 1, "{errors}");
    assert!(errors.contains("have XDG_CACHE_HOME name a folder that can be made"), "{errors}");
    stage.assert_nothing_is_left();
}

#[test]
fn an_mpi_that_fails_is_quoted() {
    let stage = Stage::own_user();
    if !stage.has_labs() {
        return;
    }
    let compiler = "#!/bin/sh\necho 'mpicc: no compiler here' >&2\nexit 1\n";
    let launcher = "#!/bin/sh\n[ \"$1\" = --version ] && exit\necho 'cannot reach the other host' >&2\nexit 3\n";
    let silent = "#!/bin/sh\n[ \"$1\" = --version ] && exit\necho '{\"library\":\"x\",\"hosts\":[\"a\",\"b\"]}'\n";
    let on_one_host = MPIEXEC.replace("SECOND=$", ": $");
    for (mpicc, mpiexec, reasons) in [
        (compiler, MPIEXEC, ["SIDELANE_MPI) has failed", "no compiler here"]),
        (MPICC, launcher, ["exit status: 3", "cannot reach the other host"]),
        (MPICC, silent, ["other-mpi", "played 0 of 1 patterns"]),
        (MPICC, &on_one_host, ["mpich", "put the ranks on sidelane-a and sidelane-a"]),
    ] {
        let prefix = prefix(&stage, mpicc, mpiexec);
        let output = ladder(&stage, &prefix, &["--nic", "uring", "--patterns", "ping-pong"]).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && reasons.iter().all(|reason| errors.contains(reason)), "{errors}");
        let measured = String::from_utf8(output.stdout).unwrap();
        assert_eq!(measured.contains("mpi"), mpicc == MPICC, "what goes is measured without it: {errors}");
    }
    let output = ladder(&stage, "/nowhere", &[]).output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("/nowhere (of --mpi or SIDELANE_MPI) has no bin/mpiexec"), "{errors}");
    stage.assert_nothing_is_left();
}

#[test]
fn however_the_ladder_ends_nothing_of_an_mpi_is_left() {
    for_each_user(|stage| {
        let begun = stage.runtime().join("begun");
        let made = Command::new("mkfifo").args(["-m", "666"]).arg(&begun).status().unwrap();
        assert!(made.success());
        // One that starts something in the background, and never ends.
        let hangs = format!("setsid sleep 1000 & echo up >'{}'; exec sleep 1000", begun.display());
        let prefix = prefix(stage, MPICC, &MPIEXEC.replace("exec \"$@\"", &hangs));
        for (by, code) in [(libc::SIGINT, Some(130)), (libc::SIGKILL, None)] {
            let mut tool = ladder(stage, &prefix, &["--nic", "uring", "--patterns", "ping-pong"])
                .stderr(Stdio::piped())
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            assert_eq!(line_of(&begun, &mut tool), "up\n");
            signal(&tool, by);
            assert_eq!(as_a_shell_has_it(tool.wait().unwrap()), code);
            stage.assert_nothing_is_left();
            nothing_in_shared_memory();
        }
    });
}

/// The first line that comes through the FIFO `at`, within a minute; else the test fails with what `tool` has complained of.
fn line_of(at: &Path, tool: &mut Child) -> String {
    // Open for writing too, so that nothing waits for the other end, and nothing ends with it.
    let fifo = fs::OpenOptions::new().read(true).write(true).open(at).unwrap();
    let (heard, hear) = mpsc::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        let _ = BufReader::new(fifo).read_line(&mut line);
        let _ = heard.send(line);
    });
    hear.recv_timeout(Duration::from_secs(60)).unwrap_or_else(|_| {
        let _ = tool.kill();
        let mut errors = String::new();
        let _ = tool.stderr.take().unwrap().read_to_string(&mut errors);
        panic!("nothing was begun: {errors}")
    })
}

#[test]
fn an_interrupted_compiler_leaves_no_half_of_a_program() {
    let stage = Stage::own_user();
    if !stage.has_labs() {
        return;
    }
    let begun = stage.runtime().join("compiling");
    assert!(Command::new("mkfifo").arg(&begun).status().unwrap().success());
    let compiler = format!(
        "#!/bin/sh\ncat >/dev/null\nwhile [ \"$1\" != -o ]; do shift; done\n: >\"$2\"\necho half >'{}'\nexec sleep 1000\n",
        begun.display()
    );
    let prefix = prefix(&stage, &compiler, MPIEXEC);
    let mut tool = ladder(&stage, &prefix, &["--nic", "uring"]).stderr(Stdio::piped()).spawn().unwrap();
    assert_eq!(line_of(&begun, &mut tool), "half\n");
    signal(&tool, libc::SIGTERM);
    assert_eq!(tool.wait().unwrap().code(), Some(143));
    assert_eq!(fs::read_dir(stage.runtime().join("cache/sidelane")).unwrap().count(), 0);
    stage.assert_nothing_is_left();
}

#[test]
fn real_mpis_stand_beside_the_rungs() {
    let Some(prefixes) = std::env::var("SIDELANE_TEST_MPI").ok().filter(|prefixes| !prefixes.is_empty()) else {
        println!("skipped: SIDELANE_TEST_MPI names no prefix of an MPI");
        return;
    };
    let stage = Stage::own_user();
    for nic in ["uring", "shm"] {
        let output = ladder(&stage, &prefixes, &["--nic", nic, "--sizes", "8,70000"]).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        println!("{}", String::from_utf8_lossy(&output.stdout));
    }
    stage.assert_nothing_is_left();
}
