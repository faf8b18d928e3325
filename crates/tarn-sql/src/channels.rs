//! Who hears a `NOTIFY`? The sessions of this node that listen on its channel, when its transaction has committed.
//!
//! ```text
//! NOTIFY, pg_notify ──> Outgoing (of the session, until COMMIT) ──> Channels ──> Inbox of each who listens ──> its client, when it is in no transaction
//! LISTEN, UNLISTEN ───>     "
//! ```
//!
//! All of it is in memory: what nobody listens for is gone, and so is all when the node stops. What is bounded: what a
//! transaction holds back, and what waits for one client, beyond which others are refused to notify it (54000). It is
//! asked when they notify: what commits at the same time may come on top.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::error::{Result, SqlError, state};

/// Of one name: PostgreSQL's limits.
const MAX_CHANNEL_BYTES: usize = 63;
const MAX_PAYLOAD_BYTES: usize = 7_999;

/// What one transaction may hold back, and what may wait for one client.
const MAX_WAITING_BYTES: usize = 1 << 20;

/// What each notification costs beside its texts.
const NOTIFICATION_BYTES: usize = 64;

/// What a client is told.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Notification {
    /// Of the session that notified.
    pub pid: i32,
    /// Its name, at most 63 bytes.
    pub channel: String,
    /// Empty, if nothing was said.
    pub payload: String,
}

impl Notification {
    fn size_bytes(&self) -> usize {
        NOTIFICATION_BYTES + self.channel.len() + self.payload.len()
    }
}

/// The channels of a node.
#[derive(Debug, Default)]
pub(crate) struct Channels {
    /// Held for moments, before that of an inbox.
    listeners: Mutex<HashMap<String, Vec<Arc<Inbox>>>>,
}

/// What waits for one client.
#[derive(Debug)]
pub(crate) struct Inbox {
    waiting: Mutex<PendingNotifications>,
    arrived: Notify,
}

#[derive(Debug, Default)]
struct PendingNotifications {
    notifications: VecDeque<Notification>,
    n_bytes: usize,
}

/// What is to happen when a transaction commits.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ChannelAction {
    Listen(String),
    Unlisten(String),
    UnlistenAll,
    Notify(Notification),
}

/// One session's side.
#[derive(Debug)]
pub(crate) struct Mail {
    channels: Arc<Channels>,
    pid: i32,
    inbox: Arc<Inbox>,
    outgoing: Mutex<TransactionChannels>,
}

#[derive(Debug, Default)]
struct TransactionChannels {
    /// In order.
    actions: Vec<ChannelAction>,
    n_bytes: usize,
    /// What is notified already, as far as that is known: what is said twice is heard once.
    said: HashSet<Notification>,
    /// How many actions there were at each savepoint.
    savepoints: Vec<usize>,
}

impl TransactionChannels {
    /// Is it as it was at first?
    fn is_empty(&self) -> bool {
        self.actions.is_empty() && self.n_bytes == 0 && self.said.is_empty() && self.savepoints.is_empty()
    }
}

impl Channels {
    fn listen(&self, channel: String, inbox: &Arc<Inbox>) {
        let mut listeners = self.listeners.lock();
        let of_channel = listeners.entry(channel).or_default();
        if !of_channel.iter().any(|other| Arc::ptr_eq(other, inbox)) {
            of_channel.push(Arc::clone(inbox));
        }
    }

    fn unlisten(&self, inbox: &Arc<Inbox>, is_meant: impl Fn(&str) -> bool) {
        self.listeners.lock().retain(|channel, of_channel| {
            of_channel.retain(|other| !(is_meant(channel) && Arc::ptr_eq(other, inbox)));
            !of_channel.is_empty()
        });
    }

    /// Errors: `54000` if somebody who listens has not heard so much already.
    fn check_room(&self, notification: &Notification) -> Result<()> {
        let listeners = self.listeners.lock();
        let mut of_channel = listeners.get(&notification.channel).into_iter().flatten();
        let is_full = |inbox: &Arc<Inbox>| inbox.waiting.lock().n_bytes + notification.size_bytes() > MAX_WAITING_BYTES;
        match of_channel.any(is_full) {
            true => {
                let message =
                    format!("too many notifications of channel \"{}\" are not heard yet", notification.channel);
                Err(SqlError::new(state::PROGRAM_LIMIT, message)
                    .with_detail(format!("{} KiB wait for one client", MAX_WAITING_BYTES >> 10))
                    .with_hint("a session that listens hears nothing inside a transaction, or its client does not read: end it"))
            }
            false => Ok(()),
        }
    }

