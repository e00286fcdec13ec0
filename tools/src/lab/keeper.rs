//! A lab that outlives the command that made it: a small process holds the namespaces and hands out descriptors.
//!
//! The keeper listens on a unix socket in the user's own directory. A client sends one byte, the request; the answer is
//! the lab's description as JSON, with the namespaces' descriptors beside its first byte. A socket on which nobody
//! listens is a stale one, after a reboot or a kill, and is removed by whoever meets it.

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::linux::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sidelane_nic::passing;

use super::dial::{KEEPER_WAIT, connect, connect_or_clean, silence};
use super::enter::{Entry, Lifetime};
use super::process::{self, Process};
use super::{INTERFACE, Lab, Offloads, place};

/// What a keeper tells about its lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// The lab's name.
    pub name: String,
    /// The keeper's process.
    pub pid: u32,
    /// Largest IP packet in bytes.
    pub mtu: u32,
    /// Offloads are off.
    pub real_frames: bool,
    /// Made without root's rights.
    pub user_namespace: bool,
    /// All hosts, A first.
    pub hosts: Vec<HostDescription>,
}

/// One host of a kept lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostDescription {
    /// A, B, ...
    pub name: char,
    /// Its address.
    pub ip: std::net::Ipv4Addr,
    /// Its interface's address.
    pub mac: String,
    /// Its interface's name.
    pub interface: String,
    /// What its interface left to others when the lab was made.
    pub offloads: Offloads,
    /// The processes inside, when the lab was looked at.
    #[serde(default)]
    pub processes: Vec<u32>,
}

/// A kept lab, seen from another process.
#[derive(Debug)]
pub struct Kept {
    /// What the keeper told.
    pub description: Description,
    entries: Vec<Entry>,
}

/// Why a kept lab could not be had.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// No lab of that name is up.
    #[error("no lab named `{0}` is up; make one with `sidelane lab up{option}`", option = option(.0))]
    NotUp(String),
    /// The name is taken.
    #[error("a lab named `{0}` is up already; end it with `sidelane lab down{option}`, or give another `--name`", option = option(.0))]
    Up(String),
    /// No such host.
    #[error("this lab has no host `{0}`: its hosts are {first} to {last}", first = 'A', last = .1)]
    NoHost(String, char),
    /// Its keeper cannot be asked.
    #[error("cannot ask the keeper of lab `{0}`: {1}")]
    Keeper(String, io::Error),
    /// The system failed.
    #[error("cannot {0}: {1}")]
    System(&'static str, io::Error),
}

/// The option that names a lab in a command line.
fn option(name: &str) -> String {
    if name == USUAL_NAME { String::new() } else { format!(" --name {name}") }
}

/// The name of a lab that was given none.
pub const USUAL_NAME: &str = "lab";

/// Listens for clients of `lab` until one asks for its end, a signal comes or the socket is removed. `ready` is called
/// once, when clients can connect; when it fails, nobody knows of the lab, which then ends.
pub fn keep(lab: &Lab, name: &str, ready: impl FnOnce() -> io::Result<()>) -> Result<(), KeepError> {
    let (listener, path) = listen(name)?;
    let description = describe(lab, name);
    let text = serde_json::to_vec(&description).expect("a description has no maps and no foreign strings");
    let descriptors: Vec<RawFd> = descriptors(lab).collect();
    let ended = ending_signals().map_err(|e| KeepError::System("watch for signals", e))?;
    let inode = || fs::metadata(&path).map(|m| m.st_ino()).ok();
    let made = inode();
    let told = ready();
    while told.is_ok() {
        match wait(&listener, &ended) {
            Wake::Signal => break,
            Wake::Time if inode() != made => return Ok(()),
            Wake::Time => {}
            Wake::Client => {
                let Ok((mut client, _)) = listener.accept() else { continue };
                let _ = client.set_read_timeout(Some(CLIENT_WAIT));
                let _ = client.set_write_timeout(Some(CLIENT_WAIT));
                let mut request = [0];
                match client.read_exact(&mut request).map(|()| request[0]) {
                    Ok(DESCRIBE) => drop(answer(client, &text, &descriptors)),
                    Ok(END) => break,
                    _ => {}
                }
            }
        }
    }
    // Else somebody has removed it, and another lab may have the name.
    if inode() == made {
        let _ = fs::remove_file(&path);
    }
    place::leave(&path);
    told.map_err(|e| KeepError::System("tell that the lab is up", e))
}

