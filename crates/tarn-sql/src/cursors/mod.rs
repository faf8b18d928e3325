//! What are a session's cursors? [`cursor`]: one, and where it stands; [`kept`]: its rows, where they may be asked for
//! again; [`book`]: all of a session by name, and how long each lives; [`table`]: `pg_cursors`.

pub mod book;
pub mod cursor;
pub mod kept;
pub mod table;
