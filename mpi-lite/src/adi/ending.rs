//! What ends before its time: everything that needs a process that is gone, a context, a request.

use std::ops::Range;

use super::engine::Engine;
use super::peer::{Item, Way};
use super::port::Port;
use super::record::Note;
use super::request::{Error, State, Status};
use super::unexpected::Found;

impl Engine {
    /// As [`Self::lose`], of which nothing told that comes behind the process's last messages: what has come of them is taken in first.
    #[cold]
    pub fn lose_behind_what_came(&mut self, ports: &mut [Port], process: u32) {
        (0..ports.len()).for_each(|at| self.turn_with_events(ports, at));
        self.lose(ports, process);
    }

    /// A process is gone: everything that needs it ends.
    pub fn lose(&mut self, ports: &mut [Port], process: u32) {
        let peer = &mut self.peers[process as usize];
        if std::mem::replace(&mut peer.gone, true) {
            return;
        }
        peer.id = None;
        peer.waiting.clear();
        peer.incomplete = None;
        self.gone.push(process);
        self.called = true;
        for request in self.requests.filter(|slot| slot.process == process) {
            self.fail(ports, request, Error::ProcFailed);
        }
        let incomplete =
            self.matching.unexpected.filter(|_, message| message.process == process && message.is_incomplete());
        for found in incomplete {
            if let Some((_, message)) = self.matching.unexpected.take(found) {
                self.buffers.give(message.bytes);
            }
        }
    }

    /// Ends everything in a context.
    pub fn revoke(&mut self, ports: &mut [Port], context: u32) {
        self.revoked.insert(context);
        for request in self.requests.filter(|slot| slot.key.context() == context) {
            match self.requests.at(request).state {
                // What is being sent goes on: the receiver ends it, or the last part.
                State::Streaming { .. } | State::Parting { .. } => {}
                // The receiver may read it from where it is, until it says that it will not.
                State::Announced { .. } => self.cancel_announced(request),
                _ => self.fail(ports, request, Error::Revoked),
            }
        }
        for found in self.matching.unexpected.filter_all(|key, _| key.context() == context) {
            self.refuse(found);
        }
        self.settle(ports);
    }

    /// Refuses the messages of these contexts that wait for a receive, of which none comes any more. True if there were any.
    pub fn refuse_unreceived(&mut self, ports: &mut [Port], contexts: Range<u32>) -> bool {
        // What a matched probe has taken may be received yet.
        let unreceived = self.matching.unexpected.filter(|key, _| contexts.contains(&key.context()));
        unreceived.iter().for_each(|found| self.refuse(*found));
        self.settle(ports);
        !unreceived.is_empty()
    }

    /// A message that waits is received by nobody.
    fn refuse(&mut self, found: Found) {
        let Some((_, message)) = self.matching.unexpected.take(found) else { return };
        if message.process == self.own {
            if message.send.is_none() {
                self.release_own(message.bytes.len());
            }
        } else if let Some(held) = message.held() {
            self.release(message.process, held);
        }
        if let (Some(send), false) = (message.send, message.process == self.own) {
            self.say(message.process, Item::Note { note: Note::Refused, request: send });
        }
        self.buffers.give(message.bytes);
    }

    /// Ends a request with an error, unless its memory is still needed: then it ends as soon as it is not.
    pub fn fail(&mut self, ports: &mut [Port], request: u32, error: Error) {
        let slot = self.requests.at(request);
        match slot.state {
            State::Posted { class } => {
                let key = slot.key;
                self.matching.posted.remove(key, class, request);
            }
            State::Receiving { .. } => self.close_room(ports, request),
            // These have ends of their own.
            State::Copying => return self.copies.end(request, error),
            State::Putting { .. } => return,
            State::Queued { .. }
            | State::Announced { .. }
            | State::Streaming { .. }
            | State::Parting { .. }
            | State::Filling
            | State::Own => {}
            State::Free | State::Complete => return,
        }
        self.requests.complete(request, Status::failed(error));
    }

    /// Nothing is put into a receive's room any more.
    pub fn close_room(&mut self, ports: &mut [Port], request: u32) {
        let slot = self.requests.at(request);
        if let State::Receiving { region: Some(region), .. } = slot.state
            && let Way::Port { port, .. } = self.peers[slot.process as usize].way
        {
            ports[port].unregister(region);
        }
    }
}
