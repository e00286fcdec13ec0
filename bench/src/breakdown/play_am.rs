//! One side of a ping-pong of Active Messages: the responder replies in its handler.

use sidelane_nic::clock::ticks;
use sidelane_nic::stamps::{Border, Stamped, buffer};
use sidelane_nic::{LinkAddr, Nic};
use sidelane_proto::PeerId;
use sidelane_proto::am::{ActiveMessages, Args, Handlers, Replier, ReplyRoom};

use super::play::{EVERY, LAST, MORE, SAMPLES_MAX, TURNS_PER_CLOCK, WARM, collect, kind_of};
use super::{Messages, Samples, watched};
use crate::clock::now_ns;
use crate::pattern::{Outcome, Pattern, Role};
use crate::transport::{Broken, close, establish};

type Am<N> = ActiveMessages<Stamped<N>, Seen>;

/// What the handlers saw.
#[derive(Default)]
struct Seen {
    /// Handlers shall read the counter when they begin, or when they reply.
    stamping: Option<Border>,
    /// Messages that came, and the kind of the last.
    messages: u64,
    kind: u64,
    /// When the last handler began, and when it called for its reply.
    entered_at: u64,
    replied_at: u64,
}

/// Bytes of the word beside the payload.
const WORD: usize = 8;

/// Index of both handlers.
const PLAY: u8 = 0;

impl Seen {
    #[inline]
    fn enter(&mut self, args: &Args<'_>) {
        if self.stamping == Some(Border::Received) {
            self.entered_at = ticks();
        }
        self.messages += 1;
        self.kind = args.get(0).unwrap_or(MORE);
    }
}

fn handlers() -> Handlers<Seen> {
    Handlers::new()
        .request(PLAY, |seen: &mut Seen, replier: Replier<'_>, args, payload: &[u8]| {
            seen.enter(&args);
            if seen.stamping == Some(Border::Send) {
                seen.replied_at = ticks();
            }
            // A requester that is gone needs no reply, and so does the last message.
            if seen.kind != LAST {
                let _ = replier.reply(PLAY, &[seen.kind], payload);
            }
        })
        .reply(PLAY, |seen: &mut Seen, _, args, _| seen.enter(&args))
}

/// Plays `pattern`, a ping-pong, with a word and a payload that make up its size, over Active Messages on a stamped driver.
pub fn play<N: Nic>(nic: N, peer: LinkAddr, role: Role, pattern: &Pattern) -> Result<Outcome, Broken> {
    let deadline_ns = now_ns() + pattern.limit_ns;
    let mut seen = Seen::default();
    let (mut am, peer) = establish(Stamped::new(nic), handlers(), &mut seen, (role, peer), deadline_ns)?;
    // Found by both sides, so that neither waits for the other.
    let size_max = am.medium_max(peer, 1) + WORD;
    if pattern.size > size_max {
        return Err(Broken::TooLong { size_max });
    }
    let (messages, samples) = match role {
        Role::Initiator => initiate(&mut am, &mut seen, peer, pattern, deadline_ns)?,
        Role::Responder => respond(&mut am, &mut seen, deadline_ns)?,
    };
    close(&mut am, &mut seen, peer, deadline_ns);
    Ok(Outcome { messages, samples: Some(samples), ..Outcome::default() })
}

