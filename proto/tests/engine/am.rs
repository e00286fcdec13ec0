//! Active Messages on an engine.

use std::thread::{self, ThreadId};

use sidelane_nic::Nic;
use sidelane_nic::shm::ShmNic;
use sidelane_proto::am::{ActiveMessages, Args, Handlers, Replier, ReplyRoom};
use sidelane_proto::engine::{Options, Port, WithState, start};
use sidelane_proto::{Endpoint, Event, PeerId};

use crate::face::{Domain, PATIENCE, config};

#[derive(Default)]
struct State {
    handled_by: Option<ThreadId>,
    answers: Vec<u64>,
}

fn double(state: &mut State, replier: Replier<'_>, args: Args<'_>, _: &[u8]) {
    state.handled_by = Some(thread::current().id());
    replier.reply(0, &[args.get(0).unwrap() * 2], &[]).unwrap();
}

fn answered(state: &mut State, _: PeerId, args: Args<'_>, _: &[u8]) {
    state.answers.push(args.get(0).unwrap());
}

type On = WithState<ShmNic, State>;

fn engine(domain: &Domain) -> Port<On> {
    let handlers = Handlers::new().request(0, double).reply(0, answered);
    let am = ActiveMessages::new(Endpoint::new(domain.open(), config()), handlers);
    start(WithState { am, state: State::default() }, Options::default()).unwrap()
}

#[test]
fn handlers_run_on_the_engine_while_the_application_does_something_else() {
    let domain = Domain::new();
    let (mut a, mut b) = (engine(&domain), engine(&domain));
    let at_b = b.call(|on| on.am.endpoint().nic().caps().addr).unwrap();
    let to_b = a.connect(at_b).unwrap();
    let give_up = sidelane_nic::clock::monotonic() + PATIENCE;
    let connected = loop {
        match a.poll_event() {
            Some(event) => break event,
            None => a.wait(Some(give_up)).unwrap(),
        }
    };
    assert!(matches!(connected, Event::Connected { peer, .. } if peer == to_b));
    // From here on nothing is called of `b`.
    for number in 0..100u64 {
        let mut refused = true;
        while refused {
            refused =
                a.call(move |on| on.am.request(to_b, 0, &[number], &[], ReplyRoom::medium(1, 0)).is_err()).unwrap();
        }
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
