//! A driver in another process, so that a suite whose cases hold both ends can be run across two.
//!
//! The other process is this test's own binary, with one ignored test chosen. Each connection to it is one endpoint:
//! the first message names the driver, every further one is a call, and the endpoint lives as long as the connection.

use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};

use sidelane_nic::spec::{NicUser, Spec};
use sidelane_nic::time::{Duration, Instant};
use sidelane_nic::{Caps, Counters, Link, LinkAddr, LinkError, Nic, OwnSlot, TxSlot, clock};

use crate::patience::PATIENCE;

/// Where the other process listens.
const AT: &str = "SIDELANE_TEST_REMOTE";

/// The other process. It ends when this is dropped.
pub struct Process {
    child: Child,
    name: String,
}

impl Process {
    /// Runs the ignored test `role` of this binary, which has to be [`serve`].
    pub fn start(role: &str, name: &str) -> Self {
        let name = format!("{name}-{}", std::process::id());
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", role, "--ignored", "--nocapture"]).env(AT, &name).stdout(Stdio::null());
        Self { child: command.spawn().unwrap(), name }
    }

    /// Opens a driver there.
    pub fn open(&self, spec: &str) -> Result<Remote, String> {
        let at = SocketAddr::from_abstract_name(&self.name).unwrap();
        let give_up = std::time::Instant::now() + std::time::Duration::from_secs(10);
        let mut stream = loop {
            match UnixStream::connect_addr(&at) {
                Ok(stream) => break stream,
                Err(error) if std::time::Instant::now() > give_up => return Err(error.to_string()),
                Err(_) => std::thread::sleep(std::time::Duration::from_millis(5)),
            }
        };
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        send(&mut stream, spec.as_bytes());
        let mut answer = receive(&mut stream).ok_or("the other process is gone, or does not answer")?;
        if answer.remove(0) != 0 {
            return Err(String::from_utf8(answer).unwrap());
        }
        let words = String::from_utf8(answer).unwrap();
        let mut words = words.split(' ');
        let mut next = || words.next().unwrap();
        let addr = next().parse().unwrap();
        let mut number = || next().parse::<usize>().unwrap();
        let caps = Caps {
            addr,
            mtu: number(),
            mtu_safe: number(),
            rx_frames: number(),
            burst: number(),
            rto_floor: Duration::from_nanos(number() as u64),
            host_delay: Some(number()).filter(|&nanos| nanos != 0).map(|nanos| Duration::from_nanos(nanos as u64)),
        };
        Ok(Remote { caps, stream: RefCell::new(stream), woken: Arc::default() })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An endpoint in the other process.
pub struct Remote {
    caps: Caps,
    stream: RefCell<UnixStream>,
    woken: Arc<Woken>,
}

/// What a wake-up is late at most.
const WAIT_MAX_NS: u64 = 10_000_000;

/// The other process hears one call at a time, so a wake-up is for the next wait, and no wait is long.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

impl Remote {
    /// One call and its answer: a letter and the arguments.
    fn call(&self, call: &[u8]) -> Vec<u8> {
        let mut stream = self.stream.borrow_mut();
        send(&mut stream, call);
        receive(&mut stream)
            .unwrap_or_else(|| panic!("the other process is gone, or does not answer within {PATIENCE:?}"))
    }
}

impl Nic for Remote {
    const RELIABLE: bool = false;

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn link(&mut self, to: LinkAddr) -> Result<Link, LinkError> {
        let answer = self.call(format!("l{to}").as_bytes());
        answer.try_into().map(|link| Link(u32::from_le_bytes(link))).map_err(|_| LinkError::WrongKind(to))
    }

    fn unlink(&mut self, link: Link) {
        self.call(&[b"u", &link.0.to_le_bytes()[..]].concat());
    }

    fn rx_burst(&mut self, budget: usize, mut each: impl FnMut(&[u8], LinkAddr)) -> usize {
        let answer = self.call(&[b"r", &(budget as u32).to_le_bytes()[..]].concat());
        let mut rest = &answer[..];
        let mut count = 0;
        while !rest.is_empty() {
            let from = part(&mut rest);
            let from = std::str::from_utf8(from).unwrap().parse().unwrap();
            each(part(&mut rest), from);
            count += 1;
        }
        count
    }

    fn tx_slot(&mut self, link: Link, len: usize) -> Option<impl TxSlot + '_> {
        let there = self.call(&[b"t", &link.0.to_le_bytes()[..], &(len as u64).to_le_bytes()].concat());
        (there == [1]).then(|| {
            OwnSlot::new(vec![0; len], move |frame| {
                drop(self.call(&[b"s", &link.0.to_le_bytes()[..], &frame].concat()))
            })
        })
    }

    fn flush(&mut self) {
        self.call(b"f");
    }

    fn wait(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        if self.woken.0.swap(false, Ordering::Acquire) {
            return Ok(());
        }
        let span = deadline.map_or(WAIT_MAX_NS, |deadline| deadline.since(self.now()).as_nanos().min(WAIT_MAX_NS));
        self.call(&[b"w", &span.to_le_bytes()[..]].concat());
        Ok(())
    }

    fn waker(&mut self) -> io::Result<Waker> {
        Ok(Waker::from(Arc::clone(&self.woken)))
    }

    fn is_gone(&self, link: Link) -> bool {
        self.call(&[b"g", &link.0.to_le_bytes()[..]].concat()) == [1]
    }

    fn counters(&self) -> Counters {
        let answer = self.call(b"c");
        let mut numbers = answer.chunks(8).map(|number| u64::from_le_bytes(number.try_into().unwrap()));
        let mut next = || numbers.next().unwrap();
        Counters {
            rx_frames: next(),
            rx_bytes: next(),
            rx_foreign: next(),
            rx_dropped: next(),
            tx_frames: next(),
            tx_bytes: next(),
            tx_full: next(),
            tx_failed: next(),
            waits: next(),
            wakes: next(),
            peers_put_off: next(),
            peers_refused: next(),
        }
    }

    fn now(&self) -> Instant {
        clock::monotonic()
    }
}

impl Drop for Remote {
    /// Returns when the endpoint there is closed.
    fn drop(&mut self) {
        let stream = self.stream.get_mut();
        let _ = stream.shutdown(Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    }
}

/// The life of the other process: endpoints for whoever connects.
pub fn serve() {
    let name = std::env::var(AT).expect("started by `Process::start`");
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap();
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        std::thread::spawn(move || {
            let spec = receive(&mut stream).unwrap();
            let spec: Spec = String::from_utf8(spec).unwrap().parse().unwrap();
            // A refusal uses the stream too.
            let mut refusals = stream.try_clone().unwrap();
            if let Err(error) = spec.open(Endpoint(stream)) {
                send(&mut refusals, format!("\x01{error}").as_bytes());
            }
        });
    }
}

struct Endpoint(UnixStream);

impl NicUser for Endpoint {
    type Out = ();

