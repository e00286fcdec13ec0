//! Tests with interfaces of their own: in a network namespace that ends with the test.
//!
//! A test process has threads, so it cannot enter a user namespace itself. The outer test runs this binary again under
//! `unshare`, with one ignored test chosen. Where that is impossible it prints why and passes.

use std::process::{Command, Stdio};

use crate::patience::{SUITE_PATIENCE, ended};

/// Makes tests of functions in these modules, each in a network namespace of its own, and there only if the condition holds: then it
/// says why not.
#[allow(unused_macros, reason = "not every test program has more than one")]
macro_rules! inside_a_namespace {
    (if $may_run:expr; $($topic:ident { $($name:ident)* })*) => {
        $($(
            #[test]
            fn $name() {
                crate::namespace::run_inside(concat!("inside::", stringify!($name)));
            }
        )*)*

        mod inside {
            $($(
                #[test]
                #[ignore = "needs a network namespace: the test of the same name outside runs it in one"]
                fn $name() {
                    if $may_run {
                        crate::$topic::$name();
                    }
                }
            )*)*
        }
    };
    ($($tests:tt)*) => { inside_a_namespace! { if true; $($tests)* } };
}

/// Runs the ignored test `name` of this binary in a new network namespace.
pub fn run_inside(name: &str) {
    let Some(flags) = flags_that_work() else { return };
    let program = std::env::current_exe().expect("a test knows its own binary");
    let mut inside = Command::new("unshare")
        .args(flags)
        .arg(program)
        .args(["--exact", name, "--ignored", "--nocapture", "--test-threads=1"])
        .spawn()
        .expect("unshare worked a moment ago");
    let status = ended(&format!("`{name}` in its namespace"), &mut inside, SUITE_PATIENCE);
    assert!(status.success(), "`{name}` failed in its namespace");
}

/// As root a plain namespace; as anybody else one within a user namespace. `None`, and the reason printed: neither.
fn flags_that_work() -> Option<&'static [&'static str]> {
    let mut refusals = String::new();
    for flags in [&["--net"][..], &["--user", "--map-root-user", "--net"]] {
        match Command::new("unshare").args(flags).args(["ip", "link"]).stdout(Stdio::null()).output() {
            Ok(output) if output.status.success() => return Some(flags),
            Ok(output) => refusals += String::from_utf8_lossy(&output.stderr).trim(),
            Err(error) => refusals += &error.to_string(),
        }
        refusals += "; ";
    }
    println!("skipped: no network namespace to be had (wants util-linux, iproute2, user namespaces): {refusals}");
    None
}

/// Runs `ip` with these words.
pub fn ip(words: &str) {
    let output = Command::new("ip").args(words.split(' ')).output().expect("iproute2 was there for the outer test");
    assert!(output.status.success(), "ip {words}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Interfaces `a` and `b` of this namespace, joined and up.
pub fn veth(a: &str, b: &str) {
    ip(&format!("link add {a} type veth peer name {b}"));
    for name in [a, b] {
        ip(&format!("link set {name} up"));
    }
}

/// Three interfaces of this namespace that a bridge joins.
#[allow(dead_code, reason = "not every driver is tested on one")]
pub fn bridged() -> &'static [&'static str] {
    ip("link add hub type bridge");
    ip("link set hub up");
    for (end, port) in [("vA", "pA"), ("vB", "pB"), ("vC", "pC")] {
        veth(end, port);
        ip(&format!("link set {port} master hub"));
    }
    &["vA", "vB", "vC"]
}
