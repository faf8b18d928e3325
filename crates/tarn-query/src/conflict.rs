//! What does an `INSERT` do about a key that is there? Its own words say it: `UPSERT`, `ON CONFLICT …`, or nothing.
//!
//! Pure: from the parsed statement and the table's schema to an [`OnKey`].

use std::collections::BTreeSet;

use datafusion::sql::sqlparser::ast::{
    Assignment, AssignmentTarget, ConflictTarget, DoUpdate, Expr, Ident, Insert, OnConflict, OnConflictAction, OnInsert,
};
use datafusion::sql::sqlparser::parser::ParserError;
use tarn_types::{ColumnId, TableSchema, Unique, full_name};

use crate::parser::{ParseError, fold};
use crate::{Error, Result};

/// What is called by the rows that were to be inserted.
pub(crate) const EXCLUDED: &str = "excluded";

/// What happens to a row whose key is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnKey {
    /// The statement is refused: a plain `INSERT`.
    Refuse,
    /// It replaces the one that is there: `UPSERT`. So it is written, too, where keys are not unique, and where no row
    /// has another's.
    Replace,
    /// As [`OnKey::Replace`], but of two rows of one key in one statement the statement is refused: `ON CONFLICT (key)
    /// DO UPDATE` of all other columns to what was to be inserted.
    ReplaceOnce,
    /// It is left out: `ON CONFLICT DO NOTHING`.
    Keep,
    /// The one that is there is changed: `ON CONFLICT (key) DO UPDATE`. Two rows of one key are refused.
    Change,
}

/// By what a row that is there is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arbiter {
    /// By the primary key.
    Key,
    /// By the values of a unique constraint: its place among those of the table.
    Unique(usize),
    /// By any of them: nothing is named.
    Any,
}

/// What an `INSERT` into `table` does about keys that are there.
///
/// Errors: [`Error::ConflictTarget`] and [`Error::NoConstraint`] for what is not the key; `Sql` for `DO UPDATE` without
/// a target; `Unsupported` where keys are not unique.
pub(crate) fn on_key(insert: &Insert, table: &TableSchema) -> Result<OnKey> {
    let has_keys = !table.is_keyless() && !table.options.append_only;
    let on = match &insert.on {
        None if insert.replace_into && has_keys => return Ok(OnKey::Replace),
        None if insert.replace_into => return Err(no_keys("UPSERT INTO", table)),
        None if has_keys => return Ok(OnKey::Refuse),
        None => return Ok(OnKey::Replace),
        Some(OnInsert::OnConflict(on)) => on,
        Some(on) => {
            return Err(Error::Unsupported {
                what: on.to_string().trim().to_owned(),
                remedy: "use ON CONFLICT (key) DO UPDATE SET …",
            });
        }
    };
    if table.options.append_only {
        return Err(no_keys("ON CONFLICT on", table));
    }
    let arbiter = target(on, table)?;
    match &on.action {
        // No row is refused for its key.
        OnConflictAction::DoNothing if table.is_keyless() && !table.has_indexes() => Ok(OnKey::Replace),
        OnConflictAction::DoNothing => Ok(OnKey::Keep),
        OnConflictAction::DoUpdate(_) if on.conflict_target.is_none() => {
            let message = "ON CONFLICT DO UPDATE requires inference specification or constraint name";
            Err(ParseError::Syntax(ParserError::ParserError(message.to_owned())).into())
        }
        OnConflictAction::DoUpdate(update)
            if arbiter == Arbiter::Key && called(insert, table) != EXCLUDED && replaces_all(update, table) =>
        {
            Ok(OnKey::ReplaceOnce)
        }
        OnConflictAction::DoUpdate(_) => Ok(OnKey::Change),
    }
}

/// By what an `INSERT` into `table` finds rows that are there.
///
/// Errors: as of [`on_key`].
pub(crate) fn arbiter(insert: &Insert, table: &TableSchema) -> Result<Arbiter> {
    match &insert.on {
        Some(OnInsert::OnConflict(on)) => target(on, table),
        _ => Ok(Arbiter::Key),
    }
}

/// `DO UPDATE` of the conflict clause.
pub(crate) fn update_of(insert: &Insert) -> Option<&DoUpdate> {
    match &insert.on {
        Some(OnInsert::OnConflict(OnConflict { action: OnConflictAction::DoUpdate(update), .. })) => Some(update),
        _ => None,
    }
}

/// What the table is called behind its rows.
pub(crate) fn called(insert: &Insert, table: &TableSchema) -> String {
    let alone = || full_name::bare(&table.name).to_owned();
    insert.table_alias.as_ref().map_or_else(alone, |alias| fold(&alias.alias))
}

/// Whether an assignment sets a column to what was to be inserted there, or to itself: of a key column both are the
/// same.
pub(crate) fn is_its_own(assignment: &Assignment, of_row: &str) -> Option<String> {
    let AssignmentTarget::ColumnName(name) = &assignment.target else { return None };
    let [name] = &name.0[..] else { return None };
    let column = fold(name.as_ident()?);
    let Expr::CompoundIdentifier(parts) = &assignment.value else { return None };
    let [of, value] = &parts[..] else { return None };
    (fold(of) == of_row && fold(value) == column).then_some(column)
}

