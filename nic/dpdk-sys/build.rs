//! Compiles the shim against the libdpdk that is installed. Where there is none, the crate is built without it and can
//! say what was missing.

use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=shim");
    // So that a libdpdk-dev that is installed later is noticed. A path that does not exist would run this every time.
    for directory in ["/usr/lib", "/usr/local/lib"].map(|lib| format!("{lib}/{}/pkgconfig", multiarch())) {
        if Path::new(&directory).exists() {
            println!("cargo:rerun-if-changed={directory}");
        }
    }
    let shim = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("shim.so");
    let missing = match compile(&shim) {
        Ok(()) => String::new(),
        Err(missing) => {
            fs::write(&shim, []).expect("cargo's own directory can be written");
            missing
        }
    };
    println!("cargo:rustc-env=SIDELANE_SHIM={}", shim.display());
    println!("cargo:rustc-env=SIDELANE_SHIM_MISSING={missing}");
}

/// Makes the shared object `shim`, or says in part of a sentence what is missing.
fn compile(shim: &Path) -> Result<(), String> {
    if env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("linux") {
        return Err("DPDK is used on Linux only".to_owned());
    }
    let dpdk = pkg_config::Config::new()
        .cargo_metadata(false)
        .atleast_version(OLDEST)
        .probe("libdpdk")
        .map_err(|error| not_found(&error))?;
    let mut build = cc::Build::new();
    // As libdpdk's own headers want it (they use SSE4), and no more, so that the binary runs on other machines.
    if env::var("CARGO_CFG_TARGET_ARCH").as_deref() == Ok("x86_64") {
        build.flag("-march=corei7");
    }
    // gcc makes vectors of single numbers, which come later than they would in ordinary registers (bench/NOTES.md 22).
    build.flag_if_supported("-fno-tree-slp-vectorize").flag_if_supported("-mno-stv");
    build.opt_level(3).pic(true).warnings(false).cargo_metadata(false).includes(&dpdk.include_paths);
    let compiler = build.try_get_compiler().map_err(|_| "there was no C compiler (Debian: gcc)".to_owned())?;
    let mut command = compiler.to_command();
    // The `cc` crate hands Rust's sanitizer on; gcc's runtime for it, a library of its own, cannot come in late.
    command.arg("-fno-sanitize=address");
    command.args(["-include", "rte_config.h", "-std=gnu11", "-fvisibility=hidden", "-shared", "-o"]).arg(shim);
    command.args(SOURCES.map(|name| format!("shim/{name}.c"))).args(["-Wl,-z,defs", "-Wl,--as-needed"]);
    for path in &dpdk.link_paths {
        command.arg("-L").arg(path);
    }
    // All of them, since functions move from one to another (23.11 has those of the log in one of their own); what is not called is not
    // needed. The bus is a driver, and not among them; others are loaded by DPDK itself, from its own directory.
    command.args(dpdk.libs.iter().map(|name| format!("-l{name}"))).arg("-lrte_bus_vdev");
    let output = command.output().map_err(|error| format!("the C compiler did not start ({error}; Debian: gcc)"))?;
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    println!("cargo:warning=the DPDK shim did not compile, so there will be no dpdk: driver");
    for line in words.lines().filter(|line| line.contains("error")).take(5) {
        println!("cargo:warning={line}");
    }
    let first = words.lines().find(|line| line.contains("error")).unwrap_or("no reason given");
    Err(format!("its shim did not compile ({first})"))
}

fn not_found(error: &pkg_config::Error) -> String {
    match error {
        pkg_config::Error::Command { .. } => "there was no pkg-config (Debian: pkg-config, libdpdk-dev)".to_owned(),
        pkg_config::Error::ProbeFailure { .. } | pkg_config::Error::Failure { .. } => {
            format!("there was no libdpdk {OLDEST} or later (Debian: libdpdk-dev)")
        }
        other => other.to_string().lines().next().unwrap_or_default().to_owned(),
    }
}

/// Debian's directory of a target's libraries.
fn multiarch() -> String {
    format!("{}-linux-gnu", env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default())
}

/// Of Debian 12; the shim uses nothing that later versions have dropped.
const OLDEST: &str = "22.11";

const SOURCES: [&str; 13] = [
    "shim",
    "start",
    "running",
    "burst",
    "guard",
    "steering",
    "memif",
    "lending",
    "vhost",
    "vhost_client",
    "hear",
    "lives",
    "removal",
];
