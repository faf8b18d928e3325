//! Where do the lake's files live, and whose are they?
//!
//! A folder or a bucket. One that the settings name has an owner: the object `_tarn/owner` holds the id of the data
//! folder that writes there. Two servers that wrote to one place would each take the other's files for orphans, and
//! remove them.

use std::fs;
use std::path::Path as FilePath;
use std::sync::Arc;

use object_store::path::Path;
use object_store::{Error as StoreError, ObjectStore, ObjectStoreExt, PutMode, PutOptions};
use tarn_lake::LocalStore;
use uuid::Uuid;

use crate::error::{Error, ErrorKind, Result, chain};
use crate::settings::NodeSettings;
use crate::small_file::replace;
use crate::stores::{StoreLocation, same_place};
use crate::threads::blocking;

/// In the lake: who writes there.
const OWNER: &str = "_tarn/owner";

/// In the data folder: as whom it writes, and where.
const MARK: &str = "LAKE";

/// In the mark: the lake is in the data folder, wherever that is.
const OWN_FOLDER: &str = "data folder";

/// Opens the place that the settings name, and makes sure that nobody else writes there.
///
/// `folder` is the data folder's id: as that it owns the lake, unless it has another name there already.
///
/// Errors: `Unavailable` when it cannot be reached or written, `InUse` when it is another data folder's, `WrongState`
/// when there are tables whose files are elsewhere.
pub async fn open(
    settings: &NodeSettings,
    has_tables: bool,
    folder: Uuid,
) -> Result<(StoreLocation, Arc<dyn ObjectStore>)> {
    let location = StoreLocation::parse_for("have the lake in", &settings.lake_location())?;
    let store: Arc<dyn ObjectStore> = match (&location, location.open_bucket()?) {
        (_, Some(bucket)) => {
            location.check().await?;
            bucket
        }
        (StoreLocation::Folder(folder), None) => Arc::new(LocalStore::open(folder).map_err(|e| {
            Error::new(ErrorKind::Unavailable, format!("open the lake in {}: {e}", folder.display()))
                .with_hint("set `lake` to a folder that can be written")
        })?),
        (StoreLocation::Bucket { .. }, None) => return Err(location.unavailable("it is no bucket")),
    };
    let named = settings.lake.is_some().then(|| location.to_string());
    let (mark, is_named) = (settings.data_dir.join(MARK), named.is_some());
    let own_id = blocking(move || mine(&mark, named.as_deref().unwrap_or(OWN_FOLDER), has_tables, folder)).await?;
    if is_named {
        own(&location, store.as_ref(), own_id, &settings.data_dir).await?;
    }
    Ok((location, store))
}

async fn own(location: &StoreLocation, store: &dyn ObjectStore, own: Uuid, data_dir: &FilePath) -> Result<()> {
    let path = Path::from(OWNER);
    let failed = |error: StoreError| location.unavailable(&chain(&error)).with_hint(location.remedy());
    let owner = match store.get(&path).await {
        Ok(found) => found.bytes().await.map_err(failed)?,
        Err(StoreError::NotFound { .. }) => {
            let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
            match store.put_opts(&path, own.to_string().into_bytes().into(), options).await {
                // Read again: a store may ignore the condition. Two that start in the same moment on such a store are
                // not told apart.
                Ok(_) | Err(StoreError::AlreadyExists { .. } | StoreError::Precondition { .. }) => {}
                Err(error @ (StoreError::NotImplemented { .. } | StoreError::NotSupported { .. })) => {
                    return Err(location.unavailable(&chain(&error)).with_hint(
                        "the store must be able to create an object only if there is none (If-None-Match); is AWS_CONDITIONAL_PUT=disabled set?",
                    ));
                }
                Err(error) => return Err(failed(error)),
            }
            store.get(&path).await.map_err(failed)?.bytes().await.map_err(failed)?
        }
        Err(error) => return Err(failed(error)),
    };
    if owner.as_ref() == own.to_string().as_bytes() {
        return Ok(());
    }
    let message = format!("the lake {location} belongs to another data folder than {}", data_dir.display());
    Err(Error::new(ErrorKind::InUse, message).with_hint(format!(
        "give each server a prefix of its own in `lake`; if that data folder is gone for good, remove the object {OWNER} there, and \
         start again"
    )))
}

