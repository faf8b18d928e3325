//! In which order do the parts of `WITH x AS (DELETE … RETURNING *), y AS (SELECT …) INSERT INTO t SELECT … FROM x, y`
//! run, and what do they read of each other?
//!
//! As in PostgreSQL. The statement behind the WITH runs first, and before it what it reads, and what that reads; then
//! the changes that nobody read, the last of them first. Of two that change one row the first does.
//!
//! ```text
//! a change that others read        its rows, as RETURNING says        relation "__with"."x"
//! a query that others read         its rows, computed once            relation "__with"."y"
//! a query that the last one alone reads, if that is a query itself    stays where it is: what is large need not be in memory
//! ```

use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    Cte, Ident, ObjectName, ObjectNamePart, Query, SetExpr, Statement, TableAlias, With,
};
use tarn_query::parser::{put_tables, statements};

use crate::error::{Result, SqlError, state};
use crate::names::{fold, quote};

/// The schema of what parts read of each other. Nothing is in it but while they are planned.
pub(crate) const WITH: &str = "__with";

/// Such a statement.
#[derive(Debug, Clone, PartialEq)]
pub struct WithSql {
    /// Whether each may name those behind it, and itself.
    recursive: bool,
    named: Vec<WithQuery>,
    /// The statement that answers.
    pub(crate) last: Statement,
}

/// What WITH names.
#[derive(Debug, Clone, PartialEq)]
struct WithQuery {
    alias: TableAlias,
    statement: Statement,
}

/// What one part is.
#[derive(Debug)]
pub(crate) struct WithStep {
    /// What others call its rows, and their columns. `None`: it is the last part, which answers.
    pub alias: Option<TableAlias>,
    /// It reads the rows of others from schema [`WITH`].
    pub statement: Statement,
    /// Whether it runs: PostgreSQL looks at a query that nobody reads, but does not run it.
    pub runs: bool,
}

impl WithSql {
    /// Errors: `42712` for a name that is there twice.
    pub(crate) fn new(recursive: bool, named: Vec<(TableAlias, Statement)>, last: Statement) -> Result<WithSql> {
        for (at, (alias, _)) in named.iter().enumerate() {
            let name = fold(&alias.name);
            if named[..at].iter().any(|(other, _)| fold(&other.name) == name) {
                let message = format!("WITH query name \"{name}\" specified more than once");
                return Err(SqlError::new(state::DUPLICATE_ALIAS, message));
            }
        }
        let named = named.into_iter().map(|(alias, statement)| WithQuery { alias, statement }).collect();
        Ok(WithSql { recursive, named, last })
    }

    /// The statements in it, with what each may name beside tables: the first so many of [`WithSql::names`].
    pub(crate) fn statements_mut(&mut self) -> impl Iterator<Item = (&mut Statement, usize)> {
        let (n_named, recursive) = (self.named.len(), self.recursive);
        let named = self.named.iter_mut().enumerate();
        let named = named.map(move |(at, named)| (&mut named.statement, if recursive { n_named } else { at }));
        named.chain([(&mut self.last, n_named)])
    }

    /// What WITH names, in order.
    pub(crate) fn names(&self) -> Vec<String> {
        self.named.iter().map(|named| fold(&named.alias.name)).collect()
    }

    /// The parts, each behind those that it reads.
    ///
    /// Errors: `0A000`, `42P19` as PostgreSQL says them, of what reads itself and of changes that give no rows.
    pub(crate) fn steps(&self) -> Result<Vec<WithStep>> {
        let last = self.named.len();
        let reads = (0..=last).map(|at| self.reads(at)).collect::<Result<Vec<_>>>()?;
        let kept = self.kept(&reads);
        let order = self.order(&reads, &kept)?;
        let n_run = order.len();
        let unread = (0..last).filter(|at| !order.contains(at) && !kept[*at]).collect::<Vec<_>>();
        let steps = order.into_iter().chain(unread).enumerate().map(|(place, at)| {
            let mut statement = self.put(at, &kept)?;
            let mut alias = self.named.get(at).map(|named| named.alias.clone());
            if at == last {
                let with = (0..last).filter(|at| kept[*at]).map(|at| Ok(self.cte(at, self.put(at, &kept)?)));
                put_before(&mut statement, self.recursive, with.collect::<Result<Vec<_>>>()?.into_iter().flatten())?;
            } else if self.recursive && is_query(&statement) {
                // It may read itself, and its columns have their names there.
                let around = all_of(&self.named[at].alias.name)?;
                let cte = self.cte(at, std::mem::replace(&mut statement, around));
                put_before(&mut statement, true, cte.into_iter())?;
                alias = alias.map(|alias| TableAlias { columns: vec![], ..alias });
            }
            Ok(WithStep { alias, statement, runs: place < n_run })
        });
        steps.collect()
    }

