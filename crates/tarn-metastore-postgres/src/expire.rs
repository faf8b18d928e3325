//! How are old versions forgotten? The oldest kept version moves on: the commits up to it are folded into its files,
//! and go.
//!
//! Files that no kept version has are answered, and listed as gone: their metadata is no longer found, and maintenance
//! deletes it.

use std::collections::BTreeSet;
use std::sync::Arc;

use tarn_metastore::{File, Result, VersionSelector};
use tarn_types::{FileId, TableId, Version};

use crate::PostgresInner;
use crate::catalog::sealed_base;
use crate::commit::{dead_step, file_steps};
use crate::layout::Meta;
use crate::local_state::LocalState;
use crate::pool::{FlightStatement, RequestFailure, change, params};

impl PostgresInner {
    /// One transaction; answers the files that no version needs any more, also when the answer of the first attempt was
    /// lost.
    pub async fn expire(&self, table: TableId, keep: Version) -> Result<Vec<Arc<File>>> {
        // Of an attempt whose answer was lost, and which happened.
        let mut named = None;
        change!(&self.pool, doubt => self.try_expire(table, keep, &mut doubt, &mut named))
    }

    async fn try_expire(
        &self,
        id: TableId,
        keep: Version,
        doubt: &mut bool,
        named: &mut Option<Vec<Arc<File>>>,
    ) -> Result<Vec<Arc<File>>, RequestFailure> {
        let connection = self.pool.take_for_change(*doubt).await?;
        let known = self.held.read().known(id);
        let answers = connection
            .flight(vec![
                FlightStatement::Plain("BEGIN"),
                FlightStatement::Query(Meta::QUERY, vec![]),
                FlightStatement::Query(
                    "SELECT version FROM tables WHERE table_id = $1 FOR UPDATE",
                    params![i64::from(id.0)],
                ),
                Self::tail_step(id, known),
            ])
            .await?;
        let ready = async {
            self.take_layout(&Meta::of(&answers[1])?)?;
            self.refresh_locked(&connection, id, known, &answers[3]).await?;
            let held = self.held.read();
            Ok::<_, RequestFailure>(match held.state.check_expire(id, keep)? {
                Some((gone, _)) => Some((expire_steps(&held, id, keep, &gone)?, gone)),
                None => None,
            })
        };
        match ready.await {
            Ok(Some((steps, gone))) => {
                *named = Some(gone.clone());
                connection.commit(steps, doubt).await?;
                self.held.write().expire(id, keep)?;
                Ok(gone)
            }
            Ok(None) => {
                let was_ours = if *doubt { named.take() } else { None };
                connection.roll_back().await;
                Ok(was_ours.unwrap_or_default())
            }
            Err(failure @ (RequestFailure::Ours(_) | RequestFailure::Damaged { .. })) => {
                connection.roll_back().await;
                Err(failure)
            }
            Err(failure) => Err(failure),
        }
    }
}

fn expire_steps(
    held: &LocalState,
    id: TableId,
    keep: Version,
    gone: &[Arc<File>],
) -> Result<Vec<FlightStatement>, RequestFailure> {
    let table = held.table(id)?;
    let whole = table.snapshot(VersionSelector::Version(keep))?;
    let (mut added, mut removed, mut buried) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for commit in table.commits.iter().take_while(|commit| commit.version <= keep) {
        added.extend(commit.added.iter().map(|file| file.id));
        removed.extend(commit.removed.iter().copied());
        buried.extend(commit.deletion_vectors.keys().copied());
    }
    let row = i64::from(id.0);
    let ids = |files: &mut dyn Iterator<Item = FileId>| files.map(|file| file.0 as i64).collect::<Vec<i64>>();
    let files = ids(&mut removed.iter().copied());
    let mut steps = vec![
        FlightStatement::Query(
            "DELETE FROM files WHERE table_id = $1 AND file_id = ANY($2)",
            params![row, files.clone()],
        ),
        FlightStatement::Query("DELETE FROM dead_rows WHERE table_id = $1 AND file_id = ANY($2)", params![row, files]),
        FlightStatement::Query(
            "DELETE FROM commits WHERE table_id = $1 AND version <= $2",
            params![row, keep.0 as i64],
        ),
    ];
    steps.extend(file_steps(id, added.iter().filter_map(|file| whole.file(*file))));
    let dead = buried.iter().filter_map(|file| Some((*file, whole.deletion_vectors.get(file)?)));
    steps.push(dead_step(id, dead));
    let (hours, files): (Vec<i64>, Vec<i64>) =
        gone.iter().filter(|file| !file.blocks.is_empty()).map(|file| (file.hour, file.id.0 as i64)).unzip();
    let list = "INSERT INTO gone (table_id, hour, file_id) SELECT $1, * FROM unnest($2::int8[], $3::int8[]) ON CONFLICT DO NOTHING";
    steps.push(FlightStatement::Query(list, params![row, hours, files]));
    let update = "UPDATE tables SET oldest = $2, base = $3 WHERE table_id = $1";
    steps.push(FlightStatement::Query(update, params![row, keep.0 as i64, sealed_base(&whole)]));
    Ok(steps)
}
