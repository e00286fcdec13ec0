//! TCP between two user-level stacks, over drivers of both kinds.

use sidelane_nic::fault::Faults;
use sidelane_nic::mem::{Config, Fabric, LinkModel, MemNic};
use sidelane_nic::shm::ShmNic;
use sidelane_nic::time::Duration;
use sidelane_nic::{Link, LinkAddr, Nic, TxSlot, forward, tcpip};
use smoltcp::iface::{Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, RxToken, TxToken};
use smoltcp::socket::tcp::{Socket, SocketBuffer};
use smoltcp::time::Instant;
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr};

/// One TCP/IP stack with one socket.
struct Stack<N: Nic> {
    device: tcpip::Device<N>,
    interface: Interface,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
}

const PORT: u16 = 7;

fn address(host: u8) -> IpAddress {
    IpAddress::v4(10, 0, 0, host)
}

impl<N: Nic> Stack<N> {
    fn new(nic: N, peer: LinkAddr, host: u8) -> Self {
        let mut device = tcpip::Device::new(nic, peer).unwrap();
        let config = smoltcp::iface::Config::new(HardwareAddress::Ip);
        let now = device.now();
        let mut interface = Interface::new(config, &mut device, now);
        interface.update_ip_addrs(|addresses| addresses.push(IpCidr::new(address(host), 24)).unwrap());
        let buffer = || SocketBuffer::new(vec![0; 1 << 16]);
        let mut sockets = SocketSet::new(Vec::new());
        let socket = sockets.add(Socket::new(buffer(), buffer()));
        Self { device, interface, sockets, socket }
    }

    fn socket(&mut self) -> &mut Socket<'static> {
        self.sockets.get_mut(self.socket)
    }

    fn poll(&mut self) {
        self.device.poll(&mut self.interface, &mut self.sockets);
    }
}

/// Sends `len` bytes from one stack to the other and back; `idle` lets time pass.
fn echo<N: Nic>(client: N, server: N, len: usize, mut idle: impl FnMut(&mut N, &mut N)) {
    let (at_client, at_server) = (client.caps().addr, server.caps().addr);
    let mut client = Stack::new(client, at_server, 1);
    let mut server = Stack::new(server, at_client, 2);
    server.socket().listen(PORT).unwrap();
    let Stack { interface, sockets, socket, .. } = &mut client;
    sockets.get_mut::<Socket>(*socket).connect(interface.context(), (address(2), PORT), 49_152).unwrap();

    let data: Vec<u8> = (0..len).map(|at| (at * 31 % 251) as u8).collect();
    let (mut sent, mut back) = (0, Vec::new());
    let give_up = client.device.nic().now() + Duration::from_millis(60_000);
    while back.len() < len {
        client.poll();
        server.poll();
        let socket = client.socket();
        if socket.may_send() {
            sent += socket.send_slice(&data[sent..]).unwrap();
        }
        if socket.can_recv() {
            socket.recv(|bytes| (bytes.len(), back.extend_from_slice(bytes))).unwrap();
        }
        let socket = server.socket();
        let room = socket.send_capacity() - socket.send_queue();
        if socket.can_recv() && room > 0 {
            let mut echoed = Vec::new();
            socket
                .recv(|bytes| (bytes.len().min(room), echoed.extend_from_slice(&bytes[..bytes.len().min(room)])))
                .unwrap();
            assert_eq!(socket.send_slice(&echoed), Ok(echoed.len()));
        }
        idle(client.device.nic_mut(), server.device.nic_mut());
        assert!(client.device.nic().now() < give_up, "{} of {len} bytes came back", back.len());
    }
    assert!(back == data);
}

fn mem(link: LinkModel, mtu: usize) {
    let fabric = Fabric::new(1);
    fabric.set_default_link(link);
    let config = Config { mtu, mtu_safe: mtu, ..Config::default() };
    let step = |a: &mut MemNic, _: &mut MemNic| a.fabric().advance_to(a.now() + Duration::from_micros(20));
    echo(fabric.nic(config), fabric.nic(config), 300_000, step);
}

