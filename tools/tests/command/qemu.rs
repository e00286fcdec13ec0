//! `sidelane lab qemu` before there are guests.

use std::fs;
use std::process::{Command, Stdio};

use crate::patience::until;
use crate::stage::{Stage, as_a_shell_has_it, signal, write_program};

/// The command, with an empty cache, with `script` in the place of apt-cache(8), and with an apt-get(8) that fails.
fn with_apt_cache(stage: &Stage, script: &str) -> Command {
    let programs = stage.runtime().join("programs");
    fs::create_dir_all(&programs).unwrap();
    write_program(&programs.join("apt-cache"), &format!("#!/bin/sh\n{script}\n"));
    write_program(&programs.join("apt-get"), "#!/bin/sh\necho asked for $* >&2; exit 1\n");
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let mut command = stage.sidelane(&["lab", "qemu"]);
    command.env("PATH", path).env("XDG_CACHE_HOME", stage.runtime().join("cache"));
    command
}

#[test]
fn a_download_that_is_interrupted_has_not_failed() {
    let stage = Stage::own_user();
    for (by, code) in [(libc::SIGINT, 130), (libc::SIGTERM, 143)] {
        let begun = stage.runtime().join(format!("begun-{by}"));
        let mut command = with_apt_cache(&stage, &format!(": > {}; exec sleep 1000", begun.display()));
        let tool = command.stderr(Stdio::piped()).spawn().unwrap();
        until("it downloads", || begun.exists());
        signal(&tool, by);
        let output = tool.wait_with_output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(as_a_shell_has_it(output.status), Some(code), "{errors}");
        assert!(!errors.contains("error"), "{errors}");
    }
    stage.assert_nothing_is_left();
}

#[test]
fn a_download_that_fails_leaves_nothing() {
    let stage = Stage::own_user();
    let output = with_apt_cache(&stage, "echo no network >&2; exit 1").output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && errors.contains("apt-cache failed: no network"), "{errors}");
    assert_eq!(fs::read_dir(stage.runtime().join("cache/sidelane")).unwrap().count(), 0);
}

/// As Debian's services have it, with a home that nobody can make.
#[test]
fn a_user_without_a_home_has_guests_too() {
    let stage = Stage::own_user();
    let mut command = with_apt_cache(&stage, "echo no network >&2; exit 1");
    let output = command.env("XDG_CACHE_HOME", "/proc/nonexistent").env("TMPDIR", stage.runtime()).output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("apt-cache failed: no network"), "{errors}");
}

#[test]
fn a_user_of_another_language_has_the_same_kernel() {
    let stage = Stage::own_user();
    let depends = "  Depends: linux-image-6.1.0-1-amd64";
    let script =
        format!("if [ \"$LC_ALL\" = C ]; then echo '{depends}'; else echo '  Hängt ab von: linux-image-x'; fi");
    let output = with_apt_cache(&stage, &script).env("LC_ALL", "de_DE.UTF-8").output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("apt-get failed: asked for ") && errors.contains(" linux-image-6.1.0-1-amd64"), "{errors}");
}