    fn deliver(&self, notification: &Notification) {
        let listeners = self.listeners.lock();
        for inbox in listeners.get(&notification.channel).into_iter().flatten() {
            let mut waiting = inbox.waiting.lock();
            waiting.n_bytes += notification.size_bytes();
            waiting.notifications.push_back(notification.clone());
            inbox.arrived.notify_one();
        }
    }
}

impl Mail {
    /// Of a session that listens on nothing.
    pub fn new(channels: &Arc<Channels>, pid: i32) -> Mail {
        let inbox = Arc::new(Inbox { waiting: Mutex::default(), arrived: Notify::new() });
        Mail { channels: Arc::clone(channels), pid, inbox, outgoing: Mutex::default() }
    }

    /// Errors: `22023` for a text that is too long, or no channel; `54000` for more than a transaction may hold back,
    /// or a client leaves unheard.
    pub fn notify(&self, channel: String, payload: String) -> Result<()> {
        if payload.len() > MAX_PAYLOAD_BYTES {
            return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, "payload string too long")
                .with_hint(format!("at most {MAX_PAYLOAD_BYTES} bytes: write a row, and notify its key")));
        }
        check_channel(&channel)?;
        let notification = Notification { pid: self.pid, channel, payload };
        self.channels.check_room(&notification)?;
        self.add(ChannelAction::Notify(notification))
    }

    /// From COMMIT on. Errors: `22023` for what is no channel, `54000` for more than a transaction may hold back.
    pub fn listen(&self, channel: String) -> Result<()> {
        check_channel(&channel)?;
        self.add(ChannelAction::Listen(channel))
    }

    /// `None`: of all.
    pub fn unlisten(&self, channel: Option<String>) -> Result<()> {
        self.add(channel.map_or(ChannelAction::UnlistenAll, ChannelAction::Unlisten))
    }

    fn add(&self, action: ChannelAction) -> Result<()> {
        let mut outgoing = self.outgoing.lock();
        if let ChannelAction::Notify(notification) = &action
            && !outgoing.said.insert(notification.clone())
        {
            return Ok(());
        }
        outgoing.n_bytes += match &action {
            ChannelAction::Notify(notification) => notification.size_bytes(),
            _ => NOTIFICATION_BYTES + MAX_CHANNEL_BYTES,
        };
        if outgoing.n_bytes > MAX_WAITING_BYTES {
            let message = format!("the transaction notifies more than {} KiB", MAX_WAITING_BYTES >> 10);
            return Err(SqlError::new(state::PROGRAM_LIMIT, message).with_hint("COMMIT earlier, or notify once"));
        }
        outgoing.actions.push(action);
        Ok(())
    }

    /// When the transaction, or the statement that is none's, has committed.
    pub fn commit(&self) {
        let TransactionChannels { actions, .. } = {
            let mut outgoing = self.outgoing.lock();
            // As behind nearly every statement.
            if outgoing.is_empty() {
                return;
            }
            std::mem::take(&mut *outgoing)
        };
        let mut said = HashSet::new();
        let (sent, heard): (Vec<ChannelAction>, Vec<ChannelAction>) =
            actions.into_iter().partition(|action| matches!(action, ChannelAction::Notify(_)));
        for action in heard.into_iter().chain(sent) {
            match action {
                ChannelAction::Listen(channel) => self.channels.listen(channel, &self.inbox),
                ChannelAction::Unlisten(channel) => self.channels.unlisten(&self.inbox, |other| other == channel),
                ChannelAction::UnlistenAll => self.channels.unlisten(&self.inbox, |_| true),
                ChannelAction::Notify(notification) if said.insert(notification.clone()) => {
                    self.channels.deliver(&notification)
                }
                ChannelAction::Notify(_) => {}
            }
        }
    }

    /// When it is undone.
    pub fn roll_back(&self) {
        *self.outgoing.lock() = TransactionChannels::default();
    }

    /// What is said from here on can be undone by itself.
    pub fn savepoint(&self) {
        let mut outgoing = self.outgoing.lock();
        let n_actions = outgoing.actions.len();
        outgoing.savepoints.push(n_actions);
    }

    /// So many savepoints are left.
    pub fn release(&self, n_left: usize) {
        self.outgoing.lock().savepoints.truncate(n_left);
    }

    /// Back to the last of so many savepoints.
    pub fn roll_back_to(&self, n_left: usize) {
        let mut outgoing = self.outgoing.lock();
        outgoing.savepoints.truncate(n_left);
        let n_kept = outgoing.savepoints.last().copied().unwrap_or(0);
        outgoing.actions.truncate(n_kept);
        outgoing.said.clear();
    }

    /// What the client has not been told yet.
    pub fn take(&self) -> Vec<Notification> {
        let PendingNotifications { notifications, .. } = std::mem::take(&mut *self.inbox.waiting.lock());
        notifications.into()
    }

    /// Returns when there is something to take, and perhaps when there is not.
    pub async fn arrived(&self) {
        self.inbox.arrived.notified().await;
    }

    /// When the session ends.
    pub fn leave(&self) {
        self.channels.unlisten(&self.inbox, |_| true);
    }
}

