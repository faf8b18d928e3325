//! How is the text read where sqlparser's PostgreSQL dialect reads it otherwise than PostgreSQL?
//!
//! [`PgDialect`] is that dialect in everything but what is listed here, each with a case in `tests.rs`:
//!
//! | what | sqlparser | PostgreSQL (manual, 4.1.6) |
//! |---|---|---|
//! | `a IS DISTINCT FROM b AND c` | `a IS DISTINCT FROM (b AND c)` | `(a IS DISTINCT FROM b) AND c` |
//! | `-2 ^ 2`, `-a AT TIME ZONE z` | `-(2 ^ 2)` | `(-2) ^ 2` |
//! | `@ a + b`, `~ a + b` | `(@ a) + b` | `@ (a + b)` |
//! | `a ~ b = c`, `a ~ b LIKE c` | by turns, as `=` | `~` binds as any other operator: closer than `=` and LIKE |
//! | `a OPERATOR(pg_catalog.~) b` | as BETWEEN | as any other operator |
//! | `a < b < c`, `a LIKE b LIKE c` | `(a < b) < c` | refused: these do not chain |
//! | `a ISNULL` | `a AS isnull` | `a IS NULL` |
//! | `INSERT INTO t SELECT 1 ON CONFLICT …` | `1 AS on` | what is done with rows that are there |
//! | `a BETWEEN SYMMETRIC b AND c` | refused | between them in either order |
//! | `interval(2) '1.239 s'` | without its precision | with it |
//! | `a::text COLLATE "C"` | refused | a collation |
//! | `SELECT exists, interval + 1 end FROM t sample` | refused | columns and aliases |
//! | `make_interval(days := 1)` | an operator `:=` | as `=>` |
//! | `UPSERT INTO t …` | refused | refused; here an INSERT that replaces |
//! | `MERGE …` | other systems' actions | as in `merge.rs` |
//! | `AS IDENTITY (START 1 INCREMENT 2)` | in one order | as in `identity.rs` |
//! | `a ! `, `a XOR b`, `a DIV b`, `a REGEXP b` | operators of others | none |
//!
//! It also bounds the parse. What counts is asked for by the parser at every step: how much stack is used, how many
//! readings were tried, how deep the expression is that is being built. Chains of AND and OR are built balanced, so
//! that 20,000 conditions are 15 deep.

use std::any::TypeId;
use std::cell::Cell;
use std::iter::Peekable;
use std::panic::resume_unwind;
use std::str::Chars;

use crate::sqlparser::ast::{
    BinaryOperator, ColumnOption, DataType, Expr, GranteesType, Ident, Insert, Interval, ObjectName, ObjectNamePart,
    Statement, TypedString, UnaryOperator, Value, Visitor,
};
use crate::sqlparser::dialect::{Dialect, PostgreSqlDialect, Precedence};
use crate::sqlparser::keywords::Keyword;
use crate::sqlparser::parser::{Parser, ParserError};
use crate::sqlparser::tokenizer::Token;
use crate::walk::walk;

use super::calls::{CURRENT_OF, call};
use super::identity::identity;
use super::limits::{Limit, MAX_CHAIN, MAX_TERMS, PARSE_STACK_BYTES};
use super::merge::merge;

const POSTGRES: PostgreSqlDialect = PostgreSqlDialect {};

/// Between a subscript and COLLATE.
const UNARY_MINUS_PREC: u8 = 125;
const OTHER_OPERATOR_PREC: u8 = 70;
const COMPARISON_PREC: u8 = 50;
const IS_PREC: u8 = 40;

/// Names of columns without AS, of which other systems make clauses.
const COLUMN_ALIASES: [Keyword; 13] = [
    Keyword::ANALYZE,
    Keyword::CLUSTER,
    Keyword::DISTRIBUTE,
    Keyword::END,
    Keyword::EXCLUDE,
    Keyword::EXPLAIN,
    Keyword::LATERAL,
    Keyword::MINUS,
    Keyword::SELECT,
    Keyword::SORT,
    Keyword::TOP,
    Keyword::VALUES,
    Keyword::VIEW,
];

