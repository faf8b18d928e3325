//! Which blocks may hold the keys? Rows of packs and pieces of loose filters are read in one snapshot of the store, a
//! flight for each round of [`Search`]; bits are tested here.

use roaring::RoaringBitmap;

use tarn_metastore::{Error, Probe, ProbeResult};
use tarn_types::TableId;

use crate::PostgresInner;
use crate::directory::{Directory, directory_steps};
use crate::layout::Meta;
use crate::pool::{Connection, FlightStatement, RequestFailure, ask, col, params};
use crate::refresh::SNAPSHOT;
use crate::search::{NeededReads, Search};

/// So many bytes are tested where they arrive; more on a blocking thread.
const INLINE_BYTES: usize = 256 << 10;

/// Bytes of one flight: each has the time-out for itself, and its answer is held twice while it is fed.
const FLIGHT_BYTES: usize = 8 << 20;

const ROWS: &str = "SELECT r.pack_id, r.chunk, r.bits FROM unnest($1::int8[], $2::int4[]) AS a (pack_id, chunk)
    JOIN pack_rows r ON r.pack_id = a.pack_id AND r.chunk = a.chunk";

/// A chunk and its checksum are 36 bytes: `bytes::PIECE_BYTES`.
const PIECES: &str = "SELECT a.idx, a.chunk, substring(l.bloom FROM 36 * a.chunk + 1 FOR 36)
    FROM unnest($2::int8[], $3::int8[], $4::int8[], $5::int8[], $6::int4[]) AS a (hour, file_id, row_group, idx, chunk)
    JOIN loose l ON l.table_id = $1 AND l.hour = a.hour AND l.file_id = a.file_id AND l.row_group = a.row_group";

impl PostgresInner {
    /// Reads in one snapshot of the database; asks once more when the store moved to another schema meanwhile.
    pub async fn probe(&self, table: TableId, probe: Probe) -> Result<ProbeResult, RequestFailure> {
        for _ in 0..2 {
            let layout = *self.layout.lock();
            let probed = if layout.reads_second {
                ask!(&self.pool, connection => self.probe_second(&connection, table, &probe))
            } else {
                ask!(&self.pool, connection => self.probe_first(&connection, table, &probe))
            };
            match probed {
                Err(failure) if failure.is_undefined() => self.look_again().await?,
                answered => return answered,
            }
        }
        Err(RequestFailure::Lost("the tables are being migrated".into()))
    }

    /// The layout as the store has it now.
    pub async fn look_again(&self) -> Result<(), RequestFailure> {
        let rows = ask!(&self.pool, connection => connection.query(Meta::QUERY, vec![]))?;
        self.take_layout(&Meta::of(&rows)?).map(drop)
    }

    async fn probe_second(
        &self,
        connection: &Connection<'_>,
        table: TableId,
        probe: &Probe,
    ) -> Result<ProbeResult, RequestFailure> {
        let mut steps = vec![FlightStatement::Plain(SNAPSHOT)];
        steps.extend(directory_steps(table, &probe.hours));
        let answers = connection.flight(steps).await?;
        if answers[1].is_empty() {
            connection.plain("COMMIT").await?;
            return Err(Error::NoTableId { table }.into());
        }
        let directory = Directory::of(&answers[2..])?;
        let mut found = self.find(connection, &directory, &probe.hours).await?;
        found.packs.retain(|pack| pack.n_chunks > 0);
        found.loose.retain(|loose| loose.n_chunks > 0);
        let filtered: RoaringBitmap = (found.packs.iter().flat_map(|pack| pack.places.iter().map(|(at, _)| *at)))
            .chain(found.loose.iter().map(|loose| loose.position))
            .collect();
        let mut search = Search::new(found.packs, found.loose, probe.clauses.clone());
        let left = loop {
            let mut needs = match search.needs() {
                Ok(left) => break left,
                Err(needs) => needs,
            };
            while !needs.is_empty() {
                let flight = search.next_flight(&mut needs, FLIGHT_BYTES);
                search = read(connection, table, search, flight).await?;
            }
        };
        connection.plain("COMMIT").await?;
        let mut kept: RoaringBitmap = (0..found.n_asked).collect();
        kept -= &filtered;
        let without_bloom = kept.len();
        kept |= left;
        Ok(ProbeResult { kept, without_bloom, bytes_read: search.bytes_read })
    }
}

/// Reads what one flight brings.
async fn read(
    connection: &Connection<'_>,
    table: TableId,
    mut search: Search,
    needs: NeededReads,
) -> Result<Search, RequestFailure> {
    let mut steps = Vec::new();
    if !needs.rows.is_empty() {
        let (packs, chunks): (Vec<i64>, Vec<i32>) =
            needs.rows.iter().map(|(pack, chunk)| (*pack, *chunk as i32)).unzip();
        steps.push(FlightStatement::Query(ROWS, params![packs, chunks]));
    }
    if !needs.pieces.is_empty() {
        let (mut hours, mut files, mut row_groups) = (vec![], vec![], vec![]);
        let (mut places, mut chunks) = (vec![], vec![]);
        for (idx, chunk) in &needs.pieces {
            let loose = search.loose()[*idx];
            hours.push(loose.hour);
            files.push(loose.block.file.0 as i64);
            row_groups.push(i64::from(loose.block.row_group));
            places.push(*idx as i64);
            chunks.push(*chunk as i32);
        }
        steps.push(FlightStatement::Query(
            PIECES,
            params![i64::from(table.0), hours, files, row_groups, places, chunks],
        ));
    }
    let mut answers = connection.flight(steps).await?.into_iter();
    let rows = if needs.rows.is_empty() { None } else { answers.next() }.unwrap_or_default();
    let pieces = answers.next().unwrap_or_default();
    let n_bytes: usize = rows.iter().map(|row| row.try_get::<_, &[u8]>(2).map_or(0, <[u8]>::len)).sum();
    let feed = move || {
        for row in &rows {
            search.feed_row(col(row, 0)?, col::<i32>(row, 1)? as u32, col(row, 2)?)?;
        }
        for row in &pieces {
            search.feed_piece(col::<i64>(row, 0)? as usize, col::<i32>(row, 1)? as u32, col(row, 2)?)?;
        }
        search.check_fed(&needs)?;
        Ok::<_, RequestFailure>(search)
    };
    match n_bytes > INLINE_BYTES {
        true => tokio::task::spawn_blocking(feed).await.map_err(|e| RequestFailure::Lost(Box::new(e)))?,
        false => feed(),
    }
}
