//! How is kept what one document of the metastore says whole: types, schemas, functions? It is read when the node
//! opens, and is in memory for whoever asks from then on. Each change is one write of the document: whoever dies, it is
//! what it was or what it is to be.
//!
//! A document that is not understood is never written over.

use std::sync::Arc;

use parking_lot::RwLock;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tarn_metastore::{Metastore, document, put_document};

use crate::error::{Error, ErrorKind, Result};

/// How often a change is tried that others get in the way of.
pub(crate) const TRIES: usize = 5;

/// What a document says.
pub(crate) trait DocumentFormat: Clone + Default + PartialEq + Serialize + DeserializeOwned + Send {
    /// The name of the document: what it is of.
    const NAME: &'static str;
    /// The only format that this build reads.
    const FORMAT: u8;
    /// What to do when it is longer than a document may be.
    const SHORTER: &'static str;

    /// That of the document, which it says itself.
    fn format(&self) -> u8;
}

/// Errors: `Corrupt` for a text that is no such document, or is of another format.
pub(crate) fn of_text<F: DocumentFormat>(text: &str) -> Result<F> {
    let corrupt = |why: String| {
        Error::new(ErrorKind::Corrupt, format!("the metastore's document of {}: {why}", F::NAME))
            .with_hint("restore the metastore, or use a newer build")
    };
    let form: F = serde_json::from_str(text).map_err(|error| corrupt(error.to_string()))?;
    match form.format() {
        known if known == F::FORMAT => Ok(form),
        other => Err(corrupt(format!("it has format {other}, this build reads {}", F::FORMAT))),
    }
}

/// The document, and its version; before the first change what is there by default.
///
/// Errors: the metastore's; as of [`of_text`].
pub(crate) async fn read<F: DocumentFormat>(metastore: &dyn Metastore) -> Result<(F, u64)> {
    Ok(match document(metastore, F::NAME).await? {
        None => (F::default(), 0),
        Some(document) => (of_text(&document.text)?, document.version),
    })
}

/// Writes the document behind a version. False: others changed it meanwhile, and it is to be read again.
///
/// Errors: `ProgramLimit` when it is longer than a document may be; the metastore's.
pub(crate) async fn write<F: DocumentFormat>(metastore: &dyn Metastore, version: u64, form: &F) -> Result<bool> {
    let text = serde_json::to_string(form).expect("documents have a JSON form");
    match put_document(metastore, F::NAME, version, &text).await {
        Ok(_) => Ok(true),
        Err(tarn_metastore::Error::DocumentChanged { .. }) => Ok(false),
        Err(error @ tarn_metastore::Error::DocumentTooLong { .. }) => {
            Err(Error::new(ErrorKind::ProgramLimit, format!("{}: {error}", F::NAME)).with_hint(F::SHORTER))
        }
        Err(error) => Err(error.into()),
    }
}

/// After [`TRIES`].
pub(crate) fn changed_by_others<F: DocumentFormat>() -> Error {
    Error::new(ErrorKind::Conflict, format!("others changed {} again and again", F::NAME)).with_hint("try again")
}

/// What is known of a document: `S`, which is shared with whoever asks.
pub(crate) struct DocumentStore<F, S = F> {
    metastore: Arc<dyn Metastore>,
    shared: fn(F) -> S,
    /// Held for moments only.
    known: RwLock<Arc<S>>,
    /// One change at a time.
    changing: tokio::sync::Mutex<()>,
}

impl<F: DocumentFormat, S> DocumentStore<F, S> {
    /// Reads it; `shared` makes of it what is shared.
    ///
    /// Errors: as of [`read`].
    pub async fn open(metastore: Arc<dyn Metastore>, shared: fn(F) -> S) -> Result<DocumentStore<F, S>> {
        let (form, _) = read(&*metastore).await?;
        let known = RwLock::new(Arc::new(shared(form)));
        Ok(DocumentStore { metastore, shared, known, changing: tokio::sync::Mutex::default() })
    }

    /// As it is now.
    pub fn known(&self) -> Arc<S> {
        Arc::clone(&self.known.read())
    }

    /// Changes it. Durable when it returns. `change` may be called several times, and of what it leaves as it is
    /// nothing is written.
    ///
    /// Errors: those of `change`; as of [`write`]; `Conflict` when others change it again and again.
    pub async fn change<T>(&self, change: impl Fn(&mut F) -> Result<T>) -> Result<T> {
        let _one = self.changing.lock().await;
        for _ in 0..TRIES {
            let (before, version) = read::<F>(&*self.metastore).await?;
            let mut form = before.clone();
            let done = change(&mut form)?;
            if form != before && !write(&*self.metastore, version, &form).await? {
                continue;
            }
            *self.known.write() = Arc::new((self.shared)(form));
            return Ok(done);
        }
        Err(changed_by_others::<F>())
    }
}
