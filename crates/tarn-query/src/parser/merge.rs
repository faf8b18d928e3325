//! How is `MERGE` read? As PostgreSQL 15 says it: the parser's own form has the clauses of other systems, and not all
//! of PostgreSQL's.
//!
//! Two actions have no place in the tree that the parser makes, and take one that PostgreSQL has no use for: `DO
//! NOTHING` is an `UPDATE` of no columns, `INSERT DEFAULT VALUES` an `INSERT` of `ROW`.

use crate::sqlparser::ast::helpers::attached_token::AttachedToken;
use crate::sqlparser::ast::{
    Assignment, Merge, MergeAction, MergeClause, MergeClauseKind, MergeInsertExpr, MergeInsertKind, MergeUpdateExpr,
    Statement,
};
use crate::sqlparser::keywords::Keyword;
use crate::sqlparser::parser::{IsOptional, Parser, ParserError};
use crate::sqlparser::tokenizer::Token;

/// `MERGE INTO t USING source ON condition WHEN …`. `None`: another statement, and nothing of it was read.
pub(super) fn merge(parser: &mut Parser<'_>) -> Option<Result<Statement, ParserError>> {
    parser.peek_keyword(Keyword::MERGE).then(|| read(parser).map(Statement::Merge))
}

fn read(parser: &mut Parser<'_>) -> Result<Merge, ParserError> {
    let merge_token = AttachedToken(parser.next_token());
    parser.expect_keyword(Keyword::INTO)?;
    let table = parser.parse_table_factor()?;
    parser.expect_keyword(Keyword::USING)?;
    let source = parser.parse_table_factor()?;
    parser.expect_keyword(Keyword::ON)?;
    let on = Box::new(parser.parse_expr()?);
    let mut clauses = vec![clause(parser)?];
    while parser.peek_keyword(Keyword::WHEN) {
        clauses.push(clause(parser)?);
    }
    Ok(Merge { merge_token, optimizer_hints: vec![], into: true, table, source, on, clauses, output: None })
}

fn clause(parser: &mut Parser<'_>) -> Result<MergeClause, ParserError> {
    parser.expect_keyword(Keyword::WHEN)?;
    let when_token = AttachedToken(parser.get_current_token().clone());
    let is_matched = !parser.parse_keyword(Keyword::NOT);
    parser.expect_keyword(Keyword::MATCHED)?;
    let clause_kind = if is_matched { MergeClauseKind::Matched } else { MergeClauseKind::NotMatched };
    let predicate = parser.parse_keyword(Keyword::AND).then(|| parser.parse_expr()).transpose()?;
    parser.expect_keyword(Keyword::THEN)?;
    let action = match (parser.next_token(), is_matched) {
        (token, true) if is_keyword(&token.token, Keyword::UPDATE) => {
            parser.expect_keyword(Keyword::SET)?;
            update(AttachedToken(token), parser.parse_comma_separated(Parser::parse_assignment)?)
        }
        (token, true) if is_keyword(&token.token, Keyword::DELETE) => {
            MergeAction::Delete { delete_token: AttachedToken(token) }
        }
        (token, false) if is_keyword(&token.token, Keyword::INSERT) => insert(parser, AttachedToken(token))?,
        (token, _) if is_keyword(&token.token, Keyword::DO) => {
            parser.expect_keyword(Keyword::NOTHING)?;
            update(AttachedToken(token), vec![])
        }
        (token, true) => return parser.expected("UPDATE, DELETE or DO NOTHING", token),
        (token, false) => return parser.expected("INSERT or DO NOTHING", token),
    };
    Ok(MergeClause { when_token, clause_kind, predicate, action })
}

fn update(update_token: AttachedToken, assignments: Vec<Assignment>) -> MergeAction {
    MergeAction::Update(MergeUpdateExpr { update_token, assignments, update_predicate: None, delete_predicate: None })
}

fn insert(parser: &mut Parser<'_>, insert_token: AttachedToken) -> Result<MergeAction, ParserError> {
    if parser.parse_keyword(Keyword::DEFAULT) {
        parser.expect_keyword(Keyword::VALUES)?;
        let kind_token = AttachedToken(parser.get_current_token().clone());
        let (columns, kind) = (vec![], MergeInsertKind::Row);
        return Ok(MergeAction::Insert(MergeInsertExpr {
            insert_token,
            columns,
            kind_token,
            kind,
            insert_predicate: None,
        }));
    }
    let columns = parser.parse_parenthesized_qualified_column_list(IsOptional::Optional, false)?;
    parser.expect_keyword(Keyword::VALUES)?;
    let kind_token = AttachedToken(parser.get_current_token().clone());
    let values = parser.parse_values(false, false)?;
    if values.rows.len() != 1 {
        return Err(ParserError::ParserError("MERGE … INSERT takes one row of VALUES".to_owned()));
    }
    let kind = MergeInsertKind::Values(values);
    Ok(MergeAction::Insert(MergeInsertExpr { insert_token, columns, kind_token, kind, insert_predicate: None }))
}

fn is_keyword(token: &Token, keyword: Keyword) -> bool {
    matches!(token, Token::Word(word) if word.keyword == keyword && word.quote_style.is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parser::{ParseError, statements};

    fn actions(clauses: &str) -> Result<String, ParseError> {
        let sql = format!("MERGE INTO public.t AS a USING (SELECT 1 AS x) AS s ON a.x = s.x {clauses}");
        let Statement::Merge(merge) = statements(&sql)?.remove(0) else { panic!("{sql}") };
        let said = merge.clauses.iter().map(|clause| match &clause.action {
            MergeAction::Delete { .. } => "delete".to_owned(),
            MergeAction::Update(update) if update.assignments.is_empty() => "nothing".to_owned(),
            MergeAction::Update(update) => format!("update {}", update.assignments.len()),
            MergeAction::Insert(insert) => format!("insert {} {}", insert.columns.len(), insert.kind),
        });
        Ok(said.collect::<Vec<_>>().join(", "))
    }

    #[test]
    fn all_clauses_of_postgres_and_no_others() {
        let all = "WHEN MATCHED AND s.x > 1 AND a.x < 2 THEN DELETE WHEN MATCHED THEN UPDATE SET y = 1, (z, w) = (2, DEFAULT)
            WHEN NOT MATCHED AND x = 3 THEN INSERT (x, y) VALUES (s.x, DEFAULT) WHEN NOT MATCHED AND x = 4 THEN INSERT DEFAULT VALUES
            WHEN NOT MATCHED THEN DO NOTHING WHEN MATCHED THEN DO NOTHING";
        let want = "delete, update 2, insert 2 VALUES (s.x, DEFAULT), insert 0 ROW, nothing, nothing";
        assert_eq!(actions(all).unwrap(), want);
        for refused in [
            "",
            "WHEN MATCHED THEN INSERT VALUES (1)",
            "WHEN NOT MATCHED THEN DELETE",
            "WHEN NOT MATCHED THEN INSERT VALUES (1), (2)",
            "WHEN NOT MATCHED BY SOURCE THEN DELETE",
            "WHEN MATCHED THEN UPDATE SET y = 1 WHERE a.x = 1",
            "WHEN MATCHED THEN UPDATE SET y = 1, y = 2",
            "WHEN MATCHED THEN DELETE RETURNING a.x",
        ] {
            assert!(matches!(actions(refused), Err(ParseError::Syntax(_))), "{refused}");
        }
    }
}
