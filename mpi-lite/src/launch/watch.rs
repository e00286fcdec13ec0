//! News of ranks that have ended too early, which come unasked.

use std::os::unix::net::UnixStream;

use super::arrived::{Arrived, Aside};
use super::line::Line;
use super::reply::Reply;

/// Where they come.
#[derive(Debug)]
pub struct Watch(Arrived);

impl Watch {
    pub(super) fn new(stream: UnixStream, aside: Aside) -> Self {
        Self(Arrived::new(stream, aside))
    }

    /// A rank that is gone, if there is news of one. Never waits.
    pub fn poll(&mut self) -> Option<usize> {
        loop {
            let line = self.0.poll()?;
            if let Ok(Some(Reply::RankGone { rank })) = Line::parse(&line).and_then(|line| Reply::parse(&line)) {
                return Some(rank);
            }
        }
    }
}
