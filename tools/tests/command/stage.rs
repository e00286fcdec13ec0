//! Runs the command as each user that is to be had, in a place of its own, and knows what it left behind.
#![allow(unsafe_code)] // What happens between fork and exec; setxattr(2).

use std::ffi::{CString, OsStr};
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use sidelane::lab::process::Process;
use sidelane_nic::process::pids;
use tempfile::TempDir;

use crate::patience::until;

/// Copies of the programs that every user can execute, and a runtime directory of that user's.
pub struct Stage {
    place: TempDir,
    uid: Option<u32>,
    mark: String,
    /// Names that were there before it, whoever left them.
    names_before: Vec<PathBuf>,
    /// Dropped with it, at which its watch ends.
    _lasts: Sender<()>,
}

/// `nobody` everywhere (Debian policy 9.2.2, and the kernel's overflow id).
const NOBODY: u32 = 65_534;

/// Of a service that nobody has any more (base-passwd(8); `bin` elsewhere).
const DAEMON: u32 = 1;

impl Stage {
    /// Root and nobody when root runs the tests, else only whoever does.
    pub fn each_user() -> Vec<Self> {
        let own = Self::set(None);
        if is_root() {
            vec![own, Self::set(Some(NOBODY))]
        } else {
            println!("not root: tested as this user only");
            vec![own]
        }
    }

    /// Whoever runs the tests.
    pub fn own_user() -> Self {
        Self::set(None)
    }

    /// Two users that are not root; `None`, with the reason printed, when root does not run the tests.
    pub fn two_ordinary_users() -> Option<[Self; 2]> {
        if !is_root() {
            println!("skipped: not root, so there is no other user");
            return None;
        }
        Some([NOBODY, DAEMON].map(|uid| Self::set(Some(uid))))
    }

    fn set(uid: Option<u32>) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let place = tempfile::Builder::new().prefix("sidelane-test").tempdir().unwrap();
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
        copy_program(env!("CARGO_BIN_EXE_sidelane"), &place.path().join("sidelane"));
        copy_program(std::env::current_exe().unwrap(), &place.path().join("test"));
        fs::create_dir(place.path().join("run")).unwrap();
        fs::set_permissions(place.path().join("run"), fs::Permissions::from_mode(0o700)).unwrap();
        if let Some(uid) = uid {
            chown(place.path().join("run"), Some(uid), Some(uid)).unwrap();
        }
        let mark = format!("{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let _lasts = watch(mark.clone());
        Self { place, uid, mark, names_before: names(), _lasts }
    }

    /// The command, with everything that identifies what it starts.
    pub fn sidelane(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(self.place.path().join("sidelane"));
        command.args(arguments);
        command
    }