fn no_keys(what: &str, table: &TableSchema) -> Error {
    let (what, remedy) = match table.is_keyless() {
        true => {
            (format!("{what} table {}, which has no primary key,", table.name), "make the table with PRIMARY KEY (…)")
        }
        false => (format!("{what} append-only table {}", table.name), "create the table without append_only"),
    };
    Error::Unsupported { what, remedy }
}

fn target(on: &OnConflict, table: &TableSchema) -> Result<Arbiter> {
    match &on.conflict_target {
        None if !table.has_indexes() => Ok(Arbiter::Key),
        None => Ok(Arbiter::Any),
        Some(ConflictTarget::Columns(columns)) => of_columns(columns, table),
        Some(ConflictTarget::OnConstraint(name)) => {
            let name = name.0.last().and_then(|part| part.as_ident()).map(fold).unwrap_or_default();
            if let Some(at) =
                table.options.rules.uniques.iter().position(|unique| unique.name == name && !unique.by_index)
            {
                return Ok(Arbiter::Unique(at));
            }
            match table.is_key_named(&name) {
                true => Ok(Arbiter::Key),
                false => Err(Error::NoConstraint { table: table.name.clone(), name }),
            }
        }
    }
}

fn of_columns(columns: &[Ident], table: &TableSchema) -> Result<Arbiter> {
    let mut named = Vec::with_capacity(columns.len());
    for column in columns.iter().map(fold) {
        let place = table.shown().iter().position(|known| known.name == column);
        let unknown = || tarn_types::Error::UnknownColumn { table: table.name.clone(), column: column.clone() };
        named.push(place.ok_or_else(|| Error::types(&table.name)(unknown()))?);
    }
    let is_key = |idx: &usize| table.key.iter().any(|part| part.column_idx == *idx);
    if named.iter().all(is_key) && table.key.iter().all(|part| named.contains(&part.column_idx)) {
        return Ok(Arbiter::Key);
    }
    let named: BTreeSet<ColumnId> = named.into_iter().map(|at| table.columns[at].id).collect();
    let is_named =
        |unique: &Unique| !unique.repeats && unique.columns.iter().copied().collect::<BTreeSet<_>>() == named;
    match table.options.rules.uniques.iter().position(is_named) {
        Some(at) => Ok(Arbiter::Unique(at)),
        None => Err(Error::ConflictTarget { table: table.name.clone(), key: key_names(table) }),
    }
}

/// `a, b`; nothing where nobody named a key.
fn key_names(table: &TableSchema) -> String {
    match table.is_keyless() {
        true => String::new(),
        false => table.key_columns().map(|column| column.name.as_str()).collect::<Vec<_>>().join(", "),
    }
}

