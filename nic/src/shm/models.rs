//! Every interleaving of the ring and the doorbell, under loom's model of memory.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p sidelane-nic --lib shm::models`
#![allow(unsafe_code)] // loom's cells hand out pointers.

use loom::cell::UnsafeCell;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use super::doorbell;
use super::draft::WORD;
use super::ring::{Consumer, Control, HEADER_BYTES, LINE_BYTES, Memory, Producer};
use super::sync::{AtomicU32, Ordering};
use super::want::Want;

/// A ring whose payload is one word a line, so that loom sees who touches which line.
struct Model {
    headers: Vec<AtomicU32>,
    payload: Vec<UnsafeCell<u32>>,
    control: Control,
}

#[derive(Clone)]
struct Shared(Arc<Model>);

impl Memory for Shared {
    fn lines(&self) -> u32 {
        self.0.headers.len() as u32
    }

    fn header(&self, line: u32) -> &AtomicU32 {
        &self.0.headers[line as usize]
    }

    fn write(&self, line: u32, words: &[[u8; WORD]]) {
        // A header's word before each line's payload, but for the first line's.
        for (at, words) in [&[[0; WORD]], words].concat().chunks(LINE_BYTES / WORD).enumerate().rev() {
            self.write_line(line + at as u32, u32::from(words[1][0]), at > 0);
        }
    }

    fn control(&self) -> &Control {
        &self.0.control
    }
}

impl Shared {
    /// Lines behind a frame's first get a payload that looks like headers.
    fn write_line(&self, line: u32, value: u32, is_behind: bool) {
        // SAFETY: loom's cell checks that nobody else touches it now; that is what the model is for.
        self.0.payload[line as usize].with_mut(|word| unsafe { *word = value });
        if is_behind {
            self.header(line).store(57, Ordering::Relaxed);
        }
    }
}

fn ring(lines: u32) -> (Producer<Shared>, Consumer<Shared>) {
    let model = Model {
        headers: (0..lines).map(|_| AtomicU32::new(0)).collect(),
        payload: (0..lines).map(|_| UnsafeCell::new(0)).collect(),
        control: Control::new(),
    };
    let shared = Shared(Arc::new(model));
    (Producer::new(shared.clone()), Consumer::new(shared, 1 << 10))
}

/// Sends a frame over `lines` lines, few enough for a draft, if there is room.
fn send(producer: &mut Producer<Shared>, value: u8, lines: u32) -> bool {
    let len = lines as usize * LINE_BYTES - HEADER_BYTES;
    let Some(room) = producer.reserve(len) else { return false };
    if room.is_drafted() {
        producer.draft_mut().payload_mut(len).fill(value);
    } else {
        producer.memory().write_line(room.line(), value.into(), false);
    }
    producer.publish(room);
    true
}

/// Receives a frame if there is one: its value, and whether the producer waits for room.
fn receive(consumer: &mut Consumer<Shared>) -> Option<(u32, bool)> {
    let frame = consumer.peek()?;
    let lines = (frame.len() as u32 + 8) / 64;
    let mut value = 0;
    for line in frame.line()..frame.line() + lines {
        // SAFETY: as in `send`.
        value = consumer.memory().0.payload[line as usize].with(|word| unsafe { *word });
    }
    Some((value, consumer.release(frame)))
}

/// Runs `model` in every interleaving of at most three preemptions. Most bugs of this kind show with two; without a bound the
/// larger models take hours.
fn explore(model: impl Fn() + Sync + Send + 'static) {
    explore_with(3, model);
}

