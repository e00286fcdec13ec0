//! The shim compiles where a distribution leaves DPDK's vhost library out.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn compiles_without_the_header_of_vhost() {
    let Ok(asked) = Command::new("pkg-config").args(["--cflags-only-I", "libdpdk"]).output() else {
        return println!("skipped: there is no pkg-config");
    };
    if !asked.status.success() {
        return println!("skipped: there is no libdpdk");
    }
    // All of its headers but that one.
    let headers = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("without-vhost");
    let _ = std::fs::remove_dir_all(&headers);
    std::fs::create_dir_all(&headers).unwrap();
    let folders = String::from_utf8(asked.stdout).unwrap();
    for folder in folders.split_whitespace().filter_map(|option| option.strip_prefix("-I")) {
        for header in std::fs::read_dir(folder).unwrap().flatten().filter(|header| header.file_name() != "rte_vhost.h")
        {
            // Of one name in two folders the first is meant.
            let _ = symlink(header.path(), headers.join(header.file_name()));
        }
    }
    let shim = Path::new(env!("CARGO_MANIFEST_DIR")).join("shim");
    let mut compiler = Command::new("cc");
    // As build.rs has it.
    compiler.args([
        "-include",
        "rte_config.h",
        "-std=gnu11",
        "-w",
        "-Werror=implicit-function-declaration",
        "-fsyntax-only",
        "-I",
    ]);
    compiler.arg(&headers).args(cfg!(target_arch = "x86_64").then_some("-march=corei7"));
    let sources = std::fs::read_dir(shim).unwrap().flatten().map(|source| source.path());
    let compiled = compiler.args(sources.filter(|source| source.extension().is_some_and(|end| end == "c"))).output();
    let compiled = compiled.expect("what has compiled the shim");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
}