/// The id of this data folder as the owner of a lake; made when there is none. The mark also says which place it was:
/// files of tables are there and nowhere else.
///
/// Errors: `WrongState`, if there are tables and it is another place now.
fn mine(mark: &FilePath, location: &str, has_tables: bool, folder: Uuid) -> Result<Uuid> {
    let failed = |error: std::io::Error| Error::new(ErrorKind::Unavailable, format!("{}: {error}", mark.display()));
    let mut id = folder;
    if let Some((known, text)) = marked(mark)? {
        id = known;
        let before = text.lines().nth(1).unwrap_or_default().trim();
        let is_own = [before, location].contains(&OWN_FOLDER);
        if before == location || (!is_own && same_place(before, location)) {
            return Ok(id);
        }
        if has_tables {
            let message =
                format!("the tables of this data folder have their files in {before}, and `lake` says {location}");
            return Err(Error::new(ErrorKind::WrongState, message).with_hint(format!(
                "set `lake` back; or copy all files there while no server runs, and write the new location into the second line of {}",
                mark.display()
            )));
        }
    }
    replace(mark, format!("{id}\n{location}\n").as_bytes()).map_err(failed)?;
    Ok(id)
}

/// The id that the data folder has for its lake, if it has one.
///
/// Errors: as those of a mark that cannot be read.
pub fn known_id(data_dir: &FilePath) -> Result<Option<Uuid>> {
    Ok(marked(&data_dir.join(MARK))?.map(|(id, _)| id))
}

/// The id, and the whole text.
fn marked(mark: &FilePath) -> Result<Option<(Uuid, String)>> {
    let text = match fs::read_to_string(mark) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::new(ErrorKind::Unavailable, format!("{}: {error}", mark.display()))),
    };
    let id = text.lines().next().unwrap_or_default().trim().parse().map_err(|_| {
        Error::new(ErrorKind::Corrupt, format!("{} holds no id: {text:?}", mark.display())).with_hint(
            "its first line is the id that the lake's object _tarn/owner holds, its second the location of the lake",
        )
    })?;
    Ok(Some((id, text)))
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;

    use super::*;

    #[tokio::test]
    async fn a_lake_has_one_owner() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (Uuid::new_v4(), Uuid::new_v4());
        let (store, location) = (InMemory::new(), StoreLocation::parse("s3://bucket/lake").unwrap());
        own(&location, &store, one, dir.path()).await.unwrap();
        own(&location, &store, one, dir.path()).await.unwrap();
        let refused = own(&location, &store, two, dir.path()).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InUse);
        assert!(refused.message().contains("s3://bucket/lake") && refused.hint().unwrap().contains(OWNER), "{refused}");
        store.delete(&Path::from(OWNER)).await.unwrap();
        own(&location, &store, two, dir.path()).await.unwrap();
        assert!(own(&location, &store, one, dir.path()).await.is_err());
    }

    #[test]
    fn a_data_folder_knows_its_lake() {
        let dir = tempfile::tempdir().unwrap();
        let (mark, folder) = (dir.path().join(MARK), Uuid::new_v4());
        let id = mine(&mark, OWN_FOLDER, false, folder).unwrap();
        assert_eq!((id, known_id(dir.path()).unwrap()), (folder, Some(folder)));
        let folder = Uuid::new_v4();
        assert_eq!(mine(&mark, OWN_FOLDER, true, folder).unwrap(), id, "whatever the folder is called by now");
        let refused = mine(&mark, "s3://bucket/lake", true, folder).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::WrongState);
        assert!(refused.message().contains("s3://bucket/lake") && refused.hint().unwrap().contains(MARK), "{refused}");
        assert_eq!(mine(&mark, "s3://bucket/lake", false, folder).unwrap(), id, "nothing is anywhere yet");
        assert_eq!(mine(&mark, "s3://bucket/lake", true, folder).unwrap(), id);
        assert_eq!(mine(&mark, "s3a://bucket/lake/", true, folder).unwrap(), id, "the same place");
        fs::write(&mark, "nobody").unwrap();
        assert_eq!(mine(&mark, OWN_FOLDER, true, folder).unwrap_err().kind(), ErrorKind::Corrupt);
    }
}