impl Kept {
    /// Finds the lab `name`. Removes its socket if its keeper is gone.
    pub fn find(name: &str) -> Result<Self, KeepError> {
        let failed = |error| KeepError::Keeper(name.to_owned(), error);
        let path = place::socket(name).map_err(|e| KeepError::System("find this user's labs", e))?;
        let path = path.ok_or_else(|| KeepError::NotUp(name.to_owned()))?;
        let answer = |_| match connect(&path).and_then(|keeper| keeper.map(|it| ask(it, KEEPER_WAIT)).transpose()) {
            Err(error) if has_hung_up(&error) => None,
            answer => Some(answer),
        };
        // One that has ended while we stood in line is not there the next time.
        let answer = (0..TRIES).find_map(answer).unwrap_or_else(|| Err(io::ErrorKind::ConnectionReset.into()));
        let (mut description, descriptors) =
            answer.map_err(failed)?.ok_or_else(|| KeepError::NotUp(name.to_owned()))?;
        let mut descriptors = descriptors.into_iter().map(Arc::new);
        let user = if description.user_namespace { descriptors.next() } else { None };
        // A process that is inside already can't enter once more (setns(2): EINVAL), and need not.
        let user = user.filter(|user| !is_own_user_namespace(user));
        let entries: Vec<Entry> = descriptors.map(|net| Entry { user: user.clone(), net }).collect();
        if entries.len() != description.hosts.len() {
            return Err(failed(io::ErrorKind::InvalidData.into()));
        }
        let namespaces: Vec<_> = entries.iter().map(|entry| &*entry.net).collect();
        for (host, inside) in description.hosts.iter_mut().zip(process::inhabitants(&namespaces)) {
            host.processes = inside;
        }
        Ok(Self { description, entries })
    }

    /// All kept labs of this user, each as it is found. Stale ones are removed on the way.
    pub fn all() -> Result<Vec<Result<Self, KeepError>>, KeepError> {
        let names = place::names().map_err(|e| KeepError::System("find this user's labs", e))?;
        // Many at once: each may keep us waiting.
        let ask = |names: &[String]| {
            thread::scope(|scope| {
                let asked: Vec<_> = names.iter().map(|name| scope.spawn(|| Self::find(name))).collect();
                asked.into_iter().map(|one| one.join().expect("asking does not panic")).collect::<Vec<_>>()
            })
        };
        let found = names.chunks(ASKED_AT_ONCE).flat_map(ask);
        Ok(found.filter(|lab| !matches!(lab, Err(KeepError::NotUp(_)))).collect())
    }

    /// The place of `host` (`A`, `a`, `B`...) among its hosts.
    pub fn index_of(&self, host: &str) -> Result<usize, KeepError> {
        let hosts = &self.description.hosts;
        let found = hosts.iter().position(|h| host.eq_ignore_ascii_case(h.name.encode_utf8(&mut [0; 4])));
        found.ok_or_else(|| KeepError::NoHost(host.to_owned(), hosts.last().map_or('A', |h| h.name)))
    }

    /// A command that will run in `host` and lives on its own.
    pub fn command(&self, host: &str, program: &std::ffi::OsStr) -> Result<Command, KeepError> {
        self.command_with(host, program, Lifetime::Free)
    }

