//! One endpoint that sends and checks.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use sidelane_nic::fault::{Fault, Faults};
use sidelane_nic::spec::{NicUser, Spec};
use sidelane_nic::time::{Duration, Instant};
use sidelane_nic::{LinkAddr, Nic};
use sidelane_proto::{Config, Endpoint, Event, JobKey, PeerId, Protection, SendError};

use super::message::Script;
use super::{Counts, Ending, Line};

/// What one endpoint does.
#[derive(Debug, Clone, Args)]
pub struct SideArgs {
    /// Driver, with the endpoint to be, so that a restarted process has the address of the one before
    #[arg(long)]
    pub nic: Spec,
    /// Address of the peer to connect to; without, peers are waited for
    #[arg(long)]
    pub connect: Option<LinkAddr>,
    /// Messages to send to each peer; without, until standard input closes
    #[arg(long)]
    pub messages: Option<u64>,
    /// Send nothing but the first message before standard input closes; then the others, if so many were asked for, and the last one
    #[arg(long)]
    pub idle: bool,
    /// Shortest message in bytes, but for the first and the last
    #[arg(long, default_value_t = 0)]
    pub size_min: usize,
    /// Longest message in bytes
    #[arg(long, default_value_t = 64 << 10)]
    pub size_max: usize,
    /// Close right behind the last message, whatever is still under way
    #[arg(long)]
    pub hasty: bool,
    /// Probability of each of loss, duplication and reordering, for every frame sent
    #[arg(long, default_value_t = 0.0)]
    pub faults: f64,
    /// Probability that a frame is altered on its way, for every frame sent
    #[arg(long, default_value_t = 0.0)]
    pub altered: f64,
    /// Encrypt under this job key, in hexadecimal
    #[arg(long)]
    pub key: Option<JobKey>,
    /// What sizes, contents and faults are drawn from
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Silence after which a peer is asked whether it lives
    #[arg(long)]
    pub keep_alive_ms: Option<u64>,
    /// Time between two words of how far it is
    #[arg(long, default_value_t = 1000)]
    pub progress_ms: u64,
    /// Peers whose end is waited for
    #[arg(long, default_value_t = 1)]
    pub lives: u64,
    /// Seconds after which it is given up
    #[arg(long, default_value_t = 60)]
    pub limit_s: u64,
}

/// Opens the driver and plays; returns the last line.
pub fn run(args: &SideArgs, out: &mut impl Write) -> Result<Line, String> {
    args.nic.open(Play { args, out }).map_err(|error| error.to_string())?
}

/// What is done with the driver.
struct Play<'a, W> {
    args: &'a SideArgs,
    out: &'a mut W,
}

impl<W: Write> NicUser for Play<'_, W> {
    type Out = Result<Line, String>;

    fn run<N: Nic + 'static>(self, nic: N) -> Self::Out {
        let Self { args, out } = self;
        if args.faults == 0.0 && args.altered == 0.0 {
            return Side::new(args, nic).run(out, |_| [0; 3]);
        }
        let (often, corrupt) = (args.faults, args.altered);
        let faults = Faults { loss: often, duplicate: often, reorder: often, corrupt, ..Faults::NONE };
        Side::new(args, Fault::new(nic, faults, args.seed)).run(out, |nic| {
            let done = nic.fault_counters();
            [done.lost, done.duplicated, done.held_back]
        })
    }
}

struct Side<'a, N: Nic> {
    args: &'a SideArgs,
    endpoint: Endpoint<N>,
    lives: HashMap<PeerId, Life>,
    /// Lives so far, and those that ended.
    born: u64,
    ended: u64,
    /// Messages received from all.
    received: u64,
    started: Instant,
    stop: Arc<AtomicBool>,
}

/// The traffic with one peer.
struct Life {
    number: u64,
    out: Script,
    until: Until,
    last_sent: bool,
    /// Buffers lent to the endpoint.
    lent: u64,
    /// What comes in; `None` before the first message.
    script: Option<Script>,
    complete: bool,
    closing: bool,
}

/// When the last message is due.
#[derive(Clone, Copy)]
enum Until {
    /// After so many.
    Messages(u64),
    /// When told so.
    Stopped,
    /// When told so, and until then there is silence after the first message; then after so many.
    StoppedIdle(u64),
}

impl<'a, N: Nic> Side<'a, N> {
    fn new(args: &'a SideArgs, nic: N) -> Self {
        let mut config = Config::default();
        if let Some(millis) = args.keep_alive_ms {
            config.keep_alive = Duration::from_millis(millis);
        }
        if let Some(key) = args.key {
            config.protection = Protection::Encrypted(key);
        }
        let started = nic.now();
        Self {
            args,
            endpoint: Endpoint::new(nic, config),
            lives: HashMap::new(),
            born: 0,
            ended: 0,
            received: 0,
            started,
            stop: stop_at_end_of_input(),
        }
    }