    fn statement(&self, at: usize) -> &Statement {
        self.named.get(at).map_or(&self.last, |named| &named.statement)
    }

    /// How many of the names a part may say.
    fn n_visible(&self, at: usize) -> usize {
        if self.recursive { self.named.len() } else { at }
    }

    /// The parts that one reads, in the order of the text.
    fn reads(&self, at: usize) -> Result<Vec<usize>> {
        let names = self.names();
        let visible = &names[..self.n_visible(at)];
        let (mut reads, mut is_itself) = (vec![], false);
        let mut put = |name: &str| {
            let found = visible.iter().position(|other| other == name)?;
            is_itself |= found == at;
            if found == at {
                return None;
            }
            if !reads.contains(&found) {
                reads.push(found);
            }
            Some(relation(name))
        };
        put_tables(&mut self.statement(at).clone(), &mut put)?;
        if is_itself && !is_query(self.statement(at)) {
            let message = format!("recursive query \"{}\" must not contain data-modifying statements", names[at]);
            return Err(SqlError::new(state::INVALID_RECURSION, message));
        }
        match reads.iter().find(|found| !gives_rows(self.statement(**found))) {
            None => Ok(reads),
            Some(found) => {
                let message = format!("WITH query \"{}\" does not have a RETURNING clause", names[*found]);
                Err(SqlError::new(state::FEATURE_NOT_SUPPORTED, message).with_hint("RETURNING says what is read of it"))
            }
        }
    }

    /// A part that reads the rows of others where they are.
    fn put(&self, at: usize, kept: &[bool]) -> Result<Statement> {
        let names = self.names();
        let visible = &names[..self.n_visible(at)];
        let mut statement = self.statement(at).clone();
        let mut put = |name: &str| {
            let found = visible.iter().position(|other| other == name)?;
            (found != at && !kept[found]).then(|| relation(name))
        };
        put_tables(&mut statement, &mut put)?;
        Ok(statement)
    }

    /// Which queries stay in the WITH of the last part, because nothing else reads them.
    fn kept(&self, reads: &[Vec<usize>]) -> Vec<bool> {
        let last = self.named.len();
        let takes = match &self.last {
            Statement::Query(_) => true,
            Statement::Insert(insert) => insert.source.is_some(),
            _ => false,
        };
        let mut kept: Vec<bool> = (0..last).map(|at| takes && is_query(self.statement(at))).collect();
        let is_read_elsewhere = |at: usize, kept: &[bool]| (0..last).any(|by| reads[by].contains(&at) && !kept[by]);
        // What reads one of these may turn out to be none.
        while let Some(at) = (0..last).find(|at| kept[*at] && is_read_elsewhere(*at, &kept)) {
            kept[at] = false;
        }
        kept
    }

    /// What runs, in order, without what is kept.
    fn order(&self, reads: &[Vec<usize>], kept: &[bool]) -> Result<Vec<usize>> {
        let (mut order, last) = (vec![], self.named.len());
        visit(last, reads, &mut order, &mut vec![])?;
        for at in (0..last).rev().filter(|at| !is_query(self.statement(*at))) {
            visit(at, reads, &mut order, &mut vec![])?;
        }
        order.retain(|at| *at == last || !kept[*at]);
        Ok(order)
    }

    /// A query as WITH has it.
    fn cte(&self, at: usize, statement: Statement) -> Option<Cte> {
        let Statement::Query(query) = statement else { return None };
        let (alias, closing_paren_token) = (self.named[at].alias.clone(), AttachedToken::empty());
        Some(Cte { alias, query, from: None, materialized: None, closing_paren_token })
    }
}

/// Puts a part behind those that it reads.
fn visit(at: usize, reads: &[Vec<usize>], order: &mut Vec<usize>, around: &mut Vec<usize>) -> Result<()> {
    if order.contains(&at) {
        return Ok(());
    }
    if around.contains(&at) {
        let message = "mutual recursion between WITH items is not implemented";
        return Err(SqlError::new(state::FEATURE_NOT_SUPPORTED, message));
    }
    around.push(at);
    reads[at].iter().try_for_each(|read| visit(*read, reads, order, around))?;
    around.pop();
    order.push(at);
    Ok(())
}

fn is_query(statement: &Statement) -> bool {
    matches!(statement, Statement::Query(_))
}

fn gives_rows(statement: &Statement) -> bool {
    match statement {
        Statement::Insert(insert) => insert.returning.is_some(),
        Statement::Update(update) => update.returning.is_some(),
        Statement::Delete(delete) => delete.returning.is_some(),
        _ => true,
    }
}

/// What the rows of a part are read as.
fn relation(name: &str) -> ObjectName {
    let part = |name: &str| ObjectNamePart::Identifier(Ident::with_quote('"', name));
    ObjectName(vec![part(WITH), part(name)])
}

