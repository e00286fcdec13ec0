//! Ranks that sleep while others are awaited.

use super::*;

#[test]
fn who_waits_long_sleeps_and_is_woken() {
    run(3, |me, host| {
        for turn in 0..20 {
            // Longer than anybody spins.
            if me == turn % 3 {
                let begin = std::time::Instant::now();
                while begin.elapsed() < std::time::Duration::from_millis(3) {
                    std::hint::spin_loop();
                }
            }
            at_once(host.barrier(&mut Thread)).unwrap();
        }
    });
}

/// A rank that does not wait in calls, and sleeps between turns as soon as it may. How often it lies down and has not risen yet.
struct Sleeper(i32);

impl Peers for Sleeper {
    type Error = NonZeroU32;

    const WAITS: bool = false;

    fn turn(&mut self, _: impl Fn(usize) -> bool) -> Result<bool, NonZeroU32> {
        Ok(false)
    }

    fn sleep(&mut self) {
        unreachable!("it does not wait");
    }

    fn may_sleep(&self) -> bool {
        true
    }

    fn doze(&mut self) {
        self.0 += 1;
        assert_eq!(self.0, 1);
    }

    fn slept(&mut self, _: bool) {
        self.0 -= 1;
    }

    fn wake(&mut self, member: usize) {
        Thread.wake(member);
    }

    fn read(&mut self, member: usize, address: u64, into: &mut [u8]) -> Result<(), NonZeroU32> {
        Thread.read(member, address, into)
    }

    fn may_write(&mut self, _: usize) -> Result<(), NonZeroU32> {
        Ok(())
    }

    fn write(&mut self, member: usize, address: u64, bytes: &[u8]) -> Result<(), NonZeroU32> {
        Thread.write(member, address, bytes)
    }

    fn code(error: &NonZeroU32) -> NonZeroU32 {
        *error
    }

    fn error(code: NonZeroU32) -> NonZeroU32 {
        code
    }
}

fn sleeping<F: Future>(call: F) -> F::Output {
    let mut call = pin!(call);
    loop {
        if let Poll::Ready(done) = call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return done;
        }
        std::thread::park();
    }
}

#[test]
fn who_sleeps_while_a_call_is_pending_is_woken() {
    for case @ (size, _) in CASES {
        run_on(case, |me, host| {
            let mut sleeper = Sleeper(0);
            for turn in 0..50 {
                let root = turn % size;
                let len = LENS[turn % LENS.len()];
                let mut data = if me == root { input(turn, len) } else { vec![0; len] };
                sleeping(host.broadcast(root, &mut data, &mut sleeper)).unwrap();
                assert!(data == input(turn, len), "broadcast of rank {me}, turn {turn}");
                let mut all = vec![0; len];
                sleeping(host.allreduce(Some(&input(me, len)), &mut all, 2, compose, &mut sleeper)).unwrap();
                assert!(all == combined(size, len), "allreduce of rank {me}, turn {turn}");
                sleeping(host.barrier(&mut sleeper)).unwrap();
                assert_eq!(sleeper.0, 0, "others would go on waking rank {me}, turn {turn}");
            }
        });
    }
}