    fn run(mut self, out: &mut impl Write, faults: impl Fn(&N) -> [u64; 3]) -> Result<Line, String> {
        let gone = |error: io::Error| error.to_string();
        Line::Ready { at: self.endpoint.nic().caps().addr.to_string() }.write(out).map_err(gone)?;
        if let Some(to) = self.args.connect {
            self.endpoint.connect(to).map_err(|error| error.to_string())?;
        }
        let give_up_at = self.started + Duration::from_millis(self.args.limit_s * 1000);
        let progress = Duration::from_millis(self.args.progress_ms);
        let mut progress_at = self.started + progress;
        let mut idle_turns = 0;
        loop {
            let mut busy = self.endpoint.poll() > 0;
            // Before more is sent, which would be settled already and not flushed yet.
            let now = self.endpoint.nic().now();
            if now >= progress_at {
                progress_at = now + progress;
                let settled = self.settled();
                Line::Progress { received: self.received, settled, rss_kib: rss_kib() }.write(out).map_err(gone)?;
            }
            let events: Vec<Event> = std::iter::from_fn(|| self.endpoint.poll_event()).collect();
            busy |= !events.is_empty();
            self.receive_what_the_gone_left(&events)?;
            for event in events {
                if let Some(line) = self.on_event(event)? {
                    line.write(out).map_err(gone)?;
                }
            }
            busy |= self.receive()?;
            busy |= self.send()?;
            // A closed connection lingers to answer what the peer sends again.
            if self.ended >= self.args.lives && self.endpoint.peers() == 0 {
                break;
            }
            if now >= give_up_at {
                return Err(format!("not done after {} s: {}", self.args.limit_s, self.state()));
            }
            idle_turns = if busy { 0 } else { idle_turns + 1 };
            if idle_turns > SPINS {
                self.endpoint.wait(Some(now + NAP)).map_err(gone)?;
            }
        }
        let elapsed_ms = self.endpoint.nic().now().since(self.started).as_nanos() / 1_000_000;
        let faults = faults(self.endpoint.nic());
        Ok(Line::Done(Counts { elapsed_ms, faults, ..Counts::of(&self.endpoint) }))
    }

    /// What had arrived before a peer was gone can still be received, and is checked before its end is told. Behind it may be what a peer
    /// has sent that is new.
    fn receive_what_the_gone_left(&mut self, events: &[Event]) -> Result<(), String> {
        for event in events {
            let Event::Connected { peer, addr } = event else { continue };
            if self.lives.insert(*peer, Life::new(self.born, self.args)).is_some() {
                return Err(format!("{peer:?} at {addr} was announced twice"));
            }
            self.born += 1;
        }
        while events.iter().any(|event| matches!(event, Event::Gone { .. })) && self.receive()? {}
        Ok(())
    }

    fn on_event(&mut self, event: Event) -> Result<Option<Line>, String> {
        match event {
            Event::Connected { peer, .. } => {
                let life = self.lives[&peer].number;
                Ok(Some(Line::Connected { life, peer: format!("{peer:?}") }))
            }
            Event::Sent { peer, .. } | Event::Unsent { peer, .. } => {
                let life = self.lives.get_mut(&peer).ok_or("a buffer came back from a peer that ended before")?;
                life.lent = life.lent.checked_sub(1).ok_or("more buffers came back than were lent")?;
                Ok(None)
            }
            Event::Closed { peer } => self.on_end(peer, Ending::Closed),
            Event::Gone { peer, reason } => self.on_end(peer, Ending::Gone(format!("{reason:?}"))),
            // This traffic is messages only.
            Event::Got { .. } | Event::Fetched { .. } | Event::OpFailed { .. } | Event::Unregistered { .. } => Ok(None),
        }
    }

    fn on_end(&mut self, peer: PeerId, how: Ending) -> Result<Option<Line>, String> {
        let Some(life) = self.lives.remove(&peer) else {
            return Err(format!("{peer:?} ended without ever having connected: {how:?}"));
        };
        if life.lent > 0 {
            return Err(format!("{peer:?} ended and {} lent buffers did not come back", life.lent));
        }
        self.ended += 1;
        let (received, received_digest) = life.script.map_or((0, 0), |script| (script.number(), script.digest()));
        Ok(Some(Line::Ended {
            life: life.number,
            how,
            sent: life.out.number(),
            sent_digest: life.out.digest(),
            received,
            received_digest,
            complete: life.complete,
        }))
    }

    /// Takes a burst of messages; true when there was one.
    fn receive(&mut self) -> Result<bool, String> {
        let Self { endpoint, lives, received, .. } = self;
        for turn in 0..MESSAGES_A_TURN {
            let Some(taken) = endpoint.recv(|peer, message| match lives.get_mut(&peer) {
                Some(life) => life.take(message),
                // Whoever closes does not wait for what comes.
                None if self.args.hasty => Ok(()),
                None => Err(format!("a message of {} bytes came from {peer:?}, which had ended", message.len())),
            }) else {
                return Ok(turn > 0);
            };
            taken?;
            *received += 1;
        }
        Ok(true)
    }

