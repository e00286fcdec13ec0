//! When a requester is told of its credit.

use sidelane_nic::Nic;
use sidelane_nic::mem::{Fabric, MemNic};
use sidelane_nic::time::Duration;
use sidelane_proto::am::{ActiveMessages, Args, Handlers, Replier, ReplyRoom};
use sidelane_proto::{Config, Endpoint, Event, PeerId};

use crate::reliable_nic::Reliable;
use crate::world::{fifos, good_link, mtu};

fn silent(_: &mut u32, _: Replier<'_>, _: Args<'_>, _: &[u8]) {}

fn longest(_: &mut u32, replier: Replier<'_>, _: Args<'_>, _: &[u8]) {
    let most = replier.payload_max(0).unwrap();
    replier.reply(0, &[], &vec![1; most]).unwrap();
}

fn came(replies: &mut u32, _: PeerId, _: Args<'_>, _: &[u8]) {
    *replies += 1;
}

/// The flush at the end of a turn empties a FIFO without an ack that would tell of it, on a reliable driver.
#[test]
fn a_credit_that_found_no_room_is_told_before_the_sleep() {
    let fabric = Fabric::new(1);
    fabric.set_default_link(good_link());
    let open = |nic: MemNic, config| {
        let handlers = Handlers::new().request(0, silent).request(1, longest).reply(0, came);
        ActiveMessages::new(Endpoint::new(Reliable::new(nic), config), handlers)
    };
    let mut a = open(fabric.nic(mtu(512)), fifos(64 << 10));
    let mut b = open(fabric.nic(mtu(512)), Config { send_fifo: 1024, ..fifos(64 << 10) });
    let (mut replies, mut none) = (0, 0);
    let to = a.connect(b.endpoint().nic().caps().addr).unwrap();
    // Until nothing more goes to and fro.
    for _ in 0..1_000 {
        a.poll(&mut replies);
        b.poll(&mut none);
        fabric.advance_to(fabric.now() + Duration::from_micros(20));
    }
    assert!(matches!(b.poll_event(), Some(Event::Connected { .. })));
    // More than it tells of with the two replies, which take all of the room.
    let half = a.room_max(to);
    let requests = [(0, ReplyRoom::NONE); 256].into_iter().chain([(1, half), (1, half), (0, ReplyRoom::NONE)]);
    for (handler, room) in requests {
        a.request(to, handler, &[], &[], room).unwrap();
    }
    a.ask(to).unwrap();
    a.flush();
    fabric.advance_to(fabric.now() + Duration::from_micros(500));
    let began = fabric.now();
    while fabric.now() == began {
        b.poll(&mut none);
        b.wait(Some(began + Duration::from_millis(1_000))).unwrap();
    }
    a.poll(&mut replies);
    assert_eq!(
        (a.handled(to), replies),
        (a.sent(to), 2),
        "B slept for {:?} and had not told",
        fabric.now().since(began)
    );
}
