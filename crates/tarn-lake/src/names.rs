//! Where does a lake file lie? `<table-name>-<table-id>/hr=YYYY-MM-DD-HH/<file-id>-<instance>.parquet`
//!
//! The file id is unique in a metastore, the instance in the world: a metastore restored from a backup gives out ids again, and
//! must not overwrite what an earlier life wrote.

use object_store::path::Path;
use uuid::Uuid;

use tarn_types::{FileId, TableSchema};

pub(crate) const MS_PER_HOUR: i64 = 3_600_000;

/// All files of a table are below, in the lake. Another table never has it.
pub fn table_prefix(table: &TableSchema) -> Path {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' };
    Path::from(format!("{}-{}", table.name.chars().map(plain).collect::<String>(), table.id))
}

/// `hour` counts from the Unix epoch.
pub(crate) fn file_path(table: &TableSchema, hour: i64, file: FileId, instance: Uuid) -> Path {
    let hour = match chrono::DateTime::from_timestamp_millis(hour.saturating_mul(MS_PER_HOUR)) {
        Some(time) => time.format("%Y-%m-%d-%H").to_string(),
        None => hour.to_string(),
    };
    table_prefix(table).join(format!("hr={hour}")).join(format!("{file}-{instance}.parquet"))
}

/// The id in a path that [`file_path`] made; `None` for anything else.
pub(crate) fn file_id(path: &Path) -> Option<FileId> {
    let (id, instance) = path.filename()?.strip_suffix(".parquet")?.split_once('-')?;
    instance.parse::<Uuid>().ok()?;
    id.parse().ok().map(FileId)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_data::events;

    #[test]
    fn a_path_tells_its_file() {
        let mut table = events();
        table.name = "a/b \"c\"".into();
        let path = file_path(&table, 470_000, FileId(42), Uuid::from_u128(7));
        assert_eq!(path.as_ref(), "a_b__c_-1/hr=2023-08-14-08/42-00000000-0000-0000-0000-000000000007.parquet");
        assert_eq!(file_id(&path), Some(FileId(42)));
        for other in ["a/x.parquet", "a/1-2.parquet", "a/_SUCCESS", "a/1-00000000-0000-0000-0000-000000000007.tmp"] {
            assert_eq!(file_id(&Path::from(other)), None, "{other}");
        }
    }
}
