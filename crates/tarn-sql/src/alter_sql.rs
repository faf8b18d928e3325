//! What do `ALTER TABLE`, `ALTER VIEW` and `ALTER SEQUENCE … RENAME` say?
//!
//! ```sql
//! ALTER TABLE | VIEW | SEQUENCE [IF EXISTS] t RENAME TO u
//! ALTER TABLE [IF EXISTS] [ONLY] t RENAME [COLUMN | CONSTRAINT] a TO b
//! ALTER TABLE [IF EXISTS] [ONLY] t action, …
//! ALTER TABLE [IF EXISTS] [ONLY] t ALTER [COLUMN] a RESTART [WITH n] | SET clause of a sequence …
//! ```
//!
//! What PostgreSQL has beyond the actions that are here is refused by its name. `OWNER TO` is read in `access_sql.rs`.

use datafusion::sql::sqlparser::ast::{
    AlterColumnOperation, AlterTableOperation, ColumnDef, DataType as SqlType, DropBehavior, Expr, TableConstraint,
};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::Token;

use crate::column_rules::SaidCheck;
use crate::ddl::key_of;
use crate::error::{Result, SqlError};
use crate::foreign_rules::SaidForeignKey;
use crate::names::{check_name, fold, is_word, near, take, written_name};
use crate::sequence_sql::{Clauses, column_clauses};
use crate::unique_rules::SaidUnique;

/// A change of something that is there.
#[derive(Debug, Clone, PartialEq)]
pub struct Alter {
    /// What it is said to be; what it is decides whether that is right.
    pub kind: RelationKind,
    /// As it was said, or in full once the schema was found.
    pub name: String,
    /// Then it is no error that it is not there.
    pub if_exists: bool,
    /// What becomes of it.
    pub change: AlterStatement,
}

/// What it is said to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RelationKind {
    /// Or an archive; PostgreSQL takes views and indexes here, too.
    Table,
    View,
    Sequence,
}

/// What becomes of a table, view or sequence.
#[derive(Debug, Clone, PartialEq)]
pub enum AlterStatement {
    /// It is called this from now on, in its schema.
    Rename(String),
    /// It is called as it was, there.
    SetSchema(String),
    /// As they are said; all of them or none.
    Actions(Vec<AlterAction>),
    /// Of an identity column: what its sequence is told.
    Counts { column: String, clauses: Clauses },
}

/// What becomes of a table.
#[derive(Debug, Clone, PartialEq)]
pub enum AlterAction {
    /// Rows that come have this, where nothing is said; those that are there stay as they are.
    SetDefault { column: String, to: Expr },
    /// Rows that come have NULL, where nothing is said.
    DropDefault { column: String },
    /// All rows are looked at first.
    SetNotNull { column: String },
    /// Rows that come may have NULL.
    DropNotNull { column: String },
    /// Of a generated column.
    DropExpression { column: String, if_exists: bool },
    /// All rows are looked at first.
    AddCheck(SaidCheck),
    /// A constraint, or another index: it is made, and filled with the rows that are there.
    AddUnique(SaidUnique),
    /// All rows are looked at.
    AddForeignKey(Box<SaidForeignKey>),
    /// `DROP INDEX`, of one that is no constraint.
    DropIndex { name: String },
    /// `ALTER INDEX … RENAME TO`: a constraint is called as its index is.
    RenameIndex { name: String, to: String },
    /// Whatever kind it is.
    DropConstraint { name: String, if_exists: bool },
    /// All rows are written anew.
    AddPrimaryKey {
        /// Its columns, and whether they descend.
        key: Vec<(String, bool)>,
        /// `None`: it is made of the table's.
        name: Option<String>,
    },
    /// Whatever kind it is.
    RenameConstraint { name: String, to: String },
    /// Its default in the rows that are there, which stay as they are unless it is another value for each.
    AddColumn {
        /// As in `CREATE TABLE`.
        def: Box<ColumnDef>,
        if_not_exists: bool,
    },
    /// Rows and files stay as they are.
    DropColumn(DropColumn),
    /// Rows and files stay as they are.
    RenameColumn { column: String, to: String },
    /// All rows are written anew, unless each value is one of the other type as it is.
    SetType {
        column: String,
        to: SqlType,
        /// What a row has then; `None`: the cast of what it has.
        using: Option<Expr>,
    },
}

