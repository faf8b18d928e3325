//! What keeps the store small and quick, while others commit and read?
//!
//! ```text
//! loose ──64 blocks or 16 MiB, or an hour that is over──> pack
//! packs ──32 alike, or an hour that is over──> one pack         half of a pack gone ──> a pack without them
//! files that are gone, tables that were dropped ──> nothing
//! ```
//!
//! One process at a time, held by a lock of the server that ends with the connection; who comes second has nothing to
//! do. Each job is a transaction: readers see what was before or what is after.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use tarn_metastore::{BlockMetadata, BlockRef, Bloom, Error, MaintenanceReport, Stats};
use tarn_types::{FileId, TableId, Version};

use crate::PostgresInner;
use crate::block_metadata::columns_of;
use crate::bytes::{bloom_of, decode_bloom};
use crate::directory::block_of;
use crate::layout::{Layout, Meta};
use crate::local_state::TableSeqs;
use crate::pack::{self, MAX_SLOTS, PackInput, max_merged_slots};
use crate::pool::{Connection, FlightStatement, RequestFailure, ask, col, params};

/// So many loose blocks of an hour become a pack, or so many bytes; and so many packs of an hour one.
const LOOSE_BLOCKS: i64 = 64;
const LOOSE_BYTES: i64 = 16 << 20;
const MERGED_PACKS: usize = 32;

/// Blocks with column metadata of more bytes do not stay loose: there, one column is read with all others.
const WIDE_BYTES: i64 = 256 << 10;

/// Held while maintenance works; while a migration copies, until its transaction ends.
const LOCK: &str = "SELECT pg_try_advisory_lock(hashtext('tarn_metastore.upkeep'), hashtext(current_schema()))";
const UNLOCK: &str = "SELECT pg_advisory_unlock(hashtext('tarn_metastore.upkeep'), hashtext(current_schema()))";
pub(crate) const WAIT: &str =
    "SELECT pg_advisory_xact_lock(hashtext('tarn_metastore.upkeep'), hashtext(current_schema()))";

/// What there is to do.
#[derive(Debug, PartialEq, Eq)]
enum MaintenanceJob {
    /// Block metadata of a table that was dropped.
    Clear { table: i64 },
    /// Loose block metadata of files that are gone; and what is in no pack is forgotten.
    Sweep { table: i64, hour: i64, loose: Vec<i64>, forget: Vec<i64> },
    /// A pack of loose blocks.
    Pack { table: i64, hour: i64 },
    /// Packs become one without what is gone.
    Merge { table: i64, hour: i64, n_chunks: u32, packs: Vec<i64> },
}

/// A pack, without its blocks.
#[derive(Debug, Clone, Copy)]
struct ListedPack {
    pack: i64,
    n_slots: usize,
    n_chunks: u32,
}

type Hours<T> = BTreeMap<(i64, i64), T>;

impl PostgresInner {
    /// Makes packs of loose blocks and merges packs, within the budget, unless another process is at it; then counts
    /// what there is.
    pub async fn maintain(&self, budget_bytes: u64) -> Result<MaintenanceReport, RequestFailure> {
        let mut done = MaintenanceReport::default();
        if budget_bytes > 0 {
            let connection = self.pool.take().await?;
            if col(&connection.query(LOCK, vec![]).await?[0], 0)? {
                while let Some(job) = self.next_job(&connection).await? {
                    if done.bytes_written >= budget_bytes {
                        done.more = true;
                        break;
                    }
                    self.run(&connection, job, &mut done).await?;
                }
                connection.query(UNLOCK, vec![]).await?;
            }
            connection.give_back();
        }
        done.stats = self.stats().await?;
        Ok(done)
    }

