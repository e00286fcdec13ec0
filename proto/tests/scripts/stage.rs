//! Plays a script against one endpoint.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::path::Path;
use std::rc::Rc;

use sidelane_nic::time::{Duration, Instant};
use sidelane_nic::{Caps, LinkAddr};
use sidelane_proto::{Config, Endpoint, Event, Op, PeerId, PutHow, Region, Reject, RemoteKey, Rights};

use crate::active::User;
use crate::frame::{Terms, content, matches};
use crate::nic::{ScriptNic, Wire};
use crate::operation::{Key, THEIR_LEN, THEIRS, byte};
use crate::script::{Line, duration, lines, number};

/// The node that the script speaks for; it may speak for others with `from=`.
const PEER: u32 = 1;

struct Stage {
    endpoint: User,
    wire: Rc<RefCell<Wire>>,
    peer: Option<PeerId>,
    /// What the endpoint has published, and memory that its gets land in.
    regions: Vec<Region>,
    /// Its operations.
    ops: Vec<Op>,
    events: VecDeque<String>,
    terms: Terms,
    /// Every frame that came or went, for who has to find out what went wrong.
    seen: Vec<String>,
}

/// Plays `folder/name.script`; a line that does not hold ends the test. Of frames longer than `head`, or than the script's own, the driver has
/// the rest fetched.
pub fn play(folder: &Path, name: &str, head: Option<usize>) {
    let path = folder.join(name).with_extension("script");
    let script = std::fs::read_to_string(&path).expect("the script can be read");
    let mut lines = lines(&script).peekable();
    let mut settings = Vec::new();
    while let Some(line) = lines.next_if(|line| line.what == "config") {
        settings.extend(line.words);
    }
    let mut stage = Stage::new(&settings);
    let own = stage.wire.borrow().head;
    stage.wire.borrow_mut().head = own.or(head);
    let end =
        Line { number: script.lines().count(), text: "the end", after: Duration::ZERO, what: "silence", words: vec![] };
    for line in lines.chain([end]) {
        if let Err(why) = stage.follow(&line) {
            let seen = stage.seen.join("\n    ");
            panic!("\n{}:{}: {}\n  {why}\n  so far:\n    {seen}\n", path.display(), line.number, line.text);
        }
    }
    if let User::Active(_, ran) = &stage.endpoint {
        assert!(ran.is_empty(), "{}: handlers that no line expects: {ran:?}", path.display());
    }
    assert!(stage.events.is_empty(), "{}: events that no line expects: {:?}", path.display(), stage.events);
}

impl Stage {
    fn new(settings: &[&str]) -> Self {
        let mut caps = Caps {
            addr: LinkAddr::Mem { node: 0 },
            mtu: 512,
            mtu_safe: 512,
            rx_frames: 128,
            burst: 64,
            rto_floor: Duration::from_millis(1),
            host_delay: Some(Duration::from_micros(62)),
        };
        let (mut one_by_one, mut active) = (false, false);
        let mut config = Config { seed: Some(7), recv_fifo: 65_536, send_fifo: 65_536, ..Config::default() };
        let mut head = None;
        for setting in settings {
            let (name, value) = setting.split_once('=').expect("NAME=VALUE");
            match name {
                "mtu" => (caps.mtu, caps.mtu_safe) = (number(value) as usize, number(value) as usize),
                "mtu_safe" => caps.mtu_safe = number(value) as usize,
                "active" => active = value == "true",
                "head" => head = Some(number(value) as usize),
                "one_by_one" => one_by_one = value == "true",
                "rx_frames" => caps.rx_frames = number(value) as usize,
                "direct" => caps.host_delay = caps.host_delay.filter(|_| value != "true"),
                "rto_floor" => caps.rto_floor = duration(value),
                "keep_alive" => config.keep_alive = duration(value),
                "connect_timeout" => config.connect_timeout = duration(value),
                "recv_fifo" => config.recv_fifo = number(value) as usize,
                "send_fifo" => config.send_fifo = number(value) as usize,
                "message_max" => config.message_max = number(value) as usize,
                "peers_max" => config.peers_max = number(value) as usize,
                _ => panic!("no setting {name}"),
            }
        }
        let (nic, wire) = ScriptNic::new(caps);
        wire.borrow_mut().one_by_one = one_by_one;
        wire.borrow_mut().head = head;
        let endpoint = Endpoint::new(nic, config);
        let endpoint = if active { User::active(endpoint) } else { User::Plain(Box::new(endpoint)) };
        Self {
            endpoint,
            wire,
            peer: None,
            regions: vec![],
            ops: vec![],
            events: VecDeque::new(),
            terms: Terms::new(active),
            seen: Vec::new(),
        }
    }

    fn now(&self) -> Instant {
        self.wire.borrow().now
    }