fn initiate<N: Nic>(
    am: &mut Am<N>,
    seen: &mut Seen,
    peer: PeerId,
    pattern: &Pattern,
    deadline_ns: u64,
) -> Result<(u64, Samples), Broken> {
    let payload = vec![0x5a; pattern.size.saturating_sub(WORD)];
    let room = ReplyRoom::medium(1, payload.len());
    let (mut write, read) = buffer(SAMPLES_MAX);
    let mut unstamped = Vec::with_capacity(SAMPLES_MAX);
    let warm_until = now_ns() + pattern.warm_ns;
    let (mut number, mut kind, mut counted) = (0u64, WARM, 0);
    loop {
        let watch = watched(number, Messages::Active);
        if watch.is_some() {
            kind = kind_of(pattern, warm_until, counted);
            counted += u64::from(kind == MORE);
        }
        arm(am, seen, watch, Role::Initiator);
        let sent_at = ticks();
        am.request(peer, PLAY, &[kind], &payload, room).map_err(Broken::driver)?;
        am.flush();
        if kind == LAST {
            return Ok((number, Samples { stamped: collect(read), unstamped }));
        }
        receive(am, seen, number + 1, deadline_ns)?;
        let received_at = ticks();
        if kind == WARM {
            am.endpoint_mut().nic_mut().take();
        } else if watch.is_some() {
            let mut stamps = am.endpoint_mut().nic_mut().take();
            stamps[Border::Send as usize] = sent_at;
            stamps[Border::Received as usize] = seen.entered_at;
            stamps[Border::Returned as usize] = received_at;
            write.push(number, &stamps);
        } else if number % EVERY == EVERY / 2 && unstamped.len() < SAMPLES_MAX {
            unstamped.push(received_at - sent_at);
        }
        number += 1;
    }
}

fn respond<N: Nic>(am: &mut Am<N>, seen: &mut Seen, deadline_ns: u64) -> Result<(u64, Samples), Broken> {
    let (mut write, read) = buffer(SAMPLES_MAX);
    let mut number = 0u64;
    loop {
        let watch = watched(number, Messages::Active);
        arm(am, seen, watch, Role::Responder);
        receive(am, seen, number + 1, deadline_ns)?;
        if seen.kind == LAST {
            return Ok((number, Samples { stamped: collect(read), unstamped: Vec::new() }));
        }
        if let Some((Role::Responder, _)) = watch {
            let mut stamps = am.endpoint_mut().nic_mut().take();
            stamps[Border::Send as usize] = seen.replied_at;
            stamps[Border::Received as usize] = seen.entered_at;
            // What the other side leaves out would only take the room of what it has.
            if seen.kind == MORE {
                write.push(number, &stamps);
            }
        }
        number += 1;
    }
}

/// Polls until so many messages have come in all.
#[inline]
fn receive<N: Nic>(am: &mut Am<N>, seen: &mut Seen, messages: u64, deadline_ns: u64) -> Result<(), Broken> {
    let mut turns = 0u64;
    am.poll(seen);
    while seen.messages < messages {
        crate::idle::relax();
        turns += 1;
        if turns.is_multiple_of(TURNS_PER_CLOCK) && now_ns() > deadline_ns {
            return Err(Broken::Deadline);
        }
        am.poll(seen);
    }
    Ok(())
}

/// Has this round trip's border stamped, if it is one of `own`'s.
fn arm<N: Nic>(am: &mut Am<N>, seen: &mut Seen, watch: Option<(Role, Border)>, own: Role) {
    let border = watch.filter(|(role, _)| *role == own).map(|(_, border)| border);
    (seen.stamping, seen.entered_at, seen.replied_at) = (border, 0, 0);
    if let Some(border) = border.filter(|border| !matches!(border, Border::Received | Border::Send)) {
        am.endpoint_mut().nic_mut().stamp_only(border);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::Kind;

    #[test]
    fn what_no_frame_carries_is_refused_by_both_sides_at_once() {
        let domain = format!("breakdown-am-long-test-{}", std::process::id());
        let (warm_ns, measure_ns, limit_ns) = (1, 1, 20_000_000_000);
        let pattern = Pattern { kind: Kind::PingPong, size: 1 << 20, depth: None, warm_ns, measure_ns, limit_ns };
        let end = |role: Role, own: u16, other: u16| {
            let nic = sidelane_nic::shm::ShmNic::open(&domain, Some(own)).unwrap();
            play(nic, LinkAddr::Shm { endpoint: other }, role, &pattern).unwrap_err()
        };
        let (a, b) = std::thread::scope(|scope| {
            let b = scope.spawn(|| end(Role::Responder, 2, 1));
            (end(Role::Initiator, 1, 2), b.join().unwrap())
        });
        assert!(matches!((&a, &b), (Broken::TooLong { .. }, Broken::TooLong { .. })), "{a}; {b}");
    }
}