    async fn next_job(&self, connection: &Connection<'_>) -> Result<Option<MaintenanceJob>, RequestFailure> {
        let layout = self.take_layout(&Meta::of(&connection.query(Meta::QUERY, vec![]).await?)?)?;
        if let Some(row) = connection.query("SELECT table_id FROM dropped LIMIT 1", vec![]).await?.first() {
            return Ok(Some(MaintenanceJob::Clear { table: col(row, 0)? }));
        }
        let packs = if layout.writes_first { Hours::new() } else { packs_by_hour(connection).await? };
        if let Some(job) = self.gone_job(connection, layout, &packs).await? {
            return Ok(Some(job));
        }
        if layout.writes_first {
            return Ok(None);
        }
        let loose = "SELECT table_id, hour, count(*), sum(octet_length(columns) + coalesce(octet_length(bloom), 0))::int8, max(column_bytes)
            FROM loose GROUP BY table_id, hour ORDER BY table_id, hour";
        let loose = connection.query(loose, vec![]).await?;
        let mut newest: HashMap<i64, i64> = HashMap::new();
        let mut note = |table, hour: i64| {
            let newest = newest.entry(table).or_insert(hour);
            *newest = hour.max(*newest);
        };
        packs.keys().for_each(|(table, hour)| note(*table, *hour));
        for row in &loose {
            note(col(row, 0)?, col(row, 1)?);
        }
        for row in &loose {
            let (table, hour): (i64, i64) = (col(row, 0)?, col(row, 1)?);
            let is_over = newest.get(&table) != Some(&hour);
            let is_much = col::<i64>(row, 2)? >= LOOSE_BLOCKS || col::<i64>(row, 3)? >= LOOSE_BYTES;
            if is_over || is_much || col::<i64>(row, 4)? >= WIDE_BYTES {
                return Ok(Some(MaintenanceJob::Pack { table, hour }));
            }
        }
        for ((table, hour), packs) in packs {
            if let Some((n_chunks, packs)) = due_packs(&packs, newest.get(&table) != Some(&hour)) {
                return Ok(Some(MaintenanceJob::Merge { table, hour, n_chunks, packs }));
            }
        }
        Ok(None)
    }