    fn follow(&mut self, line: &Line<'_>) -> Result<(), String> {
        if line.after > Duration::ZERO {
            self.advance(line.after);
        }
        let words = &line.words[..];
        if line.what == ">" {
            return self.expect_frame(words);
        }
        if self.wire.borrow().sent.front().is_some() {
            let (at, frame) = self.next_sent().expect("just seen");
            return Err(format!("nothing was to be sent, but at {at:?}:\n  {frame}"));
        }
        let mut what = line.what;
        let mut rest = words;
        // `connect then send 8`: no turn of the loop between the calls.
        while let Some(at) = rest.iter().position(|word| *word == "then") {
            self.act(what, &rest[..at])?;
            what = rest[at + 1];
            rest = &rest[at + 2..];
        }
        self.act(what, rest)?;
        if what != "turn" {
            self.rest();
        }
        Ok(())
    }

    fn act(&mut self, what: &str, words: &[&str]) -> Result<(), String> {
        match what {
            "silence" => {}
            "turn" => _ = self.turn(),
            "<" => self.arrive(words),
            "connected" => self.shake_hands(words)?,
            "connect" => self.peer = Some(self.endpoint.connect(LinkAddr::Mem { node: PEER }).expect("room")),
            "close" => self.endpoint.close(self.peer.expect("a peer")),
            "away" => self.wire.borrow_mut().now = self.now() + duration(words[0]),
            "rest" => self.wire.borrow_mut().rest_lost = words[0] == "lost",
            "link_gone" => self.wire.borrow_mut().gone = true,
            "send" => self.send(words)?,
            "send_owned" => {
                let peer = self.peer.expect("a peer");
                self.endpoint
                    .send_owned(peer, message(number(words[0]) as usize))
                    .map_err(|error| format!("{error:?}"))?;
            }
            "publish" | "unregister" | "memory" | "signals" | "done" => self.own_memory(what, words)?,
            "put" | "get" | "add" | "fence" => self.operate(what, words),
            "recv" => self.recv(words)?,
            "request" => self.request(words)?,
            "ask" => self.endpoint.am().0.ask(self.peer.expect("a peer")).map_err(|error| format!("{error:?}"))?,
            "ran" => self.expect_handler(words[0])?,
            "event" => self.expect_event(words[0])?,
            "count" => self.expect_counts(words)?,
            what => return Err(format!("what is {what}?")),
        }
        Ok(())
    }

    /// Lets `span` pass, timer by timer.
    fn advance(&mut self, span: Duration) {
        let until = self.now() + span;
        for _ in 0..10_000 {
            let next = self.endpoint.poll_timeout().filter(|next| *next <= until);
            let Some(next) = next else { break };
            self.look_until(self.now().max(next));
        }
        self.look_until(until);
    }

    /// Lets time pass until `then`. Its loop ran all the while: who does not call for long is away.
    fn look_until(&mut self, then: Instant) {
        let before = Instant::from_nanos(then.as_nanos().saturating_sub(1));
        if before > self.now() {
            self.wire.borrow_mut().now = before;
            self.rest();
        }
        self.wire.borrow_mut().now = then;
        self.rest();
    }

    /// Lets the endpoint do what it can do now.
    fn rest(&mut self) {
        for _ in 0..1_000 {
            let received = self.turn();
            let now = self.now();
            if received == 0 && self.endpoint.poll_timeout().is_none_or(|due| due > now) {
                return;
            }
        }
        panic!("the endpoint does not come to rest");
    }

    fn turn(&mut self) -> usize {
        let received = self.endpoint.poll();
        while let Some(event) = self.endpoint.poll_event() {
            self.note(event);
        }
        received
    }

    fn note(&mut self, event: Event) {
        self.events.push_back(match event {
            Event::Connected { peer, .. } => {
                self.peer = Some(peer);
                "Connected".into()
            }
            Event::Sent { buffer, .. } => format!("Sent({})", buffer.len()),
            Event::Unsent { buffer, .. } => format!("Unsent({})", buffer.len()),
            Event::Closed { .. } => "Closed".into(),
            Event::Gone { reason, .. } => format!("Gone({reason:?})"),
            Event::Got { .. } => "Got".into(),
            Event::Fetched { value, .. } => format!("Fetched({value})"),
            Event::OpFailed { why, .. } => format!("OpFailed({why:?})"),
            Event::Unregistered { .. } => "Unregistered".into(),
        });
    }

    fn arrive(&mut self, words: &[&str]) {
        let from =
            words.iter().find_map(|word| word.strip_prefix("from_node=")).map_or(PEER, |node| number(node) as u32);
        let frame = self.terms.build(words);
        keep(words[0], words.iter().copied(), &frame);
        self.seen.push(format!("{:?} < {}", self.now(), words.join(" ")));
        self.wire.borrow_mut().arriving.push_back((from, frame));
    }

