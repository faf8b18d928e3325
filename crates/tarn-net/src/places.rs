//! Who has a place?
//!
//! A connection *waits* from its first packet until it has proved who it is, then it *sits*. Both are counted, because
//! each takes a file descriptor. Those who wait longest make room for new ones, so that clients that connect and say
//! nothing, or begin to log in, keep nobody out; who sits stays. HTTP connections sit while a request is answered and
//! wait between requests.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// The places of one listener.
pub struct ConnectionSlots {
    max_seated: usize,
    max_waiting: usize,
    state: Mutex<SlotState>,
}

#[derive(Default)]
struct SlotState {
    n_seated: usize,
    next_ticket: u64,
    /// By ticket: in the order in which they began to wait.
    waiting: BTreeMap<u64, CancellationToken>,
}

/// One connection. Dropping it frees its place.
pub struct Guest {
    places: Arc<ConnectionSlots>,
    /// Shown out: somebody else needs the place.
    out: CancellationToken,
    place: Mutex<SeatState>,
}

enum SeatState {
    Waiting {
        ticket: u64,
    },
    /// Once for each [`Guest::sit`]: an answer may still be on its way when the next request comes.
    Seated {
        times: usize,
    },
    /// Not counted any more.
    Gone,
}

impl ConnectionSlots {
    /// So many connections may be served, and so many more wait; at least one may wait.
    pub fn new(max_seated: usize, max_waiting: usize) -> Arc<ConnectionSlots> {
        Arc::new(ConnectionSlots { max_seated, max_waiting: max_waiting.max(1), state: Mutex::default() })
    }

    /// Places that there are.
    pub fn max_seated(&self) -> usize {
        self.max_seated
    }

    /// Places that are taken.
    pub fn n_seated(&self) -> usize {
        self.state.lock().n_seated
    }

    /// A new connection, which waits. Shows out who waits longest, if too many do.
    pub fn admit(self: &Arc<Self>) -> Guest {
        let out = CancellationToken::new();
        let ticket = self.queue(&out);
        Guest { places: Arc::clone(self), out, place: Mutex::new(SeatState::Waiting { ticket }) }
    }

    fn queue(&self, out: &CancellationToken) -> u64 {
        let mut state = self.state.lock();
        while state.waiting.len() >= self.max_waiting
            && let Some((_, oldest)) = state.waiting.pop_first()
        {
            oldest.cancel();
        }
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.waiting.insert(ticket, out.clone());
        ticket
    }
}

impl Guest {
    /// Ends when the place is needed by somebody else.
    pub async fn shown_out(&self) {
        self.out.cancelled().await;
    }

    /// From waiting to sitting. False: all seats are taken, or it was shown out just now.
    #[must_use]
    pub fn sit(&self) -> bool {
        let mut place = self.place.lock();
        match &mut *place {
            SeatState::Seated { times } => *times += 1,
            SeatState::Waiting { ticket } => {
                let mut state = self.places.state.lock();
                if state.n_seated >= self.places.max_seated || state.waiting.remove(ticket).is_none() {
                    return false;
                }
                state.n_seated += 1;
                *place = SeatState::Seated { times: 1 };
            }
            SeatState::Gone => return false,
        }
        true
    }

    /// Back to waiting, if this was asked as often as to sit.
    pub fn rise(&self) {
        let mut place = self.place.lock();
        match &mut *place {
            SeatState::Waiting { .. } | SeatState::Gone => {}
            SeatState::Seated { times } if *times > 1 => *times -= 1,
            SeatState::Seated { .. } => {
                self.places.state.lock().n_seated -= 1;
                *place = SeatState::Waiting { ticket: self.places.queue(&self.out) };
            }
        }
    }

    /// Frees the place; nothing more is asked for.
    pub fn leave(&self) {
        let place = std::mem::replace(&mut *self.place.lock(), SeatState::Gone);
        let mut state = self.places.state.lock();
        match place {
            SeatState::Waiting { ticket } => {
                state.waiting.remove(&ticket);
            }
            SeatState::Seated { .. } => state.n_seated -= 1,
            SeatState::Gone => {}
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_says_nothing_keeps_nobody_out() {
        let places = ConnectionSlots::new(2, 3);
        let silent: Vec<Guest> = (0..10).map(|_| places.admit()).collect();
        let shown_out = silent.iter().filter(|guest| guest.out.is_cancelled()).count();
        assert_eq!(shown_out, 7);
        assert!(!silent[0].sit(), "too late");
        let (first, second, third) = (places.admit(), places.admit(), places.admit());
        assert!(first.sit() && second.sit());
        assert!(!third.sit(), "all seats are taken");
        let later: Vec<Guest> = (0..10).map(|_| places.admit()).collect();
        assert!(!first.out.is_cancelled(), "who sits stays");
        assert!(third.out.is_cancelled());
        drop(first);
        assert!(later[9].sit());
        later[9].rise();
        assert_eq!(places.n_seated(), 1);
        assert!(!later[9].out.is_cancelled());
    }
}