    /// Sends to everybody as much as fits, and closes what is done; true when something was sent.
    fn send(&mut self) -> Result<bool, String> {
        let stop = self.stop.load(Ordering::Relaxed);
        let mut sent = false;
        for (&peer, life) in &mut self.lives {
            sent |= life.send(&mut self.endpoint, peer, stop)?;
            // Whoever connected closes.
            let done = life.last_sent && life.complete && life.lent == 0 && self.args.connect.is_some();
            let closes = if self.args.hasty { life.last_sent } else { done && self.endpoint.is_settled(peer) };
            if closes && !life.closing {
                life.closing = true;
                self.endpoint.close(peer);
            }
        }
        Ok(sent)
    }

    /// As [`Line::Progress`] tells it.
    fn settled(&mut self) -> u64 {
        let Self { endpoint, lives, .. } = self;
        lives.iter().filter(|(peer, _)| endpoint.is_settled(**peer)).map(|(_, life)| life.out.number()).sum()
    }

    fn state(&self) -> String {
        let lives = self.lives.iter().map(|(peer, life)| {
            let received = life.script.as_ref().map_or(0, Script::number);
            format!("{peer:?}: {} sent, {received} received, complete: {}", life.out.number(), life.complete)
        });
        format!("{} of {} lives ended; {}", self.ended, self.args.lives, lives.collect::<Vec<_>>().join("; "))
    }
}

impl Life {
    fn new(number: u64, args: &SideArgs) -> Self {
        Self {
            number,
            // Each life a stream of its own: what belongs to another shows.
            out: Script::new(args.seed.wrapping_mul(1000) + number, args.size_min..=args.size_max),
            until: match args.messages {
                _ if args.idle => Until::StoppedIdle(args.messages.unwrap_or(0)),
                Some(count) => Until::Messages(count),
                None => Until::Stopped,
            },
            last_sent: false,
            lent: 0,
            script: None,
            complete: false,
            closing: false,
        }
    }

    fn take(&mut self, message: &[u8]) -> Result<(), String> {
        if self.complete {
            return Err(format!("a message of {} bytes came after the last one", message.len()));
        }
        if message.is_empty() {
            self.complete = true;
            return Ok(());
        }
        let script = match &mut self.script {
            Some(script) => script,
            none => none.insert(Script::of(message).ok_or("the first message opens no stream")?),
        };
        script.check(message).map_err(|wrong| wrong.to_string())
    }

    fn send<N: Nic>(&mut self, endpoint: &mut Endpoint<N>, peer: PeerId, stop: bool) -> Result<bool, String> {
        let refused = |error| format!("send: {error}");
        for turn in 0..MESSAGES_A_TURN {
            if self.last_sent {
                return Ok(turn > 0);
            }
            let over = match self.until {
                Until::Messages(count) => self.out.number() >= count,
                Until::Stopped => stop,
                Until::StoppedIdle(_) if self.out.number() > 0 && !stop => return Ok(turn > 0),
                Until::StoppedIdle(count) => stop && self.out.number() >= count,
            };
            let message = if over { &[] } else { self.out.message() };
            let lend = message.len() >= LEND_FROM;
            let sent = if lend {
                endpoint.send_owned(peer, message.to_vec()).map_err(|refused| refused.reason)
            } else {
                endpoint.send(peer, message)
            };
            match sent {
                Ok(()) if over => self.last_sent = true,
                Ok(()) => {
                    self.lent += u64::from(lend);
                    self.out.advance();
                }
                Err(SendError::Full) => return Ok(turn > 0),
                // It ended in this very turn; the event follows.
                Err(SendError::NoPeer) => return Ok(false),
                Err(error) => return Err(refused(error)),
            }
        }
        Ok(true)
    }
}

/// A flag that is raised when standard input closes: whoever started this process wants it to end, or is gone.
fn stop_at_end_of_input() -> Arc<AtomicBool> {
    let flag = Arc::new(AtomicBool::new(false));
    let raised = flag.clone();
    std::thread::spawn(move || {
        let _ = io::stdin().lock().read_to_end(&mut Vec::new());
        raised.store(true, Ordering::Relaxed);
    });
    flag
}

/// Resident memory of this process (proc(5), `statm`, in pages).
fn rss_kib() -> u64 {
    let pages =
        std::fs::read_to_string("/proc/self/statm").ok().and_then(|statm| statm.split(' ').nth(1)?.parse::<u64>().ok());
    pages.unwrap_or(0) * 4
}

/// Turns without work before it sleeps. Short: tests share their cores.
const SPINS: u32 = 100;
/// Sleeps no longer, so that the end of input is noticed.
const NAP: Duration = Duration::from_millis(20);
/// Messages sent or received before the other direction has its turn.
const MESSAGES_A_TURN: u32 = 256;
/// From this length on buffers are lent rather than copied.
const LEND_FROM: usize = 16 << 10;