    fn next_sent(&mut self) -> Option<(Instant, String)> {
        let (at, words) = self.take_sent()?;
        Some((at, words.join(" ")))
    }

    fn take_sent(&mut self) -> Option<(Instant, Vec<String>)> {
        let (at, to, bytes) = self.wire.borrow_mut().sent.pop_front()?;
        let words = self.terms.read(to, &bytes);
        keep(&words[0], words.iter().map(String::as_str), &bytes);
        self.seen.push(format!("{at:?} > {}", words.join(" ")));
        Some((at, words))
    }

    fn expect_frame(&mut self, expected: &[&str]) -> Result<(), String> {
        let due = self.now();
        let Some((at, words)) = self.take_sent() else {
            // Says what would have come instead.
            self.advance(Duration::from_millis(1_000));
            let actual = self.next_sent().map(|(at, frame)| format!("at {at:?}\n    {frame}"));
            return Err(format!(
                "expected at {due:?}, but the next frame comes\n    {}",
                actual.unwrap_or("never".into())
            ));
        };
        if at == due && matches(expected, &words, &self.terms) {
            return Ok(());
        }
        Err(format!("expected at {due:?}\n    {}\n  actual at {at:?}\n    {}", expected.join(" "), words.join(" ")))
    }

    /// The handshake, without a word: `words` are fields of the HelloAck.
    fn shake_hands(&mut self, words: &[&str]) -> Result<(), String> {
        self.peer = Some(self.endpoint.connect(LinkAddr::Mem { node: PEER }).expect("room"));
        self.rest();
        let (_, hello) = self.take_sent().ok_or("no Hello was sent")?;
        let seen = hello.iter().find_map(|word| word.strip_prefix("len=")).expect("it has a length");
        let seen = format!("seen_len={seen}");
        let mut answer = vec!["HelloAck", &seen];
        answer.extend(words);
        self.arrive(&answer);
        self.rest();
        self.expect_frame(&["Ack", "seq=0", "ack=0"])?;
        self.expect_event("Connected")
    }

    fn send(&mut self, words: &[&str]) -> Result<(), String> {
        let peer = self.peer.expect("a peer");
        let (lens, refused) = match words.iter().position(|word| *word == "refused") {
            Some(at) => (&words[..at], Some(words[at + 1])),
            None => (words, None),
        };
        for len in lens {
            let taken = self.endpoint.send(peer, &message(number(len) as usize));
            let reason = taken.err().map(|reason| format!("{reason:?}"));
            if reason.as_deref() != refused {
                return Err(format!("send of {len} bytes: refused {reason:?}, expected {refused:?}"));
            }
        }
        Ok(())
    }

    fn request(&mut self, words: &[&str]) -> Result<(), String> {
        let reason = self.endpoint.request(self.peer.expect("a peer"), words).err().map(|reason| format!("{reason:?}"));
        let refused = words.iter().position(|word| *word == "refused").map(|at| words[at + 1]);
        if reason.as_deref() == refused { Ok(()) } else { Err(format!("refused {reason:?}, expected {refused:?}")) }
    }

    /// Which handler ran next.
    fn expect_handler(&mut self, expected: &str) -> Result<(), String> {
        let ran = self.endpoint.am().1.pop_front();
        let is_expected = ran.as_deref().unwrap_or("nothing") == expected;
        if is_expected { Ok(()) } else { Err(format!("what ran is {ran:?}")) }
    }

    fn recv(&mut self, words: &[&str]) -> Result<(), String> {
        for word in words {
            let got = self.endpoint.recv(|_, bytes| bytes.to_vec());
            let expected = (*word != "nothing").then(|| message(number(word) as usize));
            if got != expected {
                return Err(format!(
                    "received a message of {:?} bytes, or an altered one",
                    got.map(|bytes| bytes.len())
                ));
            }
        }
        Ok(())
    }

