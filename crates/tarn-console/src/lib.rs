//! What did a person type, and how does an answer look? The console of `tarn sql` without its terminal: text in, text
//! out.
//!
//! In reading order:
//! - [`lex`]: the pieces of SQL text. [`script`]: where statements and backslash commands begin and end.
//! - [`command`]: the words of a backslash command. [`transfer`]: what `\copy` asks for. [`variables`]: `:name` in
//!   statements. [`transaction`]: whether one is open.
//! - [`keywords`], [`names`], [`complete`]: what may stand where the cursor is. [`highlight`]: colours. [`syntax`]:
//!   `\h`.
//! - [`layout`]: an answer as a table, as records or as lines. [`caret`]: where in a statement an error is.
//! - [`address`]: what `postgresql://user@host/database` says.
//!
//! Nothing here knows a connection, a file, a terminal or a clock: `tarn`'s `cli/sql` has them.
//!
//! ```
//! use tarn_console::layout::{DisplayOptions, render};
//! use tarn_console::script::{Script, ScriptItem};
//!
//! let mut script = Script::new("SELECT 'a;b' AS x; -- done\n\\dt\n");
//! assert_eq!(script.next().unwrap().kind, ScriptItem::Statement("SELECT 'a;b' AS x"));
//! assert!(matches!(script.next().unwrap().kind, ScriptItem::Command { line: "\\dt", .. }));
//!
//! let table = render(&["x".to_owned()], &[vec![Some("a;b".to_owned())]], &DisplayOptions::default(), 1);
//! assert_eq!(table, "┌─────┐\n│ x   │\n╞═════╡\n│ a;b │\n└─────┘\n");
//! ```

#![warn(missing_docs)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod address;
pub mod caret;
pub mod command;
pub mod complete;
pub mod highlight;
pub mod keywords;
pub mod layout;
pub mod lex;
pub mod names;
pub mod script;
pub mod syntax;
pub mod transaction;
pub mod transfer;
pub mod variables;