/// The same of tables. `SET` is one in PostgreSQL, but not in UPDATE.
const TABLE_ALIASES: [Keyword; 23] = [
    Keyword::ANTI,
    Keyword::ASOF,
    Keyword::CLUSTER,
    Keyword::CONNECT,
    Keyword::DISTRIBUTE,
    Keyword::EXPLAIN,
    Keyword::FORMAT,
    Keyword::GLOBAL,
    Keyword::MATCH_CONDITION,
    Keyword::MATCH_RECOGNIZE,
    Keyword::MINUS,
    Keyword::OPEN,
    Keyword::OUTPUT,
    Keyword::PARTITION,
    Keyword::PREWHERE,
    Keyword::SAMPLE,
    Keyword::SEMI,
    Keyword::SETTINGS,
    Keyword::SORT,
    Keyword::START,
    Keyword::TOP,
    Keyword::UNPIVOT,
    Keyword::VIEW,
];

/// How much one text may cost.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Operands that may be read, all readings together: usually about half of the tokens.
    steps: u64,
    /// Questions to the dialect: usually some fifty for a token.
    ticks: u64,
}

impl Bounds {
    pub(super) fn of(n_tokens: usize) -> Bounds {
        let n_tokens = n_tokens as u64;
        Bounds { steps: 1_000 + 8 * n_tokens, ticks: 100_000 + 2_000 * n_tokens }
    }
}

/// One parse's dialect.
#[derive(Debug)]
pub(super) struct PgDialect {
    bounds: Bounds,
    /// Where the stack was when the parse began.
    stack_address: usize,
    steps: Cell<u64>,
    ticks: Cell<u64>,
    n_terms: Cell<usize>,
    /// Of the parentheses, call or subquery that is being read: its longest chain, and the deepest of what was read in
    /// it.
    chain: Cell<usize>,
    nested: Cell<usize>,
    /// Whether the parser asks for a prefix because this dialect told it to.
    is_own_prefix: Cell<bool>,
    refused: Cell<Option<Limit>>,
}

impl PgDialect {
    pub(super) fn new(bounds: Bounds) -> PgDialect {
        PgDialect {
            bounds,
            stack_address: stack_address(),
            steps: Cell::new(0),
            ticks: Cell::new(0),
            n_terms: Cell::new(0),
            chain: Cell::new(0),
            nested: Cell::new(0),
            is_own_prefix: Cell::new(false),
            refused: Cell::new(None),
        }
    }

    /// Why the text was refused, if it was for its size.
    pub(super) fn refused(&self) -> Option<Limit> {
        self.refused.get()
    }

    /// What no reading of the text recovers from.
    fn refuse(&self, limit: Limit) -> ParserError {
        self.refused.set(self.refused.get().or(Some(limit)));
        // The only error that sqlparser passes on wherever it tries several readings.
        ParserError::RecursionLimitExceeded
    }

    fn spend(&self, steps: u64) -> Result<(), ParserError> {
        self.steps.set(self.steps.get() + steps);
        match self.steps.get() > self.bounds.steps {
            true => Err(self.refuse(Limit::Steps)),
            false => Ok(()),
        }
    }

    /// Asked for at every turn, also where no error can be told: then the parse is left by unwinding, without a panic's
    /// message.
    fn tick(&self) {
        self.ticks.set(self.ticks.get() + 1);
        let limit = match () {
            () if self.ticks.get() > self.bounds.ticks => Limit::Steps,
            () if self.stack_address.abs_diff(stack_address()) > PARSE_STACK_BYTES => Limit::Nesting,
            () => return,
        };
        let _ = self.refuse(limit);
        resume_unwind(Box::new(limit));
    }

    /// An operand, and how deep it is.
    fn prefix(&self, parser: &mut Parser<'_>) -> Result<Expr, ParserError> {
        let (chain, nested) = (self.chain.replace(0), self.nested.replace(0));
        let operand = self.operand(parser);
        // Also where it failed: another reading may be tried.
        let depth = self.chain.replace(chain) + self.nested.get() + 1;
        self.nested.set(nested.max(depth));
        operand
    }