#[test]
fn tcp_echoes_over_the_fabric() {
    mem(LinkModel::default(), 1500);
    mem(LinkModel { delay: Duration::from_micros(50), ..LinkModel::default() }, 65_535);
}

#[test]
fn tcp_echoes_over_a_path_that_carries_no_super_frames() {
    let fabric = Fabric::new(1);
    fabric.set_default_link(LinkModel { mtu: Some(1_500), ..LinkModel::default() });
    let config = Config { mtu: 61_000, mtu_safe: 1_500, ..Config::default() };
    let step = |a: &mut MemNic, _: &mut MemNic| a.fabric().advance_to(a.now() + Duration::from_micros(20));
    echo(fabric.nic(config), fabric.nic(config), 300_000, step);
    let device = tcpip::Device::new(fabric.nic(config), LinkAddr::Mem { node: 0 }).unwrap();
    assert_eq!(device.with_super_frames().capabilities().max_transmission_unit, 61_000);
}

#[test]
fn tcp_echoes_over_a_fabric_that_loses_and_damages() {
    let faults = Faults { loss: 0.01, corrupt: 0.01, reorder: 0.01, duplicate: 0.01, ..Faults::NONE };
    mem(LinkModel { delay: Duration::from_micros(50), faults, ..LinkModel::default() }, 1500);
}

#[test]
fn tcp_echoes_over_shared_memory() {
    let domain = format!("tcpip-{}", std::process::id());
    let open = || ShmNic::open(&domain, None).unwrap();
    echo(open(), open(), 3_000_000, |_, _| {});
}

/// Keeps room for frames of its largest length apart from that for short ones, of which so many go between two flushes.
struct Apart {
    nic: MemNic,
    room: usize,
    at_once: usize,
}

impl Nic for Apart {
    const RELIABLE: bool = false;

    forward!(nic: caps, link, unlink, rx_burst, wait, waker, is_gone, counters, now);

    fn tx_slot(&mut self, link: Link, len: usize) -> Option<impl TxSlot + '_> {
        if len < self.nic.caps().mtu {
            self.room = self.room.checked_sub(1)?;
        }
        self.nic.tx_slot(link, len)
    }

    fn flush(&mut self) {
        self.room = self.at_once;
        self.nic.flush();
    }
}

#[test]
fn packets_of_one_turn_leave_however_many_they_are() {
    let fabric = Fabric::new(0);
    let [nic, mut peer] = [(); 2].map(|()| fabric.nic(Config::default()));
    let mut device = tcpip::Device::new(Apart { nic, room: 4, at_once: 4 }, peer.caps().addr).unwrap();
    for number in 0..10 {
        device.transmit(Instant::ZERO).unwrap().consume(20, |packet| packet.fill(number));
    }
    device.nic_mut().flush();
    fabric.advance_to(peer.now() + Duration::from_millis(1));
    let mut came = Vec::new();
    peer.rx_burst(20, |packet, _| came.push(packet[0]));
    assert_eq!((came, device.unsent()), ((0..10).collect(), 0));
}

#[test]
fn a_packet_without_a_buffer_is_written_nowhere_and_counted() {
    let fabric = Fabric::new(0);
    let [nic, peer] = [(); 2].map(|()| fabric.nic(Config::default()));
    let mut device = tcpip::Device::new(Apart { nic, room: 0, at_once: 0 }, peer.caps().addr).unwrap();
    assert_eq!(device.transmit(Instant::ZERO).unwrap().consume(20, |packet| packet.len()), 20);
    device.nic_mut().flush();
    assert_eq!((device.unsent(), fabric.counters().sent), (1, 0));
}

#[test]
fn a_full_ring_is_emptied_for_the_next_packet() {
    let fabric = Fabric::new(0);
    let narrow = Config { tx_frames: 2, ..Config::default() };
    let [nic, peer] = [(); 2].map(|()| fabric.nic(narrow));
    let mut device = tcpip::Device::new(nic, peer.caps().addr).unwrap();
    for _ in 0..5 {
        device.transmit(Instant::ZERO).expect("there is room after a flush").consume(20, |_| ());
    }
    assert_eq!(device.unsent(), 0);
}