fn explore_with(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// A futex: the comparison and the enqueueing are one step, as in the kernel.
#[derive(Default)]
struct Futex {
    queue: Mutex<()>,
    woken: Condvar,
}

impl Futex {
    fn wait(&self, bell: &AtomicU32) -> Result<(), ()> {
        let queue = self.queue.lock().unwrap();
        if bell.load(Ordering::Relaxed) == doorbell::ASLEEP {
            drop(self.woken.wait(queue).unwrap());
        }
        Ok(())
    }

    fn wake(&self) {
        drop(self.queue.lock().unwrap());
        self.woken.notify_one();
    }
}

#[test]
fn frames_cross_a_small_ring_in_order_and_whole() {
    explore(|| {
        let (mut producer, mut consumer) = ring(4);
        // The second fills the ring with what looks like headers; the third wraps over it; the fourth ends where no header is zeroed yet.
        let sizes = [1, 2, 2, 1];
        let sender = thread::spawn(move || {
            for (value, lines) in (1..).zip(sizes) {
                while !send(&mut producer, value, lines) {
                    thread::yield_now();
                }
            }
        });
        for value in 1..=sizes.len() as u32 {
            let got = loop {
                match receive(&mut consumer) {
                    Some((got, _)) => break got,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(got, value);
            assert!(!consumer.is_broken());
        }
        assert!(consumer.peek().is_none());
        sender.join().unwrap();
    });
}

/// A cell is written where the frame before it was read, by the other side; or by the same, when it was given back.
#[test]
fn a_cell_that_goes_to_and_fro_is_touched_by_one_side_at_a_time() {
    explore(|| {
        let ((mut ask, mut asked), (mut answer, mut answered)) = (ring(4), ring(4));
        let cell = Arc::new(UnsafeCell::new(0));
        let others = cell.clone();
        let receive = |consumer: &mut Consumer<Shared>, cell: &UnsafeCell<u32>| loop {
            if let Some(frame) = consumer.peek() {
                assert_eq!(frame.place().cell(), Some(1));
                // SAFETY: as in `send`.
                let value = (frame.len() > 0).then(|| cell.with(|word| unsafe { *word }));
                consumer.release(frame);
                break value;
            }
            thread::yield_now();
        };
        let send = |producer: &mut Producer<Shared>, cell: &UnsafeCell<u32>, value| {
            let room = producer.reserve_in(1, 1000).unwrap();
            // SAFETY: as in `send`.
            cell.with_mut(|word| unsafe { *word = value });
            producer.publish(room);
        };
        let answerer = thread::spawn(move || {
            let value = receive(&mut asked, &others).unwrap();
            send(&mut answer, &others, value + 1);
            assert_eq!(receive(&mut asked, &others), Some(3));
            let room = answer.reserve_in(1, 0).unwrap();
            answer.publish(room);
        });
        send(&mut ask, &cell, 1);
        assert_eq!(receive(&mut answered, &cell), Some(2));
        send(&mut ask, &cell, 3);
        assert_eq!(receive(&mut answered, &cell), None);
        // SAFETY: as in `send`.
        cell.with_mut(|word| unsafe { *word = 4 });
        answerer.join().unwrap();
    });
}

#[test]
fn a_sleeper_misses_no_frame() {
    explore(|| {
        let (mut producer, mut consumer) = ring(4);
        let bell = Arc::new((AtomicU32::new(0), Futex::default()));
        let sleeper = bell.clone();
        let receiver = thread::spawn(move || {
            let mut received = 0;
            while received < 2 {
                match receive(&mut consumer) {
                    Some(_) => received += 1,
                    // With a wake-up missed nobody runs any more, which loom reports.
                    None => doorbell::sleep(&sleeper.0, || consumer.is_ready(), |bell| sleeper.1.wait(bell)).unwrap(),
                }
            }
        });
        for value in 1..=2 {
            assert!(send(&mut producer, value, 1));
            doorbell::published();
            doorbell::ring(&bell.0, || bell.1.wake());
        }
        receiver.join().unwrap();
    });
}

#[test]
fn of_two_senders_at_once_neither_is_slept_through() {
    explore(|| {
        let bell = Arc::new((AtomicU32::new(0), Futex::default()));
        let (producers, mut consumers): (Vec<_>, Vec<_>) = [ring(2), ring(2)].into_iter().unzip();
        for mut producer in producers {
            let bell = bell.clone();
            thread::spawn(move || {
                assert!(send(&mut producer, 1, 1));
                doorbell::published();
                doorbell::ring(&bell.0, || bell.1.wake());
            });
        }
        let mut received = 0;
        while received < 2 {
            let before = received;
            received += consumers.iter_mut().filter_map(|consumer| receive(consumer)).count();
            if received == before {
                let ready = || consumers.iter().any(|consumer| consumer.is_ready());
                doorbell::sleep(&bell.0, ready, |word| bell.1.wait(word)).unwrap();
            }
        }
    });
}

/// Both sleep whenever they have nothing to do. A flag of one frame must not be taken for that of a later one, which shows with three
/// frames and four preemptions.
#[test]
fn a_starved_producer_that_sleeps_is_woken_when_there_is_room() {
    explore_with(4, || {
        let (mut producer, mut consumer) = ring(2);
        let bells = Arc::new([(); 2].map(|()| (AtomicU32::new(0), Futex::default())));
        let shared = bells.clone();
        let ring = |(bell, futex): &(AtomicU32, Futex)| {
            doorbell::published();
            doorbell::ring(bell, || futex.wake());
        };
        let receiver = thread::spawn(move || {
            let [ours, theirs] = &*shared;
            let mut received = 0;
            while received < 3 {
                match receive(&mut consumer) {
                    Some((_, starved)) => {
                        received += 1;
                        if starved {
                            ring(theirs);
                        }
                    }
                    None => doorbell::sleep(&ours.0, || consumer.is_ready(), |bell| ours.1.wait(bell)).unwrap(),
                }
            }
        });
        let [theirs, ours] = &*bells;
        for value in 1..=3 {
            while !send(&mut producer, value, 1) {
                // As the driver does it: ask again between saying that it sleeps and sleeping.
                doorbell::sleep(&ours.0, || producer.may_have_room(), |bell| ours.1.wait(bell)).unwrap();
            }
            ring(theirs);
        }
        receiver.join().unwrap();
    });
}

/// What an engine and its application do: the engine sleeps by its driver, whose wake-up stays until a sleep takes it.
#[test]
fn a_sleeper_by_other_means_misses_no_order() {
    explore(|| {
        let (mut producer, mut consumer) = ring(4);
        let shared = Arc::new((AtomicU32::new(0), Mutex::new(false), Condvar::new()));
        let engines = shared.clone();
        let engine = thread::spawn(move || {
            let (bell, event, raised) = &*engines;
            let mut orders = 0;
            while orders < 2 {
                if receive(&mut consumer).is_some() {
                    orders += 1;
                    continue;
                }
                let wait = |_: &_| {
                    let mut event = event.lock().unwrap();
                    while !*event {
                        event = raised.wait(event).unwrap();
                    }
                    *event = false;
                    Ok::<_, ()>(())
                };
                doorbell::sleep(bell, || consumer.is_ready(), wait).unwrap();
            }
        });
        let (bell, event, raised) = &*shared;
        for value in 1..=2 {
            assert!(send(&mut producer, value, 1));
            doorbell::published();
            doorbell::ring(bell, || {
                *event.lock().unwrap() = true;
                raised.notify_one();
            });
        }
        engine.join().unwrap();
    });
}

#[test]
fn a_knock_is_not_slept_through_and_shows_what_came_before_it() {
    explore(|| {
        let shared = Arc::new((AtomicU32::new(0), Futex::default(), doorbell::Knock::new(), AtomicU32::new(0)));
        let knockers = shared.clone();
        let knocker = thread::spawn(move || {
            let (bell, futex, knock, errands) = &*knockers;
            for errand in 1..=2 {
                errands.store(errand, Ordering::Relaxed);
                knock.knock(bell, || futex.wake());
            }
        });
        let (bell, futex, knock, errands) = &*shared;
        while errands.load(Ordering::Relaxed) < 2 {
            doorbell::sleep(bell, || knock.is_knocked(), |bell| futex.wait(bell)).unwrap();
            knock.hear();
        }
        knocker.join().unwrap();
    });
}

/// What stays until a sleep takes it: an event descriptor, as drivers have it.
#[derive(Default)]
struct Raised(Mutex<bool>, Condvar);

impl Raised {
    fn wait(&self) -> Result<(), ()> {
        let mut raised = self.0.lock().unwrap();
        while !*raised {
            raised = self.1.wait(raised).unwrap();
        }
        *raised = false;
        Ok(())
    }

    fn wake(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_one();
    }
}

/// An engine whose orders come from several threads, by a queue that many push, and the word that it is to stop by yet another.
#[test]
fn an_engine_sleeps_through_no_order_of_many_threads_and_through_no_stop() {
    explore(|| {
        let bell = Arc::new((AtomicU32::new(0), Raised::default()));
        let (orders, stopping) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let ring = |bell: &(AtomicU32, Raised)| {
            doorbell::published();
            doorbell::ring(&bell.0, || bell.1.wake());
        };
        for word in [orders.clone(), stopping.clone()] {
            let bell = bell.clone();
            thread::spawn(move || {
                word.fetch_add(1, Ordering::Release);
                ring(&bell);
            });
        }
        orders.fetch_add(1, Ordering::Release);
        ring(&bell);
        let mut taken = 0;
        loop {
            let pushed = orders.load(Ordering::Acquire);
            if pushed > taken {
                taken = pushed;
                continue;
            }
            if taken == 2 && stopping.load(Ordering::Acquire) == 1 {
                break;
            }
            let ready =
                || orders.load(Ordering::Relaxed) > taken || stopping.load(Ordering::Relaxed) == 1 && taken == 2;
            // With a wake-up missed nobody runs any more, which loom reports.
            doorbell::sleep(&bell.0, ready, |_| bell.1.wait()).unwrap();
        }
    });
}

/// Two endpoints of one engine, asleep on a thread and a driver each. News for one of them get both up, and only news do.
#[test]
fn whoever_gets_up_gets_the_others_up() {
    explore(|| {
        type Bed = (AtomicU32, Raised);
        let bed = || (AtomicU32::new(0), Raised::default());
        let shared = Arc::new(([bed(), bed()], AtomicU32::new(0), AtomicU32::new(0)));
        let sleep = |shared: &([Bed; 2], AtomicU32, AtomicU32), own: usize| {
            let (beds, up, news) = shared;
            let is_up = || up.load(Ordering::Relaxed) == 1;
            // The news are the second one's.
            let ready = || is_up() || own == 1 && news.load(Ordering::Relaxed) == 1;
            // With a wake-up missed nobody runs any more, which loom reports.
            doorbell::sleep(&beds[own].0, ready, |_| beds[own].1.wait()).unwrap();
            if up.swap(1, Ordering::AcqRel) == 0 {
                for (bell, raised) in beds {
                    doorbell::published();
                    doorbell::ring(bell, || raised.wake());
                }
            }
        };
        let beds = shared.clone();
        let second = thread::spawn(move || sleep(&beds, 1));
        let senders = shared.clone();
        let sender = thread::spawn(move || {
            senders.2.store(1, Ordering::Release);
            doorbell::published();
            doorbell::ring(&senders.0[1].0, || senders.0[1].1.wake());
        });
        sleep(&shared, 0);
        second.join().unwrap();
        assert_eq!(shared.2.load(Ordering::Relaxed), 1, "got up for nothing");
        sender.join().unwrap();
    });
}

/// An application that finds no room for two peers in turn, and sleeps. The engine makes some for the first, and never for the
/// second: asking for that must not keep the application from hearing of this.
#[test]
fn whoever_asks_for_room_is_told_of_it() {
    explore(|| {
        let shared = Arc::new((AtomicU32::new(0), Futex::default(), Want::default(), AtomicU32::new(0)));
        let engines = shared.clone();
        let engine = thread::spawn(move || {
            let (bell, futex, want, taken) = &*engines;
            taken.store(1, Ordering::Relaxed);
            if want.made_room() {
                doorbell::published();
                doorbell::ring(bell, || futex.wake());
            }
        });
        let (bell, futex, want, taken) = &*shared;
        let mut was_full = false;
        loop {
            // As the port does it.
            let mut is_full = |has_room: &dyn Fn() -> bool| {
                let was_open = want.ask();
                let full = !has_room();
                let is_told = was_full && !was_open;
                if is_told || !full {
                    want.withdraw();
                }
                was_full |= full;
                full
            };
            let has_room = || taken.load(Ordering::Relaxed) == 1;
            if has_room() || !is_full(&has_room) {
                break;
            }
            is_full(&|| false);
            if was_full && !want.is_asked() {
                was_full = false;
                continue;
            }
            doorbell::sleep(bell, || !want.is_asked(), |bell| futex.wait(bell)).unwrap();
        }
        engine.join().unwrap();
    });
}