    fn operand(&self, parser: &mut Parser<'_>) -> Result<Expr, ParserError> {
        let (op, precedence) = match &parser.peek_token_ref().token {
            Token::Minus => (UnaryOperator::Minus, UNARY_MINUS_PREC),
            Token::Plus => (UnaryOperator::Plus, UNARY_MINUS_PREC),
            Token::Tilde => (UnaryOperator::BitwiseNot, OTHER_OPERATOR_PREC),
            Token::PGSquareRoot => (UnaryOperator::PGSquareRoot, OTHER_OPERATOR_PREC),
            Token::PGCubeRoot => (UnaryOperator::PGCubeRoot, OTHER_OPERATOR_PREC),
            Token::AtSign => (UnaryOperator::PGAbs, OTHER_OPERATOR_PREC),
            Token::Word(word) if word.keyword == Keyword::INTERVAL && is_precise(parser) => {
                parser.advance_token();
                let leading_precision = parser.parse_optional_precision()?;
                let value = Box::new(parser.parse_prefix()?);
                let (leading_field, last_field, fractional_seconds_precision) = (None, None, None);
                return Ok(Expr::Interval(Interval {
                    value,
                    leading_field,
                    leading_precision,
                    last_field,
                    fractional_seconds_precision,
                }));
            }
            Token::Word(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case("inet") => {
                let name = Ident::new("inet");
                if let Token::SingleQuotedString(_) = parser.peek_nth_token_ref(1).token {
                    parser.advance_token();
                    let data_type = DataType::Custom(ObjectName::from(vec![name]), vec![]);
                    let value = parser.parse_value()?;
                    return Ok(Expr::TypedString(TypedString { data_type, value, uses_odbc_syntax: false }));
                }
                self.is_own_prefix.set(true);
                return parser.parse_prefix();
            }
            Token::Word(word) if is_column(word.keyword, parser) => {
                let mut names = vec![parser.parse_identifier()?];
                while parser.consume_token(&Token::Period) {
                    names.push(parser.parse_identifier()?);
                }
                return Ok(match names.len() {
                    1 => Expr::Identifier(names.remove(0)),
                    _ => Expr::CompoundIdentifier(names),
                });
            }
            Token::Word(word) if word.keyword == Keyword::CURRENT && is_current_of(parser) => {
                parser.advance_token();
                parser.advance_token();
                let Ident { value, quote_style, .. } = parser.parse_identifier()?;
                let name = if quote_style.is_some() { value } else { value.to_lowercase() };
                let cursor = Value::SingleQuotedString(name);
                return Ok(call(CURRENT_OF, vec![Expr::Value(cursor.with_empty_span())]));
            }
            _ => {
                self.is_own_prefix.set(true);
                return parser.parse_prefix();
            }
        };
        parser.advance_token();
        Ok(Expr::UnaryOp { op, expr: Box::new(parser.parse_subexpr(precedence)?) })
    }

    /// Checks the chain that ends with `left`; then, operators that sqlparser reads otherwise.
    fn infix(&self, parser: &mut Parser<'_>, left: &Expr, precedence: u8) -> Result<Option<Expr>, ParserError> {
        let chain = std::iter::successors(Some(left), |expr| first_of(expr)).take(MAX_CHAIN + 1).count();
        self.chain.set(self.chain.get().max(chain));
        if chain + self.nested.get() > MAX_CHAIN {
            return Err(self.refuse(Limit::Chain));
        }
        if !chains(left, &parser.peek_token_ref().token) {
            let next = parser.peek_token_ref();
            return Err(ParserError::ParserError(format!(
                "comparisons do not chain, set parentheses, at or near \"{}\"{}",
                next.token, next.span.start
            )));
        }
        let Token::Word(word) = &parser.peek_token_ref().token else { return Ok(None) };
        match word.keyword {
            Keyword::AND => self.terms(parser, left, Keyword::AND, precedence).map(Some),
            Keyword::OR => self.terms(parser, left, Keyword::OR, precedence).map(Some),
            Keyword::IS => self.distinct(parser, left),
            Keyword::BETWEEN | Keyword::NOT => self.symmetric(parser, left),
            _ if is_isnull(&parser.peek_token_ref().token) => {
                parser.advance_token();
                Ok(Some(Expr::IsNull(self.copy(left)?)))
            }
            Keyword::COLLATE => {
                parser.advance_token();
                Ok(Some(Expr::Collate { expr: self.copy(left)?, collation: parser.parse_object_name(false)? }))
            }
            _ => Ok(None),
        }
    }

    /// `left AND b AND c …` as a balanced tree: AND and OR are associative.
    fn terms(&self, parser: &mut Parser<'_>, left: &Expr, word: Keyword, precedence: u8) -> Result<Expr, ParserError> {
        let mut terms = vec![*self.copy(left)?];
        while parser.parse_keyword(word) {
            self.n_terms.set(self.n_terms.get() + 1);
            if self.n_terms.get() > MAX_TERMS {
                return Err(self.refuse(Limit::Terms));
            }
            terms.push(parser.parse_subexpr(precedence)?);
        }
        let op = if word == Keyword::AND { BinaryOperator::And } else { BinaryOperator::Or };
        Ok(balanced(terms, &op))
    }

    /// `IS [NOT] DISTINCT FROM`; any other IS is the parser's.
    fn distinct(&self, parser: &mut Parser<'_>, left: &Expr) -> Result<Option<Expr>, ParserError> {
        let word = |n: usize| match &parser.peek_nth_token_ref(n).token {
            Token::Word(word) => word.keyword,
            _ => Keyword::NoKeyword,
        };
        let (is_negated, n_words) = match (word(1), word(2), word(3)) {
            (Keyword::DISTINCT, Keyword::FROM, _) => (false, 3),
            (Keyword::NOT, Keyword::DISTINCT, Keyword::FROM) => (true, 4),
            _ => return Ok(None),
        };
        (0..n_words).for_each(|_| parser.advance_token());
        let (left, right) = (self.copy(left)?, Box::new(parser.parse_subexpr(IS_PREC)?));
        Ok(Some(match is_negated {
            false => Expr::IsDistinctFrom(left, right),
            true => Expr::IsNotDistinctFrom(left, right),
        }))
    }

    /// `a [NOT] BETWEEN SYMMETRIC b AND c`: between them in either order. Any other BETWEEN and NOT is the parser's.
    fn symmetric(&self, parser: &mut Parser<'_>, left: &Expr) -> Result<Option<Expr>, ParserError> {
        let word = |n: usize| match &parser.peek_nth_token_ref(n).token {
            Token::Word(word) => word.keyword,
            _ => Keyword::NoKeyword,
        };
        let (negated, n_words) = match (word(0), word(1), word(2)) {
            (Keyword::BETWEEN, Keyword::SYMMETRIC, _) => (false, 2),
            (Keyword::NOT, Keyword::BETWEEN, Keyword::SYMMETRIC) => (true, 3),
            _ => return Ok(None),
        };
        (0..n_words).for_each(|_| parser.advance_token());
        let precedence = POSTGRES.prec_value(Precedence::Between);
        let low = parser.parse_subexpr(precedence)?;
        parser.expect_keyword_is(Keyword::AND)?;
        let high = parser.parse_subexpr(precedence)?;
        let between = |low: Box<Expr>, high: Box<Expr>| -> Result<Box<Expr>, ParserError> {
            Ok(Box::new(Expr::Between { expr: self.copy(left)?, negated, low, high }))
        };
        let (one, other) = (between(self.copy(&low)?, self.copy(&high)?)?, between(Box::new(high), Box::new(low))?);
        let op = if negated { BinaryOperator::And } else { BinaryOperator::Or };
        Ok(Some(Expr::Nested(Box::new(Expr::BinaryOp { left: one, op, right: other }))))
    }

    /// The parser lends what is left of an operator; who takes it copies it, which costs steps.
    fn copy(&self, expr: &Expr) -> Result<Box<Expr>, ParserError> {
        struct Count(u64);
        impl Visitor for Count {
            type Break = ();
            fn pre_visit_expr(&mut self, _: &Expr) -> std::ops::ControlFlow<()> {
                self.0 += 1;
                std::ops::ControlFlow::Continue(())
            }
        }
        let mut count = Count(0);
        let _ = walk(expr, &mut count);
        self.spend(count.0 / 8)?;
        Ok(Box::new(expr.clone()))
    }
}

/// `UPSERT INTO …`: an INSERT that says so. `None`: another statement.
fn upsert(parser: &mut Parser<'_>) -> Option<Result<Statement, ParserError>> {
    let is_word = |token: &Token| match token {
        Token::Word(word) => word.quote_style.is_none() && word.value.eq_ignore_ascii_case("upsert"),
        _ => false,
    };
    if !is_word(&parser.peek_token_ref().token) {
        return None;
    }
    let first = parser.next_token();
    if !parser.peek_keyword(Keyword::INTO) {
        return Some(parser.expected_ref("INTO", parser.peek_token_ref()));
    }
    Some(parser.parse_insert(first).and_then(|statement| match statement {
        Statement::Insert(insert) => Ok(Statement::Insert(Insert { replace_into: true, ..insert })),
        _ => Err(ParserError::ParserError("UPSERT INTO is followed by a table".to_owned())),
    }))
}

#[inline(never)]
fn stack_address() -> usize {
    let here = 0_u8;
    std::ptr::from_ref(std::hint::black_box(&here)).addr()
}

/// `INTERVAL (2) '…'`
fn is_precise(parser: &Parser<'_>) -> bool {
    let token = |n: usize| &parser.peek_nth_token_ref(n).token;
    let is_text = matches!(token(4), Token::SingleQuotedString(_));
    *token(1) == Token::LParen && matches!(token(2), Token::Number(..)) && *token(3) == Token::RParen && is_text
}

/// A column, or its table, that is called as what the parser reads with what follows: `exists`, `trim` or `interval`.
fn is_column(keyword: Keyword, parser: &Parser<'_>) -> bool {
    let next = &parser.peek_nth_token_ref(1).token;
    match keyword {
        Keyword::EXISTS | Keyword::TRIM => *next != Token::LParen,
        Keyword::INTERVAL => !matches!(
            next,
            Token::LParen
                | Token::SingleQuotedString(_)
                | Token::EscapedStringLiteral(_)
                | Token::UnicodeStringLiteral(_)
                | Token::NationalStringLiteral(_)
                | Token::DollarQuotedString(_)
                | Token::Number(..)
                | Token::Placeholder(_)
        ),
        _ => false,
    }
}

/// `CURRENT OF c`: the row on which a cursor stands.
fn is_current_of(parser: &Parser<'_>) -> bool {
    let token = |n: usize| &parser.peek_nth_token_ref(n).token;
    matches!(token(1), Token::Word(word) if word.keyword == Keyword::OF) && matches!(token(2), Token::Word(_))
}

/// What an operator was applied to first: the next link of a chain that leans to the left.
fn first_of(expr: &Expr) -> Option<&Expr> {
    match expr {
        Expr::BinaryOp { left: expr, .. }
        | Expr::AnyOp { left: expr, .. }
        | Expr::AllOp { left: expr, .. }
        | Expr::UnaryOp { expr, .. }
        | Expr::Cast { expr, .. }
        | Expr::Collate { expr, .. }
        | Expr::AtTimeZone { timestamp: expr, .. }
        | Expr::IsNull(expr)
        | Expr::IsNotNull(expr)
        | Expr::IsTrue(expr)
        | Expr::IsNotTrue(expr)
        | Expr::IsFalse(expr)
        | Expr::IsNotFalse(expr)
        | Expr::IsUnknown(expr)
        | Expr::IsNotUnknown(expr)
        | Expr::IsDistinctFrom(expr, _)
        | Expr::IsNotDistinctFrom(expr, _)
        | Expr::IsNormalized { expr, .. }
        | Expr::InList { expr, .. }
        | Expr::InSubquery { expr, .. }
        | Expr::InUnnest { expr, .. }
        | Expr::Between { expr, .. }
        | Expr::Like { expr, .. }
        | Expr::ILike { expr, .. }
        | Expr::SimilarTo { expr, .. }
        | Expr::RLike { expr, .. }
        | Expr::JsonAccess { value: expr, .. } => Some(expr),
        _ => None,
    }
}

/// Whether `next` may follow `left` without parentheses. Postgres declares comparisons, and LIKE and its kin,
/// non-associative.
fn chains(left: &Expr, next: &Token) -> bool {
    use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    let is_comparison =
        |token: &Token| matches!(token, Token::Eq | Token::Neq | Token::Lt | Token::LtEq | Token::Gt | Token::GtEq);
    let keyword = if let Token::Word(word) = next { word.keyword } else { Keyword::NoKeyword };
    match left {
        Expr::BinaryOp { op: Eq | NotEq | Lt | LtEq | Gt | GtEq, .. } => !is_comparison(next),
        Expr::Like { .. } | Expr::ILike { .. } | Expr::SimilarTo { .. } | Expr::Between { .. } => !matches!(
            keyword,
            Keyword::LIKE | Keyword::ILIKE | Keyword::SIMILAR | Keyword::BETWEEN | Keyword::IN | Keyword::NOT
        ),
        Expr::IsDistinctFrom(..) | Expr::IsNotDistinctFrom(..) => {
            !matches!(keyword, Keyword::IS | Keyword::NOTNULL) && !is_isnull(next)
        }
        _ => true,
    }
}

/// A word of Postgres' that sqlparser does not know.
fn is_isnull(token: &Token) -> bool {
    matches!(token, Token::Word(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case("isnull"))
}

/// The terms joined two by two, from the leaves up.
fn balanced(mut terms: Vec<Expr>, op: &BinaryOperator) -> Expr {
    while terms.len() > 1 {
        let mut rest = terms.into_iter();
        let mut joined = Vec::with_capacity(rest.len().div_ceil(2));
        while let Some(left) = rest.next() {
            joined.push(match rest.next() {
                None => left,
                Some(right) => Expr::BinaryOp { left: Box::new(left), op: op.clone(), right: Box::new(right) },
            });
        }
        terms = joined;
    }
    terms.pop().expect("a chain has a first term")
}

/// The answers of PostgreSQL's dialect.
macro_rules! as_postgres {
    ($($name:ident)*) => {$(
        fn $name(&self) -> bool {
            self.tick();
            POSTGRES.$name()
        }
    )*};
}

#[deny(clippy::missing_trait_methods)]
impl Dialect for PgDialect {
    /// The parser asks for it where it means PostgreSQL.
    fn dialect(&self) -> TypeId {
        self.tick();
        POSTGRES.dialect()
    }

    fn parse_prefix(&self, parser: &mut Parser) -> Option<Result<Expr, ParserError>> {
        if self.is_own_prefix.replace(false) {
            return None;
        }
        Some(self.spend(1).and_then(|()| self.prefix(parser)))
    }

    fn parse_infix(&self, parser: &mut Parser, left: &Expr, precedence: u8) -> Option<Result<Expr, ParserError>> {
        self.infix(parser, left, precedence).transpose()
    }

    fn get_next_precedence(&self, parser: &Parser) -> Option<Result<u8, ParserError>> {
        let next = &parser.peek_token_ref().token;
        let keyword = if let Token::Word(word) = next { word.keyword } else { Keyword::NoKeyword };
        let precedence = match (next, keyword) {
            _ if is_isnull(next) => IS_PREC,
            (_, Keyword::OPERATOR) => OTHER_OPERATOR_PREC,
            (_, Keyword::COLLATE) => return POSTGRES.get_next_precedence(parser),
            (_, Keyword::XOR | Keyword::DIV | Keyword::REGEXP | Keyword::RLIKE | Keyword::MATCH | Keyword::MEMBER)
            | (Token::ExclamationMark, _) => self.prec_unknown(),
            (
                Token::Tilde
                | Token::TildeAsterisk
                | Token::ExclamationMarkTilde
                | Token::ExclamationMarkTildeAsterisk
                | Token::DoubleTilde
                | Token::DoubleTildeAsterisk
                | Token::ExclamationMarkDoubleTilde
                | Token::ExclamationMarkDoubleTildeAsterisk,
                _,
            ) => OTHER_OPERATOR_PREC,
            (Token::Eq | Token::Neq | Token::Lt | Token::LtEq | Token::Gt | Token::GtEq, _) => COMPARISON_PREC,
            _ => return POSTGRES.get_next_precedence(parser),
        };
        Some(Ok(precedence))
    }

    fn get_next_precedence_default(&self, parser: &Parser) -> Result<u8, ParserError> {
        self.get_next_precedence(parser).unwrap_or_else(|| POSTGRES.get_next_precedence_default(parser))
    }

    /// With it every argument of a call is read twice, and arguments of arguments four times. It is for
    /// `json_object('a': 1)` alone.
    fn supports_named_fn_args_with_expr_name(&self) -> bool {
        false
    }

    /// `make_interval(days := 1)`, as `=>`.
    fn supports_named_fn_args_with_assignment_operator(&self) -> bool {
        true
    }

    /// `'a'`, a new line, `'b'`: one literal.
    fn supports_string_literal_concatenation_with_newline(&self) -> bool {
        true
    }

    /// PostgreSQL 14 took it out.
    fn supports_factorial_operator(&self) -> bool {
        false
    }

    as_postgres! {
        supports_string_literal_backslash_escape ignores_wildcard_escapes supports_unicode_string_literal
        supports_filter_during_aggregation supports_window_clause_named_window_reference
        supports_within_after_array_aggregation supports_partition_by_after_order_by supports_array_join_syntax
        supports_group_by_expr supports_group_by_with_modifier supports_left_associative_joins_without_parens
        supports_outer_join_operator supports_cross_join_constraint supports_connect_by supports_execute_immediate
        supports_match_recognize supports_in_empty_list supports_start_transaction_modifier
        supports_end_transaction_modifier supports_named_fn_args_with_eq_operator
        supports_named_fn_args_with_colon_operator
        supports_named_fn_args_with_rarrow_operator supports_numeric_prefix supports_numeric_literal_underscores
        supports_window_function_null_treatment_arg supports_dictionary_syntax support_map_literal_syntax
        supports_lambda_functions supports_parenthesized_set_variables supports_comma_separated_set_assignments
        supports_update_order_by supports_select_wildcard_except convert_type_before_value
        supports_triple_quoted_string supports_trailing_commas supports_limit_comma
        supports_string_literal_concatenation supports_projection_trailing_commas supports_from_trailing_commas
        supports_column_definition_trailing_commas supports_object_name_double_dot_notation supports_struct_literal
        supports_empty_projections supports_select_expr_star supports_from_first_select supports_from_first_insert
        supports_pipe_operator supports_user_host_grantee supports_match_against supports_select_wildcard_exclude
        supports_select_exclude supports_create_table_multi_schema_info_sources supports_select_modifiers
        describe_requires_table_keyword allow_extract_custom allow_extract_single_quotes
        supports_extract_comma_syntax supports_subquery_as_function_arg supports_create_view_comment_syntax
        supports_array_typedef_without_element_type supports_parens_around_table_factor
        supports_values_as_table_factor supports_dollar_placeholder supports_dollar_as_money_prefix
        supports_create_index_with_clause require_interval_qualifier supports_explain_with_utility_options
        supports_asc_desc_in_column_definition supports_bitwise_shift_operators supports_nested_comments
        supports_multiline_comment_hints supports_eq_alias_assignment supports_try_convert supports_bang_not_operator
        supports_listen_notify supports_load_data supports_load_extension supports_top_before_distinct
        supports_boolean_literals supports_show_like_before_in supports_comment_on supports_create_table_select
        supports_partiql supports_constraint_keyword_without_name supports_key_column_option
        supports_table_sample_before_alias supports_insert_set supports_insert_table_function
        supports_insert_table_query supports_insert_format supports_insert_table_alias
        supports_set_stmt_without_operator supports_table_versioning supports_string_escape_constant
        supports_table_hints requires_single_line_comment_whitespace supports_array_typedef_with_brackets
        supports_geometric_types supports_order_by_all supports_set_names supports_space_separated_column_options
        supports_alter_column_type_using supports_comma_separated_drop_column_list supports_notnull_operator
        supports_data_type_signed_suffix supports_interval_options supports_create_table_like_parenthesized
        supports_semantic_view_table_factor supports_quote_delimited_string supports_comment_optimizer_hint
        supports_double_ampersand_operator supports_binary_kw_as_cast supports_select_wildcard_replace
        supports_select_wildcard_ilike supports_select_wildcard_rename supports_select_wildcard_with_alias
        supports_optimize_table supports_install supports_detach supports_prewhere supports_with_fill
        supports_limit_by supports_interpolate supports_settings supports_select_format supports_comma_separated_trim
        supports_cte_without_as supports_select_item_multi_column_alias supports_xml_expressions
        supports_create_table_using supports_long_type_as_bigint supports_map_literal_with_angle_brackets
    }

    fn is_delimited_identifier_start(&self, ch: char) -> bool {
        POSTGRES.is_delimited_identifier_start(ch)
    }

    fn is_nested_delimited_identifier_start(&self, ch: char) -> bool {
        POSTGRES.is_nested_delimited_identifier_start(ch)
    }

    fn peek_nested_delimited_identifier_quotes(&self, chars: Peekable<Chars<'_>>) -> Option<(char, Option<char>)> {
        POSTGRES.peek_nested_delimited_identifier_quotes(chars)
    }

    fn identifier_quote_style(&self, identifier: &str) -> Option<char> {
        POSTGRES.identifier_quote_style(identifier)
    }

    fn is_identifier_start(&self, ch: char) -> bool {
        POSTGRES.is_identifier_start(ch)
    }

    fn is_identifier_part(&self, ch: char) -> bool {
        POSTGRES.is_identifier_part(ch)
    }

    fn is_custom_operator_part(&self, ch: char) -> bool {
        POSTGRES.is_custom_operator_part(ch)
    }

    fn parse_statement(&self, parser: &mut Parser) -> Option<Result<Statement, ParserError>> {
        upsert(parser).or_else(|| merge(parser)).or_else(|| POSTGRES.parse_statement(parser))
    }

    fn parse_column_option(
        &self,
        parser: &mut Parser,
    ) -> Result<Option<Result<Option<ColumnOption>, ParserError>>, ParserError> {
        match identity(parser)? {
            Some(option) => Ok(Some(Ok(Some(option)))),
            None => POSTGRES.parse_column_option(parser),
        }
    }

    fn prec_value(&self, prec: Precedence) -> u8 {
        POSTGRES.prec_value(prec)
    }

    fn prec_unknown(&self) -> u8 {
        POSTGRES.prec_unknown()
    }

    fn is_reserved_for_identifier(&self, kw: Keyword) -> bool {
        self.tick();
        POSTGRES.is_reserved_for_identifier(kw)
    }

    fn get_reserved_keywords_for_select_item_operator(&self) -> &[Keyword] {
        POSTGRES.get_reserved_keywords_for_select_item_operator()
    }

    fn get_reserved_grantees_types(&self) -> &[GranteesType] {
        POSTGRES.get_reserved_grantees_types()
    }

    /// `INSERT INTO t SELECT 1 ON CONFLICT …`: no `1 AS on`.
    fn is_column_alias(&self, kw: &Keyword, parser: &mut Parser) -> bool {
        *kw != Keyword::ON && (COLUMN_ALIASES.contains(kw) || POSTGRES.is_column_alias(kw, parser))
    }

    fn is_select_item_alias(&self, explicit: bool, kw: &Keyword, parser: &mut Parser) -> bool {
        explicit || self.is_column_alias(kw, parser)
    }

    fn is_table_factor(&self, kw: &Keyword, parser: &mut Parser) -> bool {
        POSTGRES.is_table_factor(kw, parser)
    }

    fn is_table_alias(&self, kw: &Keyword, parser: &mut Parser) -> bool {
        TABLE_ALIASES.contains(kw) || POSTGRES.is_table_alias(kw, parser)
    }

    fn is_table_factor_alias(&self, explicit: bool, kw: &Keyword, parser: &mut Parser) -> bool {
        explicit || self.is_table_alias(kw, parser)
    }

    fn is_identifier_generating_function_name(&self, ident: &Ident, name_parts: &[ObjectNamePart]) -> bool {
        POSTGRES.is_identifier_generating_function_name(ident, name_parts)
    }
}