    /// The same of another program, which may start the command.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.stdin(Stdio::null()).current_dir("/");
        command.env("XDG_RUNTIME_DIR", self.runtime()).env(MARK, &self.mark);
        for name in ["SIDELANE_NIC", "SIDELANE_NICS", "SIDELANE_PEER", "SIDELANE_MPI"] {
            command.env_remove(name);
        }
        // Not what this machine's user has measured.
        command.env("SIDELANE_TUNING", "");
        if let Some(uid) = self.uid {
            command.uid(uid).gid(uid);
        }
        // Whoever runs the tests by nohup(1) has it ignored.
        // SAFETY: one async-signal-safe call, of a handler that is none of ours.
        unsafe {
            command.pre_exec(|| {
                libc::signal(libc::SIGHUP, libc::SIG_DFL);
                Ok(())
            });
        }
        command
    }

    /// Runs the command to its end.
    pub fn output(&self, arguments: &[&str]) -> Output {
        self.sidelane(arguments).output().unwrap()
    }

    /// Runs the command, which must succeed, and returns what it printed.
    pub fn text(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "sidelane {arguments:?} as {}: {}: {errors}", self.who(), output.status);
        String::from_utf8(output.stdout).unwrap()
    }

    /// False, with the reason printed, when this user can't have labs here.
    pub fn has_labs(&self) -> bool {
        let output = self.output(&["lab", "run", "--", "true"]);
        let errors = String::from_utf8_lossy(&output.stderr);
        if output.status.success() {
            return true;
        }
        assert!(errors.contains("may not make network namespaces"), "as {}: {errors}", self.who());
        println!("skipped as {}: {}", self.who(), errors.trim());
        false
    }

    /// True when this user's labs are in a user namespace of their own.
    pub fn in_user_namespace(&self) -> bool {
        self.text(&["lab", "run", "--", "cat", "/proc/self/uid_map"])
            != fs::read_to_string("/proc/self/uid_map").unwrap()
    }

    /// The path of the command, where every user can execute it.
    pub fn program(&self) -> String {
        self.place.path().join("sidelane").to_str().unwrap().to_owned()
    }

    /// What `setcap cap_net_raw+ep` does with the command; false, with the reason printed, where that is not possible.
    pub fn give_raw_frames(&self) -> bool {
        let program = CString::new(self.program()).unwrap();
        // vfs_cap_data of linux/capability.h: revision 2, effective; CAP_NET_RAW is permitted; nothing is inherited.
        let value: Vec<u8> = [0x0200_0001_u32, 1 << 13, 0, 0, 0].iter().flat_map(|word| word.to_le_bytes()).collect();
        // SAFETY: Two C strings, and a value that is as long as it says, alive during the call.
        let outcome = unsafe {
            let name = c"security.capability".as_ptr();
            libc::setxattr(program.as_ptr(), name, value.as_ptr().cast(), value.len(), 0)
        };
        if outcome < 0 {
            println!("skipped as {}: file capabilities: {}", self.who(), io::Error::last_os_error());
        }
        outcome == 0
    }

    /// For messages.
    pub fn who(&self) -> String {
        self.uid.map_or_else(|| "this user".to_owned(), |uid| format!("user {uid}"))
    }

    /// This test program, where every user can execute it.
    pub fn test_program(&self) -> String {
        self.place.path().join("test").to_str().unwrap().to_owned()
    }

    /// The directory in which kept labs have their sockets.
    pub fn runtime(&self) -> PathBuf {
        self.place.path().join("run")
    }

    /// Every process that the command started, directly or not, and that still runs.
    pub fn processes(&self) -> Vec<u32> {
        marked(&self.mark)
    }

    /// Fails unless all processes end within moments and no name is left in the places where names would be.
    pub fn assert_nothing_is_left(&self) {
        let deadline = Instant::now() + GONE_WITHIN;
        loop {
            let left = self.processes();
            if left.is_empty() {
                break;
            }
            assert!(Instant::now() < deadline, "left behind as {}: processes {left:?}", self.who());
            for process in left.into_iter().filter_map(Process::open) {
                process.wait(GONE_WITHIN);
            }
        }
        let left: Vec<_> = names().into_iter().filter(|name| !self.names_before.contains(name)).collect();
        assert!(left.is_empty(), "left behind as {}: {left:?}", self.who());
        let sockets: Vec<_> = fs::read_dir(self.runtime().join("sidelane")).into_iter().flatten().flatten().collect();
        assert!(sockets.is_empty(), "left behind as {}: {sockets:?}", self.who());
    }
}

/// Copies a program. By another process: what this one writes cannot be run (ETXTBSY) while a process that another test starts has a copy
/// of the descriptor, until its exec.
fn copy_program(from: impl AsRef<Path>, to: &Path) {
    assert!(Command::new("cp").arg("-p").arg(from.as_ref()).arg(to).status().unwrap().success());
}