    fn run<N: Nic + 'static>(mut self, mut nic: N) {
        let Caps { addr, mtu, mtu_safe, rx_frames, burst, rto_floor, host_delay } = *nic.caps();
        let (rto_floor, host_delay) = (rto_floor.as_nanos(), host_delay.map_or(0, Duration::as_nanos));
        let caps = format!("\0{addr} {mtu} {mtu_safe} {rx_frames} {burst} {rto_floor} {host_delay}");
        send(&mut self.0, caps.as_bytes());
        while let Some(call) = receive(&mut self.0) {
            let answer = obey(&mut nic, call[0], &call[1..]);
            send(&mut self.0, &answer);
        }
    }
}

fn obey<N: Nic>(nic: &mut N, call: u8, arguments: &[u8]) -> Vec<u8> {
    let word = |at: usize| u32::from_le_bytes(arguments[at..at + 4].try_into().unwrap());
    let long = |at: usize| u64::from_le_bytes(arguments[at..at + 8].try_into().unwrap());
    match call {
        b'l' => match nic.link(std::str::from_utf8(arguments).unwrap().parse().unwrap()) {
            Ok(link) => link.0.to_le_bytes().to_vec(),
            Err(_) => Vec::new(),
        },
        b'u' => {
            nic.unlink(Link(word(0)));
            Vec::new()
        }
        b'r' => {
            let mut answer = Vec::new();
            nic.rx_burst(word(0) as usize, |frame, from| {
                for part in [from.to_string().as_bytes(), frame] {
                    answer.extend_from_slice(&(part.len() as u32).to_le_bytes());
                    answer.extend_from_slice(part);
                }
            });
            answer
        }
        b't' => vec![u8::from(nic.tx_slot(Link(word(0)), long(4) as usize).is_some())],
        b's' => {
            let mut slot = nic.tx_slot(Link(word(0)), arguments.len() - 4).expect("it was there a moment ago");
            slot.copy_from_slice(&arguments[4..]);
            slot.commit();
            Vec::new()
        }
        b'f' => {
            nic.flush();
            Vec::new()
        }
        b'w' => {
            let span = long(0);
            let deadline = (span != u64::MAX).then(|| nic.now() + Duration::from_nanos(span));
            nic.wait(deadline).unwrap();
            Vec::new()
        }
        b'g' => vec![u8::from(nic.is_gone(Link(word(0))))],
        b'c' => {
            let c = nic.counters();
            let numbers = [
                c.rx_frames,
                c.rx_bytes,
                c.rx_foreign,
                c.rx_dropped,
                c.tx_frames,
                c.tx_bytes,
                c.tx_full,
                c.tx_failed,
                c.waits,
                c.wakes,
                c.peers_put_off,
                c.peers_refused,
            ];
            numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
        }
        other => unreachable!("no call {other}"),
    }
}

fn part<'a>(rest: &mut &'a [u8]) -> &'a [u8] {
    let (len, behind) = rest.split_first_chunk().unwrap();
    let (part, behind) = behind.split_at(u32::from_le_bytes(*len) as usize);
    *rest = behind;
    part
}

fn send(stream: &mut UnixStream, message: &[u8]) {
    let message = [&(message.len() as u32).to_le_bytes()[..], message].concat();
    // Whoever does not listen any more is noticed by the next `receive`.
    let _ = stream.write_all(&message);
}

/// `None`: the other side is gone.
fn receive(stream: &mut UnixStream) -> Option<Vec<u8>> {
    let mut len = [0; 4];
    stream.read_exact(&mut len).ok()?;
    let mut message = vec![0; u32::from_le_bytes(len) as usize];
    stream.read_exact(&mut message).ok()?;
    Some(message)
}
