use std::net::IpAddr;
use std::slice::from_ref;

use proptest::prelude::*;
use sidelane_nic::spec::Spec;

use super::card::{Card, Net, Told};
use super::plan::{Alike, Kind, Plan, PlanError, Wish, way_to};
use super::tuning::Tuning;
use super::{WorldError, agree, one_user_a_host, tell_clones_apart};

fn net(interface: &str, address: &str, mac: Option<u8>, mtu: usize) -> Net {
    let (ip, prefix) = address.split_once('/').unwrap();
    let mac = mac.map(|last| [2, 0, 0, 0, 0, last]);
    Net { interface: interface.to_owned(), ip: ip.parse().unwrap(), prefix: prefix.parse().unwrap(), mac, mtu }
}

fn card(host: &str, raw: bool, nets: &[Net]) -> Card {
    Card {
        host: host.to_owned(),
        job: "j0b".to_owned(),
        user: 1000,
        raw,
        protection: 0,
        tuning: Told::Nothing,
        nets: nets.to_vec(),
    }
}

/// A rank's plan as text, or why there is none.
fn plans(cards: &[Card], wish: &Wish) -> Vec<String> {
    let plan = |rank| match Plan::make(cards, rank, wish) {
        Ok(plan) => format!(
            "{} {}",
            plan.on_host.map_or("-".to_owned(), |spec| spec.to_string()),
            plan.off_host.map_or("-".to_owned(), |spec| spec.to_string())
        ),
        Err(error) => format!("{error}"),
    };
    (0..cards.len()).map(plan).collect()
}

#[test]
fn one_host_needs_only_shared_memory() {
    let cards = vec![card("a", true, &[]); 3];
    assert_eq!(plans(&cards, &Wish::None), ["shm:mpi-j0b -"; 3]);
    assert_eq!(plans(&cards, &Wish::Kind(Kind::Uring)), ["shm:mpi-j0b -"; 3], "what nobody needs is not opened");
}

#[test]
fn ranks_of_one_host_share_its_interface_by_endpoints() {
    let (a, b) = (net("veth0", "10.79.0.1/24", Some(1), 1500), net("eth7", "10.79.0.2/24", Some(2), 1500));
    let cards = [card("a", true, from_ref(&a)), card("b", true, from_ref(&b)), card("a", true, from_ref(&a))];
    let wanted = ["shm:mpi-j0b uring:veth0", "- uring:eth7", "shm:mpi-j0b uring:veth0,endpoint=1"];
    assert_eq!(plans(&cards, &Wish::None), wanted);
    let exact = |text: &str| Wish::Exact(text.parse::<Spec>().unwrap());
    let wanted = ["shm:mpi-j0b xdp:x,endpoint=4", "- xdp:x,endpoint=4", "shm:mpi-j0b xdp:x,endpoint=5"];
    assert_eq!(plans(&cards, &exact("xdp:x,endpoint=4")), wanted);
    assert_eq!(plans(&cards, &exact("udp:0.0.0.0:7000"))[2], "shm:mpi-j0b udp:0.0.0.0:7001");
    assert_eq!(plans(&cards, &Wish::Kind(Kind::Udp))[1], "- udp:10.79.0.2:0");
    let one_host =
        ["shm:x", "mem:", "uring:lo", "xdp:lo,endpoint=3", "udp:127.0.0.1:0", "udp:127.1.2.3:7000", "udp:[::1]:0"];
    for one_host in one_host.into_iter().chain(["udp:[::ffff:127.0.0.1]:0"]) {
        let refused = format!("SIDELANE_NIC={one_host} reaches no other host");
        assert_eq!(plans(&cards, &exact(one_host)), [&refused[..]; 3], "{one_host}");
    }
    assert_eq!(plans(&vec![card("a", true, &[]); 2], &exact("uring:lo")), ["shm:mpi-j0b -"; 2], "nobody needs it");
    let kind = |kind| plans(&cards, &Wish::Kind(kind)).pop().unwrap();
    assert_eq!(kind(Kind::Uring), "shm:mpi-j0b uring:veth0,endpoint=1");
    assert_eq!(kind(Kind::Xdp), "shm:mpi-j0b xdp:veth0,endpoint=1");
    for wish in [Wish::None, Wish::Kind(Kind::Udp)] {
        let plan = Plan::make(&cards, 0, &wish).unwrap().to_string();
        assert!(!plan.contains("SIDELANE_NIC"), "there is nothing to choose: {plan}");
    }
}

