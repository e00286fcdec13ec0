//! Every event in every phase, against a table.

use std::fmt::Write as _;

use sidelane_nic::time::{Duration, Instant};
use sidelane_nic::{Caps, Link, LinkAddr};

use super::{Conn, Owed, Phase, Plan, TurnContext};
use crate::counters::Reject;
use crate::event::{Event, PeerId};
use crate::lone::nobody;
use crate::path::{CREDIT_UNIT, Path};
use crate::seal::TAG_LEN;
use crate::wire::{
    Check, FULL_LEN, Header, Hello, Kind, PING_LEN, RECORD_LEN, Seq, Tail, Tokens, put_close, put_message,
};
use crate::{Config, JobKey, Protection, SendError};

pub(super) const US: u64 = 0x1111;
pub(super) const THEM: u64 = 0x2222;
pub(super) const STRANGER: u64 = 0x3333;

/// A connection, and what its endpoint would hold.
pub(super) struct Stage {
    pub conn: Conn,
    pub turn: TurnContext,
    /// Number of the peer's next Data frame.
    pub seq: u32,
    /// What its frames grant.
    pub credit: u16,
    /// What has come to it ahead of its turn.
    pub sack: u32,
}

/// What came of an event: nothing to tell, or why it was refused.
pub(super) type Outcome = Result<(), String>;

impl Stage {
    pub fn new(called: bool) -> Self {
        Self::with(called, Config { seed: Some(1), ..Config::default() })
    }

    pub fn with(called: bool, config: Config) -> Self {
        let caps = Caps {
            addr: LinkAddr::Mem { node: 0 },
            mtu: 512,
            mtu_safe: 512,
            rx_frames: 128,
            burst: 64,
            rto_floor: Duration::from_millis(1),
            host_delay: Some(Duration::from_micros(62)),
        };
        let id = PeerId { index: 0, generation: 0 };
        let (addr, link, now) = (LinkAddr::Mem { node: 1 }, Link(1), Instant::ZERO);
        let path = Path::new(&caps, &config, false);
        let conn = if called {
            Conn::accepted(id, addr, link, US, path, now, &config, &hello(THEM, 0), 512)
        } else {
            Conn::connecting(id, addr, link, US, path, now, &config)
        };
        let mut stage = Self { conn, turn: TurnContext::new(config, now, false), seq: 0, credit: 1024, sack: 0 };
        stage.sent();
        stage
    }

    pub fn turn(&mut self) -> (&mut Conn, &mut TurnContext) {
        (&mut self.conn, &mut self.turn)
    }

    /// Lets it transmit, and tells the kinds of the frames.
    pub fn sent(&mut self) -> String {
        let mut kinds = Vec::new();
        let mut frame = vec![0; 512];
        let (conn, turn) = self.turn();
        while let Some(plan) = conn.poll_transmit(turn, false) {
            let len = Conn::frame_len(plan, false);
            conn.emit(turn, plan, &mut frame[..len], false);
            kinds.push(match plan {
                Plan::Hello { .. } => "Hello",
                Plan::HelloAck => "HelloAck",
                Plan::Ping => "Ping",
                Plan::Reset => "Reset",
                Plan::Ack => "Ack",
                Plan::New { .. } => "Data",
                Plan::Again { probe: true, .. } => "probe",
                Plan::Again { probe: false, .. } => "Data again",
            });
        }
        if kinds.is_empty() { "-".into() } else { kinds.join(", ") }
    }

    pub fn told(&mut self) -> String {
        let told: Vec<String> = self
            .turn
            .events
            .drain(..)
            .map(|event| match event {
                Event::Gone { reason, .. } => format!("Gone({reason:?})"),
                Event::Connected { .. } => "Connected".into(),
                Event::Closed { .. } => "Closed".into(),
                Event::Sent { .. } => "Sent".into(),
                Event::Unsent { .. } => "Unsent".into(),
                other => format!("{other:?}"),
            })
            .collect();
        if told.is_empty() { "-".into() } else { told.join(", ") }
    }