/// A column that goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DropColumn {
    pub column: String,
    pub if_exists: bool,
    /// Whether what depends on it goes along.
    pub cascade: bool,
}

impl Alter {
    /// The command tag.
    pub fn tag(&self) -> &'static str {
        match self.kind {
            RelationKind::Table => "ALTER TABLE",
            RelationKind::View => "ALTER VIEW",
            RelationKind::Sequence => "ALTER SEQUENCE",
        }
    }

    /// Whether it is no part of a transaction, as all rows are written anew for it: `ADD PRIMARY KEY`, and most of
    /// `TYPE`, or sequences are not taken back. The others are held until COMMIT.
    pub fn acts_at_once(&self) -> bool {
        match &self.change {
            AlterStatement::Actions(actions) => actions
                .iter()
                .any(|action| matches!(action, AlterAction::AddPrimaryKey { .. } | AlterAction::SetType { .. })),
            AlterStatement::Counts { .. } => true,
            AlterStatement::Rename(_) | AlterStatement::SetSchema(_) => false,
        }
    }
}

/// The statement that begins here, if it is one of these; nothing is taken if it is not.
///
/// Errors: `0A000` for what there is not; `42601`.
pub fn alter(parser: &mut Parser<'_>) -> Result<Option<Alter>> {
    let Some(kind) = kind(parser) else { return Ok(None) };
    parser.next_token();
    parser.next_token();
    let if_exists = take(parser, "if");
    if if_exists && !take(parser, "exists") {
        return Err(near(&parser.peek_token_ref().token));
    }
    if kind == RelationKind::Table {
        take(parser, "only");
    }
    let name = written_name(&parser.parse_object_name(false)?)?;
    let _all_of_it = parser.consume_token(&Token::Mul);
    let change = match take(parser, "rename") {
        true => rename(parser, kind)?,
        false if is_set_schema(parser) => {
            parser.next_token();
            parser.next_token();
            AlterStatement::SetSchema(fold(&parser.parse_identifier()?))
        }
        false if kind == RelationKind::View => return Err(refused_of_view(parser)),
        false => match counts(parser)? {
            Some(counts) => counts,
            None => AlterStatement::Actions(actions(parser)?),
        },
    };
    if !matches!(parser.peek_token_ref().token, Token::EOF | Token::SemiColon) {
        return Err(near(&parser.peek_token_ref().token));
    }
    Ok(Some(Alter { kind, name, if_exists, change }))
}

fn is_set_schema(parser: &Parser<'_>) -> bool {
    let word = |at: usize, text: &str| is_word(&parser.peek_nth_token_ref(at).token, text);
    word(0, "set") && word(1, "schema")
}

/// Of a sequence nothing but `RENAME` is ours.
fn kind(parser: &Parser<'_>) -> Option<RelationKind> {
    let token = |at: usize| &parser.peek_nth_token_ref(at).token;
    let word = |at: usize, text: &str| is_word(token(at), text);
    if !word(0, "alter") {
        return None;
    }
    match () {
        () if word(1, "table") => return Some(RelationKind::Table),
        () if word(1, "view") => return Some(RelationKind::View),
        () if word(1, "sequence") => {}
        () => return None,
    }
    let mut at = if word(2, "if") { 5 } else { 3 };
    while *token(at) == Token::Period {
        at += 2;
    }
    word(at, "rename").then_some(RelationKind::Sequence)
}