    /// What the endpoint's user does with its region, and finds there.
    fn own_memory(&mut self, what: &str, words: &[&str]) -> Result<(), String> {
        let value = |at: usize| number(words[at]) as usize;
        let endpoint = &mut self.endpoint;
        if what == "publish" {
            let region = endpoint.register(vec![0; value(0)]);
            let key = match words.get(1) {
                Some(&"to_fill") => endpoint.publish_to_fill(region, self.peer.expect("a peer")),
                _ => endpoint.publish(region, Rights::ALL, None),
            };
            let key = key.expect("just registered").to_bytes();
            self.terms.ours = Key {
                region: u32::from_le_bytes(key[..4].try_into().expect("four bytes")),
                key: u64::from_le_bytes(key[4..12].try_into().expect("eight bytes")),
            };
            self.regions = vec![region];
            return Ok(());
        }
        if what == "done" {
            let done: Vec<bool> = self.ops.iter().map(|op| endpoint.is_done(*op)).collect();
            let sound = done.iter().enumerate().all(|(at, done)| *done == (at < value(0)));
            return if sound { Ok(()) } else { Err(format!("done are {done:?}")) };
        }
        let region = *self.regions.last().expect("a region");
        match what {
            "unregister" => endpoint.unregister(region).expect("registered"),
            "signals" if endpoint.signals(region) != Some(number(words[0])) => {
                return Err(format!("there are {:?} signals", endpoint.signals(region)));
            }
            "memory" => {
                // `memory AT LEN put`: as puts write it; or a number.
                let (at, len) = (value(0), value(1));
                let found = &endpoint.region(region).expect("registered")[at..at + len];
                let sound = match words[2] {
                    "put" => found.iter().zip(at as u64..).all(|(found, at)| *found == byte(at)),
                    word => *found == number(word).to_le_bytes()[..len],
                };
                if !sound {
                    return Err(format!("there is {found:02x?}"));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The endpoint's user works on the script's region.
    fn operate(&mut self, what: &str, words: &[&str]) {
        let (endpoint, peer) = (&mut self.endpoint, self.peer.expect("a peer"));
        let mut key = [0; RemoteKey::LEN];
        key[..4].copy_from_slice(&THEIRS.region.to_le_bytes());
        key[4..12].copy_from_slice(&THEIRS.key.to_le_bytes());
        key[12..].copy_from_slice(&THEIR_LEN.to_le_bytes());
        let key = RemoteKey::from_bytes(key);
        let value = |at: usize| number(words[at]);
        let op = match what {
            "put" => {
                let bytes: Vec<u8> = (value(0)..value(0) + value(1)).map(byte).collect();
                let how = PutHow {
                    signal: words.contains(&"signal"),
                    silent: words.contains(&"silent"),
                    backwards: words.contains(&"backwards"),
                };
                endpoint.put(peer, &key, value(0), &bytes, how)
            }
            "get" => {
                let landing = endpoint.register(vec![0; value(1) as usize]);
                self.regions.push(landing);
                endpoint.get(peer, &key, value(0), landing, 0..value(1) as usize)
            }
            "add" => endpoint.fetch_add(peer, &key, value(0), value(1)),
            _ => return endpoint.fence(peer),
        };
        self.ops.push(op.expect("room"));
    }

    fn expect_event(&mut self, expected: &str) -> Result<(), String> {
        match self.events.pop_front() {
            Some(event) if event == expected => Ok(()),
            event => Err(format!("the event is {event:?}")),
        }
    }

    fn expect_counts(&mut self, words: &[&str]) -> Result<(), String> {
        let counters = *self.endpoint.counters();
        for word in words {
            let (name, value) = word.split_once('=').expect("NAME=VALUE");
            let actual = match name {
                "duplicates" => counters.duplicates,
                "reordered" => counters.reordered,
                "placed_early" => counters.placed_early,
                "retransmitted" => counters.retransmitted,
                "probes_sent" => counters.probes_sent,
                "pings_sent" => counters.pings_sent,
                "credit_stalls" => counters.credit_stalls,
                "frames_received" => counters.frames_received,
                "rejected" => counters.rejected_total(),
                "absences" => counters.absences,
                "peers" => self.endpoint.peers() as u64,
                "handled" => self.endpoint.am().0.handled(self.peer.expect("a peer")),
                name if name.starts_with("am.") => {
                    let mut found = None;
                    self.endpoint.am().0.counters().each(|known, value| {
                        found = if known == name { Some(value) } else { found };
                    });
                    found.unwrap_or_else(|| panic!("no counter {name}"))
                }
                reason => {
                    let reason = Reject::ALL.into_iter().find(|known| format!("{known:?}") == reason);
                    counters.rejected(reason.unwrap_or_else(|| panic!("no counter {name}")))
                }
            };
            if actual != number(value) {
                return Err(format!("{name} is {actual}"));
            }
        }
        Ok(())
    }
}

/// Puts short frames into the folder that SIDELANE_KEEP_FRAMES names, one of each shape: seeds for the fuzzer
/// (`proto/fuzz/corpus/wire`).
fn keep<'a>(kind: &str, words: impl Iterator<Item = &'a str>, frame: &[u8]) {
    const LONGEST: usize = 160;
    let Some(folder) = std::env::var_os("SIDELANE_KEEP_FRAMES").filter(|_| frame.len() <= LONGEST) else { return };
    let shape = words.skip(1).filter(|word| !word.contains('=')).filter_map(|word| word.split('(').next());
    let name: Vec<&str> = std::iter::once(kind).chain(shape).collect();
    std::fs::write(Path::new(&folder).join(name.join("-").to_lowercase()), frame).expect("the folder takes files");
}

/// The message of so many bytes.
fn message(len: usize) -> Vec<u8> {
    (0..len).map(|at| content(len, at)).collect()
}
