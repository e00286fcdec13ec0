//! Active Messages on an engine.

use std::thread::{self, ThreadId};

use sidelane_nic::shm::ShmNic;
use sidelane_nic::{LinkAddr, Nic};
use sidelane_proto::am::{ActiveMessages, Args, Handlers, Replier, ReplyRoom};
use sidelane_proto::engine::{Options, Port, WithState, start};
use sidelane_proto::{Endpoint, Event, GoneReason, PeerId, SendError};

use crate::face::{Domain, PATIENCE, config};

#[derive(Default)]
struct State {
    handled_by: Option<ThreadId>,
    answers: Vec<u64>,
    /// Requests of each source.
    came: [u64; 4],
    bytes: usize,
}

fn double(state: &mut State, replier: Replier<'_>, args: Args<'_>, _: &[u8]) {
    state.handled_by = Some(thread::current().id());
    replier.reply(0, &[args.get(0).unwrap() * 2], &[]).unwrap();
}

fn answered(state: &mut State, _: PeerId, args: Args<'_>, _: &[u8]) {
    state.answers.push(args.get(0).unwrap());
}

fn next(state: &mut State, _: Replier<'_>, args: Args<'_>, bytes: &[u8]) {
    let [source, number] = args.array().unwrap();
    let came = &mut state.came[source as usize];
    assert_eq!((*came, bytes), (number, &payload(source, number)[..]));
    *came += 1;
}

fn count(state: &mut State, _: Replier<'_>, _: Args<'_>, bytes: &[u8]) {
    state.bytes += bytes.len();
}

type On = WithState<ShmNic, State>;

fn messages(domain: &Domain) -> ActiveMessages<ShmNic, State> {
    let handlers = Handlers::new().request(0, double).request(1, next).request(2, count).reply(0, answered);
    ActiveMessages::new(Endpoint::new(domain.open(), config()), handlers)
}

fn engine(domain: &Domain) -> Port<On> {
    let am = messages(domain);
    start(WithState { am, state: State::default() }, Options::default()).unwrap()
}

#[test]
fn handlers_run_on_the_engine_while_the_application_does_something_else() {
    let domain = Domain::new();
    let (mut a, mut b) = (engine(&domain), engine(&domain));
    let at_b = b.call(|on| on.am.endpoint().nic().caps().addr).unwrap();
    let to_b = connected(&mut a, at_b);
    let give_up = sidelane_nic::clock::monotonic() + PATIENCE;
    // From here on nothing is called of `b`.
    for number in 0..100u64 {
        until_taken(&mut a, |a| a.request(to_b, 0, &[number], &[], ReplyRoom::medium(1, 0)));
    }
    let answers = loop {
        let answers = a.call(|on| (on.state.answers.len() == 100).then(|| on.state.answers.clone())).unwrap();
        if let Some(answers) = answers {
            break answers;
        }
        assert!(sidelane_nic::clock::monotonic() < give_up, "not every answer came");
    };
    assert_eq!(answers, (0..100).map(|number| number * 2).collect::<Vec<_>>());
    let (handled_by, engine) = b.call(|on| (on.state.handled_by, thread::current().id())).unwrap();
    assert_eq!(handled_by, Some(engine));
}

#[test]
fn requests_of_a_port_and_of_many_threads_are_handled_once_and_in_the_order_of_each() {
    const EACH: u64 = 2_000;
    let domain = Domain::new();
    let (mut a, mut b) = (engine(&domain), engine(&domain));
    let at_b = b.call(|on| on.am.endpoint().nic().caps().addr).unwrap();
    let to_b = connected(&mut a, at_b);
    thread::scope(|scope| {
        for source in 1..=3 {
            let sender = a.sender();
            scope.spawn(move || {
                for number in 0..EACH {
                    let payload = payload(source, number);
                    let give_up = sidelane_nic::clock::monotonic() + PATIENCE;
                    while let Err(error) = sender.request(to_b, 1, &[source, number], &payload, ReplyRoom::NONE) {
                        assert_eq!(error, SendError::Full);
                        assert!(sidelane_nic::clock::monotonic() < give_up, "no room for request {number} of {source}");
                        sender.flush();
                        thread::yield_now();
                    }
                }
                sender.flush();
            });
        }
        for number in 0..EACH {
            let payload = payload(0, number);
            until_taken(&mut a, |a| a.request(to_b, 1, &[0, number], &payload, ReplyRoom::NONE));
        }
    });
    a.flush();
    let give_up = sidelane_nic::clock::monotonic() + PATIENCE;
    while b.call(|on| on.state.came).unwrap() != [EACH; 4] {
        assert!(sidelane_nic::clock::monotonic() < give_up, "not every request came");
    }
}