fn rename(parser: &mut Parser<'_>, kind: RelationKind) -> Result<AlterStatement> {
    if !take(parser, "to") {
        return match kind {
            RelationKind::View => Err(unsupported("VIEW … RENAME COLUMN", "DROP VIEW it, and make it anew")),
            RelationKind::Table if is_constraint(parser) => rename_constraint(parser),
            RelationKind::Table => rename_column(parser),
            RelationKind::Sequence => Err(near(&parser.peek_token_ref().token)),
        };
    }
    let to = fold(&parser.parse_identifier()?);
    let what = match kind {
        RelationKind::Table => "table",
        RelationKind::View => "view",
        RelationKind::Sequence => "sequence",
    };
    check_name(what, &to)?;
    Ok(AlterStatement::Rename(to))
}

/// A column may be called so, too.
fn is_constraint(parser: &Parser<'_>) -> bool {
    let word = |at: usize, text: &str| is_word(&parser.peek_nth_token_ref(at).token, text);
    word(0, "constraint") && !word(1, "to")
}

/// `CONSTRAINT a TO b`.
fn rename_constraint(parser: &mut Parser<'_>) -> Result<AlterStatement> {
    parser.next_token();
    let name = fold(&parser.parse_identifier()?);
    if !take(parser, "to") {
        return Err(near(&parser.peek_token_ref().token));
    }
    let to = fold(&parser.parse_identifier()?);
    check_name("constraint", &to)?;
    Ok(AlterStatement::Actions(vec![AlterAction::RenameConstraint { name, to }]))
}

/// `[COLUMN] a TO b`.
fn rename_column(parser: &mut Parser<'_>) -> Result<AlterStatement> {
    take(parser, "column");
    let column = fold(&parser.parse_identifier()?);
    if !take(parser, "to") {
        return Err(near(&parser.peek_token_ref().token));
    }
    let to = fold(&parser.parse_identifier()?);
    Ok(AlterStatement::Actions(vec![AlterAction::RenameColumn { column, to }]))
}

fn refused_of_view(parser: &Parser<'_>) -> SqlError {
    let word = parser.peek_token_ref().token.to_string().to_uppercase();
    unsupported(&format!("VIEW … {word}"), "CREATE OR REPLACE VIEW, or DROP VIEW and make it anew; RENAME TO, OWNER TO")
}

fn unsupported(what: &str, instead: &str) -> SqlError {
    SqlError::unsupported(format!("ALTER {what}"), instead)
}

fn actions(parser: &mut Parser<'_>) -> Result<Vec<AlterAction>> {
    let mut actions = vec![];
    loop {
        match drop_expression(parser)? {
            Some(action) => actions.push(action),
            None => {
                refuse(parser)?;
                actions.push(action(parser.parse_alter_table_operation()?)?);
            }
        }
        if !parser.consume_token(&Token::Comma) {
            return Ok(actions);
        }
    }
}

/// `ALTER [COLUMN] c RESTART WITH 5 SET INCREMENT BY 2`, which the parser does not know; nothing is taken of anything
/// else.
fn counts(parser: &mut Parser<'_>) -> Result<Option<AlterStatement>> {
    const SET: [&str; 8] = ["cache", "cycle", "increment", "maxvalue", "minvalue", "no", "restart", "start"];
    let is = |at: usize, text: &str| is_word(&parser.peek_nth_token_ref(at).token, text);
    let at = if is(1, "column") { 2 } else { 1 };
    let is_told = is(at + 1, "restart") || (is(at + 1, "set") && SET.iter().any(|word| is(at + 2, word)));
    if !is(0, "alter") || !is_told {
        return Ok(None);
    }
    (0..at).for_each(|_| drop(parser.next_token()));
    let column = fold(&parser.parse_identifier()?);
    Ok(Some(AlterStatement::Counts { column, clauses: column_clauses(parser)? }))
}

