//! Where is the metadata of the blocks that are asked for?
//!
//! Three lists, read in the snapshot of the store in which everything else is read: packs, loose blocks, and files that
//! are gone. Which blocks a pack has never changes and is remembered.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use tokio_postgres::Row;

use tarn_metastore::{BlockRef, HourBlocks};
use tarn_types::{FileId, TableId};

use crate::PostgresInner;
use crate::bytes::{damaged, decode_slots};
use crate::pool::{Connection, FlightStatement, RequestFailure, col, params};
use crate::search::{AskedLoose, AskedPack};

/// Memory for the blocks of packs.
const REMEMBERED_BYTES: usize = 64 << 20;

/// The blocks of packs, up to so many bytes; whole packs are forgotten, those not used for longest first.
#[derive(Default)]
pub(crate) struct Slots {
    packs: HashMap<i64, (Arc<Vec<BlockRef>>, u64)>,
    n_bytes: usize,
    n_uses: u64,
}

impl Slots {
    fn get(&mut self, pack: i64) -> Option<Arc<Vec<BlockRef>>> {
        self.n_uses += 1;
        let (slots, used) = self.packs.get_mut(&pack)?;
        *used = self.n_uses;
        Some(slots.clone())
    }

    fn insert(&mut self, pack: i64, slots: &Arc<Vec<BlockRef>>) {
        self.n_uses += 1;
        if self.packs.insert(pack, (slots.clone(), self.n_uses)).is_none() {
            self.n_bytes += size_of_val(&slots[..]);
        }
        while self.n_bytes > REMEMBERED_BYTES && self.packs.len() > 1 {
            let oldest = self.packs.iter().min_by_key(|(_, (_, used))| *used).map(|(pack, _)| *pack);
            let Some((slots, _)) = oldest.and_then(|pack| self.packs.remove(&pack)) else { break };
            self.n_bytes -= size_of_val(&slots[..]);
        }
    }
}

/// What there is of some hours.
pub(crate) struct Directory {
    /// The newest first.
    packs: Vec<HourPack>,
    loose: HashMap<(i64, BlockRef), u32>,
    gone: HashSet<(i64, FileId)>,
}

struct HourPack {
    pack: i64,
    hour: i64,
    n_slots: usize,
    n_chunks: u32,
}

/// Where those are that were asked for.
#[derive(Default)]
pub(crate) struct BlockLocations {
    /// Packs that have some of the blocks.
    pub packs: Vec<AskedPack>,
    /// Blocks that are in no pack yet.
    pub loose: Vec<AskedLoose>,
    /// Asked for in all.
    pub n_asked: u32,
}

/// The questions whose answers make a directory. The first says whether the table is there.
pub(crate) fn directory_steps(table: TableId, hours: &[HourBlocks]) -> Vec<FlightStatement> {
    let hours: Vec<i64> = hours.iter().map(|of_hour| of_hour.hour).collect();
    let of_hours = |sql| FlightStatement::Query(sql, params![i64::from(table.0), hours.clone()]);
    vec![
        FlightStatement::Query("SELECT 1 FROM tables WHERE table_id = $1", params![i64::from(table.0)]),
        of_hours("SELECT hour, file_id FROM gone WHERE table_id = $1 AND hour = ANY($2)"),
        of_hours(
            "SELECT pack_id, hour, n_slots, n_chunks FROM packs WHERE table_id = $1 AND hour = ANY($2) ORDER BY pack_id DESC",
        ),
        of_hours("SELECT hour, file_id, row_group, n_chunks FROM loose WHERE table_id = $1 AND hour = ANY($2)"),
    ]
}

pub(crate) fn gone_of(rows: &[Row]) -> Result<HashSet<(i64, FileId)>, RequestFailure> {
    rows.iter().map(|row| Ok((col(row, 0)?, FileId(col::<i64>(row, 1)? as u64)))).collect()
}

pub(crate) fn block_of(row: &Row, file_at: usize) -> Result<BlockRef, RequestFailure> {
    let (file, row_group): (i64, i64) = (col(row, file_at)?, col(row, file_at + 1)?);
    Ok(BlockRef { file: FileId(file as u64), row_group: row_group as u32 })
}

