//! How do sequences change, and who gets their numbers? What is known of them is in `sequences`.

use crate::auth::access::Privilege;
use crate::auth::{AuthAction, Principal};
use crate::error::Result;
use crate::node::Node;
use crate::sequences::{Reset, Sequence, SequenceValues};

impl Node {
    /// Makes a sequence, which is of who asks. False: it was there already, and `if_not_exists` was said. Durable when
    /// it returns. One that is to go with a column goes with a table of who asks, if that is there already.
    ///
    /// Errors: `Denied`; `NoSchema`; `TableExists`.
    pub async fn create_sequence(
        &self,
        who: &Principal,
        name: &str,
        mut sequence: Sequence,
        if_not_exists: bool,
    ) -> Result<bool> {
        let _one = self.lock_catalog().await;
        self.may_make(who, name)?;
        self.may_go_with(who, &sequence)?;
        self.schemas().check_there(name)?;
        sequence.maker = who.name().map(str::to_owned);
        self.sequences().create(name, sequence, if_not_exists).await
    }

    /// Changes a sequence; numbers that this server has of it are dropped. Durable when it returns.
    ///
    /// Errors: `NoTable`; `Denied`, also for a table that it is to go with; those of `change`, which may be called
    /// several times.
    pub async fn alter_sequence(
        &self,
        who: &Principal,
        name: &str,
        change: impl Fn(&mut Sequence) -> Result<()>,
    ) -> Result<()> {
        let change = |sequence: &mut Sequence| {
            let before = sequence.owner.clone();
            self.may_change_sequence(who, name, sequence)?;
            change(sequence)?;
            if sequence.owner == before { Ok(()) } else { self.may_go_with(who, sequence) }
        };
        self.sequences().alter(name, change).await
    }

    fn may_go_with(&self, who: &Principal, sequence: &Sequence) -> Result<()> {
        let table = sequence.owner.as_ref().and_then(|owner| self.catalog().schema(&owner.table).ok());
        table.map_or(Ok(()), |table| self.may_own(who, &table))
    }

    /// Calls a sequence otherwise. Durable when it returns.
    ///
    /// Errors: `NoTable`; `Denied`; `TableExists` when there is one of that name.
    pub async fn rename_sequence(&self, who: &Principal, name: &str, to: &str) -> Result<()> {
        let sequence = self.sequences().get(name).await?;
        self.may_change_sequence(who, name, &sequence)?;
        self.may_move(who, name, to)?;
        self.sequences().rename(name, to).await
    }

    /// Drops a sequence. False: there is none. Durable when it returns.
    ///
    /// Errors: `Denied`.
    pub async fn drop_sequence(&self, who: &Principal, name: &str) -> Result<bool> {
        let there = self.sequences().all().await?.into_iter().find(|(other, _)| other == name);
        match there {
            Some((_, sequence)) => self.may_change_sequence(who, name, &sequence)?,
            None => return self.may(who, &AuthAction::Session).map(|()| false),
        }
        self.sequences().remove(name).await
    }

    /// `n` numbers that are in memory. `None`: there are not so many, and [`Node::take_numbers`] gets them. No IO.
    ///
    /// Errors: `Denied`.
    pub fn take_numbers_now(&self, who: &Principal, name: &str, n: u64) -> Result<Option<SequenceValues>> {
        let sequences = self.sequences();
        if !self.users().users().is_empty() {
            let Some((owner, maker)) = sequences.owner_now(name) else { return Ok(None) };
            self.may_use_sequence(who, name, owner.as_ref(), maker.as_deref(), Privilege::Insert)?;
        }
        Ok(sequences.take_now(name, n))
    }

    /// `n` numbers. Cost: nothing while the block lasts that is in memory; then one change of a document, which is a
    /// few lists of the tables and two durable writes.
    ///
    /// Errors: `Denied`; `NoTable`; `ProgramLimit` when there are not so many left; `Conflict` when others take numbers
    /// again and again. Numbers that were taken by then are a gap.
    pub async fn take_numbers(&self, who: &Principal, name: &str, n: u64) -> Result<SequenceValues> {
        self.may_use_now(who, name, Privilege::Insert).await?;
        self.sequences().take(name, n).await
    }

    /// Says which number a sequence gave last, or gives next. Durable when it returns.
    ///
    /// Errors: `Denied`; `NoTable`.
    pub async fn set_sequence(&self, who: &Principal, name: &str, reset: Reset) -> Result<()> {
        self.may_use_now(who, name, Privilege::Update).await?;
        let reset = |sequence: &mut Sequence| {
            (sequence.last, sequence.is_called) = (reset.last, reset.is_called);
            Ok(())
        };
        self.sequences().alter(name, reset).await
    }

    /// Whether somebody may do that with a sequence. Cost: nothing for one whose numbers were asked for before, or
    /// while there are no users.
    ///
    /// Errors: `Denied`; `NoTable`.
    pub async fn may_use_now(&self, who: &Principal, name: &str, privilege: Privilege) -> Result<()> {
        if self.users().users().is_empty() {
            return Ok(());
        }
        let (owner, maker) = self.sequences().owner(name).await?;
        self.may_use_sequence(who, name, owner.as_ref(), maker.as_deref(), privilege)
    }

    /// `TRUNCATE … RESTART IDENTITY`: what goes with a table's columns begins anew. Who may delete its rows may say so.
    ///
    /// Errors: `NoTable`; `Denied`.
    pub async fn restart_sequences_of(&self, who: &Principal, table: &str) -> Result<()> {
        let of = self.catalog().schema(table)?;
        self.may(who, &AuthAction::Rows { of: &of, privilege: Privilege::Delete })?;
        self.sequences().restart_of_table(table).await
    }
}
