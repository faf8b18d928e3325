//! Where does a lake file lie? `<table-name>-<table-id>/hr=YYYY-MM-DD-HH/<file-id>-<instance>.parquet`
//!
//! The file id is unique in a metastore, the instance in the world: a metastore restored from a backup gives out ids
//! again, and must not overwrite what an earlier life wrote.

use object_store::path::Path;
use uuid::Uuid;

use tarn_types::{FileId, TableId, TableSchema};

pub(crate) const MS_PER_HOUR: i64 = 3_600_000;

/// Of a name, so much is in the folder's: with the id behind it, no file system finds it too long.
const MAX_NAME_BYTES: usize = 240;

/// All files of a table are below, in the lake, whatever it is called by now. Another table never has it.
pub fn table_prefix(table: &TableSchema) -> Path {
    table_folder(table.made_as(), table.id)
}

/// The same, of a table of which only name and id are left. The id makes it one of its own, also where `A` and `a`, or
/// two names with one beginning, are one file.
pub fn table_folder(name: &str, id: TableId) -> Path {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' };
    Path::from(format!("{}-{id}", name.chars().map(plain).take(MAX_NAME_BYTES).collect::<String>()))
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

    #[test]
    fn the_folder_of_a_long_name_is_none_that_a_file_system_refuses() {
        for name in ["c".repeat(300), "é/%.".repeat(100), "\u{1F600}".repeat(300)] {
            let folder = table_folder(&name, TableId(u32::MAX));
            assert!(folder.as_ref().len() <= 255, "{folder}");
            assert!(folder.as_ref().ends_with("-4294967295") && folder.parts().count() == 1, "{folder}");
        }
        assert_eq!(table_folder("..", TableId(7)).as_ref(), "__-7");
    }
}