    pub fn phase(&self) -> &'static str {
        match self.conn.phase {
            Phase::Connecting { .. } => "Connecting",
            Phase::Accepted { asked: false, .. } => "Accepted",
            Phase::Accepted { asked: true, .. } => "Accepted, asked",
            Phase::Open => "Open",
            Phase::Closing => "Closing",
            Phase::Lingering { .. } => "Lingering",
            Phase::Gone => "Gone",
        }
    }

    pub fn arrive(&mut self, kind: Kind, ack: u32, body: &[u8]) -> Outcome {
        let header = Header {
            kind,
            flags: 0,
            peer: 0,
            seq: Seq(self.seq),
            ack: Seq(ack),
            sack: self.sack,
            credit: self.credit,
            epoch: US as u16,
        };
        let mut frame = vec![0; FULL_LEN];
        frame.extend(body);
        header.emit(&mut frame);
        Check::between(THEM, US).seal(&mut frame, Tail::Here);
        let (conn, turn) = self.turn();
        refused(conn.handle_frame(turn, &header, &frame, &mut nobody))
    }

    /// Number behind the last frame that was sent.
    pub fn all_sent(&self) -> u32 {
        self.conn.in_flight.next_seq().0
    }

    pub fn pass(&mut self, span: Duration) -> Outcome {
        self.turn.now += span;
        let (conn, turn) = self.turn();
        conn.handle_timeout(turn, false);
        Ok(())
    }

    pub fn send(&mut self) -> Outcome {
        // As the endpoint does it.
        if !self.conn.takes_messages() {
            return Err(format!("{:?}", SendError::NoPeer));
        }
        self.conn.send(RECORD_LEN + 8, |record| put_message(record, b"8 bytes.")).map_err(|error| format!("{error:?}"))
    }

    pub fn close(&mut self) -> Outcome {
        let (conn, turn) = self.turn();
        conn.close(turn);
        Ok(())
    }

    pub fn take(&mut self) -> Outcome {
        let (conn, turn) = self.turn();
        conn.recv(turn, |_| ());
        Ok(())
    }
}

pub(super) fn hello(token: u64, echo: u64) -> Hello {
    Hello {
        token,
        echo,
        mtu: 512,
        credit: 65_536,
        ack_delay: 100_000,
        seen_len: 512,
        message_max: 1 << 20,
        index: 5,
        window: 64,
    }
}

fn refused(taken: Result<(), Reject>) -> Outcome {
    taken.map_err(|reason| format!("{reason:?}"))
}

/// A connection in the phase of this name. What it sent and told on the way there is forgotten.
pub(super) fn in_phase(name: &str) -> Stage {
    let mut stage = Stage::new(name.starts_with("Accepted"));
    if name == "Accepted, asked" {
        stage.conn.ask(stage.turn.now, &stage.turn.config);
    }
    if !["Connecting", "Accepted", "Accepted, asked"].contains(&name) {
        let (conn, turn) = stage.turn();
        conn.handle_hello_ack(turn, &hello(THEM, US));
        stage.sent();
    }
    let steps: &[fn(&mut Stage) -> Outcome] = match name {
        "Open, unacknowledged" => &[Stage::send],
        "Closing" => &[Stage::send, Stage::close],
        "Lingering" => &[Stage::close, |stage| (stage.sent(), stage.arrive(Kind::Ack, 1, &[])).1],
        "Gone" => &[|stage| {
            let (conn, turn) = stage.turn();
            conn.handle_link_gone(turn);
            Ok(())
        }],
        _ => &[],
    };
    for step in steps {
        step(&mut stage).expect("the way to the phase is open");
    }
    stage.sent();
    stage.told();
    let phase = stage.phase();
    assert!(name.starts_with(phase), "wanted {name}, came to {phase}");
    stage
}

const PHASES: [&str; 8] =
    ["Connecting", "Accepted", "Accepted, asked", "Open", "Open, unacknowledged", "Closing", "Lingering", "Gone"];

type Happen = fn(&mut Stage) -> Outcome;