/// `ALTER [COLUMN] c DROP EXPRESSION [IF EXISTS]`, which the parser does not know; nothing is taken of anything else.
fn drop_expression(parser: &mut Parser<'_>) -> Result<Option<AlterAction>> {
    let is = |at: usize, text: &str| is_word(&parser.peek_nth_token_ref(at).token, text);
    let at = if is(1, "column") && !is(2, "drop") { 2 } else { 1 };
    if !is(0, "alter") || !is(at + 1, "drop") || !is(at + 2, "expression") {
        return Ok(None);
    }
    (0..at).for_each(|_| drop(parser.next_token()));
    let column = fold(&parser.parse_identifier()?);
    (0..2).for_each(|_| drop(parser.next_token()));
    let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
    Ok(Some(AlterAction::DropExpression { column, if_exists }))
}

/// What to do instead of an action that begins with these words, where the parser may not even know it.
const REFUSED: [(&[&str], &str); 24] = [
    (&["owner"], "ALTER TABLE t OWNER TO u, without IF EXISTS and by itself"),
    (&["set", "tablespace"], "leave it out: there are no tablespaces"),
    (&["set", "logged"], "leave it out: all tables are logged"),
    (&["set", "unlogged"], "leave it out: all tables are logged"),
    (&["set", "without"], "leave it out: the primary key orders the rows"),
    (&["set", "access"], "leave it out: there is one way to keep rows"),
    (&["set"], "options of WITH stay as they are: CREATE TABLE another, and INSERT INTO … SELECT"),
    (&["reset"], "options of WITH stay as they are: CREATE TABLE another, and INSERT INTO … SELECT"),
    (&["cluster"], "leave it out: the primary key orders the rows"),
    (&["inherit"], "name all columns in one table"),
    (&["no", "inherit"], "name all columns in one table"),
    (&["of"], "leave it out: tables have no type of their own"),
    (&["not", "of"], "leave it out: tables have no type of their own"),
    (&["attach", "partition"], "leave it out: tables are parted by the values of their key"),
    (&["detach", "partition"], "leave it out: tables are parted by the values of their key"),
    (&["enable"], "GRANT says who may read; there are no triggers and rules"),
    (&["disable"], "GRANT says who may read; there are no triggers and rules"),
    (&["force"], "GRANT says who may read"),
    (&["no", "force"], "GRANT says who may read"),
    (&["replica", "identity"], "leave it out: changes are told by the primary key"),
    (&["validate", "constraint"], "leave it out: ADD CONSTRAINT looks at all rows"),
    (&["alter", "constraint"], "leave it out: constraints are checked by each statement"),
    (&["add", "exclude"], "check it in the client"),
    (&["drop", "primary"], "CREATE TABLE … AS makes a table without a key"),
];

/// Refuses an action by its name, before the parser says no more than that it does not know a word.
fn refuse(parser: &Parser<'_>) -> Result<()> {
    let word = |at: usize, text: &str| is_word(&parser.peek_nth_token_ref(at).token, text);
    for (words, instead) in REFUSED {
        if words.iter().enumerate().all(|(at, text)| word(at, text)) {
            return Err(unsupported(&format!("TABLE … {}", words.join(" ").to_uppercase()), instead));
        }
    }
    if !word(0, "alter") {
        return Ok(());
    }
    let at = if word(1, "column") { 3 } else { 2 };
    let follows = |text: &str| word(at + 1, text);
    let refused = match () {
        () if word(at, "set") && !["default", "not", "data"].into_iter().any(follows) => "SET",
        () if word(at, "drop") && !["default", "not"].into_iter().any(follows) => "DROP",
        () if word(at, "reset") => "RESET",
        () if word(at, "add") => "ADD",
        () => return Ok(()),
    };
    let what = parser.peek_nth_token_ref(at + 1).token.to_string().to_uppercase();
    Err(unsupported(
        &format!("TABLE … ALTER COLUMN … {refused} {what}"),
        "columns have a type, a default, and may be NOT NULL; ALTER SEQUENCE changes what an identity column counts by",
    ))
}