    /// What there is to do about files that are gone.
    async fn gone_job(
        &self,
        connection: &Connection<'_>,
        layout: Layout,
        packs: &Hours<Vec<ListedPack>>,
    ) -> Result<Option<MaintenanceJob>, RequestFailure> {
        let list = match layout.writes_second {
            true => {
                "SELECT g.table_id, g.hour, g.file_id, EXISTS (SELECT FROM loose l
                    WHERE l.table_id = g.table_id AND l.hour = g.hour AND l.file_id = g.file_id) FROM gone g"
            }
            false => "SELECT table_id, hour, file_id, false FROM gone",
        };
        let mut gone: Hours<Vec<(i64, bool)>> = Hours::new();
        for row in connection.query(list, vec![]).await? {
            gone.entry((col(&row, 0)?, col(&row, 1)?)).or_default().push((col(&row, 2)?, col(&row, 3)?));
        }
        for ((table, hour), files) in gone {
            let packs = packs.get(&(table, hour)).map(Vec::as_slice).unwrap_or_default();
            let slots = self.slots_of(connection, packs.iter().map(|of| (of.pack, of.n_slots)).collect()).await?;
            let is_gone: HashSet<FileId> = files.iter().map(|(file, _)| FileId(*file as u64)).collect();
            let mut in_packs: HashSet<FileId> = HashSet::new();
            let mut due = None;
            for ListedPack { pack, n_chunks, .. } in packs {
                let dead: Vec<FileId> =
                    slots[pack].iter().map(|block| block.file).filter(|file| is_gone.contains(file)).collect();
                let n_dead = dead.len();
                in_packs.extend(dead);
                if n_dead > 0 && n_dead * 2 >= slots[pack].len() {
                    due = Some(MaintenanceJob::Merge { table, hour, n_chunks: *n_chunks, packs: vec![*pack] });
                }
            }
            if let Some(job) = due {
                return Ok(Some(job));
            }
            let loose: Vec<i64> = files.iter().filter(|(_, is_loose)| *is_loose).map(|(file, _)| *file).collect();
            let forget: Vec<i64> =
                files.iter().map(|(file, _)| *file).filter(|file| !in_packs.contains(&FileId(*file as u64))).collect();
            if !loose.is_empty() || !forget.is_empty() {
                return Ok(Some(MaintenanceJob::Sweep { table, hour, loose, forget }));
            }
        }
        Ok(None)
    }

    async fn run(
        &self,
        connection: &Connection<'_>,
        job: MaintenanceJob,
        done: &mut MaintenanceReport,
    ) -> Result<(), RequestFailure> {
        // Before anything else: a migration's next step waits for those who have read the phase.
        let answers = connection
            .flight(vec![FlightStatement::Plain("BEGIN"), FlightStatement::Query(Meta::QUERY, vec![])])
            .await?;
        let layout = self.take_layout(&Meta::of(&answers[1])?)?;
        match job {
            MaintenanceJob::Clear { table } => clear(connection, table, layout, done).await?,
            MaintenanceJob::Sweep { table, hour, loose, forget } => {
                let mut steps = Vec::new();
                let of_hour = |sql, files: &[i64]| FlightStatement::Query(sql, params![table, hour, files.to_vec()]);
                if layout.writes_second {
                    steps.push(of_hour(
                        "DELETE FROM loose WHERE table_id = $1 AND hour = $2 AND file_id = ANY($3)",
                        &loose,
                    ));
                }
                if layout.writes_first {
                    for sql in [
                        "DELETE FROM block_details WHERE table_id = $1 AND hour = $2 AND file_id = ANY($3)",
                        "DELETE FROM bloom_chunks WHERE table_id = $1 AND hour = $2 AND file_id = ANY($3)",
                        "DELETE FROM block_columns WHERE table_id = $1 AND hour = $2 AND file_id = ANY($3)",
                    ] {
                        steps.push(of_hour(sql, &forget));
                    }
                }
                steps
                    .push(of_hour("DELETE FROM gone WHERE table_id = $1 AND hour = $2 AND file_id = ANY($3)", &forget));
                connection.flight(steps).await?;
            }
            MaintenanceJob::Pack { table, hour } if !layout.writes_first => {
                pack_loose(connection, table, hour, done).await?
            }
            MaintenanceJob::Merge { table, hour, n_chunks, packs } if !layout.writes_first => {
                let gone = gone_files(connection, table, hour).await?;
                let n_slots = "SELECT pack_id, n_slots FROM packs WHERE pack_id = ANY($1)";
                let mut listed: Vec<(i64, usize)> = Vec::with_capacity(packs.len());
                for row in connection.query(n_slots, params![packs.clone()]).await? {
                    listed.push((col(&row, 0)?, col::<i64>(&row, 1)? as usize));
                }
                listed.sort_unstable_by(|a, b| b.cmp(a));
                let slots = self.slots_of(connection, listed.clone()).await?;
                let sources: Vec<PackInput> = listed
                    .iter()
                    .map(|(pack, _)| PackInput::Packed { pack: *pack, slots: slots[pack].clone() })
                    .collect();
                let is_kept = |block: BlockRef| !gone.contains(&block.file);
                let written = pack::write(connection, TableId(table as u32), hour, n_chunks, &sources, is_kept).await?;
                pack::delete(connection, &packs).await?;
                done.packs_made += u64::from(written.is_some());
                done.bytes_written += written.unwrap_or(0);
                done.packs_removed += packs.len() as u64;
            }
            // The phase has changed since it was planned.
            MaintenanceJob::Pack { .. } | MaintenanceJob::Merge { .. } => {}
        }
        connection.plain("COMMIT").await
    }

    /// One question, and one more for each table of which something is new.
    async fn refresh_all(&self) -> Result<(), RequestFailure> {
        let list = "SELECT table_id, version, oldest, definition_seq, base_seq FROM tables";
        let rows = ask!(&self.pool, connection => connection.query(list, vec![]))?;
        let mut news: BTreeSet<TableId> = self.held.read().ids().into_iter().collect();
        for row in &rows {
            let id = TableId(col::<i64>(row, 0)? as u32);
            let (version, oldest) = (Version(col::<i64>(row, 1)? as u64), Version(col::<i64>(row, 2)? as u64));
            let seen = TableSeqs { definition_seq: col(row, 3)?, base_seq: col(row, 4)? };
            let held = self.held.read();
            let is_known = held.known(id).is_some_and(|known| known.version == version && known.seen == seen);
            if is_known && held.table(id)?.oldest.version == oldest {
                news.remove(&id);
            } else {
                news.insert(id);
            }
        }
        for table in news {
            match self.refresh(table).await {
                Err(RequestFailure::Ours(Error::NoTableId { .. })) => {}
                refreshed => refreshed?,
            }
        }
        Ok(())
    }

    async fn stats(&self) -> Result<Stats, RequestFailure> {
        self.refresh_all().await?;
        let second = "SELECT (SELECT coalesce(sum(n_chunks::int8 * 32), 0)::int8 FROM loose) + (SELECT coalesce(sum(n_slots * n_chunks * 32), 0)::int8 FROM packs),
            (SELECT coalesce(sum(column_bytes), 0)::int8 FROM loose) + (SELECT coalesce(sum(column_bytes), 0)::int8 FROM packs),
            (SELECT count(*) FROM packs), (SELECT count(*) FROM loose), pg_table_size('commits'), pg_table_size('files') + pg_table_size('dead_rows')";
        let first = "SELECT (SELECT coalesce(sum(n_chunks::int8 * 32), 0)::int8 FROM block_details),
            (SELECT coalesce(sum(octet_length(record)), 0)::int8 FROM block_columns),
            0::int8, (SELECT count(*) FROM block_details), pg_table_size('commits'), pg_table_size('files') + pg_table_size('dead_rows')";
        let sums = if self.layout.lock().reads_second { second } else { first };
        let rows = match ask!(&self.pool, connection => connection.query(sums, vec![])) {
            Err(failure) if failure.is_undefined() => {
                self.look_again().await?;
                let sums = if self.layout.lock().reads_second { second } else { first };
                ask!(&self.pool, connection => connection.query(sums, vec![]))?
            }
            asked => asked?,
        };
        let of = |idx: usize| col::<i64>(&rows[0], idx).map(|n| n as u64);
        let versions = self.held.read().state.stats();
        Ok(Stats {
            bloom_bytes: of(0)?,
            column_bytes: of(1)?,
            packs: of(2)?,
            loose_blocks: of(3)?,
            log_bytes: of(4)?,
            checkpoint_bytes: of(5)?,
            ..versions
        })
    }
}

