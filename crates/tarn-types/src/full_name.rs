//! How is a table called that is in another schema than `public`?
//!
//! A table, view, sequence or index has one name in everything that is kept and looked up: its full name.
//!
//! ```text
//! t in public    t
//! t in s         ⟨ s ⟩ t        ⟨ and ⟩ are U+F8FC and U+F8FD, of Unicode's private use, which no name of a user has
//! ```
//!
//! So two tables of one name in two schemas have two names, and those of `public` are called as they always were. Who
//! shows one to a person writes it as SQL does, `s.t` ([`dotted`]), or leaves the schema out ([`bare`]).

use std::borrow::Cow;

/// The schema whose tables have names without a schema.
pub const PUBLIC: &str = "public";

const OPEN: char = '\u{F8FC}';
const CLOSE: char = '\u{F8FD}';

/// What something of this name is called in a schema.
pub fn join(schema: &str, name: &str) -> String {
    match schema {
        PUBLIC => name.to_owned(),
        schema => format!("{OPEN}{schema}{CLOSE}{name}"),
    }
}

/// As [`join`], of a name whose schema was said, also where that is `public`: so it is not looked for in another. No
/// table is called so.
pub fn said(schema: &str, name: &str) -> String {
    format!("{OPEN}{schema}{CLOSE}{name}")
}

/// The schema of a full name, and the name there.
pub fn split(full: &str) -> (&str, &str) {
    full.strip_prefix(OPEN).and_then(|rest| rest.split_once(CLOSE)).unwrap_or((PUBLIC, full))
}

/// The schema of a full name.
pub fn schema_of(full: &str) -> &str {
    split(full).0
}

/// The name without its schema.
pub fn bare(full: &str) -> &str {
    split(full).1
}

/// What something of this name is called in the schema of `of`: an index beside its table.
pub fn beside(of: &str, name: &str) -> String {
    join(schema_of(of), name)
}

/// Whether a name has what full names are made of: no user may give it.
pub fn is_reserved(name: &str) -> bool {
    name.contains([OPEN, CLOSE])
}

/// A text with each full name in it as `s.t`.
pub fn dotted(text: &str) -> Cow<'_, str> {
    shown(text, true)
}

/// A text with each full name in it as `t`.
pub fn stripped(text: &str) -> Cow<'_, str> {
    shown(text, false)
}

fn shown(text: &str, with_schema: bool) -> Cow<'_, str> {
    if !text.contains(OPEN) {
        return Cow::Borrowed(text);
    }
    let (mut told, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, behind)) = rest.split_once(OPEN) {
        told.push_str(before);
        // One that nothing closes is none of ours.
        let Some((schema, behind)) = behind.split_once(CLOSE) else {
            rest = behind;
            break;
        };
        if with_schema {
            told.push_str(schema);
            told.push('.');
        }
        rest = behind;
    }
    told.push_str(rest);
    Cow::Owned(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_public_are_what_they_were() {
        assert_eq!((join(PUBLIC, "t"), split("t"), beside("t", "i")), ("t".into(), (PUBLIC, "t"), "i".into()));
        assert_eq!(split("s.t"), (PUBLIC, "s.t"), "a name may have a dot");
        assert_eq!((dotted("table \"t\""), is_reserved("s.t")), ("table \"t\"".into(), false));
    }

    #[test]
    fn a_name_of_another_schema_is_told_from_all_others() {
        let full = join("s", "a.b");
        assert_eq!((split(&full), bare(&full), schema_of(&full)), (("s", "a.b"), "a.b", "s"));
        assert_eq!(beside(&full, "i"), join("s", "i"));
        assert!(is_reserved(&full) && full != "s.a.b");
        let text = format!("relation \"{full}\" and {}", join("r", "t"));
        assert_eq!(dotted(&text), "relation \"s.a.b\" and r.t");
        assert_eq!(stripped(&text), "relation \"a.b\" and t");
        assert_eq!(dotted("\u{F8FC}open"), "open");
    }
}