/// The peer's handlers run only when it is polled here.
#[test]
fn what_finds_no_room_is_refused_or_kept_and_nothing_is_lost() {
    let domain = Domain::new();
    let (mut a, mut b) = (engine(&domain), messages(&domain));
    let to_b = a.connect(b.endpoint().nic().caps().addr).unwrap();
    let (mut state, give_up) = (State::default(), sidelane_nic::clock::monotonic() + PATIENCE);
    while a.poll_event().is_none() {
        b.poll(&mut state);
        assert!(sidelane_nic::clock::monotonic() < give_up, "no connection");
    }
    let (mut sent, mut refused) = (0, 0);
    // It stays full when what is on its way has come as far as it can.
    while refused < 1_000 {
        let payload = payload(0, sent);
        match a.request(to_b, 1, &[0, sent], &payload, ReplyRoom::NONE) {
            Ok(()) => (sent, refused) = (sent + 1, 0),
            Err(error) => {
                assert_eq!(error, SendError::Full);
                refused += 1;
                a.call(|_| ()).unwrap();
            }
        }
    }
    while state.came[0] < sent {
        b.poll(&mut state);
        assert!(sidelane_nic::clock::monotonic() < give_up, "{} of {sent} came", state.came[0]);
    }
}

#[test]
fn a_request_that_the_peer_cannot_take_is_refused_and_harms_nothing() {
    let domain = Domain::new();
    let (mut a, mut b) = (engine(&domain), engine(&domain));
    let at_b = b.call(|on| on.am.endpoint().nic().caps().addr).unwrap();
    let to_b = connected(&mut a, at_b);
    let give_up = sidelane_nic::clock::monotonic() + PATIENCE;
    while a.call(move |on| on.am.room_max(to_b)).unwrap() == ReplyRoom::NONE {
        assert!(sidelane_nic::clock::monotonic() < give_up, "it tells of no room for replies");
    }
    let longest = a.call(move |on| on.am.medium_max(to_b, 2)).unwrap();
    let bytes = vec![7; longest + 1];
    let none = ReplyRoom::NONE;
    assert_eq!(a.request(to_b, 1, &[0, 0], &bytes, none), Err(SendError::TooLong));
    assert_eq!(a.request(to_b, 1, &[0; 17], &[], none), Err(SendError::TooLong));
    assert_eq!(a.request(to_b, 1, &[0, 0], &[], ReplyRoom::medium(16, 1 << 20)), Err(SendError::TooLong));
    assert_eq!(a.sender().request(to_b, 1, &[0, 0], &bytes, none), Err(SendError::TooLong));
    // Requests of the peer's, whose credit rides on ours, and the longest one behind.
    let Event::Connected { peer: to_a, .. } = next_event(&mut b) else { panic!("it has no peer") };
    for round in 1..=20 {
        for _ in 0..100 {
            until_taken(&mut b, |b| b.request(to_a, 2, &[], &[1], none));
        }
        b.flush();
        while a.call(|on| on.state.bytes).unwrap() != 100 * round {
            assert!(sidelane_nic::clock::monotonic() < give_up, "not every request came");
        }
        until_taken(&mut a, |a| a.request(to_b, 2, &[0, 0], &bytes[..longest], none));
    }
    while !a.is_handled(to_b).unwrap() {
        assert!(sidelane_nic::clock::monotonic() < give_up, "it does not tell: {:?}", a.poll_event());
    }
    assert_eq!(b.call(|on| on.state.bytes).unwrap(), 20 * longest);
    a.close(to_b);
    assert_eq!(a.request(to_b, 1, &[0, 0], &[], none), Err(SendError::NoPeer));
}