impl Directory {
    /// The answers to `directory_steps` without the first.
    pub fn of(answers: &[Vec<Row>]) -> Result<Self, RequestFailure> {
        let [gone, packs, loose] = answers else { return Err(damaged("an answer".to_owned(), "parts are missing")) };
        let packs = packs.iter().map(|row| {
            let (n_slots, n_chunks): (i64, i32) = (col(row, 2)?, col(row, 3)?);
            Ok(HourPack {
                pack: col(row, 0)?,
                hour: col(row, 1)?,
                n_slots: n_slots as usize,
                n_chunks: n_chunks as u32,
            })
        });
        let loose = loose.iter().map(|row| Ok(((col(row, 0)?, block_of(row, 1)?), col::<i32>(row, 3)? as u32)));
        Ok(Self {
            packs: packs.collect::<Result<_, RequestFailure>>()?,
            loose: loose.collect::<Result<_, RequestFailure>>()?,
            gone: gone_of(gone)?,
        })
    }
}

impl PostgresInner {
    /// Finds the blocks. Reads the blocks of packs that are not remembered.
    pub async fn find(
        &self,
        connection: &Connection<'_>,
        directory: &Directory,
        hours: &[HourBlocks],
    ) -> Result<BlockLocations, RequestFailure> {
        let slots = self.slots_of(connection, directory.packs.iter().map(|of| (of.pack, of.n_slots)).collect()).await?;
        let mut by_hour: BTreeMap<i64, Vec<&HourPack>> = BTreeMap::new();
        for listed in &directory.packs {
            by_hour.entry(listed.hour).or_default().push(listed);
        }
        let mut found = BlockLocations::default();
        for HourBlocks { hour, blocks } in hours {
            let first = found.n_asked;
            found.n_asked += blocks.len() as u32;
            let mut open: Vec<(u32, BlockRef)> = Vec::with_capacity(blocks.len());
            for (position, block) in (first..).zip(blocks) {
                if !directory.gone.is_empty() && directory.gone.contains(&(*hour, block.file)) {
                    continue;
                }
                match directory.loose.get(&(*hour, *block)) {
                    Some(n_chunks) => {
                        found.loose.push(AskedLoose { position, hour: *hour, block: *block, n_chunks: *n_chunks });
                    }
                    None => open.push((position, *block)),
                }
            }
            for listed in by_hour.get(hour).into_iter().flatten() {
                let places = places(&mut open, &slots[&listed.pack]);
                if !places.is_empty() {
                    let HourPack { pack, n_slots, n_chunks, .. } = **listed;
                    found.packs.push(AskedPack { pack, n_chunks, n_slots, places });
                }
            }
        }
        Ok(found)
    }

    /// The blocks of packs, which are so many.
    pub async fn slots_of(
        &self,
        connection: &Connection<'_>,
        packs: Vec<(i64, usize)>,
    ) -> Result<HashMap<i64, Arc<Vec<BlockRef>>>, RequestFailure> {
        let mut found = HashMap::with_capacity(packs.len());
        let mut missing = Vec::new();
        {
            let mut remembered = self.slots.lock();
            for (pack, _) in &packs {
                match remembered.get(*pack) {
                    Some(slots) => drop(found.insert(*pack, slots)),
                    None => missing.push(*pack),
                }
            }
        }
        if missing.is_empty() {
            return Ok(found);
        }
        let read = "SELECT pack_id, slots FROM packs WHERE pack_id = ANY($1)";
        for row in connection.query(read, params![missing]).await? {
            let pack: i64 = col(&row, 0)?;
            let slots = Arc::new(decode_slots(col(&row, 1)?, || format!("packs, blocks of pack {pack}"))?);
            self.slots.lock().insert(pack, &slots);
            found.insert(pack, slots);
        }
        for (pack, n_slots) in packs {
            if found.get(&pack).is_none_or(|slots| slots.len() != n_slots) {
                return Err(damaged(format!("packs, blocks of pack {pack}"), format!("they are not {n_slots}")));
            }
        }
        Ok(found)
    }
}

/// Of ascending blocks those that the pack has, with their slots. They are taken out.
fn places(open: &mut Vec<(u32, BlockRef)>, slots: &[BlockRef]) -> Vec<(u32, u32)> {
    let (mut found, mut slot) = (Vec::new(), 0);
    open.retain(|(position, block)| {
        while slots.get(slot).is_some_and(|here| here < block) {
            slot += 1;
        }
        let is_here = slots.get(slot) == Some(block);
        if is_here {
            found.push((*position, slot as u32));
        }
        !is_here
    });
    found
}