#[test]
fn one_rank_without_the_right_to_raw_frames_makes_all_use_udp() {
    let nets = |last: u8| [net("eth0", &format!("10.0.0.{last}/24"), Some(last), 1500)];
    let cards = [card("a", true, &nets(1)), card("b", false, &nets(2))];
    assert_eq!(plans(&cards, &Wish::None), ["- udp:10.0.0.1:0", "- udp:10.0.0.2:0"]);
    let plan = Plan::make(&cards, 0, &Wish::None).unwrap().to_string();
    assert!(plan.contains("CAP_NET_RAW") && plan.contains("SIDELANE_NIC chooses another"), "{plan}");
}

#[test]
fn the_network_that_all_hosts_are_in_is_taken_and_of_several_the_one_with_large_packets() {
    let slow = |last: u8| net("eth0", &format!("10.0.0.{last}/24"), Some(last), 1500);
    let fast = |name: &str, last: u8| net(name, &format!("10.1.0.{last}/24"), Some(last), 9000);
    let lonely = net("eth9", "10.9.0.1/24", Some(9), 65_000);
    let cards = [
        card("a", true, &[lonely, slow(1), fast("eth1", 1)]),
        card("b", true, &[fast("eth5", 2), slow(2)]),
        card("c", true, &[slow(3), fast("eth1", 3)]),
    ];
    assert_eq!(plans(&cards, &Wish::None), ["- uring:eth1", "- uring:eth5", "- uring:eth1"]);
    let plan = Plan::make(&cards, 0, &Wish::None).unwrap();
    assert!(plan.to_string().contains("as are 1 more"));
    // Rank 0 tells of a choice, but where all are asked to, or none.
    let told =
        |plan: &Plan| [None, Some(true), Some(false)].map(|asked| [0, 1].map(|rank| plan.is_told_by(rank, asked)));
    assert_eq!(told(&plan), [[true, false], [true; 2], [false; 2]]);
    let without_choice = Plan::make(&cards[..1], 0, &Wish::None).unwrap();
    assert_eq!(told(&without_choice), [[false; 2], [true; 2], [false; 2]]);
}

#[test]
fn without_a_common_ethernet_there_is_no_uring() {
    let tunnel = |last: u8| [net("wg0", &format!("10.5.0.{last}/24"), None, 1420)];
    let cards = [card("a", true, &tunnel(1)), card("b", true, &tunnel(2))];
    assert_eq!(plans(&cards, &Wish::None), ["- udp:10.5.0.1:0", "- udp:10.5.0.2:0"]);
    assert!(plans(&cards, &Wish::Kind(Kind::Uring))[0].contains("uring needs an Ethernet"));
    assert!(plans(&cards, &Wish::Kind(Kind::Xdp))[0].contains("xdp needs an Ethernet"));
    // Nor where one of them is in that network by a tunnel only; of two ways into it Ethernet is one's own.
    let both = [net("wg0", "10.5.0.1/24", None, 1500), net("eth0", "10.5.0.3/24", Some(3), 1500)];
    let cards = [card("a", true, &both), card("b", true, &tunnel(2))];
    assert_eq!(plans(&cards, &Wish::None), ["- udp:10.5.0.3:0", "- udp:10.5.0.2:0"]);
    let apart = [card("a", true, &[]), card("b", true, &[])];
    assert!(matches!(Plan::make(&apart, 0, &Wish::None), Err(PlanError::NoNetwork { to: 1, .. })));
}