    /// As [`Kept::command`], with a choice of what ends it.
    pub fn command_with(
        &self,
        host: &str,
        program: &std::ffi::OsStr,
        lifetime: Lifetime,
    ) -> Result<Command, KeepError> {
        let index = self.index_of(host)?;
        let mut command = Command::new(program);
        command.env("SIDELANE_LAB", &self.description.name);
        command.envs(environment(&self.description.hosts, index));
        self.entries[index].apply(&mut command, lifetime, None);
        Ok(command)
    }

    /// Ends every process inside, then the keeper; returns once all are gone, with how many processes were ended.
    pub fn end(self) -> Result<usize, KeepError> {
        let system = |error| KeepError::System("end the lab", error);
        let namespaces: Vec<_> = self.entries.iter().map(|entry| &*entry.net).collect();
        let ended = process::end_all(&namespaces, PATIENCE).map_err(system)?;
        let keeper = Process::open(self.description.pid);
        let path = place::socket(&self.description.name).map_err(system)?;
        if let Some(mut stream) = path.map_or(Ok(None), |path| connect(&path)).map_err(system)? {
            match stream.write_all(&[END]) {
                // Somebody else has ended it just now.
                Err(error) if has_hung_up(&error) => {}
                outcome => outcome.map_err(system)?,
            }
        }
        if keeper.is_some_and(|keeper| !keeper.wait(KEEPER_END)) {
            return Err(system(io::ErrorKind::TimedOut.into()));
        }
        Ok(ended)
    }
}

/// What a program inside a lab is told: its own host's name, and every host's address.
pub fn environment(hosts: &[HostDescription], own: usize) -> Vec<(String, String)> {
    let mut told = vec![("SIDELANE_HOST".to_owned(), hosts[own].name.to_string())];
    for host in hosts {
        told.push((format!("SIDELANE_{}_IP", host.name), host.ip.to_string()));
        told.push((format!("SIDELANE_{}_MAC", host.name), host.mac.clone()));
    }
    told
}

/// The hosts of `lab` as a keeper describes them.
pub fn describe_hosts(lab: &Lab) -> Vec<HostDescription> {
    let hosts = lab.hosts().iter().map(|host| HostDescription {
        name: host.name(),
        ip: host.address().ip,
        mac: host.address().mac_text(),
        interface: INTERFACE.to_owned(),
        offloads: host.offloads,
        processes: Vec::new(),
    });
    hosts.collect()
}

const DESCRIBE: u8 = b'd';
const END: u8 = b'e';

/// 26 hosts of about 110 bytes each, and the lab itself. A longer text would only take another read.
const DESCRIPTION_MAX: usize = 4096;

/// A client has written its byte before we look.
const CLIENT_WAIT: Duration = Duration::from_secs(1);

/// So many keepers are asked at once, by a thread each: more than a user has labs, and threads that any system lets one have.
const ASKED_AT_ONCE: usize = 32;

/// How often a keeper is asked that hangs up: labs of a name may come and go.
const TRIES: usize = 3;

/// How often the keeper looks whether its socket is still there: without it nobody could ever end the lab.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Time that a process inside gets to end by itself.
const PATIENCE: Duration = Duration::from_secs(2);

/// Before a keeper ends, its guard looks for what is left in each host, among all processes of the machine. With 26 hosts, 7,000
/// processes and a load of 30 on two cores that took more than 2 s.
const KEEPER_END: Duration = Duration::from_secs(10);

enum Wake {
    Client,
    Signal,
    Time,
}

fn listen(name: &str) -> Result<(UnixListener, PathBuf), KeepError> {
    let system = |error| KeepError::System("keep the lab", error);
    let _lock = place::lock().map_err(system)?;
    let path = place::socket(name).map_err(system)?.ok_or_else(|| system(io::ErrorKind::NotFound.into()))?;
    if connect_or_clean(&path).map_err(system)?.is_some() {
        return Err(KeepError::Up(name.to_owned()));
    }
    Ok((UnixListener::bind(&path).map_err(system)?, path))
}

