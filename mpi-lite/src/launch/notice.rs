//! What MPICH's launcher sends its ranks when one has ended and it goes on without that one (`mpiexec.hydra -disable-auto-cleanup`): SIGUSR1,
//! of which they would die as well.
#![allow(unsafe_code)] // sigaction(2).

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::arrived::Arrived;
use super::line::Line;
use super::reply::Reply;
use super::request::Request;

/// Which ranks it means: the launcher tells those of all hosts that have ended, to who asks.
#[derive(Debug)]
pub struct Notice {
    answers: Arrived,
    space: String,
    /// Shared with the rank's other questions, whose answers come behind it: an answer is yet to come.
    owed: Arc<AtomicBool>,
    /// It was not heard yet.
    asks: bool,
    /// Ranks that the launcher has named.
    known: Vec<usize>,
    /// How many of them were told.
    told: usize,
}

impl Notice {
    pub(super) fn new(answers: Arrived, space: &str, owed: Arc<AtomicBool>) -> Self {
        Self { answers, space: space.to_owned(), owed, asks: false, known: Vec::new(), told: 0 }
    }

    /// A rank that is gone, if there is news of one. Asks the launcher when the signal has come. One that was stopped does not answer
    /// before it goes on: until then there is no news, and nobody waits for it again.
    pub fn poll(&mut self) -> Option<usize> {
        if !self.asks && HAS_COME.swap(false, Ordering::Relaxed) {
            self.ask();
            self.answers.wait(ANSWER_WAIT);
        }
        if self.asks {
            self.hear();
        }
        let news = self.known.get(self.told).copied();
        self.told += usize::from(news.is_some());
        news
    }

    fn ask(&mut self) {
        let question = format!("{}\n", Request::Get { space: &self.space, key: DEAD });
        // Who cannot ask the launcher, which has gone, hears of it otherwise.
        self.asks = self.answers.stream().write_all(question.as_bytes()).is_ok();
        self.owed.store(self.asks, Ordering::Relaxed);
    }

    fn hear(&mut self) {
        let Some(answer) = self.answers.poll() else { return };
        self.owed.store(false, Ordering::Relaxed);
        self.asks = false;
        // Whose launcher does not know hears of it otherwise.
        let Ok(Some(Reply::GetResult(Ok(named)))) = Line::parse(&answer).and_then(|line| Reply::parse(&line)) else {
            return;
        };
        for rank in named.split(',').filter_map(|rank| rank.parse().ok()) {
            if !self.known.contains(&rank) {
                self.known.push(rank);
            }
        }
    }
}

/// A launcher answers within milliseconds, and who looks here may do so next in seconds only.
const ANSWER_WAIT: Duration = Duration::from_millis(100);

/// Ranks by number, with commas, in the order in which they ended (MPICH's pmiserv_cb.c).
const DEAD: &str = "PMI_dead_processes";

/// The signal has come, and nobody has asked since.
static HAS_COME: AtomicBool = AtomicBool::new(false);

/// From now on the signal is only noted, unless the program has made something of it, or will.
pub fn outlive() {
    // SAFETY: all zeroes is a valid sigaction, both are valid places, and what is called stores to an atomic.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        let is_known = libc::sigaction(libc::SIGUSR1, std::ptr::null(), &raw mut now) == 0;
        if !is_known || now.sa_sigaction != libc::SIG_DFL {
            return;
        }
        let mut ours: libc::sigaction = std::mem::zeroed();
        // Not ignored: that would go on in programs that this one becomes or starts.
        ours.sa_sigaction = note as extern "C" fn(i32) as libc::sighandler_t;
        ours.sa_flags = libc::SA_RESTART;
        libc::sigaction(libc::SIGUSR1, &raw const ours, std::ptr::null_mut());
    }
}

extern "C" fn note(_: i32) {
    HAS_COME.store(true, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::os::unix::net::UnixStream;
    use std::thread;

    use super::super::client::Client;
    use super::super::server::{Mapping, Server};
    use super::*;
    use crate::patience::{PATIENCE, watch};

    /// Reads a line, and gives it to the server if it is not what a rank asks at the signal.
    fn answer(lines: &mut impl BufRead, server: &mut Server, at: &mut UnixStream) -> String {
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        if !line.contains(DEAD) {
            server.handle_line(0, line.as_bytes());
            let replies: String = std::iter::from_fn(|| server.poll_reply()).map(|(_, reply)| reply).collect();
            at.write_all(replies.as_bytes()).unwrap();
        }
        line
    }

    #[test]
    fn a_launcher_that_does_not_answer_keeps_nobody_and_what_it_answers_later_is_nobody_elses() {
        watch("the signal of a launcher that does not answer", PATIENCE);
        let (theirs, mut ours) = UnixStream::pair().unwrap();
        let mut lines = BufReader::new(ours.try_clone().unwrap());
        let mut server = Server::new("job", &Mapping(vec![0; 9]));
        let client = thread::spawn(|| Client::start(theirs, 0, 9).unwrap());
        // Of a start.
        (0..3).for_each(|_| drop(answer(&mut lines, &mut server, &mut ours)));
        let mut client = client.join().unwrap();
        let mut notice = client.notice().unwrap();
        assert_eq!(notice.poll(), None);
        note(libc::SIGUSR1);
        assert_eq!((notice.poll(), notice.poll()), (None, None));
        assert!(answer(&mut lines, &mut server, &mut ours).contains(DEAD));
        ours.write_all(b"cmd=get_result rc=0 msg=success val").unwrap();
        assert_eq!(notice.poll(), None);
        ours.write_all(b"ue=2,5\n").unwrap();
        assert_eq!([(); 3].map(|()| notice.poll()), [Some(2), Some(5), None]);
        // Another question is asked before the answer has come.
        note(libc::SIGUSR1);
        assert_eq!(notice.poll(), None);
        let asks = thread::spawn(move || {
            let found = client.get("PMI_process_mapping").unwrap();
            (client, found)
        });
        assert!(answer(&mut lines, &mut server, &mut ours).contains(DEAD));
        ours.write_all(b"cmd=get_result rc=0 msg=success value=2,5,7\n").unwrap();
        answer(&mut lines, &mut server, &mut ours);
        let (client, found) = asks.join().unwrap();
        assert_eq!(found.as_deref(), Some("(vector,(0,1,9))"));
        assert_eq!([(); 2].map(|()| notice.poll()), [Some(7), None]);
        let ends = thread::spawn(|| client.finalize().unwrap());
        answer(&mut lines, &mut server, &mut ours);
        ends.join().unwrap();
    }
}