async fn packs_by_hour(connection: &Connection<'_>) -> Result<Hours<Vec<ListedPack>>, RequestFailure> {
    let list = "SELECT table_id, hour, pack_id, n_slots, n_chunks FROM packs ORDER BY pack_id";
    let mut packs: Hours<Vec<ListedPack>> = Hours::new();
    for row in connection.query(list, vec![]).await? {
        let (n_slots, n_chunks) = (col::<i64>(&row, 3)? as usize, col::<i32>(&row, 4)? as u32);
        packs.entry((col(&row, 0)?, col(&row, 1)?)).or_default().push(ListedPack {
            pack: col(&row, 2)?,
            n_slots,
            n_chunks,
        });
    }
    Ok(packs)
}

async fn gone_files(connection: &Connection<'_>, table: i64, hour: i64) -> Result<HashSet<FileId>, RequestFailure> {
    let gone = "SELECT file_id FROM gone WHERE table_id = $1 AND hour = $2";
    let rows = connection.query(gone, params![table, hour]).await?;
    rows.iter().map(|row| Ok(FileId(col::<i64>(row, 0)? as u64))).collect()
}

/// A pack at a time, then the rest.
async fn clear(
    connection: &Connection<'_>,
    table: i64,
    layout: Layout,
    done: &mut MaintenanceReport,
) -> Result<(), RequestFailure> {
    let of_table = |sql| FlightStatement::Query(sql, params![table]);
    let mut steps = Vec::new();
    if layout.writes_second {
        let packs = "SELECT pack_id FROM packs WHERE table_id = $1 ORDER BY pack_id LIMIT 1";
        if let Some(row) = connection.query(packs, params![table]).await?.first() {
            done.packs_removed += 1;
            return pack::delete(connection, &[col(row, 0)?]).await;
        }
        steps.push(of_table("DELETE FROM loose WHERE table_id = $1"));
    }
    if layout.writes_first {
        steps.push(of_table("DELETE FROM block_details WHERE table_id = $1"));
        steps.push(of_table("DELETE FROM bloom_chunks WHERE table_id = $1"));
        steps.push(of_table("DELETE FROM block_columns WHERE table_id = $1"));
    }
    steps.push(of_table("DELETE FROM gone WHERE table_id = $1"));
    steps.push(of_table("DELETE FROM dropped WHERE table_id = $1"));
    connection.flight(steps).await.map(drop)
}

/// Takes loose blocks, no more than are held in memory at once, and makes a pack for each size of filters.
async fn pack_loose(
    connection: &Connection<'_>,
    table: i64,
    hour: i64,
    done: &mut MaintenanceReport,
) -> Result<(), RequestFailure> {
    let list = "SELECT file_id, row_group, (octet_length(columns) + coalesce(octet_length(bloom), 0))::int8 FROM loose
        WHERE table_id = $1 AND hour = $2 ORDER BY file_id, row_group LIMIT 65536";
    let (mut files, mut row_groups, mut n_bytes) = (Vec::new(), Vec::new(), 0);
    for row in connection.query(list, params![table, hour]).await?.iter().take(MAX_SLOTS) {
        n_bytes += col::<i64>(row, 2)?;
        if !files.is_empty() && n_bytes > 2 * LOOSE_BYTES {
            break;
        }
        files.push(col::<i64>(row, 0)?);
        row_groups.push(col::<i64>(row, 1)?);
    }
    let take = "DELETE FROM loose l USING unnest($3::int8[], $4::int8[]) AS a (file_id, row_group)
        WHERE l.table_id = $1 AND l.hour = $2 AND l.file_id = a.file_id AND l.row_group = a.row_group
        RETURNING l.file_id, l.row_group, l.n_chunks, l.bloom, l.columns";
    let rows = connection.query(take, params![table, hour, files, row_groups]).await?;
    let gone = gone_files(connection, table, hour).await?;
    let mut by_size: BTreeMap<u32, Vec<(BlockRef, BlockMetadata)>> = BTreeMap::new();
    for row in &rows {
        let (block, n_chunks) = (block_of(row, 0)?, col::<i32>(row, 2)? as u32);
        let place = || format!("loose, block {block:?}");
        let bloom: Option<Bloom> = match col::<Option<&[u8]>>(row, 3)? {
            Some(bytes) => Some(bloom_of(decode_bloom(bytes, n_chunks, place)?, place)?),
            None => None,
        };
        let block_metadata = columns_of(col(row, 4)?, place)?;
        by_size.entry(n_chunks).or_default().push((block, BlockMetadata { bloom, ..block_metadata }));
    }
    for (n_chunks, mut blocks) in by_size {
        blocks.sort_unstable_by_key(|(block, _)| *block);
        let is_kept = |block: BlockRef| !gone.contains(&block.file);
        let sources = [PackInput::Loose(blocks)];
        let written = pack::write(connection, TableId(table as u32), hour, n_chunks, &sources, is_kept).await?;
        done.packs_made += u64::from(written.is_some());
        done.bytes_written += written.unwrap_or(0);
    }
    Ok(())
}