const EVENTS: [(&str, Happen); 19] = [
    ("Hello", |stage| refused(stage.conn.handle_hello(stage.turn.now, &hello(THEM, 0), 512))),
    ("Hello of another life", |stage| refused(stage.conn.handle_hello(stage.turn.now, &hello(STRANGER, 0), 512))),
    ("HelloAck", |stage| {
        let (conn, turn) = stage.turn();
        conn.handle_hello_ack(turn, &hello(THEM, US));
        Ok(())
    }),
    ("HelloAck of another life", |stage| {
        let (conn, turn) = stage.turn();
        conn.handle_hello_ack(turn, &hello(STRANGER, US));
        Ok(())
    }),
    ("Data", |stage| {
        let mut body = [0; RECORD_LEN + 8];
        put_message(&mut body, b"8 bytes.");
        stage.arrive(Kind::Data, 0, &body)
    }),
    ("Data again", |stage| {
        stage.seq = u32::MAX;
        stage.arrive(Kind::Data, 0, &[])
    }),
    ("Ack of all", |stage| stage.arrive(Kind::Ack, stage.all_sent(), &[])),
    ("Ack of nothing new", |stage| stage.arrive(Kind::Ack, 0, &[])),
    ("Ping", |stage| {
        let mut body = [0; PING_LEN];
        Tokens { from: THEM, to: US }.emit(&mut body);
        stage.arrive(Kind::Ping, 0, &body)
    }),
    ("Reset", |stage| {
        let (conn, turn) = stage.turn();
        refused(conn.handle_reset(turn, Tokens { from: THEM, to: US }, STRANGER))
    }),
    ("Reset of another life", |stage| {
        let (conn, turn) = stage.turn();
        refused(conn.handle_reset(turn, Tokens { from: STRANGER, to: US }, STRANGER))
    }),
    ("Close record", |stage| {
        let mut body = [0; RECORD_LEN];
        put_close(&mut body);
        stage.arrive(Kind::Data, 0, &body)
    }),
    ("Close record, taken", |stage| {
        let mut body = [0; RECORD_LEN];
        put_close(&mut body);
        stage.arrive(Kind::Data, 0, &body)?;
        stage.take()
    }),
    ("5 ms", |stage| stage.pass(Duration::from_millis(5))),
    ("a keep-alive", |stage| stage.pass(stage.turn.config.keep_alive)),
    ("10 s", |stage| stage.pass(stage.turn.config.connect_timeout)),
    ("send", Stage::send),
    ("close", Stage::close),
    ("link gone", |stage| {
        let (conn, turn) = stage.turn();
        conn.handle_link_gone(turn);
        Ok(())
    }),
];

/// Why the endpoint never lets an event come to a connection in a phase.
fn cannot_happen(phase: &str, event: &str) -> Option<&'static str> {
    match (phase, event) {
        ("Accepted", "send" | "close") => Some("the user has no name for it yet"),
        ("Accepted", "Hello of another life") => Some("the endpoint forgets it and accepts the newer one"),
        ("Lingering" | "Gone", "Hello" | "Hello of another life" | "Reset" | "Reset of another life") => {
            Some("`Peers::by_addr` passes it over")
        }
        ("Gone", "Ping") => Some("`Conn::is_between` denies it, and a Reset answers"),
        ("Gone", "HelloAck" | "HelloAck of another life") => Some("`Conn::answers_to` denies it, and a Reset answers"),
        _ => None,
    }
}

#[test]
fn every_event_in_every_phase() {
    let mut table = String::new();
    for phase in PHASES {
        for (event, happen) in EVENTS {
            let cell = match cannot_happen(phase, event) {
                Some(why) => format!("cannot happen: {why}"),
                None => {
                    let mut stage = in_phase(phase);
                    let refused = happen(&mut stage).err().map(|reason| format!(" ({reason})")).unwrap_or_default();
                    let sent = stage.sent();
                    format!("{}{refused}; sends {sent}; tells {}", stage.phase(), stage.told())
                }
            };
            writeln!(table, "{phase} | {event} | {cell}").expect("a String takes all");
        }
    }
    assert_eq!(table, include_str!("phases.table"), "the table that the connection follows:\n{table}");
}