/// `SELECT * FROM name`
fn all_of(name: &Ident) -> Result<Statement> {
    let all = statements(&format!("SELECT * FROM {}", quote(&fold(name))))?.pop();
    all.ok_or_else(|| SqlError::new(state::INTERNAL, "a SELECT is no statement"))
}

/// Puts a WITH before the query that a statement is, or inserts.
fn put_before(statement: &mut Statement, recursive: bool, with: impl Iterator<Item = Cte>) -> Result<()> {
    let cte_tables: Vec<Cte> = with.collect();
    if cte_tables.is_empty() {
        return Ok(());
    }
    let query = match statement {
        Statement::Query(query) => Some(query),
        Statement::Insert(insert) => insert.source.as_mut(),
        _ => None,
    };
    let Some(query) = query else { return Err(SqlError::new(state::INTERNAL, "WITH before what is no query")) };
    let with = With { with_token: AttachedToken::empty(), recursive, cte_tables };
    if query.with.is_some() {
        let Statement::Query(mut around) = all_of(&Ident::new("x"))? else { return Ok(()) };
        *around.body = SetExpr::Query(std::mem::replace(query, Box::new(Query::clone(&around))));
        *query = around;
    }
    query.with = Some(with);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::error::SqlError;
    use crate::statement::{ParsedSql, parse};

    fn steps(sql: &str) -> Result<Vec<String>, SqlError> {
        let ParsedSql::With(with) = parse(sql)?.remove(0) else { panic!("{sql}") };
        let steps = with.steps()?.into_iter().map(|step| {
            let name = step.alias.map_or("-".to_owned(), |alias| alias.to_string());
            format!("{}{name}: {}", if step.runs { "" } else { "not " }, step.statement).replace("\"__with\".", "@")
        });
        Ok(steps.collect())
    }

    #[test]
    fn the_last_part_runs_behind_what_it_reads_and_before_the_rest() {
        let sql = "WITH a AS (DELETE FROM t), b AS (DELETE FROM u), c AS (DELETE FROM v RETURNING *) SELECT x FROM c";
        let want =
            ["c: DELETE FROM v RETURNING *", "-: SELECT x FROM @\"c\" AS c", "b: DELETE FROM u", "a: DELETE FROM t"];
        assert_eq!(steps(sql).unwrap(), want);
        let sql = "WITH a AS (DELETE FROM t RETURNING i), b AS (INSERT INTO u SELECT i FROM a) UPDATE a SET x = 1";
        let want =
            ["-: UPDATE a SET x = 1", "a: DELETE FROM t RETURNING i", "b: INSERT INTO u SELECT i FROM @\"a\" AS a"];
        assert_eq!(steps(sql).unwrap(), want);
    }

    #[test]
    fn a_query_that_several_read_is_computed_once() {
        let sql = "WITH a AS (SELECT i FROM t), b AS (DELETE FROM u USING a RETURNING *), c AS (SELECT i FROM a), \
                   d(k) AS (SELECT i FROM c), e AS (SELECT 1 AS n) SELECT i FROM d, b AS z";
        let want = [
            "a: SELECT i FROM t",
            "b: DELETE FROM u USING @\"a\" AS a RETURNING *",
            "-: WITH c AS (SELECT i FROM @\"a\" AS a), d (k) AS (SELECT i FROM c), e AS (SELECT 1 AS n) \
             SELECT i FROM d, @\"b\" AS z",
        ];
        assert_eq!(steps(sql).unwrap(), want);
        let sql = "WITH RECURSIVE n(i) AS (SELECT 1 AS n UNION ALL SELECT i + 1 FROM n WHERE i < 3), x AS (SELECT 1 AS a) \
                   DELETE FROM t USING n, n AS m";
        let want = [
            "n: WITH RECURSIVE n (i) AS (SELECT 1 AS n UNION ALL SELECT i + 1 FROM n WHERE i < 3) SELECT * FROM n",
            "-: DELETE FROM t USING @\"n\" AS n, @\"n\" AS m",
            "not x: WITH RECURSIVE x AS (SELECT 1 AS a) SELECT * FROM x",
        ];
        assert_eq!(steps(sql).unwrap(), want);
    }

    #[test]
    fn what_cannot_be_read_is_told_as_postgres_tells_it() {
        for (sql, want) in [
            ("WITH a AS (DELETE FROM t) SELECT i FROM a", "0A000"),
            ("WITH RECURSIVE a AS (INSERT INTO t SELECT i FROM a RETURNING *) SELECT i FROM a", "42P19"),
            (
                "WITH RECURSIVE a AS (DELETE FROM t USING b RETURNING 1), b AS (SELECT i FROM a) SELECT i FROM b",
                "0A000",
            ),
            ("WITH a AS (DELETE FROM t), a AS (SELECT 1) SELECT 1", "42712"),
        ] {
            assert_eq!(steps(sql).unwrap_err().state(), want, "{sql}");
        }
    }
}
