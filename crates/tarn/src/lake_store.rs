//! Where do the lake's files live, and whose are they?
//!
//! A folder or a bucket. One that the settings name has an owner: the object `_tarn/owner` holds the id of the data folder that writes
//! there. Two servers that wrote to one place would each take the other's files for orphans, and remove them.

use std::fs;
use std::io::ErrorKind;
use std::path::Path as FilePath;
use std::sync::Arc;

use object_store::path::Path;
use object_store::{Error as StoreError, ObjectStore, ObjectStoreExt, PutMode, PutOptions};
use tarn_lake::LocalStore;
use uuid::Uuid;

use crate::error::{Result, SqlError, state};
use crate::settings::Settings;
use crate::stores::{Place, chain};
use crate::write::blocking;

/// In the lake: who writes there.
const OWNER: &str = "_tarn/owner";

/// In the data folder: as whom it writes.
const MARK: &str = "LAKE";

/// Opens the place that the settings name, and makes sure that nobody else writes there.
///
/// Errors: `58030` when it cannot be reached or written, `55006` when it is another data folder's.
pub async fn open(settings: &Settings) -> Result<(Place, Arc<dyn ObjectStore>)> {
    let place = Place::parse_for("have the lake in", &settings.lake_location())?;
    let store: Arc<dyn ObjectStore> = match (&place, place.open_bucket()?) {
        (_, Some(bucket)) => {
            place.check().await?;
            bucket
        }
        (Place::Folder(folder), None) => Arc::new(LocalStore::open(folder).map_err(|e| {
            SqlError::new(state::IO_ERROR, format!("open the lake in {}: {e}", folder.display()))
                .with_hint("set `lake` to a folder that can be written")
        })?),
        (Place::S3 { .. }, None) => return Err(place.unavailable("it is no bucket")),
    };
    if settings.lake.is_some() {
        own(&place, store.as_ref(), &settings.data_dir).await?;
    }
    Ok((place, store))
}

async fn own(place: &Place, store: &dyn ObjectStore, data_dir: &FilePath) -> Result<()> {
    let mark = data_dir.join(MARK);
    let own = blocking(move || mine(&mark)).await?;
    let path = Path::from(OWNER);
    let failed = |error: StoreError| place.unavailable(&chain(&error)).with_hint(place.remedy());
    let owner = match store.get(&path).await {
        Ok(found) => found.bytes().await.map_err(failed)?,
        Err(StoreError::NotFound { .. }) => {
            let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
            match store.put_opts(&path, own.to_string().into_bytes().into(), options).await {
                // Read again: a store may not know the condition, and the last one who wrote is the owner.
                Ok(_) | Err(StoreError::AlreadyExists { .. } | StoreError::Precondition { .. }) => {}
                Err(error) => return Err(failed(error)),
            }
            store.get(&path).await.map_err(failed)?.bytes().await.map_err(failed)?
        }
        Err(error) => return Err(failed(error)),
    };
    if owner.as_ref() == own.to_string().as_bytes() {
        return Ok(());
    }
    let message = format!("the lake {place} belongs to another data folder than {}", data_dir.display());
    Err(SqlError::new(state::OBJECT_IN_USE, message).with_hint(format!(
        "give each server a prefix of its own in `lake`; if that data folder is gone for good, remove the object {OWNER} there, and \
         start again"
    )))
}

/// The id of this data folder as the owner of a lake; made when there is none.
fn mine(mark: &FilePath) -> Result<Uuid> {
    let failed = |error: std::io::Error| SqlError::new(state::IO_ERROR, format!("{}: {error}", mark.display()));
    match fs::read_to_string(mark) {
        Ok(text) => text.trim().parse().map_err(|_| {
            SqlError::new(state::DATA_CORRUPTED, format!("{} holds no id: {text:?}", mark.display()))
                .with_hint("put the id of the lake's object _tarn/owner into it")
        }),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let made = Uuid::new_v4();
            let written = mark.with_extension("new");
            let write = || {
                fs::write(&written, format!("{made}\n"))?;
                fs::File::open(&written)?.sync_all()?;
                fs::rename(&written, mark)?;
                mark.parent().map_or(Ok(()), |dir| fs::File::open(dir)?.sync_all())
            };
            write().map_err(failed)?;
            Ok(made)
        }
        Err(error) => Err(failed(error)),
    }
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;

    use super::*;

    #[tokio::test]
    async fn a_lake_has_one_owner() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (store, place) = (InMemory::new(), Place::parse("s3://bucket/lake").unwrap());
        own(&place, &store, one.path()).await.unwrap();
        own(&place, &store, one.path()).await.unwrap();
        let refused = own(&place, &store, two.path()).await.unwrap_err();
        assert_eq!(refused.state(), state::OBJECT_IN_USE);
        assert!(refused.message().contains("s3://bucket/lake") && refused.hint().unwrap().contains(OWNER), "{refused}");
        store.delete(&Path::from(OWNER)).await.unwrap();
        own(&place, &store, two.path()).await.unwrap();
        assert!(own(&place, &store, one.path()).await.is_err());

        fs::write(one.path().join(MARK), "nobody").unwrap();
        assert_eq!(own(&place, &store, one.path()).await.unwrap_err().state(), state::DATA_CORRUPTED);
    }
}
