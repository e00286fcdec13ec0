use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use proptest::prelude::*;

use super::memory::Memory;
use super::view::{self, Layout};
use super::{Field, Kind, Page, View, ViewError, find, running};
use crate::memfd;

const FIELDS: [Field; 3] = [
    Field { name: "frames", counts: true },
    Field { name: "peers", counts: false },
    Field { name: "rejected.epoch", counts: true },
];

fn own_view(fields: &[Field], facts: &[(&str, &str)]) -> (Page, Layout) {
    let page = Page::new(fields, facts).unwrap();
    let layout = Layout::read(page.memory().words()).unwrap();
    (page, layout)
}

#[test]
fn a_page_is_found_among_the_descriptors_of_its_process() {
    let unique = format!("test {:?}", thread::current().id());
    let mut page = Page::new(&FIELDS, &[("driver", "shm"), ("address", &unique)]).unwrap();
    page.publish(&[7, 2, u64::MAX]);
    let us = running().unwrap().into_iter().find(|found| found.pid == std::process::id()).expect("we run");
    let find = |found: super::Running| found.pages.into_iter().find(|view| view.fact("address") == Some(&unique));
    let view = find(us).expect("the page is there");
    assert_eq!(view.fact("driver"), Some("shm"));
    let values = view.read().unwrap();
    let shown: Vec<_> = values.iter().map(|value| (value.name.as_str(), value.kind, value.value)).collect();
    let expected =
        [("frames", Kind::Counter, 7), ("peers", Kind::Gauge, 2), ("rejected.epoch", Kind::Counter, u64::MAX)];
    assert_eq!(shown, expected);
    drop(page);
    let us = running().unwrap().into_iter().find(|found| found.pid == std::process::id());
    assert!(us.and_then(find).is_none(), "a page goes with its endpoint");
}

/// Both ends of the mapping are in this process, so ThreadSanitizer sees them too.
#[test]
fn a_reader_beside_a_writer_sees_whole_turns_only() {
    const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let (mut page, layout) = own_view(&NAMES.map(|name| Field { name, counts: true }), &[]);
    let reading = Arc::new(());
    let lasts = Arc::downgrade(&reading);
    let address = std::ptr::from_ref(page.memory());
    // A second mapping would be another address to the sanitizer; a test may lend the first one.
    let words: &[AtomicU64] = lend(address);
    thread::scope(|scope| {
        // Ends when the reader fails, too.
        let _reading = reading;
        scope.spawn(|| {
            let mut turn = 0u64;
            while lasts.strong_count() > 0 {
                turn += 1;
                page.publish(&[1, 2, 3, 4, 5, 6, 7, 8].map(|place| place * turn));
            }
        });
        let mut last = 0;
        for _ in 0..20_000 {
            let Some(values) = layout.values(words) else { continue };
            let first = values[0].value;
            assert!(first >= last, "time runs backwards");
            last = first;
            for (place, value) in (1..).zip(&values) {
                assert_eq!(value.value, place * first, "half of a turn");
            }
        }
    });
}

#[allow(unsafe_code)] // Lends a mapping beyond the borrow of its writer.
fn lend<'a>(memory: *const super::memory::Memory) -> &'a [AtomicU64] {
    // SAFETY: the page outlives the test's threads, and all access is atomic.
    unsafe { (*memory).words() }
}

#[test]
fn what_is_no_page_is_refused() {
    assert!(matches!(View::new(File::open("/dev/null").unwrap()), Err(ViewError::System(_))));
    let words = |change: &dyn Fn(&mut Vec<u64>)| {
        let page = Page::new(&FIELDS, &[("driver", "shm")]).unwrap();
        let mut words: Vec<u64> = page.memory().words().iter().map(|word| word.load(Ordering::Relaxed)).collect();
        change(&mut words);
        Layout::read(&words.into_iter().map(AtomicU64::new).collect::<Vec<_>>()).map(|_| ())
    };
    assert!(words(&|_| {}).is_ok());
    assert!(matches!(words(&|words| words.truncate(4)), Err(ViewError::NoPage)));
    assert!(matches!(words(&|words| words[view::MAGIC_AT] += 1), Err(ViewError::NoPage)));
    assert!(matches!(words(&|words| words[view::VERSION_AT] += 1), Err(ViewError::Version(2))));
    assert!(matches!(words(&|words| words[view::COUNT_AT] += 1), Err(ViewError::NoPage)));
    let no_values = words(&|words| {
        words[view::COUNT_AT] = 0;
        words.drain(view::VALUES_AT..view::VALUES_AT + FIELDS.len());
    });
    assert!(matches!(no_values, Err(ViewError::NoPage)), "more names than values");
    let no_name = words(&|words| {
        words[view::COUNT_AT] += 1;
        words.insert(view::VALUES_AT, 0);
    });
    assert!(matches!(no_name, Err(ViewError::NoPage)), "more values than names");
    let beyond = words(&|words| words[view::COUNT_AT] = (words.len() - view::VALUES_AT) as u64 + 1);
    assert!(matches!(beyond, Err(ViewError::NoPage)), "values beyond the end");
    let text = |len| {
        words(&|words| {
            words[view::TEXT_LEN_AT] = len;
            words.truncate(view::VALUES_AT + FIELDS.len() + 8);
        })
    };
    assert!(text(64).is_ok() && matches!(text(65), Err(ViewError::NoPage)), "text beyond the end");
    assert!(matches!(words(&|words| words[view::PID_AT] += 1 << 32), Err(ViewError::NoPage)), "no process id");
    // The text is "counter frames\ngauge peers\ncounter rejected.epoch\nfact driver shm\n": a terminal's escape sequence in a
    // name, and in a fact.
    for (at, before, escape) in [(1, b"frames\ng", b"fr\x1b[2J\ng"), (7, b"river sh", b"river \x1bh")] {
        let changed = words(&|words| {
            let word = &mut words[view::VALUES_AT + FIELDS.len() + at];
            assert_eq!(*word, u64::from_ne_bytes(*before));
            *word = u64::from_ne_bytes(*escape);
        });
        assert!(matches!(changed, Err(ViewError::NoPage)));
    }
}

