//! How much may one text of SQL be? Each bound keeps the stack, the memory or the time of who parses and plans it.

use std::fmt;

/// Tokens of one text, spaces counted. The longest list of values that is let through takes some hundred megabytes
/// while it is parsed.
pub const MAX_TOKENS: usize = 4_000_000;

/// Statements and subqueries of one text: each takes some kilobytes, whatever it says.
pub const MAX_SELECTS: usize = 50_000;

/// Nesting of one statement: parentheses, calls, subqueries.
pub const MAX_NESTING: usize = 128;

/// Operators of one chain that are applied one after another (`a + b + …`, `a::int::int…`), together with what is
/// nested in them. Chains of AND and of OR are balanced, so they may be as long as they like.
pub const MAX_CHAIN: usize = 256;

/// Queries of one chain of UNION, INTERSECT, EXCEPT; entries of one WITH; tables of one FROM.
pub const MAX_QUERIES: usize = 2_000;

/// Tables of one statement; those of a name of WITH count at each mention of it.
pub const MAX_TABLES: usize = 10_000;

/// Columns of one SELECT.
pub const MAX_SELECTED: usize = 20_000;

/// Those of them that are more than a name. The planner compares each with all others, and asks nobody meanwhile
/// whether the statement was cancelled.
pub const MAX_COMPUTED: usize = 4_096;

/// Looks at parts of subqueries. The planner looks twice at what is in a subquery of an expression (`EXISTS`, `IN`,
/// `(SELECT …)`), four times at what is in one in there, and so on, and the same at WITH in the definitions of WITH.
/// Twenty levels with hardly anything in them are this many, and take two seconds; one with 100,000 parts may be six
/// levels deep.
///
/// Also looks at conditions of CASE (`null_asks.rs`): a dozen of them in each other's conditions are this many.
pub const MAX_LOOKS: usize = 1 << 23;

/// Expressions of one ORDER BY, GROUP BY, PARTITION BY or DISTINCT ON: PostgreSQL's bound of a SELECT.
pub const MAX_KEYS: usize = 1_664;

/// Groupings that one GROUP BY stands for, as in PostgreSQL: CUBE of n columns has 2^n.
pub const MAX_GROUPINGS: usize = 4_096;

/// Terms of all chains of AND and OR of one text.
pub const MAX_TERMS: usize = 50_000;

/// Stack of each thread that plans and runs statements, and parses those that are not small. The deepest that is let
/// through is a chain of AND: the engine takes conditions apart and joins them again one by one, and its debug build
/// needs some kilobytes for each of [`MAX_TERMS`]. Only what is touched takes memory.
pub const STACK_BYTES: usize = 256 << 20;

/// Stack of the threads of connections, which parse small texts, and copy and drop statements that were let through: an
/// expression is at most twelve times as deep as [`MAX_CHAIN`], one chain for each precedence, and each level of it
/// takes below a kilobyte. The parser takes some ten kilobytes for each of [`MAX_NESTING`]. A debug build takes several
/// times as much.
pub const CONNECTION_STACK_BYTES: usize = if cfg!(debug_assertions) { 32 << 20 } else { 8 << 20 };

/// What a parse may use of either.
pub(super) const PARSE_STACK_BYTES: usize = CONNECTION_STACK_BYTES / 2;

/// Texts up to this length are parsed where they arrive: the bounds of a parse keep that below some milliseconds, and a
/// keyed statement is done sooner than another thread would have begun it. Longer ones belong on the threads of
/// queries.
pub const SMALL_BYTES: usize = 4 << 10;

/// A limit that a text is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// [`MAX_TOKENS`].
    Tokens,
    /// [`MAX_SELECTS`].
    Selects,
    /// [`MAX_NESTING`].
    Nesting,
    /// [`MAX_CHAIN`].
    Chain,
    /// [`MAX_QUERIES`].
    Queries,
    /// [`MAX_TERMS`].
    Terms,
    /// [`MAX_TABLES`].
    Tables,
    /// [`MAX_GROUPINGS`].
    Groupings,
    /// [`MAX_SELECTED`].
    Selected,
    /// [`MAX_COMPUTED`].
    Computed,
    /// [`MAX_LOOKS`], of subqueries and WITH.
    Looks,
    /// [`MAX_LOOKS`], of conditions of CASE.
    Cases,
    /// [`MAX_KEYS`].
    Keys,
    /// Brackets of one type or subscript.
    Brackets,
    /// The parser tried too many readings of it.
    Steps,
}

impl Limit {
    /// What to do instead.
    pub fn remedy(self) -> &'static str {
        match self {
            Limit::Tokens | Limit::Selects => "load rows with COPY, or send the statements one by one",
            Limit::Nesting | Limit::Chain | Limit::Brackets | Limit::Steps => {
                "compute parts of it in WITH or in subqueries of FROM, or use IN or ANY for long lists"
            }
            Limit::Queries => "put the parts into a table with COPY, or send several statements",
            Limit::Tables => "put parts that are used several times into a table",
            Limit::Groupings => "use GROUPING SETS with those that are wanted",
            Limit::Looks => {
                "join the tables of the inner ones, and define all names in one WITH: each may use those before it"
            }
            Limit::Cases => "compute the inner ones in subqueries of FROM",
            Limit::Selected | Limit::Computed => "send several statements, or put the values into rows",
            Limit::Keys => "order or group by fewer: an array or a text of several columns is one",
            Limit::Terms => "use IN or = ANY with a list, or join a table that holds the values",
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limit::Tokens => write!(f, "the statement has more than {MAX_TOKENS} words and signs"),
            Limit::Selects => write!(f, "the text has more than {MAX_SELECTS} statements and subqueries"),
            Limit::Nesting => write!(f, "the statement is nested too deeply: the limit is {MAX_NESTING} levels"),
            Limit::Chain => {
                write!(f, "the statement is too deep: the limit is {MAX_CHAIN} operators of one expression")
            }
            Limit::Queries => {
                write!(f, "the statement joins more than {MAX_QUERIES} queries or tables")
            }
            Limit::Terms => write!(f, "the statement has more than {MAX_TERMS} conditions of AND and OR"),
            Limit::Tables => write!(f, "the statement reads tables more than {MAX_TABLES} times"),
            Limit::Computed => write!(f, "SELECT has more than {MAX_COMPUTED} columns that are computed"),
            Limit::Looks => f.write_str("the statement's subqueries, or its WITHs, are too deep in each other"),
            Limit::Cases => f.write_str("the statement's CASEs are too deep in each other's conditions"),
            Limit::Selected => write!(f, "SELECT has more than {MAX_SELECTED} columns"),
            Limit::Keys => {
                write!(f, "ORDER BY, GROUP BY, PARTITION BY or DISTINCT ON has more than {MAX_KEYS} expressions")
            }
            Limit::Groupings => write!(f, "GROUP BY stands for more than {MAX_GROUPINGS} groupings"),
            Limit::Brackets => f.write_str("a type or subscript has too many dimensions"),
            Limit::Steps => {
                f.write_str("the statement is too complex to be parsed: it is nested where it has several readings")
            }
        }
    }
}