#[test]
fn an_end_of_our_own_is_told_before_it_is_forgotten() {
    for (link_gone, sent) in [(false, "Reset"), (true, "-")] {
        let mut stage = in_phase("Open");
        let (conn, turn) = stage.turn();
        conn.end_too_long(turn);
        stage.pass(Duration::ZERO).expect("it takes its time");
        assert!(!stage.conn.is_over(), "the peer is not told yet");
        if link_gone {
            let (conn, turn) = stage.turn();
            conn.handle_link_gone(turn);
        }
        assert_eq!(stage.sent(), sent);
        assert!(stage.conn.is_over());
        assert_eq!((stage.told(), stage.sent()), ("Gone(MessageTooLong)".into(), "-".into()));
    }
}

/// The peer ends as well, before our Close has even left.
#[test]
fn a_close_with_nothing_outstanding_is_one_however_the_peer_ends() {
    let ends: [Happen; 2] = [
        |stage| refused(stage.conn.handle_reset(&mut stage.turn, Tokens { from: THEM, to: US }, STRANGER)),
        |stage| {
            let (conn, turn) = stage.turn();
            conn.handle_link_gone(turn);
            Ok(())
        },
    ];
    for end in ends {
        let mut stage = in_phase("Open");
        stage.close().and_then(|()| end(&mut stage)).expect("both happen");
        assert_eq!((stage.phase(), stage.told()), ("Lingering", "Closed".into()));
        assert!(!stage.conn.wants_to_transmit(), "there is nobody to say it to");
    }
}

/// Whose connection is not there any more can read it all the same.
#[test]
fn a_sealed_ping_tells_the_key_that_it_is_under() {
    for frames in [3, 5 << 20, 7 << 32] {
        let protection = Protection::Authenticated(JobKey::from_bytes([7; JobKey::LEN]));
        let Stage { mut conn, mut turn, .. } = Stage::with(true, Config { protection, ..Config::default() });
        let job = turn.job.take().expect("there is a key");
        conn.keys.seal(&job).skip(frames);
        conn.owed.add(Owed::PING);
        let mut frame = vec![0; FULL_LEN + PING_LEN + TAG_LEN];
        let plan = conn.poll_transmit(&mut turn, false).expect("it is owed");
        conn.emit(&mut turn, plan, &mut frame[..FULL_LEN + PING_LEN], false);
        conn.seal(&job, &mut frame);
        let header = Header::parse(&frame, true).expect("it is sound");
        assert_eq!((header.kind, header.seq), (Kind::Ping, Seq((frames >> 32) as u32)));
        assert_eq!(job.check_lost_ping(Tokens { from: US, to: THEM }, header.seq.0, &frame), Ok(()));
    }
}

/// A peer that breaks the rules: its message comes behind its Close, which ends the connection while what we sent is not acknowledged.
/// Only acks go out any more.
#[test]
fn a_message_behind_the_close_finds_no_room_for_an_answer() {
    let mut stage = in_phase("Open, unacknowledged");
    let mut body = [0; 2 * RECORD_LEN + 8];
    put_close(&mut body[..RECORD_LEN]);
    put_message(&mut body[RECORD_LEN..], b"8 bytes.");
    stage.arrive(Kind::Data, 0, &body).expect("it is taken in");
    stage.take().expect("the Close");
    assert_eq!((stage.phase(), stage.told()), ("Lingering", "Gone(ClosedByPeer)".into()));
    let (conn, turn) = stage.turn();
    let mut has_room = None;
    conn.recv_run(turn, 1, |_, answer| {
        has_room = Some(answer.fifo.spot(RECORD_LEN + 8, true).is_some());
        true
    });
    assert_eq!(has_room, Some(false));
}

/// The other one was sent when the peer's user had taken all that a FIFO of two mebibytes holds.
#[test]
fn a_frame_that_was_overtaken_grants_nothing() {
    let mut message = [0; RECORD_LEN + 8];
    put_message(&mut message, b"8 bytes.");
    for (overtaken, body) in [(Kind::Data, &message[..]), (Kind::Ack, &[])] {
        let mut stage = in_phase("Open, unacknowledged");
        for (kind, body, seq, ack, credit) in [(Kind::Data, &message[..], 1, 1, 33_791), (overtaken, body, 0, 0, 1_000)]
        {
            (stage.seq, stage.credit) = (seq, credit);
            stage.arrive(kind, ack, body).expect("it is sound");
        }
        assert_eq!(stage.conn.limit, 33_791 * CREDIT_UNIT, "{overtaken:?}");
    }
}