#[test]
fn hosts_are_in_one_network_whose_addresses_begin_alike() {
    let cards = |one: &str, other: &str| {
        [("a", one), ("b", other)].map(|(host, address)| card(host, true, &[net("eth0", address, Some(1), 1500)]))
    };
    let is_one = |one, other| plans(&cards(one, other), &Wish::Kind(Kind::Uring))[0] == "- uring:eth0";
    assert!(is_one("fd00:0:0:1::1/64", "fd00:0:0:1:ffff::2/64") && is_one("10.1.255.1/9", "10.127.0.1/9"));
    assert!(!is_one("fd00:0:0:1::1/64", "fd00:0:0:2::1/64") && !is_one("10.1.0.1/9", "10.128.0.1/9"));
    assert!(!is_one("fd00::1/64", "fd00::2/65") && is_one("1.0.0.1/0", "200.0.0.1/0"));
    assert!(is_one("fd00::1/0", "2001::1/0") && !is_one("fd00::1/128", "fd00::2/128"));
}

/// As VirtualBox's NAT has it for all guests.
#[test]
fn an_address_that_several_hosts_have_leads_from_none_to_another() {
    let nat = || net("eth0", "10.0.2.15/24", Some(15), 9000);
    let own = |last: u8| net("eth1", &format!("192.168.56.{last}/24"), Some(last), 1500);
    let cards =
        [card("a", true, &[nat(), own(1)]), card("b", true, &[nat(), own(2)]), card("a", true, &[nat(), own(1)])];
    let wanted = ["shm:mpi-j0b uring:eth1", "- uring:eth1", "shm:mpi-j0b uring:eth1,endpoint=1"];
    assert_eq!(plans(&cards, &Wish::None), wanted);
    let plan = Plan::make(&cards, 1, &Wish::None).unwrap().to_string();
    assert!(
        plan.contains("192.168.56.0/24 is a network of all hosts; of no use is 10.0.2.15, which several"),
        "{plan}"
    );
    let third = net("eth0", "10.0.2.16/24", Some(16), 9000);
    let cards = [card("a", true, &[nat()]), card("b", true, &[nat()]), card("c", true, &[third])];
    let told = plans(&cards, &Wish::None);
    assert!(told[0].contains("no network leads from this host to that of rank 1"), "{}", told[0]);
    assert!(told[0].contains("; of no use is 10.0.2.15, which several hosts have. Name a driver"), "{}", told[0]);
    // One of several addresses in a network, such as a service's that moves from host to host.
    let moves = || net("eth1", "192.168.56.100/24", Some(1), 1500);
    let cards = [card("a", true, &[moves(), own(1)]), card("b", true, &[moves(), own(2)])];
    assert_eq!(plans(&cards, &Wish::Kind(Kind::Udp)), ["- udp:192.168.56.1:0", "- udp:192.168.56.2:0"]);
}

/// Each looks for the way to another rank than the others do, in which order ever that one's addresses are.
#[test]
fn all_hosts_leave_by_addresses_of_one_kind() {
    let four = |net: u8| self::net("eth0", &format!("10.{net}.0.1/24"), Some(net), 1500);
    let six = |net: u8| self::net("eth0", &format!("fd00:{net}::1/64"), Some(net), 1500);
    let kinds = |cards: &[Card], routed: fn(IpAddr) -> bool| {
        let alike = Alike::find(cards);
        // All networks are routed, of those kinds.
        let towards = |own: usize, to: IpAddr| {
            let own = cards[own].nets.iter().map(|net| net.ip).filter(|_| routed(to));
            own.into_iter().find(|ip| ip.is_ipv6() == to.is_ipv6())
        };
        let far = |own: usize| usize::from(own == 0);
        let way = |own| way_to(cards, far(own), &alike, |to| towards(own, to)).unwrap();
        (0..cards.len()).map(|own| way(own).1.is_ipv6()).collect::<Vec<_>>()
    };
    let both = [card("a", true, &[four(1), six(1)]), card("b", true, &[six(2), four(2)])];
    assert_eq!(kinds(&both, |_| true), [false; 2]);
    assert_eq!(kinds(&both, |ip| ip.is_ipv6()), [true; 2], "where nothing else leads there");
    let third = [both.clone().to_vec(), vec![card("c", true, &[six(3)])]].concat();
    assert_eq!(kinds(&third, |_| true), [true; 3], "who has only one is reached by all");
}