/// Makes a program of a script, likewise.
pub fn write_program(to: &Path, script: &str) {
    let write = "printf %s \"$1\" >\"$0\" && chmod 755 \"$0\"";
    assert!(Command::new("sh").args(["-c", write]).arg(to).arg(script).status().unwrap().success());
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// The processes that have this mark in their environment.
fn marked(mark: &str) -> Vec<u32> {
    let mark = format!("{MARK}={mark}\0");
    let pids = pids().unwrap();
    pids.filter(|pid| {
        // A process without memory is one that nobody has waited for yet: it holds nothing any more.
        let environment = fs::read(Path::new("/proc").join(pid.to_string()).join("environ")).unwrap_or_default();
        environment.windows(mark.len()).any(|window| window == mark.as_bytes())
    })
    .collect()
}

/// Kills the processes with this mark, and says which, when what is returned lives for longer than is patient. Whatever a test waits
/// for without a limit is a word or the end of one of them.
fn watch(mark: String) -> Sender<()> {
    let (lasts, ended) = channel();
    std::thread::spawn(move || {
        while ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            for pid in marked(&mark) {
                let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                println!("killed: {}: not done after {PATIENCE:?}", String::from_utf8_lossy(&line).replace('\0', " "));
                Process::open(pid).into_iter().for_each(|process| drop(process.signal(libc::SIGKILL)));
            }
        }
    });
    lasts
}

/// Several times what the longest test takes on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// Names of ours where names outlive processes. Of ladders, which put some there while they run, those that run no more.
fn names() -> Vec<PathBuf> {
    let entries = |place: &Path| fs::read_dir(place).into_iter().flatten().flatten().map(|entry| entry.path());
    let of = |name: &str| {
        let of_ladder = name.split_once("sidelane-ladder-").map(|(_, rest)| rest);
        of_ladder.map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default().to_owned())
    };
    let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let lasting = ["/run/netns", "/dev/shm"].into_iter().flat_map(|place| entries(Path::new(place)));
    let lasting = lasting.filter(|path| name(path).contains("sidelane"));
    let temporary = entries(&std::env::temp_dir()).filter(|path| of(&name(path)).is_some());
    let ended = |path: &PathBuf| of(&name(path)).is_none_or(|pid| !Path::new("/proc").join(pid).exists());
    lasting.chain(temporary).filter(ended).collect()
}

const MARK: &str = "SIDELANE_TEST_MARK";

/// A killed process takes a scheduling turn to be gone; this is a bound for a loaded machine.
const GONE_WITHIN: Duration = Duration::from_secs(10);

impl Drop for Stage {
    fn drop(&mut self) {
        for process in self.processes().into_iter().filter_map(Process::open) {
            let _ = process.signal(libc::SIGKILL);
            process.wait(GONE_WITHIN);
        }
    }
}

/// Runs `case` as each user that can have labs, and looks for leftovers after it.
pub fn for_each_user(case: impl Fn(&Stage)) {
    shared_out(&[], |stage, _: &[()]| case(stage));
}

/// As [`for_each_user`], where each of `all` is some user's: it does not differ by user, and takes time.
pub fn shared_out<T: Copy>(all: &[T], case: impl Fn(&Stage, &[T])) {
    let stages = Stage::each_user();
    let stages: Vec<&Stage> = stages.iter().filter(|stage| stage.has_labs()).collect();
    for (turn, stage) in stages.iter().enumerate() {
        println!("as {}", stage.who());
        let own: Vec<T> = all.iter().copied().skip(turn).step_by(stages.len()).collect();
        case(stage, &own);
        stage.assert_nothing_is_left();
    }
}

/// `$?`. What Ctrl-C has ended has no exit code, and is not to say that it has.
pub fn as_a_shell_has_it(status: ExitStatus) -> Option<i32> {
    assert_ne!(status.code(), Some(128 + libc::SIGINT), "it is to be killed by SIGINT");
    if status.signal() == Some(libc::SIGINT) { Some(128 + libc::SIGINT) } else { status.code() }
}

/// Sends a signal to the process group that a child leads, as a terminal does, when the child has started a process.
pub fn signal_group_with_a_child(child: &Child, signal: i32) {
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    until("it has a child", || fs::read(&children).is_ok_and(|pids| !pids.is_empty()));
    // SAFETY: Takes no pointer. The child was not waited for, so that its number is its own.
    assert_eq!(unsafe { libc::kill(-(child.id() as i32), signal) }, 0);
}

/// Sends a signal to a child.
pub fn signal(child: &Child, signal: i32) {
    Process::open(child.id()).unwrap().signal(signal).unwrap();
}
