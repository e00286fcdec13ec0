//! Peers that are there, are not there, go, or mean harm.

use super::erased::{Driver, Stage};
use super::traffic::{check, expect, link, open, pause, payload, receive, receive_rest, send, try_commit};
use super::{Stop, Verdict};
use crate::rng::Rng;
use crate::time::Duration;
use crate::{Caps, LinkAddr, LinkError};

pub(super) fn caps_make_sense(stage: &mut dyn Stage<dyn Driver>) -> Verdict {
    let [a, b] = open(stage)?;
    for caps in [a.caps(), b.caps()] {
        check(Caps::MTU_MIN <= caps.mtu_safe && caps.mtu_safe <= caps.mtu && caps.mtu <= 65_535, || {
            format!("{caps:?}")
        })?;
        check(caps.rx_frames > 0 && caps.burst > 0 && caps.rto_floor > Duration::ZERO, || format!("{caps:?}"))?;
    }
    check(a.caps().addr != b.caps().addr, || format!("two endpoints are both {}", a.caps().addr))
}

pub(super) fn same_address_same_link(stage: &mut dyn Stage<dyn Driver>) -> Verdict {
    let [mut a, b, c] = open(stage)?;
    let (first, other) = (link(&mut a, b.caps().addr)?, link(&mut a, c.caps().addr)?);
    let again = link(&mut a, b.caps().addr)?;
    check(first == again && first != other, || format!("links {first:?}, {other:?}, and again {again:?}"))
}

pub(super) fn foreign_address_is_refused(stage: &mut dyn Stage<dyn Driver>) -> Verdict {
    let [mut a] = open(stage)?;
    let kinds = [
        LinkAddr::Ether { mac: [2, 0, 0, 0, 0, 1], endpoint: 1 },
        LinkAddr::Udp(([127, 0, 0, 1], 9).into()),
        LinkAddr::Shm { endpoint: 1 },
        LinkAddr::Mem { node: 1 },
    ];
    let own = std::mem::discriminant(&a.caps().addr);
    for addr in kinds.into_iter().filter(|addr| std::mem::discriminant(addr) != own) {
        let refused = matches!(a.link(addr), Err(LinkError::WrongKind(_)));
        check(refused, || format!("{addr} was not refused as of the wrong kind"))?;
    }
    Ok(())
}

pub(super) fn absent_peer_is_no_error(stage: &mut dyn Stage<dyn Driver>) -> Verdict {
    let Some(absent) = stage.absent() else {
        return Err(Stop::Skipped("the setup names no absent address".into()));
    };
    let [mut a, mut b] = open(stage)?;
    let (nowhere, to_b) = (link(&mut a, absent)?, link(&mut a, b.caps().addr)?);
    for number in 0..50 {
        // Lost, or no slot: both are allowed.
        try_commit(&mut a, nowhere, &payload(number, 20));
        send(&mut a, to_b, &payload(number, 20))?;
        expect(&receive(&mut b, 1)?[0], &payload(number, 20), a.caps().addr)?;
    }
    Ok(())
}

pub(super) fn gone_peer_is_no_error(stage: &mut dyn Stage<dyn Driver>) -> Verdict {
    let [mut a, mut b, mut c] = open(stage)?;
    let (to_b, to_c) = (link(&mut a, b.caps().addr)?, link(&mut a, c.caps().addr)?);
    let back = link(&mut b, a.caps().addr)?;
    send(&mut a, to_b, b"up")?;
    receive(&mut b, 1)?;
    send(&mut b, back, b"last words")?;
    let gone = b.caps().addr;
    drop(b);
    expect(&receive(&mut a, 1)?[0], b"last words", gone)?;
    let mut strays = 0;
    for number in 0..500 {
        try_commit(&mut a, to_b, &payload(number, 100));
        a.flush();
        a.rx_burst(8, &mut |_, _| {});
        // Where both were behind one device, it is the living one that keeps its ring from filling.
        strays += c.rx_burst(8, &mut |_, _| {});
        // Either answer is allowed; asking must be.
        a.is_gone(to_b);
        if number % 50 == 0 {
            pause(&mut a)?;
        }
    }
    let stray = receive_rest(&mut a)?.len();
    check(stray == 0, || format!("{stray} frames came from a peer that is gone"))?;
    check(strays == 0, || format!("{strays} frames for a peer that is gone came to another"))?;
    send(&mut a, to_c, b"still here")?;
    expect(&receive(&mut c, 1)?[0], b"still here", a.caps().addr)?;
    check(!a.is_gone(to_c), || "a peer that lives counts as gone".into())
}

pub(super) fn link_can_be_made_again(stage: &mut dyn Stage<dyn Driver>) -> Verdict {
    let [mut a, mut b] = open(stage)?;
    for round in 0..5 {
        let to_b = link(&mut a, b.caps().addr)?;
        send(&mut a, to_b, &payload(round, 30))?;
        expect(&receive(&mut b, 1)?[0], &payload(round, 30), a.caps().addr)?;
        a.unlink(to_b);
    }
    Ok(())
}

pub(super) fn garbage_harms_nobody(stage: &mut dyn Stage<dyn Driver>) -> Verdict {
    let [mut a, mut b] = open(stage)?;
    let to_b = link(&mut a, b.caps().addr)?;
    let mut rng = Rng::new(0xbad);
    for number in 0..200 {
        let mut garbage = vec![0; rng.below(200) as usize];
        rng.fill(&mut garbage);
        if !stage.throw(b.caps().addr, &garbage) {
            return Err(Stop::Skipped("the setup knows no way past the driver".into()));
        }
        // Garbage may look like a frame, where the driver's encapsulation has nothing to tell it by; it must not
        // stop or alter the frames beside it.
        send(&mut a, to_b, &payload(number, 50))?;
        loop {
            let arrival = receive(&mut b, 1)?.remove(0);
            if arrival.1 == a.caps().addr {
                expect(&arrival, &payload(number, 50), a.caps().addr)?;
                break;
            }
        }
    }
    Ok(())
}