/// Packs of an hour to be made one: those with filters of one size.
fn due_packs(packs: &[ListedPack], is_over: bool) -> Option<(u32, Vec<i64>)> {
    let mut by_size: BTreeMap<u32, Vec<ListedPack>> = BTreeMap::new();
    for pack in packs {
        by_size.entry(pack.n_chunks).or_default().push(*pack);
    }
    by_size.into_iter().find_map(|(n_chunks, mut packs)| {
        packs.sort_by_key(|pack| (pack.n_slots, pack.pack));
        let due = if is_over { run_of_similar(&packs) } else { full_tier(&packs) };
        due.map(|packs| (n_chunks, packs))
    })
}

/// Of packs from small to large, those to be made one in an hour that is over: each no larger than twice those before
/// it together. So one late block never rewrites a full hour.
fn run_of_similar(packs: &[ListedPack]) -> Option<Vec<i64>> {
    (0..packs.len()).find_map(|start| {
        let mut sum = packs[start].n_slots;
        let similar = packs[start + 1..].iter().take_while(|pack| {
            let (fits, larger) = (pack.n_slots <= 2 * sum, sum + pack.n_slots);
            sum = larger;
            fits && larger <= max_merged_slots(pack.n_chunks)
        });
        let n_similar = similar.count();
        (n_similar > 0).then(|| packs[start..=start + n_similar].iter().map(|pack| pack.pack).collect())
    })
}

/// The same while the hour goes on: enough packs of about one size. Each block is rewritten once for every such size.
fn full_tier(packs: &[ListedPack]) -> Option<Vec<i64>> {
    let mut tiers: BTreeMap<u32, Vec<ListedPack>> = BTreeMap::new();
    for pack in packs {
        let tier = (pack.n_slots / LOOSE_BLOCKS as usize).max(1).ilog(MERGED_PACKS);
        tiers.entry(tier).or_default().push(*pack);
    }
    tiers.into_values().find_map(|mut tier| {
        tier.truncate(MERGED_PACKS);
        let n_slots: usize = tier.iter().map(|pack| pack.n_slots).sum();
        let is_full = tier.len() == MERGED_PACKS && n_slots <= max_merged_slots(tier[0].n_chunks);
        is_full.then(|| tier.iter().map(|pack| pack.pack).collect())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(sizes: &[usize]) -> Vec<ListedPack> {
        (0..).zip(sizes).map(|(pack, n_slots)| ListedPack { pack, n_slots: *n_slots, n_chunks: 8 }).collect()
    }

    #[test]
    fn packs_are_merged_when_they_are_alike() {
        assert_eq!(due_packs(&listed(&[64; 31]), false), None, "the hour goes on");
        assert_eq!(due_packs(&listed(&[64; 32]), false).map(|(_, packs)| packs.len()), Some(32));
        assert_eq!(due_packs(&listed(&[64, 64, 10]), true).map(|(_, packs)| packs), Some(vec![0, 1]));
        assert_eq!(due_packs(&listed(&[1, 2_000]), true), None, "a late block does not rewrite the hour");
        assert_eq!(due_packs(&listed(&[40_000, 40_000]), true), None, "a pack has its limit");
        let full = |n_slots| ListedPack { pack: 1, n_slots, n_chunks: 8192 };
        assert!(due_packs(&[full(2_000), full(2_000)], true).is_some());
        assert_eq!(due_packs(&[full(2_500), full(2_500)], true), None, "and so has a transaction");
    }
}