fn check_channel(channel: &str) -> Result<()> {
    match channel.len() {
        0 => Err(SqlError::new(state::INVALID_PARAMETER_VALUE, "channel name cannot be empty")),
        n_bytes if n_bytes > MAX_CHANNEL_BYTES => {
            Err(SqlError::new(state::INVALID_PARAMETER_VALUE, "channel name too long"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(mail: &Mail) -> Vec<String> {
        mail.take().into_iter().map(|heard| format!("{} {}", heard.channel, heard.payload)).collect()
    }

    #[test]
    fn it_is_heard_when_it_commits_by_those_who_listen_by_then() {
        let channels = Arc::default();
        let (a, b) = (Mail::new(&channels, 1), Mail::new(&channels, 2));
        a.listen("x".to_owned()).unwrap();
        b.notify("x".to_owned(), "early".to_owned()).unwrap();
        b.commit();
        a.commit();
        assert!(heard(&a).is_empty());
        for (channel, payload) in [("x", "1"), ("x", "1"), ("y", "2"), ("x", "3")] {
            b.notify(channel.to_owned(), payload.to_owned()).unwrap();
        }
        assert!(heard(&a).is_empty());
        b.savepoint();
        b.notify("x".to_owned(), "undone".to_owned()).unwrap();
        b.roll_back_to(1);
        b.commit();
        assert_eq!(heard(&a), ["x 1", "x 3"]);
        b.notify("x".to_owned(), "undone".to_owned()).unwrap();
        b.roll_back();
        b.commit();
        // Who listens and notifies hears itself.
        b.notify("x".to_owned(), "own".to_owned()).unwrap();
        b.listen("x".to_owned()).unwrap();
        b.commit();
        assert_eq!((heard(&a), heard(&b)), (vec!["x own".to_owned()], vec!["x own".to_owned()]));
        a.unlisten(None).unwrap();
        a.commit();
        b.leave();
        assert!(channels.listeners.lock().is_empty());
    }

    #[test]
    fn what_waits_is_bounded() {
        let channels = Arc::default();
        let (a, b) = (Mail::new(&channels, 1), Mail::new(&channels, 2));
        a.listen("x".to_owned()).unwrap();
        a.commit();
        let mut n_sent = 0;
        let error = loop {
            match b.notify("x".to_owned(), format!("{n_sent:1000}")) {
                Ok(()) => b.commit(),
                Err(error) => break error,
            }
            n_sent += 1;
        };
        assert_eq!((error.state(), n_sent), ("54000", MAX_WAITING_BYTES / (1_000 + 1 + NOTIFICATION_BYTES)));
        assert_eq!(heard(&a).len(), n_sent);
        b.notify("x".to_owned(), String::new()).unwrap();
        assert_eq!(b.notify("x".to_owned(), "x".repeat(8_000)).unwrap_err().state(), "22023");
        assert_eq!(b.notify("x".repeat(64), String::new()).unwrap_err().state(), "22023");
        assert_eq!(b.listen(String::new()).unwrap_err().state(), "22023");
    }
}
