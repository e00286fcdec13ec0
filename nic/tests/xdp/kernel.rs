//! The kernel's own traffic on an interface that the driver has.
#![allow(unsafe_code)] // A thread moves to another network namespace.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::{Child, Command, Stdio};

use sidelane_nic::{LinkAddr, Nic};

use crate::namespace::ip;
use crate::patience::{PATIENCE, until};
use crate::ping::ping;
use crate::raw_socket::RawSocket;
use crate::stage::{open, receive_one, send, veth_pair};

pub fn foreign_frames_are_the_kernels() {
    let (mut a, mut b, to_b) = veth_pair();
    let LinkAddr::Ether { mac, endpoint } = b.caps().addr else { unreachable!() };
    let (neighbour, kernel) = (RawSocket::on("vA"), RawSocket::listening_on("vB"));
    let [high, low] = endpoint.to_be_bytes();
    // IPv4, ARP, the other experimental EtherType, an endpoint that is not there, another host's address, a runt.
    let ours = [0x88, 0xb5, high, low];
    let others: [Vec<u8>; 6] = [
        [&mac[..], &[2; 6], &[0x08, 0x00, high, low]].concat(),
        [&mac[..], &[2; 6], &[0x08, 0x06, high, low]].concat(),
        [&mac[..], &[2; 6], &[0x88, 0xb6, high, low]].concat(),
        [&mac[..], &[2; 6], &[0x88, 0xb5, 0x77, 0x77]].concat(),
        [&[2, 0, 0, 0, 0, 9][..], &[2; 6], &ours].concat(),
        [&mac[..], &[2; 6], &[0x88, 0xb5, high]].concat(),
    ];
    for start in &others {
        let len = if start.len() < 16 { 0 } else { 40 };
        neighbour.send(&[start, &vec![0; len][..]].concat());
    }
    // Ours, but shorter than it says.
    neighbour.send(&[&mac[..], &[2; 6], &ours, &[0, 0, 0xff, 0xff, 0, 1], b"evil"].concat());
    send(&mut a, to_b, b"ours");
    assert_eq!(receive_one(&mut b), b"ours");
    assert_eq!((b.counters().rx_frames, b.counters().rx_foreign), (1, 1));
    let seen: Vec<Vec<u8>> = std::iter::from_fn(|| kernel.receive()).collect();
    for start in &others {
        assert!(seen.iter().any(|frame| frame.starts_with(start)), "{start:x?} did not reach the kernel");
    }
    assert!(!seen.iter().any(|frame| frame.ends_with(b"ours")), "what is ours did");
}

/// The kernel's own traffic crosses the interfaces while the driver has them.
pub fn the_kernel_goes_on_pinging_and_streaming() {
    let far = Far::start();
    ip("link add vA type veth peer name vB");
    ip(&format!("link set vB netns {}", far.pid()));
    ip("addr add 10.77.0.1/24 dev vA");
    ip("link set vA up");
    far.ip("addr add 10.77.0.2/24 dev vB");
    far.ip("link set vB up");
    let mut near = open("vA", 1);
    let (at_near, (tell, told)) = (near.caps().addr, std::sync::mpsc::channel());
    std::thread::scope(|scope| {
        let far = &far;
        scope.spawn(move || {
            far.enter();
            let listener = TcpListener::bind("10.77.0.2:7000").unwrap();
            listener.set_nonblocking(true).unwrap();
            let mut echo = open("vB", 1);
            let to_near = echo.link(at_near).unwrap();
            tell.send(echo.caps().addr).unwrap();
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    let (mut stream, mut bytes) = (accept(&listener), vec![0; STREAM]);
                    stream.read_exact(&mut bytes).unwrap();
                    stream.write_all(b"all").unwrap();
                });
                for number in 0..FRAMES {
                    assert_eq!(receive_one(&mut echo), number.to_be_bytes());
                    send(&mut echo, to_near, &number.to_be_bytes());
                }
            });
        });
        let to_far = near.link(told.recv().unwrap()).unwrap();
        let streaming = scope.spawn(|| {
            let mut stream = bounded(TcpStream::connect_timeout(&"10.77.0.2:7000".parse().unwrap(), PATIENCE).unwrap());
            stream.write_all(&vec![7; STREAM]).unwrap();
            let mut answer = [0; 3];
            stream.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"all");
        });
        let pinging = scope.spawn(|| ping("10.77.0.2".parse().unwrap(), 100));
        for number in 0..FRAMES {
            send(&mut near, to_far, &number.to_be_bytes());
            assert_eq!(receive_one(&mut near), number.to_be_bytes());
        }
        streaming.join().unwrap();
        assert_eq!(pinging.join().unwrap(), 100);
    });
}

/// Whoever comes to a listener that does not block.
fn accept(listener: &TcpListener) -> TcpStream {
    let mut stream = None;
    until("somebody connects", || {
        stream = listener.accept().ok();
        stream.is_some()
    });
    bounded(stream.unwrap().0)
}

/// As it is, but no call of it lasts for ever.
fn bounded(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// A network namespace beside ours, which ends with this.
pub struct Far(Child);

impl Far {
    pub fn start() -> Self {
        // It ends with the last of this process's descriptors.
        let child = Command::new("unshare").args(["--net", "cat"]).stdin(Stdio::piped()).spawn().unwrap();
        let far = Self(child);
        let own = std::fs::read_link("/proc/self/ns/net").unwrap();
        until("it has a namespace of its own", || std::fs::read_link(far.namespace()).unwrap() != own);
        far
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    pub fn ip(&self, words: &str) {
        let status =
            Command::new("nsenter").args(["-t", &self.pid().to_string(), "-n", "ip"]).args(words.split(' ')).status();
        assert!(status.unwrap().success(), "{words}");
    }

    /// Moves the calling thread there.
    pub fn enter(&self) {
        let namespace = File::open(self.namespace()).unwrap();
        // SAFETY: no pointer is passed.
        let entered = unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) };
        assert_eq!(entered, 0, "{}", std::io::Error::last_os_error());
    }

    fn namespace(&self) -> String {
        format!("/proc/{}/ns/net", self.pid())
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Bytes of TCP, and frames of ours beside them.
const STREAM: usize = 20 << 20;
const FRAMES: u32 = 5_000;