fn action(operation: AlterTableOperation) -> Result<AlterAction> {
    match operation {
        AlterTableOperation::AlterColumn { column_name, op } => column_action(fold(&column_name), op),
        AlterTableOperation::AddConstraint { not_valid: true, .. } => {
            Err(unsupported("TABLE … ADD CONSTRAINT … NOT VALID", "leave it out: all rows are looked at"))
        }
        AlterTableOperation::AddConstraint { constraint: TableConstraint::Check(check), not_valid: false } => {
            Ok(AlterAction::AddCheck(SaidCheck::of(&check, None)?))
        }
        AlterTableOperation::AddConstraint { constraint: TableConstraint::PrimaryKey(primary), .. } => {
            let name = primary.name.as_ref().map(fold);
            if let Some(name) = &name {
                check_name("constraint", name)?;
            }
            Ok(AlterAction::AddPrimaryKey { key: key_of(&primary)?, name })
        }
        AlterTableOperation::AddConstraint { constraint: TableConstraint::Unique(unique), .. } => {
            Ok(AlterAction::AddUnique(SaidUnique::of(&unique)?))
        }
        AlterTableOperation::AddConstraint { constraint: TableConstraint::ForeignKey(key), .. } => {
            Ok(AlterAction::AddForeignKey(Box::new(SaidForeignKey::of_written(&key)?)))
        }
        AlterTableOperation::AddConstraint { .. } => {
            let instead = "CHECK, UNIQUE, PRIMARY KEY and FOREIGN KEY are what can be added";
            Err(unsupported("TABLE … ADD CONSTRAINT of this kind", instead))
        }
        AlterTableOperation::DropConstraint { if_exists, name, drop_behavior } => {
            no_cascade("TABLE … DROP CONSTRAINT", drop_behavior)?;
            Ok(AlterAction::DropConstraint { name: fold(&name), if_exists })
        }
        AlterTableOperation::AddColumn { if_not_exists, column_def, column_position: None, column_keyword: _ } => {
            Ok(AlterAction::AddColumn { def: Box::new(column_def), if_not_exists })
        }
        AlterTableOperation::DropColumn { has_column_keyword: _, column_names, if_exists, drop_behavior } => {
            let cascade = drop_behavior == Some(DropBehavior::Cascade);
            match &column_names[..] {
                [column] => Ok(AlterAction::DropColumn(DropColumn { column: fold(column), if_exists, cascade })),
                _ => Err(unsupported("TABLE … DROP COLUMN of several at once", "DROP COLUMN a, DROP COLUMN b")),
            }
        }
        _ => Err(unsupported("TABLE with this action", "docs/sql.md has those there are")),
    }
}

/// On a constraint nothing hangs but foreign keys, which are to be dropped by name.
fn no_cascade(what: &str, behavior: Option<DropBehavior>) -> Result<()> {
    match behavior {
        Some(DropBehavior::Cascade) => Err(unsupported(
            &format!("{what} … CASCADE"),
            "leave it out: nothing depends on it but foreign keys, which you DROP first",
        )),
        Some(DropBehavior::Restrict) | None => Ok(()),
    }
}

fn column_action(column: String, op: AlterColumnOperation) -> Result<AlterAction> {
    Ok(match op {
        AlterColumnOperation::SetNotNull => AlterAction::SetNotNull { column },
        AlterColumnOperation::DropNotNull => AlterAction::DropNotNull { column },
        AlterColumnOperation::SetDefault { value } => AlterAction::SetDefault { column, to: value },
        AlterColumnOperation::DropDefault => AlterAction::DropDefault { column },
        AlterColumnOperation::SetDataType { data_type, using, had_set: _ } => {
            AlterAction::SetType { column, to: data_type, using }
        }
        AlterColumnOperation::AddGenerated { .. } => {
            return Err(unsupported("TABLE … ADD GENERATED", "SET DEFAULT nextval('a sequence')"));
        }
    })
}

#[cfg(test)]
mod tests {
    use tarn_types::full_name;

    use super::*;
    use crate::error::state;
    use crate::statement::{ParsedSql, parse};