#[test]
fn machines_of_one_boot_without_a_common_network_are_several() {
    let of = |host, last: u8| card(host, true, &[net("eth0", &format!("10.0.0.{last}/24"), Some(last), 1500)]);
    let mut cards = [of("a", 1), of("a", 2), of("b", 3), of("a", 1), of("a", 2), card("a", true, &[])];
    tell_clones_apart(&mut cards);
    assert_eq!(cards.each_ref().map(|card| &card.host[..]), ["a", "a.1", "b", "a", "a.1", "a"]);
    assert_eq!(plans(&cards[..5], &Wish::None)[1], "shm:mpi-j0b uring:eth0");
    let mut cards = [card("a", true, &[]), of("a", 1), of("a", 2)];
    tell_clones_apart(&mut cards);
    assert_eq!(cards.each_ref().map(|card| &card.host[..]), ["a", "a", "a.2"], "who sees no network tells nothing");
}

proptest! {
    #[test]
    fn cards_read_back_as_written(host in "[!-~]{1,40}", user: u32, raw: bool, name in "[a-z0-9.@-]{1,15}", ip: [u8; 4], six: [u16; 8], prefix in 0u8..=32, protection: u64, mac in prop::option::of(any::<[u8; 6]>()), mtu in 0usize..100_000, hash: Option<u64>) {
        let first = Net { interface: name.clone(), ip: std::net::IpAddr::from(ip), prefix, mac, mtu };
        let second = Net { interface: name, ip: std::net::IpAddr::from(six), prefix, mac: None, mtu };
        let card = Card { host, job: "x".to_owned(), user, raw, protection, tuning: hash.map_or(Told::Nothing, Told::Hash), nets: vec![first, second] };
        let _ = card.nets.iter().map(Net::network).count();
        prop_assert_eq!(card.to_string().parse(), Ok(card));
    }

    #[test]
    fn nonsense_is_no_card(text in "(sidelane-[0-9.]{1,6})?[ a-z0-9:./\n-]{0,100}") {
        let _ = text.parse::<Card>();
    }
}

#[test]
fn this_hosts_networks_are_found_without_its_own_loop() {
    let card = Card::of_this_process(0, 0, None);
    assert_eq!(card.to_string().parse(), Ok(card.clone()));
    assert!(card.nets.iter().all(|net| net.interface != "lo" && !net.ip.is_loopback()));
}

#[test]
fn ranks_of_one_host_are_of_one_user() {
    let of = |host, user| Card { user, ..card(host, true, &[]) };
    assert!(one_user_a_host(&[of("a", 1), of("b", 2), of("a", 1), of("b", 2)]).is_ok());
    let error = one_user_a_host(&[of("a", 1), of("b", 2), of("a", 2)]).unwrap_err();
    assert!(matches!(error, WorldError::OtherUser { rank: 2, user: 2, other: 1 }), "{error}");
}

#[test]
fn rank_0_s_tuning_is_everybody_s_and_another_one_is_refused() {
    let of = |machine: &str| Tuning::new(machine.to_owned(), Default::default(), None);
    let card = |rank, tuning: Option<Tuning>| {
        let card = Card::of_this_process(rank, 0, tuning.as_ref());
        card.to_string().parse::<Card>().unwrap()
    };
    assert_eq!(agree(&[card(0, None), card(1, None)]).unwrap(), None);
    let told = [card(0, Some(of("a"))), card(1, None), card(2, Some(of("a")))];
    assert_eq!(agree(&told).unwrap(), Some(of("a")), "who was told of none, or of the same, goes by it");
    for first in [Some(of("a")), None] {
        let error = agree(&[card(0, first), card(1, None), card(2, Some(of("b")))]).unwrap_err();
        assert!(matches!(error, WorldError::OtherTuning(2)), "{error}");
    }
}