/// True when the other end has closed the connection, and whatever it was told with it.
fn has_hung_up(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), ConnectionReset | BrokenPipe | UnexpectedEof)
}

/// Asks a keeper for its description and the descriptors beside it.
fn ask(mut keeper: UnixStream, at_most: Duration) -> io::Result<(Description, Vec<OwnedFd>)> {
    keeper.set_read_timeout(Some(at_most))?;
    keeper.write_all(&[DESCRIBE])?;
    let mut text = vec![0; DESCRIPTION_MAX];
    let mut read = || {
        let (len, descriptors) = passing::receive(keeper.as_fd(), &mut text, 0)?;
        text.truncate(len);
        keeper.read_to_end(&mut text)?;
        Ok(descriptors)
    };
    let descriptors = read().map_err(|error: io::Error| match error.kind() {
        // SO_RCVTIMEO, socket(7).
        io::ErrorKind::WouldBlock => {
            let pid = passing::peer(keeper.as_fd()).ok().and_then(|peer| u32::try_from(peer.pid).ok());
            io::Error::new(io::ErrorKind::TimedOut, silence(pid.filter(|pid| *pid != 0)))
        }
        _ => error,
    })?;
    Ok((serde_json::from_slice(&text)?, descriptors))
}

fn answer(client: UnixStream, text: &[u8], descriptors: &[RawFd]) -> io::Result<()> {
    passing::send(client.as_fd(), &text[..1], descriptors, 0)?;
    (&client).write_all(&text[1..])
}

fn describe(lab: &Lab, name: &str) -> Description {
    Description {
        name: name.to_owned(),
        pid: std::process::id(),
        mtu: lab.spec().mtu,
        real_frames: lab.spec().real_frames,
        user_namespace: lab.in_user_namespace(),
        hosts: describe_hosts(lab),
    }
}

fn descriptors(lab: &Lab) -> impl Iterator<Item = RawFd> {
    let user = lab.hosts[0].entry.user.iter().map(|user| user.as_raw_fd());
    user.chain(lab.hosts.iter().map(|host| host.entry.net.as_raw_fd()))
}

fn is_own_user_namespace(namespace: &OwnedFd) -> bool {
    let identity = |path: &str| fs::metadata(path).map(|m| (m.st_dev(), m.st_ino())).ok();
    identity("/proc/self/ns/user") == identity(&format!("/proc/self/fd/{}", namespace.as_raw_fd()))
}

/// A stream that becomes readable when the keeper is told to end. The terminal's hang-up is not meant for it.
fn ending_signals() -> io::Result<UnixStream> {
    let (reader, writer) = UnixStream::pair()?;
    signal_hook::low_level::pipe::register(libc::SIGTERM, writer.try_clone()?)?;
    signal_hook::low_level::pipe::register(libc::SIGINT, writer)?;
    Ok(reader)
}

#[allow(unsafe_code)] // std waits for one descriptor only.
fn wait(listener: &UnixListener, ended: &UnixStream) -> Wake {
    let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut polled = [entry(ended.as_raw_fd()), entry(listener.as_raw_fd())];
    // SAFETY: Two pollfds, alive during the call.
    unsafe { libc::poll(polled.as_mut_ptr(), 2, LOOK_EVERY.as_millis() as i32) };
    match polled {
        [signal, _] if signal.revents != 0 => Wake::Signal,
        [_, client] if client.revents != 0 => Wake::Client,
        _ => Wake::Time,
    }
}

#[cfg(test)]
mod tests {
    use super::super::dial::tests::assert_helps;
    use super::*;

    #[test]
    fn a_keeper_that_is_stopped_does_not_answer() {
        let (client, _keeper) = UnixStream::pair().unwrap();
        assert_helps(&ask(client, Duration::from_millis(1)).unwrap_err());
    }
}