/// Also when another one has its place.
#[test]
fn what_a_peer_that_is_gone_has_not_handled_it_never_has() {
    let domain = Domain::new();
    let (mut a, mut b) = (engine(&domain), messages(&domain));
    let at_a = a.call(|on| on.am.endpoint().nic().caps().addr).unwrap();
    let to_b = a.connect(b.endpoint().nic().caps().addr).unwrap();
    let (mut state, give_up) = (State::default(), sidelane_nic::clock::monotonic() + PATIENCE);
    let mut next_event = |a: &mut Port<On>, peer: &mut ActiveMessages<ShmNic, State>| loop {
        peer.poll(&mut state);
        if let Some(event) = a.poll_event() {
            break event;
        }
        assert!(sidelane_nic::clock::monotonic() < give_up, "nothing happened");
    };
    assert!(a.is_handled(to_b).unwrap(), "nothing is requested");
    assert!(matches!(next_event(&mut a, &mut b), Event::Connected { .. }));
    a.request(to_b, 1, &[0, 0], &payload(0, 0), ReplyRoom::NONE).unwrap();
    let mut c = messages(&domain);
    drop(b);
    assert!(matches!(next_event(&mut a, &mut c), Event::Gone { peer, .. } if peer == to_b));
    assert!(!a.is_handled(to_b).unwrap());
    c.connect(at_a).unwrap();
    let Event::Connected { peer: to_c, .. } = next_event(&mut a, &mut c) else { panic!("no connection") };
    assert_eq!(to_c.index(), to_b.index());
    assert_eq!((a.is_handled(to_b), a.is_handled(to_c)), (Ok(false), Ok(true)));
}

/// It names the connection that there is.
#[test]
fn connecting_again_forgets_nothing_of_the_peer() {
    let domain = Domain::new();
    let (mut a, mut b) = (engine(&domain), engine(&domain));
    let at_b = b.call(|on| on.am.endpoint().nic().caps().addr).unwrap();
    let to_b = connected(&mut a, at_b);
    let too_much = ReplyRoom::medium(16, 1 << 20);
    let give_up = sidelane_nic::clock::monotonic() + PATIENCE;
    while a.call(move |on| on.am.room_max(to_b)).unwrap() == ReplyRoom::NONE {
        assert!(sidelane_nic::clock::monotonic() < give_up, "it tells of no room for replies");
    }
    assert_eq!(a.connect(at_b).unwrap(), to_b);
    assert_eq!(a.request(to_b, 1, &[0, 0], &[], too_much), Err(SendError::TooLong));
}

#[test]
fn what_is_requested_before_the_peer_has_answered_is_handled() {
    let domain = Domain::new();
    let (mut a, mut b) = (engine(&domain), messages(&domain));
    let to_b = a.connect(b.endpoint().nic().caps().addr).unwrap();
    for number in 0..100 {
        a.request(to_b, 1, &[0, number], &payload(0, number), ReplyRoom::NONE).unwrap();
    }
    assert!(!a.is_handled(to_b).unwrap());
    let (mut state, give_up) = (State::default(), sidelane_nic::clock::monotonic() + PATIENCE);
    while !a.is_handled(to_b).unwrap() {
        b.poll(&mut state);
        assert!(sidelane_nic::clock::monotonic() < give_up, "{} came", state.came[0]);
    }
    assert_eq!(state.came[0], 100);
}

