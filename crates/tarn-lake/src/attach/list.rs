//! Which files does an archive have, and which of them does the table not know as they are now?
//!
//! Every object whose name ends in `.parquet`, unless a part of its path begins with `_` or `.`: such are the scratch
//! files of those who write archives. A file is known by path, size and ETag; where the store has no ETags, by path,
//! size and having been attached after its last modification.

use std::collections::HashMap;

use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore};

use tarn_metastore::{File, TableVersion};
use tarn_types::{FileId, Version};

/// An object as it was listed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Object {
    /// Below the archive's root.
    pub path: Path,
    pub size_bytes: u64,
    /// What tells this content from others that lie there; `None`: the store does not say.
    pub etag: Option<String>,
    /// Unix time, by the store's clock.
    pub modified_ms: i64,
}

/// All Parquet files, in path order.
pub(crate) async fn list(store: &dyn ObjectStore) -> object_store::Result<Vec<Object>> {
    let listed: Vec<ObjectMeta> = store.list(None).try_collect().await?;
    let mut objects: Vec<_> = listed.into_iter().filter(|object| is_data(&object.location)).map(object).collect();
    objects.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(objects)
}

fn is_data(path: &Path) -> bool {
    path.as_ref().ends_with(".parquet") && !path.parts().any(|part| part.as_ref().starts_with(['_', '.']))
}

fn object(meta: ObjectMeta) -> Object {
    Object {
        path: meta.location,
        size_bytes: meta.size,
        etag: meta.e_tag,
        modified_ms: meta.last_modified.timestamp_millis(),
    }
}

/// What a table has to learn of an archive.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Difference {
    /// Files that the table has as they are.
    pub known: u64,
    /// New and changed files in path order; of a changed one, the file that it takes the place of.
    pub read: Vec<(Object, Option<FileId>)>,
    /// Files of the table that the archive no longer has.
    pub gone: Vec<FileId>,
}

/// `committed_ms` tells when a version was made, if that is known still.
pub(crate) fn difference(
    listed: Vec<Object>,
    version: &TableVersion,
    committed_ms: impl Fn(Version) -> Option<i64>,
) -> Difference {
    let mut by_path: HashMap<&str, &File> = HashMap::with_capacity(version.files.len());
    let mut difference = Difference::default();
    for file in &version.files {
        // There is one of each; should there be two, the later one is right.
        difference.gone.extend(by_path.insert(&file.path, file).map(|before| before.id));
    }
    for object in listed {
        match by_path.remove(object.path.as_ref()) {
            Some(file) if is_same(file, &object, &committed_ms) => difference.known += 1,
            file => difference.read.push((object, file.map(|file| file.id))),
        }
    }
    difference.gone.extend(by_path.into_values().map(|file| file.id));
    difference.gone.sort_unstable();
    difference
}

/// Is this object what was attached?
pub(crate) fn is_same(file: &File, object: &Object, committed_ms: impl Fn(Version) -> Option<i64>) -> bool {
    let by_time = || committed_ms(file.created_version).is_none_or(|attached| object.modified_ms < attached);
    file.size_bytes == object.size_bytes && file.etag == object.etag && (file.etag.is_some() || by_time())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn object(path: &str, size_bytes: u64, etag: &str) -> Object {
        let etag = Some(etag.to_owned()).filter(|etag| !etag.is_empty());
        Object { path: Path::from(path), size_bytes, etag, modified_ms: 50 }
    }

    fn file(id: u64, path: &str, size_bytes: u64, etag: &str) -> Arc<File> {
        Arc::new(File {
            id: FileId(id),
            path: path.to_owned(),
            size_bytes,
            n_rows: 0,
            hour: 0,
            etag: Some(etag.to_owned()).filter(|etag| !etag.is_empty()),
            blocks: vec![],
            created_version: Version(id),
            sorted_by_key: false,
            note: None,
            checksums: None,
        })
    }

    #[test]
    fn hidden_and_other_files_are_no_data() {
        for (path, want) in [
            ("a.parquet", true),
            ("dt=1/a.parquet", true),
            ("dt=1/a.parquet.crc", false),
            ("_temporary/0/a.parquet", false),
            ("dt=1/_metadata", false),
            ("dt=1/.a.parquet", false),
            ("a.csv", false),
        ] {
            assert_eq!(is_data(&Path::from(path)), want, "{path}");
        }
    }

    #[test]
    fn what_is_new_changed_and_gone() {
        let files = [
            file(1, "a", 1, "x"),
            file(2, "b", 1, "x"),
            file(3, "c", 1, "x"),
            file(4, "d", 1, "x"),
            file(5, "e", 1, ""),
            file(99, "f", 1, ""),
            file(7, "a", 1, "x"),
        ];
        let version = TableVersion { files: files.into_iter().collect(), ..TableVersion::default() };
        let same = [object("a", 1, "x"), object("e", 1, "")];
        let changed = [object("b", 2, "x"), object("c", 1, "y"), object("f", 1, ""), object("g", 1, "x")];
        let listed = [&same[..], &changed[..]].concat();
        let found = difference(listed, &version, |version| Some(if version == Version(99) { 40 } else { 60 }));
        assert_eq!(found.known, 2);
        let ids: Vec<_> = found.read.iter().map(|(_, id)| id.map(|id| id.0)).collect();
        assert_eq!(ids, [Some(2), Some(3), Some(99), None]);
        assert_eq!(found.gone, [FileId(1), FileId(4)]);
    }
}