/// A descriptor of our own process's page of this address.
fn found(address: &str) -> File {
    let all = std::fs::read_dir("/proc/self/fd").unwrap().flatten().filter_map(|entry| find::open(&entry.path()).ok());
    let is_it =
        |file: &File| View::new(file.try_clone().unwrap()).is_ok_and(|view| view.fact("address") == Some(address));
    all.into_iter().find(is_it).expect("the page is there")
}

#[test]
fn a_page_that_a_child_has_from_its_parent_is_the_parent_s() {
    let unique = format!("child of {:?}", thread::current().id());
    let _page = Page::new(&[], &[("address", &unique)]).unwrap();
    let mut child = Command::new("sleep").arg("100").stdin(found(&unique)).spawn().unwrap();
    let pages_of = running().map(|all| all.into_iter().find(|found| found.pid == child.id()));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(pages_of.unwrap().is_none());
}

#[test]
fn nobody_else_can_write_a_page() {
    let unique = format!("kept by {:?}", thread::current().id());
    let _page = Page::new(&[], &[("address", &unique)]).unwrap();
    let page = found(&unique);
    let writer = File::options().write(true).open(format!("/proc/self/fd/{}", page.as_raw_fd())).unwrap();
    assert_eq!(writer.write_at(&[0; 8], 0).unwrap_err().kind(), ErrorKind::PermissionDenied);
}

#[test]
fn of_memory_longer_than_any_page_no_more_is_mapped() {
    let file = memfd::create(c"long", 4 << 20).unwrap();
    assert!(Memory::of(file.try_clone().unwrap()).is_err(), "its size may change");
    memfd::seal(&file, 0).unwrap();
    assert_eq!(Memory::of(file).unwrap().words().len(), (1 << 20) / 8);
}

#[test]
fn control_characters_in_a_fact_are_spaces() {
    let (_page, layout) = own_view(&FIELDS, &[("address", "up\ndown\x1b[2J")]);
    assert_eq!(layout.fact("address"), Some("up down [2J"));
}

#[test]
fn of_a_writer_that_is_stopped_halfway_nothing_is_read() {
    let (mut page, layout) = own_view(&FIELDS, &[]);
    page.publish(&[1, 2, 3]);
    let words = page.memory().words();
    assert!(layout.values(words).is_some());
    words[view::TURN_AT].fetch_add(1, Ordering::Relaxed);
    assert_eq!(layout.values(words), None);
}

#[test]
fn a_name_is_short_and_of_few_letters() {
    for name in ["a", "rejected.epoch", "x_1-y", &"n".repeat(64)] {
        assert!(view::is_name(name), "{name}");
    }
    for name in ["", "two words", "Upper", "\u{e9}", "esc\u{1b}", &"n".repeat(65)] {
        assert!(!view::is_name(name), "{name:?}");
    }
}

#[test]
fn kinds_of_a_newer_writer_keep_their_values() {
    let page = Page::new(&FIELDS, &[]).unwrap();
    let words: Vec<_> = page.memory().words().iter().map(|word| AtomicU64::new(word.load(Ordering::Relaxed))).collect();
    words[view::VALUES_AT + 3].store(u64::from_ne_bytes(*b"kounter "), Ordering::Relaxed);
    words[view::VALUES_AT + 1].store(5, Ordering::Relaxed);
    let values = Layout::read(&words).unwrap().values(&words).unwrap();
    assert_eq!((values[0].kind, values[1].kind, values[1].value), (Kind::Other, Kind::Gauge, 5));
}

proptest! {
    /// Anything may stand in a page that another process shows.
    #[test]
    fn no_content_makes_a_reader_panic(mut words in prop::collection::vec(any::<u64>(), 0..64), sound in any::<bool>()) {
        for (at, value) in [(view::MAGIC_AT, view::MAGIC), (view::VERSION_AT, view::VERSION), (view::PID_AT, 1)] {
            if sound && at < words.len() {
                words[at] = value;
            }
        }
        if sound && words.len() > view::VALUES_AT {
            words[view::COUNT_AT] %= 64;
            words[view::TEXT_LEN_AT] %= 512;
        }
        let words: Vec<_> = words.into_iter().map(AtomicU64::new).collect();
        if let Ok(layout) = Layout::read(&words) {
            let _ = layout.values(&words);
        }
    }

    #[test]
    fn values_read_back_as_they_were_published(values in prop::collection::vec(any::<u64>(), 3)) {
        let (mut page, layout) = own_view(&FIELDS, &[("address", "02:00:00:00:00:01/3")]);
        page.publish(&values);
        let seen: Vec<u64> = layout.values(page.memory().words()).unwrap().into_iter().map(|value| value.value).collect();
        prop_assert_eq!(seen, values);
    }
}
