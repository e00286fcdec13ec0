//! The bindings in the repository are those of the header. They are kept there because a fresh clone has to build
//! without libclang.

use std::path::Path;

/// Set, the file is written instead of compared.
const WRITE: &str = "SIDELANE_WRITE_BINDINGS";

#[test]
fn bindings_are_those_of_the_header() {
    // bindgen panics when it finds no libclang, so look first.
    if let Err(error) = bindgen_can_run() {
        println!("skipped: {error} (Debian: libclang-dev)");
        return;
    }
    let crate_root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let bindings = bindgen::Builder::default()
        .header(crate_root.join("shim/shim.h").display().to_string())
        .allowlist_type("sl_.*")
        .allowlist_var("SL_.*")
        .derive_copy(true)
        .derive_default(false)
        .layout_tests(false)
        .generate_comments(true)
        .disable_header_comment()
        .raw_line("//! Generated from `shim/shim.h` by the test `bindings`: do not edit.")
        .raw_line("//! `SIDELANE_WRITE_BINDINGS=1 cargo test -p sidelane-dpdk-sys --test bindings` writes it anew.")
        .rustfmt_configuration_file(Some(crate_root.join("../../rustfmt.toml")))
        .generate()
        .expect("the header is plain C")
        .to_string();
    let file = crate_root.join("src/bindings.rs");
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&file, &bindings).unwrap();
    }
    let kept = std::fs::read_to_string(&file).unwrap();
    assert!(kept == bindings, "src/bindings.rs is out of date: run this test with {WRITE}=1");
}

fn bindgen_can_run() -> Result<(), String> {
    let quiet = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let version = std::panic::catch_unwind(bindgen::clang_version);
    std::panic::set_hook(quiet);
    version.map(|_| ()).map_err(|_| "libclang, which makes bindings, is missing".to_owned())
}
