//! What is counted, where other processes look.

use std::collections::HashMap;

use sidelane_nic::LinkAddr;
use sidelane_nic::page::running;
use sidelane_nic::shm::ShmNic;
use sidelane_proto::am::{ActiveMessages, Handlers, Replier, ReplyRoom};
use sidelane_proto::{Config, Endpoint, PutHow, Rights};

use crate::patience::until;

type Counts = HashMap<String, u64>;

/// The values of this process's endpoint at `number`.
fn values(number: u16) -> Counts {
    let own = running().unwrap().into_iter().find(|process| process.pid == std::process::id()).expect("this process");
    let addr = LinkAddr::Shm { endpoint: number }.to_string();
    let page = own.pages.iter().find(|page| page.fact("address") == Some(&addr)).expect("its page");
    page.read().expect("nobody writes now").into_iter().map(|value| (value.name, value.value)).collect()
}

#[test]
fn active_messages_and_operations_are_counted_where_others_look() {
    let domain = format!("am-page-{}", std::process::id());
    let end = |number| {
        let handlers = Handlers::new()
            .request(0, |_: &mut u32, replier: Replier<'_>, _, _| replier.reply(0, &[], &[]).unwrap())
            .request(1, |_: &mut u32, _: Replier<'_>, _, _| {})
            .reply(0, |replies: &mut u32, _, _, _| *replies += 1);
        let nic = ShmNic::open(&domain, Some(number)).unwrap();
        ActiveMessages::new(Endpoint::new(nic, Config::default()), handlers)
    };
    let [a, b] = [7_001, 7_002];
    let (mut here, mut there) = (end(a), end(b));
    let peer = here.connect(LinkAddr::Shm { endpoint: b }).unwrap();
    let (mut replies, mut none) = (0, 0);
    let region = there.endpoint_mut().register(vec![0; 64]);
    let key = there.endpoint_mut().publish(region, Rights::WRITE, None).unwrap();
    until("it tells of room for replies", || {
        here.poll(&mut replies);
        there.poll(&mut none);
        here.room_max(peer) != ReplyRoom::NONE
    });
    for _ in 0..3 {
        here.request(peer, 0, &[1], &[], ReplyRoom::SHORT).unwrap();
    }
    here.request(peer, 1, &[], &[], ReplyRoom::NONE).unwrap();
    here.prepare(peer, 0, 8, ReplyRoom::NONE).unwrap().commit(99, &[], 8);
    let own = here.endpoint_mut().register(vec![0; 64]);
    here.endpoint_mut().put(peer, &key, 0, &[1; 8], PutHow::default()).unwrap();
    here.endpoint_mut().get(peer, &key, 0, own, 0..8).unwrap();
    here.endpoint_mut().fetch_add(peer, &key, 0, 1).unwrap();
    until("all is answered", || {
        here.poll(&mut replies);
        there.poll(&mut none);
        replies == 3 && here.endpoint().counters().operations_failed == 2
    });
    // Whoever goes to sleep shows all that was counted until then.
    for end in [&mut here, &mut there] {
        while end.poll_event().is_some() {}
        end.wait(Some(sidelane_nic::time::Instant::ZERO)).unwrap();
    }
    let (ours, theirs) = (values(a), values(b));
    for (name, count) in [
        ("am.requests_sent", 5),
        ("am.replies_handled", 3),
        ("am.requests_handled", 0),
        ("puts", 1),
        ("gets", 1),
        ("atomics", 1),
        ("operations_failed", 2),
        ("operations_refused", 0),
    ] {
        assert_eq!(ours[name], count, "{name} here");
    }
    for (name, count) in [
        ("am.requests_sent", 0),
        ("am.requests_handled", 4),
        ("am.replies_sent", 3),
        ("am.rejected.no-handler", 1),
        ("am.budget_stalls", 0),
        ("operations_taken", 3),
        // Frames, and both are in one.
        ("rejected.rights", 1),
    ] {
        assert_eq!(theirs[name], count, "{name} there");
    }
}