/// `SET` of every other column to what was to be inserted: the row is replaced.
fn replaces_all(update: &DoUpdate, table: &TableSchema) -> bool {
    let DoUpdate { assignments, selection: None } = update else { return false };
    let replaced = |assignment| table.column(&is_its_own(assignment, EXCLUDED)?).map(|(idx, _)| idx);
    let Some(replaced) = assignments.iter().map(replaced).collect::<Option<Vec<usize>>>() else { return false };
    (0..table.columns.len()).all(|idx| table.is_key(idx) || replaced.contains(&idx))
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::ast::Statement;
    use tarn_types::{Column, ColumnId, DataType, KeyPart, TableId, TableOptions, TabletId};

    use super::*;

    fn table(append_only: bool) -> TableSchema {
        let column = |id, name: &str| Column {
            id: ColumnId(id),
            name: name.into(),
            data_type: DataType::Int64,
            nullable: id > 2,
            default: None,
        };
        TableSchema {
            id: TableId(1),
            name: "t".into(),
            columns: vec![column(1, "a"), column(2, "b"), column(3, "v"), column(4, "w")],
            key: [0, 1].map(|column_idx| KeyPart { column_idx, descending: false }).into(),
            n_partition_key: 1,
            first_tablet: TabletId(1),
            options: TableOptions { append_only, ..TableOptions::default() },
        }
    }

    fn of(sql: &str, append_only: bool) -> Result<OnKey> {
        let Statement::Insert(insert) = crate::parser::statements(sql)?.remove(0) else { panic!("{sql}") };
        on_key(&insert, &table(append_only))
    }

    #[test]
    fn the_words_of_an_insert_say_what_becomes_of_a_key_that_is_there() {
        let all = "SET v = excluded.v, w = EXCLUDED.w";
        for (sql, want) in [
            ("INSERT INTO t VALUES (1, 2, 3, 4)".to_owned(), OnKey::Refuse),
            ("UPSERT INTO t VALUES (1, 2, 3, 4)".to_owned(), OnKey::Replace),
            ("upsert INTO public.t (a, b) SELECT 1, 2".to_owned(), OnKey::Replace),
            ("INSERT INTO t VALUES (1, 2, 3, 4) ON CONFLICT DO NOTHING".to_owned(), OnKey::Keep),
            ("INSERT INTO t VALUES (1, 2, 3, 4) ON CONFLICT (b, a) DO NOTHING".to_owned(), OnKey::Keep),
            ("INSERT INTO t VALUES (1, 2, 3, 4) ON CONFLICT ON CONSTRAINT t_pkey DO NOTHING".to_owned(), OnKey::Keep),
            (format!("INSERT INTO t VALUES (1, 2, 3, 4) ON CONFLICT (a, b) DO UPDATE {all}"), OnKey::ReplaceOnce),
            (
                format!("INSERT INTO t VALUES (1, 2, 3, 4) ON CONFLICT (a, b) DO UPDATE {all}, a = excluded.a"),
                OnKey::ReplaceOnce,
            ),
            (
                format!("INSERT INTO t VALUES (1, 2, 3, 4) ON CONFLICT (a, b) DO UPDATE {all} WHERE t.v < 3"),
                OnKey::Change,
            ),
            (
                "INSERT INTO t VALUES (1, 2, 3, 4) ON CONFLICT (a, b) DO UPDATE SET v = excluded.v".to_owned(),
                OnKey::Change,
            ),
            (
                "INSERT INTO t VALUES (1, 2, 3, 4) ON CONFLICT (a, b) DO UPDATE SET v = excluded.w, w = excluded.v"
                    .to_owned(),
                OnKey::Change,
            ),
        ] {
            assert_eq!(of(&sql, false).unwrap(), want, "{sql}");
        }
        assert_eq!(of("INSERT INTO t VALUES (1, 2, 3, 4)", true).unwrap(), OnKey::Replace);
    }

    #[test]
    fn what_is_not_the_key_is_refused() {
        let refused = |sql: &str| of(sql, false).unwrap_err();
        for target in ["(a)", "(a, v)", "(a, b, v)"] {
            let sql = format!("INSERT INTO t VALUES (1, 2, 3, 4) ON CONFLICT {target} DO NOTHING");
            assert!(matches!(refused(&sql), Error::ConflictTarget { .. }), "{sql}");
        }
        let unknown = refused("INSERT INTO t VALUES (1, 2, 3, 4) ON CONFLICT (c) DO NOTHING");
        assert!(matches!(unknown, Error::Types { .. }), "{unknown}");
        let other = refused("INSERT INTO t VALUES (1, 2, 3, 4) ON CONFLICT ON CONSTRAINT t_key DO NOTHING");
        assert!(matches!(other, Error::NoConstraint { .. }), "{other}");
        let bare = refused("INSERT INTO t VALUES (1, 2, 3, 4) ON CONFLICT DO UPDATE SET v = 1");
        assert!(bare.to_string().contains("requires inference specification"), "{bare}");
        for sql in ["UPSERT INTO t VALUES (1, 2, 3, 4)", "INSERT INTO t VALUES (1, 2, 3, 4) ON CONFLICT DO NOTHING"] {
            assert!(matches!(of(sql, true), Err(Error::Unsupported { .. })), "{sql}");
        }
    }

    #[test]
    fn rows_are_found_by_what_is_named() {
        let mut table = table(false);
        let unique = |name: &str, columns: &[u32]| Unique {
            name: name.into(),
            columns: columns.iter().map(|id| ColumnId(*id)).collect(),
            ..Unique::default()
        };
        let w = Unique { by_index: true, repeats: true, ..unique("t_w_idx", &[4]) };
        table.options.rules.uniques = vec![unique("t_v_key", &[3]), unique("both", &[4, 3]), w];
        let of = |on: &str| {
            let sql = format!("INSERT INTO t VALUES (1, 2, 3, 4) ON CONFLICT {on}");
            let Statement::Insert(insert) = crate::parser::statements(&sql).unwrap().remove(0) else { panic!("{sql}") };
            (arbiter(&insert, &table).unwrap(), on_key(&insert, &table).unwrap())
        };
        assert_eq!(of("DO NOTHING"), (Arbiter::Any, OnKey::Keep));
        assert_eq!(of("(a, b) DO NOTHING"), (Arbiter::Key, OnKey::Keep));
        assert_eq!(of("(v) DO NOTHING"), (Arbiter::Unique(0), OnKey::Keep));
        assert_eq!(of("(v, w) DO NOTHING"), (Arbiter::Unique(1), OnKey::Keep));
        assert_eq!(of("ON CONSTRAINT both DO NOTHING"), (Arbiter::Unique(1), OnKey::Keep));
        let all = "DO UPDATE SET v = excluded.v, w = excluded.w";
        assert_eq!(of(&format!("(v) {all}")), (Arbiter::Unique(0), OnKey::Change));
        assert_eq!(of(&format!("(a, b) {all}")), (Arbiter::Key, OnKey::ReplaceOnce));
        // An index whose values may repeat holds no row to anything.
        let by_w = "INSERT INTO t VALUES (1, 2, 3, 4) ON CONFLICT (w) DO NOTHING";
        let Statement::Insert(insert) = crate::parser::statements(by_w).unwrap().remove(0) else { panic!("{by_w}") };
        assert!(matches!(arbiter(&insert, &table), Err(Error::ConflictTarget { .. })));
    }
}
