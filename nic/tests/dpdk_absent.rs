//! The same binary on a machine without libdpdk: in a root directory with nothing but this test and what it is linked to.

mod patience;

use std::fs;
use std::path::Path;
use std::process::Command;

use patience::{SUITE_PATIENCE, watch};
use sidelane_nic::dpdk::{Config, Dpdk};

#[test]
#[ignore = "runs in a root directory of its own: the test below runs it there"]
fn inside() {
    match Dpdk::open(&Config::new("net_null0")) {
        Ok(_) => println!("said: it works"),
        Err(error) => println!("said: {error}"),
    }
}

#[test]
fn without_libdpdk_one_line_says_what_to_install() {
    if let Some(missing) = sidelane_dpdk_sys::missing_at_build() {
        return println!("skipped: {missing}");
    }
    watch("the binary in its root directory", SUITE_PATIENCE);
    let root = tempfile::tempdir().unwrap();
    let own = std::env::current_exe().unwrap();
    // What is in memory now is what the binary is linked to and the loader; DPDK comes when it is asked for.
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let mapped = maps.lines().filter_map(|line| Some(&line[line.find('/')?..])).filter(|file| file.contains(".so"));
    let mut libraries: Vec<&Path> = mapped.map(Path::new).collect();
    libraries.dedup();
    for file in libraries.iter().chain([&own.as_path()]) {
        let copy = root.path().join(file.strip_prefix("/").unwrap());
        fs::create_dir_all(copy.parent().unwrap()).unwrap();
        fs::copy(file, copy).unwrap();
    }
    let said = match run_in(root.path(), &libraries, &own) {
        Ok(said) => said,
        Err(reason) => return println!("skipped: {reason}"),
    };
    let line = said.lines().find_map(|line| line.split_once("said: ")).expect("a line").1;
    assert!(line.starts_with("DPDK is not installed here: librte_"), "{line}");
    assert!(line.contains("apt-get install librte-"), "{line}");
}

/// Runs [`inside`] with `root` as its root directory: what it printed. `Err`: this user may not.
fn run_in(root: &Path, libraries: &[&Path], own: &Path) -> Result<String, String> {
    fs::create_dir_all(root.join("proc")).unwrap();
    let is_loader = |file: &&&Path| file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ld-"));
    let loader = libraries.iter().find(is_loader).expect("a binary that loads libraries has a loader");
    let directories: Vec<_> = libraries.iter().filter_map(|file| file.parent()?.to_str()).collect();
    let script = "mount --rbind /proc \"$0/proc\" && exec chroot \"$0\" \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script]).arg(root);
    // By the loader itself, since a binary names it by a path of the whole system's.
    command.arg(loader).arg("--library-path").arg(directories.join(":"));
    command.arg(own).args(["--exact", "inside", "--ignored", "--nocapture"]);
    let output = command.output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if said.contains("said: ") { Ok(said) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}