#[test]
fn what_others_send_is_dropped() {
    let fabric = Fabric::new(0);
    let [nic, mut peer, mut stranger] = [(); 3].map(|()| fabric.nic(Config::default()));
    let to = nic.caps().addr;
    let send = |from: &mut MemNic, byte| {
        let link = from.link(to).unwrap();
        let mut slot = from.tx_slot(link, 1).unwrap();
        slot[0] = byte;
        slot.commit();
        from.flush();
    };
    send(&mut stranger, 7);
    send(&mut peer, 1);
    send(&mut stranger, 7);
    let mut device = tcpip::Device::new(nic, peer.caps().addr).unwrap();
    let mut came = Vec::new();
    while let Some((packet, _)) = device.receive(Instant::ZERO) {
        packet.consume(|bytes| came.push(bytes[0]));
    }
    assert_eq!(came, [1]);
}

#[test]
fn capabilities_are_what_ip_and_the_driver_can() {
    let fabric = Fabric::new(0);
    let config = Config { mtu: 100_000, mtu_safe: 100_000, rx_frames: 77, ..Config::default() };
    let peer = LinkAddr::Mem { node: 1 };
    let device = tcpip::Device::new(fabric.nic(config), peer).unwrap();
    let capabilities = device.capabilities();
    assert_eq!((capabilities.max_transmission_unit, capabilities.max_burst_size), (65_535, Some(77)));
    assert!(capabilities.checksum.tcp.rx() && capabilities.checksum.ipv4.tx());
    assert_eq!(device.with_super_frames().capabilities().max_transmission_unit, 65_535);
    let reliable = ShmNic::open(&format!("tcpip-caps-{}", std::process::id()), Some(0)).unwrap();
    let checksum = tcpip::Device::new(reliable, LinkAddr::Shm { endpoint: 1 }).unwrap().capabilities().checksum;
    assert!(!checksum.tcp.rx() && !checksum.ipv4.tx());
}

/// Sends as many packets as there is room for.
fn fill(device: &mut tcpip::Device<ShmNic>) -> usize {
    let len = device.nic().caps().mtu;
    let mut sent = 0;
    while let Some(token) = device.transmit(Instant::ZERO) {
        token.consume(len, |bytes| bytes.fill(0));
        sent += 1;
    }
    device.nic_mut().flush();
    sent
}

/// Takes one packet in, if there is one.
fn take(device: &mut tcpip::Device<ShmNic>) -> usize {
    device.receive(Instant::ZERO).map_or(0, |(packet, _)| packet.consume(|_| 1))
}

#[test]
fn two_stacks_without_room_to_answer_take_in_what_the_other_has_sent() {
    let domain = format!("tcpip-full-{}", std::process::id());
    let [a, b] = [0, 1].map(|endpoint| ShmNic::open(&domain, Some(endpoint)).unwrap());
    let (at_a, at_b) = (a.caps().addr, b.caps().addr);
    let [mut a, mut b] = [(a, at_b), (b, at_a)].map(|(nic, peer)| tcpip::Device::new(nic, peer).unwrap());
    let (mut sent, mut taken) = (0, 0);
    let give_up = a.nic().now() + Duration::from_millis(60_000);
    while sent == 0 || taken == 0 {
        assert!(a.nic().now() < give_up, "no connection");
        sent += fill(&mut a);
        taken += take(&mut a) + take(&mut b);
    }
    // Each fills what room the other makes by looking for packets, and has some at hand.
    for _ in 0..100 {
        taken += take(&mut a);
        sent += fill(&mut b);
        taken += take(&mut b);
        sent += fill(&mut a);
    }
    let mut idle = 0;
    while taken < sent {
        let more = take(&mut a) + take(&mut b);
        taken += more;
        idle = if more > 0 { 0 } else { idle + 1 };
        assert!(idle < 1_000, "both stand still with {taken} of {sent} packets taken in");
    }
}
