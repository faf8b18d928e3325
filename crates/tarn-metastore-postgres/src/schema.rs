//! Which tables does a store have, in which shape?
//!
//! ```text
//! meta         one row: schema version, phase of a migration, epoch, the next ids
//! tables       definition, latest version, oldest kept version with its cursor and time
//! files        the files of the oldest kept version         dead_rows  their dead rows
//! commits      the commits after it: files added and removed, dead rows, cursor
//! gone         files that no kept version has, and whose metadata may still be there       dropped  the same of tables
//! definitions  the last thousand changes of the catalog, for those whose answer was lost
//!
//! schema 2     loose (a row a block), packs, pack_rows (a row a chunk: that of all the pack's blocks), pack_slabs (a row a column)
//! schema 1     block_details (a row a block), bloom_chunks (a row a block and chunk), block_columns (a row a block and column)
//! ```
//!
//! Byte strings are in the formats of docs/formats/metastore.md and docs/formats/pack.md, each with its CRC32C behind
//! it.

use crate::layout::Phase;
use crate::pool::{Connection, FlightStatement, RequestFailure, col, params};

/// The schema that this build makes.
pub(crate) const NEWEST: u32 = 2;

const COMMON: &str = "
CREATE TABLE meta (one boolean PRIMARY KEY DEFAULT true CHECK (one), schema_version int8 NOT NULL, phase text NOT NULL, epoch int8 NOT NULL,
                   next_table int8 NOT NULL, next_tablet int8 NOT NULL, next_file int8 NOT NULL);
CREATE TABLE tables (table_id int8 PRIMARY KEY, name text NOT NULL UNIQUE, definition bytea NOT NULL, definition_seq int8 NOT NULL,
                     version int8 NOT NULL, oldest int8 NOT NULL, base bytea NOT NULL, base_seq int8 NOT NULL, restoring boolean NOT NULL);
CREATE TABLE files (table_id int8, file_id int8, file bytea NOT NULL, PRIMARY KEY (table_id, file_id));
CREATE TABLE dead_rows (table_id int8, file_id int8, bits bytea NOT NULL, PRIMARY KEY (table_id, file_id));
CREATE TABLE commits (table_id int8, version int8, id uuid NOT NULL, payload bytea NOT NULL,
                      PRIMARY KEY (table_id, version), UNIQUE (table_id, id));
CREATE TABLE gone (table_id int8, hour int8, file_id int8, PRIMARY KEY (table_id, hour, file_id));
CREATE TABLE dropped (table_id int8 PRIMARY KEY);
CREATE TABLE definitions (seq int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id uuid NOT NULL UNIQUE, answer bytea NOT NULL);
";

/// Filters are random bits: compressing them would only take time. Pieces of what is stored outside of its row and not
/// compressed can be read alone; rows of small packs stay in their pages.
pub(crate) const SECOND: &str = "
CREATE TABLE IF NOT EXISTS loose (table_id int8, hour int8, file_id int8, row_group int8, n_chunks int4 NOT NULL, bloom bytea,
                    columns bytea NOT NULL, column_bytes int8 NOT NULL, PRIMARY KEY (table_id, hour, file_id, row_group));
CREATE TABLE IF NOT EXISTS packs (pack_id int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY, table_id int8 NOT NULL, hour int8 NOT NULL,
                    n_slots int8 NOT NULL, n_chunks int4 NOT NULL, slots bytea NOT NULL, column_bytes int8 NOT NULL);
CREATE INDEX IF NOT EXISTS packs_by_hour ON packs (table_id, hour);
CREATE TABLE IF NOT EXISTS pack_rows (pack_id int8, chunk int4, bits bytea NOT NULL, PRIMARY KEY (pack_id, chunk)) WITH (toast_tuple_target = 8160);
CREATE TABLE IF NOT EXISTS pack_slabs (pack_id int8, column_id int8, slab bytea NOT NULL, PRIMARY KEY (pack_id, column_id));
ALTER TABLE loose ALTER bloom SET STORAGE EXTERNAL;
ALTER TABLE pack_rows ALTER bits SET STORAGE EXTERNAL;
";

const FIRST: &str = "
CREATE TABLE block_details (table_id int8, hour int8, file_id int8, row_group int8, n_chunks int4 NOT NULL, PRIMARY KEY (table_id, hour, file_id, row_group));
CREATE TABLE bloom_chunks (table_id int8, hour int8, chunk int4, file_id int8, row_group int8, bits bytea NOT NULL,
                    PRIMARY KEY (table_id, hour, chunk, file_id, row_group));
CREATE TABLE block_columns (table_id int8, hour int8, column_id int8, file_id int8, row_group int8, record bytea NOT NULL,
                    PRIMARY KEY (table_id, hour, column_id, file_id, row_group));
";

pub(crate) const DROP_FIRST: &str = "DROP TABLE block_details, bloom_chunks, block_columns";

/// Makes the schema if there is none. Who comes second at the same time finds it made.
pub(crate) async fn ensure(connection: &Connection<'_>, schema: &str, version: u32) -> Result<(), RequestFailure> {
    let is_there = "SELECT to_regclass($1 || '.meta') IS NOT NULL";
    let name = || params![schema.to_owned()];
    if col(&connection.query(is_there, name()).await?[0], 0)? {
        return Ok(());
    }
    let lock = FlightStatement::Query("SELECT pg_advisory_xact_lock(hashtext('tarn_metastore'), hashtext($1))", name());
    connection.flight(vec![FlightStatement::Plain("BEGIN"), lock]).await?;
    if !col::<bool>(&connection.query(is_there, name()).await?[0], 0)? {
        let block_metadata = if version == 1 { FIRST } else { SECOND };
        // An administrator may have made it, and may allow nobody else to make one.
        let made: bool = col(&connection.query("SELECT to_regnamespace($1) IS NOT NULL", name()).await?[0], 0)?;
        let create = if made { String::new() } else { format!("CREATE SCHEMA \"{schema}\";") };
        let first = format!(
            "{create} {COMMON} {block_metadata}
             INSERT INTO meta (schema_version, phase, epoch, next_table, next_tablet, next_file) VALUES ({version}, '{}', 1, 1, 1, 1)",
            Phase::Settled.name()
        );
        connection.script(&first).await?;
    }
    connection.plain("COMMIT").await
}