    fn of(sql: &str) -> Alter {
        match parse(sql).unwrap_or_else(|error| panic!("{sql}: {error}")).remove(0) {
            ParsedSql::Alter(alter) => *alter,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn names_and_actions_are_read() {
        let renamed = of("ALTER TABLE IF EXISTS \"tarn\".\"public\".\"T\" RENAME TO \"U\"");
        assert_eq!(of("ALTER TABLE t SET SCHEMA S").change, AlterStatement::SetSchema("s".to_owned()));
        let rename = AlterStatement::Rename("U".to_owned());
        let name = full_name::said("public", "T");
        assert_eq!(renamed, Alter { kind: RelationKind::Table, name, if_exists: true, change: rename });
        assert_eq!(of("alter view v rename to w").tag(), "ALTER VIEW");
        assert_eq!(of("ALTER SEQUENCE IF EXISTS public.s RENAME TO r").name, full_name::said("public", "s"));
        let AlterStatement::Actions(actions) =
            of("ALTER TABLE ONLY t ALTER a SET NOT NULL, ALTER COLUMN b DROP DEFAULT, ADD CONSTRAINT c CHECK (a > 0)")
                .change
        else {
            panic!("no actions")
        };
        assert_eq!(
            actions[..2],
            [AlterAction::SetNotNull { column: "a".into() }, AlterAction::DropDefault { column: "b".into() }]
        );
        assert!(matches!(actions[2], AlterAction::AddCheck(_)));
    }

    #[test]
    fn columns_are_called_otherwise_with_and_without_the_word() {
        for sql in ["ALTER TABLE t RENAME COLUMN a TO \"B\"", "alter table only t rename A to \"B\""] {
            let rename = AlterAction::RenameColumn { column: "a".into(), to: "B".into() };
            assert_eq!(of(sql).change, AlterStatement::Actions(vec![rename]), "{sql}");
        }
    }

    #[test]
    fn columns_are_dropped_with_and_without_the_word() {
        for (sql, if_exists, cascade) in [
            ("ALTER TABLE t DROP COLUMN a", false, false),
            ("alter table t drop if exists A restrict", true, false),
            ("ALTER TABLE t DROP COLUMN IF EXISTS a CASCADE", true, true),
        ] {
            let drop = AlterAction::DropColumn(DropColumn { column: "a".into(), if_exists, cascade });
            assert_eq!(of(sql).change, AlterStatement::Actions(vec![drop]), "{sql}");
        }
    }

    #[test]
    fn what_there_is_not_is_refused_by_its_name() {
        for (sql, want) in [
            ("ALTER TABLE t SET (fillfactor = 70)", "ALTER TABLE … SET"),
            ("ALTER TABLE t CLUSTER ON i", "ALTER TABLE … CLUSTER"),
            ("ALTER TABLE t ENABLE ROW LEVEL SECURITY", "ALTER TABLE … ENABLE"),
            ("ALTER TABLE t ALTER a SET STATISTICS 100", "ALTER TABLE … ALTER COLUMN … SET STATISTICS"),
            ("ALTER TABLE t ALTER a DROP IDENTITY", "ALTER TABLE … ALTER COLUMN … DROP IDENTITY"),
            ("ALTER TABLE t ADD CONSTRAINT c CHECK (a > 0) NOT VALID", "ALTER TABLE … ADD CONSTRAINT … NOT VALID"),
            ("ALTER VIEW v SET (security_barrier)", "ALTER VIEW … SET"),
        ] {
            let refused = parse(sql).expect_err(sql);
            assert_eq!(refused.state(), state::FEATURE_NOT_SUPPORTED, "{sql}");
            assert!(refused.message().starts_with(want), "{sql}: {refused}");
        }
        for sql in [
            "ALTER TABLE t",
            "ALTER TABLE t RENAME TO",
            "ALTER TABLE t RENAME TO u v",
            "ALTER TABLE t RENAME a b",
            "ALTER TABLE t RENAME COLUMN a TO",
            "ALTER TABLE t DROP",
        ] {
            assert_eq!(parse(sql).expect_err(sql).state(), state::SYNTAX_ERROR, "{sql}");
        }
    }
}