/// Also where its room for replies was used up, and a request waits for that.
#[test]
fn requests_to_a_peer_that_is_gone_are_refused() {
    let domain = Domain::new();
    let (mut a, mut b) = (engine(&domain), messages(&domain));
    let to_b = a.connect(b.endpoint().nic().caps().addr).unwrap();
    let (mut state, give_up) = (State::default(), sidelane_nic::clock::monotonic() + PATIENCE);
    while a.call(move |on| on.am.room_max(to_b)).unwrap() == ReplyRoom::NONE {
        b.poll(&mut state);
        assert!(sidelane_nic::clock::monotonic() < give_up, "it tells of no room for replies");
    }
    let room = ReplyRoom::SHORT;
    while a.call(move |on| on.am.request(to_b, 0, &[1], &[], room)).unwrap() != Err(SendError::Full) {
        assert!(sidelane_nic::clock::monotonic() < give_up, "it has room without end");
    }
    a.request(to_b, 0, &[1], &[], room).unwrap();
    drop(b);
    while !matches!(next_event(&mut a), Event::Gone { peer, .. } if peer == to_b) {}
    assert_eq!(a.call(move |on| on.am.request(to_b, 0, &[1], &[], room)).unwrap(), Err(SendError::NoPeer));
    assert_eq!(a.request(to_b, 0, &[1], &[], room), Err(SendError::NoPeer));
    assert!(a.stop().is_ok());
}

/// The order was taken before the peer had told what it keeps for replies.
#[test]
fn a_request_for_more_room_than_there_ever_is_ends_the_connection_for_both() {
    let domain = Domain::new();
    let (mut a, mut b) = (engine(&domain), messages(&domain));
    let to_b = a.connect(b.endpoint().nic().caps().addr).unwrap();
    a.request(to_b, 1, &[0, 0], &[], ReplyRoom::medium(16, 1 << 18)).unwrap();
    let (mut state, give_up) = (State::default(), sidelane_nic::clock::monotonic() + PATIENCE);
    let mut told = Vec::new();
    while !matches!(told.last(), Some(Event::Gone { reason: GoneReason::Restarted, .. })) {
        b.poll(&mut state);
        told.extend(b.poll_event());
        assert!(sidelane_nic::clock::monotonic() < give_up, "the peer knows of no end: {told:?}");
    }
    let Some(Event::Connected { peer: to_a, .. }) = told.first() else { panic!("{told:?}") };
    assert_eq!(b.request(*to_a, 1, &[0, 0], &[], ReplyRoom::NONE), Err(SendError::NoPeer));
    while told.last() != Some(&Event::Gone { peer: to_b, reason: GoneReason::MessageTooLong }) {
        a.wait(Some(give_up)).unwrap();
        told.extend(a.poll_event());
        assert!(sidelane_nic::clock::monotonic() < give_up, "its own user knows of no end: {told:?}");
    }
}

/// Begins a connection and waits for it.
fn connected(a: &mut Port<On>, to: LinkAddr) -> PeerId {
    let to = a.connect(to).unwrap();
    assert!(matches!(next_event(a), Event::Connected { peer, .. } if peer == to));
    to
}

/// Waits for it: the engine tells its port only after all that it has done in a turn.
fn next_event(a: &mut Port<On>) -> Event {
    let give_up = sidelane_nic::clock::monotonic() + PATIENCE;
    loop {
        if let Some(event) = a.poll_event() {
            return event;
        }
        assert!(sidelane_nic::clock::monotonic() < give_up, "nothing happened");
        a.wait(Some(give_up)).unwrap();
    }
}

/// Tries until there is room.
fn until_taken(a: &mut Port<On>, mut request: impl FnMut(&mut Port<On>) -> Result<(), SendError>) {
    let give_up = sidelane_nic::clock::monotonic() + PATIENCE;
    while let Err(error) = request(a) {
        assert_eq!(error, SendError::Full);
        a.wait(Some(give_up)).unwrap();
        assert!(sidelane_nic::clock::monotonic() < give_up, "no room is made");
    }
}

/// Short ones, and some that do not fit the engine's ring.
fn payload(source: u64, number: u64) -> Vec<u8> {
    let len = if number % 50 == 49 { 20_000 } else { number * 7 % 300 };
    vec![(source * 31 + number) as u8; len as usize]
}
