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

/// Bytes of the word beside the payload, which begins what is at least as long. The first byte of shorter messages says the same.
const WORD: usize = 8;

/// Index of both handlers.
const PLAY: u8 = 0;

impl Seen {
    #[inline]
    fn enter(&mut self, args: &Args<'_>, payload: &[u8]) {
        if self.stamping == Some(Border::Received) {
            self.entered_at = ticks();
        }
        self.messages += 1;
        self.kind = args.get(0).or_else(|| payload.first().map(|kind| u64::from(*kind))).unwrap_or(MORE);
    }
}

/// The words of a message of this kind and size.
#[inline]
fn words(kind: &u64, is_short: bool) -> &[u64] {
    if is_short { &[] } else { std::slice::from_ref(kind) }
}

fn handlers() -> Handlers<Seen> {
    Handlers::new()
        .request(PLAY, |seen: &mut Seen, replier: Replier<'_>, args, payload: &[u8]| {
            seen.enter(&args, payload);
            if seen.stamping == Some(Border::Send) {
                seen.replied_at = ticks();
            }
            // A requester that is gone needs no reply, and so does the last message.
            if seen.kind != LAST {
                let _ = replier.reply(PLAY, words(&seen.kind, args.get(0).is_none()), payload);
            }
        })
        .reply(PLAY, |seen: &mut Seen, _, args, payload: &[u8]| seen.enter(&args, payload))
}

/// Plays `pattern`, a ping-pong, with a word and a payload that make up its size, or a payload of it, over Active Messages on a stamped driver.
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
    let is_short = pattern.size < WORD;
    let mut payload = vec![0x5a; if is_short { pattern.size } else { pattern.size - WORD }];
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
        if is_short {
            payload[0] = kind as u8;
        }
        arm(am, seen, watch, Role::Initiator);
        let sent_at = ticks();
        am.request(peer, PLAY, words(&kind, is_short), &payload, room).map_err(Broken::driver)?;
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

    /// Bytes of every message that came, and whether the last has.
    type Weighed = (Vec<usize>, bool);

    fn weigh(weighed: &mut Weighed, args: &Args<'_>, payload: &[u8]) {
        weighed.0.push(args.len() * WORD + payload.len());
        weighed.1 = args.get(0).or_else(|| payload.first().map(|kind| u64::from(*kind))) == Some(LAST);
    }

    fn scales() -> Handlers<Weighed> {
        Handlers::new()
            .request(PLAY, |weighed: &mut Weighed, replier: Replier<'_>, args, payload| {
                weigh(weighed, &args, payload);
                let _ = replier.reply(PLAY, &args.get(0).into_iter().collect::<Vec<_>>(), payload);
            })
            .reply(PLAY, |weighed: &mut Weighed, _, args, payload| weigh(weighed, &args, payload))
    }

    #[test]
    fn messages_shorter_than_a_word_are_as_short_as_they_are_said_to_be() {
        let deadline_ns = now_ns() + 60_000_000_000;
        let turn = |am: &mut ActiveMessages<_, Weighed>, weighed: &mut Weighed| {
            assert!(now_ns() < deadline_ns, "no end: {weighed:?}");
            am.poll(weighed);
            crate::idle::relax();
        };
        for size in [1, 7, 8, 9] {
            let domain = format!("breakdown-am-short-test-{}-{size}", std::process::id());
            let (warm_ns, measure_ns, limit_ns) = (1, 1, 60_000_000_000);
            let pattern = Pattern { kind: Kind::PingPong, size, depth: None, warm_ns, measure_ns, limit_ns };
            let open = |own| sidelane_nic::shm::ShmNic::open(&domain, Some(own)).unwrap();
            let at = |endpoint| LinkAddr::Shm { endpoint };
            let scale = |own, other, role| {
                let mut weighed = Weighed::default();
                let (nic, to) = (Stamped::new(open(own)), (role, at(other)));
                let (mut am, peer) = establish(nic, scales(), &mut weighed, to, deadline_ns).unwrap();
                let kinds = if role == Role::Initiator { &[MORE, MORE, LAST][..] } else { &[] };
                for (answers, kind) in kinds.iter().enumerate() {
                    let (words, rest) = (words(kind, size < WORD), size - words(kind, size < WORD).len() * WORD);
                    am.request(peer, PLAY, words, &vec![*kind as u8; rest], ReplyRoom::medium(1, rest)).unwrap();
                    am.flush();
                    while *kind != LAST && weighed.0.len() == answers {
                        turn(&mut am, &mut weighed);
                    }
                }
                while role == Role::Responder && !weighed.1 {
                    turn(&mut am, &mut weighed);
                }
                close(&mut am, &mut weighed, peer, deadline_ns);
                weighed.0
            };
            for (own, role) in [(1, Role::Initiator), (3, Role::Responder)] {
                let weighed = std::thread::scope(|scope| {
                    let other = if role == Role::Initiator { Role::Responder } else { Role::Initiator };
                    let player = scope.spawn(|| play(open(own), at(own + 1), role, &pattern).unwrap());
                    let weighed = scale(own + 1, own, other);
                    player.join().unwrap();
                    weighed
                });
                assert!(
                    !weighed.is_empty() && weighed.iter().all(|bytes| *bytes == size),
                    "{role}, {size}: {weighed:?}"
                );
            }
        }
    }
}
